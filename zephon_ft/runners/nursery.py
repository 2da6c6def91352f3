"""Nursery: starts worker processes. Where the system allows they are forks of one template, which has loaded the
libraries that they need: libraries are loaded once, and their memory exists once. Elsewhere each starts by itself.

A worker lives no longer than the template, which lives no longer than the parent. The parent holds a pidfd of every
worker: it sees its end at once and can kill it, whatever becomes of the template.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing import spawn
from typing import Protocol

from zephon_ft.runners import template, worker
from zephon_ft.runners.environment import worker_environment

_PATIENCE = 30.0  # seconds for a fork
_CODE_WAIT = 2.0  # seconds for the exit code of a process that has ended


class Process(Protocol):
    """What the parent does with a process that it started; `subprocess.Popen` is one."""

    pid: int

    def kill(self) -> None:
        """End it now."""

    def wait(self, timeout: float) -> int:
        """Its exit code, once it has ended. Raises subprocess.TimeoutExpired."""


class Nursery:
    """Starts workers.

    Args:
        modules: what workers will import, to be loaded beforehand. Modules that start threads undo the gain.
    """

    def __init__(self, modules: tuple[str, ...] = ()) -> None:
        self._modules = modules
        self._codes: dict[int, int] = {}  # by process id, of workers that have ended
        self._control: socket.socket | None = None

    def open(self) -> int | None:
        """Start the template, which ends with the thread that calls this.

        Returns:
            a file descriptor that is readable when `settle` will not wait; None where there is no template.
        """
        if not (sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
            return None
        with suppress(OSError):  # an old kernel, or no room: workers start by themselves, or say what is wrong
            os.close(os.pidfd_open(os.getpid()))
            control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    self._template = _launch(
                        template.BOOTSTRAP, (os.getpid(), theirs.fileno(), *self._modules), theirs.fileno()
                    )
                except OSError:
                    control.close()
                    return None
            self._control = control
            return control.fileno()
        return None

    def settle(self) -> None:
        """The template is ready, or it cannot be forked and goes."""
        assert self._control is not None
        if self._receive()[0] != 1:
            self.close()

    def start(self, tray: int, answers: int, arena: int, place: int) -> tuple[Process, int | None]:
        """Start a worker.

        Args:
            tray, answers, arena: file descriptors, for `worker.main`.
            place: of its status in the arena.

        Returns:
            the process, and its pidfd, which becomes the caller's; None where there is no such thing.

        Raises:
            OSError: it cannot be started.
        """
        if self._control is not None:
            try:
                socket.send_fds(self._control, [template.PLACE.pack(place)], [tray, answers, arena])
                while True:
                    pid, code, pidfd = self._receive()
                    if pidfd is not None:
                        return _Forked(self, pid, pidfd), pidfd
                    if pid < 0:
                        raise OSError(-pid, os.strerror(-pid))
                    if pid == 0:
                        break
                    self._codes[pid] = code
            except ConnectionError:
                pass
            self.close()  # it is gone; its workers are, too
        process = _launch(worker.BOOTSTRAP, (os.getpid(), tray, answers, arena, place), tray, answers, arena)
        with suppress(AttributeError, OSError):  # not Linux, or an old one: the end of its socket has to do
            return process, os.pidfd_open(process.pid)
        return process, None

    def code(self, pid: int) -> int:
        """The exit code of a forked worker that has ended. One that went with its template was killed."""
        while pid not in self._codes and self._control is not None:
            try:
                ended, code, _ = self._receive(_CODE_WAIT)
            except OSError:
                break
            if ended == 0:
                break
            self._codes[ended] = code
        return self._codes.pop(pid, -signal.SIGKILL)

    def close(self) -> None:
        """End the template, and with it what workers there still are."""
        if self._control is not None:
            self._control.close()
            self._control = None
            self._template.kill()
            self._template.wait()

    def _receive(self, wait: float = _PATIENCE) -> tuple[int, int, int | None]:
        """A reply and its pidfd; process id 0 when the template has ended."""
        assert self._control is not None
        self._control.settimeout(wait)
        try:
            message, fds, _, _ = socket.recv_fds(self._control, template.REPLY.size, 1)
        except ConnectionError:
            message, fds = b"", []
        pid, code = template.REPLY.unpack(message) if message else (0, 0)
        return pid, code, fds[0] if fds else None


class _Forked:
    """A `Process` that the template forked."""

    def __init__(self, nursery: Nursery, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._nursery, self._pidfd = nursery, pidfd
        self._code: int | None = None

    def kill(self) -> None:
        if self._code is None:
            with suppress(OSError):  # it has ended
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        if self._code is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(1000 * max(0.0, timeout)):
                raise subprocess.TimeoutExpired("worker", timeout)
            self._code = self._nursery.code(self.pid)
        return self._code


def _launch(bootstrap: str, arguments: tuple[object, ...], *fds: int) -> subprocess.Popen[bytes]:
    """A new interpreter like this one, with our import path and without our main module."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    path = json.dumps(list(map(str, sys.path)))
    return subprocess.Popen(
        [spawn.get_executable(), *flags, "-c", bootstrap, path, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        env=worker_environment(),
        pass_fds=fds,
    )
