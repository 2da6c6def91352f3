"""filter: keep the rows that a function says yes to."""

from __future__ import annotations

from dataclasses import dataclass

from zephon_ft.ops.base import RecordWork, WorkContext
from zephon_ft.ops.function import FunctionOperator
from zephon_ft.record import Record


@dataclass(frozen=True)
class Filter(FunctionOperator):
    """Keep a row where ``fn(row)`` is true. What it drops is counted as ``dropped by filter(<name>)``."""

    @classmethod
    def kind(cls) -> str:
        return "filter"

    def bind(self, context: WorkContext) -> RecordWork:
        function, call = self.function, self.caller(context)
        count, reason = context.count, f"dropped by {self.name}"

        def work(record: Record) -> Record | None:
            if function(record.fields):
                return record
            count(reason)
            return None

        def keyed_work(record: Record) -> Record | None:
            if call(record.fields, record.key):
                return record
            count(reason)
            return None

        return keyed_work if self.is_keyed else work
