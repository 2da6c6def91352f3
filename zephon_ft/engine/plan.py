"""Compile a pipeline's operators into segments, and find at build time what cannot work.

A segment is one stateful operator and the stateless ones behind it, fused: a record stays on one worker until the next
stateful operator. The first segment starts at the source. An operator with a `parallelism` of its own is a segment
of its own. `batch` always comes last and belongs to no segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zephon_ft.errors import ConfigError
from zephon_ft.ops.base import Operator
from zephon_ft.ops.batch import BatchOp
from zephon_ft.work.mixture import LaneSource, StaticMixtureWorkSource

if TYPE_CHECKING:
    from zephon_ft.engine.costs import CostIndex
    from zephon_ft.io.dataset import Dataset
    from zephon_ft.vision.kind import ImageKind

FLUSH_EVERY = 4096  # records per flush interval for rows of up to 8,192 tokens; see DESIGN.md in docs/
SOURCE_ROWS_PER_FLUSH = 16  # a flush is due after this many times `flush_every` source rows, whatever filters leave


@dataclass(frozen=True, slots=True)
class Step:
    """One operator at its place in the pipeline (0 = first)."""

    position: int
    operator: Operator


@dataclass(frozen=True, slots=True)
class Segment:
    """A stateful operator (None: the source, or a hand-over) and the stateless operators fused behind it."""

    index: int
    head: Step | None
    steps: tuple[Step, ...]
    parallelism: int | None = None

    @property
    def has_work(self) -> bool:
        """Whether its groups need a worker; else they just pass on."""
        return bool(self.steps) or (self.head is not None and self.head.operator.has_work())

    @property
    def light(self) -> bool:
        """Whether its groups are best done where they are: no user's function, and little work."""
        if self.steps or self.head is None:
            return False
        return bool(vars(type(self.head.operator)).get("light"))  # not inherited: a subclass may do more


@dataclass(frozen=True)
class Plan:
    """A compiled pipeline: everything the engine needs, nothing that changes while it runs."""

    source: StaticMixtureWorkSource
    lanes: int
    seed: int
    segments: tuple[Segment, ...]
    batch: BatchOp
    batch_position: int
    kinds: dict[str, ImageKind]
    fields: tuple[frozenset[str] | None, ...]  # that are read of each dataset; None: all
    flush_every: int
    batches_per_step: int
    on_error: str
    on_decode_error: str
    remainder: str
    costs: CostIndex | None = None

    @property
    def stateful(self) -> tuple[int, ...]:
        """Indices of the segments that begin with a stateful operator."""
        return tuple(s.index for s in self.segments if s.head is not None)

    @property
    def records_per_batch(self) -> int | None:
        """Records of a batch; None where it holds packed rows, or a number of tokens."""
        return self.batch.size if self.batch.row_length is None else None

    @property
    def tokens_per_batch(self) -> int | None:
        """Tokens of a batch of packed rows; None where it holds records."""
        return None if self.batch.row_length is None else (self.batch.rows or 1) * self.batch.row_length

    @property
    def patience(self) -> int:
        """Source rows of a lane, two passes over all data at least, after which a stream without a unit is given up."""
        weights, total = self.source.weights, sum(self.source.weights)
        passes = max(
            sum(shard.rows for shard in dataset.shards) * total // weight
            for dataset, weight in zip(self.source.datasets, weights, strict=True)
        )
        return 2 * passes // self.lanes + 2 * SOURCE_ROWS_PER_FLUSH * self.flush_every

    def lane_source(self) -> LaneSource:
        """The source, dealt to the lanes."""
        return self.source.lanes(self.lanes)

    def describe(self, key: Sequence[int]) -> str:
        """Where a record came from, in words."""
        dataset = self.source.datasets[key[0]]
        text = f"{dataset.describe(key[1], key[2])}, pass {key[3]}"
        return text + (f", child {'.'.join(map(str, key[4:]))}" if len(key) > 4 else "")


def compile_plan(
    source: StaticMixtureWorkSource,
    operators: Sequence[Operator | BatchOp],
    *,
    lanes: int,
    seed: int,
    batches_per_step: int,
    flush_every: int | None,
    on_error: str,
    on_decode_error: str,
    remainder: str,
) -> Plan:
    """Check the chain and cut it into segments.

    Raises:
        ConfigError: no `batch` at the end, or operators that do not fit together.
    """
    operators = list(operators)
    if not operators or not isinstance(operators[-1], BatchOp):
        raise ConfigError("the pipeline has no batch: end it with .batch(n) or .batch(tokens=...)")
    if any(isinstance(op, BatchOp) for op in operators[:-1]):
        raise ConfigError("batch must be the last operator, and there can be only one")
    batch = operators.pop()
    assert isinstance(batch, BatchOp)
    kinds: dict[str, Any] = {}
    for op in operators:
        for kind in getattr(op, "media_kinds", tuple)():
            if kind.name in kinds:
                raise ConfigError(f"two images() operators write the buffer {kind.name!r}; one is allowed")
            kinds[kind.name] = kind
    operators, batch = _connect(operators, batch, kinds)
    if remainder == "pad" and not any(hasattr(op, "tokenizer") or hasattr(op, "row_length") for op in operators):
        raise ConfigError('remainder="pad" fills batches with masked rows of tokens: it needs tokenize or pack')
    _check_media_fields(source.datasets, operators)
    row_length = next((op.row_length for op in reversed(operators) if hasattr(op, "row_length")), None)
    return Plan(
        source=source,
        lanes=lanes,
        seed=seed,
        segments=_segments(operators),
        batch=batch,
        batch_position=len(operators),
        kinds=kinds,
        fields=tuple(_needed_fields(dataset, operators) for dataset in source.datasets),
        flush_every=flush_every if flush_every is not None else default_flush_every(row_length),
        batches_per_step=batches_per_step,
        on_error=on_error,
        on_decode_error=on_decode_error,
        remainder=remainder,
    )


def default_flush_every(row_length: int | None) -> int:
    """Records per flush interval: longer rows need longer intervals to keep what a flush wastes constant."""
    return int(FLUSH_EVERY * max(1.0, (row_length or 0) / 8192))


def _segments(operators: Sequence[Operator]) -> tuple[Segment, ...]:
    cuts: list[tuple[Step | None, list[Step], int | None]] = [(None, [], None)]
    for position, op in enumerate(operators):
        step = Step(position, op)
        cap = getattr(op, "parallelism", None)
        if op.stateful:
            cuts.append((step, [], cap))
        elif cap is not None:
            cuts.append((None, [step], cap))
        elif cuts[-1][2] is not None:  # the capped operator before it ends the fusion
            cuts.append((None, [step], None))
        else:
            cuts[-1][1].append(step)
    return tuple(Segment(i, head, tuple(steps), cap) for i, (head, steps, cap) in enumerate(cuts))


def _connect(operators: list[Operator], batch: BatchOp, kinds: dict[str, ImageKind]) -> tuple[list[Operator], BatchOp]:
    """Give each operator the facts that another one decides (row length, the dummy image's tokens)."""
    packs = [i for i, op in enumerate(operators) if hasattr(op, "row_length")]
    if len(packs) > 1:
        raise ConfigError("pack and pack_flat: only one of them, once")
    if packs:
        batch = batch.after(operators[packs[0]])  # type: ignore[arg-type]
        if any(hasattr(op, "tokenizer") or hasattr(op, "media_kinds") for op in operators[packs[0] :]):
            raise ConfigError("tokenize, tokenize_chat and images must come before pack")
        for op in operators[packs[0] :]:
            if getattr(op, "is_keyed", False) or getattr(op, "splits", False):
                raise ConfigError(f"{op.name} must come before pack: a packed row has no record identity of its own")
    if batch.ensure_image:
        if not kinds:
            raise ConfigError("batch(ensure_image=True) needs images(...) in the pipeline")
        if not packs:
            raise ConfigError("batch(ensure_image=True) needs pack(...): the dummy image's tokens are reserved there")
        reserve = sum(kind.dummy().tokens for kind in kinds.values())
        operators[packs[0]] = replace(operators[packs[0]], reserve=reserve)  # type: ignore[type-var, call-arg]
        batch = replace(batch, dummy_token_id=_image_token_id(operators))
    return operators, batch


def _image_token_id(operators: Sequence[Operator]) -> int:
    """What stands in `input_ids` for an image."""
    for op in operators:
        tokens = getattr(op, "image_tokens", None)
        if tokens is not None:
            return op.tokenizer.token_id(tokens[1])  # type: ignore[attr-defined]
    return 0


def _needed_fields(dataset: Dataset, operators: Sequence[Operator]) -> frozenset[str] | None:
    """The dataset's fields that any operator can see, or None for all.

    Raises:
        ConfigError: a field that an operator needs is not there; lists what is.
    """
    known = dataset.field_names()
    needed: set[str] = set()
    for op in operators:
        reads = op.reads()
        if reads is None:
            return None
        for choices in op.needs():
            if known is not None and not choices & known:
                one = f"one of {sorted(choices)}" if len(choices) > 1 else repr(*choices)
                raise ConfigError(
                    f"dataset {dataset.name!r} has no field {one}, which {op.name} needs; there is: "
                    f"{', '.join(sorted(known)) or 'nothing'}"
                )
        needed |= reads
        keeps = op.keeps()
        if keeps is not None:
            return frozenset(needed | keeps)
    return None


def _check_media_fields(datasets: Sequence[Dataset], operators: Sequence[Operator]) -> None:
    """Rows without images are fine, and so is a dataset without any; a name that no dataset knows is a mistake."""
    for op in operators:
        reads = op.reads()
        if reads is None:
            return
        known = [dataset.field_names() if dataset.format == "parquet" else None for dataset in datasets]
        if hasattr(op, "media_kinds") and all(names is not None and not names & reads for names in known):
            there = sorted(set().union(*(names or () for names in known)))
            raise ConfigError(f"{op.name}: no dataset has a field {sorted(reads)}; there is: {', '.join(there)}")
