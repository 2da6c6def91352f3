from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from zephon_ft.cli import main
from zephon_ft.demo import data
from zephon_ft.demo.digests import BATCHES, Digests
from zephon_ft.demo.png import encode_png
from zephon_ft.demo.recipe import EMBEDDED, Recipe, demo_pipeline
from zephon_ft.demo.run import PICTURE
from zephon_ft.digest import digest_of
from zephon_ft.text.tokenizer import demo_tokenizer_path, load_tokenizer

# The same on every machine, on every Python and for every version of pyarrow, Pillow and tokenizers: never change them
# without a new `data.VERSION` or a new order version.
ROWS_DIGEST = "98ae64b5b0fa0b2ae9d4741aa07dd8e8a4dd6276003f42064534c3de7a0a7d33"
TOKENS_DIGEST = "5ac287884d59f0525558cbac6161a2a3995e2a2bb88510fdcf66ed8427a14ffd"


def stream_digests(batches: int = BATCHES, **options: object) -> Digests:
    tokenizer = load_tokenizer(demo_tokenizer_path())
    pipeline = demo_pipeline(data.demo_dataset(), EMBEDDED, tokenizer, Recipe()).options(**options)
    digests = Digests()
    with iter(pipeline) as stream:
        for _, batch in zip(range(batches), stream):
            digests.add(batch)
    return digests


def printed(capsys: pytest.CaptureFixture[str], name: str) -> str:
    """The digest that the demo printed last."""
    found = re.findall(rf"^  {name} +([0-9a-f]{{64}})", capsys.readouterr().out, re.MULTILINE)
    return found[-1]


def test_the_rows_are_the_same_on_every_machine() -> None:
    rows = {str(number): data.make_row(number) for number in range(0, data.ROWS, 50)}
    assert digest_of(rows) == ROWS_DIGEST


def test_the_data_set_is_written_once_in_row_groups_of_fixed_size_with_zero_to_two_images_a_row() -> None:
    path = data.demo_path()
    made = path.stat().st_mtime_ns
    assert data.demo_path().stat().st_mtime_ns == made
    file = pq.ParquetFile(path)
    groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert groups == [data.ROW_GROUP] * (data.ROWS // data.ROW_GROUP)
    rows = file.read_row_group(3).to_pylist()
    assert {len(row["images"]) for row in rows} == {0, 1, 2}
    assert rows[7] == data.make_row(307) | {"messages": rows[7]["messages"]}
    assert [message["role"] for message in rows[7]["messages"]][:2] == ["user", "assistant"]


def test_two_processes_that_start_together_both_find_a_whole_data_set(tmp_path: Path) -> None:
    code = "from zephon_ft.demo.data import demo_dataset; print(demo_dataset().rows)"
    environment = {"ZEPHON_FT_CACHE": str(tmp_path), "PYTHONPATH": str(Path(data.__file__).parents[2])}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == ["4000", "4000"]
    assert [path.name for path in (tmp_path / f"demo-v{data.VERSION}").iterdir()] == ["shapes.parquet"]


def test_a_cache_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZEPHON_FT_CACHE", str(tmp_path / "file"))
    assert main(["demo"]) == 2
    assert "set ZEPHON_FT_CACHE" in capsys.readouterr().err


@pytest.mark.parametrize("size", [(1, 1), (300, 700)])
def test_images_are_stored_without_a_compressor_and_decode_to_what_was_drawn(size: tuple[int, int]) -> None:
    pixels = np.arange(size[0] * size[1], dtype=np.uint64).reshape(size).astype(np.uint8) % 3
    encoded = encode_png(pixels, [(1, 2, 3), (40, 50, 60), (255, 0, 7)])
    assert len(encoded) > pixels.size
    image = Image.open(BytesIO(encoded))
    image.load()
    assert np.array_equal(np.asarray(image), pixels)
    assert image.convert("RGB").getpixel((0, 0)) == (1, 2, 3)


@pytest.mark.parametrize("options", [{"runner": "inline"}, {"workers": 1}, {"workers": 5, "task_rows": 3}])
def test_tokens_and_layout_are_the_golden_ones_whatever_the_runner(options: dict[str, object]) -> None:
    assert stream_digests(**options).layout == TOKENS_DIGEST


def test_digests_cover_a_fixed_number_of_batches() -> None:
    digests = stream_digests(BATCHES + 3, runner="inline")
    assert digests.batches == BATCHES
    assert digests.layout == TOKENS_DIGEST
    assert digests.pixels != digests.layout


def test_digests_chain_the_digests_of_the_batches() -> None:
    tokenizer = load_tokenizer(demo_tokenizer_path())
    pipeline = demo_pipeline(data.demo_dataset(), EMBEDDED, tokenizer, Recipe()).options(runner="inline")
    with iter(pipeline) as stream:
        batches = [batch for _, batch in zip(range(3), stream)]
    for pixels in (False, True):
        expected = hashlib.sha256(b"".join(bytes.fromhex(batch.digest(pixels)) for batch in batches)).hexdigest()
        digests = Digests()
        for batch in batches:
            digests.add(batch)
        assert (digests.pixels if pixels else digests.layout) == expected


def test_the_demo_prints_the_golden_digest_and_draws_the_first_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--steps", "66", "--out", str(tmp_path / "new")]) == 0
    output = capsys.readouterr()
    assert TOKENS_DIGEST in output.out
    for word in ("samples/s", "images/s", "tokens/s", "fill", "GIL", "left out    nothing"):
        assert word in output.out
    assert re.search(r"pixels +[0-9a-f]{64}  \(pillow", output.out)
    assert len(output.err.splitlines()) == 10  # no terminal: ten plain lines
    assert "batch 66 of 66" in output.err
    with Image.open(tmp_path / "new" / PICTURE) as picture:
        assert picture.width == 1400
        assert 800 < picture.height < 1600


def test_run_time_options_change_no_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = set()
    for options in (["--runner", "inline"], ["--workers", "3"], ["--workers", "1", "--train", "4"]):
        main(["demo", "--steps", "4", "--batch", "1", "--max-length", "256", "--out", str(tmp_path), *options])
        found.add(printed(capsys, "tokens"))
    assert len(found) == 1
    main(["demo", "--steps", "4", "--batch", "1", "--max-length", "256", "--out", str(tmp_path), "--seed", "1"])
    assert printed(capsys, "tokens") not in found


def test_training_on_the_stream_brings_the_loss_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--train", "24", "--batch", "2", "--max-length", "256", "--out", str(tmp_path)]) == 0
    output = capsys.readouterr()
    ratio = re.search(r"ratio (\d\.\d\d) \(at most 0\.7\)", output.out)
    assert ratio is not None
    assert float(ratio[1]) < 0.7
    assert "loss " in output.err
