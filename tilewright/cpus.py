"""The CPUs that this process may use: its affinity, and the quota of its control groups.

    docker run --cpus=1.5 …        64 CPUs may run the threads of the process, and 1.5 of them at a time

A thread more than the quota allows makes every thread wait for the rest of a period of 100 ms.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

_ROOT = Path("/")


def affinity() -> list[int]:
    """The CPUs that the threads of this process may run on."""
    try:
        return sorted(os.sched_getaffinity(0)) or [0]
    except (AttributeError, OSError):
        return list(range(os.cpu_count() or 1))


@cache
def quota(root: Path = _ROOT) -> float | None:
    """The CPUs that the control groups of this process get at a time; None without a limit.

    A group is limited by the groups that contain it too. Read once: a container keeps its quota.
    """
    return min(_quotas(root), default=None)


def usable_cpus() -> int:
    """The number of threads that can run at a time: the CPUs of the affinity, no more than the quota rounded up."""
    limit = quota()
    count = len(affinity())
    return count if limit is None else max(1, min(count, math.ceil(limit)))


def _quotas(root: Path) -> Iterator[float]:
    """The quotas of all control groups that contain this process."""
    for folder, controllers in _mounts(root):
        group = _group(root, controllers)
        if group is None:
            continue
        base, inside = folder
        # In a container, the groups above that of the container are not mounted.
        own = PurePosixPath(group)
        below = own.relative_to(inside) if own.is_relative_to(inside) else PurePosixPath()
        place = root / base.relative_to("/")
        for part in (*reversed(below.parents), below):
            found = _quota_in(place / part)
            if found is not None:
                yield found


def _mounts(root: Path) -> Iterator[tuple[tuple[PurePosixPath, PurePosixPath], str]]:
    """The folders of control groups that limit CPUs, each with the group that it shows; "" for version 2."""
    for line in _lines(root / "proc/self/mountinfo"):
        head, _, tail = line.partition(" - ")
        words, kind = head.split(), tail.split()
        if len(words) < 5 or len(kind) < 3:
            continue
        where = PurePosixPath(words[4]), PurePosixPath(words[3])
        if kind[0] == "cgroup2":
            yield where, ""
        elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            yield where, "cpu"


def _group(root: Path, controller: str) -> str | None:
    """The control group of this process; that of version 2 has no controllers."""
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if (number == "0" and not controllers) if not controller else controller in controllers.split(","):
            return path or "/"
    return None


def _quota_in(folder: Path) -> float | None:
    """The quota of one control group."""
    words = " ".join(_lines(folder / "cpu.max")).split()
    if not words:
        words = [*_lines(folder / "cpu.cfs_quota_us"), *_lines(folder / "cpu.cfs_period_us")]
    try:
        share, period = map(int, words)
    except ValueError:  # "max", or no such files
        return None
    return share / period if share > 0 and period > 0 else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
