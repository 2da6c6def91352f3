"""Which runners the suite is run on.

To have a runner of your own tested, make it known under a name (`zephon_ft.runners.choice`, `RUNNERS` in
`zephon_ft.engine.options`) and add that name to ``ZEPHON_FT_TEST_RUNNERS``, a comma-separated list.
"""

from __future__ import annotations

import os

import pytest

RUNNERS = os.environ.get("ZEPHON_FT_TEST_RUNNERS", "inline,thread").split(",")


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> str:
    return str(request.param)
