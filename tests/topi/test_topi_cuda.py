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
needs_device = pytest.mark.needs("opencl")


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
        with pytest.raises(UnsupportedError, match=r"use the operator of topi or topi\.nn"):
            f()


def test_operators_are_found_under_every_target() -> None:
    assert topi.cuda.conv2d_nchw is topi.nn.conv2d_nchw is topi.mali.conv2d_nchw
    assert topi.cuda.argsort is topi.argsort is topi.x86.argsort
    assert topi.arm_cpu.schedule_conv2d_nchw is topi.generic.schedule_conv2d_nchw


def test_schedules_of_tests_are_those_of_the_target() -> None:
    for target in ("cuda", tvm.target.Target("opencl")):
        assert topi.testing.get_injective_schedule(target) is topi.cuda.schedule_injective
        assert topi.testing.get_reduce_schedule(target) is topi.cuda.schedule_reduce
    assert topi.testing.get_injective_schedule("llvm -mcpu=znver4") is topi.generic.schedule_injective
    compute, schedule = topi.testing.get_conv2d_nchw_implement("cuda")
    assert (compute, schedule) == (topi.nn.conv2d_nchw, topi.cuda.schedule_conv2d_nchw)


def test_a_convolution_with_the_batch_last() -> None:
    a, w = whole(6, 5, 3, 2), whole(3, 3, 3, 4)
    want = topi.testing.conv2d_nchw_python(a.transpose(3, 2, 0, 1), w.transpose(3, 2, 0, 1), 1, 1)
    np.testing.assert_array_equal(topi.testing.conv2d_hwcn_python(a, w, 1, 1), want.transpose(2, 3, 1, 0))


def test_a_matrix_of_random_blocks() -> None:
    pytest.importorskip("scipy")
    made = topi.sparse.utils.random_bsr_matrix(32, 24, 8, 2, 0.25, "float32")
    assert made.shape == (32, 24) and made.blocksize == (8, 2) and made.data.dtype == np.float32
    assert len(made.data) == 13 and np.count_nonzero(made.toarray()) == 13 * 16
    with pytest.raises(ValueError, match="32 by 24 does not fall into blocks of 5 by 2"):
        topi.sparse.utils.random_bsr_matrix(32, 24, 5, 2, 0.25, "float32")


def test_every_target_has_operators_and_schedules() -> None:
    from tilewright.topi.generic.nn import schedule_lstm
    from tilewright.topi.x86.conv2d import schedule_conv2d_nchw

    assert schedule_conv2d_nchw is topi.generic.schedule_conv2d_nchw is topi.hls.schedule_conv2d_nchw
    assert schedule_lstm is topi.generic.schedule_lstm
    assert topi.gpu.dense_small_batch is topi.gpu.dense_large_batch is topi.nn.dense
    assert topi.rocm.schedule_softmax is topi.intel_graphics.schedule_softmax is topi.cuda.schedule_softmax
    assert topi.mali.conv2d_nchw_winograd is topi.nn.conv2d_nchw
    A, W = te.placeholder((4, 8)), te.placeholder((3, 8))
    s = topi.gpu.schedule_dense_small_batch([made := topi.gpu.dense_small_batch(A, W)])
    assert "threadIdx.x" in tvm.lower(s, [A, W, made]).script()


def test_a_schedule_of_no_operator_is_absent() -> None:
    with pytest.raises(UnsupportedError, match=r"^topi\.x86\.schedule_nonsense is not part of tilewright"):
        topi.x86.schedule_nonsense([])


def test_schedules_of_cpus_are_automatic() -> None:
    A, B = te.placeholder((48, 64), name="A"), te.placeholder((32, 64), name="B")
    C = topi.nn.dense(A, B)
    s = topi.x86.schedule_dense([C])
    assert "local" in tvm.lower(s, [A, B, C]).script()  # accumulators in registers
    a, b = (np.random.default_rng(n).random((n, 64), "float32") for n in (48, 32))
    c = np.zeros((48, 32), "float32")
    tvm.build(s, [A, B, C], "llvm")(a, b, c)
    np.testing.assert_allclose(c, a @ b.T, rtol=1e-5)
