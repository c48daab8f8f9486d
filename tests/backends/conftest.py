"""`check` as the tests of topi use it, with the C target: the operator's loops as C, by the compiler of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.runtime.dtypes import element


@pytest.fixture
def check() -> Callable[..., None]:
    def run(
        outs: Any, feed: Mapping[Any, Any], expected: Any, rtol: float = 1e-5, atol: float = 1e-5
    ) -> None:
        outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
        wanted = [np.asarray(e) for e in (expected if isinstance(expected, (list, tuple)) else [expected])]
        got = [np.full(w.shape, True, element(str(o.dtype)).numpy) for o, w in zip(outs, wanted, strict=True)]
        tvm.build(te.create_prim_func([*feed, *outs]), target="c")(*map(np.array, feed.values()), *got)
        for g, w in zip(got, wanted, strict=True):
            if g.dtype.kind in "fV" or str(g.dtype) == "bfloat16":
                np.testing.assert_allclose(
                    g.astype(np.float64), w.astype(np.float64), rtol, atol, equal_nan=True
                )
            else:
                np.testing.assert_array_equal(g, w)

    return run
