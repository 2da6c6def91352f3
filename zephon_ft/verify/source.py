"""What to verify: a recipe function, a data path, or the embedded data set; each as a function that builds it anew."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from zephon_ft.errors import ConfigError
from zephon_ft.pipeline import Pipeline

Make = Callable[[], Pipeline]


def find(text: str | None) -> tuple[Make, str]:
    """A function that builds the pipeline from fresh objects, and what it is in words.

    Args:
        text: ``module:function`` or ``path.py:function`` (no arguments, returns a `Pipeline`); else a data path, which
            is read as ``zephon-ft demo --data`` reads it; None is the demo's own data set.

    Raises:
        ConfigError: no such module or function, or it does not return a pipeline.
    """
    place, _, name = (text or "").rpartition(":")
    if place and name.isidentifier() and not os.path.exists(text or ""):
        return partial(_call, _function(place, name), f"{place}:{name}"), f"{place}:{name}"
    from zephon_ft.demo.data import demo_dataset
    from zephon_ft.demo.reading import understand
    from zephon_ft.demo.recipe import EMBEDDED, Recipe, demo_pipeline
    from zephon_ft.io.dataset import Dataset
    from zephon_ft.text.tokenizer import demo_tokenizer_path, load_tokenizer

    def make() -> Pipeline:
        tokenizer = load_tokenizer(demo_tokenizer_path())
        if text is None:
            return demo_pipeline(demo_dataset(), EMBEDDED, tokenizer, Recipe())
        reading = understand(Dataset.from_path("data", text))
        dataset = Dataset.from_path("data", text, columns=reading.columns)
        return demo_pipeline(dataset, reading, tokenizer, Recipe(), epochs=1)

    return make, text or "the demo's coloured shapes"


def _function(place: str, name: str) -> Callable[[], Any]:
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise ConfigError(f"there is no file {place}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        sys.path.insert(0, str(path.parent))  # what it imports from beside it
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise ConfigError(f"there is no module {place!r} ({error}); a file is given as path.py:function") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"{place} has no function {name!r}")
    return function


def _call(function: Callable[[], Any], what: str) -> Pipeline:
    made = function()
    if not isinstance(made, Pipeline):
        raise ConfigError(f"{what} must return a Pipeline, it returned {type(made).__name__}")
    return made
