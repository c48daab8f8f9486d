"""UseTensorCores: what it changes for GPUs that have them, and that it changes nothing for others."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import check, count

import tilewright as tvm
from tilewright import relay

T = relay.transform
nn = relay.nn
HOPPER = "cuda -model=h200"


def rand(*shape, dtype="float16"):
    return relay.const(np.random.default_rng(1).standard_normal(shape).astype(dtype))


def image(dtype="float16"):
    return relay.var("x", shape=(1, 8, 6, 6), dtype=dtype)


def test_written_out():
    x, w = image(), relay.var("w", shape=(4, 8, 3, 3), dtype="float16")
    before = relay.Function([x, w], nn.relu(nn.conv2d(x, w, padding=(1, 1))))
    y = nn.conv2d(
        relay.layout_transform(x, "NCHW", "NHWC"),
        relay.layout_transform(w, "OIHW", "HWIO"),
        padding=(1, 1),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype="float32",
    )
    y = nn.relu(relay.cast(y, "float16"))
    expected = relay.Function([x, w], relay.layout_transform(y, "NHWC", "NCHW"))
    with tvm.target.Target(HOPPER):
        check(before, T.UseTensorCores(), expected, rtol=5e-2, atol=5e-2)


@pytest.mark.slow
def test_neighbours_keep_the_layout_and_sums_that_are_wide_stay():
    x = image()
    y = nn.conv2d(x, rand(16, 8, 3, 3), out_dtype="float32")
    y = nn.max_pool2d(nn.relu(relay.cast(y, "float16")), (2, 2))
    y = nn.conv2d(y, rand(16, 1, 3, 3), groups=16)
    with tvm.target.Target(HOPPER):
        after = check(relay.Function([x], y), T.UseTensorCores(), rtol=1e-2, atol=1e-1)
    assert count(after, "layout_transform") == 4  # in, out, and the kernels
    assert count(after, "cast") == 1


def test_colours_are_four():
    x = relay.var("x", shape=(1, 3, 6, 6), dtype="float16")
    before = relay.Function([x], nn.conv2d(x, rand(8, 3, 3, 3), out_dtype="float32"))
    with tvm.target.Target(HOPPER):
        after = check(before, T.UseTensorCores(), rtol=1e-2, atol=1e-2)
    assert count(after, "nn.pad") == 2 and "Tensor[(1, 4, 6, 6), float16]" in str(after)


def test_float32_has_channels_last_where_it_may_be_rounded():
    x, w = image("float32"), relay.var("w", shape=(4, 8, 3, 3))
    before = relay.Function([x, w], nn.conv2d(x, w, padding=(1, 1)))
    y = nn.conv2d(
        relay.layout_transform(x, "NCHW", "NHWC"),
        relay.layout_transform(w, "OIHW", "OHWI"),
        padding=(1, 1),
        data_layout="NHWC",
        kernel_layout="OHWI",
    )
    expected = relay.Function([x, w], relay.layout_transform(y, "NHWC", "NCHW"))
    with tvm.target.Target(f"{HOPPER} -tf32=1"):
        check(before, T.UseTensorCores(), expected, rtol=1e-5, atol=1e-5)


def test_columns_of_images_are_padded_with_their_colours():
    x = relay.var("x", shape=(1, 3, 6, 6))
    w = rand(8, 3, 3, 3, dtype="float32")
    before = relay.Function([x], nn.conv2d(x, w, padding=(1, 2, 1, 0), strides=(2, 1)))
    with tvm.target.Target(f"{HOPPER} -tf32=1"):
        after = check(before, T.UseTensorCores(), rtol=1e-5, atol=1e-5)
    text = str(after)
    assert "Tensor[(1, 4, 6, 8), float32]" in text and "padding=[1, 0, 1, 0]" in text, text


def test_weights_of_rounded_products_are_turned():
    x, w = relay.var("x", shape=(4, 8)), rand(8, 6, dtype="float32")
    before = relay.Function([x], nn.matmul(x, w))
    expected = relay.Function([x], nn.matmul(x, relay.transpose(w, axes=[1, 0]), transpose_b=True))
    with tvm.target.Target(f"{HOPPER} -tf32=1"):
        check(before, T.UseTensorCores(), expected, rtol=1e-5, atol=1e-5)
        y = relay.var("y", shape=(8, 6))
        for given in (relay.Function([x, y], nn.matmul(x, y)), expected):
            check(given, T.UseTensorCores(), given, rtol=1e-5, atol=1e-5)


def test_dense_adds_up_in_float32():
    x = relay.var("x", shape=(4, 8), dtype="float16")
    before = relay.Function([x], nn.dense(x, rand(6, 8)))
    expected = relay.Function(
        [x], relay.cast(nn.dense(x, before.body.args[1], out_dtype="float32"), "float16")
    )
    with tvm.target.Target(HOPPER):
        check(before, T.UseTensorCores(), expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        (HOPPER, "float32"),
        ("llvm", "float16"),
        ("cuda -arch=sm_75", "float16"),
        ("opencl", "float16"),
        ("", "float16"),
    ],
)
def test_others_stay_as_they_are(target: str, dtype: str):
    x = image(dtype)
    mod = T.InferType()(
        tvm.IRModule.from_expr(relay.Function([x], nn.conv2d(x, rand(4, 8, 3, 3, dtype=dtype))))
    )
    if not target:
        made = T.UseTensorCores()(mod)
    else:
        with tvm.target.Target(target):
            made = T.UseTensorCores()(mod)
    assert tvm.ir.structural_equal(made["main"], mod["main"])


@pytest.mark.slow
def test_models_are_built_with_it():
    x = image()
    before = relay.Function([x], nn.conv2d(x, rand(64, 8, 3, 3)))
    lib = relay.build(tvm.IRModule.from_expr(before), HOPPER)
    assert any("conv2d_nhwc: tensor cores" in text for text in lib.schedules.values())
