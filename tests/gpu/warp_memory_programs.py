"""Products of matrices by `ldmatrix` and `mma.sync` over memory of warps, scheduled by hand in the classic way.

For CUDA alone; nothing here needs pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_programs import Program
from tensor_core_programs import _fetch, arrays, lines_of_tile, product

from tilewright import te, tir
from tilewright.tir.tensor_intrin.cuda import (
    get_mma_intrin_group,
    shared_16x16_to_ldmatrix_32x8_layout,
    shared_16x32_to_ldmatrix_32x16_layout,
    shared_32x16_to_ldmatrix_32x16_layout,
)


def _tiles(layout: Any, rows: int, columns: int) -> Any:
    """An index map: the tile, then the thread that has an element and its register."""
    return lambda i, j: [i // rows, j // columns, *layout(i % rows, j % columns)]


def by_warp_memory(
    m: int,
    n: int,
    k: int,
    tile: int = 64,
    warp: int = 32,
    stages: int = 1,
    store: str = "instruction",
    permuted: bool = False,
    **facts: Any,
) -> tir.Schedule:
    """Tiles in shared memory, their parts in memory of warps; results are stored by an instruction or by threads."""
    args = product(m, n, k, **facts)
    trans_a, trans_b = facts.get("trans_a", False), facts.get("trans_b", False)
    kind, sums = str(args[0].dtype), str(args[-1].dtype)
    deep = 16 if kind == "float16" else 32
    scope = "shared.dyn" if stages > 1 else "shared"
    group = get_mma_intrin_group(scope, "global", kind, kind, sums, trans_a, trans_b, store == "simple")
    sch = tir.Schedule(te.create_prim_func(args))
    c = sch.get_block("C")
    i, j, r = sch.get_loops(c)
    i0, i1, i2, i3 = sch.split(i, [None, tile // warp, warp // 16, 16])
    j0, j1, j2, j3 = sch.split(j, [None, tile // warp, warp // 16, 16])
    k0, k1, k2 = sch.split(r, [None, 2, deep])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2, i3, j3, k2)
    for loop, axis in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (i1, "threadIdx.z"), (j1, "threadIdx.y")):
        sch.bind(loop, axis)
    out = sch.cache_write(c, 0, "warp")
    sch.reverse_compute_at(out, j1)
    for which, name in enumerate("ab"):
        _fetch(sch, c, which, k0, tile // warp, scope, permuted)
        load = sch.cache_read(c, which, "warp")
        sch.compute_at(load, k1)
        turned = trans_a if which == 0 else not trans_b
        rows, columns = (deep, 16) if turned else (16, deep)
        layout = shared_16x16_to_ldmatrix_32x8_layout
        if kind == "int8":
            layout = (
                shared_32x16_to_ldmatrix_32x16_layout if turned else shared_16x32_to_ldmatrix_32x16_layout
            )
        sch.transform_layout(load, ("write", 0), _tiles(layout, rows, columns))
        sch.tensorize(lines_of_tile(sch, load, rows, columns), group[f"load_{name}"])
    sch.transform_layout(out, ("read", 0), _tiles(shared_16x16_to_ldmatrix_32x8_layout, 16, 16))
    if stages > 1:
        sch.annotate(k0, "software_pipeline_stage", [0, 0, stages - 1])
        sch.annotate(k0, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k0, "software_pipeline_async_stages", [0])
    start = sch.decompose_reduction(c, k0)
    sch.tensorize(sch.get_loops(start)[-2], group["init"])
    sch.tensorize(i3, group["compute"])
    if store != "threads":
        sch.tensorize(lines_of_tile(sch, out), group["store"])
    else:
        _by_threads(sch, out)
    return sch


def _by_threads(sch: tir.Schedule, out: Any) -> None:
    """Each thread stores the elements that it has."""
    i, j = sch.get_loops(out)[-2:]
    most, half, row = sch.split(i, [None, 2, 8])
    wide, eight, quad, pair = sch.split(j, [None, 2, 4, 2])
    sch.reorder(row, quad, most, wide, eight, half, pair)
    sch.bind(sch.fuse(row, quad), "threadIdx.x")
    sch.vectorize(pair)


def _program(*sizes: int, **facts: Any) -> Callable[[], Program]:
    def build() -> Program:
        shape = {k: v for k, v in facts.items() if k in ("kind", "sums", "trans_a", "trans_b")}
        ways = {k: v for k, v in facts.items() if k.startswith("trans")}
        given, result = arrays(product(*sizes, **shape), **ways)
        rough = 1e-2 if facts.get("kind") != "int8" else 0.0
        return Program(by_warp_memory(*sizes, **facts), None, given, result, rough, rough * sizes[2] ** 0.5)

    return build


WARP_PROGRAMS: dict[str, Callable[[], Program]] = {
    "warp memory": _program(64, 64, 64),
    "warp memory, turned": _program(64, 128, 64, trans_b=True, store="simple"),
    "warp memory, both turned": _program(128, 64, 64, trans_a=True, trans_b=True, store="threads"),
    "warp memory, halves": _program(64, 64, 32, sums="float16"),
    "warp memory, bytes": _program(64, 64, 128, kind="int8", sums="int32"),
    "warp memory, bytes turned": _program(64, 64, 64, kind="int8", sums="int32", trans_b=True),
    "warp memory, stages": _program(128, 128, 256, stages=3),
    "warp memory, permuted": _program(128, 128, 128, stages=3, permuted=True),
    "warp memory, permuted, turned": _program(64, 64, 64, trans_a=True, trans_b=True, permuted=True),
    "warp memory, permuted bytes": _program(64, 64, 128, kind="int8", sums="int32", permuted=True),
}
