"""flat_map: one row in, any number of rows out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zephon_ft.errors import DataError
from zephon_ft.ops.base import RecordWork, WorkContext
from zephon_ft.ops.function import FunctionOperator, must_be_row
from zephon_ft.record import Record


@dataclass(frozen=True)
class FlatMap(FunctionOperator):
    """Replace each row by the rows of ``fn(row)`` (an iterable of dicts); child i gets i appended to its key."""

    splits: ClassVar[bool] = True  # it makes several units of one

    @classmethod
    def kind(cls) -> str:
        return "flat_map"

    def bind(self, context: WorkContext) -> RecordWork:
        function, call, keyed, name = self.function, self.caller(context), self.is_keyed, self.name

        def work(record: Record) -> list[Record]:
            children = call(record.fields, record.key) if keyed else function(record.fields)
            if isinstance(children, dict) or not hasattr(children, "__iter__"):
                raise DataError(f"{name} must return an iterable of dicts, got {type(children).__name__}")
            key, position = record.key, record.position
            return [
                Record((*key, number), position, dict(must_be_row(child, name)), record.media)  # often one dict twice
                for number, child in enumerate(children)
            ]

        return work
