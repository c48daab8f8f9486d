"""Sums of float16 and bfloat16 products are held in float32, whatever operator adds them up, and rounded once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay

KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
F = pytest.importorskip("torch").nn.functional

# name: (shapes of the inputs, the operator, the same of PyTorch)
CASES: dict[str, tuple[list[tuple[int, ...]], Any, Any]] = {
    "conv2d": (
        [(1, 256, 10, 10), (16, 256, 3, 3)],
        lambda x, w: relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=16, padding=(1, 1)),
        lambda x, w: F.conv2d(x, w, padding=1),
    ),
    "conv2d, out_dtype": (
        [(1, 256, 10, 10), (16, 256, 3, 3)],
        lambda x, w: relay.nn.conv2d(
            x, w, kernel_size=(3, 3), channels=16, out_dtype=x.type_annotation.dtype
        ),
        lambda x, w: F.conv2d(x, w),
    ),
    "grouped": (
        [(1, 128, 9, 9), (32, 32, 3, 3)],
        lambda x, w: relay.nn.conv2d(x, w, kernel_size=(3, 3), channels=32, groups=4),
        lambda x, w: F.conv2d(x, w, groups=4),
    ),
    "depthwise": (
        [(1, 8, 40, 40), (8, 1, 17, 17)],
        lambda x, w: relay.nn.conv2d(x, w, kernel_size=(17, 17), channels=8, groups=8),
        lambda x, w: F.conv2d(x, w, groups=8),
    ),
    "conv1d": (
        [(1, 64, 60), (16, 64, 9)],
        lambda x, w: relay.nn.conv1d(x, w, kernel_size=9, channels=16),
        lambda x, w: F.conv1d(x, w),
    ),
    "conv3d": (
        [(1, 48, 5, 6, 6), (8, 48, 3, 3, 3)],
        lambda x, w: relay.nn.conv3d(x, w, kernel_size=(3, 3, 3), channels=8),
        lambda x, w: F.conv3d(x, w),
    ),
    "transposed": (
        [(1, 256, 6, 6), (256, 8, 4, 4)],
        lambda x, w: relay.nn.conv2d_transpose(x, w, strides=(2, 2), kernel_size=(4, 4), channels=8),
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
    ),
    "dense": ([(9, 2048), (12, 2048)], relay.nn.dense, lambda a, b: a @ b.T),
    "batch_matmul": (
        [(2, 9, 1024), (2, 12, 1024)],
        relay.nn.batch_matmul,
        lambda a, b: a @ b.transpose(1, 2),
    ),
    "average": ([(1, 4, 64, 64)], relay.nn.global_avg_pool2d, lambda x: x.mean((2, 3), keepdim=True)),
    "sum": ([(8, 4096)], lambda x: relay.sum(x, axis=1), lambda x: x.sum(1)),
    "mean": ([(8, 4096)], lambda x: relay.mean(x, axis=1), lambda x: x.mean(1)),
    "variance": ([(8, 4096)], lambda x: relay.variance(x, axis=1), lambda x: x.var(1, unbiased=False)),
    "softmax": ([(8, 4096)], relay.nn.softmax, lambda x: x.softmax(1)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_rounded_once(name: str, kind: str) -> None:
    import torch

    shapes, make, theirs = CASES[name]
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s).astype("float32").astype(KINDS[kind]) for s in shapes]
    out = make(*(relay.var(f"x{i}", shape=s, dtype=kind) for i, s in enumerate(shapes)))
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(out), out))
    got = relay.create_executor("graph", mod, target="llvm").evaluate()(*arrays).numpy()
    exact = theirs(*(torch.from_numpy(a.astype("float32")).double() for a in arrays)).numpy()
    assert got.dtype == KINDS[kind]
    half = 2.0 ** (-11 if kind == "float16" else -8)  # one rounding
    twice = 2.1 if name == "variance" else 1.05  # the mean of the elements, which are narrow, is one of them
    error = np.abs(got.astype("float64") - exact) / np.abs(exact).max()
    assert error.max() <= twice * half
