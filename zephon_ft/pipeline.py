"""Pipeline: what to run, as a passive description that can be iterated.

Each verb returns a new pipeline with one operator more; nothing is read, decoded or started before iteration. What is
given to the constructor and to the verbs is recipe: it decides the data. What is given to `options` never does.
"""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zephon_ft.batch import Batch
from zephon_ft.distributed import Ranks, check_agreement, find_ranks, make_agree
from zephon_ft.engine.checkpoint import Position, from_state, start_of_iteration, to_state
from zephon_ft.engine.options import Options
from zephon_ft.engine.ownership import accumulation, owned_lanes
from zephon_ft.engine.plan import Plan, compile_plan
from zephon_ft.engine.recipe import compare, dump
from zephon_ft.errors import CheckpointError, ConfigError, DataError
from zephon_ft.ops.base import Operator
from zephon_ft.ops.batch import BatchOp
from zephon_ft.stream import Stream
from zephon_ft.verbs import Verbs

if TYPE_CHECKING:
    from zephon_ft.work.mixture import StaticMixtureWorkSource

logger = logging.getLogger("zephon_ft")
ON_ERROR = ("raise", "skip")
ON_DECODE_ERROR = ("raise", "blank")
REMAINDER = ("drop", "pad")


class Pipeline(Verbs):
    """A stream of batches, described step by step.

    Iterating starts the workers and yields `Batch` objects. Iterating again goes on behind the last batch that was
    handed out; after the end of a finite source it goes on with the next pass.

    Args:
        source: where rows come from.
        lanes: number of logical streams; fixed for the life of a run. The number of ranks must divide it, so choose one
            with many divisors (48, 96, 240) for training on many ranks.
        seed: seed of every operator (the source has its own).
        batches_per_step: batches of each lane in one optimizer step.
        flush_every: records of a lane between two flush markers; None = 4096 * max(1, max_length / 8192).
        on_error: a row that cannot be parsed, or that a function, `images` or `tokenize_chat` finds bad: ``raise``, or
            ``skip`` (counted and recorded). Storage, time-out and memory errors always raise.
        on_decode_error: an image that cannot be decoded: ``raise``, or ``blank`` (zero pixels, its document's
            labels -100).
        remainder: end of a finite source: ``drop`` what does not fill a step of all lanes, or ``pad``: every record
            comes exactly once, and the last step is filled with masked rows (labels -100, no valid token).

    Raises:
        ConfigError: a value out of range.
    """

    def __init__(
        self,
        source: StaticMixtureWorkSource,
        lanes: int = 8,
        *,
        seed: int = 0,
        batches_per_step: int = 1,
        flush_every: int | None = None,
        on_error: str = "raise",
        on_decode_error: str = "raise",
        remainder: str = "drop",
    ) -> None:
        for name, value in (("lanes", lanes), ("batches_per_step", batches_per_step), ("flush_every", flush_every)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name} must be a whole number >= 1, got {value!r}")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ConfigError(f"seed must be a whole number, got {seed!r}")
        if on_error not in ON_ERROR:
            raise ConfigError(f"on_error must be one of {ON_ERROR}, got {on_error!r}")
        if on_decode_error not in ON_DECODE_ERROR:
            raise ConfigError(f"on_decode_error must be one of {ON_DECODE_ERROR}, got {on_decode_error!r}")
        if remainder not in REMAINDER:
            raise ConfigError(f"remainder must be one of {REMAINDER}, got {remainder!r}")
        self._source = source
        self._recipe: dict[str, Any] = {
            "lanes": lanes,
            "seed": seed,
            "batches_per_step": batches_per_step,
            "flush_every": flush_every,
            "on_error": on_error,
            "on_decode_error": on_decode_error,
            "remainder": remainder,
        }
        self._operators: tuple[Operator, ...] = ()
        self._options = Options()
        self._reset()

    def _reset(self) -> None:
        self._plan: Plan | None = None
        self._recipe_text: str | None = None
        self._ranks: Ranks | None = None
        self._stream: Any = None  # weak reference to the live iterator
        self._position: Position | None = None  # behind the last batch that was handed out

    # -- operators ---------------------------------------------------------------------------------------------

    def apply(self, operator: Operator) -> Pipeline:
        """Add an operator of your own (see `Operator` and `Accumulator`)."""
        if not isinstance(operator, Operator):
            raise ConfigError(f"apply: an Operator is needed, got {type(operator).__name__}")
        if self._operators and isinstance(self._operators[-1], BatchOp):
            raise ConfigError(f"{operator.name} comes after batch, but batch must be the last operator")
        new = copy.copy(self)
        new._reset()
        new._operators = (*self._operators, operator)
        return new

    def options(self, **changes: Any) -> Pipeline:
        """Change run-time options, none of which changes the data; see `zephon_ft.engine.options.Options`."""
        new = copy.copy(self)
        new._reset()
        new._options = self._options.updated(changes)
        if new._options.rank is not None:  # else it is known when torch.distributed is initialised
            new.ranks()
        return new

    @property
    def source(self) -> StaticMixtureWorkSource:
        """Where rows come from."""
        return self._source

    @property
    def resolved_options(self) -> Options:
        """The run-time options of this pipeline."""
        return self._options

    # -- running -----------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """The compiled pipeline; every mistake that can be known before reading is found here."""
        if self._plan is None:
            plan = compile_plan(self._source, self._operators, **self._recipe)
            if self._options.cost_index:
                from zephon_ft.engine.costs import CostIndex

                plan = replace(plan, costs=CostIndex.find(plan))
            self._plan = plan
        return self._plan

    def ranks(self) -> Ranks:
        """This process's data-parallel rank, found once.

        Raises:
            ConfigError: a rank or a number of ranks that does not fit the lanes, or an accumulation that does not.
        """
        if self._ranks is None:
            ranks, lanes = find_ranks(self._options), self._recipe["lanes"]
            owned_lanes(lanes, ranks.rank, ranks.world)
            self._accumulation(ranks)
            self._ranks = ranks
        return self._ranks

    def _accumulation(self, ranks: Ranks) -> int:
        recipe, options = self._recipe, self._options
        return accumulation(
            recipe["lanes"],
            ranks.world,
            recipe["batches_per_step"],
            options.lanes_per_batch,
            options.grad_accumulation,
        )

    @property
    def grad_accumulation(self) -> int:
        """Batches that this rank delivers in one optimizer step."""
        return self._accumulation(self.ranks())

    @property
    def lanes(self) -> range:
        """The lanes that this rank delivers."""
        ranks = self.ranks()
        return owned_lanes(self._recipe["lanes"], ranks.rank, ranks.world)

    def __iter__(self) -> Stream:
        """Start the workers; the iterator's `close()` stops them, as does dropping it.

        Raises:
            ConfigError: the pipeline cannot work, or another iterator of it is still open.
        """
        from zephon_ft.engine.engine import Engine
        from zephon_ft.runners.choice import choose_runner

        live = self._live()
        if live is not None:
            raise ConfigError("an iterator of this pipeline is still open; close() it first, or build another pipeline")
        plan, ranks = self.plan(), self.ranks()
        if find_ranks(self._options) != ranks:
            raise ConfigError(
                f"this pipeline was used as rank {ranks.rank} of {ranks.world}, and is another rank now: initialise "
                "torch.distributed before using it, or build it anew"
            )
        for kind in plan.kinds.values():
            kind.check()
        if self._options.strict:
            check_agreement(ranks, self.lanes, plan.lanes, self._recipe_json(), self._at())
        agree = make_agree(self._options, ranks, plan.remainder == "pad") if plan.source.epochs is not None else None
        engine = Engine(plan, self._options, self._at(), agree)
        stream = Stream(engine, choose_runner(self._options.runner), self._handed_out, self._ended)
        self._stream = weakref.ref(stream)
        return stream

    def _live(self) -> Stream | None:
        stream = self._stream() if self._stream is not None else None
        return stream if stream is not None and not stream.closed else None

    def _at(self) -> Position:
        """Where the next iterator starts."""
        if self._position is None:
            self._position = start_of_iteration(self.plan(), self.lanes, 0, 0, self.ranks().world)
        return self._position

    def _handed_out(self, batch: Batch) -> None:
        position = self._at()
        rounds = self._recipe["batches_per_step"]
        stamps = dict(position.stamps)  # a new dict each time: the batch keeps its own for state_dict(after=batch)
        parts = batch.parts or (batch,)
        for part in parts:
            stamps[part.lane] = part.stamp
        step, delivered = position.step, position.delivered + len(parts)
        if delivered == len(stamps) * rounds:
            step, delivered = step + 1, 0
        self._position = replace(position, stamps=stamps, delivered=delivered, step=step)
        batch.stamp = self._position

    def _ended(self, lost: dict[str, int]) -> None:
        """A finite source is through: report what filled no step, and stand at the next pass."""
        plan, position = self.plan(), self._at()
        self._position = start_of_iteration(plan, self.lanes, position.iteration + 1, position.step, position.world)
        if position.step == position.began:
            raise DataError(
                f"not even one step: a step needs {plan.batches_per_step} batches from each of {plan.lanes} lanes, and "
                f"the records that are left make fewer ({lost or 'none'}). Use fewer lanes, a smaller batch, more "
                'data, or remainder="pad"'
            )
        if lost:
            logger.warning(
                "the end of pass %d: %s did not fill a step and were dropped; remainder='pad' delivers every record",
                (position.iteration + 1) * (plan.source.epochs or 1),
                ", ".join(f"{count} records of {name!r}" for name, count in lost.items()),
            )

    # -- checkpoint --------------------------------------------------------------------------------------------

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """The position behind the last batch that was handed out, as str, int, float, list and dict.

        Local, cheap (microseconds a lane) and independent of prefetch and timing: call it as often as you like, also
        while workers run. One key per lane: the states of all ranks may be merged, or saved side by side with
        `torch.distributed.checkpoint`, and load at any number of ranks when taken at a step boundary.

        Args:
            after: a batch handed out earlier, for trainers that look ahead; None is the last one.

        Raises:
            CheckpointError: `after` is not a batch that a pipeline handed out.
        """
        if after is not None and not isinstance(after.stamp, Position):
            raise CheckpointError("state_dict(after=...): this batch was not handed out by an iterator of a pipeline")
        return to_state(self._at() if after is None else after.stamp, self._recipe_json())

    def load_state_dict(self, state: Mapping[str, Any], strict: bool | str = True) -> None:
        """Go on behind the batch that a state was taken after. An iterator that is open is closed.

        Args:
            state: what `state_dict` returned, of this rank's lanes at least (more do no harm).
            strict: True: any difference between the saved recipe and this one raises; ``"stream"``: differences in
                decoded pixels only warn; False: all differences only warn.

        Raises:
            CheckpointError: a state that is damaged, incomplete, torn, of other lanes or of a newer format.
            RecipeError: a state of another recipe; lists what differs.
        """
        plan, ranks = self.plan(), self.ranks()
        position = from_state(state, plan.lanes, self.lanes, ranks.world, plan.batches_per_step)
        compare(state["recipe"], self._recipe_json(), strict)
        live = self._live()
        if live is not None:
            live.close()
        self._position = position

    def recipe(self) -> dict[str, Any]:
        """Everything that decides the data, as plain values."""
        plan = self.plan()
        return {
            "lanes": plan.lanes,
            "stream": {
                "source": self._source.recipe(),
                **{name: value for name, value in self._recipe.items() if name != "lanes"},
                "flush_every": plan.flush_every,
                "operators": [{"name": op.name, **op.recipe()} for op in self._operators],
            },
            "pixels": {name: kind.recipe() for name, kind in plan.kinds.items()},
        }

    def _recipe_json(self) -> str:
        if self._recipe_text is None:
            self._recipe_text = dump(self.recipe())
        return self._recipe_text

    def explain(self) -> str:
        """The compiled pipeline in words: what runs together, what is held, how often it flushes."""
        from zephon_ft.engine.explain import explain

        return explain(self.plan(), self._options)
