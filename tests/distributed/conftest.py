"""One launch for each number of ranks, shared by the tests: importing torch is what takes time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed import worker
from tests.distributed.launch import torchrun
from tests.distributed.pipelines import SIZES, STEPS, endless, finite, one_pass, steps

Results = list[dict[str, Any]]  # of each rank, by job
FINITE = ("drop", "pad")
LOAD = ("load", "load_torn", "load_inside", "after_kill")


@pytest.fixture(scope="session")
def straight() -> list[str]:
    """The step digests of one process without torch.distributed."""
    return steps(endless(runner="inline"), STEPS)


@pytest.fixture(scope="session")
def passes() -> dict[str, list[Any]]:
    """What a finite pass over each size and the one after it yield, in one process without torch.distributed."""
    pipes = {ending: [finite(rows, ending, runner="inline") for rows in SIZES] for ending in FINITE}
    return {ending: [[one_pass(pipe), one_pass(pipe)] for pipe in pipes[ending]] for ending in FINITE}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ranks leave checkpoints and results."""
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(scope="session")
def four(folder: Path) -> Results:
    """Four ranks, which save, and of which one is killed at the end."""
    jobs = ("save", *FINITE, "save_torn", "save_inside", "mesh", "strict", "killed")
    return torchrun(4, folder, *jobs, dies=True)


@pytest.fixture(scope="session")
def two(folder: Path, four: Results) -> Results:
    return torchrun(2, folder, "straight", *FINITE, "load_merged", *LOAD)


@pytest.fixture(scope="session")
def eight(folder: Path, four: Results) -> Results:
    """Without torch.distributed.checkpoint, whose import takes longer than everything else; see `eight_slow`."""
    return torchrun(8, folder, "straight", *FINITE, "load_merged")


@pytest.fixture(scope="session")
def one(folder: Path, four: Results) -> Results:
    """A process group of one, in this process."""
    import torch.distributed as dist

    results: dict[str, Any] = {}
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        worker.run(["straight", *FINITE, "load_merged", *LOAD], folder, results)
    finally:
        dist.destroy_process_group()
    return [results]


@pytest.fixture(scope="session")
def eight_slow(folder: Path, four: Results) -> Results:
    return torchrun(8, folder, "agreement", *LOAD)


@pytest.fixture
def ranks(request: pytest.FixtureRequest) -> Results:
    """The results of each rank, from the launch that the test names."""
    return request.getfixturevalue(request.param)
