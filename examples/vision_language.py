"""Packed vision-language batches: from rows with images and conversations to tensors.

    python examples/vision_language.py

Streams the demo's data set (made at the first run and kept); give `Dataset.from_path` your own Parquet, JSONL or tar.
"""

from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.demo.data import demo_path
from zephon_ft.text.tokenizer import demo_tokenizer_path
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL

source = StaticMixtureWorkSource([Dataset.from_path("shapes", demo_path())], seed=42)
pipeline = (
    Pipeline(source, lanes=8)
    .images(Qwen2_5_VL(), "images")
    .tokenize_chat(demo_tokenizer_path())
    .pack(max_length=1024, max_images=16)
    .shuffle(buffer_size=64, seed=42)
    .batch(4)
)

if __name__ == "__main__":
    with iter(pipeline) as stream:
        for step, batch in zip(range(3), stream):
            tensors = batch.to_training(shift_labels=True)
            print(f"batch {step}: {batch.num_tokens} tokens, {batch.fill_rate:.1%} filled, {batch.digest()[:16]}")
    for name, value in tensors.items():
        print(f"  {name:<17} {tuple(value.shape) if hasattr(value, 'shape') else value}")
