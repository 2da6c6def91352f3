"""map: a function from row to row."""

from __future__ import annotations

from dataclasses import dataclass

from zephon_ft.ops.base import RecordWork, WorkContext
from zephon_ft.ops.function import FunctionOperator, must_be_row
from zephon_ft.record import Record


@dataclass(frozen=True)
class Map(FunctionOperator):
    """Replace each row by ``fn(row)``, a dict. The function may change its argument and return it."""

    @classmethod
    def kind(cls) -> str:
        return "map"

    def bind(self, context: WorkContext) -> RecordWork:
        function, call, name = self.function, self.caller(context), self.name

        def work(record: Record) -> Record:
            fields = function(record.fields)
            record.fields = fields if type(fields) is dict else must_be_row(fields, name)
            return record

        def keyed_work(record: Record) -> Record:
            record.fields = must_be_row(call(record.fields, record.key), name)
            return record

        return keyed_work if self.is_keyed else work
