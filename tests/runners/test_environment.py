"""Worker processes start with settings of their own, and the user's come first where they decide the same."""

from __future__ import annotations

import os

import pytest

from tests.conformance.functions import pipeline, rows
from zephon_ft.runners.environment import TUNABLES


def settings(row):
    return {"n": row["n"], "tunables": os.environ.get("GLIBC_TUNABLES"), "pools": os.environ.get("OMP_NUM_THREADS")}


@pytest.mark.parametrize(("given", "seen"), [(None, TUNABLES), ("glibc.pthread.rseq=0", "glibc.pthread.rseq=0")])
def test_workers_have_single_threaded_pools_and_an_allocator_for_tokenizers(given, seen, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if given is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", given)
    pipe = pipeline(rows(4), lanes=1, epochs=1).map(settings).batch(2).options(runner="process", workers=1)
    found = [batch.columns for batch in pipe]
    assert {value for columns in found for value in columns["tunables"]} == {seen}
    assert {value for columns in found for value in columns["pools"]} == {"1"}
