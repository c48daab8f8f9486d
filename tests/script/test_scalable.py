"""Vectors whose length the hardware knows: text, nodes, simplification, the interpreter, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.arith import Analyzer
from tilewright.ir import assert_structural_equal, load_json, save_json
from tilewright.ir.errors import LoweringError, TVMError
from tilewright.script import from_source
from tilewright.script import tir as T


@T.prim_func
def fill(A: T.Buffer((128,), "float32")):
    for j in range(2):
        A[j * T.vscale() * 4 : j * T.vscale() * 4 + T.vscale() * 4] = T.Broadcast(
            T.float32(1), T.vscale() * 4
        )


def test_text_and_json_give_the_program_back() -> None:
    assert "A[T.Ramp(j * T.vscale() * 4, 1, T.vscale() * 4)]" in fill.script()
    assert_structural_equal(from_source(fill.script()), fill)
    assert_structural_equal(load_json(save_json(fill)), fill)


def test_types() -> None:
    made = tir.Ramp(0, 1, 4 * tir.vscale()) + 3
    assert made.dtype == "int32xvscalex4"
    assert made.b.lanes.a == tir.vscale()
    assert made.b.lanes.b == 4
    load = tir.BufferLoad(tir.decl_buffer((24,)), [made])
    assert load.dtype == "float32xvscalex4"


@pytest.mark.parametrize("lanes", [tir.vscale(), tir.vscale() + 3, tir.vscale() * 2 + 5, 0])
def test_lanes_that_are_refused(lanes: object) -> None:
    with pytest.raises(TVMError, match=r"must be a number from 1 on, or T.vscale\(\) \* number"):
        tir.Broadcast(0, lanes)


def test_simplification() -> None:
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    lanes = tir.vscale() * 4
    ana = Analyzer()
    assert str(ana.simplify(tir.Ramp(x, 1, lanes) + tir.Ramp(y, 2, lanes))) == (
        "T.Ramp(x + y, 3, T.vscale() * 4)"
    )
    # The number of lanes is not known, so neither are the values.
    assert ana.const_int_bound(tir.Ramp(0, 1, lanes)).max_value >= ana.const_int_bound(x).max_value
    kept = ana.simplify(tir.Ramp(0, 1, lanes) < tir.Broadcast(4, lanes))
    assert isinstance(kept, tir.LT)


def test_the_interpreter_runs_any_length() -> None:
    for vscale in (1, 2, 4):
        found = np.zeros(128, "float32")
        tir.interpret(fill, found, vscale=vscale)
        assert (found == (np.arange(128) < 8 * vscale)).all()
    with pytest.raises(ValueError, match=r"vscale=3 is not a power of two from 1 to \d+"):
        tir.interpret(fill, found, vscale=3)


def test_a_target_without_scalable_vectors_is_refused() -> None:
    with pytest.raises(LoweringError, match=r"function fill has the scalable vector .* float32xvscalex4"):
        tvm.build(fill, target="c")
