from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL
from zephon_ft.vision.square import clip

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("geometry", [Qwen2_5_VL(), clip(28)])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_torch_normalisation_equals_the_numpy_reference(geometry, rows):
    from zephon_ft.vision.normalize import normalize

    patches = np.random.default_rng(rows).integers(0, 256, (rows, *geometry.row_shape), dtype=np.uint8)
    expected = geometry.to_model(patches)
    result = normalize(torch.from_numpy(patches.copy()), geometry, torch.float32)
    assert tuple(result.shape) == (rows, *geometry.model_shape) == expected.shape
    assert np.allclose(result.numpy(), expected, atol=2e-6)
    half = normalize(torch.from_numpy(patches.copy()), geometry, torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, result.to(torch.bfloat16))


def test_channels_first_is_the_models_order_of_the_same_values():
    from zephon_ft.vision.normalize import channels_first

    for geometry in (Qwen2_5_VL(), clip(28)):
        patches = np.random.default_rng(3).integers(0, 256, (5, *geometry.row_shape), dtype=np.uint8)
        planes = channels_first(torch.from_numpy(patches), geometry)
        assert planes.dtype == torch.uint8
        model = geometry.to_model(patches).reshape(5, 3, geometry.temporal_patch_size, -1)[:, :, 0]
        mean = np.array(geometry.mean)[:, None]
        std = np.array(geometry.std)[:, None]
        assert np.allclose(planes.numpy().reshape(5, 3, -1), (model * std + mean) * 255, atol=1e-3)


def test_the_uint8_rows_are_not_changed():
    from zephon_ft.vision.normalize import normalize

    patches = torch.full((2, 588), 7, dtype=torch.uint8)
    normalize(patches, Qwen2_5_VL(), torch.float32)
    assert (patches == 7).all()


def test_deciding_about_images_loads_neither_pillow_nor_torch():
    code = (
        "import sys; import zephon_ft.ops.images, zephon_ft.vision.normalize, zephon_ft.vision.qwen2_5_vl, "
        "zephon_ft.vision.square, zephon_ft.vision.rope; "
        "print([name for name in ('PIL', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
