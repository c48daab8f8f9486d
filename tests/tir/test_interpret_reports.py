"""The full text of each report of the interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.ir import PrimFunc, decl_buffer, ops
from tilewright.ir.expr import FloorDiv, FloorMod, IterVar, Let, Mod, Ramp, Var, const
from tilewright.ir.ops import assume, call, cast
from tilewright.ir.stmt import (
    Allocate,
    AssertStmt,
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    seq,
)
from tilewright.ir.types import PointerType, PrimType
from tilewright.script import tir as T
from tilewright.tir.interpret import InterpreterError, interpret


def report(func: PrimFunc, *args: object, **options: object) -> InterpreterError:
    with pytest.raises(InterpreterError) as caught:
        interpret(func, *args, **options)
    return caught.value


def line_of(text: str) -> str:
    """Where in this file a program says `text`."""
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(n for n, line in enumerate(lines, 1) if line.strip() == text)}"


def zeros(*shape: int, dtype: str = "int32") -> np.ndarray:
    return np.zeros(shape, dtype)


# ---------------------------------------------------------------------------- bounds
def test_read_out_of_bounds():
    @T.prim_func
    def stencil(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
        for i, j in T.grid(4, 4):
            B[i, j] = A[i + 1, j]

    error = report(stencil, zeros(4, 4), zeros(4, 4))
    assert error.kind == "out-of-bounds"
    assert str(error).splitlines() == [
        "out of bounds: read of A[4, 0], but A has shape (4, 4)",
        "  statement: B[i, j] = A[i + 1, j]",
        f"  written at: {line_of('B[i, j] = A[i + 1, j]')}",
        "  where: i = 3, j = 0",
        "  function: stencil",
    ]


def test_write_out_of_bounds_with_block_iterators():
    b = decl_buffer((4,), "int32", "B")
    i, v = Var("i"), Var("v")
    block = Block([IterVar((0, 6), v, 0)], [], [], "fill", BufferStore(b, v, [v - 1]))
    func = PrimFunc([b], For(i, 0, 6, ForKind.SERIAL, BlockRealize([i], True, block)))
    assert str(report(func, zeros(4))) == (
        "out of bounds: write to B[-1], but B has shape (4)\n"
        "  statement: B[v - 1] = v\n"
        "  where: i = 0, v = 0\n"
        "  function: main"
    )


def test_a_lane_of_a_vector_out_of_bounds():
    a = decl_buffer((6,), "int32", "A")
    func = PrimFunc([a], BufferStore(a, const(1, "int32x4"), [Ramp(const(3), 1, 4)]))
    values = zeros(6)
    assert "write to A[6], but A has shape (6)" in str(report(func, values))


def test_a_view_that_leaves_its_memory():
    data = Var("data", PointerType(PrimType("int32"), "global"))
    view = decl_buffer((8,), "int32", "view", data=data)
    i = Var("i")
    func = PrimFunc(
        [], Allocate(data, "int32", [4], True, For(i, 0, 8, ForKind.SERIAL, BufferStore(view, i, [i])))
    )
    assert str(report(func)) == (
        "out of bounds: write to view[4] leaves its memory, data of 16 bytes\n"
        "  statement: view[i] = i\n"
        "  where: i = 4\n"
        "  function: main"
    )


def test_data_dependent_index():
    a, b = decl_buffer((4,), "int32", "A"), decl_buffer((4,), "int32", "B")
    func = PrimFunc([a, b], BufferStore(b, a[a[0]], [0]))
    assert "read of A[9], but A has shape (4)" in str(report(func, np.full(4, 9, "int32"), zeros(4)))


def test_bounds_checks_can_be_left_out():
    b = decl_buffer((4,), "int32", "B")
    a = decl_buffer((2, 2), "int32", "A")
    func = PrimFunc([a, b], BufferStore(b, a[0, 3], [0]))
    out = zeros(4)
    interpret(func, np.arange(4, dtype="int32").reshape(2, 2), out, check_bounds=False)
    assert out[0] == 3
    assert report(func, zeros(2, 2), out).kind == "out-of-bounds"


# ---------------------------------------------------------------------------- unwritten memory
def test_read_of_memory_that_nothing_wrote():
    @T.prim_func
    def half(B: T.Buffer((4,), "int32")):
        S = T.alloc_buffer((2, 2), "int32")
        for i in range(2):
            with T.block("S"):
                v = T.axis.spatial(2, i)
                S[v, 0] = v
        for i, j in T.grid(2, 2):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi * 2 + vj] = S[vi, vj]

    error = report(half, zeros(4))
    assert error.kind == "unwritten"
    assert str(error).splitlines() == [
        "unwritten memory: read of S[0, 1], which nothing wrote before",
        "  statement: B[vi * 2 + vj] = S[vi, vj]",
        f"  written at: {line_of('B[vi * 2 + vj] = S[vi, vj]')}",
        "  where: i = 0, j = 1, vi = 0, vj = 1",
        "  function: half",
    ]
    out = np.full(4, -1, "int32")
    interpret(half, out, check_unwritten=False)
    assert out[0] == 0 and out[2] == 1


def test_a_new_allocation_is_unwritten_each_time():
    data = Var("data", PointerType(PrimType("int8"), "global"))
    s, out = decl_buffer((2,), "int8", "S", data=data), decl_buffer((1,), "int8", "out")
    i = Var("i")
    body = seq(IfThenElse(i < 1, BufferStore(s, const(1, "int8"), [0])), BufferStore(out, s[0], [0]))
    func = PrimFunc([out], For(i, 0, 2, ForKind.SERIAL, Allocate(data, "int8", [2], True, body)))
    error = report(func, zeros(1, dtype="int8"))
    assert (error.kind, error.values) == ("unwritten", {"i": 1})


def test_half_written_elements_of_a_wider_view():
    data = Var("data", PointerType(PrimType("int8"), "global"))
    narrow, wide = decl_buffer((4,), "int8", "n", data=data), decl_buffer((1,), "int32", "w", data=data)
    out = decl_buffer((1,), "int32", "out")
    fill = [BufferStore(narrow, const(1, "int8"), [n]) for n in range(4)]
    read = BufferStore(out, wide[0], [0])
    got = zeros(1)
    interpret(PrimFunc([out], Allocate(data, "int8", [4], True, seq(*fill, read))), got)
    assert got[0] == 0x01010101
    part = PrimFunc([out], Allocate(data, "int8", [4], True, seq(*fill[:3], read)))
    assert report(part, got).message == "unwritten memory: read of w[0], which nothing wrote before"


def test_parameters_count_as_written_unless_named_as_outputs():
    a = decl_buffer((2,), "int32", "A")
    func = PrimFunc([a], BufferStore(a, a[1] + 1, [0]))
    interpret(func, zeros(2))
    assert report(func, zeros(2), outputs=["A"]).kind == "unwritten"


# ---------------------------------------------------------------------------- blocks
def test_iterator_outside_its_domain():
    b = decl_buffer((8,), "int32", "B")
    i, v = Var("i"), Var("v")
    block = Block([IterVar((0, 4), v, 0)], [], [], "fill", BufferStore(b, v, [v]))
    func = PrimFunc([b], For(i, 0, 6, ForKind.SERIAL, BlockRealize([i], True, block)))
    error = report(func, zeros(8))
    assert (error.kind, error.message) == (
        "domain",
        'iterator v of block "fill" is 4, outside its domain [0, 4)',
    )
    guarded = PrimFunc([b], For(i, 0, 6, ForKind.SERIAL, BlockRealize([i], i < 4, block)))
    interpret(guarded, zeros(8))


def test_access_outside_the_declared_regions():
    a, b = decl_buffer((8,), "int32", "A"), decl_buffer((8,), "int32", "B")
    i, v = Var("i"), Var("v")
    block = Block([IterVar((0, 4), v, 0)], [a[v : v + 2]], [b[v : v + 1]], "B", BufferStore(b, a[v + 2], [v]))
    func = PrimFunc([a, b], For(i, 0, 4, ForKind.SERIAL, BlockRealize([i], True, block)))
    interpret(func, zeros(8), zeros(8))
    error = report(func, zeros(8), zeros(8), check_regions=True)
    assert (error.kind, error.message) == ("region", 'block "B" reads A[2], but declares A[0:2]')
    other = block.replace(body=BufferStore(a, v, [v]))
    func = PrimFunc([a, b], For(i, 0, 4, ForKind.SERIAL, BlockRealize([i], True, other)))
    error = report(func, zeros(8), zeros(8), check_regions=True)
    assert error.message == 'block "B" writes A[0], but declares nothing of it'


# ---------------------------------------------------------------------------- values
@pytest.mark.parametrize("node, values", [(FloorDiv, [7, 0, -7]), (FloorMod, [0, 0, 0]), (Mod, [0, 0, 0])])
def test_division_by_zero_gives_zero(node, values):
    a = decl_buffer((3,), "int32", "A")
    i = Var("i")
    func = PrimFunc([a], For(i, 0, 3, ForKind.SERIAL, BufferStore(a, node(const(7), const(1) - i), [i])))
    out = np.full(3, 9, "int32")
    interpret(func, out)
    assert out.tolist() == values


@pytest.mark.parametrize("op", ["fail", "checked"])
def test_bad_data_is_reported(op):
    a = decl_buffer((2,), "int32", "A")
    message = "index {} at position [{}] is out of bounds"
    if op == "fail":
        body = IfThenElse(a[0] > 3, Evaluate(ops.fail("index", message, a[0], 0)))
    else:
        body = BufferStore(a, ops.checked(a[0], a[0] <= 3, "index", message, a[0], 0), [1])
    func = PrimFunc([a], body)
    assert report(func, np.array([4, 0], "int32")).message == "index 4 at position [0] is out of bounds"
    interpret(func, np.array([3, 0], "int32"))


def test_shift_by_too_much():
    a = decl_buffer((2,), "int32", "A")
    func = PrimFunc([a], BufferStore(a, call("int32", "tir.shift_left", a[0], a[1]), [0]))
    assert report(func, np.array([1, 40], "int32")).message == (
        "shift by 40 of a value of 32 bits is undefined"
    )


def test_assertion_and_promise():
    n = Var("n")
    func = PrimFunc([n], AssertStmt(n < 4, "n is too large", Evaluate(const(0))))
    assert str(report(func, 7)) == (
        "assertion failed: n is too large\n"
        '  statement: assert n < 4, "n is too large"\n'
        "  where: n = 7\n"
        "  function: main"
    )
    func = PrimFunc([n], Evaluate(assume(n < 4)))
    interpret(func, 3)
    assert report(func, 4).message == "the program assumes `n < 4`, which does not hold"


def test_let_values_are_shown():
    a = decl_buffer((4,), "int32", "A")
    i, x = Var("i"), Var("x")
    body = LetStmt(x, i * 3, BufferStore(a, x, [x]))
    func = PrimFunc([a], For(i, 0, 4, ForKind.SERIAL, body)).with_attr("global_symbol", "f")
    assert str(report(func, zeros(4))) == (
        "out of bounds: write to A[6], but A has shape (4)\n"
        "  statement: A[x] = x\n"
        "  where: i = 2, x = 6\n"
        "  function: f"
    )


def test_undefined_variables_are_named():
    a = decl_buffer((4,), "int32", "A")
    func = PrimFunc([a], BufferStore(a, Var("ghost"), [0]))
    assert str(report(func, zeros(4))) == (
        "variable ghost is used outside of its definition\n  statement: A[0] = ghost\n  function: main"
    )
    y = Var("y")
    func = PrimFunc([a], BufferStore(a, Let(y, const(1), y) + y, [0]))
    assert "variable y is used" in str(report(func, zeros(4)))


# ---------------------------------------------------------------------------- parallel loops
def test_race_between_iterations_of_a_parallel_loop():
    a, total = decl_buffer((4,), "int32", "A"), decl_buffer((2,), "int32", "total")
    i, j = Var("i"), Var("j")
    body = For(j, 0, 2, ForKind.SERIAL, BufferStore(total, total[1] + a[i], [1]))
    func = PrimFunc([a, total], For(i, 0, 4, ForKind.PARALLEL, body))
    assert str(report(func, zeros(4), zeros(2))) == (
        "race: two iterations of a parallel loop access total[1]\n"
        "  iteration i = 0 writes it in: total[1] = total[1] + A[i]\n"
        "  iteration i = 1 reads it in: total[1] = total[1] + A[i]\n"
        "  function: main"
    )
    got = zeros(2)
    interpret(func, np.arange(4, dtype="int32"), got, detect_races=False)
    assert got[1] == 12


def test_race_of_a_read_before_the_write():
    a, b = decl_buffer((4,), "int32", "A"), decl_buffer((4,), "int32", "B")
    i = Var("i")
    body = seq(BufferStore(b, a[(i + 1) % 4], [i]), BufferStore(a, i, [i]))
    error = report(PrimFunc([a, b], For(i, 0, 4, ForKind.PARALLEL, body)), zeros(4), zeros(4))
    assert error.message == "race: two iterations of a parallel loop access A[1]"
    assert error.notes == [
        "iteration i = 0 reads it in: B[i] = A[(i + 1) % 4]",
        "iteration i = 1 writes it in: A[i] = i",
    ]


def test_what_is_no_race():
    """Own elements, common reads, memory of the iteration, one loop after the other, inner parallel loops."""
    a, b = decl_buffer((4,), "int32", "A"), decl_buffer((4,), "int32", "B")
    data = Var("data", PointerType(PrimType("int32"), "global"))
    own = decl_buffer((1,), "int32", "own", data=data)
    i, j = Var("i"), Var("j")
    inner = For(j, 0, 4, ForKind.PARALLEL, BufferStore(own, own[0] + a[j], [0]))
    body = Allocate(
        data, "int32", [1], True, seq(BufferStore(own, const(0), [0]), inner, BufferStore(b, own[0], [i]))
    )
    after = For(i, 0, 4, ForKind.PARALLEL, BufferStore(a, b[3 - i], [i]))
    va, vb = np.arange(4, dtype="int32"), zeros(4)
    interpret(PrimFunc([a, b], seq(For(i, 0, 4, ForKind.PARALLEL, body), after)), va, vb)
    assert vb.tolist() == va.tolist() == [6, 6, 6, 6]


def test_cast_of_floats_that_do_not_fit():
    """No report: they give the least value of the type."""
    a, b = decl_buffer((4,), "float32", "A"), decl_buffer((4,), "int32", "B")
    i = Var("i")
    func = PrimFunc([a, b], For(i, 0, 4, ForKind.SERIAL, BufferStore(b, cast("int32", a[i]), [i])))
    out = zeros(4)
    interpret(func, np.array([np.nan, 3e9, -np.inf, -7.9], "f"), out)
    assert out.tolist() == [-(2**31), -(2**31), -(2**31), -7]
