from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zephon_ft.errors import ConfigError, ImageError
from zephon_ft.vision.geometry import HALF
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL, smart_resize

# (h, w) -> (H, W) at: factor 28 with the released limits; factor 28 and 4..16,384 tokens; factor 32 and
# 65,536..16,777,216 pixels; factor 32 and 4..16,384 tokens. All with sides clamped to one factor.
VECTORS = [
    ((480, 640), (476, 644), (476, 644), (480, 640), (480, 640)),
    ((1080, 1920), (728, 1316), (1092, 1932), (1088, 1920), (1088, 1920)),
    ((720, 1280), (728, 1288), (728, 1288), (704, 1280), (704, 1280)),
    ((4000, 6000), (812, 1204), (2912, 4368), (3328, 4992), (3328, 4992)),
    ((70, 70), (56, 56), (56, 56), (256, 256), (64, 64)),
    ((224, 224), (224, 224), (224, 224), (256, 256), (224, 224)),
    ((336, 336), (336, 336), (336, 336), (320, 320), (320, 320)),
    ((300, 301), (308, 308), (308, 308), (288, 288), (288, 288)),
    ((1, 1), (56, 56), (56, 56), (256, 256), (64, 64)),
    ((14, 42), (56, 112), (56, 112), (160, 448), (64, 128)),
    ((56, 28), (84, 56), (84, 56), (384, 192), (96, 64)),
    ((37, 1000), (28, 1008), (28, 1008), (64, 1344), (32, 992)),
    # Sides below half a factor, where transformers does not clamp: it gives (28, 812) in the first column and
    # (32, 3648), (3648, 32) in the third.
    ((13, 2600), (28, 2604), (28, 2604), (32, 2592), (32, 2592)),
    ((3000, 15), (2996, 28), (2996, 28), (3008, 32), (3008, 32)),
]
SETTINGS = [
    (28, 56 * 56, 28 * 28 * 1280),
    (28, 4 * 28 * 28, 16384 * 28 * 28),
    (32, 65536, 16777216),
    (32, 4 * 32 * 32, 16384 * 32 * 32),
]


@pytest.mark.parametrize("column", range(4))
def test_smart_resize_gives_the_reference_sizes(column):
    for source, *expected in VECTORS:
        assert smart_resize(*source, *SETTINGS[column]) == expected[column], source


def test_a_thin_image_is_clamped_to_one_block_instead_of_zero():
    assert smart_resize(31, 639, 28, 56 * 56, 20 * 28 * 28) == (28, 560)
    plan = Qwen2_5_VL(max_pixels=20 * 28 * 28).plan(639, 31)
    assert (plan.width, plan.height, plan.tokens) == (560, 28, 20)


def test_a_ratio_above_200_is_an_image_error_and_200_is_not():
    with pytest.raises(ImageError, match=r"201\.0"):
        Qwen2_5_VL().plan(15 * 201, 15)
    assert Qwen2_5_VL().plan(15, 3000).grid == (1, 214, 2)


def test_plan_counts_patches_rows_and_tokens():
    plan = Qwen2_5_VL().plan(640, 480)
    assert (plan.width, plan.height, plan.grid) == (644, 476, (1, 34, 46))
    assert (plan.rows, plan.tokens) == (34 * 46, 34 * 46 // 4)
    assert Qwen2_5_VL().columns(plan) == {"image_grid_thw": (1, 34, 46)}


@pytest.mark.parametrize("size", [(1, 1), (50, 9000), (9000, 50), (333, 777), (5000, 5000)])
def test_invariants_of_every_plan(size):
    for geometry in (Qwen2_5_VL(), Qwen2_5_VL(patch_size=16, min_pixels=65536, max_pixels=16777216)):
        plan = geometry.plan(*size)
        block = geometry.patch_size * geometry.merge_size
        assert plan.width % block == plan.height % block == 0
        assert plan.rows == plan.grid[1] * plan.grid[2] == plan.tokens * geometry.merge_size**2
        assert geometry.min_pixels <= plan.width * plan.height <= geometry.max_pixels


def ramp(side: int) -> np.ndarray:
    """One channel counts up; the other two are told apart by an offset."""
    one = np.arange(side * side, dtype=np.uint8).reshape(side, side)
    return np.stack([one, one + 100, one + 180], axis=-1)


def test_patches_run_block_by_block():
    small = Qwen2_5_VL(patch_size=1, merge_size=2, min_pixels=16, max_pixels=16)
    plan = small.plan(4, 4)
    out = np.empty((16, 3), np.uint8)
    small.patchify(ramp(4), plan, out)
    assert out[:, 0].tolist() == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
    assert np.array_equal(out[:, 1], out[:, 0] + 100)

    two = Qwen2_5_VL(patch_size=2, merge_size=2, min_pixels=64, max_pixels=64)
    plan = two.plan(8, 8)
    out = np.empty((16, 12), np.uint8)
    two.patchify(ramp(8), plan, out)
    assert out[:5, ::3].tolist() == [[0, 1, 8, 9], [2, 3, 10, 11], [16, 17, 24, 25], [18, 19, 26, 27], [4, 5, 12, 13]]
    assert np.array_equal(out[:, 1::3], out[:, ::3] + 100)  # the channels of a pixel are neighbours


@pytest.mark.parametrize("layout", ["interleaved", "lines", "planar"])
def test_patchify_equals_the_published_permutation_for_any_strides(layout):
    geometry = Qwen2_5_VL()
    plan = geometry.plan(112, 84)
    image = np.random.default_rng(0).integers(0, 256, (plan.height, plan.width, 3), dtype=np.uint8)
    p, m, tp = geometry.patch_size, geometry.merge_size, geometry.temporal_patch_size
    gh, gw = plan.grid[1:]
    frames = np.broadcast_to(image.transpose(2, 0, 1), (tp, 3, plan.height, plan.width))
    view = frames.reshape(1, tp, 3, gh // m, m, p, gw // m, m, p).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    expected = view.reshape(gh * gw, 3 * tp * p * p)

    axes = {"interleaved": (0, 1, 2), "lines": (0, 2, 1), "planar": (2, 0, 1)}[layout]
    same = np.ascontiguousarray(image.transpose(axes)).transpose(np.argsort(axes))
    results = []
    for fill in (0xA5, 0x5A):
        out = np.full((plan.rows, *geometry.row_shape), fill, np.uint8)
        geometry.patchify(same, plan, out)
        results.append(out)
    assert np.array_equal(results[0], results[1])  # every byte is written
    mean = np.array(geometry.mean, np.float32).repeat(tp * p * p)
    std = np.array(geometry.std, np.float32).repeat(tp * p * p)
    normalised = (expected.astype(np.float32) / np.float32(255) - mean) / std
    model = geometry.to_model(results[0])
    assert model.shape == (gh * gw, 1176)
    assert np.allclose(model, normalised, atol=1e-6)


def test_a_buffer_of_the_wrong_shape_is_refused():
    geometry = Qwen2_5_VL()
    plan = geometry.plan(56, 56)
    image = np.zeros((56, 56, 3), np.uint8)
    with pytest.raises(ValueError, match="buffer"):
        geometry.patchify(image, plan, np.empty((15, 588), np.uint8))
    with pytest.raises(ValueError, match="planned"):
        geometry.patchify(image[:28], plan, np.empty((16, 588), np.uint8))


def test_an_image_is_written_as_start_pads_end():
    geometry = Qwen2_5_VL()
    assert geometry.expand(geometry.plan(56, 56)) == ["<|vision_start|>", *["<|image_pad|>"] * 4, "<|vision_end|>"]


def test_the_recipe_holds_every_field_as_plain_values():
    recipe = Qwen2_5_VL(patch_size=16, mean=HALF, std=HALF).recipe()
    assert recipe["family"] == "qwen2_5_vl"
    assert recipe["patch_size"] == 16
    assert recipe["mean"] == [0.5, 0.5, 0.5]
    assert {"min_pixels", "max_pixels", "merge_size", "temporal_patch_size", "image_token"} <= recipe.keys()


def test_impossible_geometries_are_refused():
    options: list[dict[str, Any]] = [{"patch_size": 0}, {"max_pixels": 100}, {"min_pixels": 10**7}]
    for bad in options:
        with pytest.raises(ConfigError):
            Qwen2_5_VL(**bad)
