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
        s[B].prefetch: the offset must be a number from 0 on, not -1
          at test_inject_prefetch.py:LINE
        """,
    )


def test_nothing_asked_nothing_done() -> None:
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i], name="B")
    mod = tvm.lower(te.create_schedule(B.op), [A, B])
    assert tir.transform.InjectPrefetch()(mod) is mod
