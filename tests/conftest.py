"""For all tests: where nothing else is said, pipelines run on threads, on every interpreter.

Worker processes are the default where there is a GIL, but each iterator starts its own (some 0.2 s of CPU time each),
and what they do is held by tests/conformance, tests/guarantees and tests/runners, which ask for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from zephon_ft.runners import choice


@pytest.fixture(scope="session", autouse=True)
def threads_by_default() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "default_runner", lambda: "thread")
        yield


@pytest.fixture(scope="session", autouse=True)
def workers_find_bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes that are started need not compile the package each time, also where the checkout is kept clean."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTHONPYCACHEPREFIX" not in os.environ:
            patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield
