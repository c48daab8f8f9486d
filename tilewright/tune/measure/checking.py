"""Checks of candidates: inputs, the reference, and the tolerance of results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, Call, IterVar
from ...ir.function import PrimFunc
from ...ir.functor import pre_order
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.stmt import Block, BlockRealize
from ...runtime.dtypes import ELEMENTS
from ...target import Target
from ...tir.schedule import Schedule
from ..program.facts import Facts, facts_of, number
from ..workload import Task
from .compare import Tolerance

_EPS = {16: 2.0**-10, 32: 2.0**-23, 64: 2.0**-52}
_ROUGH = {"bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}
# Functions that are undefined for negative numbers or for large ones.
_POSITIVE = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "asin", "acos", "acosh", "atanh"}
_LONG = 1 << 26  # points of a reduction above which its plain loops are reordered and run in parallel


def tolerance_of(func: PrimFunc, target: Target | None = None) -> Tolerance:
    """The tolerance for the least precise float type of a function and its longest sum: errors grow with the square
    root of the length. With `-tf32` in the target, float32 counts as precise as float16."""
    eps = _EPS if target is None or not target.attrs.get("tf32") else {**_EPS, 32: _EPS[16]}
    longest, count, rough, floats = 1, 0, 0.0, False
    for m in pre_order(func.body):
        if isinstance(m, Block):
            extents = [number(iv.dom.extent) for iv in m.iter_vars if iv.iter_type == IterVar.CommReduce]
            if extents:
                longest, count = max(longest, math.prod(extents)), count + 1
            for w in m.writes:
                kind = w.buffer.dtype.element
                if kind.is_float or str(kind) in _ROUGH:
                    floats, rough = True, max(rough, _ROUGH.get(str(kind), eps.get(kind.bits, eps[32])))
    relative = rough * (64 + 8 * max(1, count) * math.sqrt(longest))
    return Tolerance(relative, 1e-3 if floats else 0.0)


def make_inputs(task: Task, seed: int = 0) -> list[Any]:
    """An array for each buffer that the function takes, and a number for each scalar; the same for the same seed.

    Buffers that are only written get arrays too: their contents must not matter. Programs for accelerators scale their
    sums to narrow integers: these would be all alike if the inputs were small.
    """
    rng = np.random.default_rng(seed)
    func = task.func
    positive = any(
        isinstance(m, Call) and isinstance(m.op, Op) and m.op.short_name in _POSITIVE
        for m in pre_order(func.body)
    )
    limits = _index_limits(task)
    out: list[Any] = []
    for v in func.params:
        buffer = func.buffer_map.get(v)
        if buffer is None:
            out.append(1.0 if v.dtype.is_float else task.sizes.get(v.name, 1))
            continue
        shape, kind = task.shape(buffer), ELEMENTS[str(buffer.dtype)].numpy
        if buffer.name in task.inputs:
            given = np.asarray(task.inputs[buffer.name], kind, order="C")
            if given.shape != shape:
                raise ValueError(
                    f"tuning {task.name}: inputs[{buffer.name!r}] has the shape {given.shape}, the parameter {shape}"
                )
            out.append(given)
        elif kind.kind == "b":
            out.append(rng.integers(0, 2, shape).astype(kind))
        elif kind.kind in "iu":
            most = 1 << min(8 * kind.itemsize - 1, 12) if task.target.is_accelerator else 8
            low, high = (0, limits[buffer]) if buffer in limits else (0 if kind.kind == "u" else -most, most)
            out.append(rng.integers(low, max(low + 1, high), shape).astype(kind))
        else:
            low_f, high_f = (0.1, 0.9) if positive else (-1.0, 1.0)
            values = rng.random(shape, np.float32) * np.float32(high_f - low_f) + np.float32(low_f)
            out.append(np.asarray(values, kind))
    # not ascontiguousarray, which makes a scalar one-dimensional
    return [x if isinstance(x, (int, float)) else np.asarray(x, order="C") for x in out]


def _index_limits(task: Task) -> dict[Buffer, int]:
    """For each buffer whose elements are indices, the bound that they must be below."""
    out: dict[Buffer, int] = {}
    for m in pre_order(task.func.body):
        if not isinstance(m, BufferLoad):
            continue
        for extent, index in zip(m.buffer.shape, m.indices, strict=True):
            for inner in pre_order(index):
                if isinstance(inner, BufferLoad):
                    limit = min(out.get(inner.buffer, 1 << 30), task.size(extent))
                    out[inner.buffer] = max(1, limit)
    return out


# ---------------------------------------------------------------------------- the reference
def plain_program(task: Task) -> IRModule:
    """The program as it is written; only in long reductions, the last spatial axis is innermost and loops run in
    parallel.

    It is the reference for all candidates: no sketch is involved.
    """
    func, root = task.func, task.func.body
    if not isinstance(root, BlockRealize):
        return task.mod
    sch = Schedule(IRModule({task.name: func}))
    for rv in sch.get_child_blocks(sch.get_block("root")):
        facts = facts_of(sch, rv)
        if facts.kind == "reduction" and facts.points > _LONG and len(facts.spatial) > 1:
            _in_lines(sch, facts)
    return sch.mod


def _in_lines(sch: Schedule, facts: Facts) -> None:
    """for i: for j: for k: C[i, j] += …    ->    for i in parallel: for k: for j: C[i, j] += …"""
    by_axis = dict(zip([a.var for a in facts.axes], sch.get_loops(facts.rv), strict=False))
    if len(by_axis) != len(facts.axes):
        return
    spatial = [by_axis[a.var] for a in facts.spatial]
    reduces = [by_axis[a.var] for a in facts.reduce]
    sch.reorder(*spatial[:-1], *reduces, spatial[-1])
    wide = next((x for x, a in zip(spatial[:-1], facts.spatial, strict=False) if a.extent > 1), None)
    if wide is not None:
        sch.parallel(wide)
