"""The processor of this machine, as LLVM sees it."""

from __future__ import annotations

from functools import cache


@cache
def feature_map() -> dict[str, bool]:
    """Every feature of the instruction set, and whether this processor has it."""
    import llvmlite.binding as llvm

    return dict(llvm.get_host_cpu_features())


@cache
def host_features() -> frozenset[str]:
    """The features that this processor has."""
    return frozenset(name for name, on in feature_map().items() if on)
