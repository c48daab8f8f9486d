"""How a reduction block combines, taken from its statements."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import te, tir, topi
from tilewright.ir.stmt import Block
from tilewright.script import tir as T
from tilewright.tir.analysis.combiner import NotACombination, combination_of


def block_of(combine: Any, start: Any, dtype: str = "float32") -> Block:
    A = te.placeholder((4, 6), dtype, name="A")
    k = te.reduce_axis((0, 6), "k")
    how = te.comm_reducer(combine, start, name="how")
    sch = tir.Schedule(
        te.create_prim_func([A, te.compute((4,), lambda i: how(A[i, k] * 2, axis=k), name="B")])
    )
    return sch.get(sch.get_block("B"))


@pytest.mark.parametrize(
    ("combine", "start", "text"),
    [
        (lambda x, y: x + y, lambda t: tir.const(0, t), "x + y"),
        (lambda x, y: tir.max(x, y), lambda t: te.min_value(t), "T.max(x, y)"),
        (lambda x, y: y * x, lambda t: tir.const(1, t), "y * x"),
        (lambda x, y: x * y + x + y, lambda t: tir.const(0, t), "x * y0 + x + y0"),
        (lambda x, y: tir.Select(x > y, x, y), lambda t: te.min_value(t), "T.Select(x > y0, x, y0)"),
    ],
)
def test_reducers_of_one_value(combine, start, text):
    found = combination_of(block_of(combine, start))
    assert str(found.reducer.result[0]) == text
    assert str(found.values[0]) == "A[v_i, v_k] * T.float32(2)"
    assert str(found.reducer.identity_element[0]) == str(found.start[0])


def test_the_parts_of_a_pair_find_each_other():
    def first(x, y):
        return tir.Select(x[1] >= y[1], x[0], y[0]), tir.Select(x[1] >= y[1], x[1], y[1])

    index, value = te.placeholder((4, 6), "int32", name="index"), te.placeholder((4, 6), name="value")
    k = te.reduce_axis((0, 6), "k")
    how = te.comm_reducer(first, lambda a, b: (tir.const(-1, a), te.min_value(b)), name="how")
    made = te.compute((4,), lambda i: how((index[i, k], value[i, k]), axis=k), name="R")
    sch = tir.Schedule(te.create_prim_func([index, value, *made]))
    found = combination_of(sch.get(sch.get_block("R")))
    assert [str(v) for v in found.values] == ["index[v_i, v_k]", "value[v_i, v_k]"]
    assert [b.name for b in found.buffers] == ["R_v0", "R_v1"]


def test_what_is_said_of_a_value_is_no_value():
    """A search that minds values that are not numbers asks whether one is equal to itself."""
    A = te.placeholder((4, 6), name="A")
    sch = tir.Schedule(te.create_prim_func([A, topi.argmax(A, axis=1)]))
    found = combination_of(sch.get(sch.get_child_blocks(sch.get_block("root"))[0]))
    assert [str(v) for v in found.values] == ["v_k1", "A[v_i0, v_k1]"]


def test_a_sum_that_starts_at_something():
    found = combination_of(block_of(lambda x, y: x + y, lambda t: tir.const(7, t)))
    assert str(found.start[0]) == "T.float32(7)"
    assert str(found.reducer.identity_element[0]) == "T.float32(0)"


@pytest.mark.parametrize(
    "combine",
    [
        lambda x, y: x - y,
        lambda x, y: (x + y) * 2,
        lambda x, y: x * 2 + y,
        lambda x, y: tir.Select(x > y, x, y + 1),
        lambda x, y: te.exp(x) + y,
    ],
)
def test_what_may_not_be_regrouped(combine):
    with pytest.raises(NotACombination, match="its steps may not be regrouped"):
        combination_of(block_of(combine, lambda t: tir.const(0, t)))


def test_a_pair_whose_second_store_sees_the_first():
    @T.prim_func
    def order(A: T.Buffer((4,), "float32"), B: T.Buffer((1,), "float32"), C: T.Buffer((1,), "float32")):
        for k in range(4):
            with T.block("B"):
                vk = T.axis.reduce(4, k)
                with T.init():
                    B[0] = T.float32(0)
                    C[0] = T.float32(0)
                B[0] = B[0] + A[vk]
                C[0] = C[0] + B[0]

    sch = tir.Schedule(order)
    with pytest.raises(NotACombination, match="does more than combine one value"):
        combination_of(sch.get(sch.get_block("B")))
