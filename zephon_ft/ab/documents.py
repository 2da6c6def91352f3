"""The built-in documents of the text job: Parquet with one text a row, of the lengths of web pages.

Random words, like the photographs' texts; a row is a function of the seed and its number, text lengths are those of the
tokenizer that is given. Needs pyarrow, tokenizers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zephon_ft.ab.cache import cached
from zephon_ft.ab.words import words

VERSION = 1
ROW_GROUP = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What the data set holds.

    Attributes:
        rows: documents.
        tokens: least and most tokens of a document.
        seed: of everything that is drawn.
    """

    rows: int = 8000
    tokens: tuple[int, int] = (200, 1200)
    seed: int = 0


READING: dict[str, Any] = {"images": [], "kind": "text", "text": ["text"], "layout": "plain text"}


def documents(what: Documents, tokenizer: str, folder: Path | None = None) -> Path:
    """The file of a data set, made where it is not there yet; see `cache.cached`."""
    return cached(f"documents-v{VERSION}", what, tokenizer, folder, lambda path: write(path, what, tokenizer))


def write(path: Path, what: Documents, tokenizer: str) -> None:
    """Write the Parquet file. Column: `text`."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    counter = Tokenizer.from_file(tokenizer)
    texts = []
    for number in range(what.rows):
        rng = np.random.default_rng([what.seed, number])
        texts.append(words(counter, int(rng.integers(what.tokens[0], what.tokens[1] + 1)), rng))
    pq.write_table(pa.table({"text": texts}), path, row_group_size=ROW_GROUP, compression="zstd")


def describe(path: Path, tokenizer: str) -> dict[str, Any]:
    """Text lengths of a data set of this layout, from the file itself."""
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    counter = Tokenizer.from_file(tokenizer)
    file = pq.ParquetFile(path)
    texts = file.read(columns=["text"])["text"].to_pylist()
    lengths = [len(encoding.ids) for encoding in counter.encode_batch_fast(texts)]
    return {
        "rows": len(lengths),
        "row groups": file.num_row_groups,
        "file": f"{path.stat().st_size / 1e6:.1f} MB",
        "text tokens a row": f"{min(lengths)} to {max(lengths)}, mean {np.mean(lengths):.0f}",
        "text characters a row": f"mean {np.mean([len(text) for text in texts]):.0f}",
    }
