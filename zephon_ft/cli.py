"""The command line: `zephon-ft demo`.

Errors of the package are one line and exit status 2; a loss that training did not bring down is status 1. Nothing heavy
is imported before it is known what to do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from zephon_ft import __version__
from zephon_ft.errors import PipelineError, ZephonError, is_data_error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return _demo(options)
    except ZephonError as error:
        if options.traceback:
            raise
        print(f"error: {' '.join(str(error).split())}{_hint(error, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def _demo(options: argparse.Namespace) -> int:
    from zephon_ft.demo.recipe import Recipe
    from zephon_ft.demo.run import Demo, run

    recipe = Recipe(
        lanes=options.lanes,
        seed=options.seed,
        batch=options.batch,
        max_length=options.max_length,
        image_tokens=options.image_tokens,
        on_error=options.on_error,
    )
    return run(
        Demo(
            data=options.data,
            tokenizer=options.tokenizer,
            steps=options.train or options.steps,
            train=bool(options.train),
            recipe=recipe,
            runner=options.runner,
            workers=options.workers,
            out=options.out,
        )
    )


def _hint(error: ZephonError, options: argparse.Namespace) -> str:
    if isinstance(error, PipelineError) and error.__cause__ is not None and is_data_error(error.__cause__):
        return "; --on-error skip goes on without such rows" if options.on_error == "raise" else ""
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zephon-ft", description="Packed vision-language batches, the same bytes for any number of workers."
    )
    parser.add_argument("--version", action="version", version=f"zephon-ft {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="stream a data set, or train a tiny model on it",
        description="Stream packed vision-language batches of the embedded data set (or of your own), print digests "
        "and speed, and draw the first batch.",
    )
    data = demo.add_argument_group("data")
    data.add_argument(
        "--data",
        metavar="PATH",
        help="your own Parquet, JSONL or tar: a file, folder, glob or URL; default: coloured shapes",
    )
    data.add_argument("--tokenizer", metavar="PATH", help="a tokenizer.json, its folder, or a hub id in the cache")
    data.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="a bad row or image: stop (default), or count and go on",
    )
    batches = demo.add_argument_group("batches")
    batches.add_argument("--lanes", type=_positive, default=8, metavar="N", help="logical streams (%(default)s)")
    batches.add_argument("--batch", type=_positive, default=4, metavar="N", help="rows in a batch (%(default)s)")
    batches.add_argument(
        "--max-length", type=_positive, default=1024, metavar="N", help="tokens in a row (%(default)s)"
    )
    batches.add_argument(
        "--image-tokens", type=_positive, default=256, metavar="N", help="tokens of an image, at most (%(default)s)"
    )
    batches.add_argument(
        "--seed", type=int, default=42, metavar="N", help="of the order and of the model (%(default)s)"
    )
    running = demo.add_argument_group("running (none of these changes a byte)")
    running.add_argument(
        "--runner", choices=("auto", "thread", "inline"), default="auto", help="where work is done (%(default)s)"
    )
    running.add_argument("--workers", type=_positive, metavar="N", help="worker threads (the cores there are)")
    what = demo.add_argument_group("what to do")
    what.add_argument("--steps", type=_positive, default=300, metavar="N", help="batches to stream (%(default)s)")
    what.add_argument(
        "--train",
        type=_positive,
        metavar="N",
        help="train a tiny model on N batches instead (100 take about half a minute); fails if the loss does not fall",
    )
    what.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder for the picture (here)")
    what.add_argument("--traceback", action="store_true", help="show where an error came from")
    return parser


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value
