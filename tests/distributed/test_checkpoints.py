"""Checkpoints of a job with several ranks go on at any other number of them."""

from __future__ import annotations

import pytest

from tests.distributed.conftest import Results
from tests.distributed.pipelines import SAVED

pytest.importorskip("torch")

OTHERS = pytest.mark.parametrize(
    "ranks", ["one", "two", pytest.param("eight_slow", marks=pytest.mark.slow)], indirect=True
)


@OTHERS
def test_a_distributed_checkpoint_of_four_ranks_goes_on_at_any_number(ranks: Results, straight: list[str]):
    for rank in ranks:
        at_once, in_the_background = rank["load"]
        assert at_once == straight[SAVED:]
        assert in_the_background == straight[SAVED:]


@pytest.mark.parametrize("ranks", ["one", "two", "eight"], indirect=True)
def test_files_of_four_ranks_merged_by_hand_go_on_at_any_number(ranks: Results, straight: list[str]):
    assert all(rank["load_merged"] == straight[SAVED:] for rank in ranks)


@OTHERS
def test_a_killed_job_goes_on_from_its_last_checkpoint_at_another_size(ranks: Results, straight: list[str]):
    for rank in ranks:
        assert rank["after_kill"]["step"] == 4
        assert rank["after_kill"]["digests"] == straight[4:]


@OTHERS
def test_a_torn_checkpoint_is_an_error_on_the_ranks_that_get_the_odd_lanes(ranks: Results):
    share = 8 // len(ranks)
    for i, rank in enumerate(ranks):
        if {2, 3} & set(range(i * share, (i + 1) * share)):
            assert "ranks saved at different moments" in rank["load_torn"]
        else:
            assert rank["load_torn"] is None


@OTHERS
def test_a_checkpoint_from_inside_a_step_loads_at_its_own_number_of_ranks_only(ranks: Results):
    for rank in ranks:
        assert "was taken inside step 1 (1 lane batches into it) by 4 ranks" in rank["load_inside"]
        assert f"this run has {len(ranks)}" in rank["load_inside"]


def test_a_checkpoint_from_inside_a_step_goes_on_inside_it(four: Results, straight: list[str]):
    assert all(rank["save_inside"] == [straight[2]] for rank in four)
