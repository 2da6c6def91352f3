"""A file that whoever needs it first makes: it is there as a whole, or not at all, also when several make it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from zephon_ft.errors import ConfigError


def made_once(path: Path, write: Callable[[Path], None], what: str, remedy: str) -> Path:
    """`path`, made where it is not there yet. Of several that make it at once the last wins; all write the same.

    Args:
        write: writes the file at a path.
        what: it is, for the error.
        remedy: what to do where it cannot be written.

    Raises:
        ConfigError: it cannot be written.
    """
    if path.exists():
        return path
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{what} cannot be written to {path}: {error.strerror or error}; {remedy}") from error
    finally:
        with suppress(OSError):  # gone, or never made
            temporary.unlink()
    return path
