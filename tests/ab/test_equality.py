from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from zephon_ft.ab.equality import TOLERANCE, differences
from zephon_ft.ab.facts import Facts, block_means, unpatchify
from zephon_ft.ab.measure import Result
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL

Change = Callable[[int, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray] | None]


def told(change: Change | None = None, *, reverse: bool = False, decode: str = "ours") -> Result:
    """The check pass of a side over ten samples, each changed or left out by `change`."""
    facts = Facts()
    for row in sorted(range(10), reverse=reverse):
        rng = np.random.default_rng(row)
        ids = rng.integers(0, 100, 20).astype(np.int32)
        sample = ids, np.where(ids < 50, ids, -100), rng.integers(0, 256, (56 + 28 * row, 84, 3), np.uint8)
        sample = change(row, *sample) if change else sample
        if sample is not None:
            facts.document(sample[0], sample[1])
            facts.image(row, sample[2])
    return Result(
        side="", mode="full", runner="", workers=1, decode=decode, check=facts.to_json(), batches=["a 1", "b 2"]
    )


def compare(other: Result, ours: bool = True) -> list[str]:
    return differences({"one": told(), "two": other}, frozenset({"one", "two"} if ours else {"one"}))


def pixel(row, ids, labels, pixels):  # type: ignore[no-untyped-def]
    if row == 4:
        pixels = pixels.copy()
        pixels[3, 5, 1] ^= 1
    return ids, labels, pixels


def token(row, ids, labels, pixels):  # type: ignore[no-untyped-def]
    return np.where(np.arange(20) == 7, ids + (row == 4), ids), labels, pixels


def label(row, ids, labels, pixels):  # type: ignore[no-untyped-def]
    return ids, np.where(np.arange(20) == 7, labels + (row == 4), labels), pixels


def brighter(by: int) -> Change:
    return lambda row, ids, labels, pixels: (ids, labels, np.clip(pixels.astype(int) + by, 0, 255).astype(np.uint8))


def test_the_order_in_which_samples_come_does_not_matter() -> None:
    assert compare(told(reverse=True)) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (pixel, "two: pixels differ from those of one, e.g. image 4:0"),
        (token, "two: token_digest"),
        (label, "two: token_digest"),
        (lambda row, *sample: None if row == 4 else sample, "two: samples 9, but 10 of one"),
        (lambda row, ids, labels, pixels: (ids, labels, pixels[28 * (row == 4) :]), "image 4:0 is [140, 84]"),
    ],
)
def test_one_wrong_pixel_token_label_size_or_sample_is_found(change: Change, says: str) -> None:
    found = compare(told(change))
    assert any(says in text for text in found), found
    assert compare(told(change), ours=False)  # another loader that uses our functions


def test_an_image_that_comes_twice_is_found() -> None:
    facts = Facts()
    for _ in range(2):
        facts.image(3, np.zeros((28, 28, 3), np.uint8))
    result = Result(side="", mode="fetch", runner="", workers=1, check=facts.to_json())
    assert differences({"one": result}, frozenset()) == ["one: 1 images came twice, e.g. 3:0"]


def test_another_decoder_may_differ_by_little_and_not_by_more() -> None:
    assert compare(told(brighter(1), decode="own"), ours=False) == []
    assert compare(told(brighter(1)), ours=False) != []
    found = compare(told(brighter(3), decode="own"), ours=False)
    assert len(found) == 1 and f"above {TOLERANCE}" in found[0]


def test_our_sides_must_agree_in_the_sequence_of_batches() -> None:
    swapped = replace(told(), batches=["b 2", "a 1"])
    assert compare(swapped) == ["two: the layout of batch 0 have another digest than those of one"]
    assert compare(replace(told(), batches=["a 1"])) != []
    assert compare(replace(told(), batches=["a 1", "b 9"])) != []


def test_our_sides_with_other_decoder_builds_must_agree_in_layout_only() -> None:
    assert compare(replace(told(brighter(1)), batches=["a 7", "b 8"], note="pillow 1")) == []
    assert compare(replace(told(brighter(1)), batches=["a 7", "c 8"], note="pillow 1")) != []


def test_patches_become_the_image_that_they_were_cut_from() -> None:
    geometry = Qwen2_5_VL()
    plan = geometry.plan(100, 60)
    image = np.random.default_rng(0).integers(0, 256, (plan.height, plan.width, 3), np.uint8)
    patches = np.empty((plan.rows, *geometry.row_shape), np.uint8)
    geometry.patchify(image, plan, patches)
    assert np.array_equal(unpatchify(patches, plan.grid), image)


def test_block_means_are_means_of_blocks() -> None:
    image = np.random.default_rng(0).integers(0, 256, (16, 24, 3), np.uint8)
    means = block_means(image)
    assert means.shape == (8, 8, 3)
    assert np.allclose(means[1, 2], image[2:4, 6:9].mean((0, 1)))
