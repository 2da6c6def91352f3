"""How much goes into one task: some milliseconds of work, whatever a record costs. Never visible in the data."""

from __future__ import annotations

_FIRST = 8  # before anything is measured
_MOST = 512
_TASK_BYTES = 8 << 20


class Pace:
    """Seconds and bytes per unit of each segment, as a moving mean. Races between workers only blur it.

    Attributes:
        seconds: of work that a task should be. Much shorter ones spend a tenth of it on filling the processor's caches
            anew, with the code that reads rows and takes results back.
        layouts: units of batches that are laid out by one task, for the same reason.
    """

    seconds = 0.01
    layouts = 16

    def __init__(self, segments: int, fixed: int | None) -> None:
        self._seconds: list[float | None] = [None] * segments
        self._bytes = 0.0
        self._fixed = fixed

    def groups(self, segment: int, frugal: bool = False) -> int:
        """Units for the next task of a segment; `frugal`: memory is short, so an eighth of them."""
        if self._fixed is not None:
            return self._fixed
        seconds = self._seconds[segment]
        count = _FIRST if seconds is None else min(_MOST, int(self.seconds / max(seconds, 1e-7)))
        if segment == 0 and self._bytes > 0:
            count = min(count, int(_TASK_BYTES / self._bytes))
        return max(1, count // 8 if frugal else count)

    def note(self, segment: int, units: int, seconds: float, nbytes: int = 0) -> None:
        """A task of `units` units took so long and made so many bytes."""
        if not units:
            return
        each, before = seconds / units, self._seconds[segment]
        self._seconds[segment] = each if before is None else before + 0.25 * (each - before)
        if nbytes:
            size = nbytes / units
            self._bytes = self._bytes + 0.25 * (size - self._bytes) if self._bytes else size
