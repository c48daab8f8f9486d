"""What can be seen of a schedule's loops, as numbers for a cost model.

    for i in parallel(16):          [("_itervar_", i), [length, depth, outside, inside, kind…], [adds, muls, divs],
        for j in vectorized(8):      ("A", stride, footprint, touched, reuse), …]
            C[i, j] += A[i] * B[j]

One entry for each loop, from the outside in. Loops are those of the program in blocks: with their annotations, before
vectors and copies of bodies are written out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.expr import (
    Add,
    BufferLoad,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Sub,
    Var,
    const_value,
)
from ..ir.function import PrimFunc
from ..ir.functor import pre_order
from ..ir.module import IRModule
from ..ir.stmt import BlockRealize, BufferStore, For, ForKind
from .task.task import program_of

_ATTR = ("length", "nest_level", "topdown", "bottomup")
_KINDS = ("serial", "parallel", "vectorized", "unrolled", "block", "thread", "vthread")
_ARITH = ("add", "mul", "div")
_TOUCH = ("stride", "bytes", "count", "reuse", "topdown_reuse")
_ADDS, _DIVS = (Add, Sub, Min, Max), (Div, Mod, FloorDiv, FloorMod)


@dataclass
class _Access:
    """A load or store: how far it moves with each loop around it."""

    buffer: Any
    strides: dict[Var, int]


@dataclass
class _Leaf:
    """A store, the loops around it from the outside in, and its value."""

    loops: list[For]
    accesses: list[_Access]
    arith: tuple[int, int, int]


@dataclass
class _Walk:
    """The stores of a program."""

    leaves: list[_Leaf] = field(default_factory=list)
    loops: list[For] = field(default_factory=list)

    def go(self, n: Any, around: list[For], bound: dict[Var, Any]) -> None:
        if isinstance(n, For):
            self.loops.append(n)
            self.go(n.body, [*around, n], bound)
        elif isinstance(n, BlockRealize):
            inner = dict(bound)
            for iv, value in zip(n.block.iter_vars, n.iter_values, strict=True):
                inner[iv.var] = value
            self.go(n.block.body, around, inner)
        elif isinstance(n, BufferStore):
            self.leaves.append(_leaf(n, around, bound))
        else:
            for child in n.children():
                if not hasattr(child, "dtype"):  # statements have none
                    self.go(child, around, bound)


def _leaf(store: BufferStore, around: list[For], bound: dict[Var, Any]) -> _Leaf:
    loads = [m for m in pre_order(store.value) if isinstance(m, BufferLoad)]
    computed = list(_computed(store.value))
    adds = sum(isinstance(m, _ADDS) for m in computed)
    muls = sum(isinstance(m, Mul) for m in computed)
    divs = sum(isinstance(m, _DIVS) for m in computed)
    places: list[tuple[Any, Any]] = [(store.buffer, store.indices), *((a.buffer, a.indices) for a in loads)]
    accesses = [_access(buffer, indices, around, bound) for buffer, indices in places]
    return _Leaf(around, accesses, (adds, muls, divs))


def _computed(e: Any) -> Iterator[Any]:
    """The parts of an expression, without those of indices."""
    yield e
    if not isinstance(e, BufferLoad):
        for child in e.children():
            yield from _computed(child)


def _access(buffer: Any, indices: Sequence[Any], around: list[For], bound: dict[Var, Any]) -> _Access:
    """Strides by finite differences: the index in the first iteration of all loops, and in the second of one."""
    start = {loop.loop_var: 0 for loop in around}
    origin = _place(buffer, indices, start, bound)
    strides = {}
    for loop in around:
        moved = {**start, loop.loop_var: 1}
        strides[loop.loop_var] = abs(_place(buffer, indices, moved, bound) - origin)
    return _Access(buffer, strides)


def _place(buffer: Any, indices: Sequence[Any], at: dict[Var, int], bound: dict[Var, Any]) -> int:
    total = 0
    for extent, index in zip(buffer.shape, indices, strict=False):
        total = total * int(const_value(extent) or 1) + _value(index, at, bound)
    return total


def _value(e: Any, at: dict[Var, int], bound: dict[Var, Any]) -> int:
    """The numeric value of an index; unknown variables count as 0."""
    if isinstance(e, IntImm):
        return int(e.value)
    if isinstance(e, Var):
        if e in at:
            return at[e]
        return _value(bound[e], at, bound) if e in bound else 0
    if isinstance(e, Cast):
        return _value(e.value, at, bound)
    if not isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)):
        return 0
    a, b = _value(e.a, at, bound), _value(e.b, at, bound)
    if isinstance(e, Add):
        return a + b
    if isinstance(e, Sub):
        return a - b
    if isinstance(e, Mul):
        return a * b
    if isinstance(e, (Min, Max)):
        return min(a, b) if isinstance(e, Min) else max(a, b)
    return 0 if b == 0 else a // b if isinstance(e, FloorDiv) else a % b


def _extent(loop: For) -> int:
    return int(const_value(loop.extent) or 1)


def _kind(loop: For) -> str:
    if loop.kind is ForKind.THREAD_BINDING and loop.thread_binding is not None:
        tag = str(loop.thread_binding.thread_tag)
        return "vthread" if tag.startswith("vthread") else "block" if tag.startswith("block") else "thread"
    return {
        ForKind.PARALLEL: "parallel",
        ForKind.VECTORIZED: "vectorized",
        ForKind.UNROLLED: "unrolled",
    }.get(loop.kind, "serial")


def _log(x: float) -> float:
    return math.copysign(math.log2(abs(x) + 1), x)


# ---------------------------------------------------------------------------- loops
@dataclass
class _Loop:
    """Statistics of a loop: the operations of one run, and the accesses of each buffer."""

    loop: For
    depth: int
    outside: int  # iterations, its own counted, over all loops around it
    inside: int = 1
    arith: tuple[int, int, int] = (0, 0, 0)
    # Stride, bytes of an element, count.
    touches: dict[str, tuple[int, int, int]] = field(default_factory=dict)


def _loops_of(sch: Any, args: Any) -> list[_Loop]:
    walk = _Walk()
    walk.go(_func_of(sch, args).body, [], {})
    out: dict[int, _Loop] = {}
    for leaf in walk.leaves:
        outside = 1
        for depth, loop in enumerate(leaf.loops):
            outside *= _extent(loop)
            inner = leaf.loops[depth:]
            points = math.prod(_extent(x) for x in inner)
            entry = out.setdefault(id(loop), _Loop(loop, depth, outside))
            entry.inside = max(entry.inside, points)
            entry.arith = (
                entry.arith[0] + points * leaf.arith[0],
                entry.arith[1] + points * leaf.arith[1],
                entry.arith[2] + points * leaf.arith[2],
            )
            for access in leaf.accesses:
                count = math.prod(_extent(x) for x in inner if access.strides[x.loop_var])
                known = entry.touches.get(access.buffer.name, (0, 0, 0))
                stride = max(known[0], access.strides[loop.loop_var])
                size = max(1, access.buffer.dtype.nbytes)
                entry.touches[access.buffer.name] = (stride, size, max(known[2], count))
    return [out[id(loop)] for loop in walk.loops if id(loop) in out]


def _func_of(sch: Any, args: Any) -> PrimFunc:
    if isinstance(sch, PrimFunc):
        return sch
    mod = sch if isinstance(sch, IRModule) else program_of(sch, args or [])
    (func,) = (f for f in mod.functions.values() if isinstance(f, PrimFunc))
    return func


def ana_lower(sch: Any, args: Any = None, binds: Any = None, simple_mode: bool = True) -> Any:
    """The statement whose loops are looked at."""
    return _func_of(sch, args).body


def get_itervar_feature(sch: Any, args: Any = None, take_log: bool = False) -> list[list[Any]]:
    """For each loop: its variable, kind, operations, and the accesses of each buffer."""
    scale = _log if take_log else float
    out: list[list[Any]] = []
    for entry in _loops_of(sch, args):
        kind = _kind(entry.loop)
        attr = [
            scale(_extent(entry.loop)), float(entry.depth), scale(entry.outside), scale(entry.inside),
            *(float(kind == k) for k in _KINDS),
        ]  # fmt: skip
        row: list[Any] = [
            ["_itervar_", entry.loop.loop_var],
            ["_attr_", *attr],
            ["_arith_", *map(scale, entry.arith)],
        ]
        for name, (stride, size, count) in entry.touches.items():
            numbers = (stride, count * size, count, entry.inside / max(1, count), entry.outside)
            row.append([name, *map(scale, numbers)])
        out.append(row)
    return out


def _flat(rows: list[list[Any]]) -> Iterator[float]:
    for row in rows:
        for part in row[1:]:
            yield from part[1:]


def get_itervar_feature_flatten(sch: Any, args: Any = None, take_log: bool = True) -> list[float]:
    """The numbers of `get_itervar_feature` in a row."""
    return list(_flat(get_itervar_feature(sch, args, take_log)))


def get_flatten_name(fea: list[list[Any]]) -> list[str]:
    """What each number of a flattened feature is: `loop.what`, or `loop.buffer.what`."""
    columns = {"_attr_": (*_ATTR, *_KINDS), "_arith_": _ARITH}
    names: list[str] = []
    for row in fea:
        loop = row[0][1].name
        for part in row[1:]:
            label = f"{loop}." if part[0] in columns else f"{loop}.{part[0]}."
            names += [f"{label}{c}" for c in columns.get(part[0], _TOUCH)]
    return names


# ---------------------------------------------------------------------------- curves
def get_buffer_curve_sample_flatten(sch: Any, args: Any = None, sample_n: int = 30) -> list[float]:
    """For each buffer three curves, sampled where 1, 2, 4, … elements are touched: how often each is used again, how
    often the loop that touches so many is begun, and its length; as logarithms."""
    curves: dict[str, list[tuple[int, float, int, int]]] = {}
    for entry in _loops_of(sch, args):
        for name, (_, _, count) in entry.touches.items():
            reuse = entry.inside / max(1, count)
            curves.setdefault(name, []).append((count, reuse, entry.outside, _extent(entry.loop)))
    out: list[float] = []
    for points in curves.values():
        points.sort()
        for which in (1, 2, 3):
            for i in range(sample_n):
                below = [p[which] for p in points if p[0] <= 1 << i]
                out.append(_log(max(below)) if below else 0.0)
    return out
