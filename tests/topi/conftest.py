"""`check(outs, {placeholder: array}, expected)`: an operator compiled as plain loops and auto-scheduled, and evaluated
by NumPy if it can be.

Where tables are sampled, the plain loops are compiled for the case alone that leads its table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import sampling

import tilewright as tvm
from tilewright import te
from tilewright.runtime.dtypes import element
from tilewright.te.evaluate import Evaluation, NotEvaluated


def _run(func: Any, build: Callable[[Any], Any], inputs: Sequence[Any], shapes: Any) -> list[Any]:
    results = [np.full(shape, 99 if np.dtype(t).kind != "b" else True, t) for shape, t in shapes]
    build(func)(*(np.array(x) for x in inputs), *results)
    return results


def _plain(func: Any) -> Any:
    """The loops as they are, and as LLVM gets them: what it makes of loops is seen in those of `tvm.compile`."""
    with tvm.transform.PassContext(opt_level=0):
        return tvm.build(func, target="llvm -opt-level=0")


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compiles `outs` over the placeholders, runs it on the arrays and compares with NumPy's answer.

    Integers and bools must be equal; floats agree within `rtol` and `atol`, NaN where NaN is expected.
    """
    builds = (_plain, tvm.compile) if sampling.leads(request.node) else (tvm.compile,)

    def run(
        outs: Any, feed: Mapping[Any, Any], expected: Any, rtol: float = 1e-5, atol: float = 1e-5
    ) -> None:
        outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
        wanted = [np.asarray(e) for e in (expected if isinstance(expected, (list, tuple)) else [expected])]
        assert len(outs) == len(wanted)
        func = te.create_prim_func([*feed, *outs])
        shapes = [(w.shape, element(str(o.dtype)).numpy) for o, w in zip(outs, wanted)]
        results = [_run(func, build, list(feed.values()), shapes) for build in builds]
        with contextlib.suppress(NotEvaluated):
            results.append(Evaluation(list(feed), outs)([np.array(x) for x in feed.values()]))
        for got in results:
            for g, w in zip(got, wanted, strict=True):
                if g.dtype.kind in "fV" or str(g.dtype) == "bfloat16":
                    np.testing.assert_allclose(
                        g.astype(np.float64), w.astype(np.float64), rtol, atol, equal_nan=True
                    )
                else:
                    np.testing.assert_array_equal(g, w)

    return run
