"""This machine: its triple, CPU, features, cores and caches. Queried once, on first use."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from ..cpus import usable_cpus
from ..runtime.host import feature_map
from ..runtime.host import host_features as host_features
from .cpus import nearest_cpu


class CacheSizes(NamedTuple):
    """Bytes of the data caches, as seen by one core, and of a cache line; 0 for a missing level."""

    l1d: int
    l2: int
    l3: int
    line: int


@cache
def host_triple() -> str:
    """The triple of code that runs in this process."""
    import llvmlite.binding as llvm

    return str(llvm.get_process_triple())


@cache
def host_cpu_name() -> str:
    """The processor as LLVM names it, or the nearest one that has its features. The name does not tell which features a
    virtual machine hides."""
    import llvmlite.binding as llvm

    name = str(llvm.get_host_cpu_name())
    return nearest_cpu(name, host_features()) if host_architecture() == "x86_64" else name


@cache
def host_feature_string() -> str:
    """Every feature, switched on or off, as it really is: `+avx2,-avx512f,…`.

    It goes with the processor's name always: a virtual machine may report znver4 and hide AVX-512, and
    code for the name alone would then be illegal.
    """
    return ",".join(("+" if on else "-") + name for name, on in sorted(feature_map().items()))


def host_cores() -> int:
    """The cores that this process may use: no more than TILEWRIGHT_NUM_THREADS, if that is set."""
    cores = usable_cpus()
    wanted = os.environ.get("TILEWRIGHT_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdigit() and int(wanted) else cores


def host_architecture() -> str:
    """The architecture of this machine, without asking LLVM."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64", "i686": "x86", "i386": "x86"}.get(name, name)


_SYSTEM: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS: Final = {"K": 1024, "M": 1024**2, "G": 1024**3}


def _bytes(text: str) -> int:
    text = text.strip().upper()
    if text[-1:] in _UNITS:
        return int(text[:-1]) * _UNITS[text[-1]]
    return int(text)


@cache
def host_cache_sizes(folder: Path = _SYSTEM) -> CacheSizes | None:
    """The caches as Linux reports them; None if it does not."""
    sizes, line = {1: 0, 2: 0, 3: 0}, 0
    try:
        for index in sorted(folder.glob("index*")):
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            if level in sizes:
                sizes[level] = max(sizes[level], _bytes((index / "size").read_text()))
            line = int((index / "coherency_line_size").read_text()) or line
    except (OSError, ValueError):
        return None
    if not sizes[1]:
        return None
    return CacheSizes(sizes[1], sizes[2], sizes[3], line or 64)
