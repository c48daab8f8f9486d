"""Features of the loops of a schedule, for cost models.

    for i in parallel(16):          [("_itervar_", i), [length, depth, outside, inside, kind…], [adds, muls, divs],
        for j in vectorized(8):      ("A", stride, footprint, touched, reuse), …]
            C[i, j] += A[i] * B[j]

There is one entry for each loop, from the outside in. The loops are those of the scheduled program, before
vectorized and unrolled loops are expanded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
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
from ..ir.functor import pre_order, substitute
from ..ir.module import IRModule
from ..ir.stmt import BlockRealize, BufferStore, For, ForKind
from .task.task import program_of

_ATTR = ("length", "nest_level", "topdown", "bottomup")
_KINDS = ("serial", "parallel", "vectorized", "unrolled", "block", "thread", "vthread")
_ARITH = ("add", "mul", "div")
_TOUCH = ("stride", "bytes", "count", "reuse", "topdown_reuse")
_ADDS, _DIVS = (Add, Sub, Min, Max), (Div, Mod, FloorDiv, FloorMod)


@dataclass
class _Leaf:
    """A store: the loops around it from the outside in, its operations, and its accesses: buffers, and their strides
    in elements by loop variable."""

    loops: list[For]
    arith: tuple[int, int, int]
    accesses: list[tuple[Any, dict[Var, int]]]


@dataclass
class _Walk:
    """The loops and the stores of a program."""

    leaves: list[_Leaf] = field(default_factory=list)
    loops: list[For] = field(default_factory=list)

    def go(self, n: Any, around: list[For], bound: dict[Var, Any]) -> None:
        """Visit a statement with the loops around it and the values of the iterators of its blocks."""
        if isinstance(n, For):
            self.loops.append(n)
            self.go(n.body, [*around, n], bound)
        elif isinstance(n, BlockRealize):
            pairs = zip(n.block.iter_vars, n.iter_values, strict=True)
            self.go(n.block.body, around, bound | {iv.var: substitute(v, bound) for iv, v in pairs})
        elif isinstance(n, BufferStore):
            self.leaves.append(_leaf(n, around, bound))
        else:
            for child in n.children():
                if not hasattr(child, "dtype"):  # statements have none
                    self.go(child, around, bound)


def _leaf(store: BufferStore, around: list[For], bound: dict[Var, Any]) -> _Leaf:
    touching: list[Any] = [store, *(m for m in pre_order(store.value) if isinstance(m, BufferLoad))]
    computed = list(_computed(store.value))
    adds, muls, divs = (sum(isinstance(m, kinds) for m in computed) for kinds in (_ADDS, Mul, _DIVS))
    accesses = [(m.buffer, _strides(m, around, bound)) for m in touching]
    return _Leaf(around, (adds, muls, divs), accesses)


def _computed(e: Any) -> Iterator[Any]:
    """The parts of an expression, without those of indices."""
    yield e
    if not isinstance(e, BufferLoad):
        for child in e.children():
            yield from _computed(child)


def _strides(m: Any, around: list[For], bound: dict[Var, Any]) -> dict[Var, int]:
    """The strides of an access by finite differences: its offset in the first iteration of all loops, and in the
    second iteration of one of them."""
    indices = [substitute(index, bound) for index in m.indices]

    def offset(at: dict[Var, int]) -> int:
        total = 0
        for extent, index in zip(m.buffer.shape, indices, strict=False):
            total = total * int(const_value(extent) or 1) + _value(index, at)
        return total

    origin = offset({})
    return {loop.loop_var: abs(offset({loop.loop_var: 1}) - origin) for loop in around}


_NUMERIC: dict[type, Callable[[int, int], int]] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    Min: min,
    Max: max,
    FloorDiv: lambda a, b: a // b if b else 0,
    FloorMod: lambda a, b: a % b if b else 0,
}


def _value(e: Any, at: dict[Var, int]) -> int:
    """The value of an index; other variables and operations count as 0."""
    if isinstance(e, IntImm):
        return int(e.value)
    if isinstance(e, Var):
        return at.get(e, 0)
    if isinstance(e, Cast):
        return _value(e.value, at)
    if type(e) not in _NUMERIC:
        return 0
    return _NUMERIC[type(e)](_value(e.a, at), _value(e.b, at))


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
    """Statistics of a loop: the operations of one run, and the accesses to each buffer."""

    loop: For
    depth: int
    outside: int  # iterations of the loop and of all loops around it
    inside: int = 1
    arith: list[int] = field(default_factory=lambda: [0, 0, 0])
    # By buffer: its stride, the bytes of an element, and the number of elements.
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
            entry.arith = [known + points * new for known, new in zip(entry.arith, leaf.arith, strict=True)]
            for buffer, strides in leaf.accesses:
                count = math.prod(_extent(x) for x in inner if strides[x.loop_var])
                stride, _, most = entry.touches.get(buffer.name, (0, 0, 0))
                size = max(1, buffer.dtype.nbytes)
                entry.touches[buffer.name] = (max(stride, strides[loop.loop_var]), size, max(most, count))
    return [out[id(loop)] for loop in walk.loops if id(loop) in out]


def _func_of(sch: Any, args: Any) -> PrimFunc:
    if isinstance(sch, PrimFunc):
        return sch
    mod = sch if isinstance(sch, IRModule) else program_of(sch, args or [])
    (func,) = (f for f in mod.functions.values() if isinstance(f, PrimFunc))
    return func


def ana_lower(sch: Any, args: Any = None, binds: Any = None, simple_mode: bool = True) -> Any:
    """The statement whose loops have features; `binds` and `simple_mode` change nothing."""
    return _func_of(sch, args).body


def get_itervar_feature(sch: Any, args: Any = None, take_log: bool = False) -> list[list[Any]]:
    """For each loop: its variable, attributes, operations and accesses to each buffer; as logarithms if `take_log`."""
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
    """The numbers of `get_itervar_feature`, in one list."""
    return list(_flat(get_itervar_feature(sch, args, take_log)))


def get_flatten_name(fea: list[list[Any]]) -> list[str]:
    """The name of each number of a flattened feature: `loop.attribute`, or `loop.buffer.attribute`."""
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
    """For each buffer three curves, sampled at `sample_n` numbers of touched elements (1, 2, 4, …), as logarithms: the
    reuse of each element, the iterations outside of the loop that touches so many, and the length of that loop."""
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
