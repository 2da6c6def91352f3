"""The command line: `zephon-ft demo`, `verify`, `index`, `doctor` and `bench`.

Errors of the package are one line and exit status 2; a loss that training did not bring down, bytes that differ, or an
environment that is broken are status 1. Nothing heavy is imported before it is known what to do.
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
        return options.run(options)
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


def _verify(options: argparse.Namespace) -> int:
    from zephon_ft.verify.run import Verify, run

    return run(
        Verify(
            recipe=options.recipe,
            worlds=options.worlds,
            threads=options.threads,
            cuts=options.cuts,
            steps=options.steps,
            out=options.out,
        )
    )


def _index(options: argparse.Namespace) -> int:
    from zephon_ft.indexing import index
    from zephon_ft.verify.source import find

    make, what = find(options.recipe)
    pipeline, done = make(), 0
    rows = sum(shard.rows for dataset in pipeline.source.datasets for shard in dataset.shards)

    def progress(count: int) -> None:
        nonlocal done
        done += count
        if sys.stdout.isatty():
            print(f"\r{done:,} of {rows:,} rows", end="", flush=True)

    files = index(pipeline, progress)
    print(f"{chr(13) if sys.stdout.isatty() else ''}{what}: {files} files indexed, {done:,} of {rows:,} rows read")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from zephon_ft.doctor.run import run

    return run(options.modules, options.json)


def _bench(options: argparse.Namespace) -> int:
    from zephon_ft.ab.run import run

    return run(options)


def _hint(error: ZephonError, options: argparse.Namespace) -> str:
    if isinstance(error, PipelineError) and error.__cause__ is not None and is_data_error(error.__cause__):
        skips = getattr(options, "on_error", "")
        return "; --on-error skip goes on without such rows" if skips == "raise" else ""
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
        "--runner",
        choices=("auto", "thread", "process", "inline"),
        default="auto",
        help="where work is done (%(default)s)",
    )
    running.add_argument(
        "--workers", type=_positive, metavar="N", help="worker threads or processes (the cores there are)"
    )
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
    demo.set_defaults(run=_demo)
    _add_verify(commands)
    _add_index(commands)
    _add_doctor(commands)
    _add_bench(commands)
    return parser


def _add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    verify = commands.add_parser(
        "verify",
        help="check that a pipeline's bytes depend on nothing but its recipe",
        description="Run a pipeline straight, then stopped and resumed at other numbers of ranks and threads, compare "
        "every byte, and run its functions twice and in another order. On CPU, in one process; nothing is written but "
        "the picture.",
    )
    verify.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE-OR-DATA",
        help="module:function or path.py:function that returns a Pipeline, or your own data, read as the demo reads "
        "it; default: coloured shapes",
    )
    verify.add_argument("--worlds", type=_counts, metavar="N,N", help="numbers of ranks (1,2,4,8 as the lanes allow)")
    verify.add_argument(
        "--threads", type=_counts, default=(1, 3, 8), metavar="N,N", help="worker threads of a rank (1,3,8)"
    )
    verify.add_argument("--cuts", type=_positive, default=3, metavar="N", help="stops in each run (%(default)s)")
    verify.add_argument("--steps", type=_positive, default=16, metavar="N", help="optimizer steps (%(default)s)")
    verify.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder for the picture (here)")
    verify.add_argument("--traceback", action="store_true", help="show where an error came from")
    verify.set_defaults(run=_verify)


def _add_index(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    index = commands.add_parser(
        "index",
        help="write token counts and image sizes of every row beside the data",
        description="Write the lengths of all rows beside the data (or to the cache folder), so that planning and "
        "replay read no payload. The index is used where it fits the data and the operators; it changes no byte.",
    )
    index.add_argument(
        "recipe", metavar="RECIPE-OR-DATA", help="module:function or path.py:function that returns a Pipeline, or data"
    )
    index.add_argument("--traceback", action="store_true", help="show where an error came from")
    index.set_defaults(run=_index)


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="what this environment is, what is broken or slow in it, and the command that fixes it",
        description="Report on the interpreter and its GIL, cores and limits, and packages, with a command for each "
        "thing that is broken (exit status 1) or slow (0). Changes nothing.",
    )
    doctor.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="look also at this module: whether it imports, and whether it turns the GIL on",
    )
    doctor.add_argument("--json", action="store_true", help="print facts and findings as JSON")
    doctor.add_argument("--traceback", action="store_true", help="show where an error came from")
    doctor.set_defaults(run=_doctor)


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from zephon_ft.ab.options import add_options

    bench = commands.add_parser(
        "bench",
        help="runners and interpreters side by side: speed, CPU, memory, on photographs or your own data",
        description="Run the same job under every runner and interpreter, in turn and in processes of their own, after "
        "a check that all deliver the same. Exit status 1 where they do not.",
    )
    add_options(bench)
    bench.set_defaults(run=_bench)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value
