"""`PassContext(config={"tilewright.auto_schedule": True})`: building schedules what nobody has scheduled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.transform import PassContext
from tilewright.script import tir as T
from tilewright.tune.auto import is_unscheduled

ON = {"tilewright.auto_schedule": True}


def sums(n: int = 64) -> tuple[Any, Any]:
    A = te.placeholder((n, n), name="A")
    k = te.reduce_axis((0, n), "k")
    return A, te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")


def has_vectors(mod: Any) -> bool:
    return "T.Broadcast" in str(mod) or "T.vectorized" in str(mod) or "T.Ramp" in str(mod)


def test_build_compiles_the_loops_it_is_given_unless_told() -> None:
    A, B = sums()
    func = te.create_prim_func([A, B])
    assert not has_vectors(tvm.lower(func))
    with PassContext(config=ON):
        assert has_vectors(tvm.lower(func))
        module = tvm.build(func)
    a, b = np.random.default_rng(0).random((64, 64), "float32"), np.zeros(64, "float32")
    module(a, b)
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


def test_a_te_schedule_without_steps_is_unscheduled() -> None:
    A, B = sums()
    with PassContext(config=ON):
        assert has_vectors(tvm.lower(te.create_schedule(B.op), [A, B]))
        s = te.create_schedule(B.op)
        s[B].reorder(B.op.reduce_axis[0], B.op.axis[0])
        assert not has_vectors(tvm.lower(s, [A, B]))


def test_each_function_of_a_module_is_looked_at() -> None:
    A, B = sums()
    plain = te.create_prim_func([A, B]).with_attr("global_symbol", "plain")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    sch.split(sch.get_loops("B")[0], [None, 4])
    by_hand = sch.mod["main"].with_attr("global_symbol", "by_hand")
    mod = tvm.IRModule({"plain": plain, "by_hand": by_hand})
    with PassContext(config=ON):
        lowered = tvm.lower(mod)
    assert has_vectors(lowered["plain"].script())
    assert not has_vectors(lowered["by_hand"].script())


def test_what_is_lowered_stays() -> None:
    lowered = tvm.lower(te.create_prim_func(list(sums())))
    with PassContext(config=ON):
        assert not has_vectors(tvm.lower(lowered))


def test_the_target_says_how_wide_vectors_are() -> None:
    func = te.create_prim_func(list(sums(1000)))
    with PassContext(config=ON), tvm.target.Target("llvm -mcpu=core2"):
        narrow = str(tvm.lower(func))
    with PassContext(config=ON), tvm.target.Target("llvm -mcpu=skylake-avx512"):
        wide = str(tvm.lower(func))
    assert narrow != wide


@pytest.mark.parametrize(
    "step",
    [
        lambda sch, i, k: sch.split(i, [None, 4]),
        lambda sch, i, k: sch.reorder(k, i),
        lambda sch, i, k: sch.parallel(i),
        lambda sch, i, k: sch.unroll(k),
        lambda sch, i, k: sch.annotate(i, "pragma_x", 1),
        lambda sch, i, k: sch.decompose_reduction(sch.get_block("B"), k),
        lambda sch, i, k: sch.compute_at(sch.get_block("A2"), i),
        lambda sch, i, k: sch.add_unit_loop(i),
    ],
)
def test_one_step_by_hand_is_enough(step: Any) -> None:
    A = te.placeholder((64, 64), name="A")
    A2 = te.compute((64, 64), lambda i, j: tir.exp(A[i, j]), name="A2")
    k = te.reduce_axis((0, 64), "k")
    B = te.compute((64,), lambda i: te.sum(A2[i, k], axis=k), name="B")
    func = te.create_prim_func([A, B])
    assert is_unscheduled(func)
    sch = tir.Schedule(func)
    step(sch, *sch.get_loops("B"))
    assert not is_unscheduled(sch.mod["main"])


def test_functions_of_all_kinds_that_te_makes_are_unscheduled() -> None:
    n = te.var("n")
    A = te.placeholder((n, 1), name="A")
    scalar = te.placeholder((), name="s")
    s, x = te.placeholder((8, 16), name="s"), te.placeholder((8, 16), name="x")
    first = te.compute((1, 16), lambda _, i: x[0, i], name="first")
    step = te.compute((8, 16), lambda t, i: s[t - 1, i] + x[t, i], name="step")
    for args in (
        [A, te.compute((n, 1), lambda i, j: A[i, j] + 1.0)],
        [scalar, te.compute((), lambda: scalar[()] + 1.0)],
        [x, te.scan(first, step, s, inputs=[x])],
    ):
        assert is_unscheduled(te.create_prim_func(args))


def test_loops_without_blocks_are_nobody_s_to_schedule() -> None:
    @T.prim_func
    def f(A: T.Buffer((8,), "float32")) -> None:
        for i in range(8):
            A[i] = T.float32(1)

    assert not is_unscheduled(f)


def test_the_option_is_a_switch() -> None:
    with pytest.raises(ValueError, match="takes bool"):
        PassContext(config={"tilewright.auto_schedule": "yes"})
