"""Building: what goes in, targets, names, and that exactly the given loops are compiled."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import BuildError, TargetError
from tilewright.script import ir as I
from tilewright.script import tir as T


def adder(n=16):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    return A, B


def check(module, name=None, n=16):
    a, b = np.arange(n, dtype="float32"), np.zeros(n, "float32")
    (module if name is None else module[name])(a, b)
    np.testing.assert_array_equal(b, a + 1)


def test_everything_that_is_a_program():
    A, B = adder()
    s = te.create_schedule(B.op)
    func = te.create_prim_func([A, B])
    check(tvm.build(s, [A, B]))
    check(tvm.build(s, [A, B], target="llvm"))
    check(tvm.build(s, [A, B], "llvm", name="plus"), "plus")
    check(tvm.build(s, [A, B], "llvm"), "default_function")
    check(tvm.build(func, target="llvm"))
    check(tvm.build(func.with_attr("global_symbol", "mine"), target="llvm"), "mine")
    check(tvm.build(tvm.IRModule({"f": func.with_attr("global_symbol", "f")}), target="llvm"), "f")
    check(tvm.build(tir.Schedule(func), target="llvm"))
    check(tvm.build(tvm.lower(s, [A, B], name="low"), target="llvm"), "low")


def test_a_dict_of_targets():
    A, B = adder()
    s = te.create_schedule(B.op)
    one = tvm.lower(s, [A, B], name="one")
    two = tvm.lower(s, [A, B], name="two")
    module = tvm.build({"llvm": one})
    check(module, "one")
    module = tvm.build({tvm.target.Target("llvm"): one, tvm.target.Target("llvm -mcpu=x86-64"): two})
    check(module, "one")
    assert len(module.imported_modules) == 1
    check(module.imported_modules[0], "two")
    check(module, "two")
    with pytest.raises(BuildError, match="an empty dict of targets"):
        tvm.build({})


def test_the_target_in_force():
    A, B = adder()
    s = te.create_schedule(B.op)
    seen = []

    @tir.transform.prim_func_pass(opt_level=0, name="ask")
    def ask(func, mod, ctx):
        seen.append(tvm.target.Target.current())
        return func

    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(1, ask)]}):
        with tvm.target.Target("llvm -mcpu=x86-64"):
            check(tvm.build(s, [A, B]))
        tvm.build(s, [A, B], tvm.target.Target("llvm", host="llvm"))
        tvm.build(s, [A, B], "llvm", target_host="llvm")
    assert seen[0].mcpu == "x86-64"
    assert seen[1].host is not None and seen[2].host is not None


def test_targets_that_cannot_be_built_for():
    A, B = adder()
    s = te.create_schedule(B.op)
    with pytest.raises(TargetError, match="nosuch"):
        tvm.build(s, [A, B], "nosuch")
    with pytest.raises(
        BuildError,
        match=r"there is no code generator for targets of kind 'vulkan'; there are some for c, cuda, .*llvm, metal, opencl, .*rocm",
    ):
        tvm.build(s, [A, B], "vulkan")


def test_several_functions():
    @I.ir_module
    class Both:
        @T.prim_func
        def one(A: T.Buffer((4,), "int32")):
            for i in range(4):
                A[i] = i

        @T.prim_func
        def two(A: T.Buffer((4,), "int32")):
            for i in range(4):
                A[i] = i * 2

    module = tvm.build(Both, target="llvm")
    a = np.zeros(4, "int32")
    module["one"](a)
    assert a.tolist() == [0, 1, 2, 3]
    module["two"](a)
    assert a.tolist() == [0, 2, 4, 6]


def test_exactly_the_given_loops_are_compiled():
    A, B = adder(32)
    s = te.create_schedule(B.op)
    plain = tvm.build(s, [A, B], "llvm")
    s[B].vectorize(s[B].split(B.op.axis[0], factor=8)[1])
    vectors = tvm.build(s, [A, B], "llvm")
    assert "<8 x float>" in vectors.get_source("ll")
    check(plain, n=32)
    check(vectors, n=32)


def test_a_built_module_does_not_hang_on_its_schedule():
    A, B = adder()
    s = te.create_schedule(B.op)
    module = tvm.build(s, [A, B], "llvm")
    s[B].parallel(B.op.axis[0])
    del s, A, B
    check(module)


def test_argument_order_and_scalars():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    module = tvm.build(s, [B, A], "llvm")
    a, b = np.arange(5, dtype="float32"), np.zeros(5, "float32")
    module(b, a)
    np.testing.assert_array_equal(b, a + 1)
    module = tvm.build(te.create_schedule(B.op), [n, A, B], "llvm")
    module(5, a, b)
    np.testing.assert_array_equal(b, a + 1)


def test_errors_of_lowering_come_through():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    s[B].vectorize(B.op.axis[0])
    with pytest.raises(tvm.TVMError, match="which is not constant: split it by a constant factor"):
        tvm.build(s, [A, B], "llvm")


def test_the_classic_home():
    assert tvm.driver.build is tvm.build
    assert tvm.driver.build_module.build is tvm.build
    assert tvm.driver.lower is tvm.lower
    A, B = adder()
    module = tvm.build(te.create_schedule(B.op), [A, B], "llvm")
    assert isinstance(module, tvm.driver.build_module.OperatorModule)
