"""Build hook: compiles fused_resize.c beside its source, where there is a C compiler; the package works without.

Runs for wheels and for editable installs. The file has no Python in it, so one serves every interpreter of a platform.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-O3", "-shared", "-fPIC", "-ffp-contract=off", "-fno-fast-math")  # behind those that $CC may have
TRY = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).zephon_ft_lanes()"


class CompiledResize(BuildHookInterface):
    """Adds the compiled file to a wheel and makes the wheel's tag one of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See `BuildHookInterface`. A failure is a warning: torch and numpy do the same, slower."""
        vision = Path(self.root, "zephon_ft", "vision")
        library = vision / "_fused_resize.so"
        if platform.machine() not in ("x86_64", "AMD64") or sys.platform == "win32":
            return
        try:
            compile_library(vision / "fused_resize.c", library)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = getattr(error, "stderr", None) or error
            self.app.display_warning(f"zephon-ft: fused_resize.c was not compiled, images are resized slower: {reason}")
            with contextlib.suppress(OSError):
                library.unlink(missing_ok=True)  # one of another state of the source
            return
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["pure_python"] = False


def compile_library(source: Path, library: Path) -> None:
    """Compile `source` with $CC, else cc, and try it. `library` appears whole or not at all, also if two builds run at
    once.

    Raises:
        OSError: there is no compiler, or no place to write to.
        ValueError: $CC cannot be read.
        subprocess.SubprocessError: it failed, or made something that does not work; ``stderr`` says why.
    """
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder, library.name)
        command = [*compiler, *FLAGS, "-o", str(made), str(source), "-lm"]
        for step in command, [sys.executable, "-c", TRY, str(made)]:
            subprocess.run(step, check=True, capture_output=True, text=True, errors="replace", timeout=300)
        made.replace(library)
