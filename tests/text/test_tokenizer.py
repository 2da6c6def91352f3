"""Loading: where tokenizers are found, what is known of them, and what is refused."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.text.samples import demo, demo_with, special
from zephon_ft.errors import ConfigError
from zephon_ft.text.tokenizer import demo_tokenizer_path, load_tokenizer

ROOT = Path(__file__).parents[2]


def test_a_file_a_folder_and_an_object_are_the_same_tokenizer(tmp_path: Path) -> None:
    shutil.copy(demo_tokenizer_path(), tmp_path / "tokenizer.json")
    loaded = [
        load_tokenizer(tmp_path),
        load_tokenizer(str(tmp_path / "tokenizer.json")),
        load_tokenizer(Tokenizer.from_file(str(demo_tokenizer_path()))),
    ]
    assert len({one.content_hash for one in loaded}) == 1
    assert len(loaded[0].content_hash) == 64
    assert load_tokenizer(loaded[0]) is loaded[0]


def test_another_token_is_another_content_hash() -> None:
    assert demo_with(special("<|x|>")).content_hash != demo().content_hash


def test_truncation_and_padding_of_the_source_are_off_and_not_in_the_hash() -> None:
    tokenizer = Tokenizer.from_file(str(demo_tokenizer_path()))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=64)
    loaded = load_tokenizer(tokenizer)
    assert loaded.content_hash == demo().content_hash
    assert 2 < len(loaded.clone().encode("one two three four five").ids) < 64
    assert tokenizer.truncation is not None, "the caller's object is left as it was"


def test_each_clone_is_an_object_of_its_own() -> None:
    loaded = demo()
    first, second = loaded.clone(), loaded.clone()
    first.enable_truncation(1)
    assert second.truncation is None
    assert loaded.clone().truncation is None


def test_a_hub_id_is_found_in_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    repository = tmp_path / "hub" / "models--some--model"
    snapshot = repository / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123\n")
    shutil.copy(demo_tokenizer_path(), snapshot / "tokenizer.json")
    (snapshot / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|im_end|>"}}))
    loaded = load_tokenizer("some/model")
    assert (loaded.eos, loaded.eos_id) == ("<|im_end|>", 2)
    assert load_tokenizer("some/model", revision="abc123").content_hash == loaded.content_hash
    with pytest.raises(ConfigError, match=r"models--some--other.*Nothing is downloaded"):
        load_tokenizer("some/other")


def test_what_is_not_there_or_not_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not found; looked at .*missing\.json"):
        load_tokenizer(tmp_path / "missing.json")
    (tmp_path / "readme.txt").write_text("{}")
    with pytest.raises(ConfigError, match=r"no tokenizer.json in it; there: \['readme.txt'\]"):
        load_tokenizer(tmp_path)
    with pytest.raises(ConfigError, match=r"readme.txt: not a tokenizer.json"):
        load_tokenizer(tmp_path / "readme.txt")


def test_an_unknown_token_is_named_with_close_ones() -> None:
    assert demo().token_id("<|im_start|>") == 1
    assert demo().token_id("assistant") == demo().clone().token_to_id("assistant")
    with pytest.raises(ConfigError, match=r"no token '<\|im_strat\|>'; did you mean '<\|im_start\|>'"):
        demo().token_id("<|im_strat|>")


def test_configuration_files_beside_the_tokenizer_are_read(tmp_path: Path) -> None:
    shutil.copy(demo_tokenizer_path(), tmp_path / "tokenizer.json")
    config = {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": None,
        "chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ yes }}"}],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = load_tokenizer(tmp_path, pad="<|endoftext|>")
    assert (loaded.bos_id, loaded.eos_id, loaded.pad_id, loaded.chat_template) == (1, 2, 0, "{{ yes }}")
    (tmp_path / "chat_template.jinja").write_text("{{ newer }}")
    assert load_tokenizer(tmp_path).chat_template == "{{ newer }}"
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"tokenizer_config.json: not valid JSON"):
        load_tokenizer(tmp_path)


def test_an_explicit_special_token_has_to_exist() -> None:
    with pytest.raises(ConfigError, match=r"eos='</s>' is not in its vocabulary"):
        load_tokenizer(demo_tokenizer_path(), eos="</s>")


def test_a_tokenizer_that_encodes_at_random_is_refused() -> None:
    with pytest.raises(ConfigError, match="dropout"):
        demo_with(change=lambda parsed: parsed["model"].update(dropout=0.1))


def test_a_loaded_tokenizer_travels_to_another_process() -> None:
    loaded = demo()
    copy = pickle.loads(pickle.dumps(loaded))
    assert copy == loaded
    assert copy.clone().encode("red square").ids == loaded.clone().encode("red square").ids


def test_the_shipped_tokenizer_is_small_and_has_the_chat_and_image_tokens() -> None:
    assert demo_tokenizer_path().stat().st_size < 100_000
    loaded = demo()
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
    assert [loaded.token_id(name) for name in names] == list(range(6))
    assert (loaded.eos, loaded.pad) == ("<|endoftext|>", "<|endoftext|>")


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_the_shipped_tokenizer_encodes_any_text(text: str) -> None:
    assert _CLONE.decode(_CLONE.encode(text).ids, skip_special_tokens=False) == text


_CLONE = demo().clone()


def test_the_shipped_tokenizer_is_what_its_script_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "examples" / "make_demo_tokenizer.py", tmp_path], check=True, timeout=60)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert json.loads((tmp_path / name).read_text()) == json.loads(
            (demo_tokenizer_path().parent / name).read_text()
        )
