"""Stop on 4 ranks, go on with 2 or with 8: the same batches, the same loss curve.

    python examples/elastic_resume.py

A tiny language model is trained with DistributedDataParallel (gloo, CPU) on packed text of two data sets that it makes
itself. At 4 ranks it runs straight through and saves a checkpoint on the way: model, optimizer and loader side
by side, with torch.distributed.checkpoint. That checkpoint goes on at 2 and at 8 ranks. Every step must see the batches
of the straight run, byte for byte: the exit status is 1 if one step digest differs.

Beside it, the same model on a DataLoader with a DistributedSampler, where each rank packs what it reads and the sampler
is moved to the documents read so far. The picture needs matplotlib (the extra `plots`). It takes one to two minutes on
two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torch.utils.data import Dataset as TorchDataset

from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.distributed import gather
from zephon_ft.step_digest import step_digest
from zephon_ft.text.tokenizer import demo_tokenizer_path, load_tokenizer

STRAIGHT, RESUMED = 4, (2, 8)  # ranks
LANES, ROWS, LENGTH = 8, 2, 128  # lanes, rows of a lane in a step, tokens of a row
SEED = 7
ZEPHON, PLAIN = "zephon_ft", "DataLoader + DistributedSampler"


# -- data ------------------------------------------------------------------------------------------------------


def write_data(folder: Path) -> None:
    """Two data sets of short texts: stories, and sums."""
    draw = random.Random(SEED)
    who = ["The old man", "A child", "My brother", "The teacher", "Every bird", "The last train", "Nobody"]
    does = ["looks at", "opens", "walks along", "talks about", "reads", "is behind", "knows"]
    what = ["the river", "a red book", "the open door", "some bread", "the grey city", "a small light", "his house"]

    def story() -> str:
        hero = draw.choice(who)
        return " ".join(f"{hero} {draw.choice(does)} {draw.choice(what)}." for _ in range(draw.randint(2, 9)))

    def sums() -> str:
        pairs = [(draw.randint(0, 99), draw.randint(0, 99)) for _ in range(draw.randint(2, 9))]
        return "\n".join(f"{a} + {b} = {a + b}" for a, b in pairs)

    for name, make, count in (("stories", story, 6000), ("sums", sums, 2000)):
        lines = (json.dumps({"text": make()}) for _ in range(count))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


# -- the two loaders -------------------------------------------------------------------------------------------


def zephon_pipeline(folder: Path) -> Pipeline:
    """Mixed 3 to 1, tokenized, packed and shuffled on the way. Which ranks there are is found by itself."""
    datasets = [Dataset.from_path(name, folder / f"{name}.jsonl") for name in ("stories", "sums")]
    source = StaticMixtureWorkSource(datasets, {"stories": 3, "sums": 1}, seed=SEED)
    pipeline = Pipeline(source, lanes=LANES, seed=SEED).tokenize(demo_tokenizer_path(), "text", special_tokens="eos")
    return pipeline.pack(LENGTH).shuffle(64).batch(ROWS).options(runner="thread")  # enough for so little, on any Python


def zephon_steps(pipeline: Pipeline) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """This rank's share of each step, and the digest of the whole step."""
    with iter(pipeline) as stream:
        while True:
            batches = [next(stream) for _ in range(pipeline.grad_accumulation)]
            yield [batch.to_training(shift_labels=True) for batch in batches], step_digest(batches)


class PlainLoader(TorchDataset):
    """What one writes without zephon_ft: documents dealt to ranks by a DistributedSampler, packed rank by rank."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        paths = (folder / "stories.jsonl", folder / "sums.jsonl")
        self.texts = [json.loads(line)["text"] for path in paths for line in path.read_text().splitlines()]
        loaded = load_tokenizer(demo_tokenizer_path())
        self.tokenizer, self.eos = loaded.clone(), loaded.token_id(loaded.eos or "")
        self.sampler: DistributedSampler[Any] = DistributedSampler(self, world, rank, shuffle=True, seed=SEED)
        self.world, self.read = world, 0

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> list[int]:
        return [*self.tokenizer.encode(self.texts[index]).ids, self.eos][:LENGTH]

    def state_dict(self) -> dict[str, Any]:
        """Documents that all ranks have read: what is left in half-packed rows is not known to any DataLoader."""
        documents = torch.tensor(self.read)
        dist.all_reduce(documents)
        return {"documents": int(documents)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.read = state["documents"] // self.world

    def rows(self) -> Iterator[list[list[int]]]:
        """Rows of whole documents, filled one after the other."""
        row: list[list[int]] = []
        for document in DataLoader(self, batch_size=None, sampler=list(self.sampler)[self.read :]):
            if sum(map(len, row)) + len(document) > LENGTH:
                yield row
                row = []
            row.append(document)
            self.read += 1

    def steps(self) -> Iterator[tuple[list[dict[str, Any]], str]]:
        """This rank's share of each step, and a digest of the step's rows in any order."""
        rows = self.rows()
        while True:
            taken = list(itertools.islice(rows, LANES * ROWS // self.world))
            shape = (len(taken), LENGTH)
            ids, labels, positions, documents = (torch.full(shape, fill) for fill in (0, -100, 0, -1))
            for i, row in enumerate(taken):
                start = 0
                for number, document in enumerate(row):
                    stop, tokens = start + len(document), torch.tensor(document)
                    ids[i, start:stop], labels[i, start : stop - 1] = tokens, tokens[1:]
                    positions[i, start:stop], documents[i, start:stop] = torch.arange(len(document)), number
                    start = stop
            batch = {"input_ids": ids, "labels": labels, "positions": positions, "document_ids": documents}
            everywhere = sorted(map(str, gather(ids.tolist())))
            yield [{**batch, "num_valid_tokens": int((labels >= 0).sum())}], _sha("".join(everywhere))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# -- training, in each rank's process --------------------------------------------------------------------------


class TinyLM(nn.Module):
    """A causal transformer in which a token sees its own document only."""

    def __init__(self, vocabulary: int = 1536, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(LENGTH, width)
        nn.init.normal_(self.tokens.weight, std=0.05)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """The sum of the losses."""
        documents = batch["document_ids"]
        sees = (documents[:, :, None] == documents[:, None, :]).tril()
        hidden = self.tokens(batch["input_ids"]) + self.places(batch["positions"])
        hidden = self.blocks(hidden, mask=(~sees).repeat_interleave(self.heads, 0))
        logits = hidden @ self.tokens.weight.T
        return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")


class Trainer:
    """Model and optimizer, saved together; `step` does not depend on the number of ranks but for rounding."""

    def __init__(self) -> None:
        torch.manual_seed(SEED)
        self.model = DistributedDataParallel(TinyLM())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def step(self, batches: list[dict[str, Any]]) -> float:
        """One optimizer step over all ranks' batches; returns its loss, the mean over all tokens that count."""
        valid = torch.tensor(float(sum(batch["num_valid_tokens"] for batch in batches)))
        dist.all_reduce(valid)
        total = torch.zeros(())
        for number, batch in enumerate(batches, start=1):
            with contextlib.nullcontext() if number == len(batches) else self.model.no_sync():
                # Gradients are averaged over ranks: times their number it is a sum, over the tokens of all of them.
                loss = self.model(batch) / valid * dist.get_world_size()
                loss.backward()
            total += loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()
        dist.all_reduce(total)
        return total.item() / dist.get_world_size()

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def work(folder: Path, first: int, saved: int, steps: int) -> None:
    """Train from step `first` to `steps` with each loader; save before step `saved`. Rank 0 writes what happened."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for name in (ZEPHON, PLAIN):
        loader = zephon_pipeline(folder) if name == ZEPHON else PlainLoader(folder, rank, world)
        trainer = Trainer()
        app, checkpoint = {"trainer": trainer, "loader": loader}, folder / f"checkpoint of {name}"
        if first:
            dcp.load(app, checkpoint_id=checkpoint)
        stream = zephon_steps(loader) if isinstance(loader, Pipeline) else loader.steps()
        losses, digests = [], []
        for step in range(first, steps):
            if step == saved and not first:
                dcp.save(app, checkpoint_id=checkpoint)
            batches, digest = next(stream)
            digests.append(digest)
            losses.append(trainer.step(batches))
        if rank == 0:
            _result(folder, name, world).write_text(json.dumps({"losses": losses, "digests": digests}))
    dist.destroy_process_group()


def _result(folder: Path, name: str, world: int) -> Path:
    return folder / f"{name} at {world}.json"


# -- the whole ---------------------------------------------------------------------------------------------------


def launch(world: int, folder: Path, first: int, saved: int, steps: int) -> None:
    """Run `work` on `world` processes, as torchrun does."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    arguments = ["--work", str(folder), str(first), str(saved), str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        environment["PYTHON_GIL"] = "0"  # DistributedDataParallel imports triton, which would turn the GIL on
    subprocess.run([*torchrun, __file__, *arguments], check=True, env=environment)


def draw(results: dict[str, dict[int, dict[str, Any]]], saved: int, picture: Path) -> None:
    """Losses over steps, and how far they are from the straight run, for both loaders."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, sharex=True, sharey="row", figsize=(12, 7.5), height_ratios=(2, 1))
    begin = saved // 2  # the first steep steps would flatten what matters
    for (top, bottom), (name, runs) in zip(axes.T, results.items()):
        straight = runs[STRAIGHT]["losses"]
        resumed = range(saved, len(straight))
        top.plot(
            range(begin, len(straight)),
            straight[begin:],
            color="0.78",
            linewidth=5,
            label=f"straight on {STRAIGHT} ranks",
        )
        for world, color, dashes in zip(RESUMED, ("tab:blue", "tab:red"), ("-", (0, (3, 3)))):
            losses, style = runs[world]["losses"], {"color": color, "linestyle": dashes, "linewidth": 1.6}
            top.plot(resumed, losses, label=f"resumed on {world} ranks", **style)
            bottom.plot(resumed, [max(abs(losses[i - saved] - straight[i]), 1e-8) for i in resumed], **style)
        equal, count = sum(_equal(runs, world, saved) for world in RESUMED), len(RESUMED) * len(resumed)
        top.set_title(f"{name}\n{equal} of {count} resumed steps get the batches of the straight run", pad=10)
        top.legend(loc="upper right", frameon=False)
        bottom.set(yscale="log", ylim=(8e-9, 2), xlabel="optimizer step")
        reason = "float rounding (none is drawn at 1e-8)" if equal == count else "other batches"
        for axis in (top, bottom):
            axis.axvline(saved - 0.5, color="0.4", linewidth=1, linestyle=":")
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(labelleft=True)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "color": "0.4"}
        top.annotate("checkpoint", (saved - 0.5, 0.03), xytext=(5, 0), **place)
        bottom.annotate(reason, (saved - 0.5, 0.45), xytext=(5, 0), **place)
    axes[0, 0].set_ylabel("loss")
    axes[1, 0].set_ylabel("difference from\nthe straight run")
    figure.tight_layout()
    figure.savefig(picture, dpi=150)
    plt.close(figure)


def _equal(runs: dict[int, dict[str, Any]], world: int, saved: int) -> int:
    """Steps whose digest is that of the straight run."""
    return sum(a == b for a, b in zip(runs[world]["digests"], runs[STRAIGHT]["digests"][saved:], strict=True))


def main(steps: int, saved: int, picture: Path) -> int:
    """Run everything; returns the exit status."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        for world in (STRAIGHT, *RESUMED):
            first = 0 if world == STRAIGHT else saved
            print(f"{world} ranks: steps {first} to {steps - 1} ...", flush=True)
            launch(world, folder, first, saved, steps)
        worlds = (STRAIGHT, *RESUMED)
        results = {
            name: {world: json.loads(_result(folder, name, world).read_text()) for world in worlds}
            for name in (ZEPHON, PLAIN)
        }
    for name, runs in results.items():
        straight = runs[STRAIGHT]["losses"]
        print(f"\n{name}: loss {straight[0]:.3f} -> {straight[-1]:.3f} on {STRAIGHT} ranks")
        for world in RESUMED:
            gap = max(abs(a - b) for a, b in zip(runs[world]["losses"], straight[saved:]))
            equal = f"{_equal(runs, world, saved)} of {steps - saved} step digests equal"
            print(f"  resumed on {world} ranks: {equal}, losses at most {gap:.1e} apart")
    try:
        draw(results, saved, picture)
        print(f"\npicture: {picture}")
    except ImportError as error:
        print(f"\nno picture: {error}; pip install 'zephon-ft[plots]'")
    return int(any(_equal(results[ZEPHON], world, saved) < steps - saved for world in RESUMED))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(Path(sys.argv[2]), *map(int, sys.argv[3:6]))
        os._exit(0)  # triton would list all that it holds when the interpreter ends
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps of the straight run")
    parser.add_argument("--saved", type=int, default=20, help="steps before the checkpoint")
    parser.add_argument("--picture", type=Path, default=Path("elastic-resume.png"))
    options = parser.parse_args()
    if not 0 < options.saved < options.steps:
        parser.error("--saved must lie between 0 and --steps")
    sys.exit(main(options.steps, options.saved, options.picture))
