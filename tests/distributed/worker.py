"""What a rank does: the jobs named on its command line, one after the other; writes what they return.

torchrun ... -m tests.distributed.worker FOLDER JOB ...
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.distributed.pipelines import SAVED, SIZES, STEPS, endless, finite, next_step, one_pass, steps
from zephon_ft import Pipeline, ZephonError
from zephon_ft.step_digest import step_digest


def uninitialised(folder: Path) -> str | None:
    """Before torch.distributed is initialised."""
    return error_of(lambda: iter(endless()).close())


def straight(folder: Path) -> list[str]:
    return steps(endless(), STEPS)


def drop(folder: Path) -> list[Any]:
    return [finish(rows, "drop") for rows in SIZES]


def pad(folder: Path) -> list[Any]:
    return [finish(rows, "pad") for rows in SIZES]


def finish(rows: int, remainder: str) -> list[Any]:
    """Two passes over finite data."""
    pipe = finite(rows, remainder)
    return [one_pass(pipe), one_pass(pipe)]


def agreement(folder: Path) -> list[float]:
    """Milliseconds of the question that finite runs ask once a step: a tenth of them are faster than this, and half."""
    from zephon_ft.distributed import make_agree

    pipe = finite(5, "drop")
    agree = make_agree(pipe._options, pipe.ranks(), any_rank=False)
    times = []
    for _ in range(300):
        begin = time.perf_counter()
        assert agree(True)
        times.append(1000 * (time.perf_counter() - begin))
    return [statistics.quantiles(times, n=10)[0], statistics.median(times)]


def save(folder: Path) -> list[str]:
    """A straight run that saves on the way: at once, in the background, and as one file a rank."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    pipe, digests = endless(), []
    later: Any = None
    with iter(pipe) as stream:
        for step in range(STEPS):
            if step == SAVED:
                dcp.save({"loader": pipe}, checkpoint_id=folder / "saved")
                later = dcp.async_save({"loader": pipe}, checkpoint_id=folder / "saved later")
                (folder / f"state {dist.get_rank()}.json").write_text(json.dumps(pipe.state_dict()))
            digests.append(step_digest(next_step(pipe, stream)))
    later.result()
    return digests


def save_torn(folder: Path) -> None:
    """Rank 1 is one step ahead when all save."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    pipe = endless()
    with iter(pipe) as stream:
        for _ in range(1 + (dist.get_rank() == 1)):
            next_step(pipe, stream)
    dcp.save({"loader": pipe}, checkpoint_id=folder / "torn")


def save_inside(folder: Path) -> list[str]:
    """All ranks are one batch into a step when they save; at the same number of ranks it goes on, here one step."""
    import torch.distributed.checkpoint as dcp

    pipe = endless()
    with iter(pipe) as stream:
        next_step(pipe, stream)
        next(stream)
    dcp.save({"loader": pipe}, checkpoint_id=folder / "inside")
    again = loaded(folder / "inside")
    with iter(again) as stream:
        rest = [next(stream) for _ in range(again.grad_accumulation - 1)]
        assert {batch.step for batch in rest} == {1}
        return [step_digest(next_step(again, stream))]


def load(folder: Path) -> list[list[str]]:
    return [steps(loaded(folder / name), STEPS - SAVED) for name in ("saved", "saved later")]


def load_merged(folder: Path) -> list[str]:
    """From the files of all ranks, merged by hand."""
    pipe = endless()
    pipe.load_state_dict(merged(folder))
    return steps(pipe, STEPS - SAVED)


def merged(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for path in folder.glob("state *.json"):
        state |= json.loads(path.read_text())
    return state


def load_torn(folder: Path) -> str | None:
    return error_of(lambda: loaded(folder / "torn"))


def load_inside(folder: Path) -> str | None:
    return error_of(lambda: loaded(folder / "inside"))


def mesh(folder: Path) -> dict[str, Any]:
    """Two data-parallel ranks with two tensor-parallel peers each."""
    from torch.distributed.device_mesh import init_device_mesh

    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    group = grid.get_group("dp")
    pipe = endless(mesh=grid["dp"], strict=True)
    with iter(pipe) as stream:
        batches = [batch.digest() for batch in next_step(pipe, stream)]
    return {
        "lanes": list(pipe.lanes),
        "batches": batches,
        "digests": steps(endless(mesh=(grid, "dp")), STEPS, group),
        "finite": [one_pass(finite(rows, "drop", mesh=grid["dp"]), group) for rows in SIZES],
        "all dimensions": error_of(lambda: endless(mesh=grid).ranks()),
        "no group": error_of(lambda: steps(endless(mesh=grid["dp"]), 1)),
    }


def strict(folder: Path) -> dict[str, str | None]:
    """Four processes that are meant to be two ranks of two peers each, told something else."""
    import torch.distributed as dist

    process = dist.get_rank()

    def start(pipe: Pipeline) -> str | None:
        return error_of(lambda: iter(pipe).close())

    def ranks(*table: tuple[int, int]) -> Pipeline:
        rank, world = table[process]
        return endless(strict=True, rank=rank, world_size=world)

    ahead = ranks((0, 2), (0, 2), (1, 2), (1, 2))
    if process == 3:
        steps_of_one(ahead)
    inside = ranks((0, 2), (0, 2), (1, 2), (1, 2))
    other = finite(61 + (process == 3), "drop", strict=True, rank=process // 2, world_size=2, agree=bool)
    return {
        "right": start(ranks((0, 2), (0, 2), (1, 2), (1, 2))),
        "some count all processes": start(ranks((0, 2), (0, 2), (2, 4), (3, 4))),
        "no rank has some lanes": start(ranks((0, 4), (0, 4), (1, 4), (1, 4))),
        "unequal shares": start(ranks((0, 2), (0, 2), (0, 2), (1, 2))),
        "another file": start(other),
        "another step": start(ahead),
        "another place": start(moved(inside, process == 3)),
    }


def steps_of_one(pipe: Pipeline) -> None:
    """One step, by this process alone."""
    free = pipe.options(strict=False)
    with iter(free) as stream:
        next_step(free, stream)
    pipe.load_state_dict(free.state_dict())


def moved(pipe: Pipeline, move: bool) -> Pipeline:
    """The pipeline, at the same step but (if `move`) at another place of it."""
    free = pipe.options(strict=False)
    with iter(free) as stream:
        next_step(free, stream)
    state = free.state_dict()
    if move:
        from zephon_ft.engine.checkpoint import _check

        key = min(key for key in state if key.startswith("lane."))
        *values, _ = state[key]
        values[2] += 1
        state[key] = [*values, _check(int(key[5:]), values)]
    pipe.load_state_dict(state)
    return pipe


def killed(folder: Path) -> None:
    """A run that saves every second step, until rank 2 dies in the middle of one."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    pipe = endless()
    with iter(pipe) as stream:
        for step in range(STEPS):
            if step and step % 2 == 0:
                dcp.save({"loader": pipe}, checkpoint_id=folder / f"step {step}")
            if step == 5 and dist.get_rank() == 2:
                next(stream)
                os.kill(os.getpid(), signal.SIGKILL)
            step_digest(next_step(pipe, stream))


def after_kill(folder: Path) -> dict[str, Any]:
    last = max(int(path.parent.name.split()[1]) for path in folder.glob("step */.metadata"))
    return {"step": last, "digests": steps(loaded(folder / f"step {last}"), STEPS - last)}


def loaded(path: Path) -> Pipeline:
    import torch.distributed.checkpoint as dcp

    pipe = endless()
    dcp.load({"loader": pipe}, checkpoint_id=path)
    return pipe


def error_of(function: Callable[[], Any]) -> str | None:
    """What a function raises, in words; None if nothing."""
    try:
        function()
    except ZephonError as error:
        return f"{type(error).__name__}: {error}"
    return None


def run(jobs: list[str], folder: Path, results: dict[str, Any]) -> None:
    for name in jobs:
        results[name] = globals()[name](folder)


def main(folder: Path, jobs: list[str]) -> None:
    import torch.distributed as dist

    results = {"uninitialised": uninitialised(folder)}
    dist.init_process_group("gloo")
    run([name for name in jobs if name != "killed"], folder, results)
    path = folder / f"{dist.get_world_size()}-{dist.get_rank()}.json"
    path.write_text(json.dumps(results))
    dist.barrier()
    if "killed" in jobs:
        killed(folder)
    dist.destroy_process_group()
    os._exit(0)  # a device mesh imports triton, which would list all that it holds when the interpreter ends


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
