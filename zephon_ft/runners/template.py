"""Template: the process that workers are forked from. It has loaded what they all need, so they share its memory.

Started as ``python -c BOOTSTRAP sys.path-as-JSON parent control module...``. It imports, says whether it can be forked,
and then forks a worker for each request and reports each worker's exit code, until its parent is gone. It runs no
thread and no user code, and is no fork of the parent: nothing of the parent's state gets into the workers.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
from contextlib import suppress

from zephon_ft.runners import worker

BOOTSTRAP = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from zephon_ft.runners.template import main; main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])"
)
PLACE = struct.Struct("=q")  # a request: where the worker's status lies; with it come tray, answers and arena
# A reply: (1 or 0, 0) can be forked or not, first of all; (process id, 0) with a pidfd, started; (-errno, 0) not
# started; (process id, exit code) without a pidfd, ended.
REPLY = struct.Struct("=qq")
REQUEST_FDS = 3


def main(parent: int, control: int, modules: list[str]) -> None:
    """Run until the parent is gone; returns in a worker too, when that has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    worker.die_with(parent)
    for name in modules:
        importlib.import_module(name)
    with socket.socket(fileno=control) as channel:
        alone = is_alone()
        channel.send(REPLY.pack(alone, 0))
        request = _serve(channel) if alone else None
    if request is not None:
        worker.main(*request)


def is_alone() -> bool:
    """Whether this process has but one thread: a fork takes no other along, nor lets go of what they hold."""
    return len(os.listdir("/proc/self/task")) == 1


def _serve(channel: socket.socket) -> tuple[int, int, int, int, int] | None:
    """Fork workers and wait for their ends. Returns in a worker, with what its `main` needs; in the template, None."""
    me = os.getpid()
    gc.freeze()  # no collection in a worker touches, and so copies, what all of them share
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    workers: dict[int, int] = {}  # pidfd -> process id
    while True:
        for fd, _ in poll.poll():
            if fd != channel.fileno():
                poll.unregister(fd)
                os.close(fd)
                pid = workers.pop(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(OSError):
                    channel.send(REPLY.pack(pid, code))
                continue
            message, fds, _, _ = socket.recv_fds(channel, PLACE.size, REQUEST_FDS)
            if not message:
                return None
            try:
                pid = os.fork()
            except OSError as error:
                channel.send(REPLY.pack(-(error.errno or 1), 0))
                pid = -1
            if pid == 0:
                for other in workers:
                    os.close(other)
                _seed()
                return (me, *fds, *PLACE.unpack(message))  # type: ignore[return-value]
            for given in fds:
                os.close(given)
            if pid > 0:
                pidfd = os.pidfd_open(pid)
                workers[pidfd] = pid
                poll.register(pidfd, select.POLLIN)
                socket.send_fds(channel, [REPLY.pack(pid, 0)], [pidfd])


def _seed() -> None:
    """Functions that draw from numpy's global generator must not draw the same in all workers."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
