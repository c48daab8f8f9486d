"""Expressions, types and modules of the graph IR."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.ir import IRModule, assert_structural_equal, structural_equal, structural_hash
from tilewright.ir.errors import UnsupportedError


def test_types_are_compared_by_what_they_say() -> None:
    n = te.size_var("n")
    assert relay.TensorType((1, n), "float32") == relay.TensorType((1, n), "float32")
    assert relay.TensorType((1, n), "float32") != relay.TensorType((1, te.size_var("n")), "float32")
    assert relay.TensorType((relay.Any(),), "int8") == relay.TensorType((relay.Any(),), "int8")
    assert relay.TensorType((relay.Any(),), "int8") != relay.TensorType((1,), "int8")
    assert str(relay.TensorType((3, relay.Any()), "int8")) == "Tensor[(3, ?), int8]"
    pair = relay.TupleType([relay.scalar_type("int32"), relay.TensorType((2,))])
    assert str(pair) == "(Tensor[(), int32], Tensor[(2,), float32])"
    assert hash(relay.TensorType((2, 3))) == hash(relay.TensorType((2, 3)))


def test_a_type_refuses_what_is_no_size() -> None:
    with pytest.raises(TypeError, match="a size is an integer"):
        relay.TensorType(("3",), "float32")
    with pytest.raises(ValueError, match=r"unknown is relay\.Any"):
        relay.TensorType((-1,), "float32")


def test_vars_constants_and_operators() -> None:
    x = relay.var("x", shape=(2, 3), dtype="float16")
    y = 2 * x + 1
    assert y.op.name == "add" and y.args[0].op.name == "multiply"
    assert y.args[1].data.dtype == "float16"
    assert (x < 1).op.name == "less" and (-x).op.name == "negative" and (1 / x).op.name == "divide"
    assert x.astype("int8").attrs.dtype == "int8"
    assert relay.const(1).data.dtype == "int32" and relay.const(1.5).data.dtype == "float32"
    assert relay.const([1.0, 2.0]).checked_type == relay.TensorType((2,), "float32")
    # NumPy's own choices of types are those of a model, as in TVM; what is asked for, or would not fit, is kept
    assert (
        relay.const(np.zeros(2)).data.dtype == "float32" and relay.const(np.arange(2)).data.dtype == "int32"
    )
    assert relay.const(np.zeros(2), "float64").data.dtype == "float64"
    assert relay.const(np.array([1 << 40])).data.dtype == "int64"
    assert relay.const(tvm.nd.array(np.zeros(2))).data.dtype == "float64"
    assert relay.var("s", "int32").type_annotation == relay.scalar_type("int32")
    with pytest.raises(ValueError, match="InferType"):
        _ = y.checked_type


def test_nodes_do_not_change() -> None:
    x = relay.var("x", shape=(2,))
    call = relay.nn.relu(x)
    with pytest.raises(AttributeError):
        call.args = ()
    with pytest.raises(AttributeError, match="replace"):
        relay.clip(x, 0.0, 1.0).attrs.a_min = 2.0


def test_modules_hold_graph_functions() -> None:
    x = relay.var("x", shape=(2,))
    mod = IRModule.from_expr(relay.nn.relu(x))
    assert mod["main"].params == (x,)
    gv = tvm.ir.GlobalVar("f")
    mod[gv] = relay.Function([x], x + x)
    call = gv(relay.var("y", shape=(2,)))
    assert isinstance(call, relay.Call) and call.op is gv
    assert "def @main(%x: Tensor[(2), float32])" in mod.astext()
    assert mod["main"].with_attr("Primitive", 1).attrs == {"Primitive": 1}


def test_equality_is_up_to_names() -> None:
    def made(name: str) -> relay.Function:
        x = relay.var(name, shape=(2,))
        v = relay.var(name + "v")
        return relay.Function([x], relay.Let(v, relay.exp(x), relay.If(relay.const(True), v, x)))

    a, b = made("a"), made("b")
    assert structural_equal(a, b) and structural_hash(a) == structural_hash(b)
    assert not structural_equal(a.body, b.body)
    assert structural_equal(a.body, b.body, map_free_vars=True)
    assert structural_hash(a.body, True) == structural_hash(b.body, True)
    c = relay.Function(b.params, relay.exp(b.params[0]))
    with pytest.raises(ValueError, match=r"<root>\.body"):
        assert_structural_equal(a, c)


def test_equality_sees_sharing_attributes_and_arrays() -> None:
    x = relay.var("x", shape=(2,))
    e = relay.exp(x)
    assert not structural_equal(e + e, relay.exp(x) + relay.exp(x))
    assert structural_equal(e + relay.exp(x), relay.exp(x) + relay.exp(x))
    assert not structural_equal(relay.clip(x, 0.0, 1.0), relay.clip(x, 0.0, 2.0))
    assert not structural_equal(relay.const([1.0]), relay.const([2.0]))
    assert structural_equal(relay.const([1.0]), relay.const([1.0]))
    assert not structural_equal(relay.const(1, "int8"), relay.const(1, "int16"))


def test_bind_puts_values_in_place_of_parameters() -> None:
    x, w = relay.var("x", shape=(2,)), relay.var("w", shape=(2,))
    f = relay.Function([x, w], x * w)
    g = relay.build_module.bind_params_by_name(f, {"w": np.ones(2, "float32"), "unknown": 3})
    assert g.params == (x,) and isinstance(g.body.args[1], relay.Constant)
    assert relay.bind(f, {}) is f
    y = relay.var("y", shape=(2,))
    assert relay.bind(x * w, {x: y}).args == (y, w)
    with pytest.raises(ValueError, match="no variable 'z'"):
        relay.bind(f, {"z": 1})


def test_scope_builder_nests_branches() -> None:
    c, x = relay.var("c", "bool"), relay.var("x", "int32")
    sb = relay.ScopeBuilder()
    with sb.if_scope(c):
        one = sb.let("one", relay.const(1))
        sb.ret(one)
    with sb.else_scope():
        sb.ret(x)
    body = sb.get()
    assert isinstance(body, relay.If) and isinstance(body.true_branch, relay.Let)
    assert relay.testing.run_infer_type(body).checked_type == relay.scalar_type("int32")


def test_what_is_not_there_says_so() -> None:
    from tilewright.relay import prelude  # noqa: F401

    with pytest.raises(UnsupportedError):
        relay.prelude.TensorArrayOps()
