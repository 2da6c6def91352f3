"""The GIL of a free-threaded interpreter: whether it is on, which module turned it back on, and a watch while running.

An extension module that does not declare that it can run without the GIL turns it on for the rest of the process when
it is imported, be it in the middle of a run (torch.compile imports triton then). All threads take turns from there on.
So workers look after each task, which costs some 30 ns, and the first that sees it on says so, once per process.

It is also on for a moment during every import of an extension module, until the interpreter has seen the declaration.
So it is reported when a module that turned it on for good is found, or when it has stayed on for long.

Which module it was is found afterwards, from what the interpreter keeps anyway: no import hook, no audit hook, no
warnings filter, all of which would change the process for everybody and cost at every import. Two places know:

- The interpreter's own warning at that import names the module. Where it was shown, its text stays in the
  ``__warningregistry__`` of importlib, but not under ``-W ignore`` or ``-W always``.
- Every module object holds its declaration as one machine word. Where that word lies is not part of any interface, so
  it is looked for each time: the one place where modules of the interpreter that declare it hold 1, and a new module,
  which does not, holds 0. If there is not exactly one such place (another version of Python), nothing is concluded from
  it, and all extension modules that do not belong to Python are named as candidates.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import logging
import re
import sys
import sysconfig
import threading
import time
from types import ModuleType

logger = logging.getLogger("zephon_ft")

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""Whether this interpreter was built to run without the GIL."""
FORCED = FREE_THREADED and getattr(sys.flags, "gil", None) == 1
"""Whether it was told to keep the GIL on (``PYTHON_GIL=1`` or ``-X gil=1``): then there is nothing to report."""

_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
_SHOWN = 5  # candidates that are named
_PATIENCE, _PAUSE = 10.0, 0.1  # seconds: on for so long without a name is for good; between two looks until then
_watched = threading.Lock()  # held while somebody looks for the module, and for good when it was reported


def gil_enabled() -> bool:
    """Whether only one thread runs Python code at a time now."""
    return _enabled()


def watch_gil() -> None:
    """Log a warning, once per process, if the GIL of a free-threaded interpreter has been turned back on. Cheap."""
    if FREE_THREADED and _enabled() and not FORCED and _watched.acquire(blocking=False):
        name = _culprit()
        if name is not None:
            _report(repr(name))
        else:
            threading.Thread(target=_look_again, name="zephon_ft gil", daemon=True).start()


def turned_on_by() -> str | None:
    """What turned the GIL of a free-threaded interpreter on, in words: a module's quoted name, ``one of`` several, or
    the user's setting. None where it is off, or where this interpreter always has it."""
    if not (FREE_THREADED and _enabled()):
        return None
    if FORCED:
        return "PYTHON_GIL=1 or -X gil=1"
    name = _culprit()
    return _candidates() if name is None else repr(name)


def _report(who: str) -> None:
    logger.warning(
        "the GIL of this free-threaded Python is on, so threads take turns: it was turned on by %s. Start Python with "
        "PYTHON_GIL=0 to keep it off",
        who,
    )


def _look_again() -> None:
    """Until it is off again (an import, which has ended), a module is found, or it is on for good without one."""
    until = time.monotonic() + _PATIENCE
    while True:
        time.sleep(_PAUSE)
        if not _enabled():
            _watched.release()
            return
        name = _culprit()
        if name is not None or time.monotonic() >= until:
            _report(_candidates() if name is None else repr(name))
            return


def _culprit() -> str | None:
    """The module that turned it on, where that is certain."""
    name = _warned_of()
    # Modules are listed in the order of their import: the later ones found it on.
    return name if name is not None else next(iter(_undeclared(_extensions()) or ()), None)


def _candidates() -> str:
    """Who may have turned it on, in words."""
    extensions = _extensions()
    foreign = [name for name in extensions if name.partition(".")[0] not in sys.stdlib_module_names]
    if not foreign or _undeclared(extensions) is not None:
        return "an extension module that cannot be told any more (python -W default names it when it is imported)"
    return f"one of {', '.join(map(repr, foreign[: -_SHOWN - 1 : -1]))}{', ...' * (len(foreign) > _SHOWN)}"


def _warned_of() -> str | None:
    """The module that the interpreter's warning named, if it was shown."""
    registry = getattr(importlib._bootstrap, "__warningregistry__", {})  # type: ignore[attr-defined]
    for key in registry.copy():
        if isinstance(key, tuple) and key[1] is RuntimeWarning:
            found = re.search(r"\(GIL\) has been enabled to load module '([^']+)'", str(key[0]))
            if found:
                return found[1]
    return None


def _extensions() -> dict[str, ModuleType]:
    """Modules in compiled files that are loaded now, in the order of their import."""
    found = {}
    for name, module in sys.modules.copy().items():  # a copy: others import meanwhile
        if issubclass(type(module), ModuleType):  # not isinstance: a lazy stand-in would load what it stands for
            spec = vars(module).get("__spec__")
            if isinstance(getattr(spec, "loader", None), importlib.machinery.ExtensionFileLoader):
                found[name] = module
    return found


def _undeclared(extensions: dict[str, ModuleType]) -> list[str] | None:
    """Those that do not declare that they run without the GIL; None where this version of Python cannot be read."""
    import ctypes

    count = ModuleType.__basicsize__ // ctypes.sizeof(ctypes.c_ssize_t)

    def words(module: ModuleType) -> list[int]:
        return list((ctypes.c_ssize_t * count).from_address(id(module)))

    declare = [words(sys.modules[name]) for name in ("sys", "builtins", "_imp", "_ctypes")]
    does_not = words(ModuleType("made_here"))
    places = [i for i in range(count) if does_not[i] == 0 and all(each[i] == 1 for each in declare)]
    if len(places) != 1:
        return None
    return [name for name, module in extensions.items() if words(module)[places[0]] == 0]
