"""Sums of products of numbers of 8 and 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.tir.interpret.scalars import numpy_type

SUMS = {"bfloat16": "float32", "float16": "float32"}


def product(
    first: str, second: str, m: int = 3, n: int = 5, k: int = 8, transposed: tuple[bool, bool] = (False, True)
) -> Any:
    """A product of two matrices; the reduction is the last dimension of a factor that is not `transposed`."""
    out = SUMS.get(first, "int32")
    A = te.placeholder((k, m) if transposed[0] else (m, k), first, name="A")
    B = te.placeholder((k, n) if transposed[1] else (n, k), second, name="B")
    s = te.reduce_axis((0, k), name="s")

    def term(i: Any, j: Any) -> Any:
        a = A[s, i] if transposed[0] else A[i, s]
        b = B[s, j] if transposed[1] else B[j, s]
        return te.sum(a.astype(out) * b.astype(out), axis=s)

    return te.create_prim_func([A, B, te.compute((m, n), term, name="C")])


def convolution(first: str, second: str, channels: int = 6, outputs: int = 4, groups: int = 1) -> Any:
    """A convolution of an image with a border; its stages are the border and the sum."""
    x = te.placeholder((2, channels, 5, 6), first, name="x")
    w = te.placeholder((outputs, channels // groups, 3, 3), second, name="w")
    out = SUMS.get(first, "int32")
    y = (
        topi.nn.conv2d_nchw(x, w, 1, 1, 1, out_dtype=out)
        if groups == 1
        else topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, groups, out)
    )
    return te.create_prim_func([x, w, y])


def blockwise(
    m: Any = 3,
    n: int = 5,
    k: int = 32,
    block: int = 8,
    bits: int = 4,
    zeros: bool = True,
    inlined: bool = True,
    rounded: bool = False,
) -> Any:
    """A product with weights of few bits, which have a scale and a zero point for each block; in one stage if
    `inlined`. If `rounded`, the data is of int8 with a scale for each block of a row."""
    per, count = 8 // bits, k // block
    x = te.placeholder((m, k), "int8" if rounded else "float32", name="x")
    w, by = te.placeholder((n, k // per), "uint8", name="w"), te.placeholder((m, count), name="by")
    s, z = te.placeholder((n, count), name="s"), te.placeholder((n, count), name="z")
    step = te.reduce_axis((0, k), name="k")

    def weight(i: Any, j: Any) -> Any:
        q = w(i, j // per)
        if bits < 8:
            q = (q >> (j % per * bits).astype("uint8")) & te.const((1 << bits) - 1, "uint8")
        q = q.astype("float32")
        return (q - z(i, j // block) if zeros else q) * s(i, j // block)

    floats = te.compute((n, k), weight, name="W")
    row = weight if inlined else floats

    def number(i: Any) -> Any:
        return x(i, step).astype("float32") * by(i, step // block) if rounded else x(i, step)

    result = te.compute((m, n), lambda i, j: te.sum(number(i) * row(j, step), axis=step), name="C")
    return te.create_prim_func([x, *([by] if rounded else []), w, s, *([z] if zeros else []), result])


def data(func: Any, seed: int = 0) -> list[np.ndarray]:
    """Inputs over the whole range of their types, its ends among them; the result is zeros."""
    rng, out = np.random.default_rng(seed), []
    *inputs, result = [func.buffer_map[v] for v in func.params]
    for b in inputs:
        shape, kind = [int(d) for d in b.shape], numpy_type(b.dtype)
        if b.dtype.is_float:
            out.append(rng.standard_normal(shape).astype(kind))
            continue
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max, shape, endpoint=True).astype(kind)
        x[rng.random(shape) < 0.2] = info.min
        x[rng.random(shape) < 0.2] = info.max
        out.append(x)
    return [*out, np.zeros([int(d) for d in result.shape], str(result.dtype))]
