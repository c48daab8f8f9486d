"""relay.quantize: float models on 8-bit integers, nearly the same numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relay_eval import apply, count, evaluate

import tilewright as tvm
from tilewright import relay
from tilewright.ir.say_once import IgnoredWarning
from tilewright.relay.quantize.histogram import Histogram
from tilewright.relay.quantize.realize import Fixed, quantized, requantized

nn, Q = relay.nn, relay.quantize
INPUT = int(Q.QAnnotateKind.INPUT)
EVERYTHING = {"skip_conv_layers": None, "skip_dense_layer": False}


def weight(*shape, seed=0):
    values = np.random.default_rng([seed, *shape]).standard_normal(shape) / math.sqrt(math.prod(shape[1:]))
    return relay.const(values.astype("float32"))


def conv(x, channels, into, seed=0):
    made = nn.conv2d(x, weight(into, channels, 3, 3, seed=seed), padding=(1, 1))
    return nn.bias_add(made, weight(into, seed=seed))


def network(batch=1):
    """Two convolutions with a residual sum, a third, pooling, and a classifier."""
    x = relay.var("x", shape=(batch, 3, 16, 16), dtype="float32")
    y = nn.max_pool2d(nn.relu(conv(x, 3, 8)), (2, 2), strides=(2, 2))
    z = conv(nn.relu(conv(y, 8, 8, seed=1)), 8, 8, seed=2)
    y = nn.relu(conv(nn.relu(y + z), 8, 16))
    y = nn.batch_flatten(nn.global_avg_pool2d(y))
    y = nn.dense(y, weight(10, 16))
    return tvm.IRModule.from_expr(relay.Function([x], y))


def images(batch=1, seed=5, size=16):
    """Noise, with a colour for each image, so that answers differ."""
    rng = np.random.default_rng(seed)
    colours = 2 * rng.standard_normal((batch, 3, 1, 1))
    return (rng.standard_normal((batch, 3, size, size)) + colours).astype("float32")


def compiled(mod):
    run = relay.create_executor("graph", mod).evaluate()
    return lambda *arrays: run(*arrays).numpy()


def quantize(mod, params=None, dataset=None, **options):
    with Q.qconfig(**options):
        return Q.quantize(mod, params, dataset)


def cosine(a, b):
    """The similarity of answers, less what all images have in common."""
    a, b = (v - a.mean(0) if len(v) > 1 else v for v in (a, b))
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def check_answers(real, made, least):
    """Answers that differ from image to image are nearly the same, and five of six images keep their class."""
    assert len(set(real.argmax(1))) > 1
    assert cosine(real, made).mean() > least
    assert (real.argmax(1) == made.argmax(1)).mean() >= 5 / 6


def dtypes(mod, name):
    """The types of the results of an operator, in order."""
    found = relay.analysis.post_order(mod["main"])
    return [str(e.checked_type.dtype) for e in found if getattr(getattr(e, "op", None), "name", "") == name]


# ---------------------------------------------------------------------------- the integer graph
def test_a_convolution_is_integers_up_to_the_stored_result():
    x = relay.var("x", shape=(1, 8, 4, 4), dtype="float32")
    w, b = np.full((8, 8, 1, 1), 0.25, "float32"), np.full(8, 0.3, "float32")
    body = nn.relu(nn.bias_add(nn.conv2d(x, relay.const(w)), relay.const(b)))
    made = quantize(tvm.IRModule.from_expr(relay.Function([x], body)), skip_conv_layers=[])

    step = relay.const(0.0625, "float32")
    q = relay.floor(relay.divide(x, step) + relay.const(0.5, "float32"))
    q = relay.cast(relay.clip(q, -127.0, 127.0), "int8")
    # 0.25 is 128 units of 2^-9 and is clipped; the unit of sums is 2^-13
    y = nn.conv2d(q, relay.const(np.full((8, 8, 1, 1), 127, "int8")), out_dtype="int32")
    y = nn.relu(relay.add(y, relay.const(np.full((8, 1, 1), round(0.3 * 2**13), "int32"))))
    y = relay.right_shift(relay.add(y, relay.const(256)), relay.const(9))
    y = relay.cast(relay.clip(y, -127.0, 127.0), "int8")
    expected = relay.Function([x], relay.multiply(relay.cast(y, "float32"), step))
    tvm.ir.assert_structural_equal(made["main"], relay.transform.infer_type(expected))


def rounded(x, scale, kind=INPUT, bits=8):
    return relay.op.annotation.simulated_quantize(x, kind=kind, bits=bits, scale=scale)


@pytest.mark.slow
def test_a_residual_sum_shifts_the_coarser_side():
    a, b = (relay.var(n, shape=(4,), dtype="float32") for n in "ab")
    func = relay.Function([a, b], relay.add(rounded(a, 0.25), rounded(b, 0.0625)))
    made = apply(func, Q.realize())
    (shift,) = (
        e
        for e in relay.analysis.post_order(made)
        if getattr(getattr(e, "op", None), "name", "") == "left_shift"
    )
    assert shift.args[1].numpy() == 2
    arrays = [np.array(v, "float32") for v in ([1.3, -0.125, 0.375, 100], [0.03, 0.03125, 7.0, -9.0])]
    np.testing.assert_array_equal(evaluate(made, *arrays), evaluate(func, *arrays))


@pytest.mark.slow
def test_a_sum_of_any_scales_is_a_fixed_point_product():
    a, b = (relay.var(n, shape=(64,), dtype="float32") for n in "ab")
    func = relay.Function([a, b], relay.add(rounded(a, 0.3), rounded(b, 0.07)))
    arrays = [np.random.default_rng(s).uniform(-8, 8, 64).astype("float32") for s in (1, 2)]
    for rounding in ("UPWARD", "TONEAREST"):
        with Q.qconfig(rounding=rounding):
            made = apply(func, Q.realize())
        assert count(made, "fixed_point_multiply") == 1
        assert np.abs(evaluate(made, *arrays) - evaluate(func, *arrays)).max() <= 0.07 / 2 + 1e-6


@pytest.mark.slow
def test_tensors_of_one_scale_are_joined_as_they_are():
    a, b = (relay.var(n, shape=(2, 4), dtype="float32") for n in "ab")
    for scale, kind in ((0.5, "int8"), (0.25, "int32")):
        func = relay.Function([a, b], relay.concatenate([rounded(a, 0.5), rounded(b, scale)], axis=1))
        made = apply(func, Q.realize())
        assert dtypes(tvm.IRModule.from_expr(made), "concatenate") == [kind]
        arrays = [np.random.default_rng(s).uniform(-9, 9, (2, 4)).astype("float32") for s in (1, 2)]
        np.testing.assert_array_equal(evaluate(made, *arrays), evaluate(func, *arrays))


@pytest.mark.slow
def test_options_choose_the_operators():
    mod = network()
    assert dtypes(quantize(mod), "nn.conv2d") == ["float32", "int32", "int32", "int32"]
    assert dtypes(quantize(mod), "nn.dense") == ["float32"]
    made = quantize(mod, skip_conv_layers=[1, 3], skip_dense_layer=False)
    assert dtypes(made, "nn.conv2d") == ["int32", "float32", "int32", "float32"]
    assert dtypes(made, "nn.dense") == ["int32"]
    made = quantize(mod, debug_enabled_ops=["nn.conv2d", "add"], **EVERYTHING)
    assert dtypes(made, "nn.conv2d") == ["int32"] * 4
    assert set(dtypes(made, "nn.relu")) == {"float32"}
    assert dtypes(made, "nn.dense") == ["float32"]


@pytest.mark.slow
def test_store_lowbit_output_decides_the_type_of_residual_operands():
    mod = network()
    stored, kept = (quantize(mod, store_lowbit_output=v, **EVERYTHING) for v in (True, False))
    # stored: four convolutions, and the residual sum has the scale of its operands
    assert (count(stored["main"], "left_shift"), count(stored["main"], "right_shift")) == (0, 4)
    # kept: two convolutions and the residual sum, whose other operand takes the scale of a convolution
    assert (count(kept["main"], "left_shift"), count(kept["main"], "right_shift")) == (1, 3)


@pytest.mark.slow
def test_the_integer_part_of_resnet_needs_a_matrix_unit_and_a_vector_unit():
    mod, params = relay.testing.resnet.get_workload(num_layers=18)
    with tvm.transform.PassContext(opt_level=3):
        made = quantize(mod, params, global_scale=8.0, skip_conv_layers=[0])
    calls = [e for e in relay.analysis.post_order(made["main"]) if isinstance(e, relay.Call)]
    integers = {e.op.name for e in calls if not e.checked_type.dtype.is_float}
    assert integers == {"nn.conv2d", "add", "multiply", "nn.relu", "right_shift", "clip", "cast"}
    # after the first convolution, values leave the integers once, for the global average
    assert len([e for e in calls if e.op.name == "cast" and e.checked_type.dtype == "float32"]) == 1
    assert dtypes(made, "nn.conv2d").count("float32") == 1


def test_a_value_with_two_readers_is_rounded_once():
    x = relay.var("x", shape=(1, 3, 8, 8), dtype="float32")
    y = conv(x, 3, 4)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([nn.relu(y), nn.max_pool2d(y)])))
    made = quantize(mod, **EVERYTHING)
    assert dtypes(made, "nn.relu") == dtypes(made, "nn.max_pool2d") == ["int8"]
    assert count(made["main"], "right_shift") == 1


def test_a_graph_without_products_is_unchanged():
    x = relay.var("x", shape=(2, 3), dtype="float32")
    mod = tvm.IRModule.from_expr(relay.Function([x], nn.softmax(nn.relu(x) + relay.const(1.0))))
    tvm.ir.assert_structural_equal(quantize(mod), Q.prerequisite_optimize(mod))


def test_batch_norms_are_folded_before():
    x = relay.var("x", shape=(1, 3, 8, 8), dtype="float32")
    names = ("gamma", "beta", "moving_mean", "moving_var")
    params = [relay.var(n, shape=(4,), dtype="float32") for n in names]
    y = nn.batch_norm(nn.conv2d(x, relay.var("w", shape=(4, 3, 3, 3), dtype="float32")), *params)[0]
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y))
    rng = np.random.default_rng(0)
    values = {n: rng.uniform(0.5, 1.5, 4).astype("float32") for n in names}
    values["w"] = rng.standard_normal((4, 3, 3, 3)).astype("float32")
    with tvm.transform.PassContext(opt_level=0):
        made = quantize(mod, values, **EVERYTHING)
    assert [p.name_hint for p in made["main"].params] == ["x"]
    assert count(made["main"], "multiply") == 1  # the float result
    assert dtypes(made, "nn.conv2d") == ["int32"]


# ---------------------------------------------------------------------------- numbers
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        EVERYTHING,
        {**EVERYTHING, "round_for_shift": False},
        {**EVERYTHING, "store_lowbit_output": False},
        {**EVERYTHING, "nbit_input": 6, "nbit_weight": 5, "global_scale": 4.0},
        {"debug_enabled_ops": ["nn.conv2d", "nn.relu"], "skip_conv_layers": [1]},
    ],
    ids=str,
)
def test_the_simulation_computes_what_integers_compute(options):
    # All scales are powers of two, and all sums are below 2^24: float32 is exact.
    mod, x = network(), images()
    simulated = quantize(mod, do_simulation=True, **options)
    assert count(simulated["main"], "annotation.simulated_quantize") > 0
    made = quantize(mod, **options)
    assert count(made["main"], "annotation.simulated_quantize") == 0
    np.testing.assert_array_equal(evaluate(made, x), evaluate(simulated, x))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, 0.97),
        (EVERYTHING, 0.97),
        ({**EVERYTHING, "calibrate_mode": "percentile"}, 0.99),
        ({**EVERYTHING, "calibrate_mode": "kl_divergence", "weight_scale": "max"}, 0.99),
    ],
    ids=str,
)
def test_a_small_network_keeps_its_answers(options, least):
    mod, x = network(32), images(32)
    dataset = [{"x": images(32, seed)} for seed in (1, 2)] if "calibrate_mode" in options else None
    real, made = compiled(mod)(x), compiled(quantize(mod, dataset=dataset, **options))(x)
    check_answers(real, made, least)


@pytest.mark.slow
@pytest.mark.long
def test_resnet18_keeps_its_answers():
    mod, params = relay.testing.resnet.get_workload(
        batch_size=8, num_classes=10, num_layers=18, image_shape=(3, 32, 32)
    )
    mod["main"] = relay.Function(mod["main"].params, mod["main"].body.args[0])  # without softmax
    batches = [images(8, seed, 32) for seed in range(5)]
    bound = relay.bind_params_by_name(mod["main"], params)
    made = quantize(mod, params, [{"data": batches.pop()}], calibrate_mode="percentile")
    real, got = (
        np.concatenate([run(x) for x in batches])
        for run in (compiled(tvm.IRModule.from_expr(bound)), compiled(made))
    )
    check_answers(real, got, 0.95)


@pytest.mark.slow
@given(
    values=st.lists(st.integers(-(2**30) + 1, 2**30 - 1), min_size=8, max_size=8),
    shift=st.integers(0, 30),
    rounds=st.booleans(),
)
def test_shifts_round_halves_up_or_down(values, shift, rounds):
    x = relay.var("x", shape=(8,), dtype="int32")
    relay.transform.infer_type(x)
    made = requantized(Fixed(x, 1.0), 2.0**shift, 127, Q.QConfig(round_for_shift=rounds))
    got = evaluate(relay.Function([x], made.expr), np.array(values, "int32"))
    half = Fraction(1, 2) if rounds and shift else 0
    want = [min(max(math.floor(Fraction(v, 2**shift) + half), -127), 127) for v in values]
    assert got.dtype == np.int8 and got.tolist() == want


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("ratio", [0.3, 2.0**-24 / 3, 7.7e-5, 1.9, 150.0])
def test_fixed_point_products_are_the_nearest_integers(ratio, rounding):
    rng = np.random.default_rng(0)
    values = (rng.choice([-1, 1], 512) * 2.0 ** rng.uniform(0, 30, 512)).astype("int32")
    x = relay.var("x", shape=(512,), dtype="int32")
    made = requantized(Fixed(x, ratio), 1.0, 127, Q.QConfig(rounding=rounding))
    got = evaluate(relay.Function([x], made.expr), values)
    exact = [min(max(int(v) * Fraction(ratio), -127), 127) for v in values]
    # the mantissa of the ratio has 31 bits
    wrong = [abs(int(g) - e) - abs(e) * Fraction(1, 2**30) for g, e in zip(got, exact, strict=True)]
    assert max(wrong) <= Fraction(1, 2)


@pytest.mark.slow
@given(
    values=st.lists(st.floats(-300, 300, width=32), min_size=8, max_size=8),
    scale=st.sampled_from([0.0625, 0.1, 1.0, 3.7]),
    bits=st.integers(2, 8),
)
def test_constants_are_rounded_as_the_simulation_rounds(values, scale, bits):
    x = relay.var("x", shape=(8,), dtype="float32")
    scale = float(np.float32(scale))
    array = np.array(values, "float32")
    got = quantized(array, scale, (1 << bits - 1) - 1).astype("float32") * np.float32(scale)
    np.testing.assert_array_equal(got, evaluate(relay.Function([x], rounded(x, scale, bits=bits)), array))


# ---------------------------------------------------------------------------- calibration
def test_a_histogram_in_parts_is_that_of_the_whole():
    values = np.random.default_rng(0).standard_normal(10000) ** 3
    whole, parts = Histogram(), Histogram()
    whole.add(values)
    for part in np.array_split(np.sort(np.abs(values)), 7):  # greater and greater
        parts.add(part)
    assert whole.limit == parts.limit and (whole.counts == parts.counts).all()


def test_thresholds_leave_outliers_out():
    rng = np.random.default_rng(0)
    even, tail = Histogram(), Histogram()
    even.add(rng.uniform(-1, 1, 100_000))
    tail.add(np.append(rng.uniform(-1, 1, 100_000), 20.0))
    assert even.percentile() == pytest.approx(1, abs=0.01) == even.least_divergence(128)
    assert tail.percentile() == pytest.approx(1, abs=0.01)
    assert tail.least_divergence(128) < 4
    nothing = Histogram()
    nothing.add(np.zeros(8))
    assert nothing.percentile() == nothing.least_divergence(128) == 1.0


# ---------------------------------------------------------------------------- configurations and refusals
def test_the_innermost_configuration_holds():
    assert Q.current_qconfig() == Q.QConfig()
    with Q.qconfig(global_scale=4.0):
        with Q.qconfig(nbit_input=4) as inner:
            assert Q.current_qconfig() is inner and inner.global_scale == 8.0
        assert Q.current_qconfig().global_scale == 4.0
    assert Q.current_qconfig() == Q.QConfig()
    with pytest.raises(AttributeError):
        inner.nbit_input = 8


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"global_scal": 4.0},
            "qconfig(global_scal=…): there is no such option; did you mean global_scale?",
        ),
        ({"nbit_input": 9}, "qconfig(nbit_input=9): it must be 2 or 3 or 4 or 5 or 6 or 7 or 8"),
        (
            {"calibrate_mode": "max"},
            "qconfig(calibrate_mode='max'): it must be 'global_scale' or 'kl_divergence' or 'percentile'",
        ),
        (
            {"partition_conversions": "enabled"},
            "qconfig(partition_conversions='enabled'): it must be 'disabled'; the quantized module is one function, with "
            "its conversions",
        ),
        ({"global_scale": 0}, "qconfig(global_scale=0): it must be a positive number"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options, text):
    with pytest.raises(tvm.TVMError) as refused:
        Q.qconfig(**options)
    assert str(refused.value).partition(" Known are")[0] == text


def test_an_unknown_operator_is_refused():
    with pytest.raises(
        ValueError, match=r"no graph operator is named 'nn\.conv2e'; did you mean nn\.conv2d "
    ):
        Q.qconfig(debug_enabled_ops=["nn.conv2e"])


def refusal(mod, **options):
    with pytest.raises(tvm.TVMError) as refused:
        quantize(mod, **options)
    return str(refused.value).splitlines()[0]


def test_calibration_needs_data():
    x = relay.var("x", shape=(1, 4), dtype="float32")
    mod = tvm.IRModule.from_expr(relay.Function([x], nn.dense(nn.relu(x), weight(2, 4))))
    options = {"calibrate_mode": "percentile", "skip_dense_layer": False}
    assert refusal(mod, **options) == (
        "quantize: calibrate_mode='percentile' needs values to choose scales by; "
        "pass dataset=[{name of an input: array}, …]"
    )
    assert refusal(mod, dataset=[], **options) == (
        "quantize: the dataset is empty; give at least one mapping of inputs to arrays"
    )
    infinite = np.full((1, 4), np.inf, "float32")
    assert refusal(mod, dataset=[{"x": infinite}], **options) == (
        "quantize: the float model computes an infinity or NaN for the dataset; repair the data or the weights"
    )


def test_weights_need_values():
    x, w = relay.var("x", shape=(1, 4), dtype="float32"), relay.var("w", shape=(2, 4), dtype="float32")
    mod = tvm.IRModule.from_expr(relay.Function([x, w], nn.dense(x, w)))
    assert refusal(mod, skip_dense_layer=False) == (
        "quantize: the weight %w of nn.dense has no value; pass the weights as params"
    )
    assert refusal(mod, skip_dense_layer=False, params={"w": np.full((2, 4), np.inf, "float32")}) == (
        "quantize: a weight contains an infinity or NaN, which has no integer form; repair the weights"
    )


def test_scales_too_far_apart_are_refused():
    a, b = (relay.var(n, shape=(4,), dtype="float32") for n in "ab")
    func = relay.Function([a, b], relay.add(rounded(a, 1024.0), rounded(b, 2.0**-20)))
    with pytest.raises(tvm.TVMError) as refused:
        apply(func, Q.realize())
    assert str(refused.value).splitlines()[0] == (
        "quantize: the operands of a sum have the scales 1024 and 9.53674e-07, and the first may exceed 32 bits in the "
        "second; set store_lowbit_output=True, or calibrate with other data"
    )


def test_requests_without_effect_are_named_once():
    with pytest.warns(IgnoredWarning, match=r"^qconfig\(calibrate_chunk_by=…\) has no effect: "):
        Q.qconfig(calibrate_chunk_by=4)
    with pytest.warns(
        IgnoredWarning, match=r"^quantize\(dataset=…\) has no effect with calibrate_mode='global_scale'"
    ):
        quantize(network(), dataset=[{"x": images()}])


def test_the_rounding_of_a_simulation_is_checked():
    x = relay.var("x", shape=(4,), dtype="float32")
    bad = relay.op.annotation.simulated_quantize(x, kind=INPUT, rounding="up")
    with pytest.raises(relay.op.RelayTypeError, match="rounding: is 'up' and may be 'round' or 'floor'"):
        relay.transform.infer_type(relay.Function([x], bad))


def _transposed(x):
    return relay.transpose(x, axes=(0, 2, 3, 1))


PRODUCTS = {
    "a depthwise convolution": ((1, 4, 6, 6), lambda x: nn.conv2d(x, weight(4, 1, 3, 3), groups=4)),
    "channels last": (
        (1, 4, 6, 6),
        lambda x: nn.conv2d(_transposed(x), weight(3, 3, 4, 8), data_layout="NHWC", kernel_layout="HWIO"),
    ),
    "one dimension": ((1, 4, 9), lambda x: nn.conv1d(x, weight(5, 4, 3))),
    "three dimensions": ((1, 2, 4, 4, 4), lambda x: nn.conv3d(x, weight(3, 2, 2, 2, 2))),
    "a transposed convolution": ((1, 4, 4, 4), lambda x: nn.conv2d_transpose(x, weight(4, 3, 2, 2))),
    "a matrix with the weight in columns": ((3, 8), lambda x: nn.matmul(x, weight(8, 5))),
    "two activations": (
        (2, 3, 8),
        lambda x: nn.batch_matmul(nn.relu(x), nn.softmax(x)),
    ),
    "bounds, padding, slices, and a scale for each channel": (
        (1, 4, 6, 6),
        lambda x: relay.strided_slice(
            nn.pad(
                relay.clip(conv(x, 4, 6), 0.0, 6.0) * weight(6, 1, 1),
                ((0, 0), (0, 0), (1, 1), (1, 1)),
            ),
            begin=(0, 0, 1, 1),
            end=(1, 4, 7, 7),
        ),
    ),
    "joined branches": (
        (1, 4, 6, 6),
        lambda x: nn.conv2d(
            relay.concatenate([conv(x, 4, 2), nn.relu(conv(x, 4, 3, seed=1)), x], axis=1), weight(2, 9, 1, 1)
        ),
    ),
    "an average of neighbours between two products": (
        (1, 4, 6, 6),
        lambda x: conv(nn.avg_pool2d(conv(x, 4, 4), (2, 2), strides=(2, 2)), 4, 4, seed=1),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCTS)
def test_operators_compute_on_integers_what_the_simulation_does(name):
    shape, build = PRODUCTS[name]
    x = relay.var("x", shape=shape, dtype="float32")
    mod = tvm.IRModule.from_expr(relay.Function([x], build(x)))
    made, simulated = (quantize(mod, do_simulation=s, **EVERYTHING) for s in (False, True))
    kinds = {
        str(e.checked_type.dtype)
        for e in relay.analysis.post_order(made["main"].body)
        if relay.op.traits.traits_of(e).product
    }
    assert kinds == {"int32"}
    array = np.random.default_rng(3).uniform(-3, 3, shape).astype("float32")
    real = evaluate(mod, array)
    np.testing.assert_array_equal(evaluate(made, array), evaluate(simulated, array))
    assert cosine(real.reshape(1, -1), evaluate(made, array).reshape(1, -1)) > 0.99


def test_a_product_of_two_inputs_needs_no_weight():
    x, y = (relay.var(n, shape=(2, 3, 4), dtype="float32") for n in "xy")
    mod = tvm.IRModule.from_expr(relay.Function([x, y], nn.batch_matmul(x, y)))
    assert dtypes(quantize(mod), "nn.batch_matmul") == ["int32"]
