"""Sides: what is compared. Ours are runners x interpreters; any other is a command that answers the same request."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from zephon_ft.errors import ConfigError

RUNNERS = ("thread", "process", "inline")  # the package's own: a side's process knows no others
_PROBE = (
    "import json, sys, sysconfig; print(json.dumps([sys.executable, '%d.%d' % sys.version_info[:2] + "
    "('t' if sysconfig.get_config_var('Py_GIL_DISABLED') else '')]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side.

    Attributes:
        name: in tables, e.g. ``"thread 3.14t"``.
        command: what is run, with ``--job REQUEST`` behind it.
        runner, decode: go into the request.
        scaled_decode: in place of the job's; None leaves that.
        ours: whether it is this package's pipeline, which must give the same bytes everywhere.
        bare: what the side's `Request.side` asks for; "" but for a bare loop (see `bare.SIDES`).
        against: names of the bare loops that it is a share of.
    """

    name: str
    command: tuple[str, ...]
    runner: str
    decode: str = "ours"
    scaled_decode: bool | None = None
    ours: bool = False
    bare: str = ""
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter: its path, and its version as ``3.14t``."""

    path: str
    label: str


def interpreter(name: str) -> Interpreter:
    """Find an interpreter by path or by name.

    Raises:
        ConfigError: there is none, or it is no Python.
    """
    path = shutil.which(name)
    if path is None:
        raise ConfigError(f"--python {name}: no such interpreter; give a path, or a name that is on PATH")
    try:
        probe = [path, "-S", "-c", _PROBE]
        done = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=True)
        return Interpreter(path, json.loads(done.stdout)[1])
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(f"--python {name}: {path} is not a Python that runs: {error}") from error


def our_sides(runners: Sequence[str], pythons: Sequence[str], *, mode: str = "", bare: bool = False) -> list[Side]:
    """Runners x interpreters.

    Args:
        runners: of `RUNNERS`.
        pythons: names or paths; none for this interpreter.
        mode: of the job: "text" has the tokenizer's own loop as a second bare one.
        bare: add the bare loop of each.

    Raises:
        ConfigError: an unknown runner or interpreter.
    """
    for runner in runners:
        if runner not in RUNNERS:
            raise ConfigError(f"--runners: {runner!r} is none of {', '.join(RUNNERS)}")
    sides: list[Side] = []
    labels: dict[str, int] = {}
    for python in map(interpreter, pythons or [sys.executable]):
        labels[python.label] = number = labels.get(python.label, 0) + 1
        label = python.label if number == 1 else f"{python.label} #{number}"
        command = (python.path, "-m", "zephon_ft.ab.side")
        for runner in runners:
            loops = _bare(runner, mode) if bare else ()
            names = tuple(f"{loop} {label}" for loop in loops)
            sides.append(Side(name=f"{runner} {label}", command=command, runner=runner, ours=True, against=names))
            for loop, name in zip(loops, names, strict=True):
                sides.append(Side(name=name, command=command, runner=runner, bare=loop))
    return sides


def _bare(runner: str, mode: str) -> tuple[str, ...]:
    if runner == "inline":
        return ()
    if runner == "process":
        return ("bare-process",)
    return ("bare", "bare-tokenizer") if mode == "text" else ("bare",)


def external_side(text: str) -> Side:
    """A side of ``NAME=COMMAND``.

    Raises:
        ConfigError: not of that form.
    """
    name, separator, command = text.partition("=")
    words = shlex.split(command)
    if not separator or not name or not words:
        raise ConfigError(f"--side {text!r}: write NAME=COMMAND; the command is run with --job REQUEST behind it")
    return Side(name=name, command=tuple(words), runner="", decode="own")


def distinct(sides: Iterable[Side]) -> list[Side]:
    """The sides, those that share a name numbered."""
    seen: dict[str, int] = {}
    out = []
    for side in sides:
        seen[side.name] = number = seen.get(side.name, 0) + 1
        out.append(side if number == 1 else replace(side, name=f"{side.name} #{number}"))
    return out


def package_folder(folder: Path) -> Path:
    """A folder with this package alone, to put on another interpreter's path: every side runs the same code."""
    link = folder / "zephon_ft"
    if not link.exists():
        link.symlink_to(Path(__file__).resolve().parent.parent, target_is_directory=True)
    return folder
