"""The number of threads of parallel loops."""

from __future__ import annotations

from .. import config


def num_threads() -> int:
    """The value of `config.num_threads`: its `with` form, else `TILEWRIGHT_NUM_THREADS`, else the usable CPUs."""
    return config.num_threads.value
