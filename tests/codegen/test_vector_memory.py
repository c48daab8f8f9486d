"""Vector loads and stores: what they compute, which instructions they are, and that they stay in bounds.

The arrays of most tests end where readable memory ends: one element too far is a crash.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.script import tir as T
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

PAGE = mmap.PAGESIZE
X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"

Fenced = Callable[..., np.ndarray]


@pytest.fixture
def fenced() -> Fenced:
    """Copies of arrays that lie directly before memory that may not be touched, or directly behind it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def place(array: np.ndarray, at_start: bool = False) -> np.ndarray:
        room = -(-max(array.nbytes, 1) // PAGE) * PAGE
        pages = mmap.mmap(-1, PAGE + room + PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        for fence in (base, base + PAGE + room):
            assert libc.mprotect(fence, PAGE, 0) == 0, ctypes.get_errno()
        start = PAGE if at_start else PAGE + room - array.nbytes
        out = np.frombuffer(pages, array.dtype, array.size, start).reshape(array.shape)
        out[...] = array
        return out

    return place


def copies(sch: tir.Schedule, block: str, lanes: int) -> tir.Schedule:
    """The last loop of a block split into vectors."""
    _, inner = sch.split(sch.get_loops(block)[-1], [None, lanes])
    sch.vectorize(inner)
    return sch


def llvm_of(mod: Any, target: str = X86) -> str:
    """The LLVM IR of a program, as it is before the passes of LLVM."""
    return str(tvm.build(mod, target=target).text)


def compared(mod: Any, *arrays: np.ndarray) -> None:
    """Compiled code leaves what the interpreter leaves of the program as it was lowered."""
    func = tvm.lower(mod)["main"]
    want = [np.array(a) for a in arrays]
    tir.interpret(func, *want)
    tvm.build(mod, target="llvm")(*arrays)
    for got, w in zip(arrays, want, strict=True):
        np.testing.assert_array_equal(got, w)


def sample(n: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(n).integers(-50, 50, n).astype(dtype)


# -- every second element ------------------------------------------------------------------------
def every_second(n: int, dtype: str, lanes: int, first: int = 0) -> tir.Schedule:
    """C[i] = A[2 * i + first] + 1, where A ends with the last element that is read."""
    A = te.placeholder((2 * n - 1 + first,), dtype, name="A")
    C = te.compute((n,), lambda i: A[2 * i + first] + tir.const(1, dtype), name="C")
    return copies(tir.Schedule(te.create_prim_func([A, C])), "C", lanes)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "float16", "int64"])
@pytest.mark.parametrize("n", [16, 37, 100])
def test_every_second_element_is_read_in_bounds(n: int, dtype: str, fenced: Fenced) -> None:
    for lanes, first in ((16, 0), (8, 1), (64, 1)):
        sch = every_second(n, dtype, lanes, first)
        compared(sch.mod, fenced(sample(2 * n - 1 + first, dtype)), fenced(np.zeros(n, dtype)))


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [2, 3, 4, 8, 32])
@pytest.mark.parametrize("n", range(1, 71, 7))
def test_every_second_element_for_many_sizes(n: int, lanes: int, fenced: Fenced) -> None:
    sch = every_second(n, "float32", lanes)
    compared(sch.mod, fenced(sample(2 * n - 1, "float32")), fenced(np.zeros(n, "float32")))


def test_every_second_element_is_two_vectors_and_a_shuffle() -> None:
    text = llvm_of(every_second(32, "float32", 16).mod)
    loads = re.findall(r"call <16 x float> @llvm\.masked\.load\.v16f32\.p0\(.*", text)
    assert len(loads) == 2  # and the element behind the last one is not among what they read
    assert loads[0].count("i1 true") == 16
    assert loads[1].count("i1 true") == 15 and loads[1].count("i1 false") == 1
    even = ", ".join(f"i32 {2 * i}" for i in range(16))
    assert re.search(rf"shufflevector <16 x float> %\S+, <16 x float> %\S+, <16 x i32> <{even}>", text)
    assert "gather" not in text


def test_the_mask_of_a_tail_is_spread_over_every_second_element() -> None:
    text = llvm_of(every_second(21, "float32", 16).mod)
    assert text.count("call <16 x float> @llvm.masked.load") == 4  # a whole vector and the tail
    assert len(re.findall(r"shufflevector <16 x i1> %\S+, <16 x i1> zeroinitializer", text)) == 2


@pytest.mark.parametrize("stride", [3, -2])
def test_other_strides_are_read_one_by_one(stride: int, fenced: Fenced) -> None:
    n = 21
    start = 0 if stride > 0 else -stride * (n - 1)
    A = te.placeholder((abs(stride) * (n - 1) + 1,), name="A")
    C = te.compute((n,), lambda i: A[i * stride + start], name="C")
    sch = copies(tir.Schedule(te.create_prim_func([A, C])), "C", 8)
    compared(
        sch.mod,
        fenced(sample(abs(stride) * (n - 1) + 1, "float32"), at_start=stride < 0),
        fenced(np.zeros(n, "float32")),
    )


def test_every_second_bool_is_read_one_by_one(fenced: Fenced) -> None:
    A = te.placeholder((31,), "bool", name="A")
    C = te.compute((16,), lambda i: tir.Not(A[2 * i]), name="C")
    sch = copies(tir.Schedule(te.create_prim_func([A, C])), "C", 16)
    assert "masked.load" not in llvm_of(sch.mod)
    compared(sch.mod, fenced(sample(31, "int8") > 0), fenced(np.zeros(16, "bool")))


# -- masks ---------------------------------------------------------------------------------------
def doubled(n: int, dtype: str, lanes: int) -> tir.Schedule:
    A = te.placeholder((n,), dtype, name="A")
    C = te.compute((n,), lambda i: A[i] + A[i], name="C")
    return copies(tir.Schedule(te.create_prim_func([A, C])), "C", lanes)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "bfloat16", "uint16", "float64"])
def test_the_tail_of_vectors_stays_in_bounds(dtype: str, fenced: Fenced) -> None:
    import ml_dtypes

    kind: Any = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    for n in (37, 3):
        compared(doubled(n, dtype, 16).mod, fenced(sample(n, kind)), fenced(np.zeros(n, kind)))


def test_the_tail_of_bools_stays_in_bounds(fenced: Fenced) -> None:
    A = te.placeholder((21,), "bool", name="A")
    C = te.compute((21,), lambda i: tir.Not(A[i]), name="C")
    sch = copies(tir.Schedule(te.create_prim_func([A, C])), "C", 16)
    compared(sch.mod, fenced(sample(21, "int8") > 0), fenced(np.zeros(21, "bool")))


def test_the_tail_is_a_masked_load_and_a_masked_store() -> None:
    text = llvm_of(doubled(37, "float32", 16).mod)
    assert re.search(r"call <16 x float> @llvm\.masked\.load\.v16f32\.p0\(", text)
    assert re.search(r"call void @llvm\.masked\.store\.v16f32\.p0\(", text)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 40])
def test_a_size_that_only_the_call_knows(n: int, fenced: Fenced) -> None:
    size = te.var("n")
    A = te.placeholder((size,), name="A")
    C = te.compute((size,), lambda i: A[i] + A[i], name="C")
    sch = copies(tir.Schedule(te.create_prim_func([A, C])), "C", 16)
    compared(sch.mod, fenced(sample(n, "float32")), fenced(np.zeros(n, "float32")))


def test_a_border_is_read_only_where_there_is_data(fenced: Fenced) -> None:
    A = te.placeholder((37,), name="A")
    P = te.compute(
        (50,), lambda i: te.if_then_else(te.all(i >= 3, i < 40), A[i - 3], tir.const(-1.0)), name="P"
    )
    sch = copies(tir.Schedule(te.create_prim_func([A, P])), "P", 16)
    for at_start in (False, True):
        compared(
            sch.mod,
            fenced(sample(37, "float32"), at_start),
            fenced(np.zeros(50, "float32"), at_start),
        )


def test_masked_gathers_and_scatters(fenced: Fenced) -> None:
    A = te.placeholder((21 * 5 - 4,), name="A")
    C = te.compute((21,), lambda i: A[i * 5], name="C")
    sch = copies(tir.Schedule(te.create_prim_func([A, C])), "C", 16)
    compared(sch.mod, fenced(sample(101, "float32")), fenced(np.zeros(21, "float32")))
    assert "@llvm.masked.gather.v16f32.v16p0" in llvm_of(sch.mod)

    @T.prim_func
    def spread(A: T.Buffer((21,), "float32"), C: T.Buffer((61,), "float32")):
        for o in range(2):
            for i in T.vectorized(16):
                if o * 16 + i < 21:
                    C[(o * 16 + i) * 3] = A[o * 16 + i]

    mod = tvm.IRModule({"main": spread.with_attr("global_symbol", "main")})
    compared(mod, fenced(sample(21, "float32")), fenced(np.zeros(61, "float32")))
    assert "@llvm.masked.scatter.v16f32.v16p0" in llvm_of(mod)


# -- past the caches -----------------------------------------------------------------------------
def streamed(n: int, dtype: str = "float32", lanes: int = 16, parallel: bool = False) -> tir.Schedule:
    sch = doubled(n, dtype, lanes)
    outer = sch.get_loops("C")[0]
    if parallel:
        sch.parallel(outer)
    sch.annotate(outer, "pragma_nontemporal", 1)
    return sch


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("n", [64, 77])
def test_streamed_stores_leave_what_plain_ones_do(n: int, parallel: bool, fenced: Fenced) -> None:
    for dtype in ("float32", "int8", "float64"):
        sch = streamed(n, dtype, parallel=parallel)
        compared(sch.mod, sample(n, dtype), fenced(np.zeros(n, dtype), at_start=True))  # aligned
        compared(sch.mod, sample(n, dtype), fenced(np.zeros(n + 1, dtype), at_start=True)[1:])  # not so
        compared(sch.mod, sample(n, dtype), fenced(np.zeros(n, dtype)))


def test_there_is_code_for_aligned_memory_and_for_other() -> None:
    text = llvm_of(streamed(77).mod)
    aligned, plain = text.split("\nplain", 1)
    assert re.search(r"and i64 %\S+, 63", aligned)
    assert re.search(r"store <16 x float> %\S+, ptr %\S+, align 64, !nontemporal", aligned)
    assert aligned.count("call void @llvm.x86.sse.sfence()") == 1
    assert re.search(r"store <16 x float> %\S+, ptr %\S+, align 4$", plain, re.MULTILINE)
    assert "!nontemporal" not in plain and "sfence()" not in plain.split("declare")[0]


def test_each_thread_fences_its_streamed_stores() -> None:
    text = llvm_of(streamed(77, parallel=True).mod)
    bodies = re.findall(r"^define internal i32 @\S+_run\(.*?^}", text, re.MULTILINE | re.DOTALL)
    stream = [b for b in bodies if "!nontemporal" in b]
    assert len(bodies) == 2 and len(stream) == 1
    assert all(("sfence()" in b) == (b in stream) for b in bodies)


def test_other_cpus_have_plain_stores() -> None:
    text = llvm_of(streamed(64).mod, ARM)
    assert "!nontemporal" not in text and "sfence" not in text


@T.prim_func
def reads_what_it_writes(A: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "main"})
    with T.attr(0, "pragma_nontemporal", 1):
        for o in range(4):
            for i in T.vectorized(16):
                A[o * 16 + i] = A[o * 16 + i] + T.float32(1)


@T.prim_func
def starts_between_lines(A: T.Buffer((64,), "float32"), C: T.Buffer((72,), "float32")):
    T.func_attr({"global_symbol": "main"})
    with T.attr(0, "pragma_nontemporal", 1):
        for o in range(4):
            for i in T.vectorized(16):
                C[o * 16 + i + 8] = A[o * 16 + i]


@T.prim_func
def own_memory(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "main"})
    with T.attr(0, "pragma_nontemporal", 1):
        B_data = T.allocate([64], "float32", "global")
        B = T.Buffer((64,), "float32", data=B_data)
        for o in range(4):
            for i in T.vectorized(16):
                B[o * 16 + i] = A[o * 16 + i]
        C[0] = B[3]


@pytest.mark.parametrize("func", [reads_what_it_writes, starts_between_lines, own_memory])
def test_what_cannot_be_streamed_is_stored_plainly(func: tir.PrimFunc, fenced: Fenced) -> None:
    assert "!nontemporal" not in llvm_of(func)
    sizes = [int(func.buffer_map[p].shape[0]) for p in func.params]
    compared(func, *[fenced(sample(n, "float32")) for n in sizes])


# -- private accumulators ------------------------------------------------------------------------
def product(n: int, lanes: int = 16, rows: int = 4) -> tir.Schedule:
    """A product of matrices whose tiles of accumulators are wider than the last columns."""
    A, B = te.placeholder((rows, 24), name="A"), te.placeholder((24, n), name="B")
    k = te.reduce_axis((0, 24), "k")
    C = te.compute((rows, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    block = sch.get_block("C")
    copy = sch.cache_write(block, 0, "local")
    i, j, kk = sch.get_loops(block)
    jo, ji = sch.split(j, [None, lanes])
    sch.reorder(jo, kk, i, ji)
    sch.reverse_compute_at(copy, jo)
    sch.vectorize(ji)
    *_, row, column = sch.get_loops(copy)
    sch.vectorize(column)
    sch.unroll(row)
    sch.unroll(i)
    sch.decompose_reduction(block, kk)
    return sch


@pytest.mark.parametrize("n", [13, 16, 21, 40])
def test_accumulators_wider_than_the_columns(n: int, fenced: Fenced) -> None:
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-9, 9, shape).astype("float32") for shape in ((4, 24), (24, n)))
    compared(product(n).mod, fenced(a), fenced(b), fenced(np.zeros((4, n), "float32")))


@T.prim_func
def two_rows(
    A: T.Buffer((2, 24), "float32"), B: T.Buffer((24, 13), "float32"), C: T.Buffer((2, 13), "float32")
):
    """Two rows of 16 accumulators for 13 columns."""
    T.func_attr({"global_symbol": "main"})
    acc_data = T.allocate([32], "float32", "local")
    acc = T.Buffer((32,), "float32", data=acc_data, scope="local")
    for r in T.unroll(2):
        for j in T.vectorized(16):
            if j < 13:
                acc[r * 16 + j] = T.float32(0)
    for k in range(24):
        for r in T.unroll(2):
            for j in T.vectorized(16):
                if j < 13:
                    acc[r * 16 + j] = acc[r * 16 + j] + A[r, k] * B[k, j]
    for r in T.unroll(2):
        for j in T.vectorized(16):
            if j < 13:
                C[r, j] = acc[r * 16 + j]


def test_accumulators_are_stored_without_a_mask(fenced: Fenced) -> None:
    """The last three lanes count something that nobody reads."""
    text = llvm_of(two_rows)
    held = set(re.findall(r"(%\S+) = (?:getelementptr inbounds float, ptr %a\d+,|alloca float,)", text))
    whole = re.findall(r"^  store <16 x float> .*, ptr (%\S+), align 4$", text, re.MULTILINE)
    assert len(whole) == 4 and set(whole) <= held  # the start and the sum of each row
    assert "select <16 x i1>" not in text
    assert text.count("call void @llvm.masked.store") == 2  # the result, which has no room for more
    a, b = sample(48, "float32").reshape(2, 24), sample(24 * 13, "float32").reshape(24, 13)
    compared(two_rows, fenced(a), fenced(b), fenced(np.zeros((2, 13), "float32")))


def test_masked_lanes_that_somebody_reads_are_kept(fenced: Fenced) -> None:
    """Lanes from 5 on keep the start that was stored for all."""

    @T.prim_func
    def func(A: T.Buffer((5,), "float32"), C: T.Buffer((8,), "float32")):
        T.func_attr({"global_symbol": "main"})
        acc_data = T.allocate([8], "float32", "local")
        acc = T.Buffer((8,), "float32", data=acc_data, scope="local")
        for i in T.vectorized(8):
            acc[i] = T.float32(7)
        for i in T.vectorized(8):
            if i < 5:
                acc[i] = acc[i] + A[i]
        for i in T.vectorized(8):
            C[i] = acc[i]

    compared(func, fenced(sample(5, "float32")), fenced(np.zeros(8, "float32")))
    assert "select <8 x i1>" in llvm_of(func)


# -- loops and hints -----------------------------------------------------------------------------
def test_a_loop_around_a_whole_tile_stays_rolled() -> None:
    text = llvm_of(product(64, rows=8).mod)
    kept = re.findall(r"br label %\S+, !llvm\.loop (!\d+)", text)
    assert kept and len(set(kept)) == len(kept)
    for mark in kept:
        (body,) = re.findall(rf"^{mark} = distinct !{{{mark}, (!\d+)}}", text, re.MULTILINE)
        assert re.search(rf'^{body} = !{{!"llvm.loop.unroll.disable"}}', text, re.MULTILINE)
    assert "!llvm.loop" not in llvm_of(product(64, rows=2).mod)


@pytest.mark.parametrize("ahead", [1, 7, 100])
def test_what_comes_after_the_last_row_may_be_asked_for(ahead: int, fenced: Fenced) -> None:
    A = te.placeholder((12, 40), name="A")
    k = te.reduce_axis((0, 40), "k")
    C = te.compute((12,), lambda i: te.sum(A[i, k], axis=k), name="C")
    texts = []
    for key in ("prefetch_past_A", "prefetch_A"):
        sch = tir.Schedule(te.create_prim_func([A, C]))
        sch.annotate(sch.get_loops("C")[0], key, ahead)
        a = np.random.default_rng(0).integers(-9, 9, (12, 40)).astype("float32")
        compared(sch.mod, fenced(a), fenced(np.zeros(12, "float32")))
        texts.append(llvm_of(sch.mod))
    past, within = texts
    assert "call void @llvm.prefetch.p0(ptr" in past
    assert ("call void @llvm.prefetch.p0(ptr" in within) == (ahead < 12)


def test_a_mask_that_changes_while_the_memory_stays_is_kept() -> None:
    @T.prim_func
    def f(out: T.Buffer((16,), "float32")):
        acc_data = T.allocate([16], "float32", "local")
        acc = T.Buffer((16,), "float32", data=acc_data, scope="local")
        for j in range(8):
            for k in T.vectorized(16):
                if k < 16 - (j % 2) * 8:
                    acc[k] = T.Select(j == 0, T.float32(0), acc[k]) + T.float32(1)
                    out[k] = acc[k]

    made = np.zeros(16, "float32")
    tvm.build(f)(made)
    np.testing.assert_array_equal(made, [8] * 8 + [4] * 8)


@pytest.mark.slow
def test_the_end_of_a_transposed_tile() -> None:
    """Of the last vector of 49 one lane is stored; LLVM could not select instructions for what was left of the tile."""
    x, w = te.placeholder((1, 32, 7, 7), name="x"), te.placeholder((32, 32, 1, 1), name="w")
    bias = te.placeholder((32, 1, 1), name="bias")
    out = topi.nn.relu(topi.add(topi.nn.conv2d_nchw(x, w, 1, 0, 1), bias))
    task = task_of([x, w, bias, out], f"{X86} -num-cores=2", constants=("w",))
    tile = {
        "vector": 1,
        "packed": 2,
        "tile0": 1,
        "tile1": 0,
        "tile2": 8,
        "vectors": 1,
        "outer": 1,
        "threads": 1,
    }
    choice = {"stage": "conv2d_nchw", "rule": "tile", **tile, "unroll": 1, "contrary": 0}
    mod = Sketches(task).apply([choice]).mod
    assert tvm.build(mod, target=X86).get_source("asm")
    rng = np.random.default_rng(0)
    data = [rng.integers(-4, 5, [int(d) for d in t.shape]).astype("float32") for t in (x, w, bias)]
    got, want = (np.zeros((1, 32, 7, 7), "float32") for _ in range(2))
    tir.interpret(te.create_prim_func([x, w, bias, out]), *data, want)
    tir.interpret(tvm.lower(mod)["main"], *data, got)
    np.testing.assert_array_equal(got, want)


# -- truncated elements ----------------------------------------------------------------------------
def truncated(count: int, lanes: int, wide: str, narrow: str) -> Any:
    """B[i] = A[i] >> 3 in vectors of which the last one has a single lane in the arrays."""
    total = (count - 1) * lanes + 1

    @T.prim_func
    def main(a: T.Buffer((total,), wide), b: T.Buffer((total + lanes,), narrow)) -> None:
        for i in range(count):
            b.vstore(
                [T.Ramp(i * lanes, 1, lanes)],
                T.Cast(
                    f"{narrow}x{lanes}",
                    a.vload(
                        [T.Ramp(i * lanes, 1, lanes)],
                        predicate=T.Ramp(i * lanes, 1, lanes) < T.Broadcast(total, lanes),
                    )
                    >> 3,
                ),
                predicate=T.Ramp(i * lanes, 1, lanes) < T.Broadcast(total, lanes),
            )

    return main


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("lanes", [2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("int32", "int8"), ("int32", "uint8"), ("int32", "int16"), ("int64", "int32"), ("int16", "int8")],
)
def test_a_single_lane_of_truncated_elements(wide: str, narrow: str, lanes: int, count: int) -> None:
    """LLVM stored the lane before its truncation, over the elements behind it, on CPUs with AVX-512."""
    mod = truncated(count, lanes, wide, narrow)
    size = (count - 1) * lanes + 1
    values = np.random.default_rng(lanes).integers(-32000, 32000, size).astype(wide)
    out = np.full(size + lanes, 77, narrow)
    tvm.build(mod, target="llvm")(values, out)
    np.testing.assert_array_equal(out[:size], (values >> 3).astype(narrow))
    np.testing.assert_array_equal(out[size:], np.full(lanes, 77, narrow))


# -- vectors of a number of lanes that is no power of two --------------------------------------------
@pytest.mark.parametrize("lanes", [7, 14, 58])
def test_narrow_vectors_are_stored_at_once(lanes: int, fenced: Fenced) -> None:
    """Rows of a small image, clipped to bytes: LLVM would store each in up to four pieces."""

    @T.prim_func
    def func(A: T.Buffer((3, lanes), "float32"), B: T.Buffer((3, lanes), "uint8")):
        T.func_attr({"global_symbol": "main"})
        for i in range(3):
            for j in T.vectorized(lanes):
                B[i, j] = T.Cast("uint8", T.max(T.min(A[i, j], T.float32(255)), T.float32(0)))

    text = llvm_of(func)
    assert "call void @llvm.masked.store" in text and "store <" not in text
    asm = tvm.build(func, target=X86).get_source("asm")
    assert "vcmpunordps" not in asm and "vpextrb" not in asm
    compared(
        func, fenced(sample(3 * lanes, "float32").reshape(3, lanes)), fenced(np.zeros((3, lanes), "uint8"))
    )


def test_words_under_a_mask_read_no_more_than_their_lanes_need(fenced: Fenced) -> None:
    """Seven words of three bytes each, of nine bytes that end where memory does."""

    @T.prim_func
    def func(A: T.Buffer((9,), "uint8"), B: T.Buffer((8,), "uint32")):
        T.func_attr({"global_symbol": "main"})
        for i in T.vectorized(8):
            if i < 7:
                B[i] = T.pack_word(A[i], A[i + 1], A[i + 2], T.uint8(0))

    assert "shl" not in llvm_of(func)
    compared(func, fenced(sample(9, "uint8")), fenced(np.zeros(8, "uint32")))
