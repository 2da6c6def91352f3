"""What worker processes are started with: inner pools of one thread, and an allocator that suits tokenizers."""

from __future__ import annotations

import os

SINGLE_THREADED = {  # the workers are the parallelism
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

# glibc keeps 7 freed pieces of each small size for a thread. A tokenizer frees hundreds at once; all others then go
# through lists that larger frees of the same thread (arrays, rows) merge and search again and again.
TUNABLES = "glibc.malloc.tcache_count=2000"


def worker_environment() -> dict[str, str]:
    """The environment of a worker process: this one's; its own GLIBC_TUNABLES stay as they are."""
    return {"GLIBC_TUNABLES": TUNABLES, **os.environ, **SINGLE_THREADED}
