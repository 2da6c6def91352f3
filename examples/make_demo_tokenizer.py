"""Make the tokenizer that the demo ships: byte-level BPE over text that this script writes itself.

    python examples/make_demo_tokenizer.py zephon_ft/assets

The text is made by arithmetic, so the result is the same at every run: about 1,500 tokens, every byte included (any
text encodes), ChatML's and Qwen's image tokens.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
VOCABULARY = 1536

COLOURS = ("red", "green", "blue", "yellow", "orange", "purple", "black", "white", "grey", "brown", "pink", "cyan")
SHAPES = ("circle", "square", "triangle", "rectangle", "diamond", "cross", "star", "ring", "ellipse", "hexagon")
SIZES = ("small", "large", "tiny", "medium", "big", "huge")
PLACES = (
    "left",
    "right",
    "top",
    "bottom",
    "centre",
    "corner",
    "upper left",
    "lower right",
    "upper right",
    "lower left",
)
RELATIONS = ("left of", "right of", "above", "below", "next to", "inside", "behind", "in front of")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

SENTENCES = """
A picture can say many things at once, but a question asks for only one of them.
Look at the image and answer in a short sentence. Please describe what you see in this picture.
The background is plain, and the shapes do not touch each other. There is nothing else in the image.
Compare the two images. What is different between the first picture and the second one?
You are a helpful assistant that answers questions about pictures. Be brief and be exact.
Yes, that is right. No, it is not. I do not know, because the image does not show it.
Which of these is the largest, and which is the smallest? Both have the same size and the same colour.
Count the objects from left to right, then from top to bottom, and tell me how many there are in total.
When the sun had gone down, the children walked home along the river and talked about the day.
She opened the old book, read the first page, and knew that she would not sleep before the end.
Water boils when it is hot enough; ice melts when it is warm. Most people learn this at school.
The train leaves the station every hour, but on Sunday it comes late, so take some time with you.
To make bread you need flour, water, salt and patience. Mix them, wait, and bake until it smells good.
If you know where to look, you can find a way through the wood even without any light.
A good program does one thing well. It says what went wrong, where it happened, and what to do next.
We should think before we write, and then we should write less than we thought we would.
They would have been here by now if the weather had been better, said the man with the grey hat.
Every number has a place, every letter has a sound, and every question deserves an honest answer.
There were more than a hundred birds over the water, and none of them made a single sound.
My brother works in another city, where he teaches people how to build houses out of stone and clay.
""".strip().splitlines()  # fmt: skip

WORDS = """
a about above across after again against all almost along already also always am among an and another any anyone are
area arm around as ask at away back bad bag ball be became because become bed been began behind being best better
bird bit blue board boat body book both bottle bowl boy bring building bus but buy by call came can car card carry
cat cause chair change child city clear clock close cloud coat cold come complete could country cover cup cut dark
day desk did different dish do dog done door down draw dress drive drop dry during each early earth easy eat edge
eight either else empty end enough even ever every example eye face fact fall far fast feel feet few field figure
fill final fine fire first fish five floor flower fly follow food foot for form forward found four friend from front
fruit full game garden gave get girl give glass go gold gone good got grass great ground group grow had hair half
hand happy hard has hat have he head hear heart heavy help her here high hill him his hold hole horse hot hour house
how however hundred idea if in into is it its just keep key kind kitchen knew know land large last late laugh lay
lead learn least leave left leg less let letter level life light like line list little live long lost lot love low
made main make man many map mark may me mean men middle might mile milk mind minute moment money month moon more
morning most mother mountain mouth move much music must my name near need never new next night nine nor north not
note nothing now number object of off often oh oil on once only open or order our out over own page paint pair paper
part pass past pattern people person phone photo piece place plan plane plant plate play point poor possible power
press pull push put quick quite rain ran reach read ready real rest rich ride river road rock roof room round row
run said sail same sand sat saw school sea seat second see seem seen sentence set seven several shadow shall she
ship shirt shoe shop short should show side sign simple since sing sit sky sleep slow snow so some son soon south
space stand start state stay step still stone stop story street strong such summer sure surface table tail take talk
tall tell ten than that the their them then there these they thin thing think third this those though three through
time to together told too took town train travel tree true try turn two under until up upon us use very view voice
wait walk wall want warm was watch water way we wear week well went were what wheel when where whether which while
who whole whose why wide wife will wind window winter wish with without woman wood word work world would write year
yes yet you young your zero
""".split()  # noqa: SIM905 - a list of quoted words is harder to read


def corpus() -> Iterator[str]:
    """Questions and answers about coloured shapes, and plain sentences."""
    for number, (colour, shape) in enumerate(itertools.product(COLOURS, SHAPES)):
        size, place = SIZES[number % len(SIZES)], PLACES[number % len(PLACES)]
        other, relation = SHAPES[(number * 7 + 3) % len(SHAPES)], RELATIONS[number % len(RELATIONS)]
        tint, count = COLOURS[(number * 5 + 2) % len(COLOURS)], NUMBERS[number % len(NUMBERS)]
        yield f"user\nWhat colour is the {shape}?"
        yield f"assistant\nThe {shape} is {colour}."
        yield f"user\nHow many {shape}s are there in the picture?"
        yield f"assistant\nThere are {count} {colour} {shape}s: {number}."
        yield f"user\nWhere is the {size} {colour} {shape}?"
        yield f"assistant\nThe {size} {colour} {shape} is at the {place} of the image."
        yield f"user\nIs the {shape} {relation} the {other}?"
        yield f"assistant\nYes, the {colour} {shape} is {relation} the {tint} {other}."
        yield f"user\nWhich shape is {colour}? What is {relation} it?"
        yield f"assistant\nA {size} {shape} is {colour}; the {other} is {tint}."
        yield "user\nDescribe the image. Which shapes can you see?"
        yield f"assistant\nI can see a {colour} {shape} and a {tint} {other}, {count} in all."
    for sentence in SENTENCES:
        yield from itertools.repeat(sentence, 4)
    for word in WORDS:
        yield from (f"a {word}", f"the {word}", word.capitalize())
    for number in range(100):
        yield f"There are {number} of them, {number} in all."
    yield from itertools.repeat("system\nYou are a helpful assistant.", 4)


def train() -> Tokenizer:
    """The tokenizer: GPT-2's pre-tokenization, every byte in its alphabet, `SPECIAL` as special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def main(folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    parsed = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(
        json.dumps(parsed, separators=(",", ":"), ensure_ascii=False) + "\n", "utf-8"
    )
    config = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    print(f"{tokenizer.get_vocab_size()} tokens, {(folder / 'tokenizer.json').stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER")
    main(Path(sys.argv[1]))
