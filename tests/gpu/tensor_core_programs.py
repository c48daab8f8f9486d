"""Products of matrices by tensor cores, with schedules by hand and by rules, for CUDA alone. Nothing here needs pytest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_programs import Program, random

import tilewright as tvm
from tilewright import te, tir
from tilewright.tir.tensor_intrin.cuda import get_wgmma_intrin, get_wmma_intrin_group

HOPPER = "cuda -model=h200"
AMPERE = "cuda -model=a100"


def product(
    m: int,
    n: int,
    k: int,
    kind: str = "float16",
    sums: str = "float32",
    out: str = "",
    trans_a: bool = False,
    trans_b: bool = False,
    batch: tuple[int, ...] = (),
    bias: bool = False,
) -> list[Any]:
    """The tensors of a product, with a bias and a ReLU if asked for, rounded to `out` if that is another type."""
    A = te.placeholder((*batch, *((k, m) if trans_a else (m, k))), kind, name="A")
    B = te.placeholder((*batch, *((n, k) if trans_b else (k, n))), kind, name="B")
    r = te.reduce_axis((0, k), name="k")

    def term(*x: Any) -> Any:
        *b, i, j = x
        a = A[(*b, r, i)] if trans_a else A[(*b, i, r)]
        c = B[(*b, j, r)] if trans_b else B[(*b, r, j)]
        return te.sum(a.astype(sums) * c.astype(sums), axis=r)

    C = te.compute((*batch, m, n), term, name="C")
    args = [A, B]
    if bias:
        shift = te.placeholder((n,), sums, name="shift")
        args.append(shift)
        D = te.compute(
            C.shape,
            lambda *x: tir.max(C[x] + shift[x[-1]], tir.const(0, sums)).astype(out or sums),
            name="D",
        )
    elif out and out != sums:
        D = te.compute(C.shape, lambda *x: C[x].astype(out), name="D")
    else:
        D = C
    return [*args, D]


def arrays(args: list[Any], trans_a: bool = False, trans_b: bool = False) -> tuple[list[Any], Any]:
    """Random inputs, and what must come out."""
    given = [random(*map(int, t.shape), dtype=t.dtype, seed=i) for i, t in enumerate(args[:-1])]
    a, b = (x.astype("float64") for x in given[:2])
    out = (a.swapaxes(-1, -2) if trans_a else a) @ (b.swapaxes(-1, -2) if trans_b else b)
    if len(given) > 2:
        out = np.maximum(out + given[2], 0)
    import ml_dtypes

    return given, out.astype(getattr(ml_dtypes, args[-1].dtype, args[-1].dtype))


def by_hand(
    m: int, n: int, k: int, tile: int = 64, warp: int = 32, depth: int = 32, stages: int = 1, **facts: Any
) -> tir.Schedule:
    """The classic schedule: fragments from shared memory, stored by the instruction; with stages, a pipeline."""
    args = product(m, n, k, **facts)
    trans_a, trans_b = facts.get("trans_a", False), facts.get("trans_b", False)
    sch = tir.Schedule(te.create_prim_func(args))
    sums = args[-1].dtype
    scope = "shared.dyn" if stages > 1 else "shared"
    group = get_wmma_intrin_group(scope, "global", args[0].dtype, sums, trans_b, trans_a)
    c = sch.get_block("C")
    i, j, r = sch.get_loops(c)
    i0, i1, i2, i3 = sch.split(i, [None, tile // warp, warp // 16, 16])
    j0, j1, j2, j3 = sch.split(j, [None, tile // warp, warp // 16, 16])
    k0, k1, k2 = sch.split(r, [None, depth // 16, 16])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2, i3, j3, k2)
    for loop, axis in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.z"), (j1, "threadIdx.y")):
        sch.bind(loop, axis)
    out = sch.cache_write(c, 0, "wmma.accumulator")
    sch.reverse_compute_at(out, j1)
    for which, name in enumerate("ab"):
        _fetch(sch, c, which, k0, tile // warp, scope)
        load = sch.cache_read(c, which, f"wmma.matrix_{name}")
        sch.compute_at(load, k1)
        sch.tensorize(_sixteens(sch, load), group[f"load_{name}"])
    if stages > 1:
        sch.annotate(k0, "software_pipeline_stage", [0, 0, stages - 1])
        sch.annotate(k0, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k0, "software_pipeline_async_stages", [0])
    start = sch.decompose_reduction(c, k0)
    sch.tensorize(sch.get_loops(start)[-2], group["init"])
    sch.tensorize(i3, group["compute"])
    sch.tensorize(_sixteens(sch, out), group["store"])
    return sch


def _fetch(sch: tir.Schedule, c: Any, which: int, at: Any, warps: int, scope: str) -> None:
    """A tile in shared memory, by all threads, 16 bytes at a time."""
    copy = sch.cache_read(c, which, scope)
    sch.compute_at(copy, at)
    wide = 16 // np.dtype("int8" if sch.get(copy).writes[0].buffer.dtype == "int8" else "int16").itemsize
    some, z, y, x, lane = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, warps, warps, 32, wide])
    for loop, axis in ((z, "threadIdx.z"), (y, "threadIdx.y"), (x, "threadIdx.x")):
        sch.bind(loop, axis)
    sch.vectorize(lane)
    sch.unroll(some)
    sch.storage_align(copy, 0, -2, 2 * wide, wide)


def _sixteens(sch: tir.Schedule, block: Any) -> Any:
    """The loop over the lines of a tile of 16 x 16."""
    i, j = sch.get_loops(block)[-2:]
    (i0, i1), (j0, j1) = sch.split(i, [None, 16]), sch.split(j, [None, 16])
    sch.reorder(i0, j0, i1, j1)
    return i1


def by_warpgroups(
    m: int,
    n: int,
    k: int,
    rows: int = 128,
    columns: int = 128,
    stages: int = 3,
    blocks: int = 0,
    **facts: Any,
) -> tir.Schedule:
    """Products of warpgroups over tiles that bulk copies fetch, by a warpgroup of their own."""
    args = product(m, n, k, out="float16", **facts)
    trans_a, trans_b = facts.get("trans_a", False), facts.get("trans_b", False)
    sch = tir.Schedule(te.create_prim_func(args))
    c, d = sch.get_block("C"), sch.get_block("D")
    intrinsics = get_wgmma_intrin(columns, args[0].dtype, trans_a, trans_b)
    sch.set_scope(c, 0, "wgmma.accumulator")
    i, j, r = sch.get_loops(c)
    i0, i1, i2 = sch.split(i, [None, rows // 64, 64])
    j0, j1 = sch.split(j, [None, columns])
    k0, k1 = sch.split(r, [None, 64])
    sch.reorder(i0, j0, i1, k0, i2, j1, k1)
    sch.bind(sch.fuse(i0, j0), "blockIdx.x")
    sch.bind(i1, "threadIdx.y")
    for which in (0, 1):
        copy = sch.cache_read(c, which, "shared.dyn")
        sch.compute_at(copy, k0)
        sch.annotate(sch.blockize(sch.get_loops(copy)[-2]), "tilewright.bulk_copy", 1)
    sch.annotate(k0, "tilewright.specialize_warps", stages)
    if blocks:
        sch.annotate(k0, "tilewright.persistent_blocks", blocks)
    sch.reverse_compute_at(d, i1)
    x, y = sch.get_loops(d)[-2:]
    warp, half, row = sch.split(x, [4, 2, 8])
    eight, quad, pair = sch.split(y, [None, 4, 2])
    sch.reorder(warp, row, quad, eight, half, pair)
    sch.bind(sch.fuse(warp, row, quad), "threadIdx.x")
    sch.vectorize(pair)
    start = sch.decompose_reduction(c, k0)
    sch.tensorize(sch.get_loops(start)[-2], intrinsics["init"])
    sch.tensorize(i2, intrinsics["compute"])
    return sch


def _program(make: Callable[..., tir.Schedule], *sizes: int, **facts: Any) -> Callable[[], Program]:
    def build() -> Program:
        shape = {k: v for k, v in facts.items() if k not in ("tile", "stages", "rows", "columns", "blocks")}
        if make is by_warpgroups:
            shape["out"] = "float16"
        ways = {k: v for k, v in facts.items() if k.startswith("trans")}
        given, result = arrays(product(*sizes, **shape), **ways)
        return Program(make(*sizes, **facts), None, given, result, 1e-2, 1e-2 * sizes[2] ** 0.5)

    return build


def _by_rules(target: str, *sizes: int, sketch: str = "tensor cores", **facts: Any) -> Callable[[], Program]:
    def build() -> Program:
        args = product(*sizes, **facts)
        ways = {k: v for k, v in facts.items() if k.startswith("trans")}
        given, result = arrays(args, **ways)
        sch = tvm.auto_schedule(args, target)
        assert any(r["sketch"] == sketch for r in sch.explanation.records), sch.explain()
        return Program(sch.mod, None, given, result, 1e-2, 1e-2 * sizes[2] ** 0.5)

    return build


_REGISTERS = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float16"), B: T.Buffer((8, 16), "float16"), C: T.Buffer((16, 16), "float32")):
    tx = T.launch_thread("threadIdx.x", 32)
    S = T.allocate([256], "float16", "shared")
    W = T.allocate([128], "float16", "shared")
    a = T.allocate([8], "float16", "local")
    b = T.allocate([4], "float16", "local")
    c = T.allocate([8], "float32", "local")
    S_1 = T.Buffer((256,), "float16", data=S, scope="shared")
    W_1 = T.Buffer((128,), "float16", data=W, scope="shared")
    for i in range(8):
        S_1[tx * 8 + i] = A[tx // 2, tx % 2 * 8 + i]
    for i in range(4):
        W_1[tx * 4 + i] = B[tx // 4, tx % 4 * 4 + i]
    T.tvm_storage_sync("shared")
    T.evaluate(T.Call("float32", "tir.mma_fill", [8, c, 0]))
    T.evaluate(T.Call("float16", "tir.ptx_ldmatrix", [False, 4, ".b16", a, 0, S, tx % 16 * 16 + tx // 16 * 8]))
    T.evaluate(T.Call("float16", "tir.ptx_ldmatrix", [False, 2, ".b16", b, 0, W, tx % 8 * 16 + tx // 8 % 2 * 8]))
    for h in range(2):
        T.evaluate(T.Call("float32", "tir.ptx_mma", [
            "m16n8k16", "row", "col", "fp16", "fp16", "fp32", a, 0, b, 0, c, h * 4, False]))
    T.evaluate(T.Call("float32", "tir.mma_store", [16, 16, C.data, c, 0, 16]))
"""


def registers() -> Program:
    """The instructions of single threads: A by the turned B, beside itself."""
    from gpu_programs import from_script

    a, b = random(16, 16, dtype="float16"), random(8, 16, dtype="float16", seed=1)
    once = a.astype("float64") @ b.astype("float64").T
    return Program(
        from_script(_REGISTERS), None, [a, b], np.hstack([once, once]).astype("float32"), 1e-2, 1e-2
    )


# by the architecture that they need at least
BY_HAND: dict[str, Callable[[], Program]] = {
    "wmma": _program(by_hand, 128, 192, 96),
    "wmma, A turned": _program(by_hand, 128, 64, 64, trans_a=True),
    "wmma, B turned": _program(by_hand, 64, 128, 64, trans_b=True),
    "wmma, bytes": _program(by_hand, 64, 128, 96, kind="int8", sums="int32"),
    "wmma, sums in float16": _program(by_hand, 64, 64, 32, sums="float16"),
}
AMPERE_PROGRAMS: dict[str, Callable[[], Program]] = {
    "registers": registers,
    "wmma, bfloat16": _program(by_hand, 64, 64, 64, kind="bfloat16", trans_a=True, trans_b=True),
    "wmma, pipeline": _program(by_hand, 128, 128, 320, stages=4),
    "mma by rules": _by_rules(AMPERE, 256, 384, 320, out="float16"),
    "mma by rules, ragged, bias": _by_rules(AMPERE, 200, 300, 100, out="float16", bias=True, trans_b=True),
    "large tiles of float32": _by_rules(AMPERE, 1024, 1024, 128, kind="float32", sketch="large tile"),
    "large tiles, ragged": _by_rules(
        AMPERE, 1000, 1030, 70, kind="float32", trans_b=True, bias=True, sketch="large tile"
    ),
    "mma by rules, odd": _by_rules(AMPERE, 70, 63, 33, trans_a=True),
    "mma by rules, parts": _by_rules(AMPERE, 40, 64, 2048),
    "mma by rules, batch": _by_rules(AMPERE, 96, 80, 64, batch=(3,), trans_a=True),
}
HOPPER_PROGRAMS: dict[str, Callable[[], Program]] = {
    "wgmma": _program(by_warpgroups, 256, 256, 320),
    "wgmma, A turned": _program(by_warpgroups, 256, 128, 192, trans_a=True),
    "wgmma, B turned": _program(by_warpgroups, 128, 128, 192, trans_b=True),
    "wgmma, both turned, bfloat16": _program(
        by_warpgroups, 128, 256, 128, trans_a=True, trans_b=True, kind="bfloat16"
    ),
    "wgmma, persistent": _program(by_warpgroups, 512, 512, 192, columns=256, stages=4, blocks=3),
    "wgmma by rules": _by_rules(HOPPER, 512, 768, 512, out="float16"),
    "wgmma by rules, ragged, bias": _by_rules(HOPPER, 200, 296, 104, out="float16", bias=True, trans_b=True),
    "wgmma by rules, parts": _by_rules(HOPPER, 16, 512, 4096, out="float16"),
    "wgmma by rules, batch": _by_rules(HOPPER, 128, 192, 128, batch=(3,)),
}
