"""The runners of the suite as a fixture, see `runners`.

Starting processes takes its time: of tests with many cases the process runner passes each seventh, and all of them with
``-m "slow or not slow"``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.runners import known_runners

_EACH = 7


@pytest.fixture(params=known_runners())
def runner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    for item in items:
        call = getattr(item, "callspec", None)
        if call is None or call.params.get("runner") != "process" or len(call.params) == 1:
            continue
        name = item.nodeid.split("[")[0]
        if seen[name] % _EACH:
            item.add_marker("slow")
        seen[name] += 1
