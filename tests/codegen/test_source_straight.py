"""Conditions of selects without branches, where no operand needs the ones before it."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.codegen.source.straight import is_straight
from tilewright.ir import ops
from tilewright.ir.buffer import decl_buffer

I, N = te.var("i"), te.var("n")
A = decl_buffer((64,), "float32", "A")
R = decl_buffer((4,), "float32", "R", scope="local")


def element(buffer: Any, index: Any) -> Any:
    return ops.cast("float32", buffer.vload((index,)))


@pytest.mark.parametrize(
    ("condition", "straight"),
    [
        (ops.logical_and(I < N, N < 5), True),
        (ops.logical_or(element(A, I) > 1.0, element(A, I) < 0.0), True),  # loaded in any case
        (ops.logical_or(I < N, element(R, 0) < 0.0), True),  # in a register
        (ops.logical_and(I < N, element(A, I) < 0.0), False),  # guarded
        (ops.logical_or(element(A, I) > 1.0, element(A, I + 1) < 0.0), False),
        (ops.logical_and(N > 0, ops.floordiv(I, N) < 3), False),
        (ops.logical_and(N > 0, ops.floordiv(I, 4) < 3), True),
        (ops.logical_or(element(A, I) > 1.0, ops.logical_and(I < N, element(A, I) < 0.0)), True),
        (ops.logical_or(ops.logical_and(I < N, element(A, I) > 1.0), element(A, I) < 0.0), False),
        (I < N, False),  # nothing to do
    ],
)
def test_what_may_be_evaluated_at_once(condition: Any, straight: bool) -> None:
    assert is_straight(condition) is straight


def test_the_largest_value_is_found_without_branches() -> None:
    """With branches between them, one load would be in flight at a time."""
    x = te.placeholder((64, 3333), name="x")
    target = "cuda -arch=sm_80"
    sch = tvm.auto_schedule([x, topi.argmax(x, axis=1)], target)
    source = tvm.build(sch.mod, target=target).imported_modules[0].get_source()
    assert " | " in source and "||" not in source and "&&" not in source
