"""Index arithmetic in as many bits as it needs."""

from __future__ import annotations

import numpy as np
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import ops
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.expr import Mul, Select, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.stmt import BufferStore, For, ForKind, IfThenElse, LetStmt, SeqStmt
from tilewright.script import tir as T
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.widen_indices import widen_indices


def test_a_fused_loop_that_int32_does_not_count():
    @T.prim_func(private=True)
    def before(A: T.Buffer((46341,), "int8"), B: T.Buffer((T.int64(2147488281),), "int8")):
        for ij in range(T.Mul(46341, 46341)):
            for k in range(3):
                B[ij] = A[ij // 46341 % 46341] + T.Cast("int8", k)

    @T.prim_func(private=True)
    def after(A: T.Buffer((46341,), "int8"), B: T.Buffer((T.int64(2147488281),), "int8")):
        for ij in range(T.int64(2147488281)):
            for k in range(3):
                B[ij] = A[ij // T.int64(46341) % T.int64(46341)] + T.Cast("int8", k)

    made = widen_indices(before)
    assert_structural_equal(made, after)
    assert widen_indices(made) is made


def test_a_tail_that_passes_the_largest_int32():
    """The array ends before 2^31, the last tile does not."""

    @T.prim_func(private=True)
    def before(B: T.Buffer((2147483640,), "int8")):
        for i in range(2147483640 // 192 + 1):
            for j in range(192):
                if i * 192 + j < 2147483640:
                    B[i * 192 + j] = T.int8(1)

    @T.prim_func(private=True)
    def after(B: T.Buffer((2147483640,), "int8")):
        for i in range(T.int64(11184811)):
            for j in range(T.int64(192)):
                if i * T.int64(192) + j < T.int64(2147483640):
                    B[i * T.int64(192) + j] = T.int8(1)

    assert_structural_equal(widen_indices(before), after)


def test_loops_beside_each_other_may_have_one_variable():
    B = decl_buffer((const(46341**2, "int64"),), "int8", name="B")
    i, handle = Var("i", "int32"), Var("b", "handle")
    many = Mul(const(46341, "int32"), const(46341, "int32"))
    one = For(i, const(0, "int32"), many, ForKind.SERIAL, BufferStore(B, const(1, "int8"), [i]))
    func = PrimFunc([handle], SeqStmt([one, one.replace(extent=const(4, "int32"))]), buffer_map={handle: B})
    first, second = widen_indices(func).body.seq
    assert str(first.loop_var.dtype) == "int64" and first.loop_var is second.loop_var


def test_what_fits_stays():
    @T.prim_func(private=True)
    def same(a: T.handle, B: T.Buffer((46340 * 46340,), "int32"), I: T.Buffer((64,), "int32")):
        n = T.int32(is_size_var=True)
        m = T.int32(is_size_var=True)
        A = T.match_buffer(a, (n * m,), "int32")
        for i in range((n + 15) // 16):
            for j in range(16):
                if i * 16 + j < n:
                    A[(i * 16 + j) * m + 3] = A[i * m] * 100000 + I[j] * I[j]  # an address, and data
        for i in range(46340 * 46340):
            B[i] = I[i % 64] * 1664525 + 1013904223

    assert widen_indices(same) is same
    assert widen_indices(same, check_sizes=True) is same


def test_a_product_of_sizes_is_checked_where_64_bits_are_slow():
    @T.prim_func(private=True)
    def before(a: T.handle):
        n = T.int32(is_size_var=True)
        m = T.int32(is_size_var=True)
        A = T.match_buffer(a, (n * m * 4,), "int8")
        for i in range(n * m):
            A[i // m * 4] = T.int8(1)

    @T.prim_func(private=True)
    def wide(a: T.handle):
        n = T.int32(is_size_var=True)
        m = T.int32(is_size_var=True)
        A = T.match_buffer(a, (n * m * 4,), "int8")
        for i in range(T.Cast("int64", n) * T.Cast("int64", m)):
            A[i // T.Cast("int64", m) * T.int64(4)] = T.int8(1)

    assert_structural_equal(widen_indices(before), wide)
    made = widen_indices(before, check_sizes=True)
    assert str(made.body.condition) == (
        'T.Cast("int64", n) * T.Cast("int64", m) * T.int64(4) <= T.int64(2147418112)'
    )
    assert made.body.body is before.body


def test_data_in_addresses_of_large_arrays():
    """An index out of memory is widened before it is scaled, in a vector too; data elsewhere keeps its type."""

    @T.prim_func(private=True)
    def before(
        A: T.Buffer((T.int64(1) << T.int64(32),), "int8"),
        at: T.Buffer((16,), "int32"),
        C: T.Buffer((16,), "int32"),
    ):
        for i in T.vectorized(16):
            C[i] = T.Cast("int32", A[at[i] * 65536 + i]) + at[i] * at[i]

    made = widen_indices(before)
    text = str(made)
    assert 'A[T.Cast("int64", at[i]) * T.int64(65536) + i]' in text
    assert "+ at[i] * at[i]" in text


@st.composite
def recipes(draw):
    """Random index arithmetic over two loops that may pass 2^31 on the way: the program in int32, and in int64."""
    pick = lambda items: draw(st.sampled_from(list(items)))

    def tree(depth, names):
        if depth == 0:
            return pick([*names, 1, 3, 7, 1 << 20, (1 << 31) - 2])
        return (
            pick(("add", "sub", "mul", "div", "mod", "max", "min", "select")),
            tree(depth - 1, names),
            tree(depth - 1, names),
            pick((2, 5, 64)),
        )

    value = tree(2, "ij")
    parts = [tree(2, "ijx"), tree(1, "ijx"), tree(1, "ijx"), tree(1, "ijx")]
    return value, parts, pick((0, 2)), pick((2, 3))


_PLAIN = {"add": ops.add, "sub": ops.sub, "mul": ops.mul, "max": ops.max_of, "min": ops.min_of}


def _program(recipe, kind):
    value, (where, low, high, added), first, count = recipe
    A = decl_buffer((64,), "int64", "A")
    scope = {n: Var(n, kind) for n in "ijx"}

    def built(t):
        if isinstance(t, str):
            return scope[t]
        if isinstance(t, int):
            return const(t, kind)
        name, a, b, c = t
        a, b = built(a), built(b)
        if name == "div":
            return ops.floordiv(a, const(c, kind))
        if name == "mod":
            return ops.floormod(a, const(c, kind))
        return Select(ops.less(a, b), a, b) if name == "select" else _PLAIN[name](a, b)

    at = ops.floormod(built(where), const(64, kind))
    store = BufferStore(A, A[at] + built(added).astype("int64"), [at])
    body = LetStmt(scope["x"], built(value), IfThenElse(ops.less(built(low), built(high)), store))
    for n in "ij":
        body = For(scope[n], const(first, kind), const(count, kind), ForKind.SERIAL, body)
    return PrimFunc([A], body)


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(recipes())
def test_meaning(recipe):
    """The int32 program means, when it is widened, what the int64 program means."""
    want, got = np.arange(64, dtype="int64"), np.arange(64, dtype="int64")
    interpret(_program(recipe, "int64"), want)
    interpret(widen_indices(_program(recipe, "int32")), got)
    assert np.array_equal(want, got)
