"""The operators that tuners are measured with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import UnsupportedError
from tilewright.meta_schedule.testing import te_workload as w
from tilewright.topi import testing as reference


def run(tensors: tuple[te.Tensor, ...]) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(0)
    shapes = [tuple(int(s) for s in t.shape) for t in tensors]
    given = [rng.standard_normal(s).astype("float32") for s in shapes[:-1]]
    arrays = [tvm.nd.array(a) for a in (*given, np.zeros(shapes[-1], "float32"))]
    tvm.build(te.create_prim_func(list(tensors)), "llvm")(*arrays)
    return given, arrays[-1].numpy()


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_products() -> None:
    (a, b), c = run(w.matmul_relu(4, 5, 6))
    close(c, np.maximum(a @ b, 0))
    (x, y), z = run(w.batch_matmul_nkkm(2, 3, 4, 5))
    close(z, x @ y)
    (q, v), s = run(w.transpose_batch_matmul(1, 4, 2, 3))
    close(s, np.einsum("bihd,bjhd->bhij", q, v))
    assert [t.dtype for t in w.matmul_fp16(4, 4, 4)] == ["float16", "float16", "float32"]


@pytest.mark.slow
def test_convolutions() -> None:
    (x, k), y = run(w.conv2d_nhwc(1, 7, 6, 4, 6, 3, 2, 1, 1, 2))
    nchw = reference.conv2d_nchw_python(
        x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1), 2, (1, 1, 1, 1), groups=2
    )
    close(y, nchw.transpose(0, 2, 3, 1))
    (x, k), y = run(w.conv2d_transpose_nhwc(1, 4, 3, 2, 3, 4, 2, 1))
    nchw = reference.conv2d_transpose_nchw_python(
        x.transpose(0, 3, 1, 2), k.transpose(2, 3, 0, 1), 2, (1, 1, 1, 1), (0, 0)
    )
    close(y, nchw.transpose(0, 2, 3, 1))
    (x, k), y = run(w.depthwise_conv2d_nhwc(1, 5, 5, 3, 3, 1, 1))
    own = [
        reference.conv2d_nchw_python(x[None, :, :, :, c], k[:, None, :, :, c], 1, (1, 1, 1, 1))[0, 0]
        for c in range(3)
    ]
    close(y[0], np.stack(own, -1))


def test_norm_and_softmax() -> None:
    (a,), d = run(w.norm_bmn(2, 3, 4))
    close(d, np.sqrt((a * a).sum((1, 2))))
    (a,), s = run(w.softmax_mn(3, 5))
    e = np.exp(a - a.max(1, keepdims=True))
    close(s, e / e.sum(1, keepdims=True))


def test_convolution_with_what_follows() -> None:
    (x, k, b, o, s), y = run(w.conv2d_nhwc_bn_relu(1, 5, 5, 2, 3, 3, 1, 1))
    conv = reference.conv2d_nhwc_python(x, k, 1, (1, 1, 1, 1))
    close(y, np.maximum((conv + b) * s + o, 0))


@pytest.mark.parametrize("name", w.CONFIGS)
def test_every_workload_is_a_program(name: str) -> None:
    for i in range(len(w.CONFIGS[name][1])):
        assert w.create_te_workload(name, i).params


def test_refuses_what_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"^there is no workload 'C4D'; there are C1D, C2D, .*$"):
        w.create_te_workload("C4D", 0)
    with pytest.raises(ValueError, match=r"^workload GMM has 4 shapes, and none of number 7$"):
        w.create_te_workload("GMM", 7)
    with pytest.raises(UnsupportedError, match="a convolution is written once"):
        w.conv2d_winograd_nhwc(1, 14, 14, 128, 128, 6)
