"""Operator and Accumulator: the two halves of every step of a pipeline.

An operator is an accumulator (serial, stateful, takes every decision) plus a work function (stateless, expensive, runs
on any worker in any order). A stateless operator has only a work function. Neither knows of threads, ranks or arrival
order, which is why none of them can change the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from zephon_ft.random import Keyed
    from zephon_ft.record import Record, Row

# A stateless work function: one record in; the record, None (dropped), or a list of children out.
RecordWork = Callable[["Record"], "Record | None | list[Record]"]
# A stateful operator's work function: one emitted group in, one or more units out.
GroupWork = Callable[[list[Any]], "Record | Row | list[Record] | list[Row]"]


@dataclass(slots=True)
class WorkContext:
    """What `Operator.bind` gets, once per worker thread.

    Attributes:
        seed: the pipeline's seed.
        position: the operator's place in the pipeline (0 = first).
        rng: keyed generator of this worker; ``rng.generator(record.key)`` gives a `numpy.random.Generator` that depends
            on (seed, operator name and position, record identity) alone.
        count: ``count(name, n=1)`` adds to this worker's statistics.
        read_file: ``read_file(record, path)`` reads a file or URL that a record names, relative to the record's data
            file; None where nothing can be read.
    """

    seed: int
    position: int
    rng: Keyed
    count: Callable[..., None]
    read_file: Callable[[Record, str], bytes] | None = None


@dataclass(slots=True)
class AccumulatorContext:
    """What `Accumulator.open` gets: one flush interval of one lane.

    Attributes:
        seed, lane, flush: the key of every choice made in this interval.
        position: the operator's place in the pipeline.
        drop: ``drop(unit, reason)`` reports a unit that is dropped; it is counted under that reason.
    """

    seed: int
    lane: int
    flush: int
    position: int
    drop: Callable[[Any, str], None]


class Accumulator:
    """The serial half. Lives for one flush interval of one lane, then the object is dropped.

    `conserves`: every unit that goes in comes out or is reported as dropped, which the engine checks at each flush. Set
    it to False for an accumulator that makes units of its own (cuts or merges them).
    """

    conserves: ClassVar[bool] = True

    def open(self, context: AccumulatorContext) -> None:
        """Called once, before the first `push`."""

    def push(self, unit: Any) -> Iterable[list[Any]]:
        """Take in one unit, in order; return the groups that are complete now (often none)."""
        raise NotImplementedError

    def finish(self) -> Iterable[list[Any]]:
        """The interval ends: return everything that is still held."""
        raise NotImplementedError


class Operator:
    """One step of a pipeline: a passive, immutable description. Subclass it to add an operator of your own."""

    name: str = ""
    stateful: ClassVar[bool] = False
    plans_by_length: bool = False  # its accumulator looks at token counts and media sizes only, never at content
    light: ClassVar[bool] = False  # its group work costs less than sending it to another process; not inherited

    def bind(self, context: WorkContext) -> RecordWork | GroupWork | None:
        """Make the work function of one worker thread, with its own tokenizer, configuration and scratch memory.

        Stateless operators return a `RecordWork`. Stateful ones return a `GroupWork`, or None where a group's units
        just pass on. Called once per worker thread; the function is called by that thread only.
        """
        return None

    def accumulator(self) -> Accumulator:
        """A new accumulator (stateful operators only)."""
        raise TypeError(f"{self.name}: a stateless operator has no accumulator")

    def has_work(self) -> bool:
        """Whether `bind` returns a function; False spares the engine a task per group."""
        return True

    def reads(self) -> frozenset[str] | None:
        """Names of the fields that it may read, or None where that can be any (a user's function)."""
        return None

    def needs(self) -> tuple[frozenset[str], ...]:
        """Of each of these sets at least one field must be there; found when the pipeline is built."""
        return tuple(frozenset({name}) for name in self.reads() or ())

    def keeps(self) -> frozenset[str] | None:
        """Names of the source fields that later operators can still see, or None for all."""
        return None

    def recipe(self) -> dict[str, Any]:
        """Everything that decides its output, as str, int, float, bool, None, list and dict."""
        raise NotImplementedError
