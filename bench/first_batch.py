"""Time from the start of iteration to the first batch of the photograph job, after imports, each in a fresh process.

With and without the cost index (`zephon-ft index`), page cache warm. With packing, a lane's first batch needs as many
rows as fill its bins, whatever the lanes; the index tells their lengths, so that no payload is read for deciding.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import common


def run(data: str, tokenizer: str, lanes: int, indexed: bool) -> None:
    """One measurement; prints it. Everything that the job uses is imported before the clock starts."""
    import pyarrow.parquet  # noqa: F401
    import torch  # noqa: F401

    import zephon_ft.ops.tokenize_chat  # noqa: F401
    from zephon_ft.ab.job import Job
    from zephon_ft.ab.recipe import pipeline
    from zephon_ft.indexing import index
    from zephon_ft.vision.decode import Decoder

    Decoder()
    job = Job(mode="full", data=data, tokenizer=tokenizer, workers=2, lanes=lanes)
    made = pipeline(job).options(runner="thread", workers=2, cost_index=indexed)
    if indexed:
        index(made)
    began = time.perf_counter()
    stream = iter(made)
    next(stream)
    seconds = time.perf_counter() - began
    stream.close()
    print(json.dumps({"seconds": seconds}))


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.add_argument("photos", type=Path, help="a file of bench/photos.py")
    parser.add_argument("--tokenizer", default="", help="a tokenizer.json; default the one that is shipped")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, indexed = Path(folder) / "plain.parquet", Path(folder) / "indexed.parquet"
        for copy in (plain, indexed):  # an index lies beside its data
            shutil.copy(options.photos, copy)
        sides = {
            f"{lanes} lanes{', index built' if path is indexed else ''}": (
                lambda path=path, lanes=lanes: common.child(
                    sys.executable, "first_batch.py", "--run", str(path), options.tokenizer, str(lanes)
                )
            )
            for lanes in (1, 8, 32)
            for path in (plain, indexed)
        }
        report = common.Report("first batch")
        report.begin()
        results = common.interleave(sides, options.repeats)
    for name, runs in results.items():
        target = "< 0.5" if name == "32 lanes, index built" else ""
        seconds = [one["seconds"] for one in runs]
        report.row(name, seconds, "s", target, common.middle(seconds) < 0.5 if target else None)
    report.end(options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], sys.argv[3], int(sys.argv[4]), "indexed" in sys.argv[2])
    else:
        main()
