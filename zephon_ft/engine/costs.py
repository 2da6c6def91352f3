"""Cost index: token counts and image sizes of every row, so that planning and replay need no payload.

Made by `zephon-ft index`, beside the data or in the cache folder, one file per data file. It belongs to one prefix
of the recipe: the operators up to the first stateful one, and the error policy. Where it is there, source rows become
`Sketch`es; accumulators decide from them as from the real records, and a row is read when its row or batch is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from zephon_ft.engine.events import Bundle
from zephon_ft.engine.recipe import dump
from zephon_ft.errors import ConfigError
from zephon_ft.io.sidecar import Index, load, load_or_build
from zephon_ft.io.storage import File
from zephon_ft.record import Media, Record, Sketch
from zephon_ft.work.mixture import Chunk

if TYPE_CHECKING:
    from zephon_ft.engine.plan import Plan

VERSION = 1
ROLE = "costs"
_ROWS = 256  # rows per task while indexing
_NO_TOKENS = np.zeros(1, np.int32)


def indexable(plan: Plan) -> str | None:
    """Why lengths do not decide the whole plan, or None: they do."""
    for segment in plan.segments:
        if segment.head is not None and not getattr(segment.head.operator, "plans_by_length", False):
            return f"{segment.head.operator.name} may look at more than lengths"
    if any(segment.head is None for segment in plan.segments[1:]):
        return "an operator with a `parallelism` of its own splits what comes before the first stateful one"
    if any(segment.steps for segment in plan.segments[1:]):
        return "functions behind a stateful operator may look at more than lengths"
    for step in plan.segments[0].steps:
        if getattr(step.operator, "is_keyed", False):
            return f"{step.operator.name} draws random numbers, so that lengths differ from pass to pass"
    if not any(hasattr(step.operator, "tokenizer") for step in plan.segments[0].steps):
        return "nothing is tokenized before the first stateful operator"
    return None


def prefix_key(plan: Plan) -> str:
    """Identifies what the lengths depend on, besides the data files."""
    steps = [{"name": step.operator.name, **step.operator.recipe()} for step in plan.segments[0].steps]
    text = dump({"version": VERSION, "operators": steps, "on_error": plan.on_error})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class CostIndex:
    """Lengths of all rows of those shards that have been indexed."""

    def __init__(self, plan: Plan, indexes: dict[tuple[int, int], Index]) -> None:
        self._indexes = indexes
        self._kind = next(iter(plan.kinds.values()), None)

    @classmethod
    def find(cls, plan: Plan) -> CostIndex | None:
        """The index of a plan's data, if every file has one."""
        if indexable(plan) is not None:
            return None
        kind = f"costs-{prefix_key(plan)}"
        found: dict[tuple[int, int], Index] = {}
        for number, dataset in enumerate(plan.source.datasets):
            for shard, file in enumerate(dataset.files):
                index = load(file, kind, ROLE)
                if index is None:
                    return None
                found[number, shard] = index
            if not dataset.files:
                return None
        return cls(plan, found)

    def sketch(self, chunk: Chunk, first: int) -> list[Record]:
        """The records of a chunk, without payload."""
        out: list[Record] = []
        keys = zip(chunk.dataset, chunk.shard, chunk.row, chunk.passes, strict=True)
        for position, key in enumerate(keys, first):
            arrays = self._indexes[key[0], key[1]].arrays
            starts = arrays["children"]
            index = self._indexes[key[0], key[1]]
            children = range(int(starts[key[2]]), int(starts[key[2] + 1]))
            out += [self._record(key, position, index, child) for child in children]
        return out

    def _record(self, key: tuple[int, ...], position: int, index: Index, child: int) -> Record:
        arrays = index.arrays
        low, high = arrays["suffixes"][child : child + 2].tolist()
        key = (*key, *arrays["suffix"][low:high].tolist())
        tokens = int(arrays["tokens"][child])
        ids = np.broadcast_to(_NO_TOKENS, (tokens,)) if tokens else _NO_TOKENS[:0]
        low, high = arrays["items"][child : child + 2].tolist()
        items = arrays["item"][low:high].tolist()
        media = tuple([self._media(index, key, position, number, item) for number, item in enumerate(items)])
        return Sketch(key, position, {"input_ids": ids}, media)

    def _media(self, index: Index, key: tuple[int, ...], position: int, number: int, item: Sequence[int]) -> Media:
        from zephon_ft.vision.header import ImageHeader

        assert self._kind is not None
        width, height, orientation, mode, name, offset = item
        header = ImageHeader(width, height, orientation, index.facts["modes"][mode], index.facts["formats"][name])
        planned = self._kind.media(header, None, key=key, position=position, index=number)
        return replace(planned, offset=offset)


Part = tuple[int, int, Sequence[int]]  # dataset, shard, rows


def build(plan: Plan, run: Callable[[Iterable[Part]], Iterable[Bundle]], progress: Callable[[int], None]) -> int:
    """Index every data file of a plan that has no index yet.

    Args:
        run: runs the first segment on parts of shards; yields what comes of them, in order.
        progress: called with the number of rows done since the last call.
    Returns:
        files indexed now.

    Raises:
        ConfigError: lengths do not decide the plan, or a dataset lies in memory.
    """
    reason = indexable(plan)
    if reason is not None:
        raise ConfigError(f"this pipeline cannot use a cost index: {reason}")
    kind, built = f"costs-{prefix_key(plan)}", 0
    for number, dataset in enumerate(plan.source.datasets):
        if not dataset.files:
            raise ConfigError(f"dataset {dataset.name!r} lies in memory: an index is for files")
        for shard, file in enumerate(dataset.files):
            rows = dataset.shards[shard].rows

            def scan(_: File, number: int = number, shard: int = shard, rows: int = rows) -> Any:
                table = _Table()
                parts = [(number, shard, range(i, min(i + _ROWS, rows))) for i in range(0, rows, _ROWS)]
                for part, bundle in zip(parts, run(parts), strict=True):
                    if bundle.failure is not None:
                        raise bundle.failure
                    table.add(part[2], bundle.units)
                    progress(len(part[2]))
                return table.facts(), table.arrays()

            built += load(file, kind, ROLE) is None
            load_or_build(file, kind, scan, ROLE)
    return built


class _Table:
    """Lengths as columns while they are collected."""

    def __init__(self) -> None:
        self.children, self.suffixes, self.items = [0], [0], [0]
        self.suffix: list[int] = []
        self.tokens: list[int] = []
        self.item: list[tuple[int, ...]] = []
        self.modes: dict[str, int] = {}
        self.formats: dict[str, int] = {}

    def add(self, rows: Sequence[int], units: Sequence[Record]) -> None:
        """Take in the records that came of consecutive rows."""
        at = 0
        for row in rows:
            while at < len(units) and units[at].key[2] == row:
                self._add(units[at])
                at += 1
            self.children.append(len(self.tokens))

    def _add(self, unit: Record) -> None:
        self.tokens.append(unit.num_tokens)
        self.suffix += unit.key[4:]
        self.suffixes.append(len(self.suffix))
        for media in unit.media:
            width, height, orientation, mode, name, _ = media.facts
            numbers = self.modes.setdefault(mode, len(self.modes)), self.formats.setdefault(name, len(self.formats))
            self.item.append((width, height, orientation, *numbers, media.offset))
        self.items.append(len(self.item))

    def facts(self) -> dict[str, Any]:
        return {"modes": list(self.modes), "formats": list(self.formats)}

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "children": np.array(self.children, np.int64),
            "tokens": np.array(self.tokens, np.int32),
            "suffixes": np.array(self.suffixes, np.int64),
            "suffix": np.array(self.suffix, np.int32),
            "items": np.array(self.items, np.int64),
            "item": np.array(self.item, np.int32).reshape(-1, 6),
        }


def complete(units: Sequence[Any], real: Callable[[int, int, Sequence[int]], Bundle]) -> dict[int, Record]:
    """The real records of the sketches among `units`, by ``id(sketch)``; each row is read once.

    Raises:
        ConfigError: the data or the operators give other lengths than the index says.
    """
    sketches = [unit for unit in units if type(unit) is Sketch]
    rows: dict[tuple[int, int, int], set[int]] = {}
    for unit in sketches:
        dataset, shard, row, number = unit.key[:4]
        rows.setdefault((dataset, shard, number), set()).add(row)
    found: dict[tuple[int, ...], Record] = {}
    for (dataset, shard, number), wanted in rows.items():
        bundle = real(dataset, shard, sorted(wanted))
        if bundle.failure is not None:
            raise bundle.failure
        for record in bundle.units:
            found[(*record.key[:3], number, *record.key[4:])] = record
    out: dict[int, Record] = {}
    for unit in sketches:
        record = found.get(unit.key)
        if record is None or record.num_tokens != unit.num_tokens or len(record.media) != len(unit.media):
            raise ConfigError(
                f"the cost index does not fit the data (record {unit.key}: {unit.num_tokens} tokens in the index, "
                f"{record.num_tokens if record is not None else 'no record'} in the data): run zephon-ft index again"
            )
        media = tuple(
            replace(new, key=unit.key, position=old.position) for new, old in zip(record.media, unit.media, strict=True)
        )
        out[id(unit)] = Record(unit.key, unit.position, record.fields, media, unit.nbytes)
    return out
