"""Functions that do harm to the worker process they run in, and what the tests ask of a stream."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from typing import Any

from zephon_ft.runners.process import ProcessRunner


def once(folder: str, name: object) -> bool:
    """Whether this is the first time, over all processes."""
    try:
        os.close(os.open(os.path.join(folder, str(name)), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def die(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "segfault":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(7)


def die_where_told(row: dict[str, Any]) -> dict[str, Any]:
    """Die at rows that say how, ``always`` or the first time only."""
    if "die" in row and (row.get("always") or once(row["folder"], row["n"])):
        die(row["die"])
    return {"n": row["n"]}


def note_process(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "process": os.getpid()}


def sleep_where_told(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(row.get("sleep", 0))
    return {"n": row["n"]}


def processes(stream: Any) -> list[int]:
    """Ids of a stream's worker processes, when all are at work."""
    runner = stream._runner
    assert isinstance(runner, ProcessRunner)
    wait_for(lambda: len(runner._workers) == runner._size and all(w.ready for w in runner._workers))
    return [worker.process.pid for worker in runner._workers]


def alive(pid: int) -> bool:
    """Whether a process is there (a zombie is not)."""
    with suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def wait_for(condition: Any, seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(condition())
