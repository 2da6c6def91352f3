from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.verify import recipes
from zephon_ft import ConfigError
from zephon_ft.cli import main
from zephon_ft.verify import chain
from zephon_ft.verify.compare import first_difference
from zephon_ft.verify.run import PICTURE, Verify, run
from zephon_ft.verify.source import find
from zephon_ft.verify.summary import summarize

HERE = "tests.verify.recipes"
SMALL = {"threads": (1, 2), "cuts": 2, "steps": 6}


def verify(name: str, capsys: pytest.CaptureFixture[str], **options: object) -> tuple[int, str]:
    status = run(Verify(f"{HERE}:{name}", **{**SMALL, **options}))
    return status, capsys.readouterr().out


@pytest.mark.parametrize("name", ["good", "images", "finite"])
def test_a_good_pipeline_is_verified_at_every_world_size(name, capsys):
    status, out = verify(name, capsys)
    assert status == 0, out
    assert "verified    every byte of 6 steps is the same (1, 2, 4 ranks, 1, 2 threads, 2 stops in each run)" in out
    assert out.count(" OK") == 3 * 6
    assert "DIFFERENT" not in out


BROKEN = {
    "counter": ("map(counted)", "'stamp': 0 and 64", "field 'stamp': "),
    "chance": ("map(noisy)", "'noise': 0.", "field 'noise': 0."),
    "clock": ("map(clocked)", "'when': ", "field 'when': "),
    "memory": ("map(first_seen)", "'new': True and False", "field 'new': False and True"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_function_that_depends_on_more_than_its_row_is_named_with_record_and_field(name, capsys):
    operator, found, difference = BROKEN[name]
    recipes.SEEN.clear()
    recipes.COUNTER = itertools.count()
    status, out = verify(name, capsys, worlds=(1, 2), cuts=1, steps=3)
    assert status == 1
    line = next(line for line in out.splitlines() if operator in line)
    assert f"{operator} gives other bytes when it runs again: field {found}" in line
    assert "(dataset 'a', shard 0 (rows-0), row " in line
    assert "map(double) gives" not in out
    if name != "memory":  # which has seen every row by the time of the straight run
        assert "DIFFERENT   step 0, lane 0, batch 0 of the lane, row 0, " + difference in out
        assert "records   dataset 'a', shard 0 (rows-0), row " in out


def test_an_accumulator_that_outlives_its_flush_is_named(capsys):
    status, out = verify("hoarding", capsys, worlds=(1,), cuts=1, steps=3)
    assert status == 1
    assert "hoard: a new accumulator gives other groups for the same units" in out


def test_a_function_that_sees_order_is_found_by_order_alone(capsys):
    from zephon_ft.verify.functions import check_functions

    def previous(row: dict, memory: dict = {"last": -1}) -> dict:  # noqa: B006  on purpose
        row["before"], memory["last"] = memory["last"] if row["n"] != memory["first"] else -1, row["n"]
        return row

    memory = previous.__defaults__[0]
    plan = recipes.pipeline(previous).plan()
    memory["first"] = plan.lane_source().cursor(0).take(1).row[0]
    _, found = check_functions(plan)
    assert len(found) == 1
    assert "map(previous) gives other bytes when it sees its records in another order: field 'before'" in found[0]


def test_the_first_difference_is_told_down_to_row_field_and_records():
    pipe = recipes.images()
    plan, token = pipe.plan(), chain.image_token_id(pipe)
    with iter(pipe) as stream:
        batch = next(batch for batch in stream if len(batch.arrays["image_grid_thw"]))
    straight = summarize(batch, token)
    assert first_difference(plan, straight, summarize(batch, token)) is None
    place = f"step {batch.step}, lane {batch.lane}, batch {batch.index} of the lane"

    ids = batch.arrays["input_ids"]
    row = int(np.flatnonzero((ids == token).any(axis=1))[0])
    batch.arrays["pixel_values"][0] += 1
    difference = first_difference(plan, straight, summarize(batch, token))
    assert difference.text == f"{place}, row {row}, field 'pixel_values'"
    assert difference.records[0] == plan.describe(batch.keys[row][0])

    ids[1, 3] += 1
    batch.arrays["pixel_values"][0] -= 1
    difference = first_difference(plan, straight, summarize(batch, token))
    assert difference.text == f"{place}, row 1, field 'input_ids'"
    assert difference.records[0] == plan.describe(batch.keys[1][0])
    assert first_difference(plan, straight, None).text == f"{place}: not delivered"


def test_the_chains_together_run_every_step_at_every_world_size():
    chains = [chain.legs_of(i, [1, 2, 4, 8], [1, 3, 8], [4, 8, 12], 16) for i in range(4)]
    for step in range(16):
        assert {leg.world for legs in chains for leg in legs if leg.begin <= step < leg.end} == {1, 2, 4, 8}
    assert {leg.threads for legs in chains for leg in legs} == {1, 3, 8}


def test_a_state_that_loses_something_is_found_at_the_step_behind_the_stop(capsys, monkeypatch):
    from zephon_ft.engine import checkpoint

    stamp = checkpoint._stamp

    def late(lane: int, values: list) -> object:
        found = stamp(lane, values)
        return replace(found, units=found.units + 1) if lane == 2 else found

    monkeypatch.setattr(checkpoint, "_stamp", late)
    status, out = verify("good", capsys)
    assert status == 1
    assert "functions   3 ran twice and in another order on 64 rows: the same bytes" in out
    assert "DIFFERENT   step 2, lane 2, batch 2 of the lane, row 0, field " in out
    assert "resumed before step 2" in out
    assert "straight run: dataset" in out and "other run: dataset" in out


# -- command line ----------------------------------------------------------------------------------------------------


def test_the_command_line_verifies_a_file_and_draws_a_picture(tmp_path: Path, capsys):
    from PIL import Image

    path = Path(recipes.__file__)
    command = ["verify", f"{path}:good", "--worlds", "1,4", "--threads", "2", "--cuts", "1", "--steps", "3"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert "resumed     1 x 2 -> 4 x 2 (ranks x threads; a stop before step 1)" in capsys.readouterr().out
    assert Image.open(tmp_path / PICTURE).size[0] >= 900
    assert main(["verify", f"{path}:chance", *command[2:], "--out", str(tmp_path)]) == 1


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("no/such/data", "there is no no/such/data"),
        ("missing.py:make", "there is no file missing.py"),
        ("no.such.module:make", "there is no module 'no.such.module'"),
        (f"{HERE}:missing", "has no function 'missing'"),
        (f"{HERE}:nothing", "must return a Pipeline, it returned NoneType"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_one_line_and_status_2(recipe, expected, capsys):
    assert main(["verify", recipe]) == 2
    assert expected in capsys.readouterr().err


def test_a_world_size_that_does_not_divide_the_lanes_says_what_does(capsys):
    assert main(["verify", f"{HERE}:good", "--worlds", "1,3"]) == 2
    assert "4 lanes cannot be shared by 3 ranks: the number of ranks must be one of 1, 2, 4" in capsys.readouterr().err


def test_own_data_is_read_as_the_demo_reads_it(tmp_path: Path, capsys):
    path = tmp_path / "talk.jsonl"
    answer = "it is what it is, " * 100
    lines = [
        {"messages": [{"role": "user", "content": f"what is {i}?"}, {"role": "assistant", "content": answer}]}
        for i in range(400)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status = run(Verify(str(path), worlds=(1, 2), threads=(1,), cuts=1, steps=2))
    assert status == 0, capsys.readouterr().out


def test_a_function_of_a_module_is_called_for_every_run():
    make, what = find(f"{HERE}:good")
    assert what == f"{HERE}:good"
    assert make() is not make()
    with pytest.raises(ConfigError):
        find("tests.verify:nobody")
