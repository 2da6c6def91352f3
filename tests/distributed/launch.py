"""Start ranks with torchrun and collect what they found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def torchrun(world: int, folder: Path, *jobs: str, dies: bool = False) -> list[dict[str, Any]]:
    """Run jobs of `worker` on `world` ranks; returns their results by job, for each rank.

    Args:
        dies: a rank is expected to die.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        environment["PYTHON_GIL"] = "0"
    process = subprocess.Popen(
        [*command, "-m", "tests.distributed.worker", str(folder), *jobs],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=150)
    except subprocess.TimeoutExpired:
        process.terminate()  # the launcher ends its ranks, which are in sessions of their own
        output, _ = process.communicate(timeout=60)
        raise AssertionError(f"{world} ranks hang: {output[-6000:]}") from None
    results = [folder / f"{world}-{rank}.json" for rank in range(world)]
    assert (process.returncode != 0) == dies and all(path.exists() for path in results), output[-6000:]
    return [json.loads(path.read_text()) for path in results]
