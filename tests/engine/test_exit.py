"""How an interpreter ends with an iterator open: quickly, silently, and never by hanging."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from tests.engine.scripts import run, start

LEAVE = '\nprint("leaving", flush=True)\n'


@pytest.mark.parametrize(
    "body",
    [
        "it = stream()\nnext(it)" + LEAVE,
        "it = stream()\nnext(it)\nit.close()" + LEAVE,
        "it = stream(runner='inline')\nnext(it)" + LEAVE,
        "it = stream(sleep=1.0)\nuntil_busy()" + LEAVE,
        "threading.Thread(target=lambda: list(stream(sleep=0.01)), daemon=True).start()\nuntil_busy()" + LEAVE,
    ],
    ids=["open", "closed", "inline", "while a function sleeps", "consumer on another thread"],
)
def test_exit_with_an_open_iterator_is_quick_and_silent(body):
    status, _, err, seconds = run(body)
    assert (status, err) == (0, "")
    assert seconds < 5  # a task of 8 records that sleep 1 s each is not worked off


def test_the_exit_status_of_the_program_is_kept():
    status, _, err, _ = run("it = stream()\nnext(it)" + LEAVE + "sys.exit(3)")
    assert (status, err) == (3, "")


@pytest.mark.parametrize("end", ["it.close()", ""], ids=["close", "exit"])
def test_a_function_that_never_returns_is_named_and_the_process_ends(end):
    status, _, err, seconds = run("it = stream(sleep=1000, close_timeout=0.3)\nuntil_busy()" + LEAVE + end)
    assert status == 0
    assert "StuckWorkerWarning: map(nap) on dataset 'd', shard 0 (rows-0), row " in err
    assert "close_timeout=0.3" in err
    assert seconds < 8


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("catch", [True, False])
def test_ctrl_c_while_waiting_raises_keyboard_interrupt_and_ends_cleanly(catch):
    body = "it = stream(sleep=0.3)\n"
    wait = 'print("waiting", flush=True)\nfor _ in it: pass\n'
    if catch:
        handler = 'except KeyboardInterrupt:\n    print("caught", it.closed, threading.active_count())\n'
        body += "try:\n" + "".join(f"    {line}\n" for line in wait.splitlines()) + handler
    else:
        body += wait
    program = start(body)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        time.sleep(0.3)  # it waits for its first batch by now, which takes 2.4 s
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=10)
    finally:
        program.kill()
    if catch:
        assert (program.returncode, err) == (0, "")
        assert out.startswith("caught True")
    else:
        assert program.returncode == -signal.SIGINT
        assert err.count("Traceback") == 1
        assert err.rstrip().endswith("KeyboardInterrupt")


FORK = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
it = stream(sleep=0.001)
next(it)
print("leaving", flush=True)
child = os.fork()
if child == 0:
    {child}
_, status = os.waitpid(child, 0)
next(it)
it.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(
    "child",
    [
        "sys.exit(0)",
        "del it; sys.exit(0)",
        "it.close(); sys.exit(0)",
        "it = stream(); [next(it) for _ in range(9)]; it.close(); sys.exit(0)",
    ],
    ids=["exits", "drops", "closes", "uses the library"],
)
def test_a_child_that_was_forked_neither_hangs_nor_disturbs_its_parent(child):
    status, _, err, seconds = run(FORK.format(child=child))
    assert (status, err) == (0, "")
    assert seconds < 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_an_iterator_of_the_parent_says_so_in_the_child():
    child = "\n    ".join(
        ["", "try: next(it)", "except Exception as e: os._exit(7 if 'parent process' in str(e) else 1)"]
    )
    status, _, err, _ = run(FORK.format(child=child))
    assert (status, err) == (7, "")
