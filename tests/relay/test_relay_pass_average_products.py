"""AveragesAsProducts: average pooling as products that an accelerator computes, and that nothing changes."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import apply, check, count, evaluate

import tilewright as tvm
from tilewright import relay
from tilewright.relay.transform.average_products import _reciprocal, averages_as_products
from tilewright.relay.transform.packed_ops import blocks_of

T, nn = relay.transform, relay.nn
CHIP = "ext_dev"


def image(channels=16, height=9, width=7):
    return relay.var("x", shape=(1, channels, height, width), dtype="int8")


def pooled(x, rectified=True, **options):
    wide = relay.cast(nn.relu(x) if rectified else x, "int32")
    return nn.avg_pool2d(wide, **options) if options else nn.global_avg_pool2d(wide)


def rewritten(body):
    """The function after the pass; checks that the result is the same."""
    before = relay.Function(relay.analysis.free_vars(body), body)
    with tvm.target.Target(CHIP):
        after = apply(before, T.AveragesAsProducts())
    shape = before.params[0].type_annotation.concrete_shape
    data = np.random.default_rng(5).integers(-128, 128, shape).astype("int8")
    np.testing.assert_array_equal(evaluate(before, data), evaluate(after, data))
    return after


# ---------------------------------------------------------------------------- expect
def test_written_out():
    x = image()
    ones = relay.const(np.ones((16, 1, 3, 3), "int8"))
    total = nn.conv2d(nn.relu(x), ones, (2, 2), channels=16, kernel_size=(3, 3), groups=16, out_dtype="int32")
    average = relay.right_shift(relay.multiply(total, relay.const(29128, "int32")), relay.const(18, "int32"))
    with tvm.target.Target(CHIP):
        check(
            relay.Function([x], pooled(x, pool_size=(3, 3), strides=(2, 2))),
            T.AveragesAsProducts(),
            relay.Function([x], average),
            rtol=0,
            atol=0,
        )


# ---------------------------------------------------------------------------- meaning
@pytest.mark.parametrize(
    "options",
    [
        {},  # over the whole image: 63 elements
        {"pool_size": (2, 2), "strides": (2, 2)},
        {"pool_size": (5, 3), "strides": (1, 2)},
        {"pool_size": (2, 3), "dilation": (3, 1)},
        {"pool_size": (3, 3), "padding": (1, 0, 2, 1), "count_include_pad": True},
        {"pool_size": (1, 1)},
    ],
    ids=str,
)
def test_windows(options):
    after = rewritten(pooled(image(24), **options))
    assert count(after, "nn.conv2d") == 1
    assert count(after, "nn.avg_pool2d") == count(after, "nn.global_avg_pool2d") == 0


def test_quotients_are_exact():
    blocks = blocks_of(tvm.target.Target(CHIP).accelerator)
    for elements in (*range(1, 130), 144, 196, 256):
        most = 127 * elements
        factor, shift = _reciprocal(elements, most, blocks)
        sums = np.arange(most + 1, dtype=np.int64)
        np.testing.assert_array_equal(sums * factor >> shift, sums // elements)
        assert most * factor < 2**31 and factor < 2**15
    assert _reciprocal(255, 127 * 255, blocks) is None


# ---------------------------------------------------------------------------- identity
@pytest.mark.parametrize(
    "body",
    [
        pooled(image(), rectified=False, pool_size=(2, 2)),  # the quotient of a negative sum is rounded up
        pooled(image(), pool_size=(3, 3), padding=(1, 1)),  # the border has fewer elements
        pooled(image(), pool_size=(2, 2), strides=(2, 2), ceil_mode=True),
        pooled(image(3), pool_size=(2, 2)),  # blocks that are hardly used
        pooled(image(16, 15, 17)),  # 255 elements: no exact reciprocal
        nn.avg_pool2d(nn.relu(image()), (2, 2)),  # sums of int8
        nn.max_pool2d(relay.cast(image(), "int32"), (2, 2)),
    ],
    ids=["signed", "border", "ceil_mode", "three channels", "255 elements", "narrow", "maximum"],
)
def test_nothing_to_do(body):
    func = relay.transform.infer_type(relay.Function(relay.analysis.free_vars(body), body))
    with tvm.target.Target(CHIP):
        assert averages_as_products(func) is func


def test_other_targets():
    body = pooled(image(), pool_size=(2, 2))
    func = relay.transform.infer_type(relay.Function(relay.analysis.free_vars(body), body))
    for target in ("llvm", "cuda"):
        with tvm.target.Target(target):
            assert averages_as_products(func) is func
