"""A state of another recipe is refused with what differs, a bad state with what is wrong; neither does any harm."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.guarantees.random_pipelines import GEOMETRY, picture, tokenizer
from zephon_ft import ClosedError, ConfigError, Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.errors import CheckpointError, RecipeError
from zephon_ft.vision.kind import ImageKind

MESSAGES = [{"role": "user", "content": "what is it?"}, {"role": "assistant", "content": "a red circle"}]


def scale(factor: int) -> Callable[[dict], dict]:
    def scaled(row: dict) -> dict:
        row["n"] *= factor
        return row

    return scaled


def twin(row: dict) -> dict:
    return row


original_twin = twin


def twin(row: dict) -> dict:
    return dict(row)


def rows(n: int, images: bool = False) -> list[dict[str, Any]]:
    made = [{"n": i, "text": f"row number {i}", "messages": MESSAGES} for i in range(n)]
    return [{**row, "images": []} for row in made] if images else made


def pipeline(**changes: Any) -> Pipeline:
    """A pipeline of every kind of recipe field; `changes` overrides one."""
    given: dict[str, Any] = {
        "rows": {"a": 60, "b": 20},
        "shard_rows": 30,
        "mixture": {"a": 3, "b": 1},
        "order_seed": 1,
        "window_rows": 1,
        "function": scale(2),
        "open_bins": 4,
        "buffer_size": 6,
        "batch": 2,
        "tokenizer": tokenizer(),
        "extra": None,
        "recipe": {"lanes": 2, "seed": 1, "batches_per_step": 1, "flush_every": 20},
    }
    given = {**given, **changes}
    source = StaticMixtureWorkSource(
        [Dataset.from_rows(name, rows(n), shard_rows=given["shard_rows"]) for name, n in given["rows"].items()],
        given["mixture"],
        seed=given["order_seed"],
        window_rows=given["window_rows"],
    )
    pipe = Pipeline(source, **given["recipe"]).map(given["function"])
    if given["extra"]:
        pipe = given["extra"](pipe)
    pipe = pipe.tokenize(given["tokenizer"]).pack(64, open_bins=given["open_bins"]).shuffle(given["buffer_size"])
    return pipe.batch(given["batch"]).options(runner="inline")


def recipe(**changes: Any) -> dict[str, Any]:
    base = {"lanes": 2, "seed": 1, "batches_per_step": 1, "flush_every": 20}
    return {"recipe": {**base, **changes}}


def state_of(pipe: Pipeline, batches: int = 4) -> dict[str, Any]:
    with iter(pipe) as stream:
        for _ in range(batches):
            next(stream)
    return json.loads(json.dumps(pipe.state_dict()))


# -- drift -----------------------------------------------------------------------------------------------------------

DRIFT: dict[str, tuple[dict[str, Any], str]] = {
    "another seed of the operators": (recipe(seed=2), r"stream\.seed: saved 1, now 2"),
    "another seed of the order": ({"order_seed": 5}, r"stream\.source\.seed: saved 1, now 5"),
    "other weights": ({"mixture": {"a": 2, "b": 1}}, r"stream\.source\.mixture\.a: saved 3\.0, now 2\.0"),
    "another batch": ({"batch": 3}, r"stream\.operators\.batch\.size: saved 2, now 3"),
    "more batches per step": (recipe(batches_per_step=2), r"stream\.batches_per_step: saved 1, now 2"),
    "another flush interval": (recipe(flush_every=40), r"stream\.flush_every: saved 20, now 40"),
    "an operator's parameter": ({"open_bins": 8}, r"stream\.operators\.pack\.open_bins: saved 4, now 8"),
    "another buffer size": ({"buffer_size": 9}, r"stream\.operators\.shuffle\.buffer_size: saved 6, now 9"),
    "another window": ({"window_rows": 50}, r"stream\.source\.window_rows: saved 1, now 50"),
    "another error policy": (recipe(on_error="skip"), r'stream\.on_error: saved "raise", now "skip"'),
    "an operator more": ({"extra": lambda p: p.filter(lambda row: True)}, r"operators\.filter\(<lambda>\).*absent"),
    "another value in a closure": ({"function": scale(3)}, r"map\(scaled\)\.function\.values\.factor: saved 2, now 3"),
    "a shard more": ({"rows": {"a": 90, "b": 20}}, r"source\.datasets\.a\.rows-2.*saved \(absent\), now \{"),
    "rows removed": ({"rows": {"a": 60, "b": 19}}, r"source\.datasets\.b\.rows-0\.rows: saved 20, now 19"),
    "other shards": ({"shard_rows": 20}, r"source\.datasets\.a\.rows-0\.rows: saved 30, now 20"),
    "a data set more": (
        {"rows": {"a": 60, "b": 20, "c": 5}, "mixture": {"a": 3, "b": 1, "c": 1}},
        r"source\.datasets\.c: saved \(absent\)",
    ),
}


@pytest.mark.parametrize("what", DRIFT)
def test_every_difference_of_the_recipe_is_found_and_named_with_both_values(what):
    changes, expected = DRIFT[what]
    with pytest.raises(RecipeError, match=expected):
        pipeline(**changes).load_state_dict(state_of(pipeline()))


def test_the_same_recipe_built_anew_is_not_a_difference():
    pipeline().load_state_dict(state_of(pipeline()))


def test_changed_source_of_a_function_is_found_though_its_name_is_the_same():
    state = state_of(pipeline(function=original_twin))
    with pytest.raises(RecipeError, match=r"map\(twin\)\.function\.source: saved .*, now "):
        pipeline(function=twin).load_state_dict(state)


def test_another_tokenizer_is_found(tmp_path: Path):
    from zephon_ft.text.tokenizer import demo_tokenizer_path

    content = json.loads(Path(demo_tokenizer_path()).read_text())
    content["added_tokens"].append({**content["added_tokens"][-1], "id": 1 << 20, "content": "<|mine|>"})
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    with pytest.raises(RecipeError, match=r"operators\.tokenize\.tokenizer: saved .*, now "):
        pipeline(tokenizer=str(path)).load_state_dict(state_of(pipeline()))


def test_each_of_several_differences_is_listed():
    with pytest.raises(RecipeError) as caught:
        pipeline(buffer_size=7, batch=3, open_bins=9).load_state_dict(state_of(pipeline()))
    lines = [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:-1]]
    operators = "stream.operators"
    assert lines == [f"{operators}.batch.size", f"{operators}.pack.open_bins", f"{operators}.shuffle.buffer_size"]


def lines_file(path: Path, n: int, text: str = "row") -> None:
    path.write_text("".join(json.dumps({"text": f"{text} {i}"}) + "\n" for i in range(n)))


def table_file(path: Path, n: int, text: str = "row") -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": [f"{text} {i}" for i in range(n)]}), path)


@pytest.mark.parametrize(("suffix", "write"), [("jsonl", lines_file), ("parquet", table_file)])
def test_a_changed_file_is_named(tmp_path: Path, suffix, write):
    folder = tmp_path / "data"
    folder.mkdir()

    def pipe() -> Pipeline:
        source = StaticMixtureWorkSource([Dataset.from_path("web", folder)])
        return Pipeline(source, 2).map(twin).batch(2).options(runner="inline")

    for i in range(3):
        write(folder / f"part-{i}.{suffix}", 20)
    state = state_of(pipe())
    pipe().load_state_dict(state)
    write(folder / f"part-1.{suffix}", 20, "another row")
    with pytest.raises(RecipeError) as caught:
        pipe().load_state_dict(state)
    assert f"part-1.{suffix}" in str(caught.value)
    assert "part-0" not in str(caught.value)
    write(folder / f"part-1.{suffix}", 20)
    pipe().load_state_dict(state)
    write(folder / f"part-3.{suffix}", 5)
    with pytest.raises(RecipeError, match=rf"datasets\.web\.part-3\.{suffix}: saved \(absent\)"):
        pipe().load_state_dict(state)


def test_not_strict_warns_with_the_same_list_and_goes_on(caplog):
    other = pipeline(buffer_size=9)
    with caplog.at_level(logging.WARNING, "zephon_ft"):
        other.load_state_dict(state_of(pipeline()), strict=False)
    assert "stream.operators.shuffle.buffer_size: saved 6, now 9" in caplog.text
    with iter(other) as stream:
        assert next(stream).step == 2


@pytest.mark.parametrize(("rounds", "batches"), [(2, 8), (2, 6), (3, 10)])
def test_not_strict_with_other_batches_per_step_goes_on_at_the_same_batch(rounds, batches):
    pipe = pipeline(**recipe(batches_per_step=rounds))
    pipe.load_state_dict(state_of(pipeline(), batches), strict=False)
    with iter(pipe) as stream:
        batch = next(stream)
    assert (batch.lane, batch.index, batch.step) == (0, batches // 2, batches // 2 // rounds)


def images(**options: Any) -> Pipeline:
    data = Dataset.from_rows("d", [{"images": [picture(n)], "messages": MESSAGES} for n in range(30)])
    pipe = Pipeline(StaticMixtureWorkSource([data]), 2).images(GEOMETRY, **options)
    pipe = pipe.tokenize_chat(tokenizer(), "messages", images="prepend")
    return pipe.pack(96).batch(1).options(runner="inline")


def test_other_pixels_are_accepted_by_stream_and_by_nothing_stricter(caplog):
    state = state_of(images())
    other = images(scaled_decode=False)
    with pytest.raises(RecipeError, match=r"pixels\.pixel_values\.scaled_decode: saved true, now false\n.*'stream'"):
        other.load_state_dict(state)
    with caplog.at_level(logging.WARNING, "zephon_ft"):
        other.load_state_dict(state, strict="stream")
    assert "pixels.pixel_values.scaled_decode" in caplog.text


def test_another_build_of_the_decoder_is_a_difference_in_pixels_only(monkeypatch):
    state = state_of(images())
    mine = ImageKind.recipe
    monkeypatch.setattr(ImageKind, "recipe", lambda kind: {**mine(kind), "decoder": {"version": "0.0"}})
    with pytest.raises(RecipeError, match=r"pixels\.pixel_values\.decoder\.version: saved .*, now \"0\.0\""):
        images().load_state_dict(state)
    images().load_state_dict(state, strict="stream")


def test_stream_does_not_accept_a_difference_of_the_stream():
    with pytest.raises(RecipeError, match="max_images"):
        images(max_images=1).load_state_dict(state_of(images()), strict="stream")


# -- bad states ------------------------------------------------------------------------------------------------------


def edited(**changes: Any) -> Callable[[dict], dict]:
    return lambda state: {**state, **changes}


def without(*names: str) -> Callable[[dict], dict]:
    return lambda state: {key: value for key, value in state.items() if key not in names}


def lane_changed(place: int, by: int) -> Callable[[dict], dict]:
    def change(state: dict) -> dict:
        state["lane.00001"][place] += by
        return state

    return change


def swapped(state: dict) -> dict:
    return {**state, "lane.00000": state["lane.00001"], "lane.00001": state["lane.00000"]}


BAD: dict[str, tuple[Callable[[dict], Any], str]] = {
    "nothing": (lambda state: {}, "no 'version'"),
    "no dict": (lambda state: json.dumps(state), "no 'version'"),
    "a model's state": (lambda state: {"weight": 1.0}, "not a state of zephon_ft"),
    "a newer format": (edited(version=99), "format version 99.*update zephon_ft"),
    "a version that is none": (edited(version="1.0"), "version is '1.0'"),
    "a missing lane": (without("lane.00001"), "lacks lane 1 of this rank; it holds lane 0"),
    "no recipe": (without("recipe"), r"no \['recipe'\]: it is cut short"),
    "no step": (without("step"), r"no \['step'\]"),
    "a lane cut short": (lambda s: {**s, "lane.00001": s["lane.00001"][:5]}, "lane.00001 of the state is cut short"),
    "a lane that is text": (edited(**{"lane.00001": "12"}), "lane.00001 of the state is cut short or edited"),
    "units edited": (lane_changed(2, 1), "lane.00001 of the state is cut short or edited"),
    "batches edited": (lane_changed(4, 1), "lane.00001 of the state is cut short or edited"),
    "a cursor edited": (lane_changed(7, 3), "lane.00001 of the state is cut short or edited"),
    "lanes swapped": (swapped, "lane.00000 of the state is cut short or edited"),
    "step edited": (edited(step=3), "lane 0 stands at batch 2, but step 3 .* means batch 3"),
    "a step that is none": (edited(step=None), "it is damaged"),
    "iteration edited": (edited(iteration=[1, 0]), "of iteration 1, but lanes 0, 1 of it is not"),
    "inside_step edited": (edited(inside_step=[1, 1]), "lane 0 stands at batch 2, but step 2 .* means batch 3"),
    "an inside_step that is none": (edited(inside_step=7), "it is damaged"),
    "ranks that cannot be": (edited(inside_step=[0, 3]), "3 ranks, which do not divide 2 lanes"),
    "a recipe cut short": (lambda s: {**s, "recipe": s["recipe"][:200]}, "recipe in the state cannot be read"),
    "a recipe that is none": (edited(recipe=None), "recipe in the state cannot be read"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_state_says_what_is_wrong_and_leaves_the_pipeline_as_it_was(what):
    change, expected = BAD[what]
    pipe = pipeline()
    state = state_of(pipe)
    with iter(pipe) as stream:
        next(stream)
        before = pipe.state_dict()
        with pytest.raises(CheckpointError, match=expected):
            pipe.load_state_dict(change(copy.deepcopy(state)))
        assert pipe.state_dict() == before
        assert not stream.closed
        next(stream)
    pipe.load_state_dict(state)
    assert pipe.state_dict() == state


def test_other_lanes_are_refused_with_the_number_that_was_saved():
    with pytest.raises(CheckpointError, match=r"the state has 2 lanes, this pipeline has 4.*use lanes=2"):
        pipeline(**recipe(lanes=4)).load_state_dict(state_of(pipeline()), strict=False)


def rank_state(rank: int, batches: int, **changes: Any) -> dict[str, Any]:
    return state_of(pipeline(**changes).options(rank=rank, world_size=2), batches)


def test_ranks_that_saved_at_different_batches_are_named():
    torn = {**rank_state(0, 3), **rank_state(1, 2)}
    with pytest.raises(CheckpointError, match=r"ranks saved at different moments.*lanes that differ: lane 0"):
        pipeline().load_state_dict(torn)
    whole = {**rank_state(0, 3), **rank_state(1, 3)}
    pipeline().load_state_dict(whole)


def test_a_state_of_one_rank_alone_is_incomplete_for_another():
    with pytest.raises(CheckpointError, match=r"lacks lane 1 of this rank; it holds lane 0.*merge"):
        pipeline().options(rank=1, world_size=2).load_state_dict(rank_state(0, 3))
    pipeline().options(rank=0, world_size=2).load_state_dict(rank_state(0, 3))


def test_a_state_from_inside_a_step_loads_at_the_same_number_of_ranks_only():
    twice = recipe(batches_per_step=2)
    inside = {**rank_state(0, 3, **twice), **rank_state(1, 3, **twice)}
    with pytest.raises(CheckpointError, match=r"inside step 1 .1 lane batches into it. by 2 ranks.*this run has 1"):
        pipeline(**twice).load_state_dict(inside)
    pipe = pipeline(**twice).options(rank=1, world_size=2)
    pipe.load_state_dict(inside)
    with iter(pipe) as stream:
        assert next(stream).index == 3
    boundary = {**rank_state(0, 4, **twice), **rank_state(1, 4, **twice)}
    pipeline(**twice).load_state_dict(boundary)


def test_joined_batches_that_do_not_fit_a_state_from_inside_a_step_say_what_does():
    with pytest.raises(ConfigError, match="1 lane batches into a step, which lanes_per_batch=2 does not divide"):
        pipe = pipeline().options(lanes_per_batch=2)
        pipe.load_state_dict(state_of(pipeline(), 3))
        next(iter(pipe))


# -- live iterators --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runner", ["inline", "thread"])
def test_two_live_iterators_of_one_pipeline_are_an_error_and_the_first_goes_on(runner):
    pipe = pipeline().options(runner=runner)
    with iter(pipe) as stream:
        next(stream)
        with pytest.raises(ConfigError, match="still open; close\\(\\) it first"):
            iter(pipe)
        assert next(stream).lane == 1
    with iter(pipe) as again:
        assert (next(again).lane, next(again).index) == (0, 1)


@pytest.mark.parametrize("runner", ["inline", "thread"])
def test_loading_closes_the_live_iterator_and_the_old_one_raises_on_next(runner):
    pipe = pipeline().options(runner=runner)
    state = state_of(pipe, 4)
    old = iter(pipe)
    next(old)
    pipe.load_state_dict(state)
    assert old.closed
    with pytest.raises(ClosedError):
        next(old)
    assert pipe.state_dict() == state
    with iter(pipe) as stream:
        assert next(stream).index == 2
