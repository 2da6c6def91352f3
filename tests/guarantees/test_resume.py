"""Stop anywhere, go on with any number of ranks, threads and joined batches: the bytes of the straight run."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import zephon_ft
from tests.guarantees import fresh_process
from tests.guarantees.chains import Leg, Straight, chains, run_chain, straight_run
from tests.guarantees.random_pipelines import Spec, build, specs
from zephon_ft import DataError
from zephon_ft.errors import CheckpointError

PROPERTY = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
KINDS = ("rows", "text", "images")
LANE_BATCHES = 24  # of a case, about


def check_endless(data: st.DataObject, *kinds: str) -> None:
    spec = data.draw(specs(kinds or KINDS))
    make = functools.partial(build, spec)
    straight = straight_run(make, max(2, min(6, LANE_BATCHES // (spec.lanes * spec.batches_per_step))))
    run_chain(make, data.draw(chains(straight.lanes, straight.rounds, straight.steps)), straight)


def check_finite(data: st.DataObject) -> None:
    spec = data.draw(specs(finite=True))
    make = functools.partial(build, spec)
    try:
        straight = straight_run(make, 1000, iterations=3)
    except DataError:  # not even one step
        assume(False)
    run_chain(make, data.draw(chains(straight.lanes, straight.rounds, straight.steps)), straight)


@pytest.mark.parametrize(("kind", "cases"), [("rows", 130), ("text", 100), ("images", 80)])
def test_any_chain_of_stops_gives_the_straight_run(kind, cases):
    @settings(PROPERTY, max_examples=cases)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        check_endless(data, kind)

    check()


@settings(PROPERTY, max_examples=50)
@given(st.data())
def test_any_chain_over_the_ends_of_epochs_gives_the_straight_run(data):
    check_finite(data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(PROPERTY, max_examples=3000, derandomize=False)
@given(st.data())
def test_thousands_of_chains_give_the_straight_run(data):
    check_endless(data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(PROPERTY, max_examples=1000, derandomize=False)
@given(st.data())
def test_a_thousand_chains_over_the_ends_of_epochs_give_the_straight_run(data):
    check_finite(data)


SHORT = {
    "stateless": Spec("rows", (40, 9), (3, 1), 2, 7, 1, ("flat_map", "random_filter"), "", 0, (), 3, 1),
    "no record twice": Spec("rows", (40, 9), (3, 1), 2, 7, 1, ("random_map",), "", 5, ("flat_map",), 4, 1),
    "packed images": Spec("images", (23, 11), (2, 1), 2, 11, 2, ("flat_map",), "best_fit", 9, (), 2, 2),
    "cut text": Spec("text", (30,), (1,), 3, 20, 1, (), "flat", 0, (), 2, 0),
}


@pytest.mark.parametrize("name", SHORT)
def test_a_stop_at_every_single_batch_of_a_short_run(name):
    make = functools.partial(build, SHORT[name])
    straight = straight_run(make, 10)
    total = len(straight.entries)
    for stop in range(total + 1):
        run_chain(make, [Leg(1, 1, 0, 1, stop), Leg(1, 1, 0, 1, total - stop)], straight)


def test_a_stop_after_every_single_batch_in_one_chain():
    make = functools.partial(build, SHORT["packed images"])
    straight = straight_run(make, 5)
    run_chain(make, [Leg(1, 1, stop % 3, 1, 1) for stop in range(len(straight.entries))], straight)


def test_one_chain_over_all_runners():
    make = functools.partial(build, SHORT["packed images"])
    straight = straight_run(make, 8)
    runners = [(2, "process"), (0, ""), (2, "thread"), (1, "process")]
    run_chain(make, [Leg(1, 1, workers, 2, 8, runner=name) for workers, name in runners], straight)


# -- ends of epochs --------------------------------------------------------------------------------------------------

EPOCHS = {
    "drop": Spec("text", (41, 13), (2, 1), 4, 9, 1, ("flat_map",), "best_fit", 5, (), 2, 1, epochs=1),
    "pad": Spec("text", (41, 13), (2, 1), 4, 9, 2, (), "best_fit", 5, (), 2, 1, epochs=1, remainder="pad"),
    "two passes": Spec("images", (23,), (1,), 4, 9, 1, (), "first_fit", 0, (), 1, 1, epochs=2),
    "fewer records than lanes": Spec("text", (3,), (1,), 8, 9, 1, (), "none", 0, (), 1, 1, epochs=1, remainder="pad"),
}


def epochs_of(name: str, iterations: int = 3) -> tuple[functools.partial, Straight]:
    make = functools.partial(build, EPOCHS[name])
    straight = straight_run(make, 10_000, iterations)
    assert len(straight.ends) == iterations
    return make, straight


@pytest.mark.parametrize("name", EPOCHS)
@pytest.mark.parametrize("see_end", [False, True])
def test_saved_at_the_end_of_an_epoch_the_next_one_comes_in_full(name, see_end):
    make, straight = epochs_of(name)
    lanes, rounds = straight.lanes, straight.rounds
    first, second, third = (end * rounds * lanes for end in straight.ends)
    for world in (1, 2):
        legs = [
            Leg(1, 1, 0, 1, first, see_end),
            Leg(world, 1, 0, 1, (second - first) // world, see_end),
            Leg(4, 1, 0, 1, (third - second) // 4, see_end),
        ]
        run_chain(make, legs, straight)


@pytest.mark.parametrize("see_end", [False, True])
def test_the_epoch_counter_moves_on_when_the_end_was_seen_and_not_before(see_end):
    make, straight = epochs_of("drop")
    pipe = make(runner="inline")
    stream = iter(pipe)
    for _ in range(straight.ends[0] * 4):
        next(stream)
    if see_end:
        assert next(stream, None) is None
    state = pipe.state_dict()
    assert state["iteration"][0] == int(see_end)
    again = make(runner="inline")
    again.load_state_dict(state)
    left = [len(list(again)), len(list(again))]
    sizes = [straight.ends[0] * 4, (straight.ends[1] - straight.ends[0]) * 4]
    assert left[0] == (sizes[1] if see_end else 0)  # without it the resumed run ends this epoch first, like any other
    assert again.state_dict()["iteration"][0] == 2 + int(see_end)


@pytest.mark.parametrize("name", EPOCHS)
def test_saved_at_every_step_inside_the_second_epoch(name):
    make, straight = epochs_of(name, 2)
    for step in range(straight.ends[0], straight.steps):
        done, total = step * straight.rounds * straight.lanes, len(straight.entries)
        run_chain(make, [Leg(4, 1, 0, 1, done // 4), Leg(2, 1, 0, 1, (total - done) // 2)], straight)


@pytest.mark.parametrize("runner", ["inline", "thread"])
def test_ranks_that_agree_on_a_step_that_one_cannot_deliver_are_an_error_and_no_hang(runner):
    pipe = build(EPOCHS["drop"], rank=1, world_size=2, agree=lambda possible: True, runner=runner)
    with pytest.raises(DataError, match=r"lane [23] ended before batch \d+, of a step that all ranks had agreed on"):
        list(pipe)


# -- what a state is -------------------------------------------------------------------------------------------------


def states(spec: Spec, batches: int, **options: object) -> list[str]:
    """The state behind every batch, as JSON."""
    pipe = build(spec, **options)
    with iter(pipe) as stream:
        return [json.dumps(pipe.state_dict())] + [json.dumps(pipe.state_dict()) for _ in zip(range(batches), stream)]


TUNINGS = [
    {"workers": 1},
    {"workers": 3, "prefetch": 9},
    {"workers": 8, "task_rows": 1},
    {"workers": 2, "memory_budget": 1},
    {"runner": "inline", "prefetch": 50},
]


@pytest.mark.parametrize("name", SHORT)
def test_the_state_is_the_same_bytes_for_every_tuning(name):
    expected = states(SHORT[name], 24, runner="inline", prefetch=1, task_rows=3)
    for options in TUNINGS:
        assert states(SHORT[name], 24, **options) == expected


def test_delays_do_not_show_in_the_state(monkeypatch):
    from tests.guarantees import random_pipelines

    spec = SHORT["no record twice"]
    expected = states(spec, 20, runner="inline")
    monkeypatch.setattr(random_pipelines, "DELAY", 0.004)  # of every seventh row; a global, so not recipe
    assert states(spec, 20, workers=8, prefetch=12) == expected


def test_the_state_after_an_earlier_batch_is_that_of_a_trainer_that_does_not_look_ahead():
    spec = SHORT["packed images"]
    expected = states(spec, 12, runner="inline")
    pipe = build(spec, workers=2)
    with iter(pipe) as stream:
        batches = [next(stream) for _ in range(12)]
        assert [json.dumps(pipe.state_dict(after=batch)) for batch in batches] == expected[1:]
        assert json.dumps(pipe.state_dict()) == expected[-1]
    joined = build(spec, workers=2, lanes_per_batch=4)
    with iter(joined) as stream:
        batches = [next(stream) for _ in range(3)]
    assert [json.dumps(joined.state_dict(after=batch)) for batch in batches] == expected[4::4]


def test_a_batch_that_no_pipeline_handed_out_has_no_state():
    pipe = build(SHORT["stateless"], runner="inline")
    with iter(pipe) as stream:
        batch = next(stream)
    batch.stamp = None
    with pytest.raises(CheckpointError, match="not handed out"):
        pipe.state_dict(after=batch)


def test_the_state_is_plain_json_with_one_key_per_lane():
    pipe = build(SHORT["packed images"], runner="inline")
    state = pipe.state_dict()
    assert list(state) == ["version", "recipe", "step", "inside_step", "iteration", "lane.00000", "lane.00001"]
    assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize("datasets", [1, 2, 8])
def test_a_state_takes_about_a_hundred_bytes_a_lane_whatever_was_read(datasets):
    spec = Spec("rows", (5000,) * datasets, (3,) * datasets, 2, 10_000, 1, (), "", 2000, (), 100, 1)
    pipe = build(spec, runner="inline")
    with iter(pipe) as stream:
        for _ in range(20):
            next(stream)
    state = pipe.state_dict()
    sizes = [len(json.dumps(value)) for key, value in state.items() if key.startswith("lane.")]
    assert max(sizes) <= 100 + 24 * datasets


def test_a_state_of_256_lanes_takes_milliseconds():
    from time import perf_counter

    spec = Spec("rows", (5000, 300), (3, 1), 256, 100, 1, (), "", 0, (), 2, 1)
    pipe = build(spec, runner="inline")
    with iter(pipe) as stream:
        next(stream)
        times = []
        for _ in range(5):
            begin = perf_counter()
            pipe.state_dict()
            times.append(perf_counter() - begin)
    assert min(times) < 0.05


# -- replay ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runner", ["inline", "thread"])
def test_replay_runs_nothing_behind_the_last_stateful_operator_for_what_was_delivered(runner):
    ran: list[int] = []

    def behind(row: dict) -> dict:
        ran.append(row["n"])
        return row

    def make() -> zephon_ft.Pipeline:
        data = zephon_ft.Dataset.from_rows("d", [{"n": n} for n in range(8000)])  # not through in this test
        pipe = zephon_ft.Pipeline(zephon_ft.StaticMixtureWorkSource([data], seed=1), 2, flush_every=150)
        return pipe.shuffle(20).map(behind, version="1").batch(5).options(runner=runner, workers=2, prefetch=1)

    pipe = make()
    delivered: list[int] = []
    with iter(pipe) as stream:
        for _ in range(20):
            delivered += next(stream).columns["n"].tolist()
    assert len(set(delivered)) == 100
    ran.clear()
    again = make()
    again.load_state_dict(pipe.state_dict())
    with iter(again) as stream:
        following = [n for _ in range(4) for n in next(stream).columns["n"].tolist()]
    assert set(following) <= set(ran)
    assert not set(delivered) & set(ran)


@pytest.mark.parametrize("runner", ["inline", "thread"])
def test_replay_decodes_no_media_of_what_was_delivered(runner, monkeypatch):
    from zephon_ft.engine import tasks

    decoded: list[tuple] = []

    def counted(state, media, out):
        decoded.append(media.key)
        return run_fill(state, media, out)

    run_fill = tasks.run_fill
    monkeypatch.setattr(tasks, "run_fill", counted)
    spec = Spec("images", (500,), (1,), 2, 200, 1, (), "best_fit", 16, (), 2, 2)
    options = {"runner": runner, "workers": 2, "prefetch": 1}
    pipe = build(spec, **options)
    with iter(pipe) as stream:
        delivered = {key for _ in range(16) for row in next(stream).keys for key in row}
    state = pipe.state_dict()
    assert all(state[f"lane.0000{lane}"][2] > 8 for lane in (0, 1))  # rows of this interval, which are packed again
    assert decoded
    decoded.clear()
    again = build(spec, **options)
    again.load_state_dict(state)
    with iter(again) as stream:
        following = {key for _ in range(4) for row in next(stream).keys for key in row}
    assert set(decoded) & following
    assert not set(decoded) & delivered


# -- fresh processes -------------------------------------------------------------------------------------------------


def test_twenty_cases_go_on_in_fresh_processes_with_other_hash_seeds(tmp_path: Path):
    root = Path(zephon_ft.__file__).resolve().parents[1]
    for number, part in enumerate(("first", "second")):
        environment = {**os.environ, "PYTHONHASHSEED": str(11 + number), "PYTHONPATH": str(root)}
        command = [sys.executable, "-m", "tests.guarantees.fresh_process", part, str(tmp_path)]
        subprocess.run(command, env=environment, cwd=root, check=True, timeout=150)
    for number, spec in enumerate(fresh_process.CASES):
        straight = straight_run(functools.partial(build, spec), fresh_process.STEPS)
        parts = [json.loads((tmp_path / f"{part}-{number}.json").read_text()) for part in ("first", "second")]
        found = sorted(tuple(entry) for part in parts for entry in part["entries"])
        assert found == sorted(straight.entries)
