"""Helpers of operator code, the schedules of the classic names, and the references of topi.testing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError, UnsupportedError
from tilewright.topi import utils


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def test_constants() -> None:
    n = te.var("n")
    assert utils.get_const_int(te.const(3) + 4) == 7
    assert utils.get_const_float(te.const(0.5, "float32")) == 0.5
    assert utils.get_const_tuple((te.const(2), np.int64(3), n + n - n)) == (2, 3, n)
    assert all(type(v) is int for v in utils.get_const_tuple((te.const(2), np.int64(3))))
    assert utils.get_float_tuple((1, te.const(2))) == (1.0, 2.0)
    with pytest.raises(ValueError, match="constant integer"):
        utils.get_const_int(n)
    assert utils.equal_const_int(te.const(1), 1) and not utils.equal_const_int(n, 1)
    assert utils.prod([2, te.const(3)]) == 6 and utils.prod([]) == 1 and utils.prod([n, 0]) == 0
    assert utils.ceil_div(7, 2) == 4 and str(utils.ceil_div(n, 2)) == "(n + 1) // 2"
    assert utils.get_max_power2_factor(48) == 16 and utils.get_max_power2_factor(48, 8) == 8
    assert utils.is_empty_shape((3, 0)) and not utils.is_empty_shape((n, 1))
    assert utils.is_dynamic_shape((3, n)) and not utils.is_dynamic_shape((3, te.const(4)))


def test_axes_and_indices() -> None:
    assert utils.normalize_axis("x", -1, 3) == 2
    assert utils.normalize_axes("x", (0, -1), 3) == (0, 2)
    assert utils.normalize_axes("x", None, 2) == (0, 1)
    with pytest.raises(TensorExpressionError, match=r"topi\.x: axis is 3 and the tensor has 3 dimensions"):
        utils.normalize_axis("x", 3, 3)
    with pytest.raises(TensorExpressionError, match=r"topi\.x: axis is 'a' and must be an integer"):
        utils.normalize_axis("x", "a", 3)
    assert utils.ravel_index([1, 2], [3, 5]) == 7
    assert utils.unravel_index(7, [3, 5]) == [1, 2]
    assert utils.get_shape((1, 2, 3, 4), "NCHW", "NHWC") == (1, 3, 4, 2)
    assert utils.swap((7, 8, 9), 0) == (2, 1, 0)


def test_const_matrix() -> None:
    m = np.arange(6, dtype="float32").reshape(2, 3)
    out = te.compute((2, 3), lambda i, j: utils.const_matrix(m)[i, j] * 2.0)
    made = np.zeros((2, 3), "float32")
    tvm.build(te.create_prim_func([out]))(made)
    np.testing.assert_array_equal(made, m * 2)


def test_within_index_and_make_idx() -> None:
    for b, e, s in ((1, 6, 2), (6, 0, -2)):
        points = list(range(b, e, s))
        for i in range(7):
            inside = utils.get_const_int(utils.within_index(*(te.const(v) for v in (b, e, s)), te.const(i)))
            assert bool(inside) == (i in points)
            if inside:
                at = utils.make_idx(*(te.const(v) for v in (b, e, s, 7, i)))
                assert utils.get_const_int(at) == points.index(i)


def test_generic_schedules_are_the_plain_loops() -> None:
    a = te.placeholder((4, 5))
    b = topi.exp(a)
    c = topi.add(b, 1)
    for name in ("schedule_injective", "schedule_extern", "schedule_reduce"):
        s = getattr(topi.generic, name)([c])
        f = tvm.build(s, [a, c], "llvm")
        x, y = floats(4, 5), np.zeros((4, 5), "float32")
        f(tvm.nd.array(x), out := tvm.nd.array(y))
        np.testing.assert_allclose(out.numpy(), np.exp(x) + 1, 1e-5)
    assert topi.testing.get_injective_schedule("llvm")(c).outputs
    assert "T_exp" in str(tvm.lower(topi.generic.default_schedule(c), [a, c]))
    assert "T_exp" not in str(tvm.lower(topi.generic.default_schedule(c, auto_inline=True), [a, c]))


def test_target_packages_say_what_to_do_instead() -> None:
    from tilewright.topi.x86.conv2d_avx_common import _fallback_schedule

    with pytest.raises(UnsupportedError, match=r"^topi\.cuda\.conv2d_cudnn is not part of tilewright: "):
        topi.cuda.conv2d_cudnn(None)
    with pytest.raises(UnsupportedError):
        _fallback_schedule(1)
    with pytest.raises(AttributeError):
        topi.nonsense  # noqa: B018


@pytest.mark.slow
def test_references() -> None:
    torch = pytest.importorskip("torch")
    x, w = floats(2, 6, 9, 8), floats(4, 3, 3, 2)
    made = topi.testing.conv2d_nchw_python(x, w, 2, (1, 1), 2)
    wanted = torch.conv2d(torch.tensor(x), torch.tensor(w), stride=2, padding=1, groups=2).numpy()
    np.testing.assert_allclose(made, wanted, 1e-4, 1e-4)
    nhwc = topi.testing.conv2d_nhwc_python(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), 2, 1, 2)
    np.testing.assert_allclose(nhwc.transpose(0, 3, 1, 2), wanted, 1e-4, 1e-4)
    d = floats(6, 2, 3, 3)
    made = topi.testing.depthwise_conv2d_python_nchw(x, d, 1, "SAME")
    wanted = torch.conv2d(torch.tensor(x), torch.tensor(d.reshape(12, 1, 3, 3)), padding=1, groups=6).numpy()
    np.testing.assert_allclose(made, wanted, 1e-4, 1e-4)
    y = floats(3, 5)
    np.testing.assert_allclose(
        topi.testing.log_softmax_python(y), torch.log_softmax(torch.tensor(y), 1).numpy(), 1e-5, 1e-6
    )
    np.testing.assert_allclose(topi.testing.softmax_python(y).sum(1), 1, 1e-6)
    g, b = floats(5), floats(5) + 1
    wanted = torch.layer_norm(torch.tensor(y), (5,), torch.tensor(g), torch.tensor(b)).numpy()
    np.testing.assert_allclose(topi.testing.layer_norm_python(y, g, b, -1), wanted, 1e-4, 1e-5)
    assert topi.testing.dilate_python(y, (2, 3)).shape == (5, 13)
    np.testing.assert_allclose(topi.testing.dense(y, y, None), y @ y.T, 1e-5)
