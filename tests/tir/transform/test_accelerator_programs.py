"""The proof of the lowering for accelerators: whole programs with concurrent engines, and with each token taken out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_chip import (
    ACC,
    STREAMING,
    TINY,
    arrays_for,
    convolution,
    lowered,
    matmul,
    max_pool,
    outcome,
    reference,
    tokens,
    vector_add,
    weakened,
)

from tilewright import te, tir
from tilewright.ir.errors import LoweringError
from tilewright.target.accelerator import Accelerator

PROGRAMS = {
    "vector add": lambda threads: vector_add(n=8, tile=2, threads=threads),
    "vector add, uneven": lambda threads: vector_add(n=7, tile=2, threads=threads),
    "vector add, double buffers": lambda threads: vector_add(n=12, threads=threads, double=True),
    "product": lambda threads: matmul(k=3, threads=threads),
    "product, double buffers": lambda threads: matmul(k=3, threads=threads, double=True),
    "product with a residual": lambda threads: matmul(m=4, n=4, tiles=(2, 1), threads=threads, residual=True),
    "convolution": lambda threads: convolution(size=4, channels=2, tile=2, threads=threads),
    "convolution, row by row": lambda threads: convolution(size=3, threads=threads, load_at="dy"),
    "max pooling": lambda threads: max_pool(size=8, threads=threads),
}


def proven(func: Any, args: list[Any], instances: int = 4) -> int:
    """The engines compute the result of the unscheduled program, and every token that is missing is noticed."""
    arrays = arrays_for(args)
    got = outcome(func, arrays)
    assert isinstance(got, np.ndarray), f"{got}\n{func.script()}"
    np.testing.assert_array_equal(got, reference(args, arrays))
    noticed = 0
    for how, weaker in weakened(func, instances):
        fault = outcome(weaker, arrays)
        assert isinstance(fault, str), f"{how}: not noticed\n{func.script()}"
        assert fault in ("race", "deadlock", "token", "unwritten"), how
        noticed += 1
    return noticed


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_need_each_of_their_tokens(name: str, threads: int) -> None:
    program, args = PROGRAMS[name](threads)
    func = lowered(program, args)
    assert proven(func, args) >= 4
    assert tokens(func) > 0


@pytest.mark.parametrize("name", ["vector add", "vector add, double buffers", "max pooling"])
def test_tokens_of_a_chip_that_passes_them_on(name: str) -> None:
    program, args = PROGRAMS[name](1)
    assert proven(lowered(program, args, STREAMING), args) >= 4


def scheduled_add(threads: int) -> tuple[tir.Schedule, list[Any]]:
    """Vector addition, scheduled by primitives."""
    a, b = (te.placeholder((8, 4), dtype="int32", name=x) for x in "AB")
    c = te.compute((8, 4), lambda i, j: a[i, j] + b[i, j], name="C")
    sch = tir.Schedule(te.create_prim_func([a, b, c]))
    block = sch.get_block("C")
    written = sch.cache_write(block, 0, ACC)
    reads = [sch.cache_read(block, n, ACC) for n in range(2)]
    outer, inner = sch.split(sch.get_loops(written)[0], [None, 2])
    sch.annotate(inner, "pragma_dma_copy", 1)
    at = outer
    if threads > 1:
        thread, at = sch.split(outer, [threads, None])
        sch.bind(thread, "vthread")
    sch.compute_at(block, at)
    for r in reads:
        sch.compute_at(r, at)
        sch.annotate(sch.get_loops(r)[-2], "pragma_dma_copy", 1)
    sch.annotate(sch.get_loops(block)[-2], "pragma_alu", 1)
    return sch, [a, b, c]


@pytest.mark.parametrize("chip", [TINY, STREAMING], ids=lambda c: c.name)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_program_scheduled_by_primitives(threads: int, chip: Accelerator) -> None:
    sch, args = scheduled_add(threads)
    assert proven(lowered(sch.mod, chip=chip), args) >= 4


def pooled_sum(threads: int) -> tuple[tir.Schedule, list[Any]]:
    """The sum of pairs of rows, scheduled by primitives."""
    a = te.placeholder((8, 4), dtype="int32", name="A")
    k = te.reduce_axis((0, 2), "k")
    c = te.compute((4, 4), lambda i, j: te.sum(a[i * 2 + k, j], axis=[k]), name="C")
    sch = tir.Schedule(te.create_prim_func([a, c]))
    block = sch.get_block("C")
    written, read = sch.cache_write(block, 0, ACC), sch.cache_read(block, 0, ACC)
    i, j = sch.get_loops(written)
    i, inner = sch.split(i, [None, 1])
    sch.annotate(inner, "pragma_dma_copy", 1)
    if threads > 1:
        thread, i = sch.split(i, [threads, None])
        sch.bind(thread, "vthread")
    sch.compute_at(block, i)
    sch.compute_at(read, i)
    sch.annotate(sch.get_loops(read)[-2], "pragma_dma_copy", 1)
    *_, j, k = sch.get_loops(block)
    sch.reorder(k, j)
    init = sch.decompose_reduction(block, k)
    sch.annotate(sch.get_loops(init)[-1], "pragma_alu", 1)
    sch.annotate(k, "pragma_alu", 1)
    return sch, [a, c]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_reduction_scheduled_by_primitives(threads: int) -> None:
    sch, args = pooled_sum(threads)
    assert proven(lowered(sch.mod, chip=STREAMING), args) >= 4


@st.composite
def schedules(draw: Any) -> tuple[Any, list[Any], Accelerator]:
    """Random programs: sizes, tiles that need not divide them, virtual threads, orders and places of stages."""
    size, threads = (lambda low, high: draw(st.integers(low, high))), draw(st.sampled_from([1, 1, 2, 3]))
    flag = lambda: draw(st.booleans())
    kind = draw(st.sampled_from(["add", "product", "convolution", "pool"]))
    if kind == "add":
        made = vector_add(size(1, 9), size(1, 4), threads, flag())
    elif kind == "product":
        made = matmul(
            size(1, 4),
            size(1, 3),
            size(1, 4),
            (size(1, 3), size(1, 3)),
            threads,
            residual=flag(),
            double=flag(),
            at_reduction=flag(),
            thread_axis=draw(st.sampled_from("xy")),
            order=draw(st.sampled_from(["kxy", "kyx", "xky", "ykx", "xyk"])),
        )
    elif kind == "convolution":
        made = convolution(
            size(2, 5),
            size(1, 2),
            size(1, 3),
            threads,
            size(1, 3),
            thread_axis=draw(st.sampled_from("yc")),
            load_at=draw(st.sampled_from(["out", "ko", "dy", "dx"])),
        )
    else:
        made = max_pool(2 * size(1, 3), size(1, 2), threads)
    return *made, draw(st.sampled_from([TINY, STREAMING]))


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(schedules())
def test_random_schedules_need_each_of_their_tokens(case: Any) -> None:
    program, args, chip = case
    try:
        func = lowered(program, args, chip)
    except LoweringError as error:
        assert "and the buffers that are live at once need" in str(error)  # a tile may be too large
        return
    proven(func, args, instances=2)
