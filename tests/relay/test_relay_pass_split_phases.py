"""SplitPhases: transposed convolutions as convolutions that an accelerator computes, and that nothing changes."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import apply, check, count, evaluate

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.analysis import free_vars
from tilewright.relay.transform.split_phases import split_phases

T, nn = relay.transform, relay.nn
CHIP = "ext_dev"


def image(channels=16, height=5, width=5, dtype="int8"):
    return relay.var("x", shape=(1, channels, height, width), dtype=dtype)


def transposed(x, inputs, outputs, kernel, groups=1, dtype="int8", **options):
    window = (kernel, kernel) if isinstance(kernel, int) else kernel
    values = np.random.default_rng(3).integers(-8, 8, (inputs, outputs // groups, *window))
    w = relay.const(values.astype(dtype))
    out = "int32" if dtype == "int8" else dtype
    return nn.conv2d_transpose(
        x, w, channels=outputs, kernel_size=window, groups=groups, out_dtype=out, **options
    )


def rescaled(x):
    return relay.cast(relay.clip(relay.right_shift(x, relay.const(4, "int32")), 0, 127), "int8")


def function(body):
    return relay.Function(free_vars(body), body)


def split(body):
    """The function in phases; checks that the result is the same."""
    before = function(body)
    with tvm.target.Target(CHIP):
        after = apply(before, T.SplitPhases())
    rng = np.random.default_rng(5)
    kinds = [p.type_annotation for p in before.params]
    arrays = [rng.integers(-128, 128, k.concrete_shape).astype(str(k.dtype)) for k in kinds]
    np.testing.assert_array_equal(evaluate(before, *arrays), evaluate(after, *arrays))
    return after


# ---------------------------------------------------------------------------- expect
def test_written_out():
    x, w = image(16, 5, 4), relay.var("w", shape=(16, 32, 1, 4), dtype="int8")
    y = nn.conv2d_transpose(
        x, w, strides=(1, 2), padding=(0, 1), channels=32, kernel_size=(1, 4), out_dtype="int32"
    )
    direct = relay.transpose(w, (1, 0, 2, 3))
    parts = []
    for taps, pads in (([3, 1], (0, 1, 0, 0)), ([2, 0], (0, 0, 0, 1))):
        taken = relay.take(
            relay.take(direct, relay.const(np.array([0], "int32")), 2),
            relay.const(np.array(taps, "int32")),
            3,
        )
        made = nn.conv2d(x, taken, padding=pads, channels=32, kernel_size=(1, 2), out_dtype="int32")
        parts.append(rescaled(made))
    both = relay.reshape(relay.stack(relay.Tuple(parts), -1), (1, 32, 5, 4, 1, 2))
    whole = relay.reshape(relay.transpose(both, (0, 1, 2, 4, 3, 5)), (1, 32, 5, 8))
    with tvm.target.Target(CHIP):
        check(
            relay.Function([x, w], rescaled(y)),
            T.SplitPhases(),
            relay.Function([x, w], whole),
            rtol=0,
            atol=0,
        )


# ---------------------------------------------------------------------------- meaning
@pytest.mark.parametrize(
    ("kernel", "options", "convolutions"),
    [
        (3, {}, 1),
        (3, {"padding": (1, 0, 2, 1)}, 1),
        (3, {"dilation": (2, 1)}, 1),
        (4, {"strides": (2, 2), "padding": (1, 1)}, 4),
        (3, {"strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1)}, 4),
        (3, {"strides": (2, 2), "padding": (1, 1)}, 4),
        (2, {"strides": (2, 2)}, 4),
        (5, {"strides": (3, 2), "padding": (0, 2)}, 6),
        (1, {"strides": (2, 2)}, 4),  # phases without taps
        (2, {"strides": (4, 1), "output_padding": (3, 0)}, 4),
        (3, {"strides": (2, 2), "padding": (3, 3)}, 4),  # more padding than the kernel covers
        ((3, 1), {"strides": (1, 3), "output_padding": (0, 2)}, 3),
    ],
    ids=str,
)
def test_windows(kernel, options, convolutions):
    after = split(rescaled(transposed(image(16, 5, 6), 16, 32, kernel, **options)))
    assert count(after, "nn.conv2d") == convolutions and count(after, "nn.conv2d_transpose") == 0
    assert count(after, "clip") == convolutions  # the epilogue is computed in phases


@pytest.mark.parametrize(("inputs", "outputs", "groups"), [(32, 32, 32), (32, 64, 2), (64, 32, 4)])
def test_groups(inputs, outputs, groups):
    y = transposed(image(inputs), inputs, outputs, 4, groups, strides=(2, 2), padding=(1, 1))
    assert count(split(y), "nn.conv2d") == 4


def test_operators_behind_it():
    y = transposed(image(), 16, 16, 4, strides=(2, 2))
    y = nn.relu(nn.bias_add(y, relay.const(np.arange(16, dtype="int32"))))
    both = relay.add(y, relay.multiply(y, relay.const(3, "int32")))
    after = split(relay.sum(both, axis=(2, 3)))
    assert (count(after, "add"), count(after, "stack"), count(after, "sum")) == (4, 1, 1)
    other = relay.var("y", shape=(1, 16, 12, 12), dtype="int32")  # without phases
    assert count(split(relay.add(y, other)), "add") == 1


def test_random_windows():
    rng = np.random.default_rng(0)
    for _ in range(12):
        kernel, strides = [tuple(int(n) for n in rng.integers(1, 6, 2)) for _ in range(2)]
        padding = tuple(int(rng.integers(0, k)) for k in kernel)
        more = tuple(int(rng.integers(0, s)) for s in strides)
        options = {"strides": strides, "padding": padding, "output_padding": more}
        split(transposed(image(16, 6, 7), 16, 16, kernel, **options))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
def test_a_generator_runs_on_the_chip(batch):
    """Two layers of a generator of images, in the simulator of the chip."""
    x = relay.var("data", shape=(batch, 32, 4, 4), dtype="int8")
    y = rescaled(transposed(x, 32, 16, 4, strides=(2, 2), padding=(1, 1)))
    y = rescaled(transposed(y, 16, 16, 3, strides=(2, 2), padding=(1, 1), output_padding=(1, 1)))
    mod = T.InferType()(tvm.IRModule.from_expr(function(y)))
    data = np.random.default_rng(1).integers(-128, 128, (batch, 32, 4, 4)).astype("int8")
    answers = []
    for target, device in (("llvm", tvm.cpu()), (CHIP, tvm.ext_dev(0))):
        lib = relay.build(mod, target)
        model = graph_executor.GraphModule(lib["default"](device))
        model.set_input("data", data)
        model.run()
        answers.append(model.get_output(0).numpy())
    np.testing.assert_array_equal(*answers)
    assert answers[0].shape == (batch, 16, 16, 16) and len(np.unique(answers[0])) > 20
    products = [s.name for s in lib.model.steps if s.kernel in lib.programs]
    assert len(products) == 8  # four phases of each layer


# ---------------------------------------------------------------------------- refuse and identity
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda: transposed(image(dtype="float32"), 16, 16, 3, dtype="float32"), id="floats"),
        pytest.param(lambda: transposed(image(3), 3, 16, 3, strides=(2, 2)), id="few channels"),
        pytest.param(
            lambda: transposed(image(), 16, 16, 3, strides=(2, 2), dilation=(2, 2)), id="stride and dilation"
        ),
        pytest.param(lambda: transposed(image(), 16, 16, 2, dilation=(2, 2), padding=(3, 3)), id="cropped"),
    ],
)
def test_what_the_chip_does_not_compute_is_the_same_object(body):
    func = T.InferType()(tvm.IRModule.from_expr(function(body())))["main"]
    with tvm.target.Target(CHIP):
        assert split_phases(func) is func


def test_other_targets_are_the_same_object():
    func = T.InferType()(tvm.IRModule.from_expr(function(transposed(image(), 16, 16, 4, strides=(2, 2)))))[
        "main"
    ]
    assert split_phases(func) is func
    with tvm.target.Target("llvm"):
        assert split_phases(func) is func
