"""zephon_ft: a data loader for training vision-language and language models.

Rows go in, packed batches of tensors come out: the same bytes for any number of ranks, threads and resumes.
"""

from zephon_ft.batch import Batch
from zephon_ft.errors import (
    ChatError,
    CheckpointError,
    ClosedError,
    ConfigError,
    DataError,
    ImageError,
    PipelineError,
    RecipeError,
    StorageError,
    StuckWorkerWarning,
    ZephonError,
)
from zephon_ft.io.dataset import Dataset
from zephon_ft.ops.base import Accumulator, AccumulatorContext, Operator, WorkContext
from zephon_ft.pipeline import Pipeline
from zephon_ft.record import IGNORE_INDEX, Media, Record, Row
from zephon_ft.work.mixture import StaticMixtureWorkSource

__version__ = "0.1.0"

__all__ = [
    "IGNORE_INDEX",
    "Accumulator",
    "AccumulatorContext",
    "Batch",
    "ChatError",
    "CheckpointError",
    "ClosedError",
    "ConfigError",
    "DataError",
    "Dataset",
    "ImageError",
    "Media",
    "Operator",
    "Pipeline",
    "PipelineError",
    "RecipeError",
    "Record",
    "Row",
    "StaticMixtureWorkSource",
    "StorageError",
    "StuckWorkerWarning",
    "WorkContext",
    "ZephonError",
]
