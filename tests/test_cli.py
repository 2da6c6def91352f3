from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import zephon_ft
from zephon_ft.cli import main

ROOT = Path(zephon_ft.__file__).resolve().parents[1]


def python(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT), "ZEPHON_FT_CACHE": str(cache)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=150, check=False
    )


def test_an_error_is_one_line_and_status_2_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--data", "no/such/place"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.startswith("error: dataset 'data': there is no no/such/place")


def test_traceback_shows_where_an_error_came_from() -> None:
    with pytest.raises(zephon_ft.ConfigError):
        main(["demo", "--data", "no/such/place", "--traceback"])


@pytest.mark.parametrize("option", ["--steps", "--train", "--lanes", "--batch", "--max-length", "--workers"])
@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_counts_must_be_whole_numbers_above_0(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", f"{option}={value}"])
    assert ended.value.code == 2
    assert "is not a whole number above 0" in capsys.readouterr().err


def test_without_a_command_it_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out


def test_the_command_line_starts_without_heavy_imports(tmp_path: Path) -> None:
    code = (
        "import sys, zephon_ft.cli as cli\n"
        "try: cli.main(['demo', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'pyarrow', 'PIL', 'tokenizers', 'fsspec', 'jinja2') if m in sys.modules])"
    )
    assert python("-c", code, cache=tmp_path).stdout.splitlines()[-1] == "[]"


def test_python_m_runs_the_same_command_line(tmp_path: Path) -> None:
    ran = python("-m", "zephon_ft", "--version", cache=tmp_path)
    assert ran.stdout == f"zephon-ft {zephon_ft.__version__}\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vision_language.py", "pixel_values"),
        ("text.py", "input_ids         (8, 2048)"),
        ("user_operator.py", "the same with one worker and with eight: True"),
    ],
)
def test_examples_run(name: str, expected: str, tmp_path: Path) -> None:
    ran = python(str(ROOT / "examples" / name), cache=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert expected in ran.stdout


def test_an_index_is_made_once_and_used_from_then_on(tmp_path, monkeypatch, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setenv("ZEPHON_FT_CACHE", str(tmp_path / "cache"))
    pq.write_table(pa.table({"text": [f"row {n} of a few" for n in range(40)]}), tmp_path / "d.parquet")
    (tmp_path / "recipe_of_index.py").write_text(
        "from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource\n"
        "from zephon_ft.text.tokenizer import demo_tokenizer_path\n"
        "def make():\n"
        f"    source = StaticMixtureWorkSource([Dataset.from_path('d', {str(tmp_path / 'd.parquet')!r})])\n"
        "    return Pipeline(source, 2).tokenize(str(demo_tokenizer_path())).pack(64).batch(2)\n"
    )
    recipe = f"{tmp_path / 'recipe_of_index.py'}:make"
    assert main(["index", recipe]) == 0
    assert "1 files indexed, 40 of 40 rows read" in capsys.readouterr().out
    assert main(["index", recipe]) == 0
    assert "0 files indexed" in capsys.readouterr().out
