"""WebDataset tar: grouping, decoding, odd headers, and archives that are not whole."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import warnings

import pytest

from zephon_ft.errors import ConfigError, DataError
from zephon_ft.io.dataset import Dataset


def archive(members, format=tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def open_bytes(tmp_path, content: bytes, name: str = "shard.tar", **options) -> Dataset:
    (tmp_path / name).write_bytes(content)
    return Dataset.from_path("web", tmp_path / name, **options)


MEMBERS = [
    ("a/001.jpg", b"jpeg"),
    ("a/001.json", b'{"caption": "one"}'),
    ("a/001.txt", "ein Bäcker".encode()),
    ("a/002.JPG", b"second"),
    ("a/002.cls", b" 7\n"),
    ("a/002.seg.png", b"png"),
    ("b/001.webp", b""),
    ("b/001.caption", b"c"),
]
ROWS = [
    {"__key__": "a/001", "jpg": b"jpeg", "json": {"caption": "one"}, "txt": "ein Bäcker"},
    {"__key__": "a/002", "jpg": b"second", "cls": 7, "seg.png": b"png"},
    {"__key__": "b/001", "webp": b"", "caption": "c"},
]


def test_members_of_a_key_are_one_row_decoded_by_extension(tmp_path):
    dataset = open_bytes(tmp_path, archive(MEMBERS))
    assert (dataset.format, dataset.shards[0].rows, dataset.shards[0].row_groups) == ("tar", 3, (3,))
    assert dataset.fetch(0, [0, 1, 2]) == ROWS
    assert dataset.fetch(0, [2, 0, 2]) == [ROWS[2], ROWS[0], ROWS[2]]
    assert dataset.field_names() == {"__key__", "jpg", "json", "txt", "cls", "seg.png", "webp", "caption"}


def test_members_of_a_sample_need_not_lie_together(tmp_path):
    shuffled = random.Random(3).sample(MEMBERS, len(MEMBERS))
    rows = open_bytes(tmp_path, archive(shuffled)).fetch(0, range(3))
    assert sorted(rows, key=lambda row: row["__key__"]) == ROWS


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_in_both_header_formats(tmp_path, format):
    key = "d" * 90 + "/" + "ü" * 120
    dataset = open_bytes(tmp_path, archive([(key + ".txt", b"x")], format))
    assert dataset.fetch(0, [0]) == [{"__key__": key, "txt": "x"}]


def test_folders_are_no_members_and_what_has_no_key_is_reported(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name in ("README", ".hidden", "a/1.txt"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
    with pytest.warns(UserWarning, match=r"shard\.tar: 2 members without key or extension"):
        dataset = open_bytes(tmp_path, out.getvalue())
    assert dataset.fetch(0, [0]) == [{"__key__": "a/1", "txt": "x"}]


def test_an_archive_without_samples_is_an_empty_shard(tmp_path):
    dataset = open_bytes(tmp_path, archive([]))
    assert dataset.shards[0].rows == 0
    assert dataset.field_names() is None


def test_a_member_twice_in_a_sample_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"shard\.tar, member a/001\.jpg: occurs twice in the sample 'a/001'"):
        open_bytes(tmp_path, archive([*MEMBERS, ("a/001.jpg", b"again")]))


def test_a_link_is_an_error(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("a.jpg")
        info.type, info.linkname = tarfile.SYMTYPE, "b.jpg"
        tar.addfile(info)
    with pytest.raises(DataError, match=r"member a\.jpg: is a link"):
        open_bytes(tmp_path, out.getvalue())


BIG = [(f"{i:03}.jpg", random.Random(i).randbytes(1500)) for i in range(8)]


def test_an_archive_cut_anywhere_is_an_error_or_warned_about_and_names_archive_and_member(tmp_path):
    content = archive(BIG)
    data_end = 8 * (512 + 1536)
    for cut in [*range(1, 2300, 97), *range(2300, data_end, 511)]:
        if cut % 2048 == 0:
            continue
        with pytest.raises(DataError, match=r"shard\.tar"):
            open_bytes(tmp_path, content[:cut])
    with pytest.raises(DataError, match=r"shard\.tar: is truncated inside the member 007\.jpg"):
        open_bytes(tmp_path, content[: data_end - 200])
    for cut in (data_end, data_end - 2048):
        with pytest.warns(UserWarning, match=r"shard\.tar: has no end mark behind the member 00[67]\.jpg"):
            open_bytes(tmp_path, content[:cut])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_bytes(tmp_path, content).shards[0].rows == 8


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    content = bytearray(archive(BIG))
    content[3 * 2048 + 10] ^= 0xFF
    with pytest.raises(
        DataError, match=r"shard\.tar: is truncated or damaged at byte 6144, behind the member 002\.jpg"
    ):
        open_bytes(tmp_path, bytes(content))


@pytest.mark.parametrize("content", [b"", b"<html>" * 300])
def test_what_is_no_archive_is_an_error(tmp_path, content):
    with pytest.raises(DataError, match=r"shard\.tar: .*not a tar"):
        open_bytes(tmp_path, content)


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (("k.json", b"{"), r"member k\.json: invalid JSON"),
        (("k.cls", b"seven"), r"member k\.cls: not a whole number"),
        (("k.txt", b"\xff"), r"member k\.txt: not UTF-8"),
    ],
)
def test_a_member_that_cannot_be_parsed_is_one_bad_row(tmp_path, member, words):
    dataset = open_bytes(tmp_path, archive([("a.txt", b"x"), member, ("z.txt", b"y")]))
    good, bad, after = dataset.fetch(0, range(3))
    assert (good["txt"], after["txt"]) == ("x", "y")
    assert isinstance(bad, DataError)
    with pytest.raises(DataError, match=rf"dataset 'web', shard 0 \(shard\.tar\), row 1, {words}"):
        raise bad


def test_members_that_are_not_wanted_are_neither_read_nor_parsed(tmp_path):
    members = [("a.jpg", b"x" * 100_000), ("a.json", b"{"), ("a.txt", b"t")]
    dataset = open_bytes(tmp_path, archive(members))
    assert dataset.fetch(0, [0], frozenset({"txt"})) == [{"txt": "t"}]
    assert dataset.fetch(0, [0], frozenset({"__key__"})) == [{"__key__": "a"}]
    assert dataset.stats()["bytes_read"] == 1
    limited = open_bytes(tmp_path, archive(members), columns=["txt"])
    assert limited.fetch(0, [0]) == [{"txt": "t"}]
    with pytest.raises(ConfigError, match="no field 'png'; there is: __key__, jpg, json, txt"):
        open_bytes(tmp_path, archive(members), columns=["png"])
    with pytest.raises(ConfigError, match="no field 'png'; there is: __key__, jpg, json, txt"):
        dataset.check_fields({"png"})


def test_a_compressed_archive_gives_the_same_rows(tmp_path):
    assert open_bytes(tmp_path, gzip.compress(archive(MEMBERS)), "s.tar.gz").fetch(0, range(3)) == ROWS
    assert open_bytes(tmp_path, gzip.compress(archive(MEMBERS)), "s.tgz").fetch(0, range(3)) == ROWS
    with pytest.raises(DataError, match=r"t\.tar\.gz: the gzip data is truncated"):
        open_bytes(tmp_path, gzip.compress(archive(BIG))[:-100], "t.tar.gz")


def test_the_index_is_used_again_and_is_the_fingerprint(tmp_path):
    first = open_bytes(tmp_path, archive(MEMBERS))
    again = Dataset.from_path("web", tmp_path / "shard.tar")
    assert again.fetch(0, range(3)) == ROWS
    assert again.fingerprint() == first.fingerprint()
    assert json.loads(json.dumps(first.fingerprint())) == first.fingerprint()
    renamed = [(name.replace("a/001", "a/009"), data) for name, data in MEMBERS]
    assert (
        open_bytes(tmp_path, archive(renamed), "other.tar").fingerprint()[0]["hash"] != first.fingerprint()[0]["hash"]
    )
