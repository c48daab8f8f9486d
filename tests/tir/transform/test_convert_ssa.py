"""Each variable defined once."""

from __future__ import annotations

from flat_programs import SIZE, allocated, assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings

from tilewright.ir.buffer import decl_buffer
from tilewright.ir.equal import structural_equal
from tilewright.ir.expr import IterVar, Let, Var
from tilewright.ir.function import PrimFunc
from tilewright.ir.stmt import AttrStmt, BufferStore, For, ForKind, LetStmt, seq
from tilewright.tir.analysis import verify_ssa
from tilewright.tir.transform.convert_ssa import convert_ssa

A = decl_buffer((SIZE,), "int32", "A")
B = decl_buffer((SIZE,), "int32", "B")
n = Var("n")


def _loop(v, body):
    return For(v, 0, 4, ForKind.SERIAL, body)


def test_a_loop_used_twice():
    i, x = Var("i"), Var("x")
    once = _loop(i, LetStmt(x, i * 2, BufferStore(B, x, [i])))
    func = PrimFunc([A, B, n], seq(once, once))
    made = convert_ssa(func)
    assert not verify_ssa(func) and verify_ssa(made)
    assert made.body[0] is once
    assert structural_equal(func.body[1], made.body[1])
    assert_same(func, made)


def test_shadowing_ends_with_its_scope():
    i = Var("i")
    inner = _loop(i, BufferStore(B, i, [i]))
    func = PrimFunc([A, B, n], _loop(i, seq(inner, BufferStore(B, i + 7, [i]))))
    made = convert_ssa(func)
    assert verify_ssa(made)
    assert_same(func, made)


def test_memory_and_buffers_over_it():
    t, i = decl_buffer((4,), "int32", "t"), Var("i")
    use = seq(BufferStore(t, 3, [i]), BufferStore(B, t[i], [i]))
    for declare in (True, False):
        func = PrimFunc([A, B, n], _loop(i, seq(allocated(t, use, declare), allocated(t, use, declare))))
        made = convert_ssa(func)
        assert verify_ssa(made)
        assert_same(func, made)


def test_bindings_in_expressions():
    x = Var("x")
    twice = Let(x, n + 1, x * 2) + Let(x, n + 2, x * 3)
    func = PrimFunc([A, B, n], BufferStore(B, twice, [0]))
    made = convert_ssa(func)
    assert verify_ssa(made)
    assert_same(func, made)


def test_a_hardware_axis_is_one_axis():
    tx = IterVar((0, 4), "tx", 1, "threadIdx.x")
    kernel = AttrStmt(tx, "thread_extent", 4, BufferStore(B, tx.var, [tx.var]))
    func = PrimFunc([A, B, n], seq(kernel, kernel))
    assert verify_ssa(func)
    assert convert_ssa(func) is func


@settings(max_examples=examples(30), deadline=None, derandomize=True)
@given(flat_programs())
def test_meaning(func):
    assert convert_ssa(func) is func
    i = Var("again")
    twice = func.replace(body=For(i, 0, 2, ForKind.SERIAL, seq(func.body, func.body)))
    made = convert_ssa(twice)
    assert verify_ssa(made)
    assert_same(twice, made)
