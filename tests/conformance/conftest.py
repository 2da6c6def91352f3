"""Which runners the suite is run on.

To have a runner of your own tested, make it known under a name (`zephon_ft.runners.choice`, `RUNNERS` in
`zephon_ft.engine.options`) and add that name to ``ZEPHON_FT_TEST_RUNNERS``, a comma-separated list.

Starting processes takes its time: of tests with many cases the process runner passes each seventh, and all of them with
``-m "slow or not slow"``.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

RUNNERS = os.environ.get("ZEPHON_FT_TEST_RUNNERS", "inline,thread,process").split(",")
_EACH = 7


@pytest.fixture(params=RUNNERS)
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
