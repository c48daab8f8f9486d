"""The trace of every primitive replays: from memory, as JSON and as Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from schedule_checks import replays
from schedule_programs import chain, copy2d, matmul
from stage_programs import blur, stencil
from tensorize_programs import gemm, register_tiles
from word_programs import blockwise, product

from tilewright import te, tir, topi
from tilewright.ir.module import IRModule
from tilewright.script import tir as T
from tilewright.tir.schedule.primitive import PRIMITIVES, BlockRV, LoopRV

S = tir.Schedule


@T.prim_func
def running(X: T.Buffer((5, 8), "float32"), S: T.Buffer((5, 8), "float32")):
    for t in range(1, 5):
        for i in range(8):
            with T.block("step"):
                vt = T.axis.scan((1, 5), t)
                vi = T.axis.spatial(8, i)
                S[vt, vi] = S[vt - 1, vi] + X[vt, vi]


@T.prim_func
def padded(x: T.Buffer((128,), "int32"), y: T.Buffer((140,), "int32")):
    for i in range(140):
        with T.block("y"):
            vi = T.axis.spatial(140, i)
            y[vi] = T.if_then_else(vi >= 6 and vi < 134, x[vi - 6], 0)


@T.prim_func
def stencil_of_padding(x: T.Buffer((6,), "int32"), z: T.Buffer((6,), "int32")):
    y = T.alloc_buffer((8,), "int32")
    c = T.alloc_buffer((6,), "int32")
    for i in range(8):
        with T.block("y"):
            vi = T.axis.spatial(8, i)
            y[vi] = T.if_then_else(vi >= 1 and vi < 7, x[vi - 1], 0)
    for i in range(6):
        with T.block("C"):
            vi = T.axis.spatial(6, i)
            c[vi] = y[vi] + y[vi + 2]
    for i in range(6):
        with T.block("z"):
            vi = T.axis.spatial(6, i)
            z[vi] = c[vi]


@T.prim_func
def inplace(A: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = A[vi] + T.float32(1)


def softmax_sum() -> Any:
    """The largest element M of each row, and the sum S of exp(x - M)."""
    x, k, j = te.placeholder((2, 8)), te.reduce_axis((0, 8)), te.reduce_axis((0, 8))
    M = te.compute((2,), lambda i: te.max(x[i, k], k), name="M")
    return te.create_prim_func([x, te.compute((2,), lambda i: te.sum(te.exp(x[i, j] - M[i]), j), name="S")])


def attention() -> Any:
    q, k, v = (te.placeholder((1, 2, 16, 64), "float16", name=n) for n in "qkv")
    return te.create_prim_func([q, k, v, topi.nn.scaled_dot_product_attention(q, k, v)])


def convolution() -> Any:
    x, k = te.placeholder((1, 2, 6, 6), name="x"), te.placeholder((2, 2, 3, 3), name="k")
    return te.create_prim_func([x, k, topi.nn.conv2d_nchw(x, k, 1, 1, 1)])


def decomposed(sch: S) -> tuple[BlockRV, BlockRV]:
    update = sch.get_block("C")
    return sch.decompose_reduction(update, sch.get_loops(update)[2]), update


def parts(sch: S, name: str) -> BlockRV:
    part, _ = sch.split(sch.get_loops(name)[-1], [None, 4])
    return sch.rfactor(part, factor_axis=1)


def cascaded(sch: S) -> BlockRV:
    i, j, k = sch.get_loops("C")
    outer, inner = sch.split(k, [None, 2])
    sch.reorder(i, outer, inner, j)
    return sch.cascade_reduction(outer)


def tensorized(sch: S) -> None:
    register_tiles()
    i, j, k = sch.get_loops("C")
    (io, ii), (jo, ji), (ko, ki) = (
        sch.split(x, [None, n]) for x, n in zip((i, j, k), (4, 8, 4), strict=True)
    )
    sch.reorder(io, jo, ko, ii, ji, ki)
    sch.decompose_reduction("C", ko)
    sch.tensorize(ii, "test.tile")


def launched(sch: S) -> LoopRV:
    t, i = sch.get_loops("step")
    sch.bind(i, "threadIdx.x")
    return sch.launch_around(t, "threadIdx.x")


def rolled(sch: S) -> None:
    outer, _ = sch.split(sch.get_loops("D")[0], [None, 4])
    sch.compute_at("B", outer)
    sch.rolling_buffer("B", 0)


def sampled(sch: S) -> None:
    i, _ = sch.get_loops("B")
    sch.split(i, sch.sample_perfect_tile(i, 2))


def partly_sampled(sch: S) -> None:
    _, j = sch.get_loops("B")
    sch.split(j, sch.sample_partitioned_tile(j, 3, 1, 4))


def marked(sch: S) -> None:
    block = sch.get_block("B")
    sch.annotate(block, "note", sch.sample_categorical([1, 2, 4], [0.2, 0.3, 0.5]))


def moved(sch: S) -> None:
    sch.compute_at("B", sch.sample_compute_location("B"))


def unmarked(sch: S) -> None:
    sch.annotate("B", "note", {"a": [1, 2.5, "x"], "b": True})
    sch.annotate("B", "other", [1, 2])
    sch.unannotate("B", "other")


# Each primitive: a program, and steps on it among which it is.
CASES: dict[str, tuple[Any, Callable[[S], Any]]] = {
    "work_on": (lambda: IRModule({"main": copy2d, "other": matmul}), lambda s: s.work_on("other")),
    "get_block": (chain, lambda s: s.get_block("C")),
    "get_loops": (matmul, lambda s: s.get_loops("C")),
    "get_child_blocks": (chain, lambda s: s.get_child_blocks("root")),
    "get_producers": (chain, lambda s: s.get_producers("D")),
    "get_consumers": (chain, lambda s: s.get_consumers("B")),
    "get_output_blocks": (chain, lambda s: s.get_output_blocks("root")),
    "split": (copy2d, lambda s: s.split(s.get_loops("B")[0], [None, 4], names=["o", "i"])),
    "fuse": (copy2d, lambda s: s.fuse(*s.get_loops("B"), name="f")),
    "reorder": (copy2d, lambda s: s.reorder(*s.get_loops("B")[::-1])),
    "add_unit_loop": (copy2d, lambda s: s.add_unit_loop("B")),
    "loop_partition": (copy2d, lambda s: s.loop_partition(s.get_loops("B")[0], [2, None])),
    "merge": (chain, lambda s: s.merge(s.get_loops("B")[0], s.get_loops("C")[0])),
    "parallel": (copy2d, lambda s: s.parallel(s.get_loops("B")[0])),
    "vectorize": (copy2d, lambda s: s.vectorize(s.get_loops("B")[1])),
    "unroll": (copy2d, lambda s: s.unroll(s.get_loops("B")[1])),
    "bind": (copy2d, lambda s: s.bind(s.get_loops("B")[0], te.thread_axis("blockIdx.x"))),
    "launch_around": (running, launched),
    "annotate": (copy2d, lambda s: s.annotate(s.get_loops("B")[0], "note", [1, "x"])),
    "unannotate": (copy2d, unmarked),
    "cache_read": (chain, lambda s: s.cache_read("D", 1, "shared", consumer_blocks=["D"])),
    "cache_write": (matmul, lambda s: s.cache_write("C", 0, "local")),
    "cache_inplace": (inplace, lambda s: s.cache_inplace("A", 0, "local")),
    "reindex": (matmul, lambda s: s.reindex("C", ("read", 1))),
    "reindex_cache_read": (
        matmul,
        lambda s: s.reindex_cache_read("C", 1, "shared", lambda i, j, k: (j, k)),
    ),
    "reindex_cache_write": (
        matmul,
        lambda s: s.reindex_cache_write("C", 0, "local", lambda i, j, k: (j // 2, i, j % 2)),
    ),
    "set_scope": (chain, lambda s: s.set_scope("B", 0, "shared")),
    "storage_align": (blur, lambda s: s.storage_align("B", 0, axis=0, factor=8, offset=1)),
    "compute_at": (stencil, lambda s: s.compute_at("B", s.get_loops("C")[0], preserve_unit_loops=True)),
    "reverse_compute_at": (
        chain,
        lambda s: (s.compute_inline("B"), s.reverse_compute_at("D", s.get_loops("C")[0])),
    ),
    "compute_inline": (chain, lambda s: s.compute_inline("B")),
    "reverse_compute_inline": (
        chain,
        lambda s: (s.compute_inline("B"), s.reverse_compute_inline("D")),
    ),
    "decompose_reduction": (matmul, decomposed),
    "merge_reduction": (matmul, lambda s: s.merge_reduction(*decomposed(s))),
    "rfactor": (softmax_sum, lambda s: parts(s, "S")),
    "cascade_reduction": (matmul, cascaded),
    "rebase": (softmax_sum, lambda s: s.rebase(*reversed([parts(s, "M"), parts(s, "S")]))),
    "stream": (attention, lambda s: s.stream("T_attention", 16, 8)),
    "split_attention": (attention, lambda s: s.split_attention("T_attention", 8)),
    "winograd": (convolution, lambda s: s.winograd("conv2d_nchw", 2)),
    "pack_words": (
        lambda: product("int8", "uint8"),
        lambda s: s.pack_words("C", s.get_loops("C")[2], "int8", "uint8"),
    ),
    "split_scales": (blockwise, lambda s: s.split_scales("C", s.get_loops("C")[2], 8)),
    "pack_bits": (blockwise, lambda s: s.pack_bits("C", s.get_loops("C")[2])),
    "pack_dot_bits": (
        lambda: blockwise(rounded=True),
        lambda s: s.pack_dot_bits(
            (b := s.split_scales("C", s.get_loops("C")[2], 8, True)[0]), s.get_loops(b)[-1]
        ),
    ),
    "blockize": (copy2d, lambda s: s.blockize(s.get_loops("B")[1])),
    "tensorize": (gemm, tensorized),
    "rolling_buffer": (blur, rolled),
    "decompose_padding": (padded, lambda s: s.decompose_padding("y", s.get_loops("y")[0])),
    "pad_einsum": (matmul, lambda s: s.pad_einsum("C", [4, 4, 4])),
    "round_up": (stencil_of_padding, lambda s: s.round_up("C", [4])),
    "transform_layout": (
        copy2d,
        lambda s: s.transform_layout("B", ("write", 0), lambda i, j: (i // 4, j, i % 4)),
    ),
    "transform_block_layout": (copy2d, lambda s: s.transform_block_layout("B", lambda i, j: (i * 12 + j,))),
    "reorder_block_iter_var": (matmul, lambda s: s.reorder_block_iter_var("C", [1, 0, 2])),
    "set_axis_separator": (blur, lambda s: s.set_axis_separator("B", ("write", 0), [1])),
    "unsafe_set_dtype": (chain, lambda s: s.unsafe_set_dtype("B", 0, "float16")),
    "sample_perfect_tile": (copy2d, sampled),
    "sample_partitioned_tile": (copy2d, partly_sampled),
    "sample_categorical": (copy2d, marked),
    "sample_compute_location": (stencil, moved),
}


def test_every_primitive_is_a_method_and_has_a_case() -> None:
    ours = {n for n, p in PRIMITIVES.items() if p.function.__module__.startswith("tilewright.")}
    assert ours == set(CASES) == tir.Schedule(copy2d).primitives


@pytest.mark.parametrize("name", CASES)
def test_its_trace_replays(name: str) -> None:
    program, steps = CASES[name]
    func = program if isinstance(program, tir.PrimFunc) else program()
    sch = tir.Schedule(func, seed=1)
    steps(sch)
    assert name in [inst.kind for inst in sch.trace.insts]
    for number, made in enumerate(sch.trace.insts[-1].outputs):  # what a step gave goes by the same names
        sch.annotate(made, "number", number)
    replays(func, sch)
