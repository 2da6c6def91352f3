"""The options of `zephon-ft bench` and of ``bench/ab.py``."""

from __future__ import annotations

import argparse
from pathlib import Path

from zephon_ft.ab.job import MODES


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add everything that `run.run` reads."""
    job = parser.add_argument_group("the job")
    job.add_argument("--mode", metavar="MODES", help=f"of {', '.join(MODES)} (all that the data have something for)")
    job.add_argument(
        "--data",
        metavar="PATH",
        help="your own Parquet, JSONL or tar, read as the demo reads it; default: photographs made once and kept",
    )
    job.add_argument("--tokenizer", metavar="PATH", help="a tokenizer.json; default the one that is shipped")
    job.add_argument("--rows", type=int, default=600, metavar="N", help="photographs to make (%(default)s)")
    job.add_argument("--phone", action="store_true", help="photographs of 12 megapixels, held upright")
    job.add_argument("--out", type=Path, metavar="DIR", help="folder for the photographs; default the cache folder")
    job.add_argument("--size", type=int, default=384, metavar="N", help="side of the square of fetch (%(default)s)")
    job.add_argument("--max-pixels", type=int, default=28 * 28 * 1280, metavar="N", help="of full (%(default)s)")
    job.add_argument(
        "--scaled-decode",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="decode large JPEGs at a smaller scale (default)",
    )
    job.add_argument("--decoder", default="torch", metavar="NAME", help="torch (default) or pillow")
    job.add_argument("--max-length", type=int, default=4096, metavar="N", help="tokens of a packed row (%(default)s)")
    job.add_argument("--batch", type=int, default=2, metavar="N", help="packed rows in a batch (%(default)s)")
    job.add_argument("--lanes", type=int, default=8, metavar="N", help="logical streams (%(default)s)")
    job.add_argument("--seed", type=int, default=1, metavar="N", help="of the order (%(default)s)")
    sides = parser.add_argument_group("the sides")
    sides.add_argument("--runners", default="thread,process", metavar="NAMES", help="of thread, process, inline")
    sides.add_argument(
        "--python", default="", metavar="NAMES", help="interpreters, by name or path: python3.14t,python3.14 (this one)"
    )
    sides.add_argument("--workers", default="", metavar="N,N", help="numbers of workers (the cores there are)")
    sides.add_argument(
        "--side", action="append", default=[], metavar="NAME=COMMAND", help="another side: see zephon_ft/ab/measure.py"
    )
    sides.add_argument("--share-of-bare", action="store_true", help="add a bare loop of the same work functions")
    sides.add_argument("--baseline", default="", metavar="SIDE", help="ratios are to it; default the first side")
    how = parser.add_argument_group("how long")
    how.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each side (%(default)s)")
    how.add_argument("--seconds", type=float, default=6.0, metavar="S", help="measured in each run (%(default)s)")
    how.add_argument("--warmup", type=float, default=2.0, metavar="S", help="before that (%(default)s)")
    written = parser.add_argument_group("what is written")
    written.add_argument("--json", type=Path, metavar="FILE", help="all figures, every run of them")
    written.add_argument("--plot", type=Path, metavar="FILE.png", help="a picture")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
