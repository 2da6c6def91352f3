"""Finding data files: what a path may be, and what is said when it is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from zephon_ft.errors import ConfigError
from zephon_ft.io.dataset import Dataset


def write(path: Path, *ids: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": i}) + "\n" for i in ids))
    return path


def ids(dataset: Dataset) -> list[list[int]]:
    return [[row["id"] for row in dataset.fetch(i, range(s.rows))] for i, s in enumerate(dataset.shards)]


def test_a_folder_is_its_data_files_sorted_and_hidden_files_are_left_out(tmp_path):
    write(tmp_path / "b.jsonl", 2)
    write(tmp_path / "a.jsonl", 1)
    write(tmp_path / ".hidden.jsonl", 3)
    write(tmp_path / "_meta.jsonl", 4)
    write(tmp_path / "README.md", 5)
    write(tmp_path / "sub" / "c.jsonl", 6)
    assert ids(Dataset.from_path("d", tmp_path)) == [[1], [2]]
    # The sidecars that the first opening left behind are no data.
    assert ids(Dataset.from_path("d", tmp_path)) == [[1], [2]]


def test_a_folder_without_data_files_of_its_own_gives_those_of_its_sub_folders(tmp_path):
    write(tmp_path / "x" / "b.jsonl", 2)
    write(tmp_path / "w" / "y" / "a.jsonl", 1)
    assert ids(Dataset.from_path("d", tmp_path)) == [[1], [2]]


def test_a_glob_is_sorted_and_a_list_keeps_its_order(tmp_path):
    for i in (3, 1, 2):
        write(tmp_path / f"part-{i}.jsonl", i)
    assert ids(Dataset.from_path("d", tmp_path / "part-*.jsonl")) == [[1], [2], [3]]
    listed = [tmp_path / "part-3.jsonl", str(tmp_path / "part-1.jsonl")]
    assert ids(Dataset.from_path("d", listed)) == [[3], [1]]


def test_a_name_with_glob_characters_that_exists_is_that_file(tmp_path):
    write(tmp_path / "part[1].jsonl", 7)
    assert ids(Dataset.from_path("d", tmp_path / "part[1].jsonl")) == [[7]]


def test_the_format_is_found_from_the_first_bytes_where_the_suffix_does_not_tell(tmp_path):
    write(tmp_path / "data.bin", 1)
    assert Dataset.from_path("d", tmp_path / "data.bin").format == "jsonl"
    (tmp_path / "packed").write_bytes(gzip.compress(b'{"id": 4}\n'))
    assert ids(Dataset.from_path("d", tmp_path / "packed")) == [[4]]


def test_the_format_can_be_given(tmp_path):
    write(tmp_path / "data.txt", 1)
    for fmt in ("jsonl", "json"):
        assert Dataset.from_path("d", tmp_path / "data.txt", fmt).format == "jsonl"


def test_file_urls_are_local_files(tmp_path):
    write(tmp_path / "a b.jsonl", 1)
    dataset = Dataset.from_path("d", f"file://{tmp_path}/a b.jsonl")
    assert ids(dataset) == [[1]]
    assert not dataset.remote
    assert dataset.shards[0].path.startswith("file://")


@pytest.mark.parametrize(
    ("make", "path", "words"),
    [
        (lambda p: write(p / "there.jsonl", 1), "gone.jsonl", ["'web'", "there is no", "gone.jsonl", "there.jsonl"]),
        (lambda p: None, "", ["'web'", "has no files"]),
        (lambda p: write(p / "a.md", 1), "", ["'web'", "no Parquet, JSONL or tar files", "1 x .md"]),
        (lambda p: None, "*.jsonl", ["'web'", "no file matches", "*.jsonl"]),
        (lambda p: (p / "a.xyz").write_bytes(b"\x00\x01\x02"), "a.xyz", ["'web'", "a.xyz", "unknown", "fmt="]),
    ],
)
def test_a_path_without_data_is_an_error_that_says_what_is_there(tmp_path, make, path, words):
    make(tmp_path)
    with pytest.raises(ConfigError) as caught:
        Dataset.from_path("web", tmp_path / path)
    assert all(word in str(caught.value) for word in words), caught.value


def test_several_formats_in_one_folder_are_an_error_unless_one_is_chosen(tmp_path):
    write(tmp_path / "a.jsonl", 1)
    (tmp_path / "b.tar").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"several formats: jsonl \(.*a\.jsonl\), tar"):
        Dataset.from_path("web", tmp_path)
    assert ids(Dataset.from_path("web", tmp_path, "jsonl")) == [[1]]


@pytest.mark.parametrize("bad", [[], 3, [3], b"x", ""])
def test_what_is_no_path_is_an_error(bad):
    with pytest.raises(ConfigError, match="'web'"):
        Dataset.from_path("web", bad)


def test_wrong_options_are_errors_that_say_what_would_work(tmp_path):
    path = write(tmp_path / "a.jsonl", 1)
    with pytest.raises(ConfigError, match="unknown format 'csv'; use one of parquet, jsonl, tar"):
        Dataset.from_path("web", path, "csv")
    with pytest.raises(ConfigError, match="name must be"):
        Dataset.from_path("", path)
    with pytest.raises(ConfigError, match="columns must be a list"):
        Dataset.from_path("web", path, columns="id")
