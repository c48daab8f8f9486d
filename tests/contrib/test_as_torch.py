"""Loop programs as PyTorch modules."""

from __future__ import annotations

import pytest

from tilewright.script import tir as T

torch = pytest.importorskip("torch")


def test_a_program_fills_the_tensors_that_it_is_given():
    from tilewright.contrib.torch import as_torch

    @as_torch
    @T.prim_func
    def twice(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
        for i, j in T.grid(4, 3):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    assert isinstance(twice, torch.nn.Module) and "T.grid(4, 3)" in twice.script()
    a, b = torch.randn(4, 3), torch.zeros(4, 3)
    twice(a, b)
    assert torch.equal(b, a * 2)
    with pytest.raises(ValueError, match="tensor 0 is not contiguous"):
        twice(torch.randn(3, 4).T, b)
    with pytest.raises(TypeError, match="not strategy"):
        twice.tune(strategy="replay")
    twice.tune(max_trials_global=0)
    twice(a + 1, b)
    assert torch.equal(b, (a + 1) * 2)
