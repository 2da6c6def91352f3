"""What `zephon-ft demo` does, step by step: open the data, stream or train, and say what came out."""

from __future__ import annotations

import math
import platform
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from zephon_ft.demo.digests import Digests
from zephon_ft.demo.progress import Progress
from zephon_ft.demo.reading import Reading, understand
from zephon_ft.demo.recipe import EMBEDDED, Recipe, demo_pipeline
from zephon_ft.errors import ConfigError, DataError
from zephon_ft.text.tokenizer import LoadedTokenizer, demo_tokenizer_path, load_tokenizer

if TYPE_CHECKING:
    from zephon_ft.batch import Batch
    from zephon_ft.demo.train import Trainer
    from zephon_ft.io.dataset import Dataset
    from zephon_ft.pipeline import Pipeline

IMAGE_TOKEN = "<|image_pad|>"
PICTURE = "zephon-ft-demo.png"
_SHORTEST = 16  # tokens of a record, for how many passes over small data are enough


@dataclass(frozen=True, slots=True)
class Demo:
    """What to show.

    Attributes:
        data: the user's own data (see `Dataset.from_path`), None for the embedded data set.
        tokenizer: see `load_tokenizer`; None is the one that is shipped.
        steps: batches to stream.
        train: train a tiny model on each of them.
        recipe: what decides the batches.
        runner, workers: see `Options`; they change no byte.
        out: folder for the picture, None for no picture.
    """

    data: str | None = None
    tokenizer: str | None = None
    steps: int = 300
    train: bool = False
    recipe: Recipe = field(default_factory=Recipe)
    runner: str = "auto"
    workers: int | None = None
    out: Path | None = None


def run(demo: Demo) -> int:
    """Run the demo; prints to stdout, progress to stderr.

    Returns:
        exit status: 0, or 1 where training did not bring the loss down to `TARGET`.

    Raises:
        ZephonError: data, tokenizer or options that cannot be used.
    """
    tokenizer = load_tokenizer(demo_tokenizer_path() if demo.tokenizer is None else demo.tokenizer)
    dataset, reading = _open(demo)
    pipeline = demo_pipeline(dataset, reading, tokenizer, demo.recipe, epochs=_epochs(demo, dataset))
    pipeline = pipeline.options(runner=demo.runner, **({} if demo.workers is None else {"workers": demo.workers}))
    pipeline.plan()
    what = demo.data or "coloured shapes, made once"
    print(f"data        {what}: {dataset.rows:,} rows of {dataset.format} in {len(dataset.shards)} file(s)")
    print(f"reading     {reading.describe()}")
    print(f"tokenizer   {tokenizer.source if demo.tokenizer else 'the one that is shipped'}")
    print(f"python      {_python()}")
    print(f"loader      {_loader(pipeline, demo)}", flush=True)
    image_token = tokenizer.token_id(IMAGE_TOKEN) if reading.images else -1
    trainer = _trainer(tokenizer, image_token, demo.recipe.seed) if demo.train else None
    digests, counts = Digests(), Counter[str]()
    progress = Progress(demo.steps)
    picture = None
    try:
        for batch in _batches(pipeline, demo.steps, counts):
            digests.add(batch)
            if picture is None and demo.out is not None:
                picture = _picture(batch, tokenizer, image_token, demo.out)
            loss = trainer.step(batch) if trainer else None
            progress.add(batch, "" if loss is None else f"loss {loss:.2f}")
    finally:
        progress.close()
    totals = progress.totals
    print(f"streamed    {totals.batches} batches of {demo.recipe.batch} x {demo.recipe.max_length} tokens in ", end="")
    print(f"{totals.seconds:.1f} s (the first after {totals.first:.2f} s)")
    print(f"            {totals.rates()}")
    print(f"left out    {_words(counts)}")
    print(f"digests     of the first {digests.batches} batches")
    print(f"  tokens    {digests.layout}  (the same on every machine)")
    if reading.images:
        print(f"  pixels    {digests.pixels}  ({_decoder()})")
    if picture is not None:
        print(f"picture     {picture}")
    return _verdict(trainer) if trainer else 0


def _open(demo: Demo) -> tuple[Dataset, Reading]:
    from zephon_ft.demo.data import demo_dataset
    from zephon_ft.io.dataset import Dataset

    if demo.data is None:
        return demo_dataset(), EMBEDDED
    dataset = Dataset.from_path("data", demo.data)
    reading = understand(dataset)
    return Dataset.from_path("data", demo.data, columns=reading.columns), reading


def _epochs(demo: Demo, dataset: Dataset) -> int | None:
    """Passes over the user's data that are enough for all steps. Not endless: if no row fits, that is found."""
    if demo.data is None:
        return None
    records = demo.steps * demo.recipe.batch * demo.recipe.max_length // _SHORTEST
    return math.ceil(records / max(1, dataset.rows)) + 1


def _batches(pipeline: Pipeline, steps: int, counts: Counter[str]) -> Iterator[Batch]:
    """`steps` batches, over as many iterations as that takes; what was left out is added to `counts`."""
    done = 0
    while done < steps:
        with iter(pipeline) as stream:
            try:
                for batch in stream:
                    done += 1
                    yield batch
                    if done == steps:
                        break
            except DataError as error:  # an iteration without a single step; bad rows are PipelineErrors
                raise DataError(f"{error} Left out: {_words(stream.stats()['counts'])}") from error
            finally:
                counts.update(stream.stats()["counts"])


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {n:,}" for name, n in sorted(counts.items())) or "nothing"


def _trainer(tokenizer: LoadedTokenizer, image_token: int, seed: int) -> Trainer:
    from zephon_ft.demo.train import Trainer

    return Trainer(tokenizer.clone().get_vocab_size(), image_token, seed)


def _picture(batch: Batch, tokenizer: LoadedTokenizer, image_token: int, out: Path) -> Path:
    from zephon_ft.demo.picture import draw_batch

    decoder = tokenizer.clone()
    path = out / PICTURE
    image = draw_batch(batch, lambda ids: decoder.decode(ids, skip_special_tokens=False), image_token)
    try:
        out.mkdir(parents=True, exist_ok=True)
        image.save(path)
    except OSError as error:
        raise ConfigError(f"--out: the picture cannot be written to {path}: {error.strerror or error}") from error
    return path


def _python() -> str:
    from zephon_ft.runners.gil import gil_enabled

    build = "free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else "standard"
    gil = "GIL on" if gil_enabled() else "GIL off"
    return f"{platform.python_implementation()} {platform.python_version()} ({build}, {gil}), {sys.platform}"


def _loader(pipeline: Pipeline, demo: Demo) -> str:
    from zephon_ft.engine.options import Options

    workers = Options(workers=demo.workers).resolved_workers()
    how = "on the consumer's thread" if demo.runner == "inline" else f"{workers} worker thread(s)"
    return f"{how}, {pipeline.plan().lanes} lanes"


def _decoder() -> str:
    from zephon_ft.vision.decode import decoder_build

    build = decoder_build()
    codecs = ", ".join(f"{name} {build[name]}" for name in ("libjpeg_turbo", "zlib") if build.get(name))
    return f"{build['provider']} {build['version']}, {codecs}"


def _verdict(trainer: Trainer) -> int:
    from zephon_ft.demo.train import LEAST_STEPS, TARGET

    if not trainer.losses:
        print("loss        no label to learn from")
        return 1
    first, last = trainer.fifths()
    ratio = last / first
    judged = len(trainer.losses) >= LEAST_STEPS
    aim = f"at most {TARGET}" if judged else f"not judged under {LEAST_STEPS} steps"
    print(f"loss        {first:.3f} in the first fifth, {last:.3f} in the last: ratio {ratio:.2f} ({aim})")
    return int(judged and ratio > TARGET)
