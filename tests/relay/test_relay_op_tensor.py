"""Operators element by element: values against NumPy, types against computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.relay.op import OpPattern, get
from tilewright.relay.testing import run_infer_type, te_outputs

UNARY = {
    "exp": np.exp, "log": np.log, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "atanh": np.arctanh, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "round": np.round, "abs": np.abs, "sign": np.sign,
    "negative": np.negative, "copy": np.copy, "isnan": np.isnan, "isfinite": np.isfinite, "isinf": np.isinf,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "zeros_like": np.zeros_like, "ones_like": np.ones_like,
}  # fmt: skip
BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "power": np.power,
    "maximum": np.maximum, "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal,
    "less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "floor_divide": np.floor_divide, "mod": np.fmod, "floor_mod": np.mod,
}  # fmt: skip
INTEGER = {
    "left_shift": np.left_shift, "right_shift": np.right_shift, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "floor_divide": np.floor_divide,
    "trunc_divide": lambda a, b: (a / b).astype("int32"), "trunc_mod": np.fmod,
}  # fmt: skip


def test_unary_operators(run_graph: Any, rng: Any) -> None:
    x = rng.uniform(0.1, 0.9, (3, 5)).astype("float32")
    v = relay.var("x", shape=(3, 5))
    got = run_graph(relay.Tuple([getattr(relay, n)(v) for n in UNARY]), x=x)
    for (name, f), y in zip(UNARY.items(), got, strict=True):
        np.testing.assert_allclose(y, f(x), rtol=1e-5, atol=1e-6, err_msg=name)
        assert get(name).pattern == OpPattern.ELEMWISE


def test_binary_operators_broadcast(run_graph: Any, rng: Any) -> None:
    a, b = rng.uniform(0.5, 3, (4, 1, 3)).astype("float32"), rng.uniform(0.5, 3, (2, 1)).astype("float32")
    x, y = relay.var("x", shape=a.shape), relay.var("y", shape=b.shape)
    got = run_graph(relay.Tuple([getattr(relay, n)(x, y) for n in BINARY]), x=a, y=b)
    for (name, f), z in zip(BINARY.items(), got, strict=True):
        np.testing.assert_allclose(z, f(a, b), rtol=1e-5, err_msg=name)
        assert get(name).pattern == OpPattern.BROADCAST


def test_integer_operators(run_graph: Any, rng: Any) -> None:
    a, b = rng.integers(-20, 20, (4,)).astype("int32"), rng.integers(1, 5, (4,)).astype("int32")
    x, y = relay.var("x", shape=(4,), dtype="int32"), relay.var("y", shape=(4,), dtype="int32")
    got = run_graph(relay.Tuple([getattr(relay, n)(x, y) for n in INTEGER]), x=a, y=b)
    for (name, f), z in zip(INTEGER.items(), got, strict=True):
        np.testing.assert_array_equal(z, f(a, b), err_msg=name)


def test_operators_with_attributes(run_graph: Any, rng: Any) -> None:
    x = rng.uniform(-2, 2, (2, 3)).astype("float32")
    c = np.array([True, False, True])
    v, k = relay.var("x", shape=(2, 3)), relay.var("c", shape=(3,), dtype="bool")
    pairs = [
        (relay.clip(v, -1.0, 0.5), np.clip(x, -1, 0.5)),
        (relay.cast(v, "int32"), x.astype("int32")),
        (relay.where(k, v, -v), np.where(c, x, -x)),
        (relay.logical_not(k), ~c),
        (relay.full_like(v, 3.0), np.full_like(x, 3)),
        (relay.reinterpret(v, "int32"), x.view("int32")),
        (relay.cast_like(v, relay.const(1, "float64")), x.astype("float64")),
        (relay.shape_of(v), np.array([2, 3])),
        (relay.ndarray_size(v), np.array(6)),
        (relay.zeros((2,), "int8"), np.zeros(2, "int8")),
        (relay.full(relay.const(2.0), (2, 2)), np.full((2, 2), 2.0)),
    ]
    got = run_graph(relay.Tuple([e for e, _ in pairs]), x=x, c=c)
    for (e, want), y in zip(pairs, got, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-6, err_msg=e.op.name)


@pytest.mark.parametrize("name", ["exp", "add", "less", "where"])
def test_symbolic_sizes_compute(name: str) -> None:
    from tilewright import te

    n = te.size_var("n")
    x, c = relay.var("x", shape=(n, 3)), relay.var("c", shape=(n, 1), dtype="bool")
    op = getattr(relay, name)
    call = op(x) if name == "exp" else op(c, x, x) if name == "where" else op(x, x)
    assert len(te_outputs(call)) == 1


def test_a_computed_shape_takes_the_dynamic_operator() -> None:
    made = relay.zeros(relay.var("s", shape=(2,), dtype="int64"), "float32")
    assert made.op.name == "dyn.zeros"
    assert run_infer_type(relay.zeros(relay.const([2, 3]), "float32")).checked_type.shape == (2, 3)


def test_marks_let_values_through(run_graph: Any) -> None:
    x = relay.var("x", shape=(2,))
    marks = relay.annotation
    made = [marks.stop_fusion(x), marks.checkpoint(x), marks.on_device(x, "cpu")]
    for got in run_graph(relay.Tuple(made), x=np.array([1, 2], "float32")):
        np.testing.assert_array_equal(got, [1, 2])
    assert {get(n).pattern for n in ("annotation.stop_fusion", "on_device")} == {OpPattern.OPAQUE}
