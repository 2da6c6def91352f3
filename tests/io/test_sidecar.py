"""Sidecars: built once, valid only for the data as it is, never half written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from zephon_ft.errors import StorageError
from zephon_ft.io import jsonl, sidecar
from zephon_ft.io.dataset import Dataset

PROCESSES = 8
ROOT = str(Path(__file__).parents[2])


def write(path: Path, *ids: int) -> Path:
    path.write_text("".join(json.dumps({"id": i}) + "\n" for i in ids))
    return path


@pytest.fixture
def scans(monkeypatch):
    """The files that were scanned, one entry a scan."""
    seen = []
    inner = jsonl.scan
    monkeypatch.setattr(jsonl, "scan", lambda file: seen.append(file.path) or inner(file))
    return seen


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_index_lies_beside_its_data_and_is_built_once(tmp_path, scans, cache_folder):
    path = write(tmp_path / "a.jsonl", 1, 2)
    for _ in range(3):
        assert Dataset.from_path("d", path).fetch(0, [1, 0]) == [{"id": 2}, {"id": 1}]
    assert len(scans) == 1
    assert names(tmp_path) == {"a.jsonl", ".a.jsonl.zephon-ft.npz"}
    assert not names(cache_folder)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_eight_processes_that_start_together_build_one_index(tmp_path, suffix):
    path = write(tmp_path / "a.jsonl", *range(1000))
    if suffix:
        subprocess.run(["gzip", path], check=True)
        path = tmp_path / "a.jsonl.gz"
    code = f"""
import os, sys, time
sys.path.insert(0, {ROOT!r})
from zephon_ft.io import jsonl
from zephon_ft.io.dataset import Dataset
inner = jsonl.scan
def scan(file):
    with open({str(tmp_path / "log")!r}, "ab", buffering=0) as log:
        log.write(b"x")
    time.sleep(0.5)
    return inner(file)
jsonl.scan = scan
open({str(tmp_path)!r} + f"/ready-{{os.getpid()}}", "w").close()
while not os.path.exists({str(tmp_path / "go")!r}):
    time.sleep(0.005)
dataset = Dataset.from_path("d", {str(path)!r})
assert [row["id"] for row in dataset.fetch(0, range(1000))] == list(range(1000))
"""
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(PROCESSES)]
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("ready-*"))) < PROCESSES and time.monotonic() < deadline:
            time.sleep(0.02)
        (tmp_path / "go").touch()
        assert [process.wait(60) for process in running] == [0] * PROCESSES
    finally:
        for process in running:
            process.kill()
    assert (tmp_path / "log").read_bytes() == b"x"
    assert not [name for name in names(tmp_path) if "tmp" in name or "lock" in name]


@pytest.mark.parametrize("change", ["longer", "same size"])
def test_a_changed_file_is_indexed_anew(tmp_path, scans, change):
    path = write(tmp_path / "a.jsonl", 1, 23)
    before = path.stat().st_mtime_ns
    Dataset.from_path("d", path)
    write(path, 12, 3) if change == "same size" else write(path, 1, 23, 4)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))
    expected = [{"id": 12}, {"id": 3}] if change == "same size" else [{"id": 1}, {"id": 23}, {"id": 4}]
    assert Dataset.from_path("d", path).fetch(0, range(len(expected))) == expected
    assert len(scans) == 2


def test_a_changed_compressed_file_or_a_lost_copy_is_decompressed_anew(tmp_path, scans):
    path = tmp_path / "a.jsonl.gz"
    for ids in ([1, 2], [5, 6, 7]):
        subprocess.run(["gzip", "-f", write(tmp_path / "a.jsonl", *ids)], check=True)
        assert [row["id"] for row in Dataset.from_path("d", path).fetch(0, range(len(ids)))] == ids
    (tmp_path / ".a.jsonl.gz.zephon-ft.data").unlink()
    assert Dataset.from_path("d", path).fetch(0, [2]) == [{"id": 7}]
    assert len(scans) == 3


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 half a file", None])
def test_a_damaged_index_is_built_anew(tmp_path, scans, damage):
    path = write(tmp_path / "a.jsonl", 1, 2)
    Dataset.from_path("d", path)
    index = tmp_path / ".a.jsonl.zephon-ft.npz"
    index.write_bytes(index.read_bytes()[:-30] if damage is None else damage)
    assert Dataset.from_path("d", path).fetch(0, [1]) == [{"id": 2}]
    assert len(scans) == 2


def test_an_index_of_another_kind_or_version_is_not_used(tmp_path, scans, monkeypatch):
    path = write(tmp_path / "a.jsonl", 1)
    Dataset.from_path("d", path)
    monkeypatch.setattr(sidecar, "VERSION", sidecar.VERSION + 1)
    Dataset.from_path("d", path)
    assert len(scans) == 2


@pytest.fixture
def read_only_folder(cache_folder):
    """A folder that this process cannot write to (as another user where the tests run as root)."""
    parent = Path(tempfile.mkdtemp())
    parent.chmod(0o755)
    folder = parent / "data"
    folder.mkdir()
    write(folder / "a.jsonl", 1, 2)
    folder.chmod(0o555)
    user = os.geteuid()
    cache = Path(tempfile.mkdtemp())
    cache.chmod(0o777)
    if user == 0:
        os.seteuid(65534)
    try:
        yield folder, cache
    finally:
        os.seteuid(user)
        folder.chmod(0o755)
        shutil.rmtree(parent)
        shutil.rmtree(cache)


def test_the_index_of_a_read_only_folder_goes_to_the_cache_folder(read_only_folder, scans, monkeypatch):
    folder, cache = read_only_folder
    monkeypatch.setenv("ZEPHON_FT_CACHE", str(cache))
    for _ in range(2):
        assert Dataset.from_path("d", folder).fetch(0, [1]) == [{"id": 2}]
    assert len(scans) == 1
    assert names(folder) == {"a.jsonl"}
    (index,) = names(cache)
    assert index.endswith("-a.jsonl.npz")


def test_without_any_place_the_index_is_built_each_time_and_that_is_said(read_only_folder, scans, monkeypatch):
    folder, _ = read_only_folder
    monkeypatch.setenv("ZEPHON_FT_CACHE", str(folder / "cache"))
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"a\.jsonl cannot be saved.*ZEPHON_FT_CACHE"):
            assert Dataset.from_path("d", folder).fetch(0, [1]) == [{"id": 2}]
    assert len(scans) == 2


def test_a_compressed_file_without_room_for_its_copy_is_an_error_that_names_the_option(tmp_path, monkeypatch):
    subprocess.run(["gzip", write(tmp_path / "a.jsonl", 1)], check=True)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sidecar, "decompress", full)
    with pytest.raises(StorageError, match=r"a\.jsonl\.gz: no place .*No space left.*ZEPHON_FT_CACHE"):
        Dataset.from_path("d", tmp_path / "a.jsonl.gz")
    assert names(tmp_path) == {"a.jsonl.gz"}


def test_what_a_killed_builder_left_is_removed_by_the_next(tmp_path):
    path = write(tmp_path / "a.jsonl", 1)
    (tmp_path / ".a.jsonl.zephon-ft.tmp-1-2").write_bytes(b"half")
    (tmp_path / ".a.jsonl.zephon-ft.lock").touch()
    Dataset.from_path("d", path)
    assert names(tmp_path) == {"a.jsonl", ".a.jsonl.zephon-ft.npz"}
