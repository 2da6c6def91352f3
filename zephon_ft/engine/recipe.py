"""The recipe: everything that decides the data, in full, and how two recipes are compared.

Two parts: *stream* decides order, tokens and layout; *pixels* is the decoder's build, the resize kernel and scaled
decoding. A recipe is never silently overridden by either side.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from zephon_ft.errors import RecipeError

logger = logging.getLogger("zephon_ft")
_MOST = 20  # differences that are spelled out


def dump(recipe: dict[str, Any]) -> str:
    """A recipe as canonical JSON text."""
    return json.dumps(recipe, sort_keys=True, separators=(",", ":"), default=_plain)


def compare(saved: str, mine: str, strict: bool | str) -> None:
    """Compare the recipe of a state with this pipeline's, field by field.

    Args:
        strict: True raises for any difference; ``"stream"`` raises for the stream and warns for pixels; False warns.

    Raises:
        RecipeError: lists each differing field with both values.
    """
    if saved == mine:
        return
    try:
        old, new = json.loads(saved), json.loads(mine)
    except (TypeError, ValueError) as error:
        raise RecipeError(
            f"the recipe in the state cannot be read ({error}): the state is cut short or edited"
        ) from error
    found = list(differences(old, new))
    if not found:
        return
    lines = [f"  {path}: saved {_show(a)}, now {_show(b)}" for path, a, b in found[:_MOST]]
    if len(found) > _MOST:
        lines.append(f"  and {len(found) - _MOST} more")
    text = "the data would not be the data that was saved; these fields differ:\n" + "\n".join(lines)
    pixels_only = all(path.startswith("pixels") for path, _, _ in found)
    if strict is True or (strict == "stream" and not pixels_only):
        hint = (
            "'stream' accepts other pixels, False accepts everything" if pixels_only else "False goes on all the same"
        )
        raise RecipeError(f"{text}\nGo back to what was saved, or load with strict=...: {hint}")
    logger.warning("%s\nGoing on, as strict=%r says.", text, strict)


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, old value, new value) of every leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            inner = f"{path}.{key}" if path else str(key)
            yield from differences(old.get(key, "(absent)"), new.get(key, "(absent)"), inner)
    elif isinstance(old, list) and isinstance(new, list):
        names_old, names_new = _by_name(old), _by_name(new)
        if names_old is not None and names_new is not None:  # files, operators: compared by name
            yield from differences(names_old, names_new, path)
            if list(names_old) != list(names_new) and names_old.keys() == names_new.keys():
                yield f"{path} (order)", list(names_old), list(names_new)
            return
        for i in range(max(len(old), len(new))):
            a, b = (side[i] if i < len(side) else "(absent)" for side in (old, new))
            yield from differences(a, b, f"{path}[{i}]")
    elif old != new:
        yield path, old, new


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    if not items or not all(isinstance(item, dict) and "name" in item for item in items):
        return None
    out: dict[str, Any] = {}
    for item in items:
        name, number = item["name"], 1
        while name in out:
            number += 1
            name = f"{item['name']}#{number}"
        out[name] = {key: value for key, value in item.items() if key != "name"}
    return out


def _show(value: Any) -> str:
    text = value if value == "(absent)" else json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a recipe holds plain values only, got {type(value).__name__}: {value!r}")
