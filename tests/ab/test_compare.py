from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import pytest
from PIL import Image

from zephon_ft.ab import bare, child, compare
from zephon_ft.ab.first_rows import FirstRows
from zephon_ft.ab.functions import Functions
from zephon_ft.ab.job import Job, Request
from zephon_ft.ab.measure import Result
from zephon_ft.ab.photographs import Photographs, write
from zephon_ft.ab.recipe import dataset, operators, pipeline, plain_text, possible_modes
from zephon_ft.ab.sides import Side, distinct, external_side, interpreter, our_sides
from zephon_ft.ab.table import table
from zephon_ft.cli import main
from zephon_ft.errors import ConfigError, PipelineError
from zephon_ft.io.dataset import Dataset
from zephon_ft.ops.tokenize import Tokenize
from zephon_ft.ops.tokenize_chat import TokenizeChat
from zephon_ft.text.tokenizer import demo_tokenizer_path

ROWS = 30


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("photographs") / "photographs.parquet"
    write(path, Photographs(rows=ROWS, sides=(60, 120), tokens=(20, 40)), str(demo_tokenizer_path()), 10)
    return str(path)


def job(mode: str, data: str, **changes: object) -> Job:
    return Job(mode=mode, data=data, decoder="pillow", pack_length=256, lanes=2, **changes)  # type: ignore[arg-type]


def test_two_runners_are_checked_compared_and_written(
    photographs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, picture = tmp_path / "ab.json", tmp_path / "ab.png"
    command = f"bench --data {photographs} --mode full --runners thread,process --workers 1 --rounds 2 --seconds 0.3"
    command += f" --warmup 0.1 --lanes 2 --max-length 256 --decoder pillow --json {figures} --plot {picture}"
    assert main(command.split()) == 0
    assert "2 sides checked: same samples, tokens and labels; the same pixels" in capsys.readouterr().out
    (report,) = json.loads(figures.read_text())
    assert (
        report["schema"] == compare.SCHEMA
        and report["mode"] == "full"
        and report["differences"] == []
        and report["identical"]
    )
    assert len(report["checked"]) == 2 and [line["workers"] for line in report["lines"]] == [1, 1]
    first, second = report["lines"]
    assert first["ratio"]["values"] == [1.0, 1.0] and len(second["ratio"]["values"]) == 2
    for line in report["lines"]:
        assert set(report["sides"][line["side"]]) >= {"gil", "python", "versions"}
        assert line["figures"]["samples/s"]["median"] == line["figures"]["images/s"]["median"] > 0
        assert line["figures"]["CPU s per 1,000 samples"]["median"] > 0
        assert line["figures"]["peak memory MB"]["median"] > 20
    assert Image.open(picture).width > 1000


def test_a_side_that_delivers_something_else_fails_the_command(photographs: str, tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(
        "import itertools\n"
        "import numpy as np\n"
        "from zephon_ft.ab.measure import serve\n"
        "def check(request, facts):\n"
        "    for row in range(30):\n"
        "        facts.sample()\n"
        "        facts.image(row, np.zeros((384, 384, 3), np.uint8))\n"
        "serve(lambda request: itertools.repeat(0), lambda item: (1, 1, 0), check)\n"
    )
    command = f"bench --data {photographs} --mode fetch --runners inline --workers 1 --rounds 1 --seconds 0.1"
    command += f" --warmup 0 --decoder pillow --json {tmp_path / 'ab.json'}"
    assert main([*command.split(), "--side", f"black={sys.executable} {script}"]) == 1
    (report,) = json.loads((tmp_path / "ab.json").read_text())
    (difference,) = report["differences"]
    assert difference.startswith("black: image ") and "in block means" in difference


def test_an_interpreter_without_the_packages_is_told_what_to_install(photographs: str) -> None:
    side = Side(name="poor", command=(sys.executable, "-S", "-m", "zephon_ft.ab.side"), runner="thread", ours=True)
    with pytest.raises(PipelineError, match=r"has no package 'numpy'.*uv pip install --python .*numpy"):
        child.run(side, Request(job=job("text", photographs), side="poor"))


@pytest.mark.parametrize(
    ("command", "says"), [("print('no JSON')", "its last line is not a result"), ("raise OSError(7)", "OSError: 7")]
)
def test_a_side_that_does_not_answer_is_named_with_what_it_said(command: str, says: str) -> None:
    side = Side(name="odd", command=(sys.executable, "-S", "-c", command), runner="")
    with pytest.raises(PipelineError, match=rf"(?s)side 'odd'.*{says}"):
        child.run(side, Request(job=Job(mode="text", data="x")))


def test_ratios_are_medians_of_the_rounds_own_ratios() -> None:
    sides = [Side(name=name, command=(), runner="thread") for name in ("a", "b")]
    plan = compare.Plan(job=Job(mode="fetch", data="x"), sides=sides, rounds=3, baseline="a")

    def runs(rates: Sequence[int]) -> list[tuple[Result, int]]:
        one = Result(side="", mode="fetch", runner="", workers=1, wall_s=1.0, cpu_s=1.0)
        return [(replace(one, samples=rate, images=rate), 0) for rate in rates]

    # The second round was slow for both: the median of the ratios knows, the ratio of the medians would not.
    lines = compare._lines(plan, {("a", 1): runs([100, 10, 110]), ("b", 1): runs([200, 20, 330])})
    ratio = lines[1].ratio
    assert (ratio.median, ratio.least, ratio.most) == (2.0, 2.0, 3.0)
    assert lines[0].ratio.values == [1.0, 1.0, 1.0]


def test_the_order_of_the_sides_rotates(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, int]] = []

    def run(side: Side, request: Request) -> tuple[Result, int]:
        order.append((side.name, request.job.workers))
        return Result(side=side.name, mode="text", runner="", workers=1), 0

    monkeypatch.setattr(child, "run", run)
    sides = [Side(name=name, command=(), runner="thread") for name in "ab"]
    plan = compare.Plan(job=Job(mode="text", data="x"), sides=sides, workers=(1, 2), rounds=2)
    compare.measure_all(plan)
    a, b, c, d = ("a", 1), ("b", 1), ("a", 2), ("b", 2)
    assert order == [a, b, c, d, b, c, d, a]


@pytest.mark.parametrize("mode", ["fetch", "full", "text"])
def test_the_bare_loop_does_all_of_the_work(mode: str, photographs: str) -> None:
    work = job(mode, photographs)
    rows = dataset(work)
    loop = bare.BareWork(work, rows)
    counts = [loop.run(chunk) for chunk in islice(bare.chunks(work, rows, range(work.lanes)), 4)]
    samples, images, tokens = (sum(column) for column in zip(*counts, strict=True))
    assert samples >= 4 and images == (0 if mode == "text" else samples)
    assert (tokens > samples) == (mode != "fetch")


def test_the_bare_loop_takes_the_rows_in_the_pipelines_order(photographs: str) -> None:
    work = job("fetch", photographs)
    rows = dataset(work)
    taken: dict[int, list[int]] = {}
    for lane in range(work.lanes):
        chunks = bare.chunks(work, rows, range(lane, lane + 1))
        taken[lane] = list(islice((row for chunk in chunks for row in chunk.row), 20))
    with iter(pipeline(work).options(runner="inline")) as stream:
        for batch in islice(stream, 20):
            assert batch.keys[0][0][2] == taken[batch.lane].pop(0)


def test_bare_threads_tell_counts_until_they_are_closed(photographs: str) -> None:
    for loop in (bare.threads, bare.tokenizer_threads):
        stream = loop(replace(job("text", photographs), workers=2))
        for _ in range(2):
            samples, images, tokens = next(stream)
            assert samples > 0 and images == 0 and tokens > samples
        stream.close()  # type: ignore[attr-defined]


def test_functions_of_one_row_give_what_the_pipeline_delivers(photographs: str) -> None:
    work = job("full", photographs, passes=1)
    functions = Functions(work)
    rows = dataset(work).fetch(0, range(ROWS))
    with iter(pipeline(work).options(runner="inline")) as stream:
        batch = next(stream)
    origin = batch.records()[0][0]
    sample = functions.full(rows[origin.row])  # type: ignore[arg-type]
    assert batch.arrays["input_ids"][0, : origin.stop].tolist() == sample.input_ids.tolist()
    patches, grid = sample.images[0]
    assert batch.arrays["image_grid_thw"][0].tolist() == list(grid)
    assert batch.arrays["pixel_values"][: len(patches)].tolist() == patches.tolist()
    assert functions.text is not None and Functions(job("fetch", photographs)).fetch(rows[0]).shape == (384, 384, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["full", "text"])
def test_whole_texts_have_the_same_tokens_but_are_not_remembered(mode: str, photographs: str) -> None:
    work = job(mode, photographs)
    rows = dataset(work).fetch(0, range(ROWS))
    words, whole = Functions(work), Functions(work, whole_texts=True)
    for row in rows:
        ours, theirs = words.record(row), whole.record(row)  # type: ignore[arg-type]
        assert ours.fields.keys() == theirs.fields.keys()
        for name in ours.fields:
            assert ours.fields[name].tolist() == theirs.fields[name].tolist()
    remembered = [
        operator.tokenizer.separable
        for made in (operators(work), operators(work, whole_texts=True))
        for operator in made
        if isinstance(operator, (Tokenize, TokenizeChat))
    ]
    assert remembered == [True, False]


def test_first_rows_are_the_first_of_all_shards() -> None:
    whole = Dataset.from_rows("data", [{"n": n} for n in range(10)], shard_rows=4)
    head = FirstRows(whole, 6)
    assert [shard.rows for shard in head.shards] == [4, 2, 0]
    assert head.fetch(1, [0, 1]) == [{"n": 4}, {"n": 5}]
    assert [fact["rows"] for fact in head.fingerprint()] == [4, 2, 0]


def test_plain_text_takes_every_layout_of_conversations() -> None:
    layouts = (
        [{"user": "a", "assistant": "b"}],
        [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}],
        [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]},
            {"role": "x", "content": "b"},
        ],
    )
    for conversation in layouts:
        assert plain_text({"chat": conversation}, ("chat",)) == {"text": "a\nb"}
    assert plain_text({"q": "a", "json": {"a": "b"}}, ("q", "json.a")) == {"text": "a\nb"}


def test_sides_are_runners_times_interpreters_with_their_bare_loops() -> None:
    sides = our_sides(["thread", "process"], [sys.executable], mode="text", bare=True)
    label = interpreter(sys.executable).label
    names = ["thread", "bare", "bare-tokenizer", "process", "bare-process"]
    assert [side.name for side in sides] == [f"{name} {label}" for name in names]
    assert sides[0].against == (f"bare {label}", f"bare-tokenizer {label}")
    twice = distinct([*sides, sides[0]])
    assert twice[-1].name == f"thread {label} #2"


def test_what_cannot_be_a_side_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="none of thread, process, inline"):
        our_sides(["threads"], [])
    with pytest.raises(ConfigError, match="no such interpreter"):
        our_sides(["thread"], ["python9.99"])
    with pytest.raises(ConfigError, match="NAME=COMMAND"):
        external_side("python peer.py")


def test_only_modes_that_the_data_have_something_for_are_run(tmp_path: Path) -> None:
    assert possible_modes({"images": (), "kind": "text"}) == ["text"]
    assert possible_modes({"images": (), "kind": "pair"}) == ["full", "text"]
    assert possible_modes({"images": ("image",), "kind": "caption"}) == ["fetch", "full", "text"]
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    assert main(["bench", "--data", str(tmp_path / "a.jsonl"), "--mode", "fetch"]) == 2


@pytest.mark.parametrize("option", ["--mode=half", "--workers=0", "--baseline=nobody"])
def test_options_that_cannot_be_used_are_refused(option: str, photographs: str) -> None:
    assert main(["bench", "--data", photographs, option]) == 2


def test_the_table_warns_of_a_side_that_had_not_settled() -> None:
    plan = compare.Plan(
        job=Job(mode="text", data="x"), sides=[Side(name="a", command=(), runner="thread")], baseline="a"
    )
    run = Result(side="a", mode="text", runner="thread", workers=1, samples=10, tokens=100, wall_s=1.0, cpu_s=1.0)

    def lines(drift: float) -> list[compare.Line]:
        return compare._lines(plan, {("a", 1): [(replace(run, drift=drift), 5)]})

    facts = {
        "runner": "thread",
        "decode": "ours",
        "python": "3",
        "gil": True,
        "versions": {},
        "note": "",
        "bare": False,
    }
    report = compare.Report(
        1, "text", asdict(plan.job), "machine", (0.0, 0.0), 1, 1.0, 1.0, "a",
        {"a": facts}, ["a"], [], True, lines(1.0),
    )  # fmt: skip
    assert "not steady" not in table(report)
    assert "not steady" in table(replace(report, lines=lines(3.0)))
