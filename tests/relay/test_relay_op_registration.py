"""Operators, implementations and rules of passes that a program registers under the classic names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.ir.op import graph_operators
from tilewright.relay.op import OpPattern, OpStrategy, SpecializedCondition
from tilewright.relay.op.strategy.generic import naive_schedule, wrap_compute_dense, wrap_topi_schedule
from tilewright.relay.testing import run_opt_pass
from tilewright.relay.testing.temp_op_attr import TempOpAttr

X = np.arange(6, dtype="float32").reshape(2, 3)


@contextmanager
def operator(name: str) -> Iterator[Any]:
    """An operator that a program registers step by step, removed at the end."""
    relay.op.register(name, "Each element times a factor.")
    try:
        yield relay.op.get(name)
    finally:
        del graph_operators[name]


def scaled(op: Any) -> None:
    op.set_num_inputs(1)
    op.add_argument("data", "Tensor", "The elements.")
    op.add_type_rel("test.Scale", lambda types, attrs: types[0])
    op.set_support_level(10)
    op.set_attrs_type_key("DictAttrs")

    @relay.op.register_compute(op.name)
    def compute(attrs: Any, inputs: Any, out_type: Any) -> Any:
        return [topi.multiply(inputs[0], te.const(attrs.factor, inputs[0].dtype))]

    relay.op.register_pattern(op.name, OpPattern.ELEMWISE)


def run(body: Any, *args: Any, params: Any = None) -> Any:
    func = body if isinstance(body, relay.Function) else relay.Function(relay.analysis.free_vars(body), body)
    return relay.create_executor("graph").evaluate(func)(*args).numpy()


def test_add_an_operator_to_relay() -> None:
    """What the tutorial does in C++ and Python: registration, type, compute, fusion, gradient, a constructor."""
    with operator("test.scale") as op:
        scaled(op)
        relay.op.register_gradient("test.scale", lambda call, g: [relay.Call(op, [g], call.attrs)])

        def scale(data: Any, factor: float) -> Any:
            return relay.Call(op, [data], {"factor": factor})

        assert op.num_inputs == 1 and op.inputs == ("data",) and op.has_attr("FTVMCompute")
        x = relay.var("x", shape=(2, 3))
        func = relay.Function([x], relay.exp(scale(x, 2.0)))
        fused = run_opt_pass(func, relay.transform.FuseOps(2))
        assert (
            len([e for e in relay.analysis.post_order(fused) if isinstance(e, relay.Function)]) == 2
        )  # one kernel
        np.testing.assert_allclose(run(func, X), np.exp(2 * X), rtol=1e-6)
        _, (grad,) = relay.create_executor().evaluate(relay.transform.gradient(func))(X)
        np.testing.assert_allclose(grad.numpy(), 2 * np.exp(2 * X), rtol=1e-6)


def test_classic_registration() -> None:
    with operator("test.same") as op:
        op.set_num_inputs(2)
        op.add_argument("a", "Tensor", "")
        op.add_argument("b", "Tensor", "")
        op.add_type_rel("Broadcast")
        relay.op.register_pattern("test.same", OpPattern.BROADCAST)
        relay.op.register_stateful("test.same", True)
        assert op.get_attr("TOpPattern") == OpPattern.BROADCAST and op.get_attr("TOpIsStateful") is True
        call = relay.infer_type(relay.Call(op, [relay.var("x", shape=(2, 1)), relay.var("y", shape=(3,))]))
        assert call.checked_type == relay.TensorType((2, 3))
        with pytest.raises(tvm.TVMError, match=r"'test\.same' is declared twice"):
            relay.op.register("test.same")
        with pytest.raises(ValueError, match=r"add_type_rel\('Identiti'\): .*did you mean Identity"):
            op.add_type_rel("Identiti")
        with pytest.raises(tvm.TVMError, match=r"test\.same has no compute to schedule"):
            relay.op.register_injective_schedule("test.same")
    tvm.ir.register_op_attr("exp", "test.attr", 3)  # the graph's, not `tir.exp`
    assert relay.op.get("exp").get_attr("test.attr") == 3
    relay.op.get("exp").reset_attr("test.attr")
    assert relay.op.get("exp").get_attr("test.attr") is None


def test_the_higher_level_wins() -> None:
    op = relay.op.get("exp")
    try:
        tvm.ir.register_op_attr("exp", "test.attr", 1)
        tvm.ir.register_op_attr("exp", "test.attr", 2, level=11)
        tvm.ir.register_op_attr("exp", "test.attr", 3)
        assert op.get_attr("test.attr") == 2
        with TempOpAttr("exp", "test.attr", 4):
            assert op.get_attr("test.attr") == 4
        assert op.get_attr("test.attr") == 2
    finally:
        op.reset_attr("test.attr")


# ---------------------------------------------------------------------------- implementations
def dense_compute(attrs: Any, inputs: Any, out_type: Any) -> Any:
    k = te.reduce_axis((0, inputs[0].shape[1]), "k")
    product = te.compute(
        out_type.shape, lambda i, j: te.sum(inputs[0][i, k] * inputs[1][j, k], axis=k), name="my_dense"
    )
    return [te.compute(out_type.shape, lambda i, j: product[i, j] + te.const(1, "float32"), name="one_more")]


def tiled(calls: list[Any]) -> Any:
    def schedule(attrs: Any, outs: Any, target: Any) -> te.Schedule:
        calls.append((outs, target))
        s = te.create_schedule([t.op for t in outs])
        i, j = s[outs[0]].op.axis
        _, inner = s[outs[0]].split(j, factor=2)
        s[outs[0]].unroll(inner)
        s[outs[0]].parallel(i)
        return s

    return schedule


def dense(rows: int = 2) -> relay.Function:
    x, w = relay.var("x", shape=(rows, 3)), relay.const(np.ones((4, 3), "float32"))
    return relay.Function([x], relay.nn.relu(relay.nn.dense(x, w)))


def test_the_implementation_of_the_highest_level_is_compiled() -> None:
    calls: list[Any] = []

    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        made = OpStrategy()
        made.add_implementation(wrap_compute_dense(topi.nn.dense), naive_schedule, "dense.auto", 10)
        made.add_implementation(dense_compute, tiled(calls), "dense.mine", 20)
        return made

    wanted = X.sum(axis=1, keepdims=True) + np.zeros((2, 4), "float32")
    np.testing.assert_allclose(run(dense(), X), wanted)
    with TempOpAttr("nn.dense", "FTVMStrategy", strategy):
        np.testing.assert_allclose(run(dense(), X), wanted + 1)
        outs, target = calls[-1]
        assert target.kind.name == "llvm" and outs[0].op.name != "one_more"  # relu is fused after it
        shapes = [te.placeholder((2, 3)), te.placeholder((4, 3))]
        attrs, kind = relay.infer_type(dense()).body.args[0].attrs, relay.TensorType((2, 4))
        select = relay.backend.te_compiler.select_implementation
        chosen, tensors = select(relay.op.get("nn.dense"), attrs, shapes, kind, tvm.target.Target("llvm"))
        assert chosen.name == "dense.mine" and tensors[0].op.name == "one_more"
    np.testing.assert_allclose(run(dense(), X), wanted)


def test_the_loops_are_those_of_the_schedule() -> None:
    x = relay.var("x", shape=(4, 8))
    calls: list[Any] = []
    with TempOpAttr("exp", "FTVMStrategy", None):
        relay.op.register_schedule("exp", tiled(calls), level=100)
        func = relay.infer_type(relay.Function([x], relay.exp(x), attrs={"Primitive": 1}))
        from tilewright.relay.backend.lower import lower_function

        text = str(lower_function(func, (), tvm.target.Target("llvm"), "main").func)
    assert "T.parallel(4)" in text and "T.unroll(2)" in text
    assert len(calls) == 1


def test_conditions_choose() -> None:
    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        made = OpStrategy()
        made.add_implementation(wrap_compute_dense(topi.nn.dense), naive_schedule, "plain")
        with SpecializedCondition(inputs[0].shape[0] > 3):
            made.add_implementation(dense_compute, naive_schedule, "large", 20)
        return made

    with TempOpAttr("nn.dense", "FTVMStrategy", strategy):
        np.testing.assert_allclose(run(dense(2), X)[0, 0], 3)
        many = np.concatenate([X, X])
        np.testing.assert_allclose(run(dense(4), many)[0, 0], 4)


def test_strategies_are_extended_for_keys_of_targets() -> None:
    op = relay.op.get("nn.dense")
    before = op.get_attr("FTVMStrategy")
    generic = relay.op.strategy.generic.dense_strategy
    try:
        np.testing.assert_allclose(run(dense(), X)[0, 0], 3)

        def mine(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
            made = OpStrategy()
            made.add_implementation(
                dense_compute, wrap_topi_schedule(topi.generic.schedule_dense), "dense.cpu"
            )
            return made

        generic.register(mine, "cpu")
        np.testing.assert_allclose(run(dense(), X)[0, 0], 4)
    finally:
        op.reset_attr("FTVMStrategy")
        if before is not None:
            op.set_attr("FTVMStrategy", before)


def test_strategies_that_are_wrong() -> None:
    def none(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        return OpStrategy()

    def schedules_nothing(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        made = OpStrategy()
        made.add_implementation(dense_compute, lambda attrs, outs, target: "fast", "dense.text")
        return made

    for strategy, text in (
        (none, "nn.dense: its strategy has no implementation for these arguments on target llvm"),
        (lambda *a: 3, "nn.dense: its strategy returns int and must return an OpStrategy"),
        (schedules_nothing, "nn.dense: the schedule of dense.text returns str and must return a te.Schedule"),
    ):
        with TempOpAttr("nn.dense", "FTVMStrategy", strategy), pytest.raises(tvm.TVMError, match=text):
            run(dense(), X)


# ---------------------------------------------------------------------------- rules of passes
def test_rules_of_layouts_and_legalization() -> None:
    x, w = relay.var("x", shape=(1, 4, 5, 5)), relay.var("w", shape=(4, 4, 3, 3))
    func = relay.Function([x, w], relay.nn.conv2d(x, w, kernel_size=(3, 3)))
    seen: list[Any] = []

    def to_nhwc(attrs: Any, inputs: Any, types: Any, layouts: Any) -> Any:
        seen.append(layouts)
        changed = attrs.replace(data_layout="NHWC", kernel_layout="HWIO")
        return relay.Call(relay.op.get("nn.conv2d"), inputs, changed)

    with TempOpAttr("nn.conv2d", "FTVMConvertOpLayout", None):
        relay.op.register_convert_op_layout("nn.conv2d", to_nhwc, level=101)
        made = run_opt_pass(func, relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}))
    assert seen == [["NHWC", "default"]] and 'data_layout="NHWC"' in str(made)
    with TempOpAttr("nn.relu", "FTVMLegalize", None):

        @relay.op.register_legalize("nn.relu", level=101)
        def legal(attrs: Any, inputs: Any, types: Any) -> Any:
            return relay.maximum(inputs[0], relay.const(0.0))

        func = relay.Function([x], relay.nn.relu(x))
        made = run_opt_pass(func, relay.transform.Legalize())
        built, _ = relay.optimize(tvm.IRModule.from_expr(func), "llvm")
    assert relay.analysis.count_calls(made, "maximum") == 1
    assert relay.analysis.count_calls(built["main"], "maximum") == 1


def test_rule_of_mixed_precision() -> None:
    x = relay.var("x", shape=(2,))
    func = relay.Function([x], relay.exp(x))
    with TempOpAttr("exp", "FTVMMixedPrecisionConversionType", None):
        always = relay.transform.mixed_precision.MIXED_PRECISION_ALWAYS
        relay.op.register_mixed_precision_conversion(
            "exp", lambda call, kind: [always, kind, kind], level=101
        )
        made = relay.transform.ToMixedPrecision("float16")(tvm.IRModule.from_expr(func))["main"]
    assert made.body.checked_type.dtype == "float16"


def quantized(build: Any) -> relay.Function:
    x = relay.var("x", shape=(2, 3), dtype="int8")
    scale, zero = relay.const(0.5), relay.const(3)
    real = build(relay.qnn.op.dequantize(x, scale, zero))
    return relay.Function([x], relay.qnn.op.quantize(real, scale, zero, out_dtype="int8"))


@pytest.mark.parametrize("optional", [False, True])
def test_rule_of_fake_quantization(optional: bool) -> None:
    seen: list[Any] = []

    def rule(call: Any, types: Any) -> Any:
        kind = types[call.args[0]]
        seen.append(kind)
        return [relay.op.get("round")(call.args[0]), kind]

    key = f"FTVM{'Optional' if optional else ''}FakeQuantizationToInteger"
    register = (
        relay.op.register_optional_fake_quantization_to_integer
        if optional
        else relay.op.register_fake_quantization_to_integer
    )
    make = relay.transform.FakeQuantizationToInteger
    with TempOpAttr("round", key, None):
        register("round", rule, level=101)
        func = quantized(relay.round)
        made = run_opt_pass(func, make(optional_qnn_ops=["round"]))
        plain = run_opt_pass(func, make())
    assert str(seen[0].dtype) == "int8" and seen[0].scale.numpy() == 0.5
    assert made.body.op.name == "round" and made.body.args[0] is made.params[0]
    assert (plain.body.op.name == "qnn.quantize") is optional
    with (
        TempOpAttr("round", key, lambda call, types: call),
        pytest.raises(tvm.TVMError, match="the rule of round must return an expression and its TensorAffine"),
    ):
        run_opt_pass(func, make(optional_qnn_ops=["round"]))


def test_rule_of_layouts_that_follow() -> None:
    from tilewright.relay.transform.infer_layout_utils import InferCorrectLayoutOutput

    asked: list[Any] = []

    def follow(attrs: Any, new: Any, old: Any, types: Any) -> InferCorrectLayoutOutput:
        asked.append((new, old))
        layouts = new or old
        return InferCorrectLayoutOutput(layouts, layouts, attrs)

    x, w = relay.var("x", shape=(1, 4, 5, 5)), relay.var("w", shape=(4, 4, 3, 3))
    with operator("test.scale") as op:
        scaled(op)
        relay.op.register_pattern("test.scale", OpPattern.OPAQUE)
        y = relay.Call(op, [relay.nn.conv2d(x, w, kernel_size=(3, 3))], {"factor": 2.0})
        func = relay.Function([x, w], y)
        to_nhwc = relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})
        assert run_opt_pass(func, to_nhwc).body.op is op  # without a rule it stays in NCHW
        relay.op.register_infer_correct_layout("test.scale", follow)
        made = run_opt_pass(func, to_nhwc)
    assert asked == [([], ["NCHW"]), (["NHWC"], ["NCHW"])]
    assert made.body.op.name == "layout_transform" and made.body.args[0].op is op


def test_shape_function() -> None:
    from tilewright.runtime.shape_functions import SHAPE_FUNCTIONS

    with operator("test.first") as op:
        op.set_num_inputs(2)
        op.add_type_rel("test.First", lambda types, attrs: relay.TensorType((relay.Any(),), types[0].dtype))

        @relay.op.register_compute("test.first")
        def compute(attrs: Any, inputs: Any, out_type: Any) -> Any:
            return [te.compute((te.size_var("n", "int32"),), lambda i: inputs[0][i] * te.const(2, "float32"))]

        @relay.op.register_shape_func("test.first", [False, True])
        def sizes(attrs: Any, inputs: Any, out_ndims: Any) -> Any:
            assert out_ndims == [1]
            return [te.compute((1,), lambda i: tvm.tir.min(inputs[0][0], inputs[1][0].astype("int64")))]

        try:
            x, n = relay.var("x", shape=(5,)), relay.var("n", shape=(1,), dtype="int32")
            func = relay.Function([x, n], relay.Call(op, [x, n]))
            call = relay.create_executor("vm").evaluate(func)
            data = np.arange(5, dtype="float32")
            np.testing.assert_array_equal(call(data, np.array([3], "int32")).numpy(), 2 * data[:3])
            np.testing.assert_array_equal(call(data, np.array([9], "int32")).numpy(), 2 * data)
        finally:
            del SHAPE_FUNCTIONS["test.first"]
