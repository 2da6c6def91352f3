from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def demo_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of the whole session, so that the demo's data set is made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(demo_cache: Path) -> Iterator[None]:
    before = os.environ.get("ZEPHON_FT_CACHE")
    os.environ["ZEPHON_FT_CACHE"] = str(demo_cache)
    yield
    if before is None:
        del os.environ["ZEPHON_FT_CACHE"]
    else:
        os.environ["ZEPHON_FT_CACHE"] = before
