"""Which runners the suite is run on, by name.

``ZEPHON_FT_TEST_RUNNERS`` is a comma-separated list of names and of ``name=module:factory``: give your own runner so.
"""

from __future__ import annotations

import importlib
import os

from zephon_ft.runners.choice import RUNNERS

_DEFAULT = "inline,thread,process,example=tests.conformance.example_runner:OneThread"


def known_runners() -> list[str]:
    """The names; those that are not the package's own are made known to it."""
    names = []
    for item in os.environ.get("ZEPHON_FT_TEST_RUNNERS", _DEFAULT).split(","):
        name, _, where = item.partition("=")
        if where:
            module, _, factory = where.partition(":")
            RUNNERS[name] = getattr(importlib.import_module(module), factory)
        names.append(name)
    return names
