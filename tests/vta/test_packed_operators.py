"""`vta.top`: operators in blocks, with automatic schedules, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, topi, vta
from tilewright.tir.interpret import interpret
from tilewright.vta.errors import ConfigError

ENV = vta.get_env()


def narrowed(x: te.Tensor) -> te.Tensor:
    """The epilogue of the classic programs: shift, limit, narrow."""
    high = te.compute(x.shape, lambda *i: te.min(topi.right_shift(x, 4)(*i), tvm.tir.const(127, x.dtype)))
    return topi.cast(te.compute(x.shape, lambda *i: te.max(high(*i), tvm.tir.const(-128, x.dtype))), "int8")


def image(channels: int, size: int) -> te.Tensor:
    shape = (1, channels // ENV.BLOCK_IN, size, size, ENV.BATCH, ENV.BLOCK_IN)
    return te.placeholder(shape, "int8", name="data")


def weights(outputs: int, inputs: int, window: int) -> te.Tensor:
    shape = (outputs // ENV.BLOCK_OUT, inputs // ENV.BLOCK_IN, window, window, ENV.BLOCK_OUT, ENV.BLOCK_IN)
    return te.placeholder(shape, "int8", name="kernel")


def convolution() -> list[te.Tensor]:
    data, kernel = image(32, 8), weights(16, 32, 3)
    layout = f"NCHW{ENV.BATCH}n{ENV.BLOCK_IN}c"
    return [data, kernel, vta.top.conv2d_packed(data, kernel, (2, 2), (1, 1), (1, 1), layout, "int32")]


def grouped() -> list[te.Tensor]:
    data, kernel = image(64, 6), weights(32, 32, 3)
    return [data, kernel, vta.top.group_conv2d_packed(data, kernel, (1, 1), (1, 1), (1, 1), 2, "int32")]


def transposed(stride: int = 1) -> list[te.Tensor]:
    data, kernel = image(16, 4), weights(16, 16, 4)
    return [data, kernel, vta.top.conv2d_transpose_packed(data, kernel, (stride, stride), (1, 1), "int32")]


def dense() -> list[te.Tensor]:
    data = te.placeholder((1, 2, ENV.BATCH, ENV.BLOCK_IN), "int8", name="data")
    weight = te.placeholder((3, 2, ENV.BLOCK_OUT, ENV.BLOCK_IN), "int8", name="weight")
    return [data, weight, vta.top.dense_packed(data, weight, None, "int32")]


@pytest.mark.parametrize("program", [convolution, grouped, transposed, dense])
@pytest.mark.slow
def test_packed_operators_run_on_the_chip(program: Any) -> None:
    *inputs, product = program()
    args = [*inputs, narrowed(product)]
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-9, 9, [int(n) for n in t.shape]).astype("int8") for t in args]
    expected = [a.copy() for a in arrays]
    interpret(te.create_prim_func(args), *expected)
    with ENV.target:
        s = vta.top.schedule_conv2d_packed([args[-1]])
    module = vta.build(s, args, ENV.target)
    module(*arrays)
    np.testing.assert_array_equal(arrays[-1], expected[-1])
    assert "gemm" in module.get_source()


def test_a_transfer_spreads_no_data() -> None:
    args = transposed(stride=2)
    assert [int(n) for n in args[-1].shape] == [1, 1, 8, 8, ENV.BATCH, ENV.BLOCK_OUT]
    with pytest.raises(ConfigError) as caught:
        vta.top.schedule_conv2d_transpose_packed([args[-1]])
    assert str(caught.value) == (
        "schedule_conv2d_transpose_packed: strides greater than 1 put zeros between the elements of `data`, which no "
        "transfer of the chip does; let relay.build compile nn.conv2d_transpose, which becomes a convolution for each "
        "phase of the stride"
    )


def test_refusals() -> None:
    data, kernel = image(16, 4), weights(16, 16, 3)
    with pytest.raises(ConfigError, match="layout 'NCHW' has no blocks; give one such as NCHW1n16c"):
        vta.top.conv2d_packed(data, kernel, 1, 1, 1, "NCHW", "int32")
    with pytest.raises(ConfigError, match="`plain` has 2 dimensions, and a tensor in blocks has 4"):
        vta.top.dense_packed(te.placeholder((4, 4), "int8", name="plain"), kernel)


def test_padding_is_written_for_each_side() -> None:
    assert relay.nn.get_pad_tuple1d(2) == (2, 2)
    assert relay.nn.get_pad_tuple2d((1, 2)) == (1, 2, 1, 2)
    assert relay.nn.get_pad_tuple3d((1, 2, 3, 4, 5, 6)) == (1, 2, 3, 4, 5, 6)
    with pytest.raises(ValueError, match="padding is one, two or four numbers"):
        relay.nn.get_pad_tuple2d((1, 2, 3))


def test_a_target_that_does_not_exist_is_refused_when_a_program_is_built() -> None:
    with vta.Environment({**ENV.cfg_dict, "TARGET": "board"}):
        assert vta.get_env().TARGET == "board"
        with pytest.raises(ConfigError) as caught:
            _ = vta.get_env().target
    assert str(caught.value) == (
        "TARGET='board': there is no such target of the chip; use one of sim, tsim, pynq, ultra96, de10nano or intelfocl"
    )
