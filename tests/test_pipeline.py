"""The builder: passive, immutable, and every mistake that can be known before reading is found before reading."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vision.samples import encode, picture
from zephon_ft import ConfigError, Dataset, Pipeline, PipelineError, StaticMixtureWorkSource
from zephon_ft.engine.options import Options
from zephon_ft.text.tokenizer import demo_tokenizer_path
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL

TOKENIZER = str(demo_tokenizer_path())


def source(rows: Any = None, **options: Any) -> StaticMixtureWorkSource:
    data = [{"n": n, "text": f"number {n}"} for n in range(20)] if rows is None else rows
    return StaticMixtureWorkSource([Dataset.from_rows("d", data)], **options)


def pipe(**recipe: Any) -> Pipeline:
    return Pipeline(source(), 2, **recipe).options(runner="thread")


def same(row: dict) -> dict:
    return row


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lanes": 0}, "lanes"),
        ({"lanes": 1.5}, "lanes"),
        ({"lanes": True}, "lanes"),
        ({"lanes": "8"}, "lanes"),
        ({"batches_per_step": 0}, "batches_per_step"),
        ({"flush_every": 0}, "flush_every"),
        ({"flush_every": -3}, "flush_every"),
        ({"on_error": "ignore"}, "on_error.*raise.*skip"),
        ({"on_decode_error": "skip"}, "on_decode_error.*raise.*blank"),
    ],
)
def test_a_wrong_constructor_argument_is_refused_at_once(given, words):
    with pytest.raises(ConfigError, match=words):
        Pipeline(source(), **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"worker": 2}, "no option 'worker'; did you mean 'workers'"),
        ({"num_workers": 2}, "no option 'num_workers'; did you mean 'workers'"),
        ({"prefetch_factor": 2}, "did you mean 'prefetch'"),
        ({"memory": 2}, "did you mean 'memory_budget'"),
        ({"zzz": 2}, "no option 'zzz'; The options are runner, "),
        ({"workers": 0}, "workers must be a whole number >= 1, got 0"),
        ({"workers": 2.0}, "workers"),
        ({"workers": True}, "workers"),
        ({"prefetch": 0}, "prefetch"),
        ({"memory_budget": 0}, "memory_budget"),
        ({"task_rows": -1}, "task_rows"),
        ({"io_concurrency": 0}, "io_concurrency"),
        ({"close_timeout": -1}, "close_timeout"),
        ({"runner": "threads"}, "runner must be one of"),
    ],
)
def test_a_wrong_option_is_refused_at_once(given, words):
    with pytest.raises(ConfigError, match=words):
        pipe().options(**given)


ORDERS = {
    "no batch": (lambda p: p, "no batch"),
    "nothing but a map": (lambda p: p.map(same), "no batch"),
    "map after batch": (lambda p: p.batch(2).map(same), "batch must be the last"),
    "batch twice": (lambda p: p.batch(2).batch(2), "batch must be the last"),
    "batch without a size": (lambda p: p.batch(), "either a number of units"),
    "batch with two sizes": (lambda p: p.batch(2, tokens=8), "either a number of units"),
    "batch of nothing": (lambda p: p.batch(0), "at least 1"),
    "tokenize after pack": (lambda p: p.tokenize(TOKENIZER).pack(8).tokenize(TOKENIZER).batch(1), "before pack"),
    "images after pack": (lambda p: p.tokenize(TOKENIZER).pack(8).images(Qwen2_5_VL()).batch(1), "before pack"),
    "pack twice": (lambda p: p.tokenize(TOKENIZER).pack(8).pack_flat(8).batch(1), "only one of them"),
    "tokens that are no multiple": (lambda p: p.tokenize(TOKENIZER).pack(8).batch(tokens=20), "use 16 or 24"),
    "a dummy image without images": (lambda p: p.tokenize(TOKENIZER).pack(8).batch(1, ensure_image=True), "images"),
    "two kinds of images": (lambda p: p.images(Qwen2_5_VL()).images(Qwen2_5_VL(), "b").batch(1), "pixel_values"),
    "a field that is not there": (lambda p: p.tokenize(TOKENIZER, "body").batch(1), "no field 'body'.*n, text"),
    "a function that is none": (lambda p: p.map("f").batch(1), "map: a function is needed, got str"),
    "parallelism 0": (lambda p: p.map(same, parallelism=0).batch(1), "parallelism"),
    "no operator": (lambda p: p.apply(same).batch(1), "Operator is needed"),
    "a shuffle of nothing": (lambda p: p.shuffle(0).batch(1), "buffer_size"),
    "rows without a token": (lambda p: p.pack(0).batch(1), "max_length"),
    "an unknown algorithm": (lambda p: p.pack(8, algorithm="best").batch(1), "best_fit"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_what_cannot_work_is_found_before_anything_is_read(name, monkeypatch):
    build, words = ORDERS[name]
    monkeypatch.setattr("zephon_ft.io.rows.RowsDataset.fetch", None)
    with pytest.raises(ConfigError, match=words):
        iter(build(pipe()))


def test_verbs_make_new_pipelines_and_share_nothing():
    base = pipe().map(same)
    left, right = base.batch(2), base.shuffle(4).batch(5)
    fast = left.options(workers=3, prefetch=2)
    assert len(next(iter(left))) == 2
    assert len(next(iter(right))) == 5
    assert [op.name for op in base._operators] == ["map(same)"]
    assert (left._options.workers, fast._options.workers, fast.options(prefetch=9)._options.workers) == (None, 3, 3)


def test_building_starts_nothing(monkeypatch):
    monkeypatch.setattr("zephon_ft.io.rows.RowsDataset.fetch", None)
    monkeypatch.setattr("zephon_ft.runners.thread.ThreadPool", None)
    built = pipe().map(same).shuffle(4).batch(2).options(workers=2)
    assert "map(same)" in built.explain()
    assert "map(same)" in str(built.recipe())


def test_explain_says_what_runs_together_and_how_often_it_flushes():
    text = pipe(flush_every=50).map(same).shuffle(4).filter(bool).map(same, parallelism=2).batch(2).explain()
    assert "read -> map(same)" in text
    assert "shuffle (in order, per lane) -> filter(bool)" in text
    assert "at most 2 at once: map(same)" in text
    assert "flush every 50 records of a lane (or 800 source rows)" in text
    assert "d: rows, 1 shards, 20 rows, 100.0% of records" in text


def test_on_error_skip_keeps_a_stream_going_and_on_decode_error_blank_keeps_a_batch():
    import io

    import numpy as np
    from PIL import Image

    out = io.BytesIO()
    Image.effect_noise((56, 56), 60).convert("RGB").save(out, "JPEG")
    good = out.getvalue()
    cut = good[: len(good) // 3]  # the header is whole, the picture is not
    rows = []
    for n, data in enumerate([good, cut, b"<html>", good]):
        parts = [{"type": "image"}, {"type": "text", "text": "what?"}]
        answer = {"role": "assistant", "content": "noise"}
        rows.append({"images": [data], "messages": [{"role": "user", "content": parts}, answer], "n": n})

    def run(**policies: str) -> Any:
        built = Pipeline(source(rows, epochs=1, shuffle=False), 1, **policies)
        built = built.images(Qwen2_5_VL()).tokenize_chat(TOKENIZER, "messages").batch(1)
        return iter(built.options(runner="thread", workers=2))

    stream = run(on_error="skip", on_decode_error="blank")
    batches = list(stream)
    assert [batch.records()[0][0].row for batch in batches] == [0, 1, 3]
    assert [bool(batch.arrays["pixel_values"].any()) for batch in batches] == [True, False, True]
    assert [int(batch.num_valid_tokens > 0) for batch in batches] == [1, 0, 1]
    assert np.all(batches[1].arrays["labels"] == -100)
    stats = stream.stats()
    assert stats["counts"]["images: skipped"] == 1
    assert stats["counts"]["decode pixel_values: skipped"] == 1
    places = sorted((where.split(", ")[2], operator) for where, operator, _ in stats["skipped"])
    assert places == [("row 1", "decode pixel_values"), ("row 2", "images")]

    from zephon_ft import PipelineError

    with pytest.raises(PipelineError, match="row 1") as caught:
        list(run(on_error="skip"))
    assert caught.value.operator == "decode pixel_values"
    with pytest.raises(PipelineError, match="row 2") as caught:
        list(run(on_decode_error="blank"))
    assert caught.value.operator == "images"


def test_a_row_that_cannot_be_parsed_is_raised_or_skipped_as_the_pipeline_says(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 0}\n{"n": \n{"n": 2}\n')

    def run(on_error: str) -> Any:
        data = StaticMixtureWorkSource([Dataset.from_path("j", path)], epochs=1, shuffle=False)
        return iter(Pipeline(data, 1, on_error=on_error).batch(1).options(runner="thread"))

    from zephon_ft import PipelineError

    with pytest.raises(PipelineError, match=r"dataset 'j', shard 0 \(a.jsonl\), row 1"):
        list(run("raise"))
    stream = run("skip")
    assert [int(batch.columns["n"][0]) for batch in stream] == [0, 2]
    assert stream.stats()["counts"]["read: skipped"] == 1


def test_batches_made_ahead_hold_enough_images_for_all_workers():
    options = Options(workers=16)
    assert [options.resolved_prefetch(True, records) for records in (1, 8, 64, None)] == [64, 8, 4, 4]
    assert [options.resolved_prefetch(True, None, tokens) for tokens in (512, 8192, 32768)] == [32, 8, 4]
    assert options.resolved_prefetch(False, 1) == 32
    assert Options(workers=16, prefetch=2).resolved_prefetch(True, 1) == 2


def test_a_module_that_is_not_there_is_no_bad_data(monkeypatch):
    from zephon_ft.vision import kind
    from zephon_ft.vision.decode import Decoder

    rows = [{"images": [b"x"], "messages": []}]
    pipe = Pipeline(source(rows), 1).images(Qwen2_5_VL()).tokenize_chat(TOKENIZER, "messages").batch(1)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "find_spec", lambda name: None)
        with pytest.raises(ConfigError, match=r"images: PIL is not installed.*pip install pillow"):
            iter(pipe.options(runner="inline"))

    def fail(*_: Any, **__: Any) -> None:
        raise ModuleNotFoundError("No module named 'codec'")

    monkeypatch.setattr(Decoder, "decode", fail)
    parts = [{"type": "image"}, {"type": "text", "text": "what?"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "noise"}]
    rows = [{"images": [encode(picture(56, 56), "PNG")], "messages": messages}]
    pipe = Pipeline(source(rows), 1, on_error="skip", on_decode_error="blank").images(Qwen2_5_VL())
    with pytest.raises(PipelineError, match="No module named 'codec'"):
        next(iter(pipe.tokenize_chat(TOKENIZER, "messages").batch(1).options(runner="inline")))
