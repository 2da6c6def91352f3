"""Running one side in a process of its own, and watching its memory from outside: that costs it nothing."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from pathlib import Path

from zephon_ft.ab.job import Request
from zephon_ft.ab.measure import Result
from zephon_ft.ab.sides import Side, package_folder
from zephon_ft.ab.tree import memory
from zephon_ft.errors import PipelineError

SAMPLE_EVERY = 0.5  # seconds between looks at the memory
_PATIENCE = 240.0  # seconds that a side may take beside its window
_TAIL = 4000  # characters of a failed side's output, for --traceback
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE)
_PACKAGES = {"PIL": "pillow"}  # where the distribution has another name than the module
_NEEDED = "numpy pyarrow tokenizers fsspec jinja2 cloudpickle torch"


def run(side: Side, request: Request) -> tuple[Result, int]:
    """Start the side, wait for its answer.

    Returns:
        the answer, and the peak of the memory of all its processes in bytes (PSS, sampled).

    Raises:
        PipelineError: it failed, did not answer, or lacks a package; says what to do.
    """
    timeout = request.warmup + request.seconds + _PATIENCE
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        package = package_folder(Path(folder))
        paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [*side.command, "--job", request.to_json()],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        peak = _Peak(process.pid)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise PipelineError(f"side {side.name!r} did not answer within {timeout:.0f} s") from None
        finally:
            peak.stop()
            if process.poll() is None:
                process.kill()
                process.wait()
        errors.seek(0)
        said = errors.read()
    if process.returncode:
        failed = PipelineError(_failure(side, process.returncode, said))
        failed.add_note(said[-_TAIL:])
        raise failed
    try:
        return Result.from_json(output.strip().rsplit("\n", 1)[-1]), peak.nbytes
    except ValueError as error:
        raise PipelineError(
            f"side {side.name!r}: its last line is not a result ({error}): {output[-200:]!r}"
        ) from error


class _Peak:
    """The most memory that a process tree was seen with."""

    def __init__(self, pid: int) -> None:
        self.nbytes = 0
        self._pid, self._stop = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY):
            self.nbytes = max(self.nbytes, memory(self._pid))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def _failure(side: Side, status: int, said: str) -> str:
    missing = _MISSING.findall(said)
    if not missing or missing[-1].startswith("zephon_ft"):
        last = said.strip().rsplit("\n", 1)[-1]
        return f"side {side.name!r} ended with status {status}: {last or 'it said nothing'}"
    package = _PACKAGES.get(missing[-1], missing[-1])
    pil = " pillow" if missing[-1] in ("numpy", "PIL") else ""  # else it is there, perhaps as pillow-simd
    without = ", or use --decoder pillow" if package == "torch" else ""
    return (
        f"side {side.name!r}: {side.command[0]} has no package {package!r}. Install what a side needs there: "
        f"uv pip install --python {side.command[0]} {_NEEDED}{pil}{without}"
    )
