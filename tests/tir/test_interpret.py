"""The interpreter against NumPy: blocks, symbolic shapes, strides, views, vectors, calls."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.ir import IRModule, PrimFunc, decl_buffer
from tilewright.ir.buffer import BufferRegion, MatchBufferRegion
from tilewright.ir.expr import (
    Add,
    Broadcast,
    BufferLoad,
    Call,
    CommReducer,
    IterVar,
    Let,
    Ramp,
    Range,
    Reduce,
    Select,
    Shuffle,
    Var,
    const,
)
from tilewright.ir.module import GlobalVar
from tilewright.ir.ops import call, call_extern, call_packed, cast, if_then_else
from tilewright.ir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    Block,
    BlockRealize,
    BufferRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    While,
    seq,
)
from tilewright.ir.types import PointerType, PrimType
from tilewright.script import tir as T
from tilewright.tir.interpret import InterpreterError, interpret, python_source

RNG = np.random.default_rng(0)


def serial(var: Var, extent: object, body: object, kind: ForKind = ForKind.SERIAL) -> For:
    return For(var, 0, extent, kind, body)


def pointer(name: str, dtype: str = "float32", scope: str = "global") -> Var:
    return Var(name, PointerType(PrimType(dtype), scope))


# ---------------------------------------------------------------------------- blocks
@T.prim_func
def matmul(A: T.Buffer((5, 7), "float32"), B: T.Buffer((7, 3), "float32"), C: T.Buffer((5, 3), "float32")):
    for i, j, k in T.grid(5, 3, 7):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The matmul rounded as the program does it: one product after the other."""
    out = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for k in range(a.shape[1]):
        out = out + np.outer(a[:, k], b[k])
    return out


@pytest.mark.parametrize("check_regions", [False, True])
def test_matmul_with_init(check_regions):
    a, b = RNG.random((5, 7), np.float32), RNG.random((7, 3), np.float32)
    c = np.full((5, 3), np.nan, np.float32)
    assert interpret(matmul, a, b, c, check_regions=check_regions) is None
    np.testing.assert_array_equal(c, _products(a, b))


def test_split_loops_with_predicate():
    @T.prim_func
    def double(A: T.Buffer((10,), "int32"), B: T.Buffer((10,), "int32")):
        for o, i in T.grid(3, 4):
            with T.block("B"):
                v = T.axis.spatial(10, o * 4 + i)
                T.where(o * 4 + i < 10)
                B[v] = A[v] * 2

    a, b = np.arange(10, dtype="int32"), np.zeros(10, "int32")
    interpret(double, a, b)
    np.testing.assert_array_equal(b, 2 * a)


def test_reduction_inits_at_the_start_of_its_domain_only():
    @T.prim_func
    def total(A: T.Buffer((4, 6), "int64"), B: T.Buffer((4,), "int64")):
        for i, k in T.grid(4, 6):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(6, 5 - k)  # the start comes last, so all earlier terms are dropped
                with T.init():
                    B[vi] = T.int64(100)
                B[vi] = B[vi] + A[vi, vk]

    a, b = np.arange(24, dtype="int64").reshape(4, 6), np.zeros(4, "int64")
    interpret(total, a, b)
    np.testing.assert_array_equal(b, 100 + a[:, 0])


def test_stages_through_allocated_buffers_and_loop_kinds():
    @T.prim_func
    def chain(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
        B = T.alloc_buffer((4, 8), "float32")
        for i in T.parallel(4):
            for j in T.vectorized(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
        for i in T.unroll(4):
            for j in T.thread_binding(8, thread="threadIdx.x"):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, 7 - vj] * T.float32(2)

    a, c = RNG.random((4, 8), np.float32), np.zeros((4, 8), np.float32)
    interpret(chain, a, c)
    np.testing.assert_array_equal(c, (a + 1)[:, ::-1] * 2)


def test_block_form_runs_threads_one_after_the_other():
    """The second block reads what all threads of the first wrote, with no barrier in sight."""

    @T.prim_func
    def shift(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        S = T.alloc_buffer((8,), "int32", scope="shared")
        for _b in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(8, thread="threadIdx.x"):
                with T.block("S"):
                    v = T.axis.spatial(8, t)
                    S[v] = A[v]
            for t in T.thread_binding(8, thread="threadIdx.x"):
                with T.block("B"):
                    v = T.axis.spatial(8, t)
                    B[v] = S[(v + 1) % 8]

    a, b = np.arange(8, dtype="int32"), np.zeros(8, "int32")
    interpret(shift, a, b)
    np.testing.assert_array_equal(b, np.roll(a, -1))


def test_match_buffer_names_a_region():
    a, c = decl_buffer((8, 8), "float32", "A"), decl_buffer((8, 8), "float32", "C")
    s0, s1, off = Var("s0"), Var("s1"), Var("off")
    tile = decl_buffer((4, 4), "float32", "tile", strides=[s0, s1], elem_offset=off)
    row = decl_buffer((4,), "float32", "row")
    i, j, x, y = Var("i"), Var("j"), Var("x"), Var("y")
    vi, vj = Var("vi"), Var("vj")
    inner = serial(
        x, 4, serial(y, 4, BufferStore(tile, a[vi * 4 + x, vj * 4 + y] + cast("float32", s0), [x, y]))
    )
    last = serial(y, 4, BufferStore(row, row[y] * const(10.0, "float32"), [y]))
    region = BufferRegion(c, (Range(vi * 4, vi * 4 + 4), Range(vj * 4, vj * 4 + 4)))
    line = BufferRegion(c, (Range(vi * 4 + 2, vi * 4 + 3), Range(vj * 4, vj * 4 + 4)))
    block = Block(
        [IterVar((0, 2), vi, 0), IterVar((0, 2), vj, 0)],
        [BufferRegion(a, region.region)],
        [region],
        "tiles",
        seq(inner, last),
        match_buffers=[MatchBufferRegion(tile, region), MatchBufferRegion(row, line)],
    )
    func = PrimFunc([a, c], serial(i, 2, serial(j, 2, BlockRealize([i, j], True, block))))
    va, vc = RNG.random((8, 8), np.float32), np.zeros((8, 8), np.float32)
    interpret(func, va, vc, check_regions=True)
    want = va + np.float32(8)
    want[2::4] *= 10
    np.testing.assert_array_equal(vc, want)


# ---------------------------------------------------------------------------- shapes
def test_symbolic_shapes_are_solved_from_the_arrays():
    @T.prim_func
    def widen(a: T.handle, b: T.handle):
        n = T.int32()
        m = T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (n * 2 + 1, m), "float32")
        for i, j in T.grid(n * 2 + 1, m):
            B[i, j] = T.if_then_else(i < n, A[T.min(i, n - 1), j], T.float32(-1))

    a, b = RNG.random((3, 5), np.float32), np.zeros((7, 5), np.float32)
    interpret(widen, a, b)
    np.testing.assert_array_equal(b, np.concatenate([a, np.full((4, 5), -1, np.float32)]))


def test_a_size_that_occurs_only_inside_an_expression_is_found():
    n = Var("n")
    b = decl_buffer((n * 3 - 2,), "int32", "B")
    i = Var("i")
    func = PrimFunc([b], serial(i, n, BufferStore(b, i, [i])))
    out = np.full(10, -1, "int32")
    interpret(func, out)
    np.testing.assert_array_equal(out, [0, 1, 2, 3, -1, -1, -1, -1, -1, -1])


def test_strided_arrays_where_the_buffer_declares_strides():
    n, m, s, t = Var("n"), Var("m"), Var("s"), Var("t")
    a = decl_buffer((n, m), "float64", "A", strides=[s, t])
    b = decl_buffer((n, m), "float64", "B")
    i, j = Var("i"), Var("j")
    func = PrimFunc([a, b], serial(i, n, serial(j, m, BufferStore(b, a[i, j] + 0.5, [i, j]))))
    base = RNG.random((6, 10))
    out = np.zeros((4, 3))
    interpret(func, base[1:4, ::3].T, out)
    np.testing.assert_array_equal(out, base[1:4, ::3].T + 0.5)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        (
            (np.zeros((2, 3), "f"), np.zeros((2, 4), "f")),
            "buffer B: its shape[1] is 4, the buffer's is `m` (m = 3 by A.shape[1])",
        ),
        (
            (np.zeros((2, 3), "d"), np.zeros((2, 3), "f")),
            "buffer A: its type is float64, the buffer's is float32",
        ),
        ((np.zeros(3, "f"), np.zeros((2, 3), "f")), "buffer A: it has 1 dimensions, the buffer 2"),
        (
            (np.zeros((3, 2), "f").T, np.zeros((2, 3), "f")),
            "buffer A: the array is not dense, and the buffer declares no strides",
        ),
    ],
)
def test_arguments_that_do_not_fit_name_the_buffer(arrays, text):
    n, m = Var("n"), Var("m")
    a, b = decl_buffer((n, m), "float32", "A"), decl_buffer((n, m), "float32", "B")
    func = PrimFunc([a, b], BufferStore(b, a[0, 0], [0, 0])).with_attr("global_symbol", "copy")
    with pytest.raises(ValueError) as caught:
        interpret(func, *arrays)
    assert str(caught.value) == "copy: argument for " + text


def test_arity_read_only_and_non_arrays_are_refused():
    b = decl_buffer((2,), "float32", "B")
    n = Var("n", "int8")
    func = PrimFunc([n, b], BufferStore(b, 1.0, [0]))
    with pytest.raises(TypeError, match="main takes 2 arguments, 1 were given"):
        interpret(func, 1)
    with pytest.raises(ValueError, match="argument n is a int8, which cannot be 300"):
        interpret(func, 300, np.zeros(2, "f"))
    with pytest.raises(TypeError, match="buffer B: str is not an array"):
        interpret(func, 1, "text")
    frozen = np.zeros(2, "f")
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="buffer B: the array is read-only, and the function writes it"):
        interpret(func, 1, frozen)


def test_torch_tensors_are_written_in_place():
    torch = pytest.importorskip("torch")

    def twice(dtype: str) -> PrimFunc:
        a, b = decl_buffer((4,), dtype, "A"), decl_buffer((4,), dtype, "B")
        i = Var("i")
        return PrimFunc([a, b], serial(i, 4, BufferStore(b, Add(a[i], a[i]), [i])))

    for dtype in ("float32", "int64", "bfloat16"):
        kind = getattr(torch, dtype)
        a, b = torch.arange(4).to(kind), torch.zeros(4, dtype=kind)
        interpret(twice(dtype), a, b)
        assert torch.equal(b, a + a)


def test_runtime_arrays_are_written_in_place():
    from tilewright.runtime import ndarray as nd

    a, b = nd.array(np.arange(4, dtype="f")), nd.empty((4,), "float32")
    x, y = decl_buffer((4,), "float32", "A"), decl_buffer((4,), "float32", "B")
    i = Var("i")
    interpret(PrimFunc([x, y], serial(i, 4, BufferStore(y, x[i] * const(3.0, "float32"), [i]))), a, b)
    np.testing.assert_array_equal(b.numpy(), [0, 3, 6, 9])


# ---------------------------------------------------------------------------- memory
def test_one_memory_seen_as_several_types():
    """float32 bits read as int32 and as bytes; a write through one view is seen by the others."""
    data = pointer("data")
    floats = decl_buffer((4,), "float32", "floats", data=data)
    ints = decl_buffer((2, 2), "int32", "ints", data=data)
    raw = decl_buffer((16,), "uint8", "raw", data=data)
    bits, octets = decl_buffer((4,), "int32", "bits"), decl_buffer((16,), "uint8", "octets")
    i, j = Var("i"), Var("j")
    body = seq(
        serial(i, 4, BufferStore(floats, cast("float32", i) - const(1.5, "float32"), [i])),
        BufferStore(ints, const(7), [1, 0]),
        serial(i, 2, serial(j, 2, BufferStore(bits, ints[i, j], [i * 2 + j]))),
        serial(i, 16, BufferStore(octets, raw[i], [i])),
    )
    func = PrimFunc([bits, octets], Allocate(data, "float32", [4], True, DeclBuffer(ints, body)))
    got, seen = np.zeros(4, "int32"), np.zeros(16, "uint8")
    interpret(func, got, seen)
    want = np.array([-1.5, -0.5, 0.5, 1.5], "f").view("int32")
    want[2] = 7
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(seen, want.view("uint8"))


def test_pointers_into_the_middle():
    data, part = pointer("data", "int32"), pointer("part", "int32")
    whole = decl_buffer((8,), "int32", "whole", data=data)
    tail = decl_buffer((4,), "int32", "tail", data=part)
    out = decl_buffer((4,), "int32", "out")
    i = Var("i")
    body = seq(
        serial(i, 8, BufferStore(whole, i * 10, [i])),
        LetStmt(
            part,
            call("handle", "tir.address_of", whole[3]),
            serial(i, 4, seq(BufferStore(tail, tail[i] + 1, [i]), BufferStore(out, whole[i + 3], [i]))),
        ),
    )
    got = np.zeros(4, "int32")
    interpret(PrimFunc([out], Allocate(data, "int32", [8], True, body)), got)
    np.testing.assert_array_equal(got, [31, 41, 51, 61])


def test_realize_keeps_the_indices_of_a_box():
    b, out = decl_buffer((100,), "int32", "B"), decl_buffer((3,), "int32", "out")
    i = Var("i")
    body = seq(
        For(i, 50, 3, ForKind.SERIAL, BufferStore(b, i, [i])),
        serial(i, 3, BufferStore(out, b[i + 50] * 2, [i])),
    )
    got = np.zeros(3, "int32")
    interpret(PrimFunc([out], BufferRealize(b, (Range(50, 53),), const(True), body)), got)
    np.testing.assert_array_equal(got, [100, 102, 104])


def test_constant_arrays_and_padded_strides():
    data = pointer("table", "int16")
    table = decl_buffer((2, 3), "int16", "table", data=data)
    out = decl_buffer((6,), "int16", "out")
    pad = decl_buffer((2, 3), "int16", "pad", strides=[5, 1])
    i, j = Var("i"), Var("j")
    copy = seq(
        serial(i, 2, serial(j, 3, BufferStore(pad, table[i, j], [i, j]))),
        serial(i, 2, serial(j, 3, BufferStore(out, pad[i, j], [i * 3 + j]))),
    )
    body = BlockRealize([], True, Block([], [], [], "root", copy, alloc_buffers=[pad]))
    values = np.array([[1, 2, 3], [4, 5, -6]], "int16")
    got = np.zeros(6, "int16")
    interpret(PrimFunc([out], AllocateConst(data, "int16", [2, 3], values, body)), got)
    np.testing.assert_array_equal(got, values.ravel())


# ---------------------------------------------------------------------------- vectors
def test_vector_code():
    a, b = decl_buffer((16,), "float32", "A"), decl_buffer((16,), "float32", "B")
    i, v = Var("i"), Var("v", "float32x4")
    at = Ramp(i * 4, 1, 4)
    doubled = Let(v, BufferLoad(a, [at]), Add(v, v))
    masked = Select(
        Ramp(const(0), 1, 4) < Broadcast(const(2), 4), doubled, Broadcast(const(-1.0, "float32"), 4)
    )
    va, vb = RNG.random(16, np.float32), np.zeros(16, np.float32)
    interpret(PrimFunc([a, b], serial(i, 4, BufferStore(b, masked, [at]))), va, vb)
    want = (va + va).reshape(4, 4)
    want[:, 2:] = -1
    np.testing.assert_array_equal(vb, want.ravel())


def test_vector_store_reads_all_lanes_before_it_writes():
    a = decl_buffer((8,), "int32", "A")
    func = PrimFunc([a], BufferStore(a, BufferLoad(a, [Ramp(const(0), 1, 4)]), [Ramp(const(1), 1, 4)]))
    got = np.arange(8, dtype="int32")
    interpret(func, got)
    np.testing.assert_array_equal(got, [0, 0, 1, 2, 3, 5, 6, 7])


def test_shuffles_strides_and_vectors_of_vectors():
    a, b = decl_buffer((8,), "int32", "A"), decl_buffer((16,), "int32", "B")
    odd, even = BufferLoad(a, [Ramp(const(1), 2, 4)]), BufferLoad(a, [Ramp(const(0), 2, 4)])
    mixed = Shuffle([odd, even], [const(n) for n in (7, 0, 6, 1)])
    twice = Broadcast(mixed, 2)
    grid = Ramp(Ramp(const(8), const(1), 2), Broadcast(const(4), 2), 2)
    func = PrimFunc(
        [a, b],
        seq(
            BufferStore(b, twice, [Ramp(const(0), 1, 8)]),
            BufferStore(b, call("int32x4", "tir.vectorhigh", twice), [grid]),
            BufferStore(b, Shuffle([odd], [const(2)]), [15]),
        ),
    )
    va, vb = np.arange(8, dtype="int32") * 3, np.full(16, -1, "int32")
    interpret(func, va, vb)
    lanes = np.concatenate([va[1::2], va[0::2]])[[7, 0, 6, 1]]
    want = np.full(16, -1)
    want[:8] = np.tile(lanes, 2)
    want[[8, 9, 12, 13]] = lanes
    want[15] = va[5]
    np.testing.assert_array_equal(vb, want)


def test_buffers_of_vectors():
    a, b = decl_buffer((2,), "float32x4", "A"), decl_buffer((8,), "float32", "B")
    func = PrimFunc([a, b], seq(*(BufferStore(b, a[n], [Ramp(const(4 * n), 1, 4)]) for n in (1, 0))))
    va, vb = RNG.random((2, 4), np.float32), np.zeros(8, np.float32)
    interpret(func, va, vb)
    np.testing.assert_array_equal(vb, va.ravel())


# ---------------------------------------------------------------------------- statements
def test_while_let_if_and_return():
    n = Var("n")
    state = decl_buffer((2,), "int64", "state")
    x = Var("x", "int64")
    step = LetStmt(
        x,
        state[0],
        seq(
            IfThenElse(
                (x % 2).equal(0),
                BufferStore(state, x // 2, [0]),
                BufferStore(state, x * 3 + 1, [0]),
            ),
            BufferStore(state, state[1] + 1, [1]),
        ),
    )
    body = seq(
        BufferStore(state, cast("int64", n), [0]),
        BufferStore(state, const(0, "int64"), [1]),
        While(state[0] != const(1, "int64"), step),
        Evaluate(call("int64", "tir.ret", state[1])),
        BufferStore(state, const(-1, "int64"), [0]),
    )
    values = np.zeros(2, "int64")
    assert interpret(PrimFunc([n, state], body), 27, values) == 111
    assert values.tolist() == [1, 111]


def test_choices_evaluate_one_side_only():
    a, out = decl_buffer((4,), "int32", "A"), decl_buffer((6,), "int32", "out")
    i = Var("i")
    body = serial(
        i,
        6,
        seq(
            BufferStore(out, Select(i < 4, a[i], const(-1)), [i]),
            IfThenElse(call("bool", "tir.likely", i < 4), Evaluate(a[i])),
            BufferStore(out, out[i] + if_then_else(i < 4, a[i], const(0)), [i]),
        ),
    )
    got = np.zeros(6, "int32")
    interpret(PrimFunc([a, out], body), np.arange(4, dtype="int32"), got)
    np.testing.assert_array_equal(got, [0, 2, 4, 6, -1, -1])


def test_break_and_continue():
    a = decl_buffer((4,), "int32", "A")
    i = Var("i")
    body = seq(
        IfThenElse(i.equal(1), Evaluate(call("int32", "tir.continue_loop"))),
        IfThenElse(i.equal(3), Evaluate(call("int32", "tir.break_loop"))),
        BufferStore(a, const(7), [i]),
    )
    got = np.zeros(4, "int32")
    interpret(PrimFunc([a], serial(i, 4, body)), got)
    np.testing.assert_array_equal(got, [7, 0, 7, 0])


def test_buffers_without_dimensions_and_bare_pointers():
    zero, data = decl_buffer((), "float32", "zero"), pointer("data")
    flat = decl_buffer((4,), "float32", "flat", data=data)
    func = PrimFunc([zero, data], BufferStore(zero, flat[3] + 1.0, []))
    got = np.zeros((), np.float32)
    interpret(func, got, np.arange(4, dtype="f"))
    assert got == 4
    with pytest.raises(InterpreterError, match=r"flat\[3\] leaves its memory, data of 8 bytes"):
        interpret(func, got, np.arange(2, dtype="f"))


def test_deeply_nested_conditions():
    a = decl_buffer((2,), "int32", "A")
    body: object = BufferStore(a, const(1), [0])
    for _ in range(150):
        body = IfThenElse(a[1] < 1, body)
    got = np.zeros(2, "int32")
    interpret(PrimFunc([a], body), got)
    assert got[0] == 1


def test_many_nested_loops_and_deep_expressions():
    """More loops than one Python function may hold, and more parentheses than its parser takes."""
    out = decl_buffer((1,), "int64", "out")
    loops = [Var(f"i{n}") for n in range(30)]
    total = out[0]
    for v in loops:
        total = Add(total, cast("int64", v))
    body: object = BufferStore(out, total, [0])
    for n, v in enumerate(reversed(loops)):
        body = serial(v, 2 if n < 4 else 1, body)
    got = np.zeros(1, "int64")
    interpret(PrimFunc([out], body), got)
    assert got[0] == 32
    deep, x = out[0], Var("x", "int64")
    for n in range(400):
        deep = Let(x, deep, Add(x, const(1, "int64"))) if n % 50 == 0 else Add(deep, const(1, "int64"))
    interpret(PrimFunc([out], BufferStore(out, deep, [0])), got)
    assert got[0] == 432


# ---------------------------------------------------------------------------- calls
def test_packed_calls_get_arrays_and_scalars():
    from tilewright.runtime.registry import register_func

    seen = []

    def scale(source, target, factor, name):
        seen.append((factor, name))
        target.copyfrom(source.numpy() * factor)
        return 5

    register_func("tests.interpret.scale", scale, override=True)
    a, b = decl_buffer((2, 3), "float32", "A"), decl_buffer((2, 3), "float32", "B")
    out = decl_buffer((1,), "int32", "out")
    func = PrimFunc(
        [a, b, out], BufferStore(out, call_packed("tests.interpret.scale", a, b, const(3), "three"), [0])
    )
    va, vb, vo = RNG.random((2, 3), np.float32), np.zeros((2, 3), np.float32), np.zeros(1, "int32")
    interpret(func, va, vb, vo)
    np.testing.assert_array_equal(vb, va * 3)
    assert seen == [(3, "three")] and vo[0] == 5


def test_calls_of_module_functions():
    n = Var("n")
    data = Var("data", "handle")
    inner = decl_buffer((n,), "float32", "inner")
    i = Var("i")
    helper = PrimFunc(
        [n, data],
        seq(serial(i, n, BufferStore(inner, inner[i] + 1.0, [i])), Evaluate(call("int32", "tir.ret", n * 2))),
        buffer_map={data: inner},
    )
    a, out = decl_buffer((4,), "float32", "A"), decl_buffer((1,), "int32", "out")
    name = GlobalVar("helper")
    main = PrimFunc([a, out], BufferStore(out, Call("int32", name, (const(3), a.data)), [0]))
    mod = IRModule({"main": main, name: helper})
    va, vo = np.zeros(4, np.float32), np.zeros(1, "int32")
    interpret(mod, va, vo)
    np.testing.assert_array_equal(va, [1, 1, 1, 0])
    assert vo[0] == 6
    with pytest.raises(InterpreterError, match="a call of helper, but no module was given"):
        interpret(main, va, vo)


def test_libm_by_name_and_unknown_functions():
    out = decl_buffer((2,), "float32", "out")
    x = const(0.5, "float32")
    func = PrimFunc(
        [out],
        seq(
            BufferStore(out, call_extern("float32", "tanhf", x), [0]),
            BufferStore(out, call_extern("float32", "powf", x, x), [1]),
        ),
    )
    got = np.zeros(2, np.float32)
    interpret(func, got)
    np.testing.assert_array_equal(got, np.array([np.tanh(0.5), 0.5**0.5]).astype("f"))
    with pytest.raises(InterpreterError, match="cannot call the C function 'fetch'"):
        interpret(PrimFunc([out], Evaluate(call_extern("int32", "fetch"))), got)


def test_tensor_expressions_are_refused_clearly():
    out = decl_buffer((1,), "float32", "out")
    x, y = Var("x", "float32"), Var("y", "float32")
    k = IterVar((0, 3), "k", 2)
    reducer = CommReducer((x,), (y,), (x + y,), (const(0.0, "float32"),))
    func = PrimFunc(
        [out], BufferStore(out, Reduce(reducer, (const(1.0, "float32"),), (k,), const(True), 0), [0])
    )
    with pytest.raises(InterpreterError, match="is a Reduce, which has no meaning in a loop program"):
        interpret(func, np.zeros(1, "f"))


def test_a_failed_assertion_says_its_message():
    out = decl_buffer((1,), "int32", "out")
    n = Var("n")
    func = PrimFunc([n, out], AssertStmt(n > 2, "n must exceed two", BufferStore(out, n, [0])))
    got = np.zeros(1, "int32")
    interpret(func, 3, got)
    assert got[0] == 3
    with pytest.raises(InterpreterError, match="assertion failed: n must exceed two") as caught:
        interpret(func, 2, got)
    assert caught.value.kind == "assert"


def test_bfloat16_and_float16_round_after_each_operation():
    for dtype, held in (("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)):
        a, b = decl_buffer((64,), dtype, "A"), decl_buffer((64,), dtype, "B")
        out = decl_buffer((1,), dtype, "out")
        i = Var("i")
        body = seq(
            BufferStore(out, const(0.0, dtype), [0]),
            serial(i, 64, BufferStore(out, out[0] + a[i] * b[i], [0])),
        )
        va, vb, vo = RNG.random(64).astype(held), RNG.random(64).astype(held), np.zeros(1, held)
        interpret(PrimFunc([a, b, out], body), va, vb, vo)
        total = held(0)
        for x, y in zip(va, vb):
            total = held(np.float32(total) + np.float32(held(np.float32(x) * np.float32(y))))
        assert vo[0] == total


def test_a_program_is_translated_once():
    source = python_source(matmul)
    assert source.startswith("def run(rt, ") and source is python_source(matmul)


def test_the_name_in_tir_stays_a_function():
    """The package and its function share a name; importing the package must not hide the function."""
    from tilewright import tir

    a = decl_buffer((1,), "int32", "A")
    got = np.zeros(1, "int32")
    tir.interpret(PrimFunc([a], BufferStore(a, const(3), [0])), got)
    assert got[0] == 3
