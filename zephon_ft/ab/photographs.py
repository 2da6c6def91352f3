"""The built-in photographs: Parquet in the Hugging Face layout, one photograph, question and answer a row.

The sample photographs that the package ships are cut and scaled anew for every row (no two are the same), given the
fine grain that a camera's sensor has (an enlarged picture without grain would be far too easy a JPEG), and stored as
JPEG of quality 90, 4:2:0. The text beside each is prose, though not about it. A row is a function of the seed, its
number and the versions of Pillow, numpy and Python; text lengths are those of the tokenizer that is given. Needs
Pillow, pyarrow, tokenizers.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from zephon_ft.ab.cache import cached
from zephon_ft.ab.prose import prose
from zephon_ft.errors import ConfigError

VERSION = 2
GRAIN = 3.4  # standard deviation of the grain, in steps of 0..255
QUALITY = 90
ROW_GROUP = 100
_ORIENTATION = 0x0112  # the EXIF tag
_GRAIN_SIDE = 2048  # pixels along a side of the sheet that grain is cut from; it repeats beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class Photographs:
    """What the data set holds.

    Attributes:
        rows: photographs.
        sides: least and most pixels of width and of height, each drawn from between.
        size: (width, height) of all instead, or None.
        orientation: EXIF orientation of all; 1 writes none. `sides` and `size` are those of the stored pixels.
        tokens: least and most text tokens of a row.
        seed: of everything that is drawn.
    """

    rows: int = 600
    sides: tuple[int, int] = (480, 1024)
    size: tuple[int, int] | None = None
    orientation: int = 1
    tokens: tuple[int, int] = (150, 250)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1 or not 1 <= self.sides[0] <= self.sides[1] or not 1 <= self.orientation <= 8:
            raise ConfigError(f"photographs: out of range: {self}")


PHONE = Photographs(rows=100, size=(4032, 3024), orientation=6)  # 12 megapixels, held upright


def photographs(what: Photographs, tokenizer: str, folder: Path | None = None) -> Path:
    """The file of a data set, made where it is not there yet; see `cache.cached`."""
    return cached(f"photographs-v{VERSION}", what, tokenizer, folder, lambda path: write(path, what, tokenizer))


def write(path: Path, what: Photographs, tokenizer: str, row_group: int = ROW_GROUP) -> None:
    """Write the Parquet file. Columns: `images` (list of struct<bytes, path>), `texts` (list of struct<user,
    assistant>), `source` (the name of the original)."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    counter = Tokenizer.from_file(tokenizer)
    pictures = originals()
    sheet = np.random.default_rng(what.seed).normal(0, GRAIN, (_GRAIN_SIDE, _GRAIN_SIDE)).round().astype(np.int16)
    image_type = pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    turn_type = pa.list_(pa.struct({"user": pa.string(), "assistant": pa.string()}))
    schema = pa.schema({"images": image_type, "texts": turn_type, "source": pa.string()})

    def row(number: int) -> dict[str, Any]:
        rng = np.random.default_rng([what.seed, number])
        name, picture = pictures[number % len(pictures)]
        total = int(rng.integers(what.tokens[0], what.tokens[1] + 1))
        asked = max(1, int(total * rng.uniform(0.1, 0.4)))
        turn = {"user": prose(counter, asked, rng), "assistant": prose(counter, total - asked, rng)}
        file = {"bytes": photograph(picture, what, sheet, rng), "path": f"{number:06}.jpg"}
        return {"images": [file], "texts": [turn], "source": name}

    with pq.ParquetWriter(path, schema, compression="none") as writer, ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, what.rows, row_group):
            group = list(pool.map(row, range(start, min(what.rows, start + row_group))))
            writer.write_table(pa.Table.from_pylist(group, schema), row_group_size=row_group)


def originals() -> list[tuple[str, Any]]:
    """(name, picture) of the photographs that are shipped; ``assets/photos/README.md`` names sources and licences."""
    from PIL import Image

    folder = Path(__file__).resolve().parent.parent / "assets" / "photos"
    return [(path.stem, Image.open(path).convert("RGB")) for path in sorted(folder.glob("*.jpg"))]


def photograph(original: Any, what: Photographs, sheet: np.ndarray, rng: np.random.Generator) -> bytes:
    """A cut of `original` as a JPEG file; its grain is a cut of `sheet`."""
    from PIL import Image

    low, high = what.sides
    width, height = what.size or (int(side) for side in rng.integers(low, high + 1, 2))
    # Between the largest cut of this shape and 60 % of it.
    scale = min(original.width / width, original.height / height) * rng.uniform(0.6, 1.0)
    wide, tall = width * scale, height * scale
    x, y = rng.uniform(0, original.width - wide), rng.uniform(0, original.height - tall)
    cut = original.resize((width, height), Image.Resampling.BICUBIC, box=(x, y, x + wide, y + tall))
    if rng.random() < 0.5:
        cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    top, left = (int(n) for n in rng.integers(0, _GRAIN_SIDE, 2))
    rows, columns = (np.arange(n, n + side) % _GRAIN_SIDE for n, side in ((top, height), (left, width)))
    pixels = np.asarray(cut, np.int16) + sheet[np.ix_(rows, columns)][..., None]
    file, exif = BytesIO(), Image.Exif()
    if what.orientation != 1:
        exif[_ORIENTATION] = what.orientation
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY, exif=exif)
    return file.getvalue()


def describe(path: Path, tokenizer: str) -> dict[str, Any]:
    """Text length, image sizes and bytes of a data set of this layout, from the file itself."""
    import pyarrow.parquet as pq
    from PIL import Image
    from tokenizers import Tokenizer

    counter = Tokenizer.from_file(tokenizer)
    lengths, sizes, pixels, characters = [], [], [], []
    file = pq.ParquetFile(path)
    for batch in file.iter_batches(columns=["images", "texts"], batch_size=64):
        for images, texts in zip(batch["images"].to_pylist(), batch["texts"].to_pylist(), strict=True):
            joined = [part for turn in texts for part in (turn["user"], turn["assistant"])]
            lengths.append(sum(len(counter.encode(part).ids) for part in joined))
            characters.append(sum(map(len, joined)))
            for item in images:
                sizes.append(len(item["bytes"]))
                pixels.append(Image.open(BytesIO(item["bytes"])).size)
    area = np.array([w * h for w, h in pixels])
    sides = np.array(pixels)
    return {
        "rows": len(lengths),
        "row groups": file.num_row_groups,
        "file": f"{path.stat().st_size / 1e6:.1f} MB",
        "text tokens a row": f"{min(lengths)} to {max(lengths)}, mean {np.mean(lengths):.0f}",
        "text characters a row": f"mean {np.mean(characters):.0f}",
        "image sides": f"{sides.min()} to {sides.max()} pixels, mean {area.mean() / 1e6:.2f} megapixels",
        "image bytes": f"{min(sizes)} to {max(sizes)}, mean {np.mean(sizes):.0f} "
        f"({np.sum(sizes) * 8 / area.sum():.2f} bits a pixel)",
    }
