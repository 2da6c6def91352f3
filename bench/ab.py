"""Runners, interpreters and other loaders side by side: `zephon-ft bench` of this checkout, with ``--peers``.

The peers are in peers/, each in an environment of its own that peers/install makes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import common  # noqa: F401  (puts the checkout on the path)

sys.path.append(str(Path(__file__).resolve().parent / "peers"))

from zephon_ft.ab.options import add_options
from zephon_ft.ab.run import run
from zephon_ft.ab.sides import Side
from zephon_ft.errors import ConfigError, ZephonError

FUNCTIONS = {"ours": ("ours", None), "own": ("own", False), "scaled": ("own", True)}


def peers(names: str, functions: str) -> list[Side]:
    """The sides of some peers with each kind of functions, see `FUNCTIONS`: ours, their own, their own with scaled
    decoding.

    Raises:
        ConfigError: an unknown peer, or one whose environment is not there.
    """
    import sides

    try:
        chosen = sides.choose(names)
    except ValueError as error:
        raise ConfigError(f"--peers: {error}") from error
    made = []
    for peer in chosen:
        python = sides.python_of(peer)
        if not python.exists():
            raise ConfigError(f"--peers: {peer.name} is not installed ({python} is missing); run bench/peers/install")
        command = (str(python), str(sides.FOLDER / peer.script))
        for kind in functions.split(","):
            if kind not in FUNCTIONS:
                raise ConfigError(f"--functions: {kind!r} is none of {', '.join(FUNCTIONS)}")
            decode, scaled = FUNCTIONS[kind]
            name = f"{peer.name} {kind}"
            made.append(Side(name=name, command=command, runner=peer.runner, decode=decode, scaled_decode=scaled))
    return made


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add_options(parser)
    parser.add_argument("--peers", default="", metavar="NAMES", help="e.g. zephon,grain; all")
    parser.add_argument(
        "--functions",
        default="ours,own",
        metavar="KINDS",
        help="peers with ours, with their own documented path, and with that and PIL's scaled decoding: "
        "of ours, own, scaled (%(default)s)",
    )
    options = parser.parse_args()
    try:
        return run(options, peers(options.peers, options.functions) if options.peers else ())
    except ZephonError as error:
        if options.traceback:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
