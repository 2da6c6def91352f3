"""The documents name tests and files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_a_document_names_exists(document):
    missing = []
    for path in re.findall(r"`(tests/[\w/]+\.py)`", document.read_text()):
        assert (ROOT / path).is_file(), path
    for path, name in re.findall(
        r"`((?:tests/[\w/]+/)?test_\w+\.py|tests/[\w/]+\.py)(?:::(\w+))?`", document.read_text()
    ):
        files = [ROOT / path] if "/" in path else list((ROOT / "tests").rglob(path))
        found = [file for file in files if file.is_file() and (not name or f"\ndef {name}(" in file.read_text())]
        if not found:
            missing.append(f"{path}::{name}")
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_inside_the_repository_leads_somewhere(document):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_guarantees_name_tests_at_all():
    assert (ROOT / "docs" / "guarantees.md").read_text().count("::test_") > 60
