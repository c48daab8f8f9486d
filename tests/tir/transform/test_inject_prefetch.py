"""Prefetches: where they stand, and that they change nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir


def program(offset: int) -> tuple[te.Schedule, list[te.Tensor]]:
    A = te.placeholder((16, 40), name="A")
    k = te.reduce_axis((0, 40), "k")
    B = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    s[B].prefetch(A, B.op.axis[0], offset)
    return s, [A, B]


def test_lines_of_a_later_row_are_asked_for() -> None:
    s, args = program(2)
    text = tvm.lower(s, args).script()
    assert "for i in range(14):" in text and "T.serial(14, 16)" in text
    assert "for line in range(3):" in text
    assert "T.prefetch(T.address_of(A_1[i * 40 + line * 16 + 80]), 0, 3, 1" in text
    assert "prefetch" in tvm.build(s, args).get_source("asm")


@pytest.mark.parametrize("offset", [0, 1, 15, 16, 40])
def test_the_result_stays(offset: int) -> None:
    s, args = program(offset)
    x = np.random.default_rng(0).integers(0, 9, (16, 40)).astype("float32")
    for run in (tvm.build(s, args), lambda *a: tir.interpret(tvm.lower(s, args)["main"], *a)):
        got = np.zeros(16, "float32")
        run(x, got)
        np.testing.assert_array_equal(got, x.sum(1))


def test_a_negative_offset_is_refused(expect: Any) -> None:
    with pytest.raises(tir.ScheduleError) as caught:
        program(-1)
    expect(
        re.sub(r"\.py:\d+", ".py:LINE", str(caught.value)),
        """
        s[B].prefetch: the offset must be 0 or greater, not -1
          at test_inject_prefetch.py:LINE
        """,
    )


def test_nothing_asked_nothing_done() -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i], name="B")
    mod = tvm.lower(te.create_schedule(B.op), [A, B])
    assert tir.transform.InjectPrefetch()(mod) is mod


def test_lines_that_are_far_from_each_other_are_asked_for_one_by_one() -> None:
    A = te.placeholder((64, 1024), name="A")
    k = te.reduce_axis((0, 64), "k")
    B = te.compute((1024,), lambda j: te.sum(A[k, j], axis=k), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    j, k = sch.get_loops(sch.get_block("B"))
    many, few = sch.split(k, [None, 2])
    vectors, lane = sch.split(j, [None, 16])
    sch.reorder(many, vectors, few, lane)
    sch.unroll(few)
    sch.vectorize(lane)
    sch.annotate(vectors, "prefetch_past_A", 2 * 1024 // 16)
    text = tvm.lower(sch.mod).script()
    asked = re.findall(r"T.prefetch\(T.address_of\(A_1\[(.*?)\]\), 0, 2", text)
    assert asked == ["cse_var_1 + 2048", "cse_var_1 + 3072"]
    x = np.random.default_rng(0).integers(0, 9, (64, 1024)).astype("float32")
    got = np.zeros(1024, "float32")
    tvm.build(sch.mod)(x, got)
    np.testing.assert_array_equal(got, x.sum(0))
