"""Data sets that are made once and kept in the cache folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zephon_ft.errors import ConfigError
from zephon_ft.io.made_once import made_once
from zephon_ft.io.sidecar import cache_folder


def cached(name: str, what: Any, tokenizer: str, folder: Path | None, write: Callable[[Path], None]) -> Path:
    """The file of a data set, made where it is not there yet; complete or not there, also when several make it.

    Args:
        name: of the kind of data, with its version.
        what: a dataclass with `rows`, all that the data depend on beside the tokenizer.
        tokenizer: path of the ``tokenizer.json`` that text lengths are counted with.
        folder: where; default ``ZEPHON_FT_CACHE`` or ``~/.cache/zephon_ft``.
        write: writes the file at a path.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        key = hashlib.sha256(repr(asdict(what)).encode() + Path(tokenizer).read_bytes()).hexdigest()[:8]
    except OSError as error:
        raise ConfigError(f"--tokenizer {tokenizer}: {error.strerror or error}") from error
    path = (folder or Path(cache_folder())) / f"{name}-{what.rows}-{key}.parquet"
    remedy = "name a folder that can be written with --out, or set ZEPHON_FT_CACHE"
    return made_once(path, write, "the data", remedy)
