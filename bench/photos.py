"""Make the photograph data set of the benchmarks: Parquet in the Hugging Face layout, one photograph a row.

The photographs that scikit-image and scikit-learn ship are cut and scaled anew for every row (no two are the same) to
480 to 1,024 pixels on each side, given the fine grain that a camera's sensor has (several of the originals are small,
and an enlarged picture without grain would be far too easy a JPEG), and stored as JPEG of quality 90, 4:2:0. Beside
each stands one question and one answer of 150 to 250 tokens together, as the given tokenizer counts. Everything is
a function of the seed and of the versions of Pillow and numpy.

Needs scikit-image and scikit-learn installed (only their picture files are used), Pillow, pyarrow, tokenizers.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import common
import numpy as np

# fmt: off
SKIMAGE = (
    "astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg", "ihc.png", "motorcycle_left.png",
    "retina.jpg", "rocket.jpg",
)
# fmt: on
SKLEARN = ("china.jpg", "flower.jpg")
SIDES = (480, 1024)  # least and most pixels of a side
TEXT_TOKENS = (150, 250)
GRAIN = 3.0  # standard deviation of the grain, in steps of 0..255
QUALITY = 90
WORDS = (
    "the a one this that of in on at by near under behind with without and or but so while because picture "
    "photo shows we can see light shadow colour red green blue yellow dark bright small large round long old "
    "new left right top bottom corner middle front back sky ground water stone wood metal glass leaf flower "
    "animal person hand face eye machine wheel engine cup table wall window roof street star planet cell "
    "tissue thread line edge shape pattern texture surface it is are was seems looks appears stands lies hangs "
    "moves rests slightly clearly barely almost very quite probably about three two four several many few "
    "question answer describe what where how why which therefore however finally first second "
)


def originals() -> list[tuple[str, Any]]:
    """(name, picture) of all sample photographs that are installed.

    Raises:
        SystemExit: none is; says what to install.
    """
    from PIL import Image

    found = []
    for package, folder, names in (("skimage", "data", SKIMAGE), ("sklearn", "datasets/images", SKLEARN)):
        spec = find_spec(package)
        for place in spec.submodule_search_locations or () if spec else ():
            for name in names:
                path = Path(place) / folder / name
                if path.is_file():
                    found.append((f"{package}/{name}", Image.open(path).convert("RGB")))
    if not found:
        sys.exit("no sample photographs: install scikit-image and scikit-learn into this environment")
    return found


def photograph(original: Any, rng: np.random.Generator) -> bytes:
    """A cut of `original` as a JPEG file."""
    from PIL import Image

    low, high = SIDES
    width, height = (int(side) for side in rng.integers(low, high + 1, 2))
    # Between the largest cut of this shape and 60 % of it.
    scale = min(original.width / width, original.height / height) * rng.uniform(0.6, 1.0)
    wide, tall = width * scale, height * scale
    x, y = rng.uniform(0, original.width - wide), rng.uniform(0, original.height - tall)
    cut = original.resize((width, height), Image.Resampling.BICUBIC, box=(x, y, x + wide, y + tall))
    if rng.random() < 0.5:
        cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.asarray(cut, np.float32) + rng.normal(0, GRAIN, (height, width, 1)).astype(np.float32)
    file = BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def words(tokenizer: Any, tokens: int, rng: np.random.Generator) -> str:
    """Text of about `tokens` tokens."""
    known = WORDS.split()
    chosen = [known[i] for i in rng.integers(0, len(known), tokens)]
    ends = tokenizer.encode(" ".join(chosen)).offsets
    text = " ".join(chosen)
    return text if len(ends) <= tokens else text[: ends[tokens - 1][1]]


def make(path: Path, tokenizer_path: str, rows: int, row_group: int, seed: int) -> dict[str, Any]:
    """Write the data set; returns what is in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_path)
    pictures = originals()
    rng = np.random.default_rng(seed)
    image_type = pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    turn_type = pa.list_(pa.struct({"user": pa.string(), "assistant": pa.string()}))
    schema = pa.schema({"images": image_type, "texts": turn_type, "source": pa.string()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for start in range(0, rows, row_group):
            group = []
            for row in range(start, min(rows, start + row_group)):
                name, picture = pictures[row % len(pictures)]
                total = int(rng.integers(TEXT_TOKENS[0], TEXT_TOKENS[1] + 1))
                asked = int(total * rng.uniform(0.1, 0.4))
                turn = {"user": words(tokenizer, asked, rng), "assistant": words(tokenizer, total - asked, rng)}
                file = {"bytes": photograph(picture, rng), "path": f"{row:06}.jpg"}
                group.append({"images": [file], "texts": [turn], "source": name})
            writer.write_table(pa.Table.from_pylist(group, schema), row_group_size=row_group)
    return describe(path, tokenizer_path)


def describe(path: Path, tokenizer_path: str) -> dict[str, Any]:
    """Text length, image sizes and bytes of a data set, from the file itself."""
    import pyarrow.parquet as pq
    from PIL import Image
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_path)
    lengths, sizes, pixels, characters = [], [], [], []
    file = pq.ParquetFile(path)
    for batch in file.iter_batches(columns=["images", "texts"], batch_size=64):
        for images, texts in zip(batch["images"].to_pylist(), batch["texts"].to_pylist(), strict=True):
            joined = [part for turn in texts for part in (turn["user"], turn["assistant"])]
            lengths.append(sum(len(tokenizer.encode(part).ids) for part in joined))
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


def default_tokenizer() -> str:
    """The tokenizer that the package ships."""
    from zephon_ft.text.tokenizer import demo_tokenizer_path

    return str(demo_tokenizer_path())


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.add_argument("out", type=Path, help="the Parquet file to write")
    parser.add_argument("--tokenizer", help="a tokenizer.json; default the one that the package ships")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--row-group", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report = common.Report("photos")
    tokenizer = options.tokenizer or default_tokenizer()
    for name, value in make(options.out, tokenizer, options.rows, options.row_group, options.seed).items():
        report.fact(name, value)
    report.begin()
    report.end(options.json)


if __name__ == "__main__":
    main()
