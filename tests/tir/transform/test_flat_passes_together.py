"""The flat passes one after the other, as a pipeline runs them."""

from __future__ import annotations

from flat_programs import assert_same, flat_programs
from how_many import examples
from hypothesis import given, settings

from tilewright.tir.analysis import undefined_vars, verify_ssa
from tilewright.tir.transform.common_subexpr_elim import common_subexpr_elim
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.hoist_expression import hoist_expression
from tilewright.tir.transform.narrow_data_type import narrow_data_type
from tilewright.tir.transform.remove_no_op import remove_no_op
from tilewright.tir.transform.rewrite_unsafe_select import rewrite_unsafe_select
from tilewright.tir.transform.storage_rewrite import storage_rewrite
from tilewright.tir.transform.unroll_loop import unroll_loop

PIPELINE = (
    narrow_data_type,
    remove_no_op,
    hoist_expression,
    storage_rewrite,
    unroll_loop,
    remove_no_op,
    rewrite_unsafe_select,
    convert_ssa,
    common_subexpr_elim,
    storage_rewrite,
    remove_no_op,
)


def _lowered(func):
    for step in PIPELINE:
        func = step(func)
    return func


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(flat_programs(unrolled=True))
def test_meaning(func):
    made = _lowered(func)
    assert verify_ssa(made) and not undefined_vars(made)
    assert_same(func, made)


@settings(max_examples=examples(30), deadline=None, derandomize=True)
@given(flat_programs(unrolled=True, parallel=True))
def test_meaning_in_parallel_loops(func):
    assert_same(func, _lowered(func))
