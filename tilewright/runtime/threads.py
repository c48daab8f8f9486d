"""The number of threads of parallel loops, and the CPUs that they run on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .. import config
from ..cpus import affinity
from .errors import UnsupportedError

_BIG, _LITTLE, _ONE_EACH, _ALL = 1, -1, -2, -3
_CPUS: Final = Path("/sys/devices/system/cpu")


def num_threads() -> int:
    """The value of `config.num_threads`: its `with` form, else `TILEWRIGHT_NUM_THREADS`, else the usable CPUs."""
    return config.num_threads.value


def config_threadpool(mode: int = _BIG, nthreads: int = 0, cpus: Sequence[int | str] = ()) -> None:
    """Run the parallel loops that this thread calls on `nthreads` threads from now on (0: as many as there are CPUs),
    and this thread, with the threads that it starts later, on some CPUs only.

    These are `cpus` if they are given (modes -2 and -3), or the fast (1) or the slow ones (-1) of a processor that has
    both. `config.num_threads` is the `with` form of the number.
    """
    if mode not in (_BIG, 0, _LITTLE, _ONE_EACH, _ALL):
        raise ValueError(
            f"config_threadpool(mode={mode}): it is 1 (fast CPUs), -1 (slow ones), -2 or -3 (`cpus`)"
        )
    places = [int(c) for c in cpus] or _of_kind(mode)
    if places and not hasattr(os, "sched_setaffinity"):
        raise UnsupportedError(
            "config_threadpool: this system does not let a thread choose its CPUs; leave them out"
        )
    if places:
        os.sched_setaffinity(0, places)
    config.num_threads.keep(nthreads or len(places) or None)


def _of_kind(mode: int) -> list[int]:
    """The fast or the slow CPUs; none if all are alike, or nothing says what they are."""
    if mode not in (_BIG, _LITTLE):
        return []
    try:
        speed = {c: int((_CPUS / f"cpu{c}/cpufreq/cpuinfo_max_freq").read_text()) for c in affinity()}
    except (OSError, ValueError):
        return []
    wanted = (max if mode == _BIG else min)(speed.values())
    return [] if len(set(speed.values())) == 1 else [c for c, s in speed.items() if s == wanted]
