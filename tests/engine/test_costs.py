"""The cost index: the same stream, planned and replayed without reading what is only counted."""

from __future__ import annotations

import json

import pytest

from tests.guarantees.random_pipelines import GEOMETRY, picture, row, take, tokenizer
from zephon_ft import ConfigError, Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.indexing import index

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def path(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.setenv("ZEPHON_FT_CACHE", str(tmp_path / "cache"))
    rows = []
    for n in range(120):
        fields = row("images", 0, n)
        fields["images"] = [{"bytes": picture(n + k), "path": None} for k in range(n % 3)]
        fields["messages"] = [
            {"from": "human", "value": "<image>" * (n % 3) + fields["text"]},
            {"from": "gpt", "value": f"answer {n}"},
        ]
        rows.append(fields)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet", row_group_size=10)
    return tmp_path / "data.parquet"


def build(path, flush_every=16, **options):
    source = StaticMixtureWorkSource([Dataset.from_path("d", path)], seed=3)
    pipe = Pipeline(source, 4, flush_every=flush_every).images(GEOMETRY).tokenize_chat(tokenizer(), "messages")
    return pipe.pack(128, max_images=4).shuffle(8).batch(2).options(**options)


@pytest.mark.parametrize("runner", ["inline", "thread"])
def test_an_index_changes_no_byte_of_the_stream(path, runner):
    expected = take(build(path, runner=runner), 6)
    assert index(build(path)) == 1
    assert build(path).plan().costs is not None
    assert take(build(path, runner=runner), 6) == expected
    assert take(build(path, runner=runner, memory_budget=1), 6) == expected
    assert take(build(path, runner=runner, cost_index=False), 6) == expected


def test_replay_reads_only_rows_that_are_delivered(path):
    def resumed(state: dict) -> tuple[list[str], int]:
        pipe = build(path, 1000, runner="inline", prefetch=1, task_rows=1)
        pipe.load_state_dict(json.loads(json.dumps(state)))
        stream = iter(pipe)
        digests = [next(stream).digest() for _ in range(4)]
        rows = pipe._source.datasets[0].stats()["rows_delivered"]
        stream.close()
        return digests, rows

    pipe = build(path, 1000, runner="inline")
    for _ in zip(range(40), pipe):
        pass
    state = pipe.state_dict()
    plain, rows_without = resumed(state)
    index(build(path, 1000))
    indexed, rows_with = resumed(state)
    assert indexed == plain
    assert rows_with < 0.75 * rows_without


def test_children_of_flat_map_and_filters_are_in_the_index(path):
    def fanned_out(**options):
        source = StaticMixtureWorkSource([Dataset.from_path("d", path)], seed=3)
        pipe = Pipeline(source, 2, flush_every=16).flat_map(lambda r: [r, r] if r["n"] % 3 else [r])
        pipe = pipe.filter(lambda r: r["n"] % 5 != 1).images(GEOMETRY).tokenize_chat(tokenizer(), "messages")
        return pipe.pack(128).batch(2).options(runner="inline", **options)

    expected = take(fanned_out(), 8)
    index(fanned_out())
    assert fanned_out().plan().costs is not None
    assert take(fanned_out(), 8) == expected


def test_other_operators_or_changed_data_do_not_use_the_index(path):
    index(build(path))
    source = StaticMixtureWorkSource([Dataset.from_path("d", path)], seed=3)
    other = Pipeline(source, 4).images(GEOMETRY, max_images=2).tokenize_chat(tokenizer(), "messages").pack(128).batch(2)
    assert other.plan().costs is None
    path.touch()
    assert build(path).plan().costs is None


def test_a_plan_that_looks_at_more_than_lengths_is_refused_with_the_reason(path):
    source = StaticMixtureWorkSource([Dataset.from_path("d", path)], seed=3)
    base = Pipeline(source, 4)
    drawn = base.map(lambda r, rng: r).images(GEOMETRY).tokenize_chat(tokenizer(), "messages").pack(128).batch(2)
    with pytest.raises(ConfigError, match="draws random numbers"):
        index(drawn)
    cut = base.images(GEOMETRY).tokenize_chat(tokenizer(), "messages").pack(128, over_long="truncate_text").batch(2)
    with pytest.raises(ConfigError, match="pack may look at more than lengths"):
        index(cut)
