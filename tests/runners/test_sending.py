"""Process runner: what is sent to workers and back, and the memory that they share."""

from __future__ import annotations

import errno
import functools
import gc
import os
import threading

import numpy as np
import pytest

from tests.conformance.functions import Counting, identity, pipeline, rows
from tests.guarantees.random_pipelines import Spec, build, take
from tests.runners.helpers import note_process
from zephon_ft import ConfigError, Dataset, Pipeline, PipelineError, StaticMixtureWorkSource
from zephon_ft.engine.pace import Pace
from zephon_ft.engine.plan import Segment, Step
from zephon_ft.ops.pack import Pack
from zephon_ft.runners import process
from zephon_ft.runners.shared import Arena

IMAGES = Spec("images", (20, 11), (3, 2), 4, 8, 1, ("map",), "best_fit", 4, (), 2, 2)


def test_lambdas_and_closures_work_and_run_elsewhere():
    factor = 3
    table = np.arange(100) * 7

    def look_up(row):
        return {"n": row["n"] * factor + int(table[row["n"]])}

    pipe = pipeline(rows(20), lanes=1, epochs=1).map(look_up).map(lambda row: {"n": row["n"] + 1}).map(note_process)
    with iter(pipe.batch(4).options(runner="process", workers=2)) as stream:
        batches = list(stream)
    assert [n for batch in batches for n in batch.columns["n"].tolist()] == [10 * n + 1 for n in range(20)]
    assert os.getpid() not in {p for batch in batches for p in batch.columns["process"].tolist()}


@pytest.mark.parametrize(("light", "behind"), [(True, False), (True, True), (False, False)])
def test_groups_are_sent_to_workers_only_where_their_work_is_worth_it(light, behind):
    class Noting(Counting):
        def bind(self, context):
            def work(group):
                group[0].fields["worked in"] = os.getpid()
                return group[0]

            return work

    Noting.light = light
    pipe = pipeline(rows(20), lanes=1, epochs=1).apply(Noting())
    if behind:  # a function of the user's, which must not hold up the parent
        pipe = pipe.map(identity)
    with iter(pipe.batch(4).options(runner="process", workers=2)) as stream:
        worked_in = {process for batch in stream for process in batch.columns["worked in"].tolist()}
    assert (worked_in == {os.getpid()}) if light and not behind else os.getpid() not in worked_in


def test_a_subclass_of_a_light_operator_goes_to_workers_until_it_says_that_it_is_light():
    class Slow(Pack):
        pass

    class Light(Pack):
        light = True

    def segment(kind: type[Pack]) -> Segment:
        return Segment(1, Step(1, kind(8)), ())

    assert [segment(kind).light for kind in (Pack, Slow, Light)] == [True, False, True]


def test_tasks_of_worker_processes_are_eight_times_as_long():
    longer = {}
    for runner in ("thread", "process"):
        with iter(pipeline(rows(20)).batch(4).options(runner=runner, workers=1)) as stream:
            pace = stream._engine.pace
            longer[runner] = pace.seconds / Pace.seconds, pace.layouts / Pace.layouts
    assert longer == {"thread": (1, 1), "process": (8, 4)}


def test_a_function_that_cannot_be_pickled_is_named_with_what_it_captures():
    lock, other = threading.Lock(), 1

    def guarded(row):
        with lock:
            return {"n": row["n"] + other}

    pipe = pipeline(rows(20)).map(guarded, version="1").batch(2).options(runner="process")
    with pytest.raises(ConfigError, match=r"map\(guarded\): holds 'function\.lock', a lock.*runner=\"thread\""):
        iter(pipe)
    with iter(pipe.options(runner="thread")) as stream:
        next(stream)


COUNTED = 0


def count_in_a_global(row):
    global COUNTED
    COUNTED += 1
    return row


LOADED = None


def load_once(row):
    """What many write to have a model in each worker: fine."""
    global LOADED
    if LOADED is None:
        LOADED = {n: n for n in range(100)}
    return {"n": LOADED[row["n"]]}


def test_state_that_workers_would_not_share_is_named_and_threads_are_offered(tmp_path):
    seen, total = {}, 0

    def remember(row):
        seen[row["n"]] = True  # a memory of its own in each worker changes nothing
        return row

    def count(row):
        nonlocal total
        total += 1
        return row

    def count_inside(row):
        return next(count(r) for r in [row])

    with open(tmp_path / "log", "w") as log:

        def write(row):
            print(row, file=log)
            return row

        def inside(row):
            return write(row)

        def given(row, file):
            return row

        wrong = {
            count: "it counts in 'total'",
            count_inside: "it counts in 'total'",
            functools.partial(count): "it counts in 'total'",
            count_in_a_global: "it counts in 'COUNTED'",
            write: "it holds the open file 'log'",
            inside: "it holds the open file 'log'",
            functools.partial(given, file=log): "it holds the open file 'file'",
        }
        for function, what in wrong.items():
            pipe = pipeline(rows(20)).map(function, version="1").batch(2)
            with pytest.raises(ConfigError, match=rf"map\(.*: {what}, which worker processes do not share.*thread"):
                iter(pipe.options(runner="process"))
            with iter(pipe.options(runner="thread")) as stream:
                next(stream)
    pipe = pipeline(rows(20), epochs=1).map(remember, version="1").map(load_once).batch(2)
    assert sum(len(batch.columns["n"]) for batch in pipe.options(runner="process", workers=1)) == 20


def test_a_result_that_cannot_be_pickled_names_the_field():
    pipe = pipeline(rows(20)).map(lambda row: {**row, "file": threading.Lock()}).batch(2)
    with pytest.raises(PipelineError, match="field 'file', a lock, cannot be sent"):
        next(iter(pipe.options(runner="process", workers=1)))


def test_a_dataset_in_the_memory_of_this_process_is_refused():
    import fsspec

    with fsspec.open("memory://process-runner/a.jsonl", "w") as file:
        file.write('{"n": 1}\n')
    source = StaticMixtureWorkSource([Dataset.from_path("m", "memory://process-runner/a.jsonl")])
    with pytest.raises(ConfigError, match="dataset 'm' lies in this process's memory"):
        iter(Pipeline(source, 1).batch(1).options(runner="process"))


def test_statistics_of_datasets_come_back(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(40)))

    def stats(runner: str) -> dict[str, int]:
        data = Dataset.from_path("d", tmp_path / "a.jsonl")
        pipe = Pipeline(StaticMixtureWorkSource([data], epochs=1), 1).batch(2).options(runner=runner, task_rows=5)
        assert len(list(pipe)) == 20
        return data.stats()

    assert stats("process") == stats("inline")


# -- shared memory ---------------------------------------------------------------------------------------------


def test_pixels_are_written_into_shared_memory_by_the_workers_and_never_sent():
    with iter(build(IMAGES, runner="process", workers=2)) as stream:
        batch = next(stream)
        while not len(batch.arrays["pixel_values"]):
            batch = next(stream)
        assert stream._runner._arena.locate(batch.arrays["pixel_values"]) is not None
        assert stream._runner._arena.locate(batch.arrays["input_ids"]) is None


def test_batches_outlive_their_stream():
    with iter(build(IMAGES, runner="process", workers=2)) as stream:
        batches = [next(stream) for _ in range(8)]
    del stream
    digests = [(b.lane, b.index, b.digest()) for b in batches]
    assert digests == take(build(IMAGES, runner="inline"), 2)


def test_without_memfd_an_unlinked_file_does(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert take(build(IMAGES, runner="process", workers=2), 4) == take(build(IMAGES, runner="inline"), 4)


def test_shared_memory_that_runs_out_is_a_clear_error(monkeypatch):
    real = Arena.map

    def limited(self: Arena, size: int):
        if size > 100_000:
            raise OSError(errno.ENOSPC, f"no room for {size} bytes of shared memory")
        return real(self, size)

    monkeypatch.setattr(Arena, "map", limited)
    pipe = pipeline(rows(10), epochs=1).map(lambda row: {"blob": b"x" * 200_000}).map(identity, parallelism=1).batch(2)
    with pytest.raises(PipelineError, match=r"no room for .* bytes of shared memory"):
        list(pipe.options(runner="process", workers=1))


def test_a_limit_of_the_system_at_the_start_is_an_error_with_a_way_out_and_leaks_no_file(monkeypatch):
    def refused(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    pipe = pipeline(rows(10), lanes=1, epochs=1).map(identity).batch(2).options(runner="process", workers=1)
    monkeypatch.setattr(process.socket, "socketpair", refused)  # the last thing that is made
    files = []
    for _ in range(9):
        with pytest.raises(PipelineError, match=r"Too many open files; raise the limit .*thread"):
            iter(pipe)
        gc.collect()
        files.append(len(os.listdir("/dev/fd")))
    assert max(files[3:]) <= max(files[:3])  # what the last try mapped may live until the next
    monkeypatch.undo()
    assert len(list(pipe)) == 5


def test_records_larger_than_a_slot_travel_whole():
    data = [{"n": n, "blob": bytes([n]) * (50_000 * n)} for n in range(12)]
    pipe = pipeline(data, lanes=1, epochs=1).map(identity).map(identity, parallelism=1).batch(3)
    got = [blob for batch in pipe.options(runner="process", workers=2) for blob in batch.columns["blob"]]
    assert got == [row["blob"] for row in data]


def test_one_byte_of_memory_budget_neither_hangs_nor_changes_the_stream():
    expected = take(build(IMAGES, runner="inline"), 4)
    assert take(build(IMAGES, runner="process", workers=2, memory_budget=1), 4) == expected
