"""Classic schedules for GPUs: plain loops over threads, of any operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import UnsupportedError

DEV = tvm.opencl(0)
needs_device = pytest.mark.skipif(
    not DEV.exist, reason="there is no OpenCL device (pip install pyopencl, apt install pocl-opencl-icd)"
)


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def row_sum() -> tuple[Any, ...]:
    A = te.placeholder((te.var("n"), te.var("m")), name="A")
    C = topi.sum(A, axis=1)
    a = whole(37, 50)
    return topi.cuda.schedule_reduce(C), [A, C], [a], a.sum(1)


def sum_of_all() -> tuple[Any, ...]:
    """What comes before the sum is inlined into it."""
    A, B = te.placeholder((10, 7, 5), name="A"), te.placeholder((7, 5), name="B")
    C = topi.sum(topi.elemwise_sum([A + B, A * B]) * 2.0)
    a, b = whole(10, 7, 5), whole(7, 5, seed=1)
    return topi.cuda.schedule_reduce(C), [A, B, C], [a, b], ((a + b + a * b) * 2).sum()


def softmax() -> tuple[Any, ...]:
    A = te.placeholder((12, 33), name="A")
    C = topi.nn.softmax(A)
    a = whole(12, 33)
    power = np.exp(a - a.max(1, keepdims=True))
    return topi.cuda.schedule_softmax(C), [A, C], [a], power / power.sum(1, keepdims=True)


def relu_of_a_sum() -> tuple[Any, ...]:
    A = te.placeholder((8, 9), name="A")
    B = topi.nn.relu(A + 1.0)
    a = whole(8, 9)
    return topi.cuda.schedule_injective([B]), [A, B], [a], np.maximum(a + 1, 0)


@needs_device
@pytest.mark.parametrize("make", [row_sum, sum_of_all, softmax, relu_of_a_sum])
def test_schedules_run(make: Callable[[], tuple[Any, ...]]) -> None:
    s, args, given, want = make()
    f = tvm.build(s, args, target="opencl")
    out = tvm.nd.array(np.full(want.shape, np.nan, "float32"), DEV)
    f(*(tvm.nd.array(a, DEV) for a in given), out)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)


def test_an_existing_schedule_is_taken_further() -> None:
    A = te.placeholder((100,), name="A")
    B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    assert topi.cuda.schedule_injective_from_existing(s, B) is s
    assert 'T.launch_thread("threadIdx.x", 64)' in tvm.lower(s, [A, B]).script()


def test_kernels_of_the_classic_package_say_where_to_look() -> None:
    from tilewright.topi.cuda.conv3d_winograd import _infer_tile_size

    for f in (_infer_tile_size, topi.cuda.conv2d_cudnn):
        with pytest.raises(UnsupportedError, match=r"take the operator of topi or topi\.nn"):
            f()
