"""How many threads parallel loops may use."""

from __future__ import annotations

import os

__all__ = ["num_threads"]

VARIABLE = "TILEWRIGHT_NUM_THREADS"


def num_threads() -> int:
    """The number in `TILEWRIGHT_NUM_THREADS`, else the CPUs that this process may run on."""
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        if not text.isdigit() or int(text) == 0:
            raise ValueError(f"{VARIABLE}={text!r} is not a number of threads; set it to 1, 2, … or unset it")
        return int(text)
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
