"""inline: every task runs on the consumer's own thread, when it asks for a batch. The reference in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zephon_ft.engine.engine import Engine


class InlineRunner:
    """Runs tasks while the consumer waits; nothing runs otherwise."""

    fate = "it goes on"

    def start(self, engine: Engine) -> None:
        """Nothing to start."""

    def helper(self, engine: Engine) -> Callable[[], bool] | None:
        """Run one task on this thread."""

        def help_out() -> bool:
            for io in (False, True):
                task = engine.next_task(io)
                if task is not None:
                    engine.run(task, io)
                    return True
            return False

        return help_out

    def stop(self, engine: Engine) -> list[str]:
        """Nothing runs, so nothing is waited for."""
        return list(engine.close(0.0).values())
