"""Programs over every type of elements, with accesses of sixteen bytes and of one element; conversions between floats.

Nothing here needs pytest: see gpu_programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from gpu_programs import Program, axis

from tilewright import te, tir

FLOATS8 = ("float8_e4m3fn", "float8_e5m2")
TYPES = (
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", *FLOATS8),
)


def numpy_type(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def threads(s: te.Schedule, B: te.Tensor, lanes: int) -> None:
    """A thread for each vector of a stage."""
    outer, lane = s[B].split(B.op.axis[0], factor=lanes)
    bx, tx = s[B].split(outer, factor=16)
    s[B].bind(bx, axis("blockIdx.x"))
    s[B].bind(tx, axis("threadIdx.x"))
    if lanes > 1:
        s[B].vectorize(lane)


def arithmetic(kind: str, lanes: int = 0) -> Program:
    """Sums, products, comparisons and conversions, with as many elements at once as sixteen bytes hold."""
    held = numpy_type(kind)
    lanes, n = lanes or 16 // held.itemsize, 16 * 16 * 5
    A, B = te.placeholder((n,), kind, name="A"), te.placeholder((n,), kind, name="B")

    def body(i: Any) -> Any:
        a, b = A[i], B[i]
        half = (a.astype("float32") * tir.const(0.5, "float32")).astype(kind)
        return tir.Select(a > b, a + b, tir.if_then_else(a == b, half, tir.max(a * b, tir.const(3, kind))))

    C = te.compute((n,), body, name="C")
    s = te.create_schedule(C.op)
    threads(s, C, lanes)
    low = 0 if kind.startswith("uint") else -6
    a, b = (np.random.default_rng(seed).integers(low, 7, n).astype(held) for seed in (0, 1))
    half = (a.astype("float32") * np.float32(0.5)).astype(held)
    want = np.where(a > b, a + b, np.where(a == b, half, np.maximum(a * b, np.array(3).astype(held))))
    return Program(s, [A, B, C], [a, b], want.astype(held), 0, 0)


def narrowed(kind: str) -> Program:
    """Every float8 as a float32, and what is between two of them rounded back: to the even one if half-way."""
    held = numpy_type(kind)
    numbers = np.arange(256, dtype="uint8").view(held).astype("float32")
    finite = np.sort(numbers[np.isfinite(numbers)])
    between = (finite[1:] + finite[:-1]) / np.float32(2)
    x = np.concatenate([numbers, between, np.nextafter(between, np.float32(np.inf)), [1e9, -1e9, 0.0]])
    x = np.concatenate([x, np.zeros(-len(x) % 64)]).astype("float32")
    A = te.placeholder((len(x),), name="A")
    B = te.compute(A.shape, lambda i: A[i].astype(kind).astype("float32"), name="B")
    s = te.create_schedule(B.op)
    threads(s, B, 4)
    with np.errstate(all="ignore"):
        return Program(s, [A, B], [x], x.astype(held).astype("float32"), 0, 0)


def extremes(kind: str) -> Program:
    """The smaller and the larger of two numbers, infinities and NaN among them, which is kept."""
    held, n = numpy_type(kind), 256
    A, B = te.placeholder((n,), kind, name="A"), te.placeholder((n,), kind, name="B")
    C = te.compute((n,), lambda i: tir.max(A[i], B[i]) - tir.min(A[i], B[i]), name="C")
    s = te.create_schedule(C.op)
    threads(s, C, 1)
    rng = np.random.default_rng(2)
    special = np.array([np.nan, np.inf, -np.inf, 0.0])
    a, b = (
        np.where(rng.random(n) < 0.3, rng.choice(special, n), rng.integers(-9, 9, n)).astype(held)
        for _ in range(2)
    )
    with np.errstate(all="ignore"):
        return Program(s, [A, B, C], [a, b], (np.maximum(a, b) - np.minimum(a, b)).astype(held), 0, 0)


TYPE_PROGRAMS: dict[str, Callable[[], Program]] = {
    **{kind: (lambda kind=kind: arithmetic(kind)) for kind in TYPES},
    **{
        f"{kind}, minima and maxima": (lambda kind=kind: extremes(kind))
        for kind in ("float16", "bfloat16", "float32", "float64")
    },
    **{
        f"{kind}, one by one": (lambda kind=kind: arithmetic(kind, 1))
        for kind in ("int8", "float16", *FLOATS8)
    },
    **{f"{kind} of float32": (lambda kind=kind: narrowed(kind)) for kind in FLOATS8},
}


def bytes_by_dp4a(a_kind: str = "int8", b_kind: str = "int8") -> Program:
    """A product of matrices of bytes whose inner four steps are one instruction, from tiles in shared memory."""
    m = n = 64
    A, B = te.placeholder((m, 96), a_kind, name="A"), te.placeholder((n, 96), b_kind, name="B")
    k = te.reduce_axis((0, 96), "k")
    C = te.compute(
        (m, n), lambda i, j: te.sum(A[i, k].astype("int32") * B[j, k].astype("int32"), axis=k), name="C"
    )
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    c = sch.get_block("C")
    out = sch.cache_write(c, 0, "local")
    i, j, r = sch.get_loops(c)
    (bi, ti, ii), (bj, tj, jj) = sch.split(i, [None, 8, 4]), sch.split(j, [None, 8, 4])
    ko, ki, four = sch.split(r, [None, 8, 4])
    sch.reorder(bi, bj, ti, tj, ko, ki, ii, jj, four)
    for loop, tag in ((bi, "blockIdx.y"), (bj, "blockIdx.x"), (ti, "threadIdx.y"), (tj, "threadIdx.x")):
        sch.bind(loop, tag)
    sch.reverse_compute_at(out, tj)
    for operand in (0, 1):
        copy = sch.cache_read(c, operand, "shared")
        sch.compute_at(copy, ko)
        _, y, x, lanes = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, 8, 8, 4])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(lanes)
    sch.decompose_reduction(c, ko)
    signs = "".join("u" if kind.startswith("u") else "s" for kind in (a_kind, b_kind))
    sch.tensorize(four, f"dp4a_{signs[0]}8{signs[1]}8s32")
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(*((0, 256) if kind == "uint8" else (-128, 128)), (64, 96)).astype(kind)
        for kind in (a_kind, b_kind)
    )
    return Program(sch, None, [a, b], a.astype("int32") @ b.astype("int32").T)


for _a in ("int8", "uint8"):
    for _b in ("int8", "uint8"):
        TYPE_PROGRAMS[f"dp4a, {_a} by {_b}"] = lambda a=_a, b=_b: bytes_by_dp4a(a, b)
