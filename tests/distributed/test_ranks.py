"""Ranks started by torchrun: any number of them delivers the same steps, and ends after the same one."""

from __future__ import annotations

import pytest

from tests.distributed.conftest import Results
from tests.distributed.launch import torchrun

pytest.importorskip("torch")

WORLDS = pytest.mark.parametrize("ranks", ["one", "two", "four", "eight"], indirect=True)


@WORLDS
def test_any_number_of_ranks_delivers_the_same_steps(ranks: Results, straight: list[str]):
    for rank in ranks:
        assert rank.get("straight", rank.get("save")) == straight


@WORLDS
@pytest.mark.parametrize("ending", ["drop", "pad"])
def test_every_rank_ends_after_the_same_step_of_finite_data(ranks: Results, passes: dict, ending: str):
    for rank in ranks:
        for (first, second), expected in zip(rank[ending], passes[ending], strict=True):
            assert [first["digests"], second["digests"]] == [one["digests"] for one in expected]


@WORLDS
def test_padding_adds_no_token_that_counts(ranks: Results, passes: dict):
    for size, expected in enumerate(passes["pad"]):
        for nth in (0, 1):
            by_rank = [rank["pad"][size][nth]["valid"] for rank in ranks]
            assert [sum(step) for step in zip(*by_rank, strict=True)] == expected[nth]["valid"]


@WORLDS
def test_less_data_than_lanes_is_an_error_on_every_rank_or_one_padded_step(ranks: Results):
    for rank in ranks:
        dropped, padded = rank["drop"][1][0], rank["pad"][1][0]
        assert dropped["digests"] == [] and "not even one step" in dropped["error"]
        assert len(padded["digests"]) == 1 and padded["error"] is None


@pytest.mark.parametrize("ranks", ["two", "four", "eight"], indirect=True)
def test_ranks_that_were_launched_but_not_initialised_are_an_error(ranks: Results):
    for rank in ranks:
        assert f"WORLD_SIZE={len(ranks)} is set, but torch.distributed is not initialised" in rank["uninitialised"]


def test_tensor_parallel_peers_see_the_batches_of_their_data_parallel_rank(four: Results, straight: list[str]):
    meshes = [rank["mesh"] for rank in four]
    assert [mesh["lanes"] for mesh in meshes] == 2 * [[0, 1, 2, 3]] + 2 * [[4, 5, 6, 7]]
    assert meshes[0]["batches"] == meshes[1]["batches"] != meshes[2]["batches"] == meshes[3]["batches"]
    assert all(mesh["digests"] == straight for mesh in meshes)


def test_finite_data_ends_equally_on_a_mesh(four: Results, passes: dict):
    for rank in four:
        found = [one["digests"] for one in rank["mesh"]["finite"]]
        assert found == [expected[0]["digests"] for expected in passes["drop"]]


def test_a_mesh_without_a_named_dimension_is_an_error(four: Results):
    assert all("name the data-parallel one: mesh['dp']" in rank["mesh"]["all dimensions"] for rank in four)
    assert all("were delivered by two ranks" in rank["mesh"]["no group"] for rank in four)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("some count all processes", "process 2: rank 2 of 4, lanes 4..5"),
        ("no rank has some lanes", "missing: [4, 5, 6, 7]"),
        ("unequal shares", "process 2: rank 0 of 2, lanes 0..3"),
        ("another file", "stream.source.datasets.d.rows-3.rows: 10 and 11"),
        ("another step", "processes [0, 1, 2] at step 0; processes [3] at step 1"),
        ("another place", "processes [2, 3] deliver the same lanes, as rank 1, but start at different places"),
    ],
)
def test_strict_finds_peers_that_were_given_other_data(four: Results, mistake: str, message: str):
    for rank in four:  # all of them: none may wait for the others
        assert rank["strict"]["right"] is None
        assert message in rank["strict"][mistake]


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_agree_within_a_millisecond(world: int, tmp_path):
    for rank in torchrun(world, tmp_path, "agreement"):
        print(
            f"{world} ranks, agreement, ms: first tenth {rank['agreement'][0]:.3f}, median {rank['agreement'][1]:.3f}"
        )
        assert rank["agreement"][0] < 1
