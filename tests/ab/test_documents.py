"""The text job's documents are real text of the wanted lengths, and none of it comes twice."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from zephon_ft.ab import documents
from zephon_ft.ab.documents import Documents
from zephon_ft.errors import ConfigError
from zephon_ft.text.tokenizer import demo_tokenizer_path

TOKENIZER = str(demo_tokenizer_path())
WHAT = Documents(rows=40, tokens=(20, 60))


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> str:
    text = " ".join(f"word{number}\u00e9" for number in range(800))
    monkeypatch.setattr(documents, "sources", lambda: iter([text, "too short"]))
    return text


def written(folder: Path, what: Documents) -> list[str]:
    return pq.read_table(documents.documents(what, TOKENIZER, folder))["text"].to_pylist()


def test_documents_have_the_lengths_and_are_parts_that_do_not_overlap(source: str, tmp_path: Path) -> None:
    texts = written(tmp_path, Documents(rows=10_000, tokens=(20, 60)))
    counter = Tokenizer.from_file(TOKENIZER)
    lengths = {len(counter.encode(text).ids) for text in texts}
    assert min(lengths) >= 19 and max(lengths) <= 61  # a cut inside a word may make a token more or less
    places = sorted((source.index(text), len(text)) for text in texts)
    assert places[0][0] == 0
    assert all(start + size == after for (start, size), (after, _) in itertools.pairwise(places))
    assert [source.index(text) for text in texts] != [start for start, _ in places], "shuffled"


def test_a_seed_stands_for_one_set_of_documents(source: str, tmp_path: Path) -> None:
    first = written(tmp_path / "a", WHAT)
    assert len(first) == 40
    assert written(tmp_path / "b", WHAT) == first
    assert written(tmp_path / "c", Documents(rows=40, tokens=(20, 60), seed=1)) != first


def test_sources_are_the_librarys_without_its_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "test/t.py", "site-packages/s.py", "idlelib/idle_test/i.py", "a.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "latin.py").write_bytes(b"\xe9")
    monkeypatch.setattr(documents.os, "__file__", str(tmp_path / "os.py"))
    assert list(documents.sources()) == ["a.py", "b.py"]


def test_a_python_without_sources_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(documents, "sources", lambda: iter(()))
    with pytest.raises(ConfigError, match="no sources"):
        written(tmp_path, WHAT)
