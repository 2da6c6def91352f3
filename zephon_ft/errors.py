"""The exceptions that users see. Each names what was wrong, where, and what to do.

`DataError` is a failure that is a pure function of the bytes: only such a failure may be skipped or blanked.
Storage errors, time-outs and memory errors are never data errors: they are retried, then raised.
"""

from __future__ import annotations


class ZephonError(Exception):
    """Base class of every error raised by zephon_ft itself."""


class ConfigError(ZephonError, ValueError):
    """A wrong option or argument, found when the pipeline is built; says what would work."""


class DataError(ZephonError, ValueError):
    """Bad content: a pure function of the bytes, so every run meets it at the same place."""


class ImageError(DataError):
    """Bytes that are not an image, are damaged, or break a limit (megapixels, aspect ratio)."""


class ChatError(DataError):
    """A conversation that cannot be turned into tokens (placeholders, roles, nothing to learn from)."""


class StorageError(ZephonError, OSError):
    """Reading failed after all retries; names the file and the range."""


class CheckpointError(ZephonError, ValueError):
    """A state that cannot be loaded: damaged, incomplete, of another run, or of another moment on each rank."""


class RecipeError(CheckpointError):
    """A state whose recipe (data, seed, operators, ...) differs from the pipeline's; lists every difference."""


class PipelineError(ZephonError, RuntimeError):
    """A failure inside a running pipeline.

    Attributes:
        operator: name of the operator that failed, e.g. ``map(parse)``.
        record: where the record came from, e.g. ``dataset 'web', shard 3 (part-3.jsonl), row 17, pass 0``.
    The original exception, with its traceback, is ``__cause__``.
    """

    def __init__(self, message: str, operator: str = "", record: str = "") -> None:
        super().__init__(message)
        self.operator = operator
        self.record = record


class ClosedError(ZephonError, RuntimeError):
    """The iterator was closed (by `close()`, by a newer iterator of its pipeline, or at interpreter exit)."""


class StuckWorkerWarning(RuntimeWarning):
    """A user function did not return within `close_timeout`; names the operator and the record."""


def is_data_error(error: BaseException) -> bool:
    """Whether `error` may be skipped or blanked: it depends on the bytes alone, so it comes again at every run.

    A module that is not installed does not, nor does storage, memory or time.
    """
    if isinstance(error, DataError):
        return True
    elsewhere = (OSError, MemoryError, TimeoutError, ImportError, ZephonError)
    return isinstance(error, Exception) and not isinstance(error, elsewhere)
