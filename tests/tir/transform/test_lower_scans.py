"""Blocks that declare a scan become kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import te, tir, topi
from tilewright.ir.functor import statements
from tilewright.ir.scans import scan_of
from tilewright.ir.stmt import Block


def running(*shape: Any, axis: int | None = 1, exclusive: bool = False) -> Any:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, topi.cumsum(x, axis, exclusive=exclusive)])


def lowered(func: Any, *point: int) -> Any:
    sch = tir.Schedule(func)
    sch.annotate("cumsum", "scan_threads", list(point))
    return tir.transform.LowerScans()(sch.mod)["main"]


def test_a_scan_says_what_it_is():
    func = running(4, 6, 5, exclusive=True)
    block = next(m for m in statements(func.body) if isinstance(m, Block) and m.name_hint == "cumsum")
    scan = scan_of(block)
    assert scan is not None and scan.sizes == (4, 6, 5)
    assert scan.exclusive and str(scan.held) == "float32" and scan.operator.identity == 0


def test_without_threads_nothing_is_lowered():
    mod = tir.Schedule(running(4, 6)).mod
    assert tir.transform.LowerScans()(mod)["main"] is mod["main"]


@pytest.mark.parametrize(("point", "kernels"), [((1, 1, 1, 1), 1), ((2, 1, 1, 2), 2), ((1, 4, 0, 1), 1)])
def test_it_becomes_kernels(point, kernels):
    func = lowered(running(3, 130), *point)
    text = str(func)
    assert text.count('"blockIdx.x"') == kernels and "scan_threads" not in text
    assert "T.parallel" not in text and ("tvm_warp_shuffle" in text) == (point[2] > 0)
    again = tir.transform.LowerScans()(tir.Schedule(func).mod)["main"]
    assert str(again.body) == str(func.body)


def test_compensated_sums_stay_on_other_targets():
    """The declaration changes nothing where no schedule asks for threads."""
    x = np.random.default_rng(0).normal(size=(3, 50)).astype("float32")
    out = np.zeros_like(x)
    tir.interpret(running(3, 50), x, out)
    np.testing.assert_allclose(out, x.astype("float64").cumsum(1), 1e-6, 1e-6)
