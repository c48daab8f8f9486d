"""The registry of operators: attributes, patterns, and how an operator is added."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay, topi
from tilewright.ir import IRModule
from tilewright.ir.op import graph_operators
from tilewright.relay.op import OpPattern, register
from tilewright.relay.op.attributes import dtype, flag, integer, ints, number, text
from tilewright.relay.op.registry import Dtype, Ints, Tensor, given, list_names, operator


def test_operators_are_found_by_name() -> None:
    conv = relay.op.get("nn.conv2d")
    assert conv is tvm.ir.Op.get("nn.conv2d") and relay.op.op.get("nn.conv2d") is conv
    assert conv.get_attr("TOpPattern") == 4 and conv.num_inputs == 2
    assert "nn.dense" in list_names()
    assert tvm.ir.Op.get("tir.exp") is not relay.op.get("exp")
    with pytest.raises(ValueError, match=r"no graph operator is named 'nn.conv'; did you mean"):
        relay.op.get("nn.conv")


def test_every_operator_has_a_type_and_a_meaning() -> None:
    for name in list_names():
        op: Any = graph_operators[name]
        assert op.rel is not None and isinstance(op.pattern, OpPattern), name


def test_attributes() -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    attrs = relay.nn.conv2d(x, w, strides=2, padding=(1, 2)).attrs
    assert attrs.strides == (2, 2) and attrs["padding"] == (1, 2, 1, 2) and attrs.out_dtype is None
    assert "groups" in attrs and attrs.keys()[0] == "strides"
    assert attrs == relay.nn.conv2d(x, w, strides=(2, 2), padding=(1, 2)).attrs
    assert attrs != relay.nn.conv2d(x, w).attrs
    assert attrs.replace(groups=2).groups == 2
    with pytest.raises(AttributeError, match=r"no attribute 'stride'; did you mean strides"):
        _ = attrs.stride
    op = relay.op.get("nn.conv2d")
    with pytest.raises(TypeError, match=r"nn\.conv2d has no attribute 'stride'; did you mean strides"):
        op(x, w, stride=1)
    with pytest.raises(TypeError, match="'groups' must be an integer: 'two'"):
        op(x, w, groups="two")
    with pytest.raises(TypeError, match=r"attribute 'a_min' \(number\) is missing"):
        relay.op.get("clip")(x)
    assert relay.Call(op, [x, w], {"groups": 1}).attrs.strides == (1, 1)


def test_an_operator_is_one_registration_and_one_constructor(run_graph: Any) -> None:
    def rel(types: list[Any], attrs: Any) -> Any:
        return relay.TensorType(types[0].shape, attrs.kind or types[0].dtype)

    op = register(
        "test.scaled",
        inputs=("data", "bias?"),
        attrs={
            "by": number(2.0),
            "kind": dtype(None),
            "axes": ints(()),
            "n": integer(0),
            "on": flag(True),
            "s": text("a"),
        },
        rel=rel,
        compute=lambda attrs, ins, out: [topi.multiply(ins[0], tvm.te.const(attrs.by, ins[0].dtype))],
        pattern=OpPattern.ELEMWISE,
    )
    try:
        x = relay.var("x", shape=(2,))
        f = relay.Function([x], op(x, by=3, axes=1, s='"quoted"'))
        assert 'test.scaled(%x, by=3.0f64, axes=[1], s="\\"quoted\\"")' in str(f)
        tvm.ir.assert_structural_equal(relay.fromtext(f.astext()), f)
        import numpy as np

        np.testing.assert_array_equal(run_graph(f.body, x=np.ones(2, "float32")), [3, 3])
        with pytest.raises(ValueError, match="declared twice"):
            register("test.scaled", inputs=(), rel=rel)
        relay.op.register_pattern("test.scaled", OpPattern.OPAQUE)
        assert op.pattern == OpPattern.OPAQUE
    finally:
        graph_operators.pop("test.scaled")


def test_a_pass_over_graph_functions() -> None:
    @relay.transform.function_pass(opt_level=1, name="ReluToExp")
    def relu_to_exp(func: Any, mod: Any, ctx: Any) -> Any:
        class Work(relay.ExprMutator):
            def visit_call(self, call: Any) -> Any:
                new = super().visit_call(call)
                return relay.exp(new.args[0]) if new.op.name == "nn.relu" else new

        return Work().visit(func)

    x = relay.var("x", shape=(2,))
    before = relay.Function([x], relay.nn.relu(x))
    expected = relay.testing.run_infer_type(relay.Function([x], relay.exp(x)))
    tvm.ir.assert_structural_equal(relay.testing.run_opt_pass(before, relu_to_exp), expected)
    mod = IRModule.from_expr(before)
    seq = tvm.transform.Sequential([relay.transform.InferType(), relu_to_exp])
    with tvm.transform.PassContext(opt_level=0):
        assert relay.analysis.list_op_freqs(seq(mod)) == {"nn.relu": 1}
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["ReluToExp"]):
        assert relay.analysis.list_op_freqs(seq(mod)) == {"nn.relu": 1}
    with tvm.transform.PassContext(opt_level=3):
        assert relay.analysis.list_op_freqs(seq(mod)) == {"exp": 1}


def test_a_signature_is_the_declaration() -> None:
    @operator("test.declared", rel=lambda types, attrs: types[0], results=lambda call: call.attrs.count)
    def declared(
        data: Tensor,
        bias: Tensor | None = None,
        axis: int = -1,
        count: int = 0,
        steps: Ints = (1,),
        *,
        kind: Dtype = "",
    ) -> relay.Call:
        """One of a kind."""
        if axis == 7:
            return given(axis=0)  # type: ignore[no-any-return]
        return relay.nn.relu(data) if axis == 8 else None  # type: ignore[return-value]

    op, x = relay.op.get("test.declared"), relay.var("x", shape=(2,))
    assert op.inputs == ("data", "bias?") and op.description == "One of a kind."
    kinds = [(k, a.kind, a.default) for k, a in op.spec.items()]
    assert kinds == [
        ("axis", "integer", -1), ("count", "integer", 0), ("steps", "integers", (1,)), ("kind", "dtype", None)
    ]  # fmt: skip
    assert len(declared(x).args) == 1 and len(declared(x, bias=x).args) == 2
    assert declared(x, None, 1, steps=relay.const([3, 4])).attrs.steps == (3, 4)
    assert declared(x, axis=7).attrs.axis == 0 and declared(x, axis=8).op.name == "nn.relu"
    assert len(declared(x, count=2)) == 2
    with pytest.raises(TypeError, match=r"declared\(\) got an unexpected keyword argument 'axes'"):
        declared(x, axes=1)  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"attribute 'axis' must be an integer: it is computed by the program"
    ):
        declared(x, axis=x)  # type: ignore[arg-type]


def test_a_declaration_says_what_each_parameter_is() -> None:
    with pytest.raises(TypeError, match=r"parameter 'sides' is annotated list\[int\], which says neither"):

        @operator("test.unclear", rel=lambda types, attrs: types[0])
        def unclear(data: Tensor, sides: list[int]) -> relay.Call:
            """Nobody knows."""
