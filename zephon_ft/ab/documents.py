"""The built-in documents of the text job: Parquet with one text a row, of the lengths of web pages.

Real text: source code and documentation of the running Python's standard library, cut into documents and shuffled. No
stretch of it comes twice; what repeats is what repeats in such text. Random words of a short list would not do: an
encoder that remembers words would always have seen them all. Needs pyarrow, tokenizers.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zephon_ft.ab.cache import cached
from zephon_ft.errors import ConfigError

VERSION = 2
ROW_GROUP = 1000
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What the data set holds: the same for the same Python, tokenizer and values.

    Attributes:
        rows: documents; fewer where the library has no more text.
        tokens: least and most tokens of a document.
        seed: of everything that is drawn.
        python: version of the Python whose library it is; only the running one's is at hand.
    """

    rows: int = 5000
    tokens: tuple[int, int] = (200, 1200)
    seed: int = 0
    python: str = platform.python_version()


READING: dict[str, Any] = {"images": [], "kind": "text", "text": ["text"], "layout": "plain text"}


def documents(what: Documents, tokenizer: str, folder: Path | None = None) -> Path:
    """The file of a data set, made where it is not there yet; see `cache.cached`."""
    return cached(f"documents-v{VERSION}", what, tokenizer, folder, lambda path: write(path, what, tokenizer))


def write(path: Path, what: Documents, tokenizer: str) -> None:
    """Write the Parquet file. Column: `text`.

    Raises:
        ConfigError: this Python comes without the sources of its library.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    counter = Tokenizer.from_file(tokenizer)
    rng = np.random.default_rng(what.seed)
    texts = [text for source in sources() for text in _cut(source, counter, what.tokens, rng)]
    if not texts:
        raise ConfigError(f"no sources of Python's library in {_library()}: give data of your own with --data")
    chosen = [texts[i] for i in rng.permutation(len(texts))[: what.rows]]
    pq.write_table(pa.table({"text": chosen}), path, row_group_size=ROW_GROUP, compression="zstd")


def sources() -> Iterator[str]:
    """Texts of the standard library's Python files, but for tests and tables of codes, in the order of their names."""
    for path in sorted(_library().rglob("*.py")):
        if _LEFT_OUT.isdisjoint(path.relative_to(_library()).parts):
            try:
                yield path.read_text(encoding="utf-8")
            except UnicodeDecodeError:  # a few are in other encodings
                continue


def _library() -> Path:
    return Path(os.__file__).parent


def _cut(text: str, counter: Any, tokens: tuple[int, int], rng: np.random.Generator) -> Iterator[str]:
    """A text in parts of drawn numbers of tokens; what is left at its end is too short and not used."""
    ends = [end for _, end in counter.encode(text, add_special_tokens=False).offsets]
    start = 0
    while (stop := start + int(rng.integers(tokens[0], tokens[1] + 1))) <= len(ends):
        yield text[ends[start - 1] if start else 0 : ends[stop - 1]]
        start = stop


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
