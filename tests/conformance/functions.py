"""User functions and operators of the conformance suite: at module level, so that any runner can send them anywhere.

What a row asks for stands in the row: ``sleep`` seconds, an exception to ``raise``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from zephon_ft import Accumulator, DataError, Dataset, Operator, Pipeline, StaticMixtureWorkSource
from zephon_ft.record import Record

ERRORS: dict[str, type[BaseException]] = {
    "ValueError": ValueError,
    "DataError": DataError,
    "OSError": OSError,
    "TimeoutError": TimeoutError,
    "MemoryError": MemoryError,
    "StopIteration": StopIteration,
}


def act(row: dict[str, Any]) -> dict[str, Any]:
    """Do what the row asks for."""
    if "sleep" in row:
        time.sleep(row["sleep"])
    if "raise" in row:
        raise ERRORS[row["raise"]]("this row is bad")
    return row


def act_and_keep(row: dict[str, Any]) -> bool:
    act(row)
    return True


def act_if_kept(row: dict[str, Any]) -> bool:
    act(row)
    return bool(row.get("keep"))


def act_and_double(row: dict[str, Any]) -> list[dict[str, Any]]:
    act(row)
    return [{**row, "child": c} for c in range(2)]


def act_and_repeat(row: dict[str, Any]) -> list[dict[str, Any]]:
    act(row)
    return [row] * 2


def add_hundred(row: dict[str, Any]) -> dict[str, Any]:
    row["n"] += 100
    return row


def identity(row: dict[str, Any]) -> dict[str, Any]:
    return row


def salt(row: dict[str, Any], rng: Any) -> dict[str, Any]:
    row["salt"] = int(rng.integers(1 << 30))
    return row


def odd(row: dict[str, Any]) -> bool:
    return row["n"] % 2 == 1


def scribble(row: dict[str, Any]) -> dict[str, Any]:
    """Change everything in the row that can be changed."""
    row["n"] += 1000
    row["tags"].append("mine")
    row["nested"]["deep"].append("mine")
    row["new"] = 1
    return {"n": row["n"], "tags": " ".join(row["tags"]), "deep": " ".join(row["nested"]["deep"])}


def scribble_on_array(row: dict[str, Any]) -> dict[str, Any]:
    row["array"] += 1
    return row


class Counting(Operator):
    """A stateful operator that numbers its records; its accumulator must never outlive an interval."""

    name = "counting"
    stateful = True

    def __init__(self, fail_in: str = "", number: int = 37) -> None:
        self.fail_in, self.number = fail_in, number

    def accumulator(self) -> Accumulator:
        return _Counter(self.fail_in, self.number)

    def bind(self, context: Any) -> Any:
        def work(group: list[Record]) -> Record:
            if self.fail_in == "work" and group[0].fields["n"] == self.number:
                raise ValueError("this row is bad")
            return group[0]

        return work

    def recipe(self) -> dict[str, Any]:
        return {"fail_in": self.fail_in}


class _Counter(Accumulator):
    def __init__(self, fail_in: str, number: int) -> None:
        self.fail_in, self.number, self.count = fail_in, number, 0

    def push(self, unit: Record) -> Iterable[list[Record]]:
        if self.fail_in == "push" and unit.fields["n"] == self.number:
            raise ValueError("this row is bad")
        self.count += 1
        unit.fields["count"] = self.count
        return ([unit],)

    def finish(self) -> Iterable[list[Record]]:
        return ()


def rows(n: int, **special: dict[int, Any]) -> list[dict[str, Any]]:
    """``{"n": 0}, {"n": 1}, ...``; ``sleep={3: 1.0}`` puts ``sleep`` into row 3."""
    out: list[dict[str, Any]] = [{"n": i} for i in range(n)]
    for name, values in special.items():
        for i, value in values.items():
            out[i][name] = value
    return out


def pipeline(data: list[dict[str, Any]], lanes: int = 2, epochs: int | None = None, **recipe: Any) -> Pipeline:
    """A pipeline over rows in file order where it has one lane."""
    source = StaticMixtureWorkSource([Dataset.from_rows("d", data)], epochs=epochs, shuffle=False)
    return Pipeline(source, lanes, **recipe)


def numbers(stream: Any, batches: int | None = None) -> list[list[int]]:
    """The ``n`` of every record, batch by batch."""
    out = []
    for batch in stream:
        out.append([int(n) for n in batch.columns["n"]])
        if batches is not None and len(out) == batches:
            break
    return out
