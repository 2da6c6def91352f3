from __future__ import annotations

import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from zephon_ft import ConfigError, Dataset
from zephon_ft.cli import main
from zephon_ft.demo.reading import Reading, understand
from zephon_ft.demo.run import PICTURE

CHAT = [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A green field."}]
LLAVA = [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A green field."}]
PAIRS = [{"user": "What is it?", "assistant": "A green field."}]


def picture(number: int, kind: str = "JPEG") -> bytes:
    out = BytesIO()
    Image.new("RGB", (60 + number, 90), (20, 5 * number % 256, 70)).save(out, kind)
    return out.getvalue()


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def archive(path: Path, samples: list[dict[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as out:
        for number, sample in enumerate(samples):
            for extension, content in sample.items():
                info = tarfile.TarInfo(f"{number:04}.{extension}")
                info.size = len(content)
                out.addfile(info, BytesIO(content))
    return path


def demo(path: Path, out: Path, *options: str) -> int:
    small = ("--steps", "3", "--batch", "1", "--max-length", "256", "--lanes", "2", "--workers", "2")
    return main(["demo", "--data", str(path), "--out", str(out), *small, *options])


def make(kind: str, folder: Path) -> Path:
    numbers = range(30)
    if kind == "parquet":
        rows = [{"images": [{"bytes": picture(i), "path": None}] * (i % 3), "texts": PAIRS} for i in numbers]
        return parquet(folder / "data.parquet", rows)
    if kind == "jsonl":
        (folder / "pictures").mkdir()
        for i in numbers:
            (folder / "pictures" / f"{i}.png").write_bytes(picture(i, "PNG"))
        return jsonl(folder / "data.jsonl", [{"image": f"pictures/{i}.png", "conversations": LLAVA} for i in numbers])
    if kind == "tar":
        return archive(folder / "data.tar", [{"jpg": picture(i), "txt": f"Field {i}.".encode()} for i in numbers])
    rows = [{"id": i, "text": f"Number {i}: " + "the green field was wide. " * 9} for i in numbers]
    return jsonl(folder / "text.jsonl", rows)


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("parquet", "conversations in 'texts' (FineVision); images in 'images'"),
        ("jsonl", "conversations in 'conversations' (LLaVA); images in 'image'"),
        ("tar", "captions in 'txt', as answers to 'Describe the image.'; images in 'jpg'"),
        ("text", "plain text in 'text'; no images"),
    ],
)
def test_own_data_is_streamed_and_drawn(
    kind: str, read: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(make(kind, tmp_path), tmp_path / "out") == 0
    output = capsys.readouterr().out
    assert f"reading     {read}\n" in output
    assert "left out    nothing" in output or kind == "text"
    assert (tmp_path / "out" / PICTURE).is_file()


@pytest.mark.parametrize("kind", ["tar", "text"])
def test_own_data_can_be_trained_on(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(make(kind, tmp_path), tmp_path, "--train", "3") == 0
    assert "not judged under" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"messages": CHAT}, Reading((), "chat", ("messages",), "OpenAI")),
        ({"a": 1, "dialogue": PAIRS}, Reading((), "chat", ("dialogue",), "FineVision")),
        ({"image": "a/b.JPG", "caption": "x"}, Reading(("image",), "caption", ("caption",))),
        ({"pic": {"bytes": picture(1), "path": None}, "text": "x"}, Reading(("pic",), "caption", ("text",))),
        ({"image": picture(1), "question": "x", "answer": "y"}, Reading(("image",), "pair", ("question", "answer"))),
        ({"prompt": "x", "response": "y", "text": "z"}, Reading((), "pair", ("prompt", "response"))),
        ({"text": "x", "url": "y"}, Reading((), "text", ("text",))),
        ({"anything": "x"}, Reading((), "text", ("anything",))),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]},
                    CHAT[1],
                ]
            },
            Reading(("messages",), "chat", ("messages",), "OpenAI"),
        ),
    ],
)
def test_fields_are_found_by_name_and_value(row: dict[str, Any], expected: Reading) -> None:
    assert understand(Dataset.from_rows("data", [row, {}] * 3)) == expected


def test_a_conversation_inside_of_a_tars_json_is_found_beside_images_of_several_formats(tmp_path: Path) -> None:
    inside = json.dumps({"conversations": LLAVA}).encode()
    samples = [{"jpg": picture(0), "json": inside}, {"png": picture(1, "PNG"), "json": inside}]
    path = archive(tmp_path / "data.tar", samples * 20)
    found = understand(Dataset.from_path("data", path))
    assert found == Reading(("jpg", "png"), "chat", ("json.conversations",), "LLaVA")
    assert demo(path, tmp_path) == 0


def test_data_without_anything_to_train_on_is_an_error_that_lists_its_fields(tmp_path: Path) -> None:
    rows = [{"label": 3, "image": {"bytes": picture(1), "path": None}, "codes": [1]}] * 3
    with pytest.raises(ConfigError, match=r"There is: label \(int\), image \(image\).*codes \(list\)"):
        understand(Dataset.from_path("data", parquet(tmp_path / "data.parquet", rows)))


def test_a_bad_row_is_named_and_can_be_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"image": {"bytes": picture(i), "path": None}, "caption": f"Field {i}."} for i in range(30)]
    rows[17]["image"] = {"bytes": b"<html>no such image</html>", "path": "17.jpg"}
    path = parquet(tmp_path / "data.parquet", rows)
    assert demo(path, tmp_path, "--steps", "9") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert "row 17" in error
    assert error.endswith("--on-error skip goes on without such rows")
    assert demo(path, tmp_path, "--steps", "9", "--on-error", "skip") == 0
    assert "images: skipped: " in capsys.readouterr().out


def test_data_of_which_nothing_fits_ends_with_an_error_instead_of_hanging(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(make("tar", tmp_path), tmp_path, "--max-length", "8") == 2
    error = capsys.readouterr().err
    assert "not even one step" in error
    assert "over-long" in error


def test_another_tokenizer_without_image_tokens_is_an_error_that_names_the_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE({"a": 0}, [])).save(str(tmp_path / "tokenizer.json"))
    assert demo(make("tar", tmp_path), tmp_path, "--tokenizer", str(tmp_path / "tokenizer.json")) == 2
    assert "<|" in capsys.readouterr().err
