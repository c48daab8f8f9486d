"""Elementwise operators of one and two arguments against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError
from tilewright.runtime.dtypes import element

Check = Callable[..., None]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTS = ["int32", *(pytest.param(d, marks=pytest.mark.slow) for d in ("int8", "int16", "int64", "uint8"))]
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def numpy_type(dtype: str) -> Any:
    return element(dtype).numpy


def special_values(dtype: str, low: float, high: float) -> Any:
    rng = np.random.default_rng(0)
    x = rng.uniform(low, high, 97)
    x[:5] = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    return x.astype(numpy_type(dtype))


ANY_RANGE: dict[str, Any] = {
    "identity": lambda x: x,
    "negative": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "erf": special.erf,
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.round,
    "sign": np.sign,
    "isnan": np.isnan,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
}
POSITIVE: dict[str, Any] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
UNIT: dict[str, Any] = {"asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh}


@pytest.mark.parametrize("dtype", ["float32", *(pytest.param(d, marks=pytest.mark.slow) for d in FLOATS[1:])])
def test_unary_of_floats(check: Check, dtype: str) -> None:
    tolerance = TOLERANCE[dtype]
    groups = [(ANY_RANGE, -3.0, 3.0), (POSITIVE, 0.1, 9.0), (UNIT, -1.0, 1.0)]
    feed: dict[Any, Any] = {}
    outs, wanted = [], []
    for table, low, high in groups:
        x = special_values(dtype, low, high)
        a = te.placeholder(x.shape, dtype)
        feed[a] = x
        wide = x.astype(np.float64)
        with np.errstate(all="ignore"):
            for name, reference in table.items():
                outs.append(getattr(topi, name)(a))
                wanted.append(reference(wide).astype(bool if name.startswith("is") else numpy_type(dtype)))
    check(outs, feed, wanted, tolerance, tolerance)


def test_unary_with_narrow_ranges(check: Check) -> None:
    x = np.linspace(1, 40, 61).astype("float32")
    a = te.placeholder((61,))
    check([topi.acosh(a), topi.log1p(a)], {a: x}, [np.arccosh(x), np.log1p(x)])


@pytest.mark.parametrize("dtype", INTS)
def test_unary_of_integers(check: Check, dtype: str) -> None:
    x = np.arange(-8, 9).astype(dtype)
    a = te.placeholder(x.shape, dtype)
    small = np.abs(x.astype("int64")).clip(0, 16)
    b = te.placeholder(x.shape, dtype)
    outs = [topi.abs(a), topi.sign(a), topi.floor(a), topi.round(a), topi.isnan(a), topi.bitwise_not(a)]
    outs += [topi.negative(a), topi.clip(a, 2, 5), topi.clip(a, -1000, 1000), topi.exp(b), topi.ceil_log2(b)]
    log = [0 if v < 2 else int(np.ceil(np.log2(v))) for v in small]
    wanted = [np.abs(x), np.sign(x), x, x, np.zeros(17, bool), ~x, np.negative(x), x.clip(2, 5), x]
    check(
        outs, {a: x, b: small.astype(dtype)}, [*wanted, np.exp(small.astype("float32")), np.array(log, dtype)]
    )


def test_clip_cast_reinterpret_sum(check: Check) -> None:
    x = special_values("float32", -3, 3)
    a = te.placeholder(x.shape)
    finite = np.nan_to_num(x, nan=0.5, posinf=2.5, neginf=-7.9)
    b = te.placeholder(x.shape)
    outs = [
        topi.clip(a, -1.0, 1.0),
        topi.clip(a, topi.full((1,), "float32", -2), 1),
        topi.cast(b, "int32"),
        topi.cast(b, "bool"),
        topi.cast(b, "float16"),
        topi.reinterpret(b, "int32"),
        topi.elemwise_sum([b, b, b]),
        topi.full_like(b, 3),
    ]
    wanted = [
        x.clip(-1, 1),
        x.clip(-2, 1),
        finite.astype("int32"),
        finite.astype(bool),
        finite.astype("float16"),
        finite.view("int32"),
        finite * 3,
        np.full_like(finite, 3),
    ]
    check(outs, {a: x, b: finite}, wanted)
    assert topi.cast(b, "float32") is b


@pytest.mark.slow
def test_fast_approximations(check: Check) -> None:
    x = np.linspace(-20, 20, 4001).astype("float32")
    a, h = te.placeholder(x.shape), te.placeholder((3,), "float64")
    wide = x.astype("float64")
    check([topi.fast_exp(a)], {a: x}, [np.exp(wide)], 1e-6, 0)
    check([topi.fast_tanh(a), topi.fast_erf(a)], {a: x}, [np.tanh(wide), special.erf(wide)], 2e-6, 1e-7)
    y = np.array([-1.0, 0.0, 0.5])
    check([topi.fast_exp(h)], {h: y}, [np.exp(y)], 1e-13, 0)


def test_fixed_point(check: Check) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-(2**20), 2**20, (5, 7)).astype("int32")
    m = rng.integers(2**30, 2**31 - 1, 7).astype("int32")
    left, right = np.arange(7).astype("int32") % 3, np.arange(7).astype("int32") % 4
    a = te.placeholder(x.shape, "int32")
    y, s, t = (te.placeholder((7,), "int32") for _ in range(3))

    def reference(mult: Any, shift: Any) -> Any:
        return np.floor(x.astype(object) * mult * 2.0**shift / 2**31 + 0.5).astype("int32")

    outs = [topi.fixed_point_multiply(a, int(m[0]), 2), topi.fixed_point_multiply(a, int(m[1]), -5)]
    outs.append(topi.fixed_point_multiply_per_axis(a, y, s, t, True, True, [1]))
    wanted = [reference(int(m[0]), 2), reference(int(m[1]), -5)]
    wanted.append(reference(m.astype(object), (left - right).astype(float)))
    check(outs, {a: x, y: m, s: left, t: right}, wanted)


# ---------------------------------------------------------------------------- two operands
ARITHMETIC: dict[str, Any] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": np.fmod,
    "greater": np.greater,
    "less": np.less,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater_equal": np.greater_equal,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
BITS: dict[str, Any] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


@pytest.mark.parametrize("dtype", ["float32", *(pytest.param(d, marks=pytest.mark.slow) for d in FLOATS[1:])])
def test_binary_of_floats(check: Check, dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-9, 9, (5, 1, 7)).astype(numpy_type(dtype))
    y = rng.uniform(1, 4, (3, 7)).astype(numpy_type(dtype))
    a, b = te.placeholder(x.shape, dtype), te.placeholder(y.shape, dtype)
    p, q = x.astype("float64"), y.astype("float64")
    names = {**ARITHMETIC, "divide": np.divide, "atan2": np.arctan2}
    if dtype in ("float16", "bfloat16"):  # a rounded quotient may cross a whole number
        names = {k: v for k, v in names.items() if k not in ("floor_divide", "floor_mod", "mod")}
    outs = [getattr(topi, n)(a, b) for n in names] + [topi.power(topi.abs(a), b), topi.power(a, 2)]
    wanted = [f(p, q) for f in names.values()] + [np.power(np.abs(p), q), p * p]
    check(outs, {a: x, b: y}, wanted, TOLERANCE[dtype] * 4, TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", INTS)
def test_binary_of_integers(check: Check, dtype: str) -> None:
    rng = np.random.default_rng(3)
    low = 0 if dtype[0] == "u" else -20
    x = rng.integers(low, 21, (4, 1, 5)).astype(dtype)
    y = rng.integers(low, 21, (3, 5)).astype(dtype)
    y[y == 0] = 3
    small = rng.integers(0, 7, (3, 5)).astype(dtype)
    a, b, c = te.placeholder(x.shape, dtype), te.placeholder(y.shape, dtype), te.placeholder((3, 5), dtype)
    table = {**ARITHMETIC, **BITS}
    outs = [getattr(topi, n)(a, b) for n in table]
    outs += [topi.divide(a, b), topi.left_shift(a, c), topi.right_shift(a, c), topi.power(a, c)]
    with np.errstate(over="ignore"):
        wanted = [f(x, y) for f in table.values()]
        wanted += [
            np.trunc(x / y.astype("float64")).astype(dtype),
            np.left_shift(x, small),
            np.right_shift(x, small),
            np.power(x, small),
        ]
    check(outs, {a: x, b: y, c: small}, wanted)


@pytest.mark.slow
def test_integer_powers_at_the_ends(check: Check) -> None:
    x = np.array([0, 1, -1, 2, -2, 3, 5], "int64")[:, None]
    y = np.array([0, 1, 2, 13, 31, 62, 63], "int64")
    a, b = te.placeholder((7, 1), "int64"), te.placeholder((7,), "int64")
    with np.errstate(over="ignore"):
        check(topi.power(a, b), {a: x, b: y}, np.power(x, y))
    far = topi.power(a, topi.full((1,), "int64", 101))
    check(
        [far, topi.power(a, -1)],
        {a: x},
        [[[0], [1], [-1], [0], [0], [0], [0]], [[0], [1], [-1], [0], [0], [0], [0]]],
    )


def test_nan_and_infinity_meet(check: Check) -> None:
    v = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0], "float32")
    x, y = (np.ascontiguousarray(t) for t in np.meshgrid(v, v))
    a, b = te.placeholder((5, 5)), te.placeholder((5, 5))
    names = ("maximum", "minimum", "add", "subtract", "multiply", "less", "equal", "not_equal", "logical_and")
    with np.errstate(all="ignore"):
        check([getattr(topi, n)(a, b) for n in names], {a: x, b: y}, [ARITHMETIC[n](x, y) for n in names])


@pytest.mark.slow
def test_truth_values(check: Check) -> None:
    x = np.array([[True], [False]])
    y = np.array([True, False])
    a, b = te.placeholder((2, 1), "bool"), te.placeholder((2,), "bool")
    names = ["logical_and", "logical_or", "logical_xor", *BITS, "equal", "not_equal", "add", "multiply"]
    names += ["maximum", "minimum", "less", "greater_equal"]
    outs = [getattr(topi, n)(a, b) for n in names] + [topi.logical_not(a), topi.bitwise_not(a)]
    table = {**ARITHMETIC, **BITS}
    check(outs, {a: x, b: y}, [table[n](x, y) for n in names] + [~x, ~x])
    for name in ("subtract", "divide", "floor_mod", "power", "left_shift"):
        with pytest.raises(TensorExpressionError, match=rf"topi\.{name}: both operands are bool"):
            getattr(topi, name)(a, b)
    with pytest.raises(TensorExpressionError, match=r"topi\.negative: bool has no negative"):
        topi.negative(a)


def test_where_and_broadcast_to(check: Check) -> None:
    rng = np.random.default_rng(4)
    c, x, y = rng.integers(0, 2, (3, 1)), rng.random((1, 5), "float32"), rng.random((3, 5), "float32")
    p, a, b = te.placeholder((3, 1), "int32"), te.placeholder((1, 5)), te.placeholder((3, 5))
    outs = [topi.where(p, a, b), topi.where(topi.greater(b, 0.5), b, 0.0), topi.broadcast_to(a, (2, 3, 5))]
    wanted = [np.where(c, x, y), np.where(y > 0.5, y, 0), np.broadcast_to(x, (2, 3, 5))]
    check(outs, {p: c.astype("int32"), a: x, b: y}, wanted)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (13, 17)])
def test_shapes(check: Check, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(5).random(shape).astype("float32")
    a = te.placeholder(shape)
    check([topi.exp(a), topi.add(a, a), topi.subtract(1, a)], {a: x}, [np.exp(x), x + x, 1 - x])


@pytest.mark.slow
def test_symbolic_shapes(check: Check) -> None:
    n, m = te.size_var("n"), te.var("m")
    x, y = np.random.default_rng(6).random((2, 7, 5)).astype("float32")
    a, b, row = te.placeholder((n, m)), te.placeholder((n, m)), te.placeholder((1, m))
    outs = [topi.add(a, b), topi.multiply(a, row), topi.tanh(a), topi.broadcast_to(row, (n, m))]
    check(outs, {a: x, b: y, row: y[:1]}, [x + y, x * y[:1], np.tanh(x), np.broadcast_to(y[:1], (7, 5))])


def test_numbers_alone_give_expressions() -> None:
    v = te.var("v", "float32")
    assert topi.add(2, 3).value == 5
    assert str(topi.exp(v).dtype) == "float32"
    assert topi.cast(v, "int32").dtype == "int32"


def test_tags() -> None:
    a, b = te.placeholder((3,)), te.placeholder((3,))
    assert topi.exp(a).op.tag == topi.tag.ELEMWISE
    assert topi.add(a, 1).op.tag == topi.tag.ELEMWISE
    assert topi.add(a, b).op.tag == topi.tag.BROADCAST
    with te.tag_scope("mine"):
        assert topi.add(a, b).op.tag == "mine"
    assert topi.tag.is_injective("injective,x") and not topi.tag.is_injective(topi.tag.COMM_REDUCE)


def test_refusals() -> None:
    a, b = te.placeholder((3, 4)), te.placeholder((5,))
    with pytest.raises(
        TensorExpressionError, match=r"topi\.add: shapes \(3, 4\) and \(5,\) do not broadcast"
    ):
        topi.add(a, b)
    with pytest.raises(TensorExpressionError, match=r"topi\.bitwise_and: .*float32"):
        topi.bitwise_and(a, a)
    with pytest.raises(TensorExpressionError, match=r"topi\.add: no common type for float16 and bfloat16"):
        topi.add(te.placeholder((2,), "float16"), te.placeholder((2,), "bfloat16"))
    with pytest.raises(TensorExpressionError, match=r"topi\.exp: an operand is 'x'"):
        topi.exp("x")
    with pytest.raises(TensorExpressionError, match=r"topi\.cast: dtype: .*float99"):
        topi.cast(a, "float99")
    with pytest.raises(TensorExpressionError, match=r"topi\.broadcast_to: .*\(3, 4\).*\(3, 1\)"):
        topi.broadcast_to(a, (3, 1))
    with pytest.raises(TensorExpressionError, match=r"topi\.floor_divide: division by zero"):
        topi.floor_divide(te.placeholder((2,), "int32"), 0)
