"""Schedules for GPUs as kernels, run thread by thread: no race, and no barrier too many.

`TILEWRIGHT_EXAMPLES=500 pytest tests/tir/schedule/test_kernels.py` runs more random schedules.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from random_rows import rows
from random_schedules import arrays_of, recipe_of, scheduled
from schedule_programs import matmul

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels
from tilewright.ir.errors import LoweringError, ScheduleError
from tilewright.ir.expr import Call
from tilewright.ir.functor import pre_order, rewrite
from tilewright.ir.stmt import BlockRealize, Evaluate, For
from tilewright.tir.analysis.threads import is_hardware_loop
from tilewright.tir.interpret import InterpreterError
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule

EXAMPLES = int(os.environ.get("TILEWRIGHT_EXAMPLES", "40"))
# Barriers of `random_rows` whose threads keep apart in a way that takes more than intervals and residues to see.
SEEN_THROUGH = {(89, 3), (136, 3), (247, 3), (251, 2), (285, 3)}
AXES = ["blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y"]


# ---------------------------------------------------------------------------- random schedules
def bind_the_rest(sch: Schedule, seed: int) -> bool:
    """Bind a loop around each block that is in no kernel; whether that could be done."""
    rng = random.Random(seed)
    while (found := _unbound(sch.mod["main"].body, [])) is not None:
        realize, loop = found
        try:
            if loop is not None and _bound_to_some(sch, loop, rng):
                continue
            around = LoopRV(loop.loop_var) if loop is not None else BlockRV(realize.block.key, "")
            sch.bind(sch.add_unit_loop(around), "threadIdx.x")
        except ScheduleError:
            return False
    return True


def _unbound(n, path):
    """A block outside of every kernel, and the outermost loop around it that has no kernel inside."""
    if is_hardware_loop(n):
        return None
    path = [*path, n] if isinstance(n, For) else path
    if isinstance(n, BlockRealize) and n.block.name_hint != "root":
        outer = [x for x in path if not any(is_hardware_loop(m) for m in pre_order(x))]
        return n, outer[0] if outer else None
    return next((f for c in n.children() if (f := _unbound(c, path)) is not None), None)


def _bound_to_some(sch: Schedule, loop: For, rng: random.Random) -> bool:
    for axis in rng.sample(AXES, len(AXES)):
        try:
            sch.bind(LoopRV(loop.loop_var), axis)
        except ScheduleError:
            continue
        return True
    return False


def outcome(seed: int) -> str:
    """What becomes of a random schedule for a GPU: `agree`, or the reason why it cannot be kernels."""
    sch, _ = scheduled(recipe_of(seed, gpu=True))
    if not bind_the_rest(sch, seed):
        return "not all blocks can be bound"
    origin = sch.origin["main"]
    want, got = arrays_of(origin), arrays_of(origin)
    tir.interpret(origin, *want)
    try:
        lowered = lower_kernels(sch.mod)["main"]
    except LoweringError as why:
        return str(why)
    tir.interpret(lowered, *got)  # it reports races, and barriers that not all threads reach
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}\n{sch.mod}\n{lowered}")
    return "agree"


@pytest.mark.parametrize(
    "seeds", [range(30, 36), pytest.param(range(36, 30 + EXAMPLES), marks=pytest.mark.slow)]
)
def test_random_schedules_as_kernels(seeds) -> None:
    told = [outcome(seed) for seed in seeds]
    assert told.count("agree") >= len(told) // 3, told


# ---------------------------------------------------------------------------- barriers
def without_barrier(func: tir.PrimFunc, number: int) -> tir.PrimFunc:
    seen = -1

    def drop(n: Evaluate):
        nonlocal seen
        if isinstance(n.value, Call) and n.value.op.name == "tir.tvm_storage_sync":
            seen += 1
            return Evaluate(0) if seen == number else None
        return None

    return rewrite(func, {Evaluate: drop})


def tiled_matmul() -> tir.Schedule:
    """Tiles of both operands are fetched together, turn after turn."""
    A, B = te.placeholder((8, 12), "int32", name="A"), te.placeholder((12, 8), "int32", name="B")
    k = te.reduce_axis((0, 12), "k")
    C = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    i, j, k = sch.get_loops("C")
    bx, tx = sch.split(i, [None, 4])
    by, ty = sch.split(j, [None, 4])
    ko, ki = sch.split(k, [None, 4])
    sch.reorder(bx, by, tx, ty, ko, ki)
    for loop, axis in ((bx, "blockIdx.x"), (by, "blockIdx.y"), (tx, "threadIdx.x"), (ty, "threadIdx.y")):
        sch.bind(loop, axis)
    for operand in range(2):
        copy = sch.cache_read("C", operand, "shared")
        sch.compute_at(copy, ko)
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        _, y, x = sch.split(fused, [None, 4, 4])
        sch.bind(x, "threadIdx.x")
        sch.bind(y, "threadIdx.y")
    return sch


def shared_row(scope: str = "shared") -> tir.Schedule:
    """The largest of a row by all threads of a block, which then use it."""
    A = te.placeholder((3, 14), "int32", name="A")
    k = te.reduce_axis((0, 14), "k")
    B = te.compute((3,), lambda i: te.max(A[i, k], axis=k), name="B")
    D = te.compute((3, 14), lambda i, j: A[i, j] - B[i], name="D")
    sch = tir.Schedule(te.create_prim_func([A, D]))
    i, j = sch.get_loops("D")
    sch.set_scope("B", 0, scope)
    sch.compute_at("B", i)
    sch.bind(sch.split(sch.get_loops("B")[-1], [None, 7])[1], "threadIdx.x")
    sch.bind(sch.split(j, [None, 7])[1], "threadIdx.x")
    return sch  # the rows one after the other


def stencil() -> tir.Schedule:
    """Neighbours of what other threads computed, and back again."""
    A = te.placeholder((20,), "int32", name="A")
    B = te.compute((18,), lambda i: A[i] + A[i + 2], name="B")
    C = te.compute((16,), lambda i: B[i] * B[i + 2], name="C")
    D = te.compute((16,), lambda i: C[15 - i], name="D")
    sch = tir.Schedule(te.create_prim_func([A, D]))
    (i,) = sch.get_loops("D")
    u = sch.add_unit_loop(i)
    sch.bind(u, "blockIdx.x")
    sch.bind(i, "threadIdx.x")
    for name in "CB":
        sch.set_scope(name, 0, "shared")
        sch.compute_at(name, u)
        sch.bind(sch.get_loops(name)[-1], "threadIdx.x")
    return sch


@pytest.mark.parametrize(
    ("make", "barriers"), [(tiled_matmul, 2), (shared_row, 4), (stencil, 2), (lambda: shared_row("local"), 5)]
)
def test_each_barrier_is_needed(make, barriers) -> None:
    sch = make()
    if make is not tiled_matmul and make is not stencil:
        bound = sch.add_unit_loop(sch.get_loops("D")[0])
        sch.bind(bound, "blockIdx.x")
    assert sch.verify().kernels == "agree"
    lowered = lower_kernels(sch.mod)["main"]
    assert lowered.script().count("T.tvm_storage_sync") == barriers, lowered
    for number in range(barriers):
        with pytest.raises(InterpreterError, match="race: two threads access"):
            tir.interpret(without_barrier(lowered, number), *arrays_of(sch.origin["main"]))


# ---------------------------------------------------------------------------- verify
def test_the_report_says_what_became_of_the_kernels() -> None:
    sch = tir.Schedule(matmul)
    i, j, _ = sch.get_loops("C")
    assert sch.verify().kernels == ""
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    report = sch.verify()
    assert report.kernels == "agree"
    assert str(report).endswith("(run by interpreter, seed 0), and so do its kernels, thread by thread")


def test_blocks_outside_of_kernels_are_named() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[7 - i], name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    sch.bind(sch.get_loops("C")[0], "threadIdx.x")
    report = sch.verify()
    assert report.kernels == "block B has no loop that is bound to threads"
    assert str(report).endswith("; its kernels were not run: block B has no loop that is bound to threads")


@pytest.mark.parametrize("target", ["llvm", "opencl", "cuda -arch=sm_80"])
def test_kernels_are_run_whatever_the_target_at_hand_is(target: str) -> None:
    with tvm.target.Target(target):
        assert stencil().verify().kernels == "agree"


def test_kernels_that_go_wrong_are_found(expect) -> None:
    """A pass that loses a barrier: verify runs what lowering made."""
    sch = stencil()
    with tvm.transform.PassContext(disabled_pass=["tir.ThreadSync"]), pytest.raises(ScheduleError) as caught:
        sch.verify()
    expect(
        str(caught.value),
        """
        the kernels of main cannot be run: race: two threads access B[2] (shared memory) with no barrier between
          thread (blockIdx.x = 0, threadIdx.x = 0) reads it in: C[ax0] = B[ax0] * B[ax0 + 2]
          thread (blockIdx.x = 0, threadIdx.x = 2) writes it in: B[ax0] = A[ax0] + A[ax0 + 2]
          function: main
        """,
    )
    assert sch.verify().kernels == "agree"


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, EXAMPLES), marks=pytest.mark.slow)])
def test_random_rows_have_the_barriers_that_they_need_and_no_others(seeds) -> None:
    """Stages in shared memory, by threads together: no race, and a race without any one of the barriers."""
    for seed in seeds:
        sch = rows(seed)
        origin, lowered = sch.origin["main"], lower_kernels(sch.mod)["main"]
        want, got = arrays_of(origin), arrays_of(origin)
        tir.interpret(origin, *want)
        tir.interpret(lowered, *got)
        np.testing.assert_array_equal(got[-1], want[-1], err_msg=f"seed {seed}")
        for number in range(lowered.script().count("T.tvm_storage_sync")):
            if (seed, number) in SEEN_THROUGH:
                continue
            with pytest.raises(InterpreterError, match="race: two threads access"):
                tir.interpret(without_barrier(lowered, number), *arrays_of(origin))
