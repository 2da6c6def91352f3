"""What the adapters share, so that each shows only how its own loader is used.

Reading rows by number, the work functions of zephon_ft (made once per worker thread or process), PIL's way for peers
that decode by themselves, a best-fit packer for loaders that have none, the collate function, and the facts of a check.

A sample is a dict: `row` (its number in the data), in ``"fetch"`` `pixels` ((3, H, W) or (H, W, 3) uint8, as the
decoder makes them), else `input_ids` and `labels` (n,) int32, and in ``"full"`` `patches` (rows, 588) uint8 and
`grid` (images, 3) int64. A batch is what `collate`
makes of packed rows. Shared code is as quick as we can make it: what differs between peers is the loader.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the checkout's zephon_ft, not installed here
for pool in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):  # one thread inside each worker
    os.environ.setdefault(pool, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from zephon_ft.ab.facts import Facts, unpatchify  # noqa: E402
from zephon_ft.ab.functions import Functions  # noqa: E402
from zephon_ft.ab.job import Job, Request  # noqa: E402
from zephon_ft.ab.measure import serve  # noqa: E402
from zephon_ft.ab.recipe import geometry, reading  # noqa: E402
from zephon_ft.vision.kind import ImageKind  # noqa: E402

Sample = dict[str, Any]
Batch = dict[str, Any]
Size = tuple[int, int]  # width, height
Decode = Callable[[bytes, Size], np.ndarray]  # RGB uint8 of that size, (H, W, 3) or (3, H, W)

OPEN_BINS = 32  # rows open at the same time, as in zephon_ft's `pack`
GROUPS_KEPT = 4  # row groups in memory, per process
ROW = "row number"  # key of a row's number among its fields


def columns(job: Job) -> list[str]:
    """Names of the columns that the job needs."""
    how = reading(job)
    return [*(how.images[:1] if job.mode != "text" else ()), *(how.text if job.mode != "fetch" else ())]


class Rows:
    """Rows of a Parquet file by number: a sequence. Row groups are read whole, once where the order allows.

    Shared by threads; in another process it opens the file anew.
    """

    def __init__(self, job: Job) -> None:
        import pyarrow.parquet as pq

        if not job.data.endswith(".parquet"):
            sys.exit(f"{job.data}: the adapters of other loaders read one Parquet file")
        self._path = job.data
        names = columns(job)
        self._large = [name for name in names if name in reading(job).images]
        self._small = [name for name in names if name not in self._large]
        file = pq.ParquetFile(self._path)
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        self._starts = np.cumsum([0, *sizes])
        self._length = min(int(self._starts[-1]), job.rows or sys.maxsize)
        self._open()

    def _open(self) -> None:
        self._file: Any = None
        self._groups: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("_path", "_large", "_small", "_starts", "_length")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __deepcopy__(self, memo: dict[int, Any]) -> Rows:
        """Itself: loaders that copy their pipeline for every thread share the row groups all the same."""
        return self

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> dict[str, Any]:
        """`ROW`: its number, and the columns that the job needs, as the data have them."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        place = row - int(self._starts[number])
        with self._lock:
            group = self._groups.get(number) or self._read(number)
            self._groups.move_to_end(number)
        fields = {name: group[name][place] for name in self._small}
        for name in self._large:
            fields[name] = group[name][place].as_py()  # copied only now, and only this row
        fields[ROW] = row
        return fields

    def _read(self, number: int) -> dict[str, Any]:
        import pyarrow.parquet as pq

        if self._file is None:
            self._file = pq.ParquetFile(self._path, memory_map=True)
        table = self._file.read_row_group(number, columns=self._large + self._small, use_threads=False)
        group: dict[str, Any] = {name: table.column(name).combine_chunks() for name in self._large}
        group.update({name: table.column(name).to_pylist() for name in self._small})
        self._groups[number] = group
        while len(self._groups) > GROUPS_KEPT:
            self._groups.popitem(last=False)
        return group


class Work:
    """The work functions of one worker: a row in, a sample out.

    Args:
        job: the job.
        decode: the peer's own decoding, see `Decode`; None takes zephon_ft's functions.
    """

    def __init__(self, job: Job, decode: Decode | None) -> None:
        self._functions, self._decode = Functions(job), decode
        self._kind = ImageKind(geometry(job))
        self.run: Callable[[int, dict[str, Any]], Sample] = getattr(self, f"_{job.mode}")

    def _fetch(self, row: int, fields: dict[str, Any]) -> Sample:
        if self._decode is None:
            return {"row": row, "pixels": self._functions.fetch(fields)}
        media = self._functions.record(fields).media[0]
        return {"row": row, "pixels": self._decode(media.data, self._size(media))}

    def _full(self, row: int, fields: dict[str, Any]) -> Sample:
        if self._decode is None:
            sample = self._functions.full(fields)
            ids, labels, images = sample.input_ids, sample.labels, sample.images
        else:
            record = self._functions.record(fields)
            ids, labels = record.fields["input_ids"], record.fields["labels"]
            images = [self._patches(media) for media in record.media]
        patches = [part for part, _ in images]
        return {
            "row": row,
            "input_ids": ids,
            "labels": labels,
            "patches": patches[0] if len(patches) == 1 else np.concatenate(patches),
            "grid": np.array([grid for _, grid in images], np.int64),
        }

    def _text(self, row: int, fields: dict[str, Any]) -> Sample:
        ids = self._functions.text(fields)
        return {"row": row, "input_ids": ids, "labels": ids}

    def _size(self, media: Any) -> Size:
        plan = self._kind.plan(media)
        return plan.width, plan.height

    def _patches(self, media: Any) -> tuple[np.ndarray, tuple[int, int, int]]:
        assert self._decode is not None
        plan = self._kind.plan(media)
        out = np.empty((plan.rows, *self._kind.row_shape), np.uint8)
        self._kind.geometry.patchify(channels_last(self._decode(media.data, self._size(media))), plan, out)
        return out, plan.grid


class Transform:
    """``transform(fields) -> sample`` for any worker: each thread makes its `Work` on first use; can be pickled.

    Args:
        job: the job.
        decode: see `Work`; a module-level function or a partial of one.
    """

    def __init__(self, job: Job, decode: Decode | None) -> None:
        self._arguments = (job, decode)
        self.images = frozenset(reading(job).images)
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:  # also of a copy: every worker makes its own functions
        return type(self), self._arguments

    def __call__(self, fields: dict[str, Any]) -> Sample:
        work = getattr(self._local, "work", None)
        if work is None:
            work = self._local.work = Work(*self._arguments)
        return work.run(fields.pop(ROW, -1), fields)


class ReadAndTransform:
    """``f(row number) -> sample``: reading included, for loaders whose workers do both. Also a map-style data set."""

    def __init__(self, job: Job, decode: Decode | None) -> None:
        self.rows, self.transform = Rows(job), Transform(job, decode)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Sample:
        return self.transform(self.rows[row])

    __call__ = __getitem__


def pil_decode(data: bytes, size: Size, *, scaled: bool = False) -> np.ndarray:
    """What torchvision's transforms and most data loading code do with PIL: open, convert to RGB, resize bicubic.

    `scaled` lets libjpeg decode at a fraction of the size first (PIL's `draft`).
    """
    from PIL import Image

    image = Image.open(BytesIO(data))
    if scaled:
        image.draft("RGB", size)
    return np.asarray(image.convert("RGB").resize(size, Image.Resampling.BICUBIC))


def torchvision_decode(data: bytes, size: Size) -> np.ndarray:
    """torchvision's own: decode to a tensor, then the antialiased bicubic resize of its transforms (v2) on uint8.

    2.5 times as fast as its transforms on PIL images, and the same pixels but for a rounding.
    """
    import torch
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms import v2

    image = decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)
    bicubic = v2.InterpolationMode.BICUBIC
    return v2.functional.resize(image, [size[1], size[0]], interpolation=bicubic, antialias=True).numpy()


def torch_decode(job: Job) -> Decode:
    """What loaders of PyTorch's family decode with: torchvision; PIL where scaled decoding is wanted."""
    return partial(pil_decode, scaled=True) if job.scaled_decode else torchvision_decode


def channels_last(pixels: np.ndarray) -> np.ndarray:
    """(H, W, 3) from either layout, without a copy."""
    return pixels if pixels.shape[-1] == 3 else pixels.transpose(1, 2, 0)


def order(job: Job, part: int = 0, parts: int = 1) -> Iterator[int]:
    """Row numbers in file order, as often as the job says; `part` of `parts` takes every `parts`-th row.

    File order is the cheapest there is to read; zephon_ft's own side shuffles.
    """
    length = len(Rows(job))
    number = 0
    while job.passes is None or number < job.passes:
        yield from range(part, length, parts)
        number += 1


class BestFitPacker:
    """Greedy best-fit packing with `OPEN_BINS` open rows, the code that zephon_ft's `pack` uses."""

    def __init__(self, job: Job) -> None:
        from zephon_ft.ops.bins import BestFit, Budgets

        self._length = job.pack_length
        self._bins = BestFit(Budgets(job.pack_length, open_bins=OPEN_BINS))

    def add(self, sample: Sample) -> Sequence[list[Sample]]:
        """The rows that this sample closes. One longer than a row is left out."""
        tokens = len(sample["input_ids"])
        return self._bins.place(sample, tokens) if tokens <= self._length else ()

    def end(self) -> list[list[Sample]]:
        """All rows that are still open."""
        return self._bins.drain()


def packed_batches(samples: Iterable[Sample], job: Job) -> Iterator[Batch]:
    """Pack and collate a stream of samples: the shortest fair code for loaders that cannot pack."""
    packer, rows = BestFitPacker(job), []  # type: BestFitPacker, list[list[Sample]]
    for sample in samples:
        rows += packer.add(sample)
        while len(rows) >= job.batch:
            yield collate(rows[: job.batch], job)
            del rows[: job.batch]
    rows += packer.end()
    for start in range(0, len(rows), job.batch):
        yield collate(rows[start : start + job.batch], job)


def collate(rows: Sequence[Sequence[Sample]], job: Job) -> Batch:
    """Packed rows to arrays.

    Returns:
        `input_ids`, `labels`, `positions` (rows, pack_length) int32, positions from 0 in every document; `lengths`
        (documents,) and `documents` (rows,) int64; `rows` (documents,): where they came from; in ``"full"``
        `pixel_values` (patches, 588) uint8 and `image_grid_thw` (images, 3) int64.
    """
    shape = (len(rows), job.pack_length)
    ids, positions = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    labels = np.full(shape, -100, np.int32)
    for number, row in enumerate(rows):
        start = 0
        for sample in row:
            stop = start + len(sample["input_ids"])
            ids[number, start:stop], labels[number, start:stop] = sample["input_ids"], sample["labels"]
            positions[number, start:stop] = np.arange(stop - start, dtype=np.int32)
            start = stop
    return {"input_ids": ids, "labels": labels, "positions": positions, **side_arrays(rows)}


def side_arrays(rows: Sequence[Sequence[Sample]]) -> Batch:
    """What of a batch is not a packed row: see `collate`."""
    flat = [sample for row in rows for sample in row]
    batch = {
        "lengths": np.array([len(sample["input_ids"]) for sample in flat], np.int64),
        "documents": np.array([len(row) for row in rows], np.int64),
        "rows": np.array([sample["row"] for sample in flat], np.int64),
    }
    if flat and "patches" in flat[0]:
        batch["pixel_values"] = np.concatenate([sample["patches"] for sample in flat])
        batch["image_grid_thw"] = np.concatenate([sample["grid"] for sample in flat])
    return batch


def count(item: Any) -> tuple[int, int, int]:
    """(samples, images, tokens) of a sample of ``"fetch"`` or of a batch."""
    if "pixels" in item:
        return 1, 1, 0
    images = item.get("image_grid_thw")
    return len(item["lengths"]), 0 if images is None else len(images), int(item["lengths"].sum())


def tell(item: Any, facts: Facts) -> None:
    """Everything that an item holds, to `facts`."""
    if "pixels" in item:
        facts.sample()
        facts.image(int(item["row"]), channels_last(np.asarray(item["pixels"])))
        return
    batch = {name: np.asarray(value) for name, value in item.items()}
    lengths = iter(batch["lengths"].tolist())
    for number, documents in enumerate(batch["documents"].tolist()):
        start = 0
        for _ in range(documents):
            stop = start + next(lengths)
            if batch["positions"][number, start] != 0 or batch["positions"][number, stop - 1] != stop - start - 1:
                raise ValueError(f"packed row {number}: positions of {start} to {stop} do not run from 0")
            facts.document(batch["input_ids"][number, start:stop], batch["labels"][number, start:stop])
            start = stop
    first = 0
    for row, grid in zip(batch["rows"].tolist(), batch.get("image_grid_thw", ()), strict=False):
        patches = int(grid.prod())
        facts.image(row, unpatchify(batch["pixel_values"][first : first + patches], tuple(grid)))
        first += patches


def main(
    stream: Callable[[Request, Decode | None], Iterator[Any]],
    *,
    own: Callable[[Job], Decode],
    packages: Sequence[str],
    note: str,
) -> None:
    """Run an adapter; see `zephon_ft.ab.measure.serve`.

    Args:
        stream: ``stream(request, decode)`` starts the job; `decode` is None where ours is wanted.
        own: the peer's own decoding; ``Job.scaled_decode`` lets it decode at a fraction of the size, where it can.
        packages: distributions to name.
        note: what the adapter had to add.
    """

    def decode(request: Request) -> Decode | None:
        return own(request.job) if request.decode == "own" and request.job.mode != "text" else None

    def start(request: Request) -> Iterator[Any]:
        return stream(request, decode(request))

    def check(request: Request, facts: Facts) -> None:
        for item in start(request):
            tell(item, facts)

    asked = _asked()
    work = Work(asked.job, decode(asked))  # what is imported and made once is so before the clock starts, as for ours
    work.run(0, Rows(asked.job)[0])
    serve(start, count, check, packages=packages, note=note)


def _asked() -> Request:
    """What the command line asks for; `serve` reads it again and reports what is wrong with it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--job")
    given = parser.parse_known_args()[0].job
    return (
        Request.from_json(given) if given else sys.exit("usage: SCRIPT --job REQUEST; see README.md beside this file")
    )
