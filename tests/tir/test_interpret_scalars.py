"""Single values: every type and operator against NumPy and exact arithmetic, random trees included."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import DataType, PrimFunc, decl_buffer
from tilewright.ir import expr as E
from tilewright.ir.expr import PrimExpr, Var, const
from tilewright.ir.op import ELEMENTWISE
from tilewright.ir.ops import call, cast, if_then_else, reinterpret
from tilewright.ir.stmt import BufferStore, For, ForKind
from tilewright.tir.interpret import interpret
from tilewright.tir.interpret.calls import _CALLS
from tilewright.tir.interpret.scalars import FUNCTIONS, numpy_type, rounding, wrap_to

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]


def held(dtype: str) -> np.dtype:
    return numpy_type(DataType(dtype))


def apply(
    expr_of: Callable[..., PrimExpr], *columns: np.ndarray, dtypes: list[str], result: str
) -> np.ndarray:
    """The expression over elements of the columns, one after the other."""
    size = len(columns[0])
    inputs = [decl_buffer((size,), d, f"x{n}") for n, d in enumerate(dtypes)]
    out = decl_buffer((size,), result, "out")
    i = Var("i")
    func = PrimFunc(
        [*inputs, out],
        For(i, 0, size, ForKind.SERIAL, BufferStore(out, expr_of(*(b[i] for b in inputs)), [i])),
    )
    got = np.zeros(size, held(result))
    interpret(func, *columns, got)
    return got


def samples(dtype: str) -> np.ndarray:
    kind = DataType(dtype)
    if kind.is_float:
        values = [0.0, -0.0, 1.0, -1.5, 2.5, 3.5, 0.3, -7.25, 100.0, 1e-3, math.inf, -math.inf, math.nan]
        return np.array(values).astype(held(dtype))
    low, high = int(kind.low), int(kind.high)
    values = {
        0,
        1,
        2,
        3,
        7,
        100,
        low,
        low + 1,
        high,
        high - 1,
        high // 2,
        max(low, -1),
        max(low, -7),
        max(low, -100),
    }
    return np.array(sorted(values), held(dtype))


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    a = samples(dtype)
    x, y = np.meshgrid(a, a)
    return x.ravel(), y.ravel()


# ---------------------------------------------------------------------------- integers
@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize(
    ("node", "exact"),
    [
        (E.Add, operator.add),
        (E.Sub, operator.sub),
        (E.Mul, operator.mul),
        (E.FloorDiv, operator.floordiv),
        (E.FloorMod, operator.mod),
        (E.Div, lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
        (E.Mod, lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1)),
        (E.Min, min),
        (E.Max, max),
    ],
)
def test_integers_wrap(dtype, node, exact):
    kind = DataType(dtype)
    x, y = pairs(dtype)
    if node in (E.FloorDiv, E.FloorMod, E.Div, E.Mod):
        x, y = x[y != 0], y[y != 0]
    got = apply(node, x, y, dtypes=[dtype, dtype], result=dtype)
    assert got.tolist() == [wrap_to(kind, exact(int(a), int(b))) for a, b in zip(x, y)]


@pytest.mark.parametrize("dtype", INTS)
def test_bits(dtype):
    kind = DataType(dtype)
    x, y = pairs(dtype)
    for name, exact in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        got = apply(
            lambda a, b, n=name: call(dtype, f"tir.bitwise_{n}", a, b),
            x,
            y,
            dtypes=[dtype, dtype],
            result=dtype,
        )
        assert got.tolist() == exact(x, y).tolist()
    got = apply(lambda a: call(dtype, "tir.bitwise_not", a), x, dtypes=[dtype], result=dtype)
    assert got.tolist() == (~x).tolist()
    shift = np.arange(len(x)).astype(held(dtype)) % kind.bits
    for name, exact in (("left", operator.lshift), ("right", operator.rshift)):
        got = apply(
            lambda a, b, n=name: call(dtype, f"tir.shift_{n}", a, b),
            x,
            shift,
            dtypes=[dtype, dtype],
            result=dtype,
        )
        assert got.tolist() == [wrap_to(kind, exact(int(a), int(s))) for a, s in zip(x, shift)]
    mask = (1 << kind.bits) - 1
    got = apply(lambda a: call(dtype, "tir.popcount", a), x, dtypes=[dtype], result=dtype)
    assert got.tolist() == [(int(a) & mask).bit_count() for a in x]
    got = apply(lambda a: call("int32", "tir.clz", a), x, dtypes=[dtype], result="int32")
    assert got.tolist() == [kind.bits - (int(a) & mask).bit_length() for a in x]


def test_fixed_point_multiplication_rounds_halves_up():
    x = np.array([0, 1, -1, 1000, -1000, 2**30, -(2**30), 12345], "int32")
    y = np.int32(1 << 30)  # one half, with 31 fractional bits

    def scaled(shift: int) -> np.ndarray:
        return apply(
            lambda a: call("int32", "tir.q_multiply_shift", a, const(int(y)), const(31), const(shift)),
            x,
            dtypes=["int32"],
            result="int32",
        )

    def want(factor: Fraction) -> list[int]:
        return [wrap_to(DataType("int32"), math.floor(int(a) * factor + Fraction(1, 2))) for a in x]

    assert scaled(0).tolist() == want(Fraction(1, 2))
    assert scaled(-3).tolist() == want(Fraction(1, 16))
    assert scaled(1).tolist() == want(Fraction(1))
    per_axis = apply(
        lambda a: call(
            "int32",
            "tir.q_multiply_shift_per_axis",
            a,
            const(int(y)),
            const(2),
            const(3),
            const(31),
            const(False),
            const(True),
        ),
        x,
        dtypes=["int32"],
        result="int32",
    )
    assert per_axis.tolist() == want(Fraction(1, 16))


# ---------------------------------------------------------------------------- floats
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("node", "exact"),
    [
        (E.Add, operator.add),
        (E.Sub, operator.sub),
        (E.Mul, operator.mul),
        (E.Div, operator.truediv),
        (E.Min, np.minimum),
        (E.Max, np.maximum),
    ],
)
def test_floats_round_to_their_type(dtype, node, exact):
    x, y = pairs(dtype)
    got = apply(node, x, y, dtypes=[dtype, dtype], result=dtype)
    wide = np.float64 if dtype in ("float64", "float32") else np.float32
    with np.errstate(all="ignore"):
        want = exact(x.astype(wide), y.astype(wide)).astype(held(dtype))
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))
    if node in (E.Add, E.Sub, E.Mul, E.Div):
        np.testing.assert_array_equal(np.signbit(got)[~np.isnan(got)], np.signbit(want)[~np.isnan(want)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("name", "wide"),
    [
        ("exp", np.exp),
        ("exp2", np.exp2),
        ("exp10", lambda x: np.power(10.0, x)),
        ("log", np.log),
        ("log2", np.log2),
        ("log10", np.log10),
        ("log1p", np.log1p),
        ("sqrt", np.sqrt),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("sin", np.sin),
        ("cos", np.cos),
        ("tan", np.tan),
        ("asin", np.arcsin),
        ("acos", np.arccos),
        ("atan", np.arctan),
        ("sinh", np.sinh),
        ("cosh", np.cosh),
        ("tanh", np.tanh),
        ("asinh", np.arcsinh),
        ("acosh", np.arccosh),
        ("atanh", np.arctanh),
        ("erf", np.vectorize(math.erf)),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("round", np.round),
        ("nearbyint", np.rint),
        ("fabs", np.abs),
    ],
)
def test_functions(dtype, name, wide):
    x = samples(dtype)
    got = apply(lambda a: call(dtype, f"tir.{name}", a), x, dtypes=[dtype], result=dtype)
    with np.errstate(all="ignore"):
        want = np.asarray(wide(x.astype(np.float64))).astype(held(dtype))
    if dtype == "float64":
        np.testing.assert_allclose(got, want, rtol=1e-15)
    else:
        np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))
    finite = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(want[finite]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", ["pow", "fmod", "hypot", "atan2", "copysign", "nextafter"])
def test_functions_of_two(dtype, name):
    wide = {"pow": np.power, "atan2": np.arctan2}.get(name) or getattr(np, name)
    x, y = pairs(dtype)
    got = apply(lambda a, b: call(dtype, f"tir.{name}", a, b), x, y, dtypes=[dtype, dtype], result=dtype)
    with np.errstate(all="ignore"):
        if name == "nextafter":
            want = wide(x, y)
        else:
            want = wide(x.astype("f8"), y.astype("f8")).astype(held(dtype))
    np.testing.assert_allclose(got, want, rtol=1e-15 if dtype == "float64" else 0)


def test_nextafter_of_narrow_floats_walks_the_neighbours():
    x = np.array([0.0, 1.0, -1.0, 1.0, 0.5], ml_dtypes.bfloat16)
    y = np.array([1.0, 2.0, -2.0, 0.0, 0.5], ml_dtypes.bfloat16)
    got = apply(
        lambda a, b: call("bfloat16", "tir.nextafter", a, b), x, y, dtypes=["bfloat16"] * 2, result="bfloat16"
    )
    assert got.astype("f8").tolist() == [2.0**-133, 1 + 2**-7, -1 - 2**-7, 1 - 2**-8, 0.5]


def test_tests_of_floats_and_ldexp():
    x = samples("float32")
    for name, wide in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)):
        got = apply(lambda a, n=name: call("bool", f"tir.{n}", a), x, dtypes=["float32"], result="bool")
        np.testing.assert_array_equal(got, wide(x))
    n = np.arange(len(x), dtype="int32") * 40 - 240
    got = apply(
        lambda a, b: call("float32", "tir.ldexp", a, b), x, n, dtypes=["float32", "int32"], result="float32"
    )
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.ldexp(x.astype("f8"), n).astype("f"))


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3)
def test_fma_rounds_once(a, b, c):
    got = apply(
        lambda x, y, z: call("float32", "tir.fma", x, y, z),
        *(np.array([v], "f") for v in (a, b, c)),
        dtypes=["float32"] * 3,
        result="float32",
    )[0]
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if abs(exact) >= Fraction(2**128):
        assert np.isinf(got)
    elif np.isfinite(got):
        nearest = abs(Fraction(float(got)) - exact)
        for side in (-np.inf, np.inf):
            with np.errstate(all="ignore"):
                other = np.nextafter(got, np.float32(side))
            assert not np.isfinite(other) or nearest <= abs(Fraction(float(other)) - exact)


# ---------------------------------------------------------------------------- conversions
def _converted(value: Any, source: DataType, target: DataType) -> Any:
    """The meaning of a cast, from exact numbers."""
    number = float(value) if source.is_float else int(value)
    if target.is_bool:
        return number != 0
    if not target.is_float:
        if not source.is_float:
            return wrap_to(target, int(number))
        if not math.isfinite(number) or not target.low <= math.trunc(number) <= target.high:
            return target.low
        return math.trunc(number)
    return float(_nearest(number, target))


def _nearest(number: int | float, kind: DataType) -> Any:
    """The value of a float type nearest to an exact number, ties to even, found by trying neighbours."""
    guess = np.array(float(number)).astype(held(kind))[()]
    if isinstance(number, float) and not math.isfinite(number):
        return guess
    if not np.isfinite(guess):
        return guess
    word = np.dtype(f"uint{kind.bits}")
    bits = int(np.array(guess, held(kind)).view(word)[()])
    best = guess
    for delta in (-1, 1):
        other = np.array(bits + delta, word).view(held(kind))[()] if 0 < bits < 2**kind.bits - 1 else guess
        if not np.isfinite(other):
            continue
        mine, theirs = (
            abs(Fraction(float(best)) - Fraction(number)),
            abs(Fraction(float(other)) - Fraction(number)),
        )
        if theirs < mine or (theirs == mine and (bits + delta) % 2 == 0 and other != best):
            best = other
    return best


@pytest.mark.parametrize("source", [*INTS, *FLOATS, "bool"])
@pytest.mark.parametrize("target", [*INTS, *FLOATS, "bool"])
def test_casts(source, target):
    x = np.array([False, True]) if source == "bool" else samples(source)
    s, t = DataType(source), DataType(target)
    got = apply(lambda a: E.Cast(target, a), x, dtypes=[source], result=target)
    with np.errstate(all="ignore"):
        want = np.array([float(_converted(v, s, t)) for v in x])
    if target == "float8_e4m3fn":  # it has no infinity: what is too large is NaN
        want = np.where(np.abs(want) == np.inf, np.nan, want)
    np.testing.assert_array_equal(got.astype("f8"), want)


@settings(max_examples=examples(400), derandomize=True, deadline=None)
@given(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)),
    st.sampled_from(["float32", "float16", "bfloat16"]),
)
def test_conversions_to_narrow_floats_round_once(number, target):
    kind = DataType(target)
    with np.errstate(all="ignore"):
        assert float(rounding(kind)(number)) == float(_nearest(number, kind))


def test_reinterpret_keeps_the_bits():
    x = samples("float32")
    got = apply(lambda a: reinterpret("int32", a), x, dtypes=["float32"], result="int32")
    np.testing.assert_array_equal(got, x.view("int32"))
    back = apply(lambda a: reinterpret("float32", a), got, dtypes=["int32"], result="float32")
    np.testing.assert_array_equal(back.view("int32"), x.view("int32"))
    wide = decl_buffer((2,), "int64", "wide")
    bytes_of = decl_buffer((16,), "uint8", "bytes")
    at = E.Ramp(const(0), 1, 2)
    body = BufferStore(bytes_of, reinterpret("uint8x16", E.BufferLoad(wide, [at])), [E.Ramp(const(0), 1, 16)])
    values, seen = np.array([-2, 2**40 + 5], "int64"), np.zeros(16, "uint8")
    interpret(PrimFunc([wide, bytes_of], body), values, seen)
    np.testing.assert_array_equal(seen, values.view("uint8"))


def test_every_elementwise_operator_has_a_meaning():
    missing = [name for name in ELEMENTWISE if name not in FUNCTIONS and name not in _CALLS]
    assert missing == []


# ---------------------------------------------------------------------------- random trees
def _int_tree(draw: Any, dtype: str, depth: int) -> tuple[PrimExpr, Callable[[list[Any]], Any]]:
    """An expression over variables 0 to 2 and the same in NumPy scalars."""
    kind, make = DataType(dtype), held(dtype).type
    choice = draw(st.integers(0, 1 if depth == 0 else 9))
    if choice == 0:
        n = draw(st.integers(0, 2))
        return _VARS[dtype][n], lambda env: env[n]
    if choice == 1:
        value = draw(st.integers(int(kind.low), int(kind.high)))
        return const(value, dtype), lambda env: make(value)
    a, fa = _int_tree(draw, dtype, depth - 1)
    b, fb = _int_tree(draw, dtype, depth - 1)
    if choice in (2, 3, 4):
        node, f = [(E.Add, operator.add), (E.Sub, operator.sub), (E.Mul, operator.mul)][choice - 2]
        return node(a, b), lambda env: f(fa(env), fb(env))
    if choice == 5:
        node, f = draw(st.sampled_from([(E.Min, np.minimum), (E.Max, np.maximum)]))
        return node(a, b), lambda env: f(fa(env), fb(env))
    if choice == 6:
        divisor = draw(st.integers(1, 100))
        node, f = draw(st.sampled_from([(E.FloorDiv, operator.floordiv), (E.FloorMod, operator.mod)]))
        return node(a, const(divisor, dtype)), lambda env: f(fa(env), make(divisor))
    if choice == 7:
        divisor = draw(st.integers(1, 100))
        quotient = lambda env: math.trunc(Fraction(int(fa(env)), divisor))
        if draw(st.booleans()):
            return E.Div(a, const(divisor, dtype)), lambda env: make(quotient(env))
        return E.Mod(a, const(divisor, dtype)), lambda env: make(int(fa(env)) - quotient(env) * divisor)
    if choice == 8:
        node, f = draw(st.sampled_from([(E.LT, operator.lt), (E.EQ, operator.eq), (E.GE, operator.ge)]))
        c, fc = _int_tree(draw, dtype, depth - 1)
        build = draw(st.sampled_from([E.Select, if_then_else]))
        return build(node(a, b), c, a), lambda env: fc(env) if f(fa(env), fb(env)) else fa(env)
    x = Var("x", dtype)
    return E.Let(x, a, E.Add(x, E.Mul(x, b))), lambda env: fa(env) + fa(env) * fb(env)


def _float_tree(draw: Any, dtype: str, depth: int) -> tuple[PrimExpr, Callable[[list[Any]], Any]]:
    make = held(dtype).type
    choice = draw(st.integers(0, 1 if depth == 0 else 8))
    if choice == 0:
        n = draw(st.integers(0, 2))
        return _VARS[dtype][n], lambda env: env[n]
    if choice == 1:
        value = make(draw(st.floats(-1e4, 1e4)))
        return const(float(value), dtype), lambda env: value
    a, fa = _float_tree(draw, dtype, depth - 1)
    b, fb = _float_tree(draw, dtype, depth - 1)
    if choice <= 5:
        node, f = [
            (E.Add, operator.add),
            (E.Sub, operator.sub),
            (E.Mul, operator.mul),
            (E.Div, operator.truediv),
        ][choice - 2]
        return node(a, b), lambda env: f(fa(env), fb(env))
    if choice == 6:
        node, f = draw(st.sampled_from([(E.Min, np.minimum), (E.Max, np.maximum)]))
        return node(a, b), lambda env: make(f(fa(env), fb(env)))
    if choice == 7:
        node, f = draw(st.sampled_from([(E.LT, operator.lt), (E.NE, operator.ne), (E.GE, operator.ge)]))
        return E.Select(node(a, b), b, a), lambda env: fb(env) if f(fa(env), fb(env)) else fa(env)
    other = "float64" if dtype == "float32" else "float32"
    return cast(dtype, cast(other, a)), lambda env: make(held(other).type(fa(env)))


_VARS = {d: [Var(f"v{n}", d) for n in range(3)] for d in [*INTS, *FLOATS]}


def _run_tree(dtype: str, tree: PrimExpr, values: list[Any]) -> Any:
    out = decl_buffer((1,), dtype, "out")
    got = np.zeros(1, held(dtype))
    interpret(PrimFunc([*_VARS[dtype], out], BufferStore(out, tree, [0])), *values, got)
    return got[0]


@settings(max_examples=examples(250), derandomize=True, deadline=None)
@given(st.data())
def test_random_integer_trees(data):
    dtype = data.draw(st.sampled_from(INTS))
    tree, f = _int_tree(data.draw, dtype, 4)
    kind = DataType(dtype)
    values = [held(dtype).type(data.draw(st.integers(int(kind.low), int(kind.high)))) for _ in range(3)]
    with np.errstate(all="ignore"):
        want = f(values)
    assert int(_run_tree(dtype, tree, values)) == int(want)


@settings(max_examples=examples(250), derandomize=True, deadline=None)
@given(st.data())
def test_random_float_trees(data):
    dtype = data.draw(st.sampled_from(["float16", "bfloat16", "float32", "float64"]))
    tree, f = _float_tree(data.draw, dtype, 4)
    make = held(dtype).type
    number = st.one_of(st.floats(-100, 100), st.sampled_from([math.inf, -math.inf, math.nan, 0.0, -0.0]))
    values = [make(data.draw(number)) for _ in range(3)]
    with np.errstate(all="ignore"):
        want = f(values)
    got = _run_tree(dtype, tree, values)
    np.testing.assert_array_equal(np.float64(got), np.float64(want))
