"""What a worker runs: fetch rows, run a segment's functions, lay out a batch, decode media into it.

Each worker binds each operator once and keeps its functions, scratch memory and statistics to itself. Functions of user
code run without any lock held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from zephon_ft.engine.collector import spare_collector
from zephon_ft.engine.costs import complete
from zephon_ft.engine.events import Bundle, Work
from zephon_ft.engine.failure import wrap
from zephon_ft.engine.plan import Plan, Segment, Step
from zephon_ft.engine.sizes import nbytes_of, set_nbytes
from zephon_ft.errors import ClosedError, PipelineError, StorageError, is_data_error
from zephon_ft.ops.base import WorkContext
from zephon_ft.random import Keyed
from zephon_ft.record import Media, Record, Row
from zephon_ft.work.mixture import Chunk

Function = tuple[str, Callable[[Any], Any]]  # operator name, work function
_MAX_NOTES = 1000  # skipped and blanked records remembered by identity; all are counted


class WorkerState:
    """One worker's bound functions and statistics for one plan. Used by that worker only."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.counts: dict[str, int] = {}
        self.notes: list[tuple[tuple[int, ...], str, str]] = []  # (record key, operator, error)
        self.closing = False  # set by another thread: records of a task that are still to come are not worth doing
        self.doing: tuple[str, Any] = ("", None)  # operator and unit in progress, for the report on a stuck worker
        self._functions: dict[int, list[Function]] = {}
        self._heads: dict[int, Function] = {}
        self._fills: dict[str, Callable[..., None]] = {}

    def count(self, name: str, n: int = 1) -> None:
        """Add to this worker's statistics."""
        self.counts[name] = self.counts.get(name, 0) + n

    def note(self, key: tuple[int, ...], operator: str, error: BaseException) -> None:
        """Remember a record that was skipped or blanked."""
        self.count(f"{operator}: skipped")
        if len(self.notes) < _MAX_NOTES:
            self.notes.append((key, operator, str(error)))

    def merge(self, counts: dict[str, int], notes: list[tuple[tuple[int, ...], str, str]]) -> None:
        """Add the statistics of a worker in another process."""
        for name, n in counts.items():
            self.count(name, n)
        self.notes += notes[: _MAX_NOTES - len(self.notes)]

    def context(self, position: int, name: str) -> WorkContext:
        """What an operator's `bind` gets."""
        plan = self.plan
        datasets = plan.source.datasets

        def read_file(record: Record, path: str) -> bytes:
            dataset = datasets[record.key[0]]
            return dataset.read_file(dataset.resolve(path, record.key[1]))

        return WorkContext(plan.seed, position, Keyed(plan.seed, name, position), self.count, read_file)

    def functions(self, segment: Segment) -> list[Function]:
        """The segment's stateless functions."""
        found = self._functions.get(segment.index)
        if found is None:
            found = []
            for step in segment.steps:
                work = self._bind(step)
                if work is not None:
                    found.append((step.operator.name, work))
            self._functions[segment.index] = found
        return found

    def head(self, segment: Segment) -> Function:
        """The work function of the segment's stateful operator."""
        found = self._heads.get(segment.index)
        if found is None:
            step = segment.head
            assert step is not None
            work = self._bind(step)
            found = self._heads[segment.index] = (step.operator.name, work or (lambda group: group))
        return found

    def _bind(self, step: Step) -> Any:
        name = step.operator.name
        try:
            return step.operator.bind(self.context(step.position, name))
        except Exception as error:
            raise wrap(self.plan, name, None, error, "starting a worker") from error

    def fill(self, kind: str) -> Callable[..., None]:
        """The decoder of one media kind: ``fill(media, data, out)``."""
        found = self._fills.get(kind)
        if found is None:
            found = self._fills[kind] = self.plan.kinds[kind].bind()
        return found


def fetch(state: WorkerState, chunk: Chunk, first: int) -> Bundle:
    """Read the rows of a chunk as records, in order, up to a storage error.

    A row that cannot be parsed has a DataError in place of its fields.

    Args:
        first: source position of the first row.
    """
    plan = state.plan
    rows: list[Any] = [None] * len(chunk)
    for (dataset, shard), places in _by_shard(chunk).items():
        source = plan.source.datasets[dataset]
        place = places[0]
        key = (dataset, shard, chunk.row[place], chunk.passes[place])
        state.doing = ("read", Record(key, first + place, {}))
        try:
            fetched = source.fetch(shard, [chunk.row[i] for i in places], plan.fields[dataset])
        except Exception as error:
            where = plan.describe(key)
            failure = PipelineError(f"reading: {type(error).__name__}: {error} ({where})", "read", where)
            failure.__cause__ = error
            rows[place] = failure
            continue
        for i, row in zip(places, fetched, strict=True):
            rows[i] = row
    out: list[Any] = []
    keys = zip(chunk.dataset, chunk.shard, chunk.row, chunk.passes, strict=True)
    for position, (key, row) in enumerate(zip(keys, rows, strict=True), first):
        if type(row) is PipelineError:
            return Bundle(out, position, failure=row)
        out.append(Record(key, position, row))
    return Bundle(out, first + len(chunk))


def _by_shard(chunk: Chunk) -> dict[tuple[int, int], Sequence[int]]:
    datasets, shards = chunk.dataset, chunk.shard
    if datasets.count(datasets[0]) == len(datasets) and shards.count(shards[0]) == len(shards):
        return {(datasets[0], shards[0]): range(len(chunk))}
    groups: dict[tuple[int, int], list[int]] = {}
    for i, pair in enumerate(zip(datasets, shards, strict=True)):
        groups.setdefault(pair, []).append(i)
    return groups  # type: ignore[return-value]


def run_source(state: WorkerState, bundle: Bundle, keep_media: bool) -> None:
    """The first segment on fetched records, in place."""
    plan = state.plan
    units: list[Any] = []
    for record in bundle.units:
        if isinstance(record.fields, dict):
            units.append(record)
            continue
        error = record.fields
        if plan.on_error == "skip" and is_data_error(error):
            state.note(record.key, "read", error)
            continue
        where = plan.describe(record.key)
        bundle.failure = PipelineError(f"reading: {error} ({where})", "read", where)
        bundle.failure.__cause__ = error
        bundle.stop = record.position
        break
    bundle.units = units
    run_functions(state, state.functions(plan.segments[0]), bundle)
    set_nbytes(bundle.units, keep_media)
    spare_collector(bundle.units)


def run_functions(state: WorkerState, functions: list[Function], bundle: Bundle) -> None:
    """Run stateless functions over the units of a bundle, in order and in place.

    It ends at the first unit (in stream order) that fails: `failure` is its error, `stop` its row.
    """
    skip = state.plan.on_error == "skip"
    for name, function in functions:
        out: list[Any] = []
        append = out.append
        for unit in bundle.units:
            if state.closing:
                raise ClosedError("closed while a task was running")
            state.doing = (name, unit)
            try:
                result = function(unit)
                if type(result) is Record:
                    append(result)
                elif type(result) is list:
                    out.extend(result)
                elif type(result) is Row:
                    append(result)
                elif result is not None:
                    raise TypeError(f"a work function returns a Record, None or a list of Records, not {result!r}")
            except Exception as error:
                if skip and is_data_error(error):
                    state.note(getattr(unit, "key", ()), name, error)
                    continue
                bundle.failure, bundle.stop = wrap(state.plan, name, unit, error), unit.position
                break  # units behind it do not come out; those before it go on
        bundle.units = out
    state.doing = ("", None)


def sketch(plan: Plan, chunk: Chunk, first: int) -> Bundle:
    """The records of a chunk from the cost index: nothing is read."""
    assert plan.costs is not None
    bundle = Bundle(plan.costs.sketch(chunk, first), first + len(chunk))
    for unit in bundle.units:
        unit.nbytes = nbytes_of(unit)
    return bundle


def run_groups(state: WorkerState, work: Work, keep_media: bool) -> Bundle:
    """A later segment: the stateful operator's work function on each group, then the stateless ones."""
    segment = state.plan.segments[work.segment]
    functions = state.functions(segment)
    if isinstance(work.groups, Bundle):
        given = work.groups
        bundle = Bundle(given.units, given.stop, given.anchor, given.failure)
        run_functions(state, functions, bundle)
        set_nbytes(bundle.units, True)
        return bundle
    name, function = state.head(segment)
    bundle = Bundle([])
    groups = work.groups
    if state.plan.costs is not None:
        units = iter(with_payload(state, [unit for group in groups for unit in group], keep_media))
        groups = [[next(units) for _ in group] for group in groups]
    for position, group in enumerate(groups, work.first):
        state.doing = (name, group[0] if group else None)
        try:
            made = function(group)
            for unit in made if type(made) is list else (made,):
                unit.position = position
                bundle.units.append(unit)
        except Exception as error:
            bundle.failure = wrap(state.plan, name, group[0] if group else None, error)
            break
    run_functions(state, functions, bundle)
    for unit in bundle.units:
        unit.nbytes = nbytes_of(unit)
    spare_collector(bundle.units)
    return bundle


def run_fill(state: WorkerState, media: Media, out: Any) -> None:
    """Decode one media item into its place in the batch.

    Raises:
        DataError: the bytes are bad (the caller blanks it or raises). Everything else is for the caller to raise.
    """
    data = media.data
    if data is None:
        data = fetch_again(state, media)
    state.doing = (f"decode {media.kind}", media)
    state.fill(media.kind)(media, data, out)
    state.doing = ("", None)


def run_rows(state: WorkerState, dataset: int, shard: int, rows: Sequence[int], number: int = 0) -> Bundle:
    """The first segment on given rows of a shard (in pass `number`): for what was let go, or never read."""
    chunk = Chunk([dataset] * len(rows), [shard] * len(rows), list(rows), [number] * len(rows))
    bundle = fetch(state, chunk, 0)
    run_source(state, bundle, True)
    return bundle


def fetch_again(state: WorkerState, media: Media) -> bytes:
    """The bytes of a media item that the engine had let go: run its source row through the first segment again."""
    state.count("media fetched again")
    dataset, shard, row, number = media.key[:4]
    bundle = run_rows(state, dataset, shard, [row], number)
    if bundle.failure is not None:
        raise bundle.failure
    for unit in bundle.units:
        if unit.key == media.key:
            return unit.media[media.index].data
    where = state.plan.describe(media.key)
    raise StorageError(f"{where}: image {media.index} was there before and is not now; did the data change?")


def with_payload(state: WorkerState, units: Sequence[Any], keep_media: bool) -> list[Any]:
    """The units with real records in place of sketches."""
    sketches = [getattr(unit, "record", unit) for unit in units]
    real = complete(sketches, partial(run_rows, state))
    if not real:
        return list(units)
    set_nbytes(list(real.values()), keep_media)
    out: list[Any] = []
    for unit, sketch in zip(units, sketches, strict=True):
        record = real.get(id(sketch))
        if record is None:
            out.append(unit)
        else:
            out.append(record if unit is sketch else unit._replace(record=record))
    return out
