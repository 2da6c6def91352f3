"""Load a tokenizer once, at build time, and hand each worker thread a copy of its own.

The loaded form is immutable, can be pickled, and knows its content hash, so that a changed tokenizer is noticed when a
run is resumed. Truncation and padding are always off: they are settings of a shared object, and lengths are `pack`'s
business. Nothing here uses the network.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zephon_ft.errors import ConfigError
from zephon_ft.text.ordinary import ordinary_text_json
from zephon_ft.text.words import WordEncoder, separable

if TYPE_CHECKING:
    import tokenizers

HOW_TO_ADD = "Tokenizer.from_file(path).add_special_tokens([...]) adds what is missing, its save(path) keeps it"


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token that a template writes as a literal.

    Attributes:
        text, id: the literal and its id.
        lstrip, rstrip: whether it swallows the white space before or behind it, as the tokenizer's file says.
    """

    text: str
    id: int
    lstrip: bool = False
    rstrip: bool = False


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer with what its configuration says about it.

    Attributes:
        source: where it came from, for messages.
        content_hash: SHA-256 (hex) of the serialized tokenizer, without truncation and padding.
        special_tokens: every token that is not ordinary text, by its literal.
        bos, eos, pad: the literals, or None where unknown; `bos_id`, `eos_id`, `pad_id` are their ids.
        chat_template: Jinja text from the configuration, or None.
        separable: whether the ids of ordinary text are those of its words: see `zephon_ft.text.words`.
    """

    source: str
    content_hash: str
    special_tokens: Mapping[str, SpecialToken]
    bos: str | None
    eos: str | None
    pad: str | None
    chat_template: str | None
    separable: bool
    _full: str = field(repr=False)
    _ordinary: str = field(repr=False)
    _ordinary_inner: str | None = field(repr=False)

    @property
    def bos_id(self) -> int | None:
        """Id of the begin-of-text token, or None."""
        return None if self.bos is None else self.token_id(self.bos)

    @property
    def eos_id(self) -> int | None:
        """Id of the end-of-text token, or None."""
        return None if self.eos is None else self.token_id(self.eos)

    @property
    def pad_id(self) -> int | None:
        """Id of the padding token, or None."""
        return None if self.pad is None else self.token_id(self.pad)

    def token_id(self, text: str) -> int:
        """Id of the token `text`.

        Raises:
            ConfigError: it is not in the vocabulary; names the closest that are.
        """
        if text in self.special_tokens:
            return self.special_tokens[text].id
        full = self.clone()
        found = full.token_to_id(text)
        if found is not None:
            return int(found)
        markup = [t for t in full.get_vocab() if t[:1] == text[:1] and len(t) > 2]
        close = difflib.get_close_matches(text, [*self.special_tokens, *markup], n=4)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"special: {sorted(self.special_tokens)}"
        raise ConfigError(f"tokenizer {self.source}: no token {text!r}; {hint}; {HOW_TO_ADD}")

    def clone(self) -> tokenizers.Tokenizer:
        """A fresh full tokenizer for one thread; special-token literals in text become their ids."""
        return _parse(self._full)

    def clone_ordinary(self) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
        """Two fresh tokenizers for one thread that take every literal for text: see `zephon_ft.text.ordinary`.

        The first encodes text at the very start of a string, the second text further in (often the same object).
        """
        first = _parse(self._ordinary)
        return first, first if self._ordinary_inner is None else _parse(self._ordinary_inner)

    def encoders(self) -> tuple[WordEncoder, WordEncoder]:
        """Two encoders for one thread, of the tokenizers of `clone_ordinary` (often the same object)."""
        first, inner = self.clone_ordinary()
        encoder = WordEncoder(first, self.separable)
        return encoder, encoder if inner is first else WordEncoder(inner, self.separable)


def load_tokenizer(
    source: str | os.PathLike[str] | tokenizers.Tokenizer | LoadedTokenizer,
    *,
    bos: str | None = None,
    eos: str | None = None,
    pad: str | None = None,
    revision: str = "main",
) -> LoadedTokenizer:
    """Load a tokenizer without network.

    Args:
        source: a `tokenizer.json`, a folder that holds one (``tokenizer_config.json`` and ``chat_template.jinja``
            beside it are read too), a `tokenizers.Tokenizer`, or a hub id that is in the local Hugging Face cache.
            A `LoadedTokenizer` passes through.
        bos, eos, pad: literals that override the configuration's.
        revision: branch, tag or commit, for a hub id.

    Raises:
        ConfigError: nothing there (says where it looked), not a tokenizer, or one that encodes at random (dropout).
    """
    if isinstance(source, LoadedTokenizer):
        if bos or eos or pad:
            raise ConfigError("bos, eos and pad are given where a tokenizer is loaded, not to one that is loaded")
        return source
    explicit = {"bos": bos, "eos": eos, "pad": pad}
    if hasattr(source, "to_str"):
        return _build(source.to_str(), "(object)", {}, explicit)
    path = _find(os.fspath(source), revision)
    try:
        text = _parse(path.read_text(encoding="utf-8")).to_str()
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"tokenizer {path}: not a tokenizer.json: {error}") from error
    return _build(text, str(path), _configuration(path.parent), explicit)


def demo_tokenizer_path() -> Path:
    """The small tokenizer that is shipped: byte-level BPE, any text encodes, ChatML and Qwen's image tokens."""
    return Path(__file__).resolve().parent.parent / "assets" / "tokenizer.json"


def _parse(text: str) -> tokenizers.Tokenizer:
    import tokenizers

    return tokenizers.Tokenizer.from_str(text)


def _build(text: str, source: str, config: dict[str, Any], explicit: dict[str, str | None]) -> LoadedTokenizer:
    parsed = {**json.loads(text), "truncation": None, "padding": None}
    if parsed["model"].get("dropout"):
        raise ConfigError(f"tokenizer {source}: its model has dropout, so it encodes at random; set it to null")
    full = json.dumps(parsed, ensure_ascii=False)
    tokenizer = _parse(full)
    special = {
        token["content"]: SpecialToken(token["content"], token["id"], token["lstrip"], token["rstrip"])
        for token in parsed["added_tokens"]
        if not token["content"].isspace()
    }
    chosen: dict[str, str | None] = {}
    for name, literal in explicit.items():
        text_of = literal or config.get(name)
        number = None if text_of is None else tokenizer.token_to_id(text_of)
        if literal and number is None:
            raise ConfigError(f"tokenizer {source}: {name}={literal!r} is not in its vocabulary")
        chosen[name] = None if number is None else text_of  # a configuration may name a token that was never added
        if text_of is not None and number is not None:
            special.setdefault(text_of, SpecialToken(text_of, number))
    ordinary, inner = ordinary_text_json(parsed, special)
    return LoadedTokenizer(
        source=source,
        content_hash=hashlib.sha256(full.encode()).hexdigest(),
        special_tokens=special,
        bos=chosen["bos"],
        eos=chosen["eos"],
        pad=chosen["pad"],
        chat_template=config.get("chat_template"),
        separable=separable(parsed),
        _full=full,
        _ordinary=ordinary,
        _ordinary_inner=inner,
    )


def _find(source: str, revision: str) -> Path:
    """Path of the tokenizer.json that `source` stands for."""
    path = Path(source).expanduser()
    if path.is_dir():
        if (path / "tokenizer.json").is_file():
            return path / "tokenizer.json"
        raise ConfigError(f"tokenizer {path}: no tokenizer.json in it; there: {sorted(p.name for p in path.iterdir())}")
    if path.is_file():
        return path
    looked = [str(path)]
    if source.count("/") <= 1 and not source.startswith((".", "/", "~")) and not source.endswith(".json"):
        repository = _hub_cache() / f"models--{source.replace('/', '--')}"
        reference = repository / "refs" / revision
        commit = reference.read_text().strip() if reference.is_file() else revision
        cached = repository / "snapshots" / commit / "tokenizer.json"
        if cached.is_file():
            return cached
        looked.append(str(cached))
    raise ConfigError(
        f"tokenizer {source!r} not found; looked at {' and '.join(looked)}. Nothing is downloaded: give a path, or put "
        f"the hub's snapshot into the cache first (HF_HOME says where it is)"
    )


def _hub_cache() -> Path:
    """Folder of the Hugging Face cache, by the variables that its own tools use."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable])
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]) / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface" / "hub"


def _configuration(folder: Path) -> dict[str, Any]:
    """Special tokens and chat template, from the files beside a tokenizer.json; absent ones are left out."""
    raw = _read_json(folder / "tokenizer_config.json")
    found: dict[str, Any] = {}
    for name in ("bos", "eos", "pad"):
        value = raw.get(f"{name}_token")
        literal = value.get("content") if isinstance(value, dict) else value
        if isinstance(literal, str) and literal:
            found[name] = literal
    template = raw.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    template = _read_json(folder / "chat_template.json").get("chat_template") or template
    if (folder / "chat_template.jinja").is_file():
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if template:
        found["chat_template"] = template
    return found


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from error
    return parsed if isinstance(parsed, dict) else {}
