"""How many threads parallel loops may use."""

from __future__ import annotations

from .. import config


def num_threads() -> int:
    """What `config.num_threads` says: its `with` form, else `TILEWRIGHT_NUM_THREADS`, else the usable CPUs."""
    return config.num_threads.value
