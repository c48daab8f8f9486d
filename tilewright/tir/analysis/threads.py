"""Loops and memory of threads."""

from __future__ import annotations

from typing import Any

from ...ir.stmt import For

AXES = ("blockIdx", "clusterCtaIdx", "threadIdx")  # hardware axes, outermost first


def is_hardware_loop(n: Any) -> bool:
    """Whether a loop is bound to a hardware axis; virtual threads are not."""
    return (
        isinstance(n, For) and n.thread_binding is not None and n.thread_binding.thread_tag.startswith(AXES)
    )


def is_fragment(scope: str) -> bool:
    """Whether memory of a scope is distributed over the registers of a warp or a warpgroup."""
    return scope.startswith(("wmma.", "wgmma."))


def is_shared_by_warp(scope: str) -> bool:
    """Whether the threads of a warp share memory of a scope: fragments, and `warp` (`lower_warp_memory`)."""
    return scope == "warp" or is_fragment(scope)
