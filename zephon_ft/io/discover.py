"""Discover: from what the user wrote to a sorted list of data files of one format.

The format comes from the suffix, else from the first bytes. Everything that can be wrong with a path is found here,
before any data is read.
"""

from __future__ import annotations

import glob
import os
import posixpath
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zephon_ft.errors import ConfigError, StorageError
from zephon_ft.io.retry import retrying
from zephon_ft.io.storage import File, each, filesystem, is_remote, is_url, open_file

FORMATS = ("parquet", "jsonl", "tar")
_ALIASES = {"json": "jsonl", "ndjson": "jsonl", "webdataset": "tar", "wds": "tar", "pq": "parquet"}
_SUFFIXES = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tar": "tar",
    ".tgz": "tar",
}
_COMPRESSED = (".gz", ".zst", ".zstd")


def discover(
    name: str, path: Any, fmt: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> tuple[list[File], str]:
    """The data files at `path` (see `Dataset.from_path`), in order, and their format.

    Raises:
        ConfigError: nothing there, no data file, an unknown format, or several formats.
    """
    where = f"dataset {name!r}"
    fmt = _checked_format(where, fmt)
    paths = [path] if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(paths, Iterable) or isinstance(paths, (bytes, Mapping)):
        raise ConfigError(f"{where}: path must be a path, a URL, or a list of these, got {type(path).__name__}")
    found: list[str] = []
    for one in paths:
        if not isinstance(one, (str, os.PathLike)) or not os.fspath(one):
            raise ConfigError(f"{where}: {one!r} is not a path")
        found += _expand(where, os.fspath(one), fmt, storage_options)
    if not found:
        raise ConfigError(f"{where}: the list of paths is empty")
    try:
        files = each(found, lambda one: open_file(one, storage_options))
    except FileNotFoundError as error:
        raise ConfigError(f"{where}: there is no such file: {error}") from error
    return files, fmt or _common_format(where, files)


def _checked_format(where: str, fmt: str | None) -> str | None:
    if fmt is None:
        return None
    known = _ALIASES.get(fmt, fmt)
    if known not in FORMATS:
        raise ConfigError(f"{where}: unknown format {fmt!r}; use one of {', '.join(FORMATS)}, or None to detect it")
    return known


def _expand(where: str, path: str, fmt: str | None, options: Mapping[str, Any] | None) -> list[str]:
    """The data files behind one path, URL or glob."""
    if is_url(path):
        return _expand_url(where, path, fmt, options)
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        return _folder(where, path, fmt, lambda deep: _walk(path, deep))
    if os.path.exists(path):
        return [path]
    if glob.has_magic(path):
        matches = sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
        if not matches:
            raise ConfigError(f"{where}: no file matches {path}")
        return matches
    raise ConfigError(f"{where}: there is no {path}{_nearest(path)}")


def _nearest(path: str) -> str:
    """A hint: the part of a missing path that does exist."""
    parent = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    there = sorted(entry for entry in os.listdir(parent) if not entry.startswith("."))[:8]
    return f" ({parent} has: {', '.join(there)})" if there else f" ({parent} is empty)"


def _walk(path: str, deep: bool) -> list[str]:
    if not deep:
        return [entry.path for entry in os.scandir(path) if entry.is_file()]
    return [os.path.join(root, file) for root, _, files in os.walk(path) for file in files]


def _expand_url(where: str, url: str, fmt: str | None, options: Mapping[str, Any] | None) -> list[str]:
    fs, inner = filesystem(url, options)

    def ask(call: Any) -> Any:
        return retrying(call, url) if is_remote(url) else call()

    try:
        if "::" in url or (url.startswith(("http://", "https://")) and not url.endswith("/")):
            return [url]  # no folders or globs there; asking a web server for a listing could fetch the whole file
        if glob.has_magic(inner):
            matches = sorted(ask(lambda: fs.glob(inner)))
            if not matches:
                raise ConfigError(f"{where}: no file matches {url}")
            return [fs.unstrip_protocol(match) for match in matches]
        if not ask(lambda: fs.isdir(inner)):
            return [url]  # a missing one is found when it is opened
        return _folder(where, url, fmt, lambda deep: _listing(fs, inner, deep, ask))
    except FileNotFoundError as error:
        raise ConfigError(f"{where}: there is no {url}") from error


def _listing(fs: Any, inner: str, deep: bool, ask: Any) -> list[str]:
    entries = ask(lambda: fs.find(inner, detail=False) if deep else fs.ls(inner, detail=True))
    names = entries if deep else [entry["name"] for entry in entries if entry["type"] == "file"]
    return [fs.unstrip_protocol(entry) for entry in names]


def _folder(where: str, path: str, fmt: str | None, listing: Any) -> list[str]:
    """Data files of a folder, sorted; those of its sub-folders only where it has none itself."""
    seen: list[str] = []
    for deep in (False, True):
        seen = sorted(one for one in listing(deep) if posixpath.basename(one)[:1] not in (".", "_", ""))
        known = [one for one in seen if format_of_name(one)]
        if fmt is not None:
            known = [one for one in known if format_of_name(one) == fmt]
        if known:
            return known
    if not seen:
        raise ConfigError(f"{where}: the folder {path} has no files")
    kinds = Counter(posixpath.splitext(one)[1] or "no suffix" for one in seen)
    there = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common(5))
    wanted = f"{fmt} files" if fmt else "Parquet, JSONL or tar files"
    raise ConfigError(f"{where}: the folder {path} has no {wanted} (there is: {there})")


def format_of_name(path: str) -> str | None:
    """Format by suffix, a compression suffix left aside; None where the suffix is not known."""
    base = posixpath.basename(path.split("?")[0] if is_url(path) else path).lower()
    for suffix in _COMPRESSED:
        base = base.removesuffix(suffix)
    return _SUFFIXES.get(posixpath.splitext(base)[1])


def _common_format(where: str, files: Sequence[File]) -> str:
    formats = {file.path: format_of_name(file.path) or _format_of_content(where, file) for file in files}
    kinds = sorted(set(formats.values()))
    if len(kinds) > 1:
        example = {kind: next(path for path, one in formats.items() if one == kind) for kind in kinds}
        listed = ", ".join(f"{kind} ({path})" for kind, path in example.items())
        raise ConfigError(f"{where}: files of several formats: {listed}; choose one with fmt= or a glob")
    return kinds[0]


def _format_of_content(where: str, file: File) -> str:
    """Format by the first bytes (those inside, for gzip)."""
    try:
        head = file.read(0, min(file.size, 4096))
    except StorageError as error:
        raise ConfigError(f"{where}: {error}") from error
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(31).decompress(head)
        except zlib.error:
            head = b""
    if head[:4] == b"PAR1":
        return "parquet"
    if head[257:262] == b"ustar":
        return "tar"
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return "jsonl"
    raise ConfigError(
        f"{where}: the format of {file.path} is unknown (neither its suffix nor its first bytes tell); "
        f"pass fmt= one of {', '.join(FORMATS)}"
    )
