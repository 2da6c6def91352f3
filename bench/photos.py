"""Make the photograph data set of the benchmarks and print what is in it: `zephon_ft.ab.photographs` as a command.

One photograph and one question with its answer a row, in the Hugging Face layout. The defaults are 600 photographs of
480 to 1,024 pixels on each side. Those of a telephone, 12 megapixels held upright: ``--sides 4032x3024 --orientation 6
--rows 100``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import common

from zephon_ft.ab.photographs import ROW_GROUP, Photographs, describe, write
from zephon_ft.text.tokenizer import demo_tokenizer_path


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.add_argument("out", type=Path, help="the Parquet file to write")
    parser.add_argument("--tokenizer", help="a tokenizer.json; default the one that the package ships")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--row-group", type=int, default=ROW_GROUP)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sides", type=_sides, default={}, metavar="MIN,MAX or WxH", help="pixels; default 480,1024")
    parser.add_argument("--orientation", type=int, choices=range(1, 9), default=1, help="EXIF orientation")
    options = parser.parse_args()
    tokenizer = options.tokenizer or default_tokenizer()
    what = Photographs(rows=options.rows, seed=options.seed, orientation=options.orientation, **options.sides)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write(options.out, what, tokenizer, options.row_group)
    report = common.Report("photos")
    for name, value in describe(options.out, tokenizer).items():
        report.fact(name, value)
    report.begin()
    report.end(options.json)


def default_tokenizer() -> str:
    """The tokenizer that the package ships."""
    return str(demo_tokenizer_path())


def _sides(text: str) -> dict[str, tuple[int, int]]:
    try:
        low, high = map(int, text.replace("x", ",").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither MIN,MAX nor WxH") from None
    return {"size" if "x" in text else "sides": (low, high)}


if __name__ == "__main__":
    main()
