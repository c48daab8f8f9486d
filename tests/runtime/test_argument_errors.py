"""Wrong arguments of a compiled function: Python's errors, which classic programs catch as `tvm.TVMError`."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te


def plus_one() -> tvm.runtime.Module:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1, name="b")
    return tvm.build(te.create_schedule(b.op), [a, b])


@pytest.mark.parametrize("kind", [tvm.TVMError, ValueError])
def test_shapes(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="dimension 0 is 5, expected 4"):
        plus_one()(np.zeros(5, "float32"), np.zeros(4, "float32"))


@pytest.mark.parametrize("kind", [tvm.TVMError, TypeError])
def test_types(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="must have dtype float32, got float64"):
        plus_one()(np.zeros(4), np.zeros(4, "float32"))


def test_devices_have_the_names_of_older_programs() -> None:
    assert tvm.context("llvm", 0) == tvm.cpu(0)
    assert tvm.gpu(1) == tvm.cuda(1)
    assert {"context", "gpu", "device"} <= set(dir(tvm))
