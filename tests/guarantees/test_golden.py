"""Digests that were checked in: the same on every machine, interpreter and library build.

A change of any of them means that runs which were begun before would see other data. Pixels are left out: they belong
to the decoder's build.
"""

from __future__ import annotations

import hashlib

import pytest

from tests.guarantees.random_pipelines import Spec, build

TEXT = Spec("text", (50, 21), (3, 2), 4, 16, 2, ("filter", "flat_map"), "best_fit", 8, (), 2, 7)
FLAT = Spec("text", (40,), (1,), 2, 20, 1, ("map",), "flat", 12, (), 3, 1)
IMAGES = Spec("images", (40, 17), (2, 1), 4, 12, 1, ("random_filter",), "best_fit", 8, (), 2, 3)
ROWS = Spec("rows", (45, 9, 30), (5, 1, 3), 3, 11, 1, ("random_map", "flat_map"), "", 9, ("filter", "capped_map"), 4, 2)

GOLDEN = {
    "text": "c25952a7138c0592fb6326fa53ffe189c090d3717403be0508e50da312acc5a1",
    "flat": "cc5d588a081d8605e951a85a404af51678783b5d2a24905cebb8c7fec87f795d",
    "images": "2e162baca4d6bb72f29405255cc3f39d3cb3da0d4550d51b7c92ab79d66e8d59",
    "rows": "b7e76853cee80a1b5dec8e50534d661d9c005fceaa0c30ea36de2fc8cd16b39e",
}


def fingerprint(spec: Spec, **options: object) -> str:
    """SHA-256 over (lane, index, digest without pixels) of the first 24 batches."""
    sha = hashlib.sha256()
    stream = iter(build(spec, **options))
    for _, batch in zip(range(24), stream):
        sha.update(f"{batch.lane} {batch.index} {batch.digest(pixels=False)}\n".encode())
    stream.close()
    return sha.hexdigest()


@pytest.mark.parametrize(
    ("name", "spec"), [("text", TEXT), ("flat", FLAT), ("images", IMAGES), ("rows", ROWS)], ids=lambda v: str(v)[:6]
)
@pytest.mark.parametrize("runner", ["inline", "thread"])
def test_the_stream_is_the_one_that_it_has_always_been(name, spec, runner):
    assert fingerprint(spec, runner=runner) == GOLDEN[name]
