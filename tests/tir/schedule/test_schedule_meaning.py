"""Random walks of steps: what is not refused means the same, in block form, lowered and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_programs import arrays, chain, copy2d, matmul, symbolic

import tilewright as tvm
from tilewright import tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import ScheduleError
from tilewright.script import tir as T


@T.prim_func
def conv(X: T.Buffer((2, 9), "float32"), W: T.Buffer((3, 2, 3), "float32"), Y: T.Buffer((3, 7), "float32")):
    for o, x, c, k in T.grid(3, 7, 2, 3):
        with T.block("Y"):
            vo, vx, vc, vk = T.axis.remap("SSRR", [o, x, c, k])
            with T.init():
                Y[vo, vx] = T.float32(0)
            Y[vo, vx] = Y[vo, vx] + X[vc, vx + vk] * W[vo, vc, vk]


@T.prim_func
def together(A: T.Buffer((6, 5), "float32"), D: T.Buffer((6, 5), "float32")):
    B = T.alloc_buffer((6, 5))
    C = T.alloc_buffer((8, 5))
    for i, j in T.grid(6, 5):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi + 1, vj] = B[vi, vj] * T.float32(2)
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where(i >= 1)
            D[vi, vj] = C[vi, vj] + B[vi, vj]


PROGRAMS = {"C": matmul, "B": copy2d, "Y": conv}
STEPS = ("split", "split", "fuse", "reorder", "reorder", "parallel", "vectorize", "unroll", "unit", "bind")


def walk(draw, func, block, count):
    """Random steps on the loops of a block; refused ones must leave the program alone."""
    sch = tir.Schedule(func)
    for _ in range(count):
        loops = sch.get_loops(block)
        before = sch.mod
        step = draw(st.sampled_from(STEPS))
        at = draw(st.integers(0, len(loops) - 1))
        try:
            if step == "split":
                factors = draw(st.sampled_from([[None, 2], [3, None], [None, 4], [2, None, 2], [None, 9]]))
                sch.split(loops[at], factors)
            elif step == "fuse":
                sch.fuse(*loops[at : at + 2])
            elif step == "reorder":
                sch.reorder(*draw(st.permutations(loops)))
            elif step == "unit":
                sch.add_unit_loop(loops[at])
            elif step == "bind":
                sch.bind(loops[at], draw(st.sampled_from(["blockIdx.x", "blockIdx.y", "vthread"])))
            else:
                getattr(sch, step)(loops[at])
        except ScheduleError:
            assert sch.mod is before
        if len(sch.get_loops(block)) > 9:
            break
    return sch


def run(func, n=5):
    held = arrays(func, n)
    tir.interpret(func, *held)
    return held


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(st.data())
def test_one_block(data):
    block = data.draw(st.sampled_from(sorted(PROGRAMS)))
    func = PROGRAMS[block]
    sch = walk(data.draw, func, block, data.draw(st.integers(1, 7)))
    want = run(func)
    for made in (sch.mod["main"], tvm.lower(sch.mod)["main"]):
        for x, y in zip(want, run(made), strict=True):
            np.testing.assert_array_equal(x, y, err_msg=str(made))
    again = tir.Schedule(func)
    exec("\n".join(sch.trace.as_python()), {"sch": again})
    assert_structural_equal(again.mod, sch.mod)


@settings(max_examples=examples(15), deadline=None, derandomize=True)
@given(st.data())
def test_symbolic_shapes(data):
    sch = walk(data.draw, symbolic, "B", data.draw(st.integers(1, 5)))
    kinds = [int(sch.get(x).kind) for x in sch.get_loops("B")]
    for n in (0, 1, 3, 8):
        want = run(symbolic, n)
        np.testing.assert_array_equal(run(sch.mod["main"], n)[1], want[1])
        if 2 not in kinds:  # vectorised loops may have extents that are not constant
            np.testing.assert_array_equal(run(tvm.lower(sch.mod)["main"], n)[1], want[1])


@settings(max_examples=examples(25), deadline=None, derandomize=True)
@given(st.data())
def test_several_blocks_in_one_nest(data):
    """Parallel loops are checked for races in their lowered form, where memory is placed."""
    sch = walk(data.draw, together, "D", data.draw(st.integers(1, 6)))
    want = run(together)[1]
    for made in (sch.mod["main"], tvm.lower(sch.mod)["main"]):
        got = run(made)[1]
        np.testing.assert_array_equal(got, want, err_msg=str(made))


@settings(max_examples=examples(10), deadline=None, derandomize=True)
@given(st.data())
def test_compiled(data):
    block = data.draw(st.sampled_from(sorted(PROGRAMS)))
    func = PROGRAMS[block]
    sch = walk(data.draw, func, block, 5)
    if any(int(sch.get(x).kind) == 4 for x in sch.get_loops(block)):
        return
    want, got = run(func), arrays(func)
    tvm.build(sch.mod, target="llvm")(*got)
    np.testing.assert_allclose(got[-1], want[-1], rtol=1e-5)


@pytest.mark.parametrize("block", ["B", "C", "D"])
def test_a_chain_stage_by_stage(block, agree):
    sch = tir.Schedule(chain)
    outer, inner = sch.split(sch.get_loops(block)[0], [None, 4])
    sch.parallel(outer)
    sch.vectorize(inner)
    agree(chain, sch.mod["main"], *arrays(chain))
    agree(chain, tvm.lower(sch.mod)["main"], *arrays(chain))
