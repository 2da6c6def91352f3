"""Parquet: the values, what is read for them, what is kept, and damaged files."""

from __future__ import annotations

import gc
import json
import os
import random
import threading
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zephon_ft.errors import ConfigError, DataError, StorageError
from zephon_ft.io import parquet, parquet_file
from zephon_ft.io.dataset import Dataset

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("large", pa.large_binary()),
        ("image", IMAGE),
        ("images", pa.list_(IMAGE)),
        ("nested", pa.large_list(pa.list_(pa.int32()))),
        ("texts", pa.list_(pa.struct([("user", pa.string()), ("turns", pa.list_(IMAGE))]))),
        ("score", pa.float64()),
    ]
)


def image(rng: random.Random):
    return rng.choice(
        [None, {"bytes": rng.randbytes(rng.randrange(300)), "path": None}, {"bytes": None, "path": "a.jpg"}]
    )


def row(i: int):
    rng = random.Random(i)
    return {
        "id": i,
        "text": rng.choice([None, "", f"text {i} ä"]),
        "raw": rng.choice([None, b"", rng.randbytes(100)]),
        "large": rng.choice([None, rng.randbytes(50)]),
        "image": image(rng),
        "images": rng.choice([None, [], [image(rng)], [image(rng), image(rng), image(rng)]]),
        "nested": rng.choice([None, [], [None, [], [1, None, 2]]]),
        "texts": rng.choice([None, [], [None, {"user": None, "turns": [image(rng)]}, {"user": "u", "turns": None}]]),
        "score": rng.choice([None, 0.5]),
    }


ROWS = [row(i) for i in range(250)]


def write(path, rows=ROWS, schema=SCHEMA, group=60, **options):
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=group, **options)
    return path


@pytest.fixture
def dataset(tmp_path) -> Dataset:
    return Dataset.from_path("web", write(tmp_path / "data.parquet"))


def test_every_image_layout_with_nulls_and_empty_lists_comes_as_plain_python_values(dataset):
    assert dataset.shards[0].row_groups == (60, 60, 60, 60, 10)
    got = dataset.fetch(0, range(250))
    assert got == ROWS
    assert type(next(r["raw"] for r in got if r["raw"])) is bytes


@pytest.mark.parametrize("batch_bytes", [1, 700, 9000])
def test_row_groups_in_many_batches_give_the_same_rows(tmp_path, monkeypatch, batch_bytes):
    """Nested columns in several chunks and columns past 2 GiB never have to be joined."""
    monkeypatch.setattr(parquet_file, "BATCH_BYTES", batch_bytes)
    dataset = Dataset.from_path("web", write(tmp_path / "data.parquet"))
    sizes = []
    inner = parquet.decode
    monkeypatch.setattr(parquet, "decode", lambda *args: sizes.append(inner(*args)) or sizes[-1])
    assert dataset.fetch(0, range(250)) == ROWS
    assert len(sizes) == 5
    assert max(batch.num_rows for batches in sizes for batch in batches) < 60
    for seed in range(5):
        wanted = random.Random(seed).choices(range(250), k=40)
        assert dataset.fetch(0, wanted) == [ROWS[i] for i in wanted]


def test_a_batch_stays_bounded_where_dictionary_pages_hide_the_real_size(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_file, "BATCH_BYTES", 100_000)
    rows = [{"text": "x" * 10_000} for _ in range(400)]
    path = write(tmp_path / "d.parquet", rows, pa.schema([("text", pa.string())]), group=400)
    assert pq.read_metadata(path).row_group(0).total_byte_size < 50_000
    dataset = Dataset.from_path("web", path)
    sizes = []
    inner = parquet.decode
    monkeypatch.setattr(parquet, "decode", lambda *args: sizes.append(inner(*args)) or sizes[-1])
    assert dataset.fetch(0, range(400)) == rows
    assert max(batch.nbytes for batch in sizes[0]) < 400_000


def test_only_the_columns_asked_for_are_read(dataset):
    assert dataset.fetch(0, [3, 1], frozenset({"id", "text"})) == [
        {"id": ROWS[i]["id"], "text": ROWS[i]["text"]} for i in (3, 1)
    ]
    footer = pq.read_metadata(dataset.shards[0].path).row_group(0)
    ids_and_texts = footer.column(0).total_compressed_size + footer.column(1).total_compressed_size
    assert dataset.stats()["bytes_read"] == ids_and_texts
    assert dataset.fetch(0, [3, 1], frozenset()) == [{}, {}]
    assert dataset.fetch(0, [3, 1], frozenset({"nowhere"})) == [{}, {}]


def test_a_row_group_read_with_more_columns_serves_a_fetch_of_fewer(dataset):
    dataset.fetch(0, [0])
    dataset.fetch(0, [1], frozenset({"text"}))
    assert dataset.stats()["row_groups_read"] == 1


def test_a_row_group_shared_by_many_readers_is_read_once(dataset, monkeypatch):
    reading, go, calls = threading.Event(), threading.Event(), []
    inner = parquet.decode

    def slow(*args):
        calls.append(args)
        reading.set()
        assert go.wait(10)
        return inner(*args)

    monkeypatch.setattr(parquet, "decode", slow)
    results = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(dataset.fetch(0, [i]) == [ROWS[i]])) for i in range(8)
    ]
    threads[0].start()
    assert reading.wait(10)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert results == [True] * 8
    assert len(calls) == 1


def test_read_bytes_stay_near_the_delivered_bytes_when_lanes_share_row_groups(tmp_path):
    rows = [{"id": i, "raw": random.Random(i).randbytes(2000)} for i in range(4000)]
    schema = pa.schema([("id", pa.int64()), ("raw", pa.binary())])
    dataset = Dataset.from_path("web", write(tmp_path / "d.parquet", rows, schema, group=1000))
    order = [(lane, step) for step in range(125) for lane in range(32)]
    for lane, step in order:  # 32 lanes, 125 rows each, one row at a time
        number = lane * 125 + step
        assert dataset.fetch(0, [number])[0]["id"] == number
    stats = dataset.stats()
    assert stats["row_groups_read"] == 4
    assert stats["bytes_read"] <= 1.5 * stats["bytes_delivered"]


@pytest.mark.parametrize("limit", [0, 1, 1 << 14, 1 << 40])
def test_kept_bytes_stay_within_the_limit_and_no_limit_changes_the_rows(dataset, limit):
    dataset.set_cache_limit(limit)
    for seed in range(10):
        wanted = random.Random(seed).choices(range(250), k=30)
        assert dataset.fetch(0, wanted) == [ROWS[i] for i in wanted]
        assert dataset.cached_bytes() <= limit
    dataset.set_cache_limit(0)
    assert dataset.cached_bytes() == 0


@pytest.mark.parametrize("limit", [0, 1 << 15])
def test_many_threads_under_a_tiny_limit_neither_hang_nor_get_wrong_rows(dataset, limit):
    dataset.set_cache_limit(limit)
    wrong = []

    def work(seed: int) -> None:
        for turn in range(10):
            wanted = random.Random(seed * 100 + turn).choices(range(250), k=20)
            if dataset.fetch(0, wanted) != [ROWS[i] for i in wanted]:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong
    assert dataset.cached_bytes() <= limit


def test_delivered_rows_keep_no_row_group_in_memory(tmp_path):
    rows = [{"raw": random.Random(i).randbytes(100_000)} for i in range(200)]
    path = write(tmp_path / "d.parquet", rows, pa.schema([("raw", pa.binary())]), group=200)
    dataset = Dataset.from_path("web", path)
    dataset.set_cache_limit(0)
    before = pa.total_allocated_bytes()
    kept = dataset.fetch(0, [0, 100])
    gc.collect()
    assert kept == [rows[0], rows[100]]
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_files_with_few_rows_empty_files_and_empty_row_groups(tmp_path):
    write(tmp_path / "0.parquet", [])
    write(tmp_path / "1.parquet", ROWS[:1])
    table = pa.Table.from_pylist(ROWS[:3], schema=SCHEMA)
    with pq.ParquetWriter(tmp_path / "2.parquet", SCHEMA) as writer:
        for part in (table[:0], table[:2], table[:0], table[2:], table[:0]):
            writer.write_table(part)
    dataset = Dataset.from_path("web", tmp_path)
    assert [shard.rows for shard in dataset.shards] == [0, 1, 3]
    assert sum(dataset.shards[2].row_groups) == 3
    assert dataset.fetch(1, [0]) == ROWS[:1]
    assert dataset.fetch(2, [0, 1, 2]) == ROWS[:3]
    assert dataset.fetch(0, []) == []


@pytest.mark.parametrize("rows", [[250], [-1], [0, 250]])
def test_a_row_outside_of_the_shard_is_an_index_error(dataset, rows):
    with pytest.raises(IndexError, match="250 rows"):
        dataset.fetch(0, rows)


def test_a_missing_column_names_the_file_and_lists_what_is_there(tmp_path):
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", [{"id": 1}], pa.schema([("id", pa.int64())]))
    dataset = Dataset.from_path("web", tmp_path)
    assert dataset.field_names() == {"id"}
    with pytest.raises(ConfigError, match=r"'web': no field 'text' in .*b\.parquet; there is: id$"):
        dataset.check_fields({"id", "text"})
    with pytest.raises(ConfigError, match=r"no field 'text' in .*b\.parquet; there is: id$"):
        Dataset.from_path("web", tmp_path, columns=["id", "text"])
    limited = Dataset.from_path("web", tmp_path, columns=["id"])
    assert limited.fetch(0, [5]) == [{"id": 5}]
    with pytest.raises(ConfigError, match="no field 'text'"):
        limited.check_fields({"text"})


def test_truncated_empty_and_foreign_files_are_errors_at_build_time(tmp_path):
    whole = write(tmp_path / "whole.parquet").read_bytes()
    for content, words in [
        (whole[:-500], r"cut\.parquet: is truncated"),
        (b"", r"cut\.parquet: the file is empty"),
        (b"<html>not found</html>", r"cut\.parquet: is not a Parquet file"),
        (b"PAR1", r"cut\.parquet: is truncated"),
        (b"PAR1" + b"\xff" * 50 + (50).to_bytes(4, "little") + b"PAR1", r"cut\.parquet: its footer cannot be read"),
        (b"PAR1" + (5000).to_bytes(4, "little") + b"PAR1", r"cut\.parquet: is damaged"),
    ]:
        (tmp_path / "cut.parquet").write_bytes(content)
        with pytest.raises(DataError, match=f"dataset 'web': .*{words}"):
            Dataset.from_path("web", tmp_path / "cut.parquet")


def test_a_damaged_row_group_is_an_error_that_names_it_and_is_not_cached(tmp_path):
    path = write(tmp_path / "d.parquet", compression="zstd")
    content = bytearray(path.read_bytes())
    good = bytes(content)
    dataset = Dataset.from_path("web", path)
    column = pq.read_metadata(path).row_group(1).column(0)
    for i in range(column.data_page_offset, column.data_page_offset + column.total_compressed_size // 2):
        content[i] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"'web': row group 1 of .*d\.parquet cannot be read"):
        dataset.fetch(0, [60])
    assert dataset.fetch(0, [0]) == ROWS[:1]
    path.write_bytes(good)
    assert dataset.fetch(0, [60]) == ROWS[60:61]


def test_a_file_that_is_replaced_while_it_is_used_is_an_error(tmp_path):
    path = write(tmp_path / "d.parquet")
    dataset = Dataset.from_path("web", path)
    write(path, ROWS[:100])
    with pytest.raises(StorageError, match=r"d\.parquet"):
        dataset.fetch(0, [0])


def test_a_huge_row_group_is_warned_about(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "LARGE_GROUP", 1000)
    with pytest.warns(UserWarning, match=r"d\.parquet has a row group .* smaller row_group_size"):
        Dataset.from_path("web", write(tmp_path / "d.parquet"))


def test_no_file_stays_open(tmp_path):
    dataset = Dataset.from_path("web", write(tmp_path / "d.parquet"))
    before = len(os.listdir("/proc/self/fd"))
    for i in range(250):
        dataset.fetch(0, [i])
    assert len(os.listdir("/proc/self/fd")) == before


def test_footers_larger_than_the_first_read_and_more_files_than_are_kept_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_file, "_TAIL", 16)
    monkeypatch.setattr(parquet, "_FOOTERS_KEPT", 2)
    for i in range(5):
        write(tmp_path / f"{i}.parquet", ROWS[i : i + 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = Dataset.from_path("web", tmp_path)
    for i in [0, 1, 2, 3, 4, 0, 4]:
        assert dataset.fetch(i, [0]) == ROWS[i : i + 1]


def test_the_fingerprint_is_the_hash_of_the_footer(tmp_path):
    print_a = Dataset.from_path("web", write(tmp_path / "d.parquet")).fingerprint()
    assert print_a == Dataset.from_path("web", write(tmp_path / "d.parquet")).fingerprint()
    assert json.loads(json.dumps(print_a)) == print_a
    assert (print_a[0]["name"], print_a[0]["rows"], len(print_a[0]["hash"])) == ("d.parquet", 250, 64)
    assert print_a != Dataset.from_path("web", write(tmp_path / "d.parquet", ROWS[:249])).fingerprint()


def test_an_image_path_starts_at_its_data_file(tmp_path):
    write(tmp_path / "d.parquet")
    dataset = Dataset.from_path("web", tmp_path / "d.parquet")
    (tmp_path / "img").mkdir()
    (tmp_path / "img" / "a.jpg").write_bytes(b"jpeg")
    (tmp_path / "empty.jpg").write_bytes(b"")
    assert dataset.resolve("img/a.jpg", 0) == f"{tmp_path}/img/a.jpg"
    assert dataset.resolve("/x/a.jpg", 0) == "/x/a.jpg"
    assert dataset.resolve("https://host/a.jpg", 0) == "https://host/a.jpg"
    assert dataset.read_file(dataset.resolve("img/a.jpg", 0)) == b"jpeg"
    assert dataset.read_file("data:image/jpeg;base64,anBlZw==") == b"jpeg"
    for path, words in [
        ("gone.jpg", r"gone\.jpg: there is no such file"),
        ("img", "img: there is no such file"),
        ("empty.jpg", r"empty\.jpg: the file is empty"),
        ("x" * 5000, "does not name a file"),
        ("a\0b", "does not name a file"),
    ]:
        with pytest.raises(DataError, match=words):
            dataset.read_file(dataset.resolve(path, 0))
