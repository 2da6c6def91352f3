"""JSONL: row boundaries, errors by line, compressed files, reading cost."""

from __future__ import annotations

import gzip
import json
import random

import pyarrow as pa
import pytest

from zephon_ft.errors import ConfigError, DataError, StorageError
from zephon_ft.io import compression, storage
from zephon_ft.io.dataset import Dataset


def open_bytes(tmp_path, content: bytes, name: str = "data.jsonl", **options) -> Dataset:
    (tmp_path / name).write_bytes(content)
    return Dataset.from_path("web", tmp_path / name, **options)


def lines(rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize(
    "content",
    [
        b'{"i":0}\n{"i":1}\n{"i":2}\n',
        b'{"i":0}\n{"i":1}\n{"i":2}',
        b'{"i":0}\r\n{"i":1}\r\n{"i":2}\r\n',
        b'\n\n{"i":0}\n  \n\n{"i":1}\n\t\r\n{"i":2}\n\n  \n',
        b'  {"i":0}\n\t{"i":1}  \n{"i":2}   ',
        b'\xef\xbb\xbf{"i":0}\n{"i":1}\n{"i":2}\n',
    ],
)
@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_rows_are_the_lines_that_are_not_blank(tmp_path, monkeypatch, content, block):
    monkeypatch.setattr(storage, "BLOCK", block)
    dataset = open_bytes(tmp_path, content)
    assert dataset.shards[0].rows == 3
    assert dataset.shards[0].row_groups == (3,)
    assert dataset.fetch(0, [0, 1, 2]) == [{"i": 0}, {"i": 1}, {"i": 2}]


@pytest.mark.parametrize("content", [b"", b"\n", b"  \n\n \n"])
def test_a_file_without_rows_is_an_empty_shard(tmp_path, content):
    dataset = open_bytes(tmp_path, content)
    assert dataset.shards[0].rows == 0
    assert dataset.fetch(0, []) == []
    assert dataset.field_names() is None


def test_empty_and_one_row_shards_are_kept_in_their_places(tmp_path):
    for i, content in enumerate([b"", b'{"i":0}', b"", lines([{"i": 1}, {"i": 2}])]):
        (tmp_path / f"{i}.jsonl").write_bytes(content)
    dataset = Dataset.from_path("web", tmp_path)
    assert [shard.rows for shard in dataset.shards] == [0, 1, 0, 2]
    assert dataset.fetch(3, [1, 0]) == [{"i": 2}, {"i": 1}]
    assert dataset.field_names() == {"i"}


def test_rows_come_in_the_order_asked_for_repeats_included(tmp_path):
    rows = [{"i": i, "text": "x" * random.Random(i).randrange(9000)} for i in range(500)]
    dataset = open_bytes(tmp_path, lines(rows))
    for seed in range(20):
        wanted = random.Random(seed).choices(range(500), k=random.Random(seed).randrange(1, 60))
        assert dataset.fetch(0, wanted) == [rows[i] for i in wanted]
    assert dataset.fetch(0, range(7, 40)) == rows[7:40]


@pytest.mark.parametrize("rows", [[3], [-1], [0, 3], [-1, 0], [2, 3]])
def test_a_row_outside_of_the_shard_is_an_index_error(tmp_path, rows):
    with pytest.raises(IndexError, match=r"'web', shard 0 \(data.jsonl\)"):
        open_bytes(tmp_path, lines([{}] * 3)).fetch(0, rows)


def test_neighbouring_rows_cost_one_read(tmp_path, monkeypatch):
    dataset = open_bytes(tmp_path, lines([{"i": i} for i in range(1000)]))
    calls = []
    pread = storage.os.pread
    monkeypatch.setattr(storage.os, "pread", lambda *args: calls.append(args) or pread(*args))
    dataset.fetch(0, range(100, 164))
    assert len(calls) == 1
    dataset.fetch(0, random.Random(0).sample(range(100, 164), 64))
    assert len(calls) == 2
    stats = dataset.stats()
    assert stats["bytes_read"] == stats["bytes_delivered"]
    assert stats["rows_delivered"] == 128


def test_far_apart_rows_do_not_read_what_lies_between(tmp_path):
    dataset = open_bytes(tmp_path, lines([{"text": "x" * 100_000}] * 30))
    dataset.fetch(0, [29, 0, 15])
    assert dataset.stats()["bytes_read"] == dataset.stats()["bytes_delivered"] < 310_000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"i": 1', "invalid JSON"),
        (b'{"i": 1} x', "invalid JSON: Extra data"),
        (b'{"i": 1} {"i": 2}', "invalid JSON: Extra data"),
        (b"hello", "invalid JSON"),
        (b'{"i": "\xff"}', "not UTF-8"),
        (b"[1, 2]", "this line holds an array"),
        (b"3", "this line holds 3"),
        (b'"text"', "this line holds 'text'"),
        (b"null", "this line holds None"),
        (b"[" * 100_000, "cannot be parsed|invalid JSON"),
    ],
)
def test_a_bad_line_is_one_bad_row_that_names_file_and_line(tmp_path, line, words):
    dataset = open_bytes(tmp_path, b'\n{"i": 0}\n\n' + line + b'\n{"i": 2}\n')
    good, bad, after = dataset.fetch(0, [0, 1, 2])
    assert (good, after) == ({"i": 0}, {"i": 2})
    assert isinstance(bad, DataError)
    with pytest.raises(DataError, match=rf"dataset 'web', shard 0 \(data.jsonl\), row 1, line 4: .*({words})"):
        raise bad


def test_a_json_array_is_refused_with_the_way_to_convert_it(tmp_path):
    with pytest.raises(DataError, match=r"data\.json: holds one JSON array.*convert"):
        open_bytes(tmp_path, json.dumps([{"i": 0}], indent=1).encode(), "data.json")


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_compressed_files_give_the_same_rows(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(compression, "BLOCK", 1000)
    rows = [{"i": i, "text": f"word {i}"} for i in range(3000)]
    path = tmp_path / f"data.jsonl.{kind}"
    if kind == "gz":  # two members, as `cat a.gz b.gz` makes them
        path.write_bytes(gzip.compress(lines(rows[:1000])) + gzip.compress(lines(rows[1000:])))
    else:
        with pa.CompressedOutputStream(str(path), "zstd") as out:
            out.write(lines(rows))
    dataset = Dataset.from_path("web", path)
    assert dataset.fetch(0, range(3000)) == rows
    assert dataset.shards[0].path == str(path)
    assert dataset.fingerprint()[0]["size"] == path.stat().st_size
    assert Dataset.from_path("web", path).fetch(0, [2999]) == rows[-1:]


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_truncated_compressed_file_is_an_error_at_build_time(tmp_path, kind):
    path = tmp_path / "data.jsonl.x"
    with pa.CompressedOutputStream(str(path), kind) as out:
        out.write(lines([{"i": random.random()} for _ in range(5000)]))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataError, match=rf"data\.jsonl\.x: the {kind} data is truncated"):
        Dataset.from_path("web", path, "jsonl")
    assert [p.name for p in tmp_path.iterdir()] == ["data.jsonl.x"]


def test_fields_limit_what_rows_hold_in_the_order_of_the_row(tmp_path):
    dataset = open_bytes(tmp_path, lines([{"c": 1, "b": 2, "a": 3}]))
    assert list(dataset.fetch(0, [0], frozenset({"a", "c"}))[0]) == ["c", "a"]
    limited = open_bytes(tmp_path, lines([{"c": 1, "b": 2, "a": 3}]), columns=["b", "c"])
    assert limited.fetch(0, [0]) == [{"c": 1, "b": 2}]
    assert limited.fetch(0, [0], frozenset({"a", "b"})) == [{"b": 2}]
    assert limited.field_names() == {"b", "c"}
    with pytest.raises(ConfigError, match="no field 'a'"):
        limited.check_fields({"a"})


def test_a_field_that_is_nowhere_is_an_error_and_an_optional_one_is_not(tmp_path):
    rows = [{"text": "a"} for _ in range(200)]
    rows[199]["image"] = "x.jpg"
    dataset = open_bytes(tmp_path, lines(rows))
    assert dataset.field_names() == {"text"}
    dataset.check_fields({"text", "image"})
    with pytest.raises(ConfigError, match="dataset 'web': no field 'txt'; there is: image, text"):
        dataset.check_fields({"txt"})
    with pytest.raises(ConfigError, match="no field 'txt'"):
        open_bytes(tmp_path, lines(rows), columns=["txt"])


def test_a_file_that_shrinks_while_it_is_used_is_a_storage_error(tmp_path):
    dataset = open_bytes(tmp_path, lines([{"i": i} for i in range(100)]))
    (tmp_path / "data.jsonl").write_bytes(b'{"i": 0}\n')
    with pytest.raises(StorageError, match=r"data\.jsonl: has 9 bytes now"):
        dataset.fetch(0, [50])
    (tmp_path / "data.jsonl").unlink()
    with pytest.raises(StorageError, match=r"data\.jsonl"):
        dataset.fetch(0, [50])


def test_the_fingerprint_tells_a_changed_file_and_is_the_same_anywhere(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    first = open_bytes(tmp_path / "a", lines([{"i": 1}, {"i": 22}])).fingerprint()
    assert first == open_bytes(tmp_path / "b", lines([{"i": 1}, {"i": 22}])).fingerprint()
    assert json.loads(json.dumps(first)) == first
    assert [(f["name"], f["size"], f["rows"]) for f in first] == [("data.jsonl", 19, 2)]
    assert first[0]["hash"] != open_bytes(tmp_path / "c", lines([{"i": 11}, {"i": 2}])).fingerprint()[0]["hash"]
