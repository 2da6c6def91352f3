"""FirstRows: the first rows of a data set, for a pass that checks a side on little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zephon_ft.errors import DataError
from zephon_ft.io.dataset import Dataset, Shard


class FirstRows(Dataset):
    """At most `rows` rows of `whole`, from its first shards on; everything else is as there."""

    def __init__(self, whole: Dataset, rows: int) -> None:
        shards = []
        for shard in whole.shards:
            groups = []
            for count in shard.row_groups:
                groups.append(min(count, rows))
                rows -= groups[-1]
            shards.append(Shard(shard.path, sum(groups), tuple(groups)))
        super().__init__(
            whole.name, shards, remote=whole.remote, columns=whole.columns, storage_options=whole.storage_options
        )
        self._whole = whole
        self.format, self.random_access = whole.format, whole.random_access

    def field_names(self) -> frozenset[str] | None:
        return self._whole.field_names()

    def fetch(
        self, shard: int, rows: Sequence[int], fields: frozenset[str] | None = None
    ) -> list[dict[str, Any] | DataError]:
        return self._whole.fetch(shard, rows, fields)

    def fingerprint(self) -> list[dict[str, Any]]:
        facts = self._whole.fingerprint()
        return [{**fact, "rows": shard.rows} for fact, shard in zip(facts, self.shards, strict=True)]

    def set_cache_limit(self, nbytes: int) -> None:
        self._whole.set_cache_limit(nbytes)

    def cached_bytes(self) -> int:
        return self._whole.cached_bytes()
