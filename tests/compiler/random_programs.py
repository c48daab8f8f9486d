"""Random tensor expressions and random schedules of them, for tests that compare ways to run a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from tilewright import te, tir
from tilewright.ir.expr import IterVar

SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17)
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int8", "uint8", "int16", "int32", "int64")


@dataclass
class Program:
    """A chain of computes over some inputs, and the values of the symbols in its shapes."""

    inputs: list[Any]
    output: Any
    symbols: dict[Any, int]

    def args(self) -> list[Any]:
        return [*self.inputs, self.output]

    def arrays(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        out = []
        for t in self.args():
            shape = [self.value(d) for d in t.shape]
            if t.op.name.startswith("index"):
                data: Any = rng.integers(0, 3, shape)
            elif t.dtype in INTS:
                data = rng.integers(0 if t.dtype == "uint8" else -9, 9, shape)
            elif t.dtype == "bool":
                data = rng.integers(0, 2, shape)
            else:
                data = rng.integers(-8, 8, shape) / 4.0
            out.append(np.asarray(data).astype(ml_dtypes.bfloat16 if t.dtype == "bfloat16" else str(t.dtype)))
        return out

    def value(self, dim: Any) -> int:
        from tilewright.arith import Analyzer
        from tilewright.ir.functor import substitute

        known = {v: tir.const(n, v.dtype) for v, n in self.symbols.items()}
        return int(Analyzer().simplify(substitute(tir.convert(dim), known)))


@st.composite
def programs(draw: Any) -> Program:
    """A chain of one to four computes over tensors of up to four dimensions."""
    symbols: dict[Any, int] = {}
    dtype = draw(st.sampled_from(FLOATS + INTS))

    def size() -> Any:
        n = draw(st.sampled_from(SIZES))
        choice = draw(st.integers(0, 7))
        if choice == 0:
            v = te.var(f"n{len(symbols)}")
            symbols[v] = n
            return v
        if choice == 1 and symbols:  # a size derived from one that stands alone
            return next(iter(symbols)) * 2 + 1
        return n

    shape = tuple(size() for _ in range(draw(st.integers(1, 4))))
    inputs = [te.placeholder(shape, dtype, name="X0")]
    x = inputs[0]
    for i in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(STEPS))
        made = kind(draw, x, inputs, i)
        if made is not None:
            x = made
    if x is inputs[0]:
        x = te.compute(x.shape, lambda *i: inputs[0](*i) + inputs[0](*i), name="S_end")
    return Program(inputs, x, symbols)


def _scale(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    factor = draw(st.integers(-3, 3))
    if x.dtype == "uint8":
        factor = abs(factor)
    return te.compute(x.shape, lambda *v: x(*v) * tir.const(factor, x.dtype) + x(*v), name=f"S{i}")


def _binary(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    other = te.placeholder(x.shape, x.dtype, name=f"X{len(inputs)}")
    inputs.append(other)
    op = draw(st.sampled_from([lambda a, b: a + b, lambda a, b: a - b, tir.max, tir.min, lambda a, b: a * b]))
    return te.compute(x.shape, lambda *v: op(x(*v), other(*v)), name=f"S{i}")


def _broadcast(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    row = te.placeholder((x.shape[-1],), x.dtype, name=f"X{len(inputs)}")
    inputs.append(row)
    return te.compute(x.shape, lambda *v: x(*v) + row[v[-1]], name=f"S{i}")


def _transpose(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    order = draw(st.permutations(range(len(x.shape))))
    shape = [x.shape[a] for a in order]
    back = [order.index(a) for a in range(len(order))]
    return te.compute(shape, lambda *v: x(*[v[b] for b in back]), name=f"S{i}")


def _stencil(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    def body(*v: Any) -> Any:
        left = te.if_then_else(v[-1] >= 1, x(*v[:-1], v[-1] - 1), tir.const(0, x.dtype))
        right = te.if_then_else(v[-1] + 1 < x.shape[-1], x(*v[:-1], v[-1] + 1), tir.const(0, x.dtype))
        return left + x(*v) + right

    return te.compute(x.shape, body, name=f"S{i}")


def _pad(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    if any(not isinstance(d, (int, tir.IntImm)) for d in x.shape):
        return None
    dims = [int(d) for d in x.shape]
    new = [d + 2 for d in dims]

    def body(*v: Any) -> Any:
        inside = tir.all(*[tir.all(a >= 1, a < d + 1) for a, d in zip(v, dims, strict=True)])
        return te.if_then_else(inside, x(*[a - 1 for a in v]), tir.const(1, x.dtype))

    return te.compute(new, body, name=f"S{i}")


def _reduce(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    if len(x.shape) < 2:
        return None
    axis = draw(st.integers(0, len(x.shape) - 1))
    k = te.reduce_axis((0, x.shape[axis]), f"k{i}")
    how = draw(st.sampled_from([te.sum, te.max, te.min]))
    shape = [d for a, d in enumerate(x.shape) if a != axis]
    return te.compute(shape, lambda *v: how(x(*v[:axis], k, *v[axis:]), axis=k), name=f"S{i}")


def _matmul(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    if len(x.shape) != 2:
        return None
    cols = draw(st.sampled_from(SIZES))
    w = te.placeholder((x.shape[1], cols), x.dtype, name=f"X{len(inputs)}")
    inputs.append(w)
    k = te.reduce_axis((0, x.shape[1]), f"k{i}")
    return te.compute((x.shape[0], cols), lambda a, b: te.sum(x[a, k] * w[k, b], axis=k), name=f"S{i}")


def _gather(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    if not isinstance(x.shape[0], (int, tir.IntImm)) or int(x.shape[0]) < 3:
        return None
    index = te.placeholder((5,), "int32", name=f"index{len(inputs)}")
    inputs.append(index)
    return te.compute((5, *x.shape[1:]), lambda *v: x(index[v[0]], *v[1:]), name=f"S{i}")


def _strided(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    last = x.shape[-1]
    if not isinstance(last, (int, tir.IntImm)) or int(last) < 2:
        return None
    return te.compute((*x.shape[:-1], int(last) // 2), lambda *v: x(*v[:-1], v[-1] * 2 + 1), name=f"S{i}")


def _cast(draw: Any, x: Any, inputs: list[Any], i: int) -> Any:
    if x.dtype in INTS:
        return te.compute(x.shape, lambda *v: x(*v).astype("float32"), name=f"S{i}")
    return te.compute(
        x.shape, lambda *v: tir.Select(x(*v) > tir.const(0, x.dtype), x(*v), -x(*v)), name=f"S{i}"
    )


STEPS = (_scale, _binary, _broadcast, _transpose, _stencil, _pad, _reduce, _matmul, _gather, _strided, _cast)


@st.composite
def schedules(draw: Any, program: Program) -> Any:
    """A random te schedule of the program made of splits, fusions, reorders and marks."""
    s = te.create_schedule(program.output.op)
    for stage in s.stages:
        if isinstance(stage.op, te.PlaceholderOp):
            continue
        for _ in range(draw(st.integers(0, 3))):
            leaves = list(stage.leaf_iter_vars)
            what = draw(st.sampled_from(["split", "nparts", "fuse", "reorder"]))
            axis = draw(st.integers(0, len(leaves) - 1))
            if what == "split":
                stage.split(leaves[axis], factor=draw(st.sampled_from([2, 3, 4, 8])))
            elif what == "nparts":
                stage.split(leaves[axis], nparts=draw(st.sampled_from([2, 3, 4])))
            elif what == "reorder":
                stage.reorder(*draw(st.permutations(leaves)))
            elif axis + 1 < len(leaves) and leaves[axis].iter_type == leaves[axis + 1].iter_type:
                stage.fuse(leaves[axis], leaves[axis + 1])
        spatial = [iv for iv in stage.leaf_iter_vars if iv.iter_type == IterVar.DataPar]
        marks = draw(st.permutations(["parallel", "vectorize", "unroll", "plain"]))
        for mark, iv in zip(marks, spatial, strict=False):
            if mark == "parallel":
                stage.parallel(iv)
            elif mark == "vectorize" and isinstance(iv.dom.extent, tir.IntImm) and iv.dom.extent.value <= 64:
                stage.vectorize(iv)
            elif mark == "unroll" and isinstance(iv.dom.extent, tir.IntImm) and iv.dom.extent.value <= 8:
                stage.unroll(iv)
    return s
