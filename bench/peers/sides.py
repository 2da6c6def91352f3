"""The peers: which loader, in which environment, under which interpreter, by which script and runner.

One table for everybody: `install` makes an environment for each folder named here, `bench/ab.py` starts
``FOLDER/ENVIRONMENT/bin/python SCRIPT --job '{"runner": RUNNER, ...}'``. Nothing here imports a peer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

# What the shared functions of zephon_ft need in every environment (torch decodes and resizes), and what pixels.py
# compares. PIL is installed apart, see `install`.
SHARED = (
    "torch==2.15.0",
    "numpy==2.5.5",
    "pyarrow==26.0.1",
    "tokenizers==0.23.3",
    "fsspec==2026.9.0",
    "jinja2==3.1.6",
    "cloudpickle==3.1.3",
    "kornia-rs==0.2.0",
    "leanjpeg-simple==0.1.0",
)
TORCHVISION = ("torchvision==0.29.2",)


@dataclass(frozen=True, slots=True)
class Side:
    """One peer under one interpreter.

    Attributes:
        name: how it is chosen; ``PEER`` alone chooses all sides of a peer.
        peer: the library.
        environment: its folder, below the one that `environments()` names.
        python: the interpreter, as uv names it.
        script: its adapter, in this folder.
        runner: "thread" or "process"; goes into the job.
        packages: pinned requirements, beside `SHARED`.
    """

    name: str
    peer: str
    environment: str
    python: str
    script: str
    runner: str
    packages: tuple[str, ...]


SIDES = (
    Side("zephon-threads", "zephon", "zephon-3.14t", "3.14t", "zephon_peer.py", "thread", ("zephon==0.2.0",)),
    Side("zephon-processes", "zephon", "zephon-3.14", "3.14", "zephon_peer.py", "process", ("zephon==0.2.0",)),
    Side(
        "grain-threads", "grain", "grain-3.14t", "3.14t", "grain_peer.py", "thread", ("grain-free-threading==0.2.18",)
    ),
    Side("grain-processes", "grain", "grain-3.14", "3.14", "grain_peer.py", "process", ("grain==0.2.18",)),
    Side("spdl", "spdl", "spdl-3.14t", "3.14t", "spdl_peer.py", "thread", ("spdl-core==0.8.0", "spdl-io==0.8.0")),
    Side("dataloader", "dataloader", "torch-3.14", "3.14", "dataloader_peer.py", "process", TORCHVISION),
    Side(
        "torchdata",
        "torchdata",
        "torchdata-3.14t",
        "3.14t",
        "torchdata_peer.py",
        "thread",
        ("torchdata==0.11.0", *TORCHVISION),
    ),
)


def environments() -> Path:
    """Where the environments are: ``$ZEPHON_FT_PEERS``, else a folder of the user's cache."""
    given = os.environ.get("ZEPHON_FT_PEERS")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "zephon-ft" / "peers"


def python_of(side: Side) -> Path:
    """The interpreter of a side's environment; it is there after `install`."""
    return environments() / side.environment / "bin" / "python"


def choose(names: str) -> list[Side]:
    """Sides by comma-separated names of sides or peers; "all" takes every one.

    Raises:
        ValueError: a name that is neither.
    """
    chosen: list[Side] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        found = [side for side in SIDES if name in ("all", side.name, side.peer)]
        if not found:
            known = ", ".join(dict.fromkeys(word for side in SIDES for word in (side.peer, side.name)))
            raise ValueError(f"no peer {name!r}; there are: all, {known}")
        chosen += [side for side in found if side not in chosen]
    return chosen


def main() -> None:
    """Print the environments for `install`: folder, interpreter, requirements; one a line."""
    for side in {side.environment: side for side in SIDES}.values():
        print(side.environment, side.python, *SHARED, *side.packages)


if __name__ == "__main__":
    main()
