"""Time that ``import zephon_ft`` adds to a bare interpreter with numpy, each in a fresh process; no torch is loaded."""

from __future__ import annotations

import subprocess
import sys

import common

SIDES = ("numpy", "numpy, zephon_ft")
TARGET = 0.15  # seconds
_CODE = """import sys, time
began = time.perf_counter()
import {}
print(time.perf_counter() - began)
assert "torch" not in sys.modules
"""


def measure(modules: str) -> dict[str, float]:
    """Seconds of one import in a new interpreter."""
    command = [sys.executable, "-c", _CODE.format(modules)]
    done = subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True, check=True)
    return {"seconds": float(done.stdout)}


def main() -> None:
    """Command line."""
    options = common.parser(__doc__).parse_args()
    report = common.Report("import time")
    report.begin()
    sides = {name: (lambda name=name: measure(name)) for name in SIDES}
    for side in sides.values():  # so that the bytecode is there
        side()
    results = common.interleave(sides, options.repeats)
    for name, runs in results.items():
        report.row(f"import {name}", [run["seconds"] for run in runs], "s")
    bare, whole = (results[name] for name in SIDES)
    above = [b["seconds"] - a["seconds"] for a, b in zip(bare, whole, strict=True)]
    report.row("zephon_ft above numpy", above, "s", f"< {TARGET} s", common.middle(above) < TARGET)
    report.end(options.json)


if __name__ == "__main__":
    main()
