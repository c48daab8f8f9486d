"""Instructions that are written once: what was computed before is used again where it is still the same."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright.ir.functor import contains, vars_used
from tilewright.ir.stmt import For, IfThenElse
from tilewright.script import tir as T
from tilewright.tir.renew import copies
from tilewright.tir.schedule import Schedule
from tilewright.tir.transform.simplify import simplify


def text_of(func) -> str:
    (body,) = [f for f in tvm.build(func, target="llvm").text.split("define ") if "@f(" in f]
    return body


def loads(text: str) -> int:
    return text.count(" = load float")


@T.prim_func
def apart(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), n: T.int32):
    T.func_attr({"global_symbol": "f", "tir.noalias": True})
    b[n] = a[n] + T.float32(1)
    b[n + 1] = a[n] + b[n]
    a[n] = T.float32(3)
    b[n + 2] = a[n] * T.float32(2)


def test_a_load_is_used_again_until_its_memory_is_written():
    text = text_of(apart)
    assert loads(text) == 3  # a[n]; b[n] and a[n], after they were written
    assert text.count("getelementptr inbounds float") == 4  # a[n], b[n], b[n + 1], b[n + 2]
    assert loads(text_of(apart.with_attr("tir.noalias", False))) == 4  # a store to b may be one to a


def test_pointers_that_may_be_the_same():
    x = np.arange(8, dtype="float32")
    tvm.build(apart.with_attr("tir.noalias", False), target="llvm")["f"](x, x, 2)
    # x[2] = 3; x[3] = 6; x[2] = 3; x[4] = 6
    np.testing.assert_array_equal(x, [0, 1, 3, 6, 6, 5, 6, 7])


def test_loops_and_branches_keep_what_is_theirs():
    @T.prim_func
    def f(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), n: T.int32):
        T.func_attr({"global_symbol": "f", "tir.noalias": True})
        b[0] = a[0]
        for i in range(7):
            a[0] = a[0] + T.float32(i)  # not what was loaded before the loop
            if i < n:
                b[i + 1] = a[0] * T.float32(2)
            b[i + 1] = b[i + 1] + a[0] * T.float32(2)  # computed in the branch, and here again
        b[0] = b[0] + a[0]

    for n in (0, 3, 7):
        a, b = np.ones(8, "float32"), np.ones(8, "float32")
        tvm.build(f, target="llvm")["f"](a, b, n)
        sums = 1 + np.cumsum(np.arange(7, dtype="float32"))
        held = np.where(np.arange(7) < n, sums * 2, 1)
        np.testing.assert_array_equal(b, [1 + sums[-1], *(held + sums * 2)])


def test_what_is_there():
    loop = apart.body
    assert not contains(loop, (For, IfThenElse)) and contains(loop, frozenset((type(loop),)))
    assert apart.params[2] in vars_used(loop)


def test_copies_share_what_is_the_same_in_all():
    @T.prim_func(private=True)
    def f(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in T.unroll(3):
            b[i] = a[7] * T.float32(2)

    loop = f.body
    made = copies(loop.body, loop.loop_var, [T.int32(0), T.int32(1), T.int32(2)])
    assert [s.indices[0].value for s in made] == [0, 1, 2]
    assert all(s.value is loop.body.value for s in made)


def test_statements_that_are_done_stay():
    @T.prim_func(private=True)
    def f(a: T.Buffer((8,), "int32")):
        for i in range(8):
            a[i + 0 * i] = i * 4 // 2

    assert simplify(f, done=frozenset((f.body,))) is f
    assert simplify(f) is not f


def test_a_schedule_goes_back_to_where_another_stood():
    @T.prim_func
    def f(a: T.Buffer((8, 8), "int32")):
        for i, j in T.grid(8, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                a[vi, vj] = vi + vj

    mod = tvm.IRModule({"main": f})
    first = Schedule(mod)
    outer, inner = first.split(first.get_loops(first.get_block("b"))[0], [None, 4])
    there = first.position()
    first.parallel(outer)
    second = Schedule(mod)
    second.go_to(there)
    second.unroll(inner)
    assert [str(i.kind) for i in second.trace.insts] == ["get_block", "get_loops", "split", "unroll"]
    assert "T.unroll(4)" in second.mod.script() and "T.parallel" not in second.mod.script()
    assert len(there.steps) == 3
