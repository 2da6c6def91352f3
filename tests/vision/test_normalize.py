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
