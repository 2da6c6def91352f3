"""Tasks: the units of work that a runner executes, in three phases.

`prepare` and `complete` touch the engine and run in its process; `compute` is a pure function of the payload and of the
worker's bound functions, so that it can run anywhere. Threads run all three in a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zephon_ft.engine.clock import Clock
from zephon_ft.engine.events import Bundle, End, Work
from zephon_ft.engine.failure import wrap
from zephon_ft.engine.sizes import nbytes_of, nbytes_of_batch
from zephon_ft.engine.stamp import ANCHOR_ROWS
from zephon_ft.engine.work import WorkerState, fetch, run_fill, run_groups, run_source, sketch, with_payload
from zephon_ft.errors import is_data_error
from zephon_ft.join import lay_out_parts

if TYPE_CHECKING:
    from zephon_ft.batch import Batch, Fill
    from zephon_ft.engine.delivery import Slot
    from zephon_ft.engine.engine import Engine
    from zephon_ft.engine.lane_slot import LaneSlot

_FILL_PIXELS = 150_000  # source pixels that keep a worker busy for at least 0.2 ms; smaller images share a task


class Task:
    """One unit of work.

    Attributes:
        segment: whose `parallelism` it counts for; -1: none.
    """

    __slots__ = ("__weakref__",)
    segment = -1

    def prepare(self, engine: Engine) -> Any:
        """The payload for `compute`, or None: nothing is left to compute."""
        raise NotImplementedError

    @staticmethod
    def compute(state: WorkerState, payload: Any) -> Any:
        """The work itself."""
        raise NotImplementedError

    def complete(self, engine: Engine, result: Any) -> None:
        """Take the result back."""
        raise NotImplementedError


class DrainTask(Task):
    """Go on draining a lane."""

    __slots__ = ("slot",)

    def __init__(self, slot: LaneSlot) -> None:
        self.slot = slot

    def prepare(self, engine: Engine) -> None:
        engine.drain(self.slot)


class SourceTask(Task):
    """Take a lane's next rows, fetch them, and run the first segment on them."""

    __slots__ = ("anchor", "seq", "slot")

    def __init__(self, slot: LaneSlot) -> None:
        self.slot = slot

    def prepare(self, engine: Engine) -> Any:
        slot = self.slot
        with slot.source_lock:
            if slot.source_ended:
                return None
            cursor = slot.cursor
            first = cursor.position
            if first % ANCHOR_ROWS == 0:
                slot.anchor = tuple(cursor.state())
            self.anchor = slot.anchor
            # Tasks end where an anchor is due, so that an interval's beginning never depends on their size.
            rows = min(engine.pace.groups(0, engine.over_budget), ANCHOR_ROWS - first % ANCHOR_ROWS)
            chunk = cursor.take(rows)
            while 0 < len(chunk) < rows and len(more := cursor.take(rows - len(chunk))):  # behind the end of a window
                chunk.extend(more)
            self.seq = slot.seq
            slot.seq += 1
            slot.source_ended = not len(chunk)
        if not len(chunk):
            engine.post(slot, (0, self.seq, End()))
            return None
        return chunk, first, not engine.over_budget

    @staticmethod
    def compute(state: WorkerState, payload: Any) -> tuple[Bundle, int, float]:
        chunk, first, keep = payload
        clock = Clock()
        rows = len(chunk)
        if state.plan.costs is not None:
            bundle = sketch(state.plan, chunk, first)
        else:
            bundle = fetch(state, chunk, first)
            run_source(state, bundle, keep)
        return bundle, rows, clock.seconds()

    def complete(self, engine: Engine, result: tuple[Bundle, int, float]) -> None:
        bundle, rows, seconds = result
        bundle.anchor = self.anchor
        nbytes = sum(unit.nbytes for unit in bundle.units)
        engine.charge(nbytes)
        engine.pace.note(0, rows, seconds, nbytes)
        engine.post(self.slot, (0, self.seq, bundle))


class FetchTask(SourceTask):
    """Where reading waits on a network: only fetch, on a thread that may wait; a `FetchedTask` does the rest."""

    __slots__ = ()

    @staticmethod
    def compute(state: WorkerState, payload: Any) -> Any:
        chunk, first, _ = payload
        return fetch(state, chunk, first)

    def complete(self, engine: Engine, result: Any) -> None:
        engine.queue(0, FetchedTask(self, engine, result))


class FetchedTask(Task):
    """Run the first segment on fetched rows."""

    __slots__ = ("fetched", "nbytes", "task")

    def __init__(self, task: FetchTask, engine: Engine, fetched: Bundle) -> None:
        self.task, self.fetched = task, fetched
        self.nbytes = sum(nbytes_of(record) for record in fetched.units if isinstance(record.fields, dict))
        engine.charge(self.nbytes)  # it may wait long for a worker

    def prepare(self, engine: Engine) -> Any:
        return self.fetched, not engine.over_budget

    @staticmethod
    def compute(state: WorkerState, payload: Any) -> tuple[Bundle, int, float]:
        bundle, keep = payload
        clock, rows = Clock(), len(bundle.units)
        run_source(state, bundle, keep)
        return bundle, rows, clock.seconds()

    def complete(self, engine: Engine, result: tuple[Bundle, int, float]) -> None:
        engine.charge(-self.nbytes)
        SourceTask.complete(self.task, engine, result)


class GroupTask(Task):
    """Run a later segment's functions on groups."""

    __slots__ = ("segment", "slot", "work")

    def __init__(self, slot: LaneSlot, work: Work) -> None:
        self.slot, self.work, self.segment = slot, work, work.segment

    def prepare(self, engine: Engine) -> Any:
        payload = self.work, not engine.over_budget
        if engine.plan.costs is None and engine.plan.segments[self.segment].light:
            self.complete(engine, self.compute(engine.state(), payload))
            return None
        return payload

    @staticmethod
    def compute(state: WorkerState, payload: Any) -> tuple[Bundle, float]:
        work, keep = payload
        clock = Clock()
        return run_groups(state, work, keep), clock.seconds()

    def complete(self, engine: Engine, result: tuple[Bundle, float]) -> None:
        work, (bundle, seconds) = self.work, result
        count = len(work.groups.units) if isinstance(work.groups, Bundle) else len(work.groups)
        engine.pace.note(work.segment, count, seconds)
        engine.charge(sum(unit.nbytes for unit in bundle.units) - work.nbytes)
        engine.post(self.slot, (work.segment, work.seq, bundle))


class LayoutTask(Task):
    """Lay out planned batches and queue the decoding of their media."""

    __slots__ = ("slots",)

    def __init__(self, slots: list[Slot]) -> None:
        self.slots = slots

    def prepare(self, engine: Engine) -> None:
        for slot in self.slots:
            if not engine.closed:
                self._lay_out(engine, slot)

    @staticmethod
    def _lay_out(engine: Engine, slot: Slot) -> None:
        plan, state = engine.plan, engine.state()
        groups = [planned.units for _, planned in slot.parts]
        unit = next((unit for units in groups for unit in units), None)
        state.doing = ("batch", unit)
        try:
            if plan.costs is not None:
                groups = [with_payload(state, units, not engine.over_budget) for units in groups]
            batch = lay_out_parts(groups, plan.batch, plan.kinds, engine.pool, engine.names)
        except Exception as error:
            slot.failures[-1] = wrap(plan, "batch", unit, error)
            engine.filled(slot, 0)
            return
        lane_batches = batch.parts or (batch,)
        for part, (lane, planned) in zip(lane_batches, slot.parts, strict=True):
            part.lane, part.index, part.stamp = lane.lane.index, planned.index, planned.stamp
            part.step = planned.index // plan.batches_per_step
        batch.lane, batch.index, batch.step = lane_batches[0].lane, lane_batches[0].index, lane_batches[0].step
        slot.size = nbytes_of_batch(batch)
        slot.batch, slot.parts = batch, []
        fills = [(part, fill) for part in lane_batches for fill in part.fills]
        for part in lane_batches:
            part.fills = []
        slot.left = len(fills)
        tasks, first = [], 0
        for share in _shares(fills):
            tasks.append(FillTask(slot, share, first))
            first += len(share)
        engine.laid_out(slot, tasks)


class FillTask(Task):
    """Decode some media items into their batch."""

    __slots__ = ("fills", "first", "slot")

    def __init__(self, slot: Slot, fills: list[tuple[Batch, Fill]], first: int) -> None:
        self.slot, self.fills, self.first = slot, fills, first

    def prepare(self, engine: Engine) -> Any:
        return [(fill.media, batch.arrays[fill.kind][fill.start : fill.stop]) for batch, fill in self.fills]

    @staticmethod
    def compute(state: WorkerState, payload: Any) -> list[tuple[int, Exception]]:
        failed: list[tuple[int, Exception]] = []
        for number, (media, out) in enumerate(payload):
            try:
                run_fill(state, media, out)
            except Exception as error:
                failed.append((number, error))
        return failed

    def complete(self, engine: Engine, result: list[tuple[int, Exception]]) -> None:
        slot, plan = self.slot, engine.plan
        for number, error in result:
            batch, fill = self.fills[number]
            name = f"decode {fill.kind}"
            if plan.on_decode_error == "blank" and is_data_error(error):
                batch.blank(fill)
                engine.state().note(fill.media.key, name, error)
            else:
                slot.failures[self.first + number] = wrap(plan, name, fill.media, error)
        done, self.fills = len(self.fills), []
        engine.filled(slot, done)


def layouts(slots: Iterable[Slot], most: int) -> list[LayoutTask]:
    """Tasks that lay out these batches, which count as started now; small ones share a task, up to `most` units."""
    tasks: list[LayoutTask] = []
    room = 0
    for slot in slots:
        slot.started = True
        units = sum(len(planned.units) for _, planned in slot.parts)
        if units > room or not tasks:
            tasks.append(LayoutTask([]))
            room = most
        tasks[-1].slots.append(slot)
        room -= units
    return tasks


def _shares(fills: list[tuple[Batch, Fill]]) -> list[list[tuple[Batch, Fill]]]:
    """Cut the fills of a batch into tasks."""
    shares: list[list[tuple[Batch, Fill]]] = []
    pixels = _FILL_PIXELS
    for fill in fills:
        if pixels >= _FILL_PIXELS:
            shares.append([])
            pixels = 0
        shares[-1].append(fill)
        batch, item = fill
        pixels += batch.kinds[item.kind].pixels(item.media)
    return shares
