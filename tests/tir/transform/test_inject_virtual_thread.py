"""Virtual threads interleaved."""

from __future__ import annotations

import numpy as np
import pytest
from flat_programs import allocated

from tilewright.ir.buffer import decl_buffer
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import IterVar, Var
from tilewright.ir.function import PrimFunc
from tilewright.ir.functor import pre_order, renew_defs
from tilewright.ir.ops import call_extern
from tilewright.ir.stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, seq
from tilewright.script import tir as T
from tilewright.tir.interpret import interpret
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.inject_virtual_thread import inject_virtual_thread


def with_threads(func: PrimFunc, count: int) -> PrimFunc:
    """The function with its last parameter as a virtual thread."""
    *params, vt = func.params
    axis = IterVar((0, count), vt, 1, "vthread")
    body = AttrStmt(axis, "virtual_thread", count, func.body)
    return func.replace(params=tuple(params), body=body)


def one_after_the_other(func: PrimFunc, count: int) -> PrimFunc:
    """What virtual threads mean, as long as they do not speak to each other: a loop."""
    *params, vt = func.params
    return func.replace(params=tuple(params), body=For(vt, 0, count, ForKind.SERIAL, func.body))


@T.prim_func(private=True)
def dot(
    A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((32,), "float32"), vt: T.int32
):
    t = T.allocate([1], "float32", "local")
    t_1 = T.decl_buffer((1,), data=t, scope="local")
    s = T.allocate([1], "float32", "local")
    s_1 = T.decl_buffer((1,), data=s, scope="local")
    t_1[0] = T.float32(0)
    for k in range(2):
        s_1[0] = B[k]
        t_1[0] = t_1[0] + A[vt * 2 + k] * s_1[0]
    C[vt] = t_1[0]


def test_shared_work_is_done_once():
    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((32,), "float32")):
        t = T.allocate([2], "float32", "local")
        t_1 = T.decl_buffer((2,), data=t, scope="local")
        s = T.allocate([1], "float32", "local")
        s_1 = T.decl_buffer((1,), data=s, scope="local")
        t_1[0] = T.float32(0)
        t_1[1] = T.float32(0)
        for k in range(2):
            s_1[0] = B[k]
            t_1[0] = t_1[0] + A[k] * s_1[0]
            t_1[1] = t_1[1] + A[2 + k] * s_1[0]
        C[0] = t_1[0]
        C[1] = t_1[1]

    assert_structural_equal(inject_virtual_thread(with_threads(dot, 2)), after)


@T.prim_func(private=True)
def ragged(
    A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((32,), "float32"), vt: T.int32
):
    t = T.allocate([4], "float32", "local")
    t_1 = T.decl_buffer((4,), data=t, scope="local")
    for i in range(4):
        t_1[i] = B[i] + T.Cast("float32", vt)
    for i in range(vt % 3 + 1):
        t_1[i] = t_1[i] * A[i]
    if vt < 3:
        x: T.int32 = vt * 2
        C[vt] = t_1[x % 4] + t_1[3]
    else:
        C[vt] = t_1[1]


@pytest.mark.parametrize("count", [1, 2, 5, 16, 20])
@pytest.mark.parametrize("func", [dot, ragged], ids=["dot", "ragged"])
def test_meaning(func, count):
    rng = np.random.default_rng(3)
    a, b = rng.random(64, dtype="float32"), rng.random(64, dtype="float32")
    want, got = np.zeros(32, "float32"), np.zeros(32, "float32")
    interpret(one_after_the_other(func, count), a, b, want)
    made = inject_virtual_thread(with_threads(func, count))
    interpret(made, a, b, got)
    assert np.array_equal(want, got)
    assert not any(isinstance(m, AttrStmt) for m in pre_order(made.body))


def test_many_threads_are_a_loop():
    made = inject_virtual_thread(with_threads(dot, 16))
    assert any(isinstance(m, For) and m.loop_var.name == "vt_s" for m in pre_order(made.body))


def test_two_axes():
    inner = with_threads(dot, 2)
    wt = Var("wt")
    body = AttrStmt(IterVar((0, 3), wt, 1, "vthread"), "virtual_thread", 3, inner.body)
    func = inner.replace(body=body)
    a, b = np.ones(64, "float32"), np.arange(64, dtype="float32")
    want, got = np.zeros(32, "float32"), np.zeros(32, "float32")
    interpret(one_after_the_other(dot, 2), a, b, want)
    interpret(convert_ssa(inject_virtual_thread(func)), a, b, got)
    assert np.array_equal(want, got)


def test_pointers_move_with_the_thread():
    t, vt = decl_buffer((8,), "float32", "t", scope="local"), Var("vt")
    out = decl_buffer((8,), "float32", "B")
    body = seq(Evaluate(call_extern("int32", "fill", t.access_ptr("w"), vt)), BufferStore(out, t[0], [vt]))
    func = PrimFunc(
        [out], AttrStmt(IterVar((0, 2), vt, 1, "vthread"), "virtual_thread", 2, allocated(t, body))
    )
    text = str(inject_virtual_thread(func))
    assert ", 0, 8, 2)" in text and ", 8, 8, 2)" in text


def test_nothing_to_do_gives_the_same_function():
    plain = renew_defs(dot)
    assert inject_virtual_thread(plain) is plain


def test_the_number_of_threads_must_be_known():
    n = Var("n")
    axis = IterVar(None, dot.params[3], 1, "vthread")
    func = dot.replace(params=(*dot.params[:3], n), body=AttrStmt(axis, "virtual_thread", n, dot.body))
    with pytest.raises(LoweringError, match="virtual thread vt: its extent is `n`; give it a constant one"):
        inject_virtual_thread(func)
