"""Collects the facts, prints them and the findings. Changes nothing; what is missing is a line, never an error."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zephon_ft import __version__
from zephon_ft.doctor import machine
from zephon_ft.doctor.findings import Finding, findings
from zephon_ft.doctor.packages import decoders, packages, pil_providers


def run(more: Sequence[str] = (), as_json: bool = False) -> int:
    """Report on this environment.

    Args:
        more: modules to import and look at as well.
        as_json: print ``{"facts": ..., "findings": [...]}`` instead of text.

    Returns:
        the exit status: 1 if something is broken, 0 if all works, fast or slow.
    """
    facts = collect(more)
    found = findings(facts)
    if as_json:
        print(json.dumps({"facts": facts, "findings": [asdict(finding) for finding in found]}, indent=2))
    else:
        print("\n".join((*_facts_in_words(facts), "", *_findings_in_words(found))))
    return int(any(finding.kind == "broken" for finding in found))


def collect(more: Sequence[str] = ()) -> dict[str, Any]:
    """Facts by section, as plain values. A section whose probe failed is ``{"error": what}``."""
    return {
        "zephon_ft": __version__,
        "zephon_ft_source": _source(),
        "interpreter": _survive(machine.interpreter),
        "machine": _survive(machine.machine),
        "processes": _survive(machine.processes),
        "settings": machine.settings(),
        "pil_providers": pil_providers(),
        "packages": packages(more),
        "decoders": decoders(),
    }


def _source() -> str:
    """What pip installs this package from again: ``-e FOLDER`` for a checkout, else its name."""
    checkout = Path(__file__).resolve().parents[2]
    return f"-e {shlex.quote(str(checkout))}" if (checkout / "pyproject.toml").exists() else "zephon-ft"


def _survive(probe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return probe()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _facts_in_words(facts: dict[str, Any]) -> list[str]:
    lines = [f"zephon-ft {facts['zephon_ft']}"]
    for section in ("interpreter", "machine", "processes"):
        lines += ["", section, *(_line(_label(name), _words(name, value)) for name, value in facts[section].items())]
    given = {name: value for name, value in facts["settings"].items() if value is not None}
    lines += ["", "settings", *(_line(name, value) for name, value in given.items())]
    lines.append(_line("not set", ", ".join(name for name in facts["settings"] if name not in given)))
    python = facts["interpreter"]
    free = python.get("gil") is False and python["gil_setting"] is None
    lines += ["", "packages", *(_line(name, _package(package, free)) for name, package in facts["packages"].items())]
    lines += ["", "image decoders"]
    lines += [_line(name, _listed(decoder)) for name, decoder in facts["decoders"].items()]
    return lines


def _line(label: str, value: str) -> str:
    start, rest = f"  {label:<32} ", " " * 35
    return textwrap.fill(value, 120, initial_indent=start, subsequent_indent=rest, break_on_hyphens=False)


def _label(name: str) -> str:
    return name.removesuffix("_bytes").replace("_per_s", "/s").replace("_", " ")


def _words(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value and name == "gil" else "off" if name == "gil" else "yes" if value else "no"
    if name.endswith("_bytes"):
        return f"{value / 2**30:,.1f} GiB"
    return " and ".join(value) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)


def _package(package: dict[str, Any] | None, free: bool) -> str:
    """One line of a package; `free`: the GIL is off, by nobody's order."""
    if package is None:
        return "not installed"
    facts = {name: value for name, value in package.items() if name != "version"}
    words = [package["version"] or "installed"]
    if free and facts.get("gil_turned_on_by", "") is None:
        words.append("keeps the GIL off")
    if not facts.get("gil_turned_on_by"):
        facts.pop("gil_turned_on_by", None)
    return "; ".join([*words, *([_listed(facts)] if facts else [])])


def _listed(facts: dict[str, Any]) -> str:
    return "; ".join(f"{_label(name)} {_words(name, value)}" for name, value in facts.items())


def _findings_in_words(found: Sequence[Finding]) -> list[str]:
    lines = []
    for finding in found:
        lines += [f"{finding.kind}: {finding.problem}", f"    {finding.command}", ""]
    counts = Counter(finding.kind for finding in found)
    return [*lines, ", ".join(f"{counts[kind] or 'nothing'} {kind}" for kind in ("broken", "missing", "slow"))]
