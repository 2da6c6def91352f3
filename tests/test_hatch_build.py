"""The build hook compiles what it can, says why where it cannot, and never fails an installation for it."""

from __future__ import annotations

import ctypes
import platform
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytest.importorskip("hatchling")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or shutil.which("cc") is None,
    reason="compiles for x86-64 Linux with cc",
)


def build_wheel(folder: Path) -> tuple[str, set[str]]:
    """Name of a wheel of a copy of this checkout, and the files in it."""
    from hatchling.builders.wheel import WheelBuilder

    ignored = shutil.ignore_patterns("*.so", "__pycache__", ".*", "tests", "docs", "bench", "dist")
    copy = shutil.copytree(ROOT, folder / "checkout", ignore=ignored)
    (wheel,) = WheelBuilder(str(copy)).build(directory=str(folder / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        return Path(wheel).name, set(archive.namelist())


def test_a_wheel_has_the_compiled_resize_and_a_tag_of_its_platform_for_any_python(tmp_path):
    name, files = build_wheel(tmp_path)
    assert "-py3-none-linux_x86_64" in name
    assert "zephon_ft/vision/_fused_resize.so" in files
    library = ctypes.CDLL(str(tmp_path / "checkout/zephon_ft/vision/_fused_resize.so"))
    assert library.zephon_ft_lanes() in (0, 2, 4)


@pytest.mark.parametrize(
    "compiler", ["no-such-compiler", "cc --no-such-option", "'no-such-quotation", "cc -c -DX=no-such"]
)
def test_without_a_working_compiler_the_wheel_is_pure_python_and_says_why(compiler, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("CC", compiler)
    name, files = build_wheel(tmp_path)
    assert "-py3-none-any" in name
    assert "zephon_ft/vision/fused_resize.py" in files and not any(file.endswith(".so") for file in files)
    said: Any = capfd.readouterr()
    assert "fused_resize.c was not compiled" in said.err + said.out
    assert "no-such" in said.err + said.out or "quotation" in said.err + said.out or "-c" in compiler
