"""Continuous text from two data sets, mixed 3 to 1, in rows of 2,048 tokens.

python examples/text.py                        text that the script makes itself
python examples/text.py stories.jsonl web.jsonl --tokenizer path/to/tokenizer.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.random import key_of
from zephon_ft.text.tokenizer import demo_tokenizer_path

WHO = ("The old man", "A child", "My brother", "The teacher", "Every bird", "The last train", "Nobody")
DOES = ("looks at", "opens", "walks along", "talks about", "reads", "is behind", "knows")
WHAT = ("the river", "a red book", "the open door", "some bread", "the grey city", "a small light", "his house")


def sentences(kind: str, number: int) -> Iterator[str]:
    """The sentences of one made-up document: 5 to 60 of them, the same at every run."""
    for i in range(5 + key_of(kind, number) % 56):
        key = key_of(kind, number, i)
        yield f"{WHO[key % 7]} {DOES[key // 7 % 7]} {WHAT[key // 49 % 7]}" + (", again." if key % 5 == 0 else ".")


def write(path: Path, kind: str, documents: int) -> Path:
    """Write made-up documents, one JSON object a line."""
    lines = (json.dumps({"text": " ".join(sentences(kind, number))}) for number in range(documents))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def main(stories: Path, web: Path, tokenizer: str, steps: int) -> None:
    """Stream and show a few batches."""
    datasets = [Dataset.from_path("stories", stories), Dataset.from_path("web", web)]
    source = StaticMixtureWorkSource(datasets, mixture={"stories": 3, "web": 1}, seed=42)
    pipeline = (
        Pipeline(source, lanes=4)
        .tokenize(tokenizer, "text", special_tokens="eos")
        .pack_flat(2048, algorithm="wrap")
        .shuffle(buffer_size=1024, seed=42)
        .batch(8)
    )
    print(pipeline.explain())
    with iter(pipeline) as stream:
        for step, batch in zip(range(steps), stream):
            tensors = batch.to_training()
            print(f"batch {step} of lane {batch.lane}: {batch.num_tokens} tokens, digest {batch.digest()}")
    for name, value in tensors.items():
        print(f"  {name:<17} {tuple(value.shape) if hasattr(value, 'shape') else value}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="two JSONL files with a field text")
    parser.add_argument("--tokenizer", default=str(demo_tokenizer_path()))
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    if options.paths:
        if len(options.paths) != 2:
            parser.error("give two files, or none")
        main(options.paths[0], options.paths[1], options.tokenizer, options.steps)
    else:
        with tempfile.TemporaryDirectory() as folder:
            made = write(Path(folder, "stories.jsonl"), "story", 1500), write(Path(folder, "web.jsonl"), "web", 500)
            main(made[0], made[1], options.tokenizer, options.steps)
