"""Programs for GPUs in the classic forms of te: intrinsics of tensor cores from buffers and `ir_builder`, scans, externs.

Nothing here needs pytest: see gpu_programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_programs import Program, axis, random

from tilewright import te, tir
from tilewright.tir.tensor_intrin.cuda import get_wmma_intrin_group

N = 16  # the side of a fragment


def _fragment(t: te.Tensor, scope: str, name: str) -> Any:
    return tir.decl_buffer(t.shape, t.dtype, name=name, scope=scope, data_alignment=32, offset_factor=N * N)


def _moving(kind: str, source: str, target: str) -> te.TensorIntrin:
    """A fragment from shared memory, or sums to memory."""
    A = te.placeholder((N, N), kind, name="A")
    C = te.compute((N, N), lambda i, j: A[i, j], name="C")
    binds = {A: _fragment(A, source, "BA"), C: _fragment(C, target, "BC")}

    def rule(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        (a,), (c,) = ins, outs
        if target.startswith("wmma"):
            args = ("tir.tvm_load_matrix_sync", c.data, N, N, N, c.elem_offset // 256, a.access_ptr("r"), N)
        else:
            args = ("tir.tvm_store_matrix_sync", a.data, N, N, N, a.elem_offset // 256, c.access_ptr("w"), N)
        ib.emit(tir.call_intrin("handle", *args, "row_major"))
        return ib.get()

    return te.decl_tensor_intrin(C.op, rule, binds=binds)


def _product() -> te.TensorIntrin:
    A, B = te.placeholder((N, N), "float16", name="A"), te.placeholder((N, N), "float16", name="B")
    k = te.reduce_axis((0, N), name="k")
    C = te.compute((N, N), lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k))
    scopes = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")
    binds = {t: _fragment(t, s, f"B{i}") for i, (t, s) in enumerate(zip((A, B, C), scopes, strict=True))}

    def rule(ins: Any, outs: Any) -> Any:
        def one(name: str, *args: Any) -> Any:
            ib = tir.ir_builder.create()
            ib.emit(tir.call_intrin("handle", name, *args))
            return ib.get()

        d, (a, b) = outs[0], ins
        at = [v for x in (d, a, b, d) for v in (x.data, x.elem_offset // 256)]
        update = one("tir.tvm_mma_sync", *at)
        return update, one("tir.tvm_fill_fragment", d.data, N, N, N, d.elem_offset // 256, 0.0), update

    return te.decl_tensor_intrin(C.op, rule, binds=binds)


def wmma_in_te() -> Program:
    """A product of matrices that lie in tiles of 16 x 16, with tensor cores through te's own intrinsics."""
    tiles = 4
    A = te.placeholder((tiles, tiles, N, N), "float16", name="A")
    W = te.placeholder((tiles, tiles, N, N), "float16", name="W")
    ko, ki = te.reduce_axis((0, tiles), name="ko"), te.reduce_axis((0, N), name="ki")
    C = te.compute(
        (tiles, tiles, N, N),
        lambda i, j, x, y: te.sum(
            A[i, ko, x, ki].astype("float32") * W[ko, j, ki, y].astype("float32"), axis=[ko, ki]
        ),
        name="C",
    )
    s = te.create_schedule(C.op)
    shared = [s.cache_read(t, "shared", [C]) for t in (A, W)]
    held = [s.cache_read(t, f"wmma.matrix_{x}", [C]) for t, x in zip(shared, "ab", strict=True)]
    sums = s.cache_write(C, "wmma.accumulator")
    i, j, x, y = C.op.axis
    warp, j = s[C].split(j, nparts=2)
    s[C].reorder(i, warp, j, x, y)
    s[C].bind(i, axis("blockIdx.x"))
    s[C].bind(warp, axis("threadIdx.y"))
    s[sums].compute_at(s[C], warp)
    spatial, (outer, inner) = s[sums].op.axis, s[sums].op.reduce_axis
    s[sums].reorder(outer, *spatial, inner)
    for copy in (*held, *shared):
        s[copy].compute_at(s[sums], outer)
    for copy in shared:
        rest, lanes = s[copy].split(s[copy].fuse(*s[copy].op.axis), factor=8)
        rest, tx = s[copy].split(rest, factor=32)
        _, ty = s[copy].split(rest, factor=2)
        s[copy].bind(tx, axis("threadIdx.x"))
        s[copy].bind(ty, axis("threadIdx.y"))
        s[copy].vectorize(lanes)
    for copy, x_ in zip(held, "ab", strict=True):
        s[copy].tensorize(copy.op.axis[-2], _moving("float16", "shared", f"wmma.matrix_{x_}"))
    s[C].tensorize(x, _moving("float32", "wmma.accumulator", "global"))
    s[sums].tensorize(spatial[-2], _product())
    a, w = random(tiles, tiles, N, N, dtype="float16"), random(tiles, tiles, N, N, dtype="float16", seed=1)
    want = np.einsum("ikab,kjbc->ijac", a.astype("float64"), w.astype("float64"))
    return Program(s, [A, W, C], [a, w], want.astype("float32"), 1e-2, 1e-2)


def wmma_convolution() -> Program:
    """A padded convolution of channels in tiles of 16, its windows fetched row by row, by the axes that te was given."""
    size, tiles, side = 4, 2, 3
    A = te.placeholder((1, size, size, tiles, N, N), "float16", name="A")
    W = te.placeholder((side, side, tiles, tiles, N, N), "float16", name="W")
    kh, kw = te.reduce_axis((0, side), name="kh"), te.reduce_axis((0, side), name="kw")
    ic, ii = te.reduce_axis((0, tiles), name="ic"), te.reduce_axis((0, N), name="ii")
    padded = te.compute(
        (1, size + 2, size + 2, tiles, N, N),
        lambda n, h, w, c, x, y: tir.if_then_else(
            tir.all(h >= 1, h - 1 < size, w >= 1, w - 1 < size),
            A[n, h - 1, w - 1, c, x, y],
            tir.const(0, "float16"),
        ),
        name="padded",
    )
    C = te.compute(
        (1, size, size, tiles, N, N),
        lambda n, h, w, o, x, y: te.sum(
            padded[n, h + kh, w + kw, ic, x, ii].astype("float32")
            * W[kh, kw, ic, o, ii, y].astype("float32"),
            axis=[ic, kh, kw, ii],
        ),
        name="C",
    )
    s = te.create_schedule(C.op)
    s[padded].compute_inline()
    shared = [s.cache_read(t, "shared", [C]) for t in (padded, W)]
    held = [s.cache_read(t, f"wmma.matrix_{x}", [C]) for t, x in zip(shared, "ab", strict=True)]
    sums = s.cache_write(C, "wmma.accumulator")
    n, h, w, o, x, y = C.op.axis
    s[C].bind(s[C].fuse(h, w), axis("blockIdx.x"))
    s[C].bind(n, axis("threadIdx.y"))
    s[sums].compute_at(s[C], n)
    outer, inner = s[sums].split(ic, factor=2)
    *_, o, x_in, y_in = s[sums].op.axis
    s[sums].reorder(outer, kh, inner, kw, o, x_in, y_in, ii)
    for copy in held:
        s[copy].compute_at(s[sums], kw)
    for copy in shared:
        s[copy].compute_at(s[sums], kh)
        _, tx = s[copy].split(s[copy].fuse(*s[copy].op.axis[-2:]), factor=32)
        s[copy].bind(tx, axis("threadIdx.x"))
    for copy, x_ in zip(held, "ab", strict=True):
        s[copy].tensorize(copy.op.axis[-2], _moving("float16", "shared", f"wmma.matrix_{x_}"))
    s[C].tensorize(x, _moving("float32", "wmma.accumulator", "global"))
    s[sums].tensorize(x_in, _product())
    a = random(1, size, size, tiles, N, N, dtype="float16")
    w_ = random(side, side, tiles, tiles, N, N, dtype="float16", seed=1)
    wide = np.pad(a.astype("float64"), [(0, 0), (1, 1), (1, 1)] + [(0, 0)] * 3)
    want = sum(
        np.einsum("nhwcxk,coky->nhwoxy", wide[:, i : i + size, j : j + size], w_[i, j].astype("float64"))
        for i, j in np.ndindex(side, side)
    )
    return Program(s, [A, W, C], [a, w_], want.astype("float32"), 1e-2, 1e-2)


def wmma_of_blocks() -> Program:
    """A product that was made a block of tiles first, then tiled on as one: copies go behind and before whole tiles."""
    n = 64
    A, B = te.placeholder((n, n), "float16", name="A"), te.placeholder((n, n), "float16", name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute(
        (n, n), lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k), name="C"
    )
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    block = sch.get_block("C")
    parts = [sch.split(x, [None, N]) for x in sch.get_loops(block)]
    sch.reorder(*(p[0] for p in parts), *(p[1] for p in parts))
    outer = sch.blockize(parts[0][1])
    i, j, k0 = sch.get_loops(outer)
    (bi, ii), (bj, jj), (ko, ki) = (sch.split(x, [None, 2]) for x in (i, j, k0))
    sch.reorder(bi, bj, ko, ki, ii, jj)
    sch.bind(bi, "blockIdx.y")
    sch.bind(bj, "blockIdx.x")
    sums = sch.cache_write(outer, 0, "wmma.accumulator")
    sch.reverse_compute_at(sums, bj)
    held = []
    for number, x in enumerate("ab"):
        shared = sch.cache_read(outer, number, "shared")
        held.append(sch.cache_read(outer, number, f"wmma.matrix_{x}"))
        sch.compute_at(held[-1], ki)
        sch.compute_at(shared, ko)
        _, tx, lanes = sch.split(sch.fuse(*sch.get_loops(shared)[-2:]), [None, 32, 8])
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(lanes)
    sch.decompose_reduction(outer, ko)
    names = get_wmma_intrin_group("shared", "global", "float16", "float32", False)
    for copy, name in ((held[0], "load_a"), (held[1], "load_b"), (sums, "store")):
        (x0, x1), (y0, y1) = (sch.split(x, [None, N]) for x in sch.get_loops(copy)[-2:])
        sch.reorder(x0, y0, x1, y1)
        sch.tensorize(x1, names[name])
    sch.tensorize(sch.get_loops(sch.get_block("C_init"))[-2], names["init"])
    sch.tensorize(sch.get_loops(block)[-3], names["compute"])
    a, b = random(n, n, dtype="float16"), random(n, n, dtype="float16", seed=1)
    return Program(
        sch.mod, None, [a, b], (a.astype("float64") @ b.astype("float64")).astype("float32"), 1e-2, 1e-2
    )


def sums_in_global_memory() -> Program:
    """A product whose threads, virtual ones too, add up in the result itself, each in elements of its own."""
    m, n, depth = 20, 18, 12
    A, B = te.placeholder((m, depth), name="A"), te.placeholder((depth, n), name="B")
    k = te.reduce_axis((0, depth), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    i, j, k = sch.get_loops("C")
    bi, vi, ti, ii = sch.split(i, [None, 2, 4, 2])
    bj, vj, tj, jj = sch.split(j, [None, 2, 4, 2])
    sch.reorder(bi, bj, vi, vj, ti, tj, k, ii, jj)
    sch.bind(sch.fuse(bi, bj), "blockIdx.x")
    sch.bind(sch.fuse(vi, vj), "vthread.x")
    sch.bind(sch.fuse(ti, tj), "threadIdx.x")
    a, b = random(m, depth), random(depth, n, seed=1)
    return Program(sch.mod, None, [a, b], (a.astype("float64") @ b).astype("float32"), 1e-4, 1e-4)


def running_sums() -> Program:
    """A scan: a thread for each column, from row to row."""
    m, n = te.var("m"), te.var("n")
    X = te.placeholder((m, n), name="X")
    state = te.placeholder((m, n), name="state")
    first = te.compute((1, n), lambda _, i: X[0, i], name="first")
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    total = te.scan(first, update, state, inputs=[X])
    s = te.create_schedule(total.op)
    for stage in (first, update):
        block, thread = s[stage].split(stage.op.axis[1], factor=64)
        s[stage].bind(block, axis("blockIdx.x"))
        s[stage].bind(thread, axis("threadIdx.x"))
    x = random(12, 100)
    return Program(s, [X, total], [x], x.cumsum(0))


def written_by_hand() -> Program:
    """A kernel of `ir_builder` through te.extern, and one of te after it."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")

    def kernel(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        a, b = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        bx, tx = axis("blockIdx.x"), axis("threadIdx.x")
        ib.scope_attr(bx, "thread_extent", (n + 63) // 64)
        ib.scope_attr(tx, "thread_extent", 64)
        with ib.if_scope(bx * 64 + tx < n):
            b[bx * 64 + tx] = a[n - 1 - (bx * 64 + tx)]
        return ib.get()

    B = te.extern((n,), [A], kernel, dtype="float32", name="B")
    C = te.compute((n,), lambda i: B[i] + 1.0, name="C")
    s = te.create_schedule(C.op)
    block, thread = s[C].split(C.op.axis[0], factor=32)
    s[C].bind(block, axis("blockIdx.x"))
    s[C].bind(thread, axis("threadIdx.x"))
    a = random(150)
    return Program(s, [A, C], [a], a[::-1] + np.float32(1))


CLASSIC: dict[str, Callable[[], Program]] = {
    "running sums": running_sums,
    "written by hand": written_by_hand,
    "sums in global memory": sums_in_global_memory,
}
CLASSIC_CUDA: dict[str, Callable[[], Program]] = {
    "wmma in te": wmma_in_te,
    "wmma convolution": wmma_convolution,
    "wmma of blocks": wmma_of_blocks,
}
