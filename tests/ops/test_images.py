from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.vision.samples import encode, exif, picture
from zephon_ft.errors import ConfigError, ImageError
from zephon_ft.ops.base import WorkContext
from zephon_ft.ops.images import images
from zephon_ft.record import Record
from zephon_ft.vision.policy import ImageLimits
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL
from zephon_ft.vision.square import siglip

A = encode(picture(40, 20), "PNG")
B = encode(picture(100, 60), "JPEG", exif=exif(6))
URI = "data:image/png;base64," + base64.b64encode(A).decode()


def read_file(record: Record, path: str) -> bytes:
    return {"a.png": A, "https://host/b.jpg": B}[path]


def run(fields: dict[str, Any], *args: Any, reader: Any = read_file, **options: Any) -> Record:
    operator = images(Qwen2_5_VL(), *args, **options)
    work = operator.bind(WorkContext(0, 0, None, lambda *_: None, reader))  # type: ignore[arg-type]
    result = work(Record((0, 1, 2, 0), 7, fields, nbytes=5))
    assert isinstance(result, Record)
    return result


@pytest.mark.parametrize("nothing", [{}, {"images": None}, {"images": []}])
def test_a_record_without_images_passes_without_media(nothing):
    record = run({"text": "hi", **nothing})
    assert record.media == ()
    assert record.fields == {"text": "hi"}


@pytest.mark.parametrize(
    "item",
    [
        A,
        bytearray(A),
        memoryview(A),
        {"bytes": A, "path": None},
        {"bytes": A, "path": "elsewhere.png"},
        {"bytes": None, "path": "a.png"},
        "a.png",
        URI,
        URI.replace("base64,", "base64,\n "),
        "data:," + "".join(f"%{byte:02x}" for byte in A),
        {"type": "image_url", "image_url": {"url": URI}},
        {"type": "image_url", "image_url": URI},
        {"type": "image", "image": "a.png"},
        {"url": "a.png"},
    ],
)
def test_every_shape_that_data_sets_give_an_image_is_taken(item):
    for value in (item, [item]):
        record = run({"images": value})
        assert [media.data for media in record.media] == [A]
        assert "images" not in record.fields


def test_media_are_planned_and_know_where_they_come_from():
    record = run({"images": [A, "https://host/b.jpg"], "text": "hi"})
    first, second = record.media
    assert (first.kind, first.key, first.position, first.index, first.offset) == (
        "pixel_values",
        (0, 1, 2, 0),
        7,
        0,
        -1,
    )
    plan = Qwen2_5_VL().plan(60, 100)
    assert (second.index, *second.facts[:2]) == (1, 60, 100)
    assert (second.tokens, second.rows) == (plan.tokens, plan.rows)
    assert (record.key, record.position, record.nbytes, record.fields) == ((0, 1, 2, 0), 7, 5, {"text": "hi"})


def test_the_given_record_is_not_changed_so_that_a_retry_sees_the_same():
    fields = {"images": [A, None]}
    with pytest.raises(ImageError):
        run(fields)
    assert fields == {"images": [A, None]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([A, None], "field 'images', image 2 of 2: null"),
        ([A, b""], "image 2 of 2: empty file"),
        ([b"<html>oops"], "image 1 of 1: not an image but an HTML page"),
        ([{"bytes": None, "path": None}], "keys"),
        ([3], "int instead of"),
        (["data:image/png;base64,####"], "damaged base64"),
        (["data:nothing"], "without a comma"),
        ([encode(picture(3000, 10), "PNG")], "aspect ratio"),
        ([A[:20]], "PNG header"),
    ],
)
def test_what_is_wrong_names_the_field_and_the_image(value, words):
    with pytest.raises(ImageError, match=words):
        run({"images": value})


def test_limits_are_checked_on_the_header():
    with pytest.raises(ImageError, match="max_megapixels"):
        run({"images": A}, limits=ImageLimits(max_megapixels=0.0001))


def test_more_images_than_max_images_is_an_error_with_both_numbers():
    with pytest.raises(ImageError, match="3 images, above max_images=2"):
        run({"images": [A, A, A]}, max_images=2)
    assert len(run({"images": [A, A]}, max_images=2).media) == 2


def test_the_first_of_several_fields_that_is_there_is_taken():
    assert [m.facts[4] for m in run({"png": A, "txt": "x"}, ("jpg", "png")).media] == ["PNG"]
    assert [m.facts[4] for m in run({"jpg": B, "png": None}, ("jpg", "png")).media] == ["JPEG"]
    record = run(
        {"images": [], "messages": [{"role": "user", "content": [{"type": "image", "image": A}]}]},
        ("images", "messages"),
    )
    assert len(record.media) == 1
    assert record.fields == {"messages": [{"role": "user", "content": [{"type": "image"}]}]}


def test_inline_images_of_messages_are_collected_in_order_and_leave_markers():
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "first"},
                {"type": "image_url", "image_url": {"url": URI}},
                {"type": "text", "text": "second"},
                {"type": "input_image", "image_url": "https://host/b.jpg"},
            ],
        },
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": [{"type": "image", "image": {"bytes": A}}]},
    ]
    record = run({"messages": messages}, "messages")
    assert [media.data for media in record.media] == [A, B, A]
    parts = record.fields["messages"][1]["content"]
    assert parts == [
        {"type": "text", "text": "first"},
        {"type": "image"},
        {"type": "text", "text": "second"},
        {"type": "image"},
    ]
    assert record.fields["messages"][0] is messages[0]
    assert messages[1]["content"][1] == {"type": "image_url", "image_url": {"url": URI}}  # the given one is unchanged


def test_a_part_without_a_payload_is_an_error():
    with pytest.raises(ImageError, match="image 1 of 1"):
        run({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages")


def test_a_path_that_nothing_can_read_is_a_configuration_error():
    with pytest.raises(ConfigError, match=r"a\.png"):
        run({"images": "a.png"}, reader=None)


def test_a_storage_failure_is_not_bad_data():
    def fail(record: Record, path: str) -> bytes:
        raise FileNotFoundError(path)

    with pytest.raises(FileNotFoundError):
        run({"images": "a.png"}, reader=fail)


def test_wrong_options_are_refused_when_the_pipeline_is_built():
    for call in (
        lambda: images("qwen"),  # type: ignore[arg-type]
        lambda: images(siglip(), ""),
        lambda: images(siglip(), ()),
        lambda: images(siglip(), max_images=0),
    ):
        with pytest.raises(ConfigError):
            call()


def test_the_recipe_holds_what_decides_tokens_and_the_kind_what_decides_pixels():
    plain, scaled = images(siglip(), ("jpg", "png")), images(siglip(), ("jpg", "png"), scaled_decode=False)
    assert plain.recipe() == scaled.recipe()
    assert plain.recipe()["fields"] == ["jpg", "png"]
    assert plain.recipe() != images(siglip(size=224), ("jpg", "png")).recipe()
    assert plain.media_kinds()[0].recipe() != scaled.media_kinds()[0].recipe()
    assert plain.reads() == {"jpg", "png"}
