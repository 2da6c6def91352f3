"""Remote calls that end: each attempt has a time-out, failures are tried again with growing pauses, then named.

Local reads do not come here. What cannot get better by waiting (no such file, no permission, a wrong argument) is
raised at once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from zephon_ft.errors import StorageError, ZephonError

T = TypeVar("T")

ATTEMPTS = 5
TIMEOUT = 60.0  # seconds, of one attempt
FIRST_PAUSE = 0.25  # seconds; doubles with every attempt
LONGEST_PAUSE = 30.0

_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
_FINAL += (TypeError, AttributeError, ImportError, MemoryError, ZephonError)  # type: ignore[assignment]


def retrying(call: Callable[[], T], what: str) -> T:
    """Return what `call` returns.

    Args:
        call: made up to `ATTEMPTS` times, each on a thread of its own so that a stalled socket cannot hold the caller.
        what: names the file and range in errors.

    Raises:
        StorageError: all attempts failed.
        FileNotFoundError, PermissionError, ...: raised by `call`; not tried again.
    """
    for attempt in range(ATTEMPTS):
        try:
            return _within(TIMEOUT, call)
        except _FINAL:
            raise
        except Exception as error:
            status = getattr(error, "status", None)
            refused = isinstance(status, int) and 400 <= status < 500 and status not in (408, 425, 429)
            if refused or attempt == ATTEMPTS - 1:
                tries = "1 attempt" if attempt == 0 else f"{attempt + 1} attempts"
                reason = f"{type(error).__name__}: {error}"
                raise StorageError(f"reading {what} failed after {tries}: {reason}") from error
            time.sleep(_pause(attempt, error))
    raise AssertionError("unreachable")


def _pause(attempt: int, error: Exception) -> float:
    """Seconds to wait: doubling, with jitter so that ranks spread out, and at least what the server asks for."""
    pause = FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.0)
    headers = getattr(error, "headers", None)
    try:
        asked = float(headers.get("Retry-After")) if headers is not None else 0.0
    except (TypeError, ValueError, AttributeError):
        asked = 0.0
    return min(max(pause, asked), LONGEST_PAUSE)


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Run `call` on a daemon thread; TimeoutError if it has not returned after `seconds`."""
    result: list[Any] = []
    done = threading.Event()

    def run() -> None:
        try:
            result.append((call(), None))
        except BaseException as error:
            result.append((None, error))
        done.set()

    threading.Thread(target=run, name="zephon-ft-read", daemon=True).start()
    if not done.wait(seconds):
        raise TimeoutError(f"no answer within {seconds:g} s")
    value, error = result.pop()
    if error is not None:
        raise error
    return value
