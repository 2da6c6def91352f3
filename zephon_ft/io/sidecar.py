"""Sidecars: index files that are built once, by one process, however many start at the same time.

An index lies beside its data (``.NAME.zephon-ft.npz``), or in the cache folder (``ZEPHON_FT_CACHE``, else
``~/.cache/zephon_ft``) where the data's folder cannot be written or is remote. It is valid for one size and time of
change of the data. A compressed file gets a decompressed copy next to its index, so that rows can be read at random.
Written under a lock to a temporary name, then renamed: a reader sees a whole file or none.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import posixpath
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from zephon_ft.errors import StorageError, ZephonError
from zephon_ft.io.compression import compression_of, decompress
from zephon_ft.io.storage import File, LocalFile

VERSION = 1
_COPY_SUFFIX = ".data"


@dataclass(frozen=True, slots=True)
class Index:
    """What a scan found.

    Attributes:
        facts: str, int, float, bool, None, lists and dicts of these.
        arrays: named numpy arrays.
        data: the file that its offsets refer to: the source itself, or its decompressed copy.
    """

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]
    data: File


Scan = Callable[[File], tuple[dict[str, Any], dict[str, np.ndarray]]]


def cache_folder() -> str:
    """Where indexes go that cannot lie beside their data."""
    return os.environ.get("ZEPHON_FT_CACHE") or os.path.expanduser("~/.cache/zephon_ft")


def load(file: File, kind: str, role: str) -> Index | None:
    """The index of a file that an earlier `load_or_build` of the same kind and role saved, or None."""
    return next(filter(None, (_load(place, file, kind) for place in _places(file, role))), None)


def load_or_build(file: File, kind: str, scan: Scan, role: str = "") -> Index:
    """The index of a file, from its sidecar if that is valid, else built and saved.

    Args:
        file: the data.
        kind: name and version of what `scan` makes; a sidecar of another kind is not used.
        scan: reads the (decompressed) data and returns facts and arrays.
        role: part of the sidecar's name, for indexes that lie beside the main one; nothing is decompressed for them.

    Raises:
        DataError, StorageError: what `scan` raises; a damaged compressed file; nowhere to put a decompressed copy.
    """
    places = _places(file, role)
    for place in places:
        found = _load(place, file, kind)
        if found:
            return found
    compression = None if role else compression_of(file)
    reasons = []
    for place in places:
        try:
            with _lock(place + ".lock"):
                return _load(place, file, kind) or _build(place, file, kind, compression, scan)
        except ZephonError:
            raise
        except OSError as error:  # a folder that cannot be written, or is full: the next place may do
            reasons.append(f"{place}: {error.strerror or error}")
    if compression:
        raise StorageError(
            f"{file.path}: no place for its decompressed copy ({'; '.join(reasons)}); "
            "set ZEPHON_FT_CACHE to a folder with room, or decompress it yourself"
        )
    warnings.warn(
        f"the index of {file.path} cannot be saved ({'; '.join(reasons)}), so every process builds it anew; "
        "set ZEPHON_FT_CACHE to a folder that can be written",
        stacklevel=2,
    )
    return Index(*scan(file), file)


def _places(file: File, role: str) -> list[str]:
    """Where its sidecar may lie, without suffix, the preferred place first."""
    name = posixpath.basename(file.path.split("?")[0]) or "data"
    end = f".zephon-ft-{role}" if role else ".zephon-ft"
    beside = []
    identity = file.path
    if isinstance(file, LocalFile):
        identity = os.path.realpath(file.real)
        beside = [os.path.join(os.path.dirname(identity), f".{os.path.basename(identity)}{end}")]
    hashed = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return [*beside, os.path.join(cache_folder(), f"{hashed}-{name[-80:]}" + (end if role else ""))]


def _load(place: str, file: File, kind: str) -> Index | None:
    """The sidecar at `place`, or None where there is none or it does not belong to the data as it is now."""
    try:
        with np.load(place + ".npz", allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        head = json.loads(arrays.pop("head").tobytes())
        if (head["version"], head["kind"], head["stamp"]) != (VERSION, kind, file.stamp):
            return None
        data: File = file
        if head["copy"] is not None:
            data = LocalFile(place + _COPY_SUFFIX, shown=file.path)
            if data.size != head["copy"]:
                return None
        return Index(head["facts"], arrays, data)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None  # missing, of an older version, or damaged: built again


def _build(place: str, file: File, kind: str, compression: str | None, scan: Scan) -> Index:
    """Build and save, with the lock held."""
    for left_over in glob.glob(glob.escape(place) + ".tmp-*"):  # of a process that was killed
        os.unlink(left_over)
    temporary = f"{place}.tmp-{os.getpid()}-{threading.get_ident()}"
    try:
        data: File = file
        if compression:
            decompress(file, compression, temporary)
            data = LocalFile(temporary, shown=file.path)
        facts, arrays = scan(data)
        if compression:
            os.replace(temporary, place + _COPY_SUFFIX)
            data = LocalFile(place + _COPY_SUFFIX, shown=file.path)
        index = Index(facts, arrays, data)
        head = {"version": VERSION, "kind": kind, "stamp": file.stamp, "facts": facts}
        head["copy"] = data.size if compression else None
        with open(temporary, "wb") as out:
            np.savez(out, head=np.frombuffer(json.dumps(head).encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
        os.replace(temporary, place + ".npz")
        return index
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


@contextmanager
def _lock(path: str) -> Iterator[None]:
    """Hold an exclusive lock, between processes and threads. It ends with its holder, and leaves no file behind."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # a file system without locks: several may build, each renames a whole file
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_still(path, handle):
                continue  # the holder before us removed it: what we locked is no longer the lock
            try:
                yield
            finally:
                if _is_still(path, handle):
                    os.unlink(path)
            return
        finally:
            os.close(handle)


def _is_still(path: str, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
