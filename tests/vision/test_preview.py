from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.text.tokenizer import demo_tokenizer_path, load_tokenizer
from zephon_ft.vision.geometry import Geometry
from zephon_ft.vision.preview import previews
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL
from zephon_ft.vision.square import Square

TOKEN = "<|image_pad|>"


@pytest.mark.parametrize("geometry", [Qwen2_5_VL(), Square(size=56, patch_size=14, image_token=TOKEN)])
def test_images_of_a_batch_come_back_from_their_patches_with_their_tokens(geometry: Geometry) -> None:
    # Sizes that need no resize, so that what comes back is what went in.
    sizes = [(84, 56), (56, 112), (56, 56)] if isinstance(geometry, Qwen2_5_VL) else [(56, 56)] * 3
    images = [np.random.default_rng(i).integers(0, 256, (h, w, 3), np.uint8) for i, (w, h) in enumerate(sizes)]
    rows = []
    for number in range(2):
        encoded = []
        for image in images[: number + 1] if number else images[2:]:
            out = BytesIO()
            Image.fromarray(image).save(out, "PNG")
            encoded.append({"bytes": out.getvalue(), "path": None})
        rows.append({"images": encoded, "texts": [{"user": "?", "assistant": "!"}]})
    source = StaticMixtureWorkSource([Dataset.from_rows("d", rows)], shuffle=False)
    pipeline = Pipeline(source, lanes=1).images(geometry).tokenize_chat(demo_tokenizer_path())
    with iter(pipeline.pack(128).batch(1, ensure_image=True).options(runner="inline")) as stream:
        batch = next(stream)
    token = load_tokenizer(demo_tokenizer_path()).token_id(TOKEN)
    found = previews(batch, token)
    assert sum(len(p.tokens) for p in found) == (batch.arrays["input_ids"] == token).sum()
    expected = [image for origin in batch.records()[0] for image in (images[2:] if origin.row == 0 else images[:2])]
    assert len(found) == len(expected)
    for preview, image in zip(found, expected, strict=True):
        assert np.array_equal(preview.pixels, image)
        assert len(preview.tokens) == geometry.plan(image.shape[1], image.shape[0]).tokens
        assert np.array_equal(np.diff(preview.tokens), np.ones(len(preview.tokens) - 1))
