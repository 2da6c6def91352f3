"""Tasks: the units of work that a runner executes. Each takes its own result back to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zephon_ft.engine.lane import Bundle, End, Work
from zephon_ft.engine.stamp import ANCHOR_ROWS
from zephon_ft.engine.work import WorkerState, fetch, run_fill, run_groups, run_source, timed, wrap
from zephon_ft.errors import is_data_error
from zephon_ft.join import lay_out_parts

if TYPE_CHECKING:
    from zephon_ft.batch import Batch, Fill
    from zephon_ft.engine.delivery import Slot
    from zephon_ft.engine.engine import Engine, LaneSlot

_FILL_PIXELS = 150_000  # source pixels that keep a worker busy for at least 0.2 ms; smaller images share a task


class Task:
    """One unit of work."""

    __slots__ = ("__weakref__",)
    segment = -1  # whose `parallelism` it counts for; -1: none

    def run(self, engine: Engine, state: WorkerState) -> None:
        """Do it, on any thread."""
        raise NotImplementedError


class DrainTask(Task):
    """Go on draining a lane."""

    __slots__ = ("slot",)

    def __init__(self, slot: LaneSlot) -> None:
        self.slot = slot

    def run(self, engine: Engine, state: WorkerState) -> None:
        engine.drain(self.slot)


class SourceTask(Task):
    """Take a lane's next rows, fetch them, and run the first segment on them.

    Where reading waits on a network, only fetching is done here (on an I/O thread); a `FetchedTask` does the rest.
    """

    __slots__ = ("slot",)

    def __init__(self, slot: LaneSlot) -> None:
        self.slot = slot

    def run(self, engine: Engine, state: WorkerState) -> None:
        slot = self.slot
        with slot.source_lock:
            if slot.source_ended:
                return
            cursor = slot.cursor
            first = cursor.position
            if first % ANCHOR_ROWS == 0:
                slot.anchor = tuple(cursor.state())
            anchor = slot.anchor
            # Tasks end where an anchor is due, so that an interval's beginning never depends on their size.
            chunk = cursor.take(min(engine.pace.groups(0), ANCHOR_ROWS - first % ANCHOR_ROWS))
            seq = slot.seq
            slot.seq += 1
            slot.source_ended = not len(chunk)
        if not len(chunk):
            engine.post(slot, (0, seq, End()))
            return
        (records, failure), seconds = timed(fetch, engine.plan, chunk, first)
        task = FetchedTask(slot, seq, records, failure, first + len(chunk), anchor, seconds)
        if engine.remote:
            engine.queue(0, task)
        else:
            task.run(engine, state)


class FetchedTask(Task):
    """Run the first segment on fetched rows."""

    __slots__ = ("anchor", "failure", "records", "seconds", "seq", "slot", "stop")

    def __init__(
        self,
        slot: LaneSlot,
        seq: int,
        records: list[Any],
        failure: BaseException | None,
        stop: int,
        anchor: tuple[int, ...],
        seconds: float,
    ) -> None:
        self.slot, self.seq, self.records, self.failure = slot, seq, records, failure
        self.stop, self.anchor, self.seconds = stop, anchor, seconds

    def run(self, engine: Engine, state: WorkerState) -> None:
        rows = len(self.records)
        keep = not engine.over_budget
        bundle, seconds = timed(run_source, state, self.records, self.failure, keep)
        bundle.stop, bundle.anchor = self.stop, self.anchor
        nbytes = sum(unit.nbytes for unit in bundle.units)
        engine.charge(nbytes)
        engine.pace.note(0, rows, seconds + (0.0 if engine.remote else self.seconds), nbytes)
        engine.post(self.slot, (0, self.seq, bundle))


class GroupTask(Task):
    """Run a later segment's functions on groups."""

    __slots__ = ("segment", "slot", "work")

    def __init__(self, slot: LaneSlot, work: Work) -> None:
        self.slot, self.work, self.segment = slot, work, work.segment

    def run(self, engine: Engine, state: WorkerState) -> None:
        work = self.work
        bundle, seconds = timed(run_groups, state, work)
        count = len(work.groups.units) if isinstance(work.groups, Bundle) else len(work.groups)
        engine.pace.note(work.segment, count, seconds)
        engine.charge(sum(unit.nbytes for unit in bundle.units) - work.nbytes)
        engine.post(self.slot, (work.segment, work.seq, bundle))


class LayoutTask(Task):
    """Lay out a planned batch and queue the decoding of its media."""

    __slots__ = ("slot",)

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    def run(self, engine: Engine, state: WorkerState) -> None:
        slot, plan = self.slot, engine.plan
        groups = [planned.units for _, planned in slot.parts]
        state.doing = ("batch", groups[0][0])
        try:
            batch = lay_out_parts(groups, plan.batch, plan.kinds, engine.pool, engine.names)
        except Exception as error:
            slot.error = wrap(plan, "batch", groups[0][0], error)
            engine.filled(slot, 0)
            return
        lane_batches = batch.parts or (batch,)
        for part, (lane, planned) in zip(lane_batches, slot.parts, strict=True):
            part.lane, part.index, part.stamp = lane.lane.index, planned.index, planned.stamp
            part.step = planned.index // plan.batches_per_step
        batch.lane, batch.index, batch.step = lane_batches[0].lane, lane_batches[0].index, lane_batches[0].step
        engine.charge(batch.nbytes)
        slot.batch, slot.parts = batch, []
        fills = [(part, fill) for part in lane_batches for fill in part.fills]
        for part in lane_batches:
            part.fills = []
        slot.left = len(fills) + 1
        for share in _shares(fills):
            engine.queue(-1, FillTask(slot, share))
        engine.filled(slot, 1)


class FillTask(Task):
    """Decode some media items into their batch."""

    __slots__ = ("fills", "slot")

    def __init__(self, slot: Slot, fills: list[tuple[Batch, Fill]]) -> None:
        self.slot, self.fills = slot, fills

    def run(self, engine: Engine, state: WorkerState) -> None:
        slot = self.slot
        for batch, fill in self.fills:
            try:
                run_fill(state, fill.media, batch.arrays[fill.kind][fill.start : fill.stop])
            except Exception as error:
                name = f"decode {fill.kind}"
                if engine.plan.on_decode_error == "blank" and is_data_error(error):
                    batch.blank(fill)
                    state.note(fill.media.key, name, error)
                elif slot.error is None:
                    slot.error = wrap(engine.plan, name, fill.media, error)
        done, self.fills = len(self.fills), []
        engine.filled(slot, done)


def _shares(fills: list[tuple[Batch, Fill]]) -> list[list[tuple[Batch, Fill]]]:
    """Cut the fills of a batch into tasks."""
    shares: list[list[tuple[Batch, Fill]]] = []
    pixels = _FILL_PIXELS
    for fill in fills:
        if pixels >= _FILL_PIXELS:
            shares.append([])
            pixels = 0
        shares[-1].append(fill)
        header = getattr(fill[1].media.facts, "header", None)
        pixels += header.width * header.height if header is not None else 0
    return shares
