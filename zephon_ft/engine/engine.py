"""Engine: lanes, ready tasks, the byte budget and delivery of one running pipeline, under one lock.

It hands out tasks and takes back results; a runner executes them. What is nearest to the trainer goes first. Two
horizons bound it: a lane plans until its batches of the next step are planned, and only the next `prefetch` batches in
delivery order are decoded. Source tasks are made when a worker asks for one, never queued; over the byte budget only
the lane that the consumer waits for gets one, one at a time, so no budget can hang the stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from zephon_ft.buffers import BufferPool
from zephon_ft.engine.admission import Admission
from zephon_ft.engine.checkpoint import Position
from zephon_ft.engine.delivery import Delivery, Slot
from zephon_ft.engine.doing import doing
from zephon_ft.engine.events import Outcome
from zephon_ft.engine.flushes import Flushes
from zephon_ft.engine.lane import Lane
from zephon_ft.engine.lane_slot import LaneSlot
from zephon_ft.engine.options import Options
from zephon_ft.engine.pace import Pace
from zephon_ft.engine.plan import Plan
from zephon_ft.engine.ready import ReadyTasks
from zephon_ft.engine.statistics import summary
from zephon_ft.engine.tasks import DrainTask, FetchTask, FillTask, GroupTask, SourceTask, Task, layouts
from zephon_ft.engine.work import WorkerState
from zephon_ft.errors import ClosedError

_DRAIN_SECONDS = 0.002  # a worker that drains a lane for longer hands it to whoever is free


class Engine:
    """One running pipeline.

    Args:
        plan: what to run.
        options: how to run it.
        position: where each lane of this rank starts.
        agree: asks all ranks whether every one can deliver the next step (finite sources only).
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        position: Position,
        agree: Callable[[bool], bool] | None = None,
    ) -> None:
        self.plan, self.options = plan, options
        self.workers = options.resolved_workers()
        self.remote = plan.costs is None and any(dataset.remote for dataset in plan.source.datasets)
        self._budget = options.resolved_budget()
        self.cache_limit = self._budget // 2 // len(plan.source.datasets)
        for dataset in plan.source.datasets:  # half the budget for what readers keep, half for what travels
            dataset.set_cache_limit(self.cache_limit)
        self.pace = Pace(len(plan.segments), options.task_rows)
        self.pool = BufferPool(max_free_bytes=self._budget // 4)
        self.names = tuple(dataset.name for dataset in plan.source.datasets)
        lane_source = plan.lane_source()
        self.slots = []
        for place, (index, stamp) in enumerate(sorted(position.stamps.items())):
            cursor = lane_source.cursor(index, position.iteration)
            self.slots.append(LaneSlot(Lane(index, plan, stamp, self.pace.groups), cursor, place, stamp))
        prefetch = options.resolved_prefetch(bool(plan.kinds), plan.records_per_batch, plan.tokens_per_batch)
        self.delivery = Delivery(self.slots, plan.batches_per_step, prefetch, options.lanes_per_batch, agree)
        self.finite = plan.source.epochs is not None
        self.lock = threading.Lock()
        self.arrived = threading.Condition(self.lock)
        self.wake: Callable[[int], None] = lambda n: None  # set by the runner: n tasks more may be ready
        self.closed = False
        self.failure: BaseException | None = None
        self.held = 0  # bytes of units and batches between source and consumer
        self.peak_held = 0
        self.drops: dict[str, int] = {}
        self.flushes = Flushes(plan)
        self._fill = [0, 0]  # tokens, and places for them, in batches laid out so far
        self._running: dict[Task, int] = {}  # task -> thread
        self._computing = 0  # running tasks that are not waiting on storage
        self._ready = ReadyTasks(plan.segments)
        ahead = 4 * self.workers
        self.admission = Admission(self.delivery, ahead + 2 * options.io_concurrency if self.remote else ahead, ahead)
        self.states: dict[int, WorkerState] = {}
        for slot in self.slots:
            self.admission.consider(slot)

    # -- handing out tasks -------------------------------------------------------------------------------------

    def next_task(self, io: bool = False, share: tuple[int, int] = (0, 1)) -> Task | None:
        """A task to run now, or None. Its worker must call `finish` with it, whatever happens.

        Args:
            io: ask for one that waits on storage (remote data only), else for one that computes.
            share: (i, n) reads only for the i-th of n shares of the lanes, so that processes, which cannot share what
                they have read, seldom read the same row groups.
        """
        with self.lock:
            if self.closed:
                return None
            task = self._source_task() if io and self.remote else None if io else self._pick(share)
            if task is not None:
                self._running[task] = threading.get_ident()
                self._computing += not io
                self._ready.begun(task)
            return task

    def _pick(self, share: tuple[int, int]) -> Task | None:
        if self._computing >= self.workers:
            return None
        return self._ready.pop() or (None if self.remote else self._source_task(share))

    def _source_task(self, share: tuple[int, int] = (0, 1)) -> SourceTask | None:
        slot = self.admission.next(self.over_budget, share)
        return None if slot is None else (FetchTask if self.remote else SourceTask)(slot)

    # -- taking back results -----------------------------------------------------------------------------------

    def run(self, task: Task, io: bool = False) -> None:
        """Execute a task that `next_task(io)` gave to this thread and take its result back. Never raises."""
        try:
            payload = task.prepare(self)
            if payload is not None:
                task.complete(self, task.compute(self.state(), payload))
        except BaseException as error:
            self.fail(error)
        finally:
            self.finish(task, io)

    def finish(self, task: Task, io: bool = False) -> None:
        """A task that `next_task(io)` gave out is done, whatever came of it."""
        self.state().doing = ("", None)
        with self.lock:
            self._running.pop(task, None)
            self._computing -= not io
            self._ready.done(task)
            if self.closed:
                self.arrived.notify_all()
        self.wake(1)

    def state(self) -> WorkerState:
        """This thread's bound functions and statistics."""
        ident = threading.get_ident()
        found = self.states.get(ident)
        if found is None:
            found = WorkerState(self.plan)
            with self.lock:
                self.states[ident] = found
        return found

    def post(self, slot: LaneSlot, event: tuple[int, int, Any]) -> None:
        """Give a lane a result; whoever finds nobody draining the lane drains it."""
        with slot.inbox_lock:
            slot.inbox.append(event)
            if slot.draining:
                return
            slot.draining = True
        self.drain(slot)

    def drain(self, slot: LaneSlot) -> None:
        """Advance a lane until its inbox is empty (the caller has set `draining`)."""
        until = time.perf_counter() + _DRAIN_SECONDS
        slot.drainer = threading.get_ident()
        while True:
            with slot.inbox_lock:
                if not slot.inbox:
                    slot.draining = False  # under the acquisition that found nothing: no wake-up is lost
                    return
                events, slot.inbox = slot.inbox, []
            self._absorb(slot, slot.lane.advance(events))
            if time.perf_counter() > until:
                with self.lock:
                    self._ready.push(DrainTask(slot))
                self.wake(1)
                return

    def _absorb(self, slot: LaneSlot, out: Outcome) -> None:
        with self.lock:
            if self.closed:
                return
            self.held -= out.freed
            for reason, count in out.drops.items():
                self.drops[reason] = self.drops.get(reason, 0) + count
            self.flushes.add(out.intervals)
            for work in out.tasks:
                self._ready.push(GroupTask(slot, work), work.segment)
            for planned in out.batches:
                self.delivery.add(slot, planned)
            slot.planned = slot.lane.batches
            slot.done = slot.lane.stages[0].next
            slot.outstanding = slot.lane.outstanding()
            slot.failed, slot.ended = slot.lane.failed, slot.lane.ended
            self.delivery.fill_up(slot)  # of a step that had begun when the state was taken
            self.admission.consider(slot)
            ready = len(out.tasks) + self._start_layouts() + (1 if self.admission else 0)
            if self.finite or slot.failed is not None or slot.ended:
                self.arrived.notify_all()
        if ready:
            self.wake(ready)

    def _start_layouts(self) -> int:
        """Queue the layout of planned batches within the fill horizon; returns how many tasks that are."""
        started = layouts(self.delivery.startable(only_head=self.over_budget), self.pace.layouts)
        for task in started:
            self._ready.push(task)
        return len(started)

    def _hold(self, nbytes: int) -> None:
        self.held += nbytes
        self.peak_held = max(self.peak_held, self.held)

    def charge(self, nbytes: int) -> bool:
        """Count bytes (negative: let go); returns whether the budget can spare more."""
        with self.lock:
            self._hold(nbytes)
            return not self.over_budget

    @property
    def over_budget(self) -> bool:
        """Whether encoded media should not be kept (a hint: read without the lock)."""
        return self.held > self._budget // 2

    def laid_out(self, slot: Slot, fills: list[FillTask]) -> None:
        """A batch has its layout: count it, and queue what is to be decoded into it."""
        batch = slot.batch
        with self.lock:
            self._hold(slot.size)
            if batch.has_tokens:
                self._fill[0] += batch.num_tokens
                self._fill[1] += batch.arrays["input_ids"].size
            for task in fills:
                self._ready.push(task)
            if not fills:
                self._made(slot)
        if fills:
            self.wake(len(fills))

    def queue(self, segment: int, task: Task) -> None:
        """Make a task ready: -1 for fills, else its segment's number."""
        with self.lock:
            self._ready.push(task, segment)
        self.wake(1)

    def filled(self, slot: Slot, count: int) -> None:
        """`count` of a batch's fills are done; the last one makes it ready."""
        with self.lock:
            slot.left -= count
            if not slot.left:
                self._made(slot)

    def _made(self, slot: Slot) -> None:
        slot.ready = True
        self.held -= slot.nbytes
        if self.delivery.is_next(slot):
            self.arrived.notify_all()

    def lost(self) -> dict[str, int]:
        """At the end of a finite source: records of each dataset that were read but fill no step."""
        with self.lock:
            return {self.names[dataset]: count for dataset, count in sorted(self.delivery.finish().items())}

    def fail(self, error: BaseException) -> None:
        """An error of the engine itself, or a worker's exit: the consumer raises it at once."""
        with self.lock:
            if self.failure is None:
                self.failure = error
            self.arrived.notify_all()

    # -- the consumer's side -----------------------------------------------------------------------------------

    def next_batch(self, help_out: Callable[[], bool] | None = None) -> Any:
        """The next batch in delivery order, or None at the end of a finite source.

        Args:
            help_out: runs one task on this thread (inline runner); False if there is none. None waits instead.
        """
        while True:
            with self.lock:
                while True:
                    if self.closed:
                        raise ClosedError("this iterator is closed; iterate over the pipeline again for a new one")
                    if self.failure is not None:
                        raise self.failure
                    found = self.delivery.head()
                    if found is not None or help_out is not None:
                        break
                    self.arrived.wait()
                if found == "batch":
                    batch, nbytes = self.delivery.pop()
                    self.held -= nbytes
                    for slot in self.delivery.moved():
                        self.admission.consider(slot)
                    started = self._start_layouts()
                    break
            if found == "end":
                return None
            if found == "agree":
                go_on = self.delivery.ask()
                with self.lock:
                    self.held -= self.delivery.agreed(go_on)
                    for slot in self.slots:
                        self.admission.consider(slot)
                    self._start_layouts()
                self.wake(self.workers)
            elif found is None and help_out is not None and not help_out():
                raise RuntimeError("internal error: no task is ready, and no batch is")
        self.wake(started + 1)
        return batch

    def close(self, timeout: float) -> dict[int, str]:
        """Stop handing out tasks and wait for the running ones.

        Returns:
            what did not return within `timeout` seconds: for each thread, the operator and the record in words.
        """
        until = time.monotonic() + timeout
        me = threading.get_ident()
        with self.lock:
            self.closed = True
            for state in self.states.values():
                state.closing = True
            self._ready.clear()
            self.admission.clear()
            self.arrived.notify_all()
            while any(ident != me for ident in self._running.values()):
                left = until - time.monotonic()
                if left <= 0 or not self.arrived.wait(left):
                    break
            stuck = {ident: doing(self, ident) for ident in self._running.values() if ident != me}
            self.delivery.clear()
            for slot in self.slots:
                slot.inbox = []
                slot.lane.release()
            self.held = 0
        return stuck

    def stats(self) -> dict[str, Any]:
        """So far: see `zephon_ft.engine.statistics.summary`."""
        with self.lock:
            states = list(self.states.values())
            out = {
                "held_bytes": self.held,
                "peak_held_bytes": self.peak_held,
                "fill": self._fill[0] / self._fill[1] if self._fill[1] else 1.0,
                "flushes": self.flushes.summary(),
            }
            return summary(self.plan, states, self.drops) | out
