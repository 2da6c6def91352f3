from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from zephon_ft.ab.photographs import Photographs, describe, originals, photographs, write
from zephon_ft.errors import ConfigError
from zephon_ft.text.tokenizer import demo_tokenizer_path

TOKENIZER = str(demo_tokenizer_path())
SMALL = Photographs(rows=7, sides=(40, 90), tokens=(20, 30))


def rows(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()


def test_a_row_is_a_function_of_the_seed_alone(tmp_path: Path) -> None:
    for name, row_group in (("a", 2), ("b", 100)):
        write(tmp_path / name, SMALL, TOKENIZER, row_group)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    assert len({row["images"][0]["bytes"] for row in rows(tmp_path / "a")}) == 7


def test_sizes_and_text_lengths_are_those_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "a", SMALL, TOKENIZER)
    for row in rows(tmp_path / "a"):
        assert all(40 <= side <= 90 for side in Image.open(BytesIO(row["images"][0]["bytes"])).size)
    facts = describe(tmp_path / "a", TOKENIZER)
    assert facts["rows"] == 7
    least, most = map(int, facts["text tokens a row"].split(",")[0].split(" to "))
    assert 15 <= least <= most <= 30


def test_photographs_can_be_held_upright(tmp_path: Path) -> None:
    write(tmp_path / "a", Photographs(rows=1, size=(80, 60), orientation=6), TOKENIZER)
    image = Image.open(BytesIO(rows(tmp_path / "a")[0]["images"][0]["bytes"]))
    assert image.size == (80, 60)
    assert image.getexif()[0x0112] == 6


def test_the_data_set_is_made_once(tmp_path: Path) -> None:
    made = photographs(SMALL, TOKENIZER, tmp_path)
    before = made.stat().st_mtime_ns
    assert photographs(SMALL, TOKENIZER, tmp_path) == made and made.stat().st_mtime_ns == before
    assert [path.name for path in tmp_path.iterdir()] == [made.name]
    assert photographs(Photographs(rows=2, sides=(40, 90)), TOKENIZER, tmp_path) != made


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--out"):
        photographs(SMALL, TOKENIZER, tmp_path / "file")


def test_every_shipped_photograph_has_a_source_and_a_licence() -> None:
    import zephon_ft

    folder = Path(zephon_ft.__file__).parent / "assets" / "photos"
    table = (folder / "README.md").read_text(encoding="utf-8")
    lines = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}
    assert set(lines) == {path.name for path in folder.glob("*.jpg")} == {f"{name}.jpg" for name, _ in originals()}
    assert all("CC0" in line or "public domain" in line for line in lines.values())
    assert sum(path.stat().st_size for path in folder.glob("*.jpg")) < 300_000
