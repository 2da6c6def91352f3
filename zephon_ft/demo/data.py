"""The demo's data set: 4,000 rows about coloured shapes, made once and kept in the cache folder.

Made by whole-number arithmetic alone: rows and image bytes are the same on every machine. The bytes of the Parquet
file around them may differ between versions of pyarrow; nothing depends on them but its fingerprint, because the order
of rows follows from row counts, name and seed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zephon_ft.demo.conversation import make_messages
from zephon_ft.demo.draws import Draws
from zephon_ft.demo.scene import draw_scene, make_scene
from zephon_ft.io.made_once import made_once
from zephon_ft.io.sidecar import cache_folder

if TYPE_CHECKING:
    from zephon_ft.io.dataset import Dataset

NAME = "shapes"
VERSION = 1
ROWS = 4000
ROW_GROUP = 100
_IMAGES = (0, 1, 1, 1, 1, 1, 2, 2)  # images of a row; each as likely as the others


def demo_dataset() -> Dataset:
    """The data set under the name that its published digests belong to.

    Raises:
        ConfigError: it cannot be written.
    """
    from zephon_ft.io.dataset import Dataset

    return Dataset.from_path(NAME, demo_path())


def demo_path() -> Path:
    """The Parquet file, in ``ZEPHON_FT_CACHE`` or ``~/.cache/zephon_ft``; made by whoever asks first.

    Columns: `id` (string), `images` (list of struct<bytes, path>, as Hugging Face writes them; 0 to 2 a row) and
    `messages` (list of struct<role, content: list of struct<type, text>>).

    Raises:
        ConfigError: it cannot be written.
    """
    path = Path(cache_folder()) / f"demo-v{VERSION}" / f"{NAME}.parquet"
    return made_once(path, write, "the demo's data set", "set ZEPHON_FT_CACHE to a folder that can be written")


def make_row(number: int) -> dict[str, Any]:
    """Row `number` of the data set."""
    draws = Draws("demo", VERSION, number)
    scenes = [make_scene(draws) for _ in range(draws.one(_IMAGES))]
    images = [{"bytes": draw_scene(scene), "path": f"{number:04}-{i}.png"} for i, scene in enumerate(scenes)]
    return {"id": f"{number:04}", "images": images, "messages": make_messages(scenes, draws)}


def write(path: Path, rows: int = ROWS) -> None:
    """Write the first `rows` rows, in row groups of `ROW_GROUP`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    part = pa.struct([("type", pa.string()), ("text", pa.string())])
    message = pa.struct([("role", pa.string()), ("content", pa.list_(part))])
    schema = pa.schema([("id", pa.string()), ("images", pa.list_(image)), ("messages", pa.list_(message))])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, rows, ROW_GROUP):
            group = [make_row(number) for number in range(start, min(start + ROW_GROUP, rows))]
            writer.write_table(pa.Table.from_pylist(group, schema), row_group_size=ROW_GROUP)
