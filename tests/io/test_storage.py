"""Storage: URLs, networks that fail or stall, and joined requests."""

from __future__ import annotations

import io
import json
import random
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from zephon_ft.errors import ConfigError, DataError, StorageError
from zephon_ft.io import retry, storage
from zephon_ft.io.dataset import Dataset

ROWS = [{"id": i, "text": f"text {i} " * 20} for i in range(400)]


def jsonl_bytes() -> bytes:
    return "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def parquet_bytes() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), out, row_group_size=100)
    return out.getvalue()


def tar_bytes() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for row in ROWS:
            data = json.dumps(row).encode()
            info = tarfile.TarInfo(f"{row['id']:04}.json")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


FILES = {"data.jsonl": jsonl_bytes(), "data.parquet": parquet_bytes(), "data.tar": tar_bytes()}


def values(dataset: Dataset, rows) -> list:
    found = dataset.fetch(0, rows)
    return [row["json"] for row in found] if dataset.format == "tar" else found


class Network(MemoryFileSystem):
    """Memory that behaves like a network: counts requests, fails on demand."""

    protocol = "fakenet"
    store = {}
    pseudo_dirs = [""]
    trouble = staticmethod(lambda path, start, end: None)
    requests = []

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.removeprefix("fakenet:/"))

    def cat_file(self, path, start=None, end=None, **kwargs):
        self.requests.append((path, start, end))
        answer = self.trouble(path, start, end)
        data = super().cat_file(path, start, end, **kwargs)
        return data if answer is None else answer(data)


fsspec.register_implementation("fakenet", Network, clobber=True)


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(Network, "store", {})
    monkeypatch.setattr(Network, "requests", [])
    for name, content in FILES.items():
        Network().pipe(f"/bucket/{name}", content)
    return Network


@pytest.mark.parametrize("name", FILES)
def test_every_format_reads_from_memory_urls_which_are_not_remote(name):
    fs = fsspec.filesystem("memory")
    fs.pipe(f"/box/{name}", FILES[name])
    dataset = Dataset.from_path("d", f"memory://box/{name}")
    assert not dataset.remote
    assert values(dataset, [399, 5, 6, 7]) == [ROWS[i] for i in (399, 5, 6, 7)]


def test_folders_and_globs_of_urls():
    fs = fsspec.filesystem("memory")
    for i in (2, 1):
        fs.pipe(f"/globbed/part-{i}.jsonl", json.dumps({"id": i}).encode())
    for url in ("memory://globbed", "memory://globbed/part-*.jsonl"):
        dataset = Dataset.from_path("d", url)
        assert [dataset.fetch(i, [0])[0]["id"] for i in (0, 1)] == [1, 2]
    with pytest.raises(ConfigError, match=r"no file matches memory://globbed/x\*"):
        Dataset.from_path("d", "memory://globbed/x*")
    with pytest.raises(ConfigError, match=r"'d': there is no such file"):
        Dataset.from_path("d", "memory://globbed/gone.jsonl")


def test_an_unknown_protocol_is_an_error():
    with pytest.raises(ConfigError, match=r"nope://x/a\.jsonl: cannot be opened"):
        Dataset.from_path("d", "nope://x/a.jsonl")


@pytest.mark.parametrize("name", FILES)
def test_every_format_reads_from_a_network_and_survives_passing_failures(network, monkeypatch, name):
    turns = iter(range(10**6))

    def trouble(path, start, end):
        turn = next(turns) % 4
        if turn == 0:
            raise ConnectionResetError("reset")
        if turn == 1:
            error = RuntimeError("busy")
            error.status = 503  # type: ignore[attr-defined]
            raise error
        return (lambda data: data[:-1]) if turn == 2 else None

    monkeypatch.setattr(network, "trouble", staticmethod(trouble))
    dataset = Dataset.from_path("d", f"fakenet://bucket/{name}")
    assert dataset.remote
    wanted = random.Random(1).sample(range(400), 50)
    assert values(dataset, wanted) == [ROWS[i] for i in wanted]


def test_a_failure_that_lasts_is_a_storage_error_that_names_file_and_range(network, monkeypatch):
    dataset = Dataset.from_path("d", "fakenet://bucket/data.jsonl")

    def trouble(path, start, end):
        raise ConnectionResetError("reset")

    monkeypatch.setattr(network, "trouble", staticmethod(trouble))
    network.requests.clear()
    with pytest.raises(
        StorageError, match=r"fakenet://bucket/data\.jsonl \(bytes 0 to .* failed after 5 attempts.*reset"
    ):
        dataset.fetch(0, [0])
    assert len(network.requests) == retry.ATTEMPTS


def test_a_stalled_request_ends_in_a_storage_error(network, monkeypatch):
    dataset = Dataset.from_path("d", "fakenet://bucket/data.parquet")
    release = threading.Event()
    monkeypatch.setattr(retry, "TIMEOUT", 0.05)
    monkeypatch.setattr(retry, "ATTEMPTS", 2)
    monkeypatch.setattr(network, "trouble", staticmethod(lambda *args: release.wait(20) and None))
    start = time.monotonic()
    with pytest.raises(StorageError, match=r"no answer within 0\.05 s"):
        dataset.fetch(0, [0])
    assert time.monotonic() - start < 5
    release.set()


def test_what_waiting_cannot_mend_is_not_tried_again(network, monkeypatch):
    dataset = Dataset.from_path("d", "fakenet://bucket/data.jsonl")

    def trouble(path, start, end):
        error = RuntimeError("forbidden")
        error.status = 403  # type: ignore[attr-defined]
        raise error

    monkeypatch.setattr(network, "trouble", staticmethod(trouble))
    network.requests.clear()
    with pytest.raises(StorageError, match=r"failed after 1 attempt: .*forbidden"):
        dataset.fetch(0, [0])
    assert len(network.requests) == 1


def test_the_pause_grows_and_heeds_the_server():
    error = RuntimeError()
    assert max(retry._pause(0, error) for _ in range(50)) < min(retry._pause(2, error) for _ in range(50))
    error.headers = {"Retry-After": "7"}  # type: ignore[attr-defined]
    assert retry._pause(0, error) == 7
    error.headers = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}  # type: ignore[attr-defined]
    assert retry._pause(0, error) < 1


def test_a_row_group_of_a_remote_file_costs_one_request_and_only_its_columns(network):
    dataset = Dataset.from_path("d", "fakenet://bucket/data.parquet")
    dataset.fetch(0, [0])
    network.requests.clear()
    assert dataset.fetch(0, range(100, 200)) == ROWS[100:200]
    assert len(network.requests) == 1
    ((_, start, end),) = network.requests
    group = pq.read_metadata(io.BytesIO(FILES["data.parquet"])).row_group(1)
    assert end - start == group.column(0).total_compressed_size + group.column(1).total_compressed_size


def test_a_remote_file_is_read_once_for_its_index(network, cache_folder):
    Dataset.from_path("d", "fakenet://bucket/data.jsonl")
    assert len(list(cache_folder.iterdir())) == 1
    network.requests.clear()
    Dataset.from_path("d", "fakenet://bucket/data.jsonl")
    assert network.requests == []


def test_images_behind_urls_and_beside_remote_data(network):
    dataset = Dataset.from_path("d", "fakenet://bucket/data.jsonl")
    network().pipe("/bucket/img/a.jpg", b"jpeg")
    assert dataset.resolve("img/a.jpg", 0) == "fakenet://bucket/img/a.jpg"
    assert dataset.read_file("fakenet://bucket/img/a.jpg") == b"jpeg"
    with pytest.raises(DataError, match=r"img/b\.jpg: there is no such file"):
        dataset.read_file("fakenet://bucket/img/b.jpg")


@pytest.mark.parametrize("seed", range(30))
def test_joined_ranges_give_exactly_the_bytes_asked_for(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    content = rng.randbytes(50_000)
    (tmp_path / "x").write_bytes(content)
    file = storage.LocalFile(str(tmp_path / "x"))
    monkeypatch.setattr(storage.File, "gap", rng.choice([0, 10, 1000]))
    monkeypatch.setattr(storage.File, "longest", rng.choice([100, 5000, 1 << 20]))
    starts = np.array([rng.randrange(50_000) for _ in range(rng.randrange(1, 40))])
    ends = np.minimum(starts + np.array([rng.choice([0, 1, 50, 3000]) for _ in starts]), 50_000)
    found, read = file.read_ranges(starts, ends)
    assert found == [content[a:b] for a, b in zip(starts, ends, strict=True)]
    assert read >= max(map(len, found))
    assert file.read_ranges(starts[:0], ends[:0]) == ([], 0)


class Ranges(BaseHTTPRequestHandler):
    """A web server that knows byte ranges, and fails every third request for one."""

    count = 0

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body: bool) -> None:
        data = FILES.get(self.path.lstrip("/"))
        if data is None:
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        type(self).count += 1
        if wanted and type(self).count % 3 == 0:
            self.send_error(503)
            return
        total = len(data)
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            data = data[int(first) : int(last) + 1]
        self.send_response(206 if wanted else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data)))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(data) - 1}/{total}")
        self.end_headers()
        if body:
            self.wfile.write(data)


@pytest.mark.parametrize("name", FILES)
def test_every_format_reads_from_a_web_server(monkeypatch, name):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        base = f"http://127.0.0.1:{server.server_port}"
        dataset = Dataset.from_path("d", f"{base}/{name}")
        assert dataset.remote
        wanted = random.Random(1).sample(range(400), 50)
        assert values(dataset, wanted) == [ROWS[i] for i in wanted]
        with pytest.raises(ConfigError, match="there is no such file"):
            Dataset.from_path("d", f"{base}/gone.jsonl")
    finally:
        server.shutdown()
        server.server_close()
