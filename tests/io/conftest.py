from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory, monkeypatch):
    """Indexes that cannot lie beside their data go to a folder of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ZEPHON_FT_CACHE", str(folder))
    return folder
