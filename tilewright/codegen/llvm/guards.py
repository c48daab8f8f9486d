"""Checks of its arguments that a compiled function does itself, in less than a nanosecond each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.buffer import Buffer
from ...ir.expr import IntImm
from ...runtime.library import OVERLAP
from ...runtime.metadata import overlap_text

if TYPE_CHECKING:
    from .emit import FunctionEmitter
    from .signature import Guard, Signature


def refuse_overlaps(f: FunctionEmitter, signature: Signature) -> None:
    """Return with an error if an array that the function writes overlaps another; one branch for all comparisons."""
    tests = [_overlap(f, guard) for guard in signature.guards]
    if not tests:
        return
    any_of_them = tests[0]
    for test in tests[1:]:
        any_of_them = f.tmp(f"or i1 {any_of_them}, {test}")
    good, bad = f.label("apart"), f.label("overlap")
    f.branch_if(any_of_them, bad, good, ", !prof !0")
    f.start(bad)
    names = [p["name"] for p in signature.description["params"]]
    for guard, test in zip(signature.guards, tests, strict=True):
        this, following = f.label("found"), f.label("look")
        f.branch_if(test, this, following)
        f.start(this)
        f.fail(OVERLAP, overlap_text(names, guard.written, guard.other, guard.same))
        f.start(following)
    f.emit("unreachable")
    f.start(good)


def _overlap(f: FunctionEmitter, guard: Guard) -> str:
    """Whether one array begins within the other."""
    (a, size), (b, other_size) = (_place(f, buffer) for buffer in guard.buffers)
    if "0" in (size, other_size):
        return "false"
    ahead, behind = f.tmp(f"sub i64 {b}, {a}"), f.tmp(f"sub i64 {a}, {b}")
    test = f.tmp(
        f"or i1 {f.tmp(f'icmp ult i64 {ahead}, {size}')}, {f.tmp(f'icmp ult i64 {behind}, {other_size}')}"
    )
    for count in (size, other_size):
        if count.startswith("%"):  # an empty array overlaps nothing
            test = f.tmp(f"and i1 {test}, {f.tmp(f'icmp ne i64 {count}, 0')}")
    return f.tmp(f"and i1 {test}, {f.tmp(f'icmp ne i64 {a}, {b}')}") if guard.same else test


def _place(f: FunctionEmitter, buffer: Buffer) -> tuple[str, str]:
    """The address of a dense array and its size in bytes."""
    address = f.tmp(f"ptrtoint ptr {f.pointer(buffer)} to i64")
    known, factors = buffer.dtype.nbytes, []
    for extent in buffer.shape:
        if isinstance(extent, IntImm):
            known *= extent.value
        else:
            factors.append(f.index64(extent))
    size: Any = str(known)
    for factor in factors:
        size = factor if size == "1" else f.tmp(f"mul i64 {size}, {factor}")
    return address, size
