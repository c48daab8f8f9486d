"""Whole networks on the chip, in its simulator: equal, bit for bit, to the same networks on the CPU."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, vta
from tilewright.contrib import graph_executor
from tilewright.relay.testing import quantized
from tilewright.runtime.model import PROGRAMS_OF_CHIP
from tilewright.vta.module import RUNS

pytestmark = pytest.mark.slow


def run(lib: Any, device: Any, data: Any) -> Any:
    model = graph_executor.GraphModule(lib["default"](device))
    model.set_input("data", data)
    model.run()
    return model.get_output(0).numpy()


def compare(mod: Any, params: Any = None) -> Any:
    """The library for the chip of a network whose results were compared with the CPU's."""
    kind = mod["main"].params[0].checked_type
    rng = np.random.default_rng(1)
    data = rng.normal(0, 1, kind.concrete_shape).astype("float32")
    if str(kind.dtype) == "int8":
        data = rng.integers(-128, 128, kind.concrete_shape).astype("int8")
    wanted = run(relay.build(mod, "llvm", params=params), tvm.cpu(), data)
    lib = relay.build(mod, "ext_dev", params=params)
    RUNS.clear()
    np.testing.assert_array_equal(run(lib, tvm.ext_dev(0), data), wanted)
    assert len(np.unique(wanted)) > 3  # not all saturated
    return lib


def on_chip(lib: Any) -> list[str]:
    return [s.name for s in lib.model.steps if s.kernel in lib.programs]


def on_host(lib: Any) -> list[str]:
    return [s.name for s in lib.model.steps if s.kernel not in lib.programs]


def small(**options: Any) -> tuple[Any, Any]:
    options = {"image_shape": (3, 16, 16), "widths": (16, 32), "num_classes": 12, **options}
    return quantized.get_workload("resnet", **options)


def layer(dtype: str = "int8", channels: int = 24) -> Any:
    """A convolution with its epilogue."""
    data = relay.var("data", shape=(1, channels, 8, 8), dtype=dtype)
    w = relay.const(np.random.default_rng(0).integers(-8, 8, (40, channels, 3, 3)).astype(dtype))
    out = "int32" if dtype == "int8" else dtype
    y = relay.nn.conv2d(data, w, padding=(1, 1), channels=40, kernel_size=(3, 3), out_dtype=out)
    if dtype == "int8":
        y = relay.cast(relay.clip(relay.right_shift(y, relay.const(5, "int32")), -127, 127), "int8")
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data], y)))


def test_a_layer_runs_on_the_chip() -> None:
    lib = compare(layer())
    assert on_chip(lib) == ["fused_nn_conv2d_right_shift_clip_cast"]
    # 3 blocks of outputs, 2 of inputs, 9 positions of the window: one product each, for 64 pixels
    assert RUNS.total.counters["gemm_counter"] >= 3 * 2 * 9 * 64
    assert RUNS.total.cycles > 3 * 2 * 9 * 64


@pytest.mark.long
def test_a_residual_network() -> None:
    lib = compare(*small())
    assert (
        sum("conv2d" in name for name in on_chip(lib)) == 4 * 2 + 1 + 1
    )  # units, a projection, the dense layer
    assert sum("_add_clip" in name for name in on_chip(lib)) == 4  # residual sums
    assert sum("sum" in name for name in on_chip(lib)) == 1
    assert [n for n in on_host(lib) if "layout_transform" not in n] == [
        "fused_multiply_round_clip_cast",
        "fused_nn_conv2d_nn_bias_add_right_shift_clip_cast",
        "fused_nn_softmax",
    ]
    assert sum("layout_transform" in n for n in on_host(lib)) == 2  # in and out


def test_pooling_of_a_large_stem_is_on_the_chip() -> None:
    lib = compare(*small(image_shape=(3, 40, 40), widths=(16,)))
    assert sum("max_pool" in name for name in on_chip(lib)) == 1


def test_channels_that_fill_no_block() -> None:
    lib = compare(*small(widths=(24,)))
    assert len(on_chip(lib)) == 6  # two units, a sum and the dense layer


def test_depthwise_convolutions_are_on_the_chip() -> None:
    lib = compare(*quantized.get_workload("mobilenet", image_shape=(3, 32, 32), blocks=3, num_classes=12))
    assert sum("conv2d" in name for name in on_chip(lib)) == 2 * 3 + 1  # of three blocks, and the dense layer
    assert sum("conv2d" in name for name in on_host(lib)) == 1  # the stem
    assert sum("layout_transform" in n for n in on_host(lib)) == 2  # in and out


def test_a_batch() -> None:
    assert len(on_chip(compare(*small(batch_size=3, widths=(16,))))) == 6


@pytest.mark.filterwarnings("ignore:vta computes no part")
def test_a_network_of_floats_runs_on_the_host() -> None:
    assert on_chip(compare(layer("float32"))) == []


def test_parameters_that_are_set_later() -> None:
    mod, params = small(widths=(16,))
    data = np.random.default_rng(1).normal(0, 1, (1, 3, 16, 16)).astype("float32")
    wanted = run(relay.build(mod, "llvm", params=params), tvm.cpu(), data)
    lib = relay.build(mod, "ext_dev")
    model = graph_executor.GraphModule(lib["default"](tvm.ext_dev(0)))
    model.set_input("data", data)
    model.set_input(**params)
    model.run()
    np.testing.assert_array_equal(model.get_output(0).numpy(), wanted)
    assert on_chip(lib)


# ---------------------------------------------------------------------------- random networks
def random_network(seed: int) -> Any:
    """Some layers, each of which reads one or two of the tensors before it."""
    rng = np.random.default_rng(seed)
    pick = rng.integers
    height, width, channels = int(pick(5, 14)), int(pick(5, 14)), int(rng.choice([3, 12, 16, 24, 37]))
    data = relay.var("data", shape=(int(pick(1, 3)), channels, height, width), dtype="int8")

    def shape(x: Any) -> Any:
        return relay.transform.infer_type(x).checked_type.shape

    def wide(x: Any) -> Any:
        return relay.cast(x, "int32")

    def narrow(x: Any, shift: int) -> Any:
        y = relay.right_shift(x, relay.const(shift, "int32")) if shift else x
        low = int(rng.choice([-127, 0, -300]))  # beyond the range of int8, numbers wrap around
        return relay.cast(relay.clip(y, low, int(rng.choice([127, 60, 300]))), "int8")

    def biased(x: Any, channels: int) -> Any:
        if pick(2):
            x = relay.nn.bias_add(x, relay.const(rng.integers(-999, 999, channels).astype("int32")))
        return narrow(x, int(pick(4, 9)))

    def weights(*shape: int) -> Any:
        return relay.const(rng.integers(-9, 9, shape).astype("int8"))

    def convolved(x: Any, kernel: tuple[int, int], outputs: int, groups: int) -> Any:
        stride = (int(pick(1, 3)), int(pick(1, 3)))
        pad = [int(pick(0, k)) for k in kernel * 2]
        w = weights(outputs, shape(x)[1] // groups, *kernel)
        y = relay.nn.conv2d(
            x, w, stride, pad, groups=groups, channels=outputs, kernel_size=kernel, out_dtype="int32"
        )
        return biased(y, outputs)

    def conv(x: Any) -> Any:
        kernel = (int(rng.choice([1, 2, 3])), int(rng.choice([1, 3])))
        return convolved(x, kernel, int(pick(12, 40)), 1)

    def grouped(x: Any) -> Any:
        channels = int(shape(x)[1])
        groups = int(rng.choice([g for g in range(1, channels + 1) if channels % g == 0] + [channels] * 3))
        return convolved(x, (3, 3), channels * int(pick(1, 3)), groups)

    def transposed(x: Any) -> Any:
        kernel, stride, outputs = int(pick(2, 5)), (int(pick(1, 3)), int(pick(1, 4))), int(pick(12, 33))
        w = weights(shape(x)[1], outputs, kernel, kernel)
        more = tuple(int(pick(0, s)) for s in stride)
        y = relay.nn.conv2d_transpose(
            x, w, stride, (int(pick(0, 2)),) * 2, channels=outputs, kernel_size=(kernel, kernel),
            output_padding=more, out_dtype="int32",
        )  # fmt: skip
        return biased(y, outputs)

    def pool(x: Any) -> Any:
        return relay.nn.max_pool2d(x, (2, 2), (int(pick(1, 3)),) * 2, padding=(int(pick(0, 2)),) * 2)

    def average(x: Any) -> Any:
        wide_x = wide(relay.nn.relu(x) if pick(2) else x)
        if pick(2):
            return relay.cast(relay.nn.global_avg_pool2d(wide_x), "int8")
        return relay.cast(relay.nn.avg_pool2d(wide_x, (int(pick(1, 4)), 2), (int(pick(1, 3)),) * 2), "int8")

    def dense(x: Any) -> Any:
        flat, outputs = relay.nn.batch_flatten(x), int(pick(10, 40))
        y = relay.nn.dense(flat, weights(outputs, shape(flat)[1]), out_dtype="int32")
        return biased(y, outputs)

    def combined(x: Any) -> Any:
        others = [t for t in made if shape(t) == shape(x)]
        other = others[int(pick(len(others)))]
        op = [relay.add, relay.subtract, relay.maximum, relay.multiply][int(pick(4))]
        return narrow(op(wide(x), wide(other)), int(pick(0, 3)))

    made: list[Any] = [conv(data)]
    for _ in range(int(pick(3, 7))):
        x = made[int(pick(len(made)))]
        steps = [combined, relay.nn.relu, conv, grouped, transposed]
        steps += [pool, average] * (min(shape(x)[2:]) >= 4)
        if min(shape(x)[2:]) >= 3:
            made.append(steps[int(pick(len(steps)))](x))
    made.append(dense(made[-1]))
    out = [relay.reshape(wide(t), (-1,)) for t in made]
    body = relay.concatenate(out, 0)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data], body)))


@pytest.mark.long
@pytest.mark.filterwarnings("error:.*between copies")  # what the scheduler accepts can be compiled
@pytest.mark.filterwarnings("ignore:vta computes no part")
@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed: int) -> None:
    compare(random_network(seed))


# ---------------------------------------------------------------------------- the classic way
def test_graph_pack() -> None:
    mod, params = small(widths=(16,), image_shape=(3, 40, 40))
    env = vta.get_env()
    main = relay.build_module.bind_params_by_name(mod["main"], params)
    packed = vta.top.graph_pack(
        main, env.BATCH, env.BLOCK_OUT, env.WGT_WIDTH, start_name="nn.max_pool2d", stop_name="sum"
    )
    with vta.build_config(opt_level=3, disabled_pass={"AlterOpLayout"}):
        graph, lib, more = relay.build(packed, target=tvm.target.Target(env.target, host=env.target_host))
    model = graph_executor.create(graph, lib, tvm.ext_dev(0))
    data = np.random.default_rng(1).normal(0, 1, (1, 3, 40, 40)).astype("float32")
    model.set_input("data", data)
    model.set_input(**more)
    model.run()
    wanted = run(relay.build(mod, "llvm", params=params), tvm.cpu(), data)
    np.testing.assert_array_equal(model.get_output(0).numpy(), wanted)
    assert (
        len(on_chip(relay.build(packed, env.target))) == 4
    )  # the units; neither pooling nor the dense layer


def test_graph_pack_for_another_chip() -> None:
    with pytest.raises(ValueError) as error:
        vta.graph_pack(layer()["main"], 1, 32, 8)
    assert str(error.value) == (
        "graph_pack(cfactor=32): the chip of this environment has 16; give that, or compile within another "
        "vta.Environment"
    )


# ---------------------------------------------------------------------------- files
def test_a_library_is_exported_and_loaded(tmp_path: Any) -> None:
    mod = layer()
    lib = compare(mod)
    lib.export_library(tmp_path / "layer.so")
    loaded = tvm.runtime.load_module(tmp_path / "layer.so")
    data = np.random.default_rng(2).integers(-128, 128, (1, 24, 8, 8)).astype("int8")
    wanted = run(relay.build(mod, "llvm"), tvm.cpu(), data)
    np.testing.assert_array_equal(run(loaded, tvm.ext_dev(0), data), wanted)
    assert "gemm" in loaded.get_source()


@pytest.mark.filterwarnings("ignore:vta computes no part")
def test_explain_says_why_the_host_computes_a_step() -> None:
    assert (
        "fused_nn_conv2d_right_shift_clip_cast: the host, between copies: vta does not compute it: nn.conv2d: 3 input and "
        "40 output channels use 16% of blocks of 16 by 16, and 50% are the least"
    ) in compare(layer(channels=3)).explain()


def test_explain_says_where_each_step_runs() -> None:
    text = compare(layer()).explain()
    assert "fused_layout_transform: the host, between copies: vta does not compute it" in text
    assert "fused_nn_conv2d_right_shift_clip_cast: ext_dev\n  conv2d_NCHWc: matrix" in text


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("%%%", "damaged: the program of .* cannot be read"),
        (base64.b64encode(b"nothing").decode(), "this is not a program for the chip"),
    ],
)
def test_a_damaged_library_is_refused(program: str, told: str) -> None:
    lib = compare(layer())
    about = lib.inner.description
    (name,) = about[PROGRAMS_OF_CHIP]
    damaged = {**about, PROGRAMS_OF_CHIP: {name: program}}
    lib.inner._library.metadata = lambda: damaged
    with pytest.raises(tvm.TVMError, match=told):
        tvm.runtime.executor.model_or(lib.inner)


# ---------------------------------------------------------------------------- whole networks
@pytest.mark.heavy
@pytest.mark.parametrize(("name", "products"), [("resnet", 20), ("mobilenet", 2 * 13 + 1)])
def test_networks_at_their_full_size(name: str, products: int) -> None:
    lib = compare(*quantized.get_workload(name))
    assert sum("conv2d" in step for step in on_chip(lib)) == products
