"""The expansions of mathematical functions against float64 references, over the whole range of float32."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import tilewright
from tilewright.ir import PrimExpr, PrimFunc, decl_buffer, expr, ops
from tilewright.ir.dtype import DataType
from tilewright.ir.expr import Var, const
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import BufferStore, For, ForKind, seq
from tilewright.tir.transform.lower_intrin import lower_intrin
from tilewright.tir.transform.math import EXPANSIONS, MAX_ULP, MAX_ULP_DOUBLE, expand_call

Array = Any


# ---------------------------------------------------------------------------- an evaluator over arrays
def _numpy_type(dtype: DataType) -> Any:
    return ml_dtypes.bfloat16 if dtype.code == "bfloat" else np.dtype(str(dtype.element))


def _fma(a: Array, b: Array, c: Array) -> Array:
    if a.dtype == np.float32:  # the product is exact in float64; the second rounding almost never shows
        return (a.astype(np.float64) * b + c).astype(np.float32)
    p = a * b
    ah, bh = _high(a), _high(b)
    al, bl = a - ah, b - bh
    error = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    s = p + c
    bb = s - p
    rest = (p - (s - bb)) + (c - bb)
    exact = s + (rest + error)
    return np.where(np.isfinite(exact), exact, s)


def _high(a: Array) -> Array:
    scaled = a * 134217729.0
    return scaled - (scaled - a)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Min": np.minimum,
    "Max": np.maximum,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
}
_CALLS: dict[str, Callable[..., Array]] = {
    "fma": _fma,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "trunc": np.trunc,
    "nearbyint": np.rint,
    "fabs": np.abs,
    "copysign": np.copysign,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "shift_left": lambda a, b: np.left_shift(a, b, dtype=a.dtype),
    "shift_right": lambda a, b: np.right_shift(a, b, dtype=a.dtype),
}


def _truncated_division(a: Array, b: Array) -> Array:
    return np.trunc(a.astype(np.float64) / b).astype(a.dtype) if a.dtype.kind in "iu" else a / b


def _run(e: PrimExpr, env: dict[Var, Array]) -> Array:
    """The value of an expression with arrays for its variables; a vector type counts as its element's."""
    name = type(e).__name__
    if isinstance(e, Var):
        return env[e]
    if isinstance(e, (expr.IntImm, expr.FloatImm)):
        return np.asarray(e.value, _numpy_type(e.dtype))
    if isinstance(e, expr.Broadcast):
        return _run(e.value, env)
    if isinstance(e, expr.Let):
        env[e.var] = _run(e.value, env)
        return _run(e.body, env)
    if isinstance(e, expr.Cast):
        return _run(e.value, env).astype(_numpy_type(e.dtype))
    if isinstance(e, expr.Select):
        return np.where(_run(e.condition, env), _run(e.true_value, env), _run(e.false_value, env))
    if isinstance(e, expr.Not):
        return np.logical_not(_run(e.a, env))
    if isinstance(e, expr.Div):
        return _truncated_division(_run(e.a, env), _run(e.b, env))
    if name in _BINARY:
        return _BINARY[name](_run(e.a, env), _run(e.b, env))  # type: ignore[attr-defined]
    assert isinstance(e, expr.Call), name
    short = e.op.short_name
    if short == "call_pure_extern":
        library = {"pow": np.power, "atan2": np.arctan2, "erf": special.erf}
        called = e.args[0].value  # type: ignore[attr-defined]
        return (library.get(called) or getattr(np, called))(*[_run(a, env) for a in e.args[1:]])
    args = [_run(a, env) for a in e.args]
    if short == "reinterpret":
        return np.ascontiguousarray(args[0]).view(_numpy_type(e.dtype)).reshape(np.shape(args[0]))
    return _CALLS[short](*args)


def evaluate(name: str, *xs: Array, fast_math: bool = False, has_fma: bool = True) -> Array:
    """The expansion of `name` at arrays of arguments, by NumPy."""
    variables = [Var(f"x{i}", str(x.dtype)) for i, x in enumerate(xs)]
    made = EXPANSIONS[name](*variables, fast_math=fast_math, has_fma=has_fma)
    with np.errstate(all="ignore"):
        return _run(made, dict(zip(variables, xs, strict=True)))


@functools.cache
def _compiled(name: str, dtypes: tuple[str, ...], size: int, fast_math: bool) -> Any:
    """The function `out[i] = name(x0[i], …)` over vectors of 8, and one at a time for the rest."""
    buffers = [decl_buffer((size,), d, name=f"x{i}") for i, d in enumerate(dtypes)]
    out = decl_buffer((size,), dtypes[0], name="out")

    def loop(start: int, count: int, lanes: int) -> For:
        i = Var("i", "int32")
        at = expr.Ramp(i * lanes + start, const(1, "int32"), lanes) if lanes > 1 else i + start
        call = expr.Call(
            out.dtype.with_lanes(lanes), f"tir.{name}", [expr.BufferLoad(b, (at,)) for b in buffers]
        )
        return For(i, 0, count, ForKind.SERIAL, BufferStore(out, call, (at,)))

    whole = size // 8
    body = seq(loop(0, whole, 8), loop(whole * 8, size - whole * 8, 1))
    func = PrimFunc([*buffers, out], body)
    if fast_math:
        return tilewright.build(lower_intrin(func, fast_math=True), target="llvm -fast-math")
    return tilewright.build(func, target="llvm")


def run_compiled(name: str, *xs: Array, fast_math: bool = False) -> Array:
    """The same through code generation."""
    out = np.empty_like(xs[0])
    _compiled(name, tuple(str(x.dtype) for x in xs), len(out), fast_math)(*xs, out)
    return out


WAYS: dict[str, Callable[..., Array]] = {
    "fma": evaluate,
    "no fma": functools.partial(evaluate, has_fma=False),
    "llvm": run_compiled,
}
ways = pytest.mark.parametrize("way", WAYS)


# ---------------------------------------------------------------------------- references and points
UNARY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": special.expit,
    "tanh": np.tanh,
    "erf": special.erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "pow": np.power,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "fmod": np.fmod,
}
_EDGES = """
    0 1 0.5 2 3 7 inf  1e-45 1.1754944e-38 3.4028235e38  0.99999994 1.0000001  1.5707964 3.1415927
    88.72283 88.72284 103.97 87.33 89.41  126 128 149 150  38.53184 45  9.01 3.92
    8388609 16777216 16777218 1099511627776 8.1129638e31
"""
EDGES = np.array(_EDGES.split(), np.float32)
SPECIALS = np.concatenate([EDGES, -EDGES, np.array([math.nan], np.float32)])


@functools.cache
def points() -> Array:
    """Every 16411th float32, all specials, and dense samples where functions bend."""
    every = np.arange(0, 1 << 32, 16411, dtype=np.uint64).astype(np.uint32).view(np.float32)
    rng = np.random.default_rng(0)
    dense = [rng.uniform(-a, a, 20_000) for a in (1.0, 4.0, 12.0, 110.0)]
    dense += [rng.uniform(0.5, 2.0, 20_000), rng.integers(0, 10**6, 20_000) * (math.pi / 2)]
    return np.concatenate([every, SPECIALS, np.concatenate(dense).astype(np.float32)])


def errors(got: Array, exact: Array) -> Array:
    """The error of each float32 result in units in the last place; a wrong kind of result is infinite."""
    with np.errstate(all="ignore"):
        want = exact.astype(np.float32)
        unit = np.spacing(np.abs(want)).astype(np.float64)
        unit = np.where(np.isfinite(unit), unit, 2.0**104)
        off = np.abs(got.astype(np.float64) - exact) / unit
    off = np.where((got == want) & np.isinf(want) | np.isnan(got) & np.isnan(want), 0.0, off)
    off = np.where((want == 0) & (got == 0) & (np.signbit(want) != np.signbit(got)), np.inf, off)
    return np.where(np.isnan(off), np.inf, off)


def check(name: str, got: Array, exact: Array, xs: tuple[Array, ...], bound: float) -> None:
    off = errors(got, exact)
    worst = int(np.argmax(off))
    at = ", ".join(repr(float(x[worst])) for x in xs)
    assert off[worst] <= bound, f"{name}({at}) = {got[worst]}, exact {exact[worst]}: {off[worst]:.3f} ulp"


# ---------------------------------------------------------------------------- the tests
@ways
@pytest.mark.parametrize("name", UNARY)
def test_unary_over_the_whole_range(name: str, way: str) -> None:
    x = points()
    with np.errstate(all="ignore"):
        exact = UNARY[name](x.astype(np.float64))
    check(name, WAYS[way](name, x), exact, (x,), MAX_ULP[name])


@ways
@pytest.mark.parametrize("name", BINARY)
def test_binary_over_the_whole_range(name: str, way: str) -> None:
    rng = np.random.default_rng(1)
    left, right = (a.ravel() for a in np.meshgrid(SPECIALS, SPECIALS))
    near = rng.uniform(0.99, 1.01, 60_000), rng.uniform(0, 20, 60_000), rng.uniform(-10, 10, 60_000)
    far = rng.uniform(-9000, 9000, 60_000), rng.uniform(-30, 30, 60_000), rng.integers(-40, 40, 60_000)
    with np.errstate(all="ignore"):
        a = np.concatenate([left, rng.permutation(points()), *near]).astype(np.float32)
        b = np.concatenate([right, rng.permutation(points()), *far]).astype(np.float32)
        exact = BINARY[name](a.astype(np.float64), b.astype(np.float64))
    check(name, WAYS[way](name, a, b), exact, (a, b), MAX_ULP[name])


@ways
@pytest.mark.parametrize("name", UNARY)
def test_specials_are_numpys(name: str, way: str) -> None:
    """NaN, infinity and the sign of zero, element by element."""
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-45, -1e-45], np.float32)
    with np.errstate(all="ignore"):
        want = UNARY[name](x).astype(np.float32)
    got = WAYS[way](name, x)
    for kind in (np.isnan, np.isinf, lambda v: v == 0):
        np.testing.assert_array_equal(kind(got), kind(want))
    sure = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[sure], np.signbit(want)[sure])


@ways
def test_power_specials_are_numpys(way: str) -> None:
    a, b = (v.ravel() for v in np.meshgrid(SPECIALS, SPECIALS))
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64))
    got = WAYS[way]("pow", a, b)
    exceptional = ~np.isfinite(want) | (want == 0)
    np.testing.assert_array_equal(got[exceptional], want[exceptional])
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, -1.0, 0.5])
def test_power_with_a_constant_exponent(exponent: float) -> None:
    x = Var("x", "float32")
    made = EXPANSIONS["pow"](x, const(exponent, "float32"))
    assert not any(isinstance(n, expr.Let) for n in pre_order(made))
    with np.errstate(all="ignore"):
        exact = np.power(points().astype(np.float64), np.full(len(points()), exponent))
        got = np.broadcast_to(_run(made, {x: points()}), points().shape)
    check(f"pow {exponent}", got, exact, (points(),), MAX_ULP["pow"])


@ways
def test_ldexp(way: str) -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([np.repeat(SPECIALS, 40), points()[::7]])
    n = rng.integers(-320, 320, len(x)).astype(np.int32)
    n[:4] = [2**31 - 1, -(2**31), 300, -300]
    with np.errstate(all="ignore"):
        want = np.ldexp(x, np.clip(n, -600, 600))
    np.testing.assert_array_equal(WAYS[way]("ldexp", x, n), want)


@ways
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_nextafter(dtype: str, way: str) -> None:
    rng = np.random.default_rng(3)
    left, right = (v.ravel() for v in np.meshgrid(SPECIALS, SPECIALS))
    with np.errstate(all="ignore"):
        x = np.concatenate([left, points()[::11]]).astype(dtype)
        y = np.concatenate([right, rng.permutation(points()[::11])]).astype(dtype)
        want = np.nextafter(x, y)
    got = WAYS[way]("nextafter", x, y)
    np.testing.assert_array_equal(got, want)
    sure = ~np.isnan(want) & (x != y)  # of 0 towards -0, C gives -0 and NumPy's float16 gives 0
    np.testing.assert_array_equal(np.signbit(got)[sure], np.signbit(want)[sure])


@ways
@pytest.mark.parametrize("name", sorted(UNARY))
def test_float16_is_float32_rounded(name: str, way: str) -> None:
    x = np.arange(0, 1 << 16, 5).astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        want = WAYS["fma"](name, x.astype(np.float32)).astype(np.float16)
        exact = UNARY[name](x.astype(np.float64)).astype(np.float16)
        got = WAYS[way](name, x)
        unit = np.spacing(np.abs(exact)).astype(np.float64)
        same = (got == exact) | (got == want) | (np.isnan(got) & np.isnan(exact))
        close = np.abs(got.astype(np.float64) - exact.astype(np.float64)) <= unit
    assert got.dtype == np.float16
    assert np.all(same | close)


@pytest.mark.parametrize("name", sorted(UNARY))
def test_bfloat16_is_float32_rounded(name: str) -> None:
    x = np.arange(0, 1 << 16, 5).astype(np.uint16).view(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        want = evaluate(name, x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    got = evaluate(name, x)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@ways
@pytest.mark.parametrize("name", sorted(UNARY))
def test_float64(name: str, way: str) -> None:
    """Expansions within their bounds; the others are the C library's."""
    rng = np.random.default_rng(6)
    with np.errstate(all="ignore"):
        x = np.concatenate(
            [points()[::16].astype(np.float64), SPECIALS.astype(np.float64)]
            + [rng.uniform(-a, a, 10_000) for a in (1.0, 40.0, 800.0)]
            + [np.array([5e-324, -5e-324, 2e-308, 1.7e308, 709.78, 709.79, -745.13, -745.14])]
        )
        got, exact = WAYS[way](name, x), _extended(name, x)
        want = exact.astype(np.float64)
        unit = np.minimum(np.spacing(np.abs(want)), 2.0**970)
        off = np.where(np.isfinite(exact), np.abs(got - exact) / unit, 0.0)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    np.testing.assert_array_equal(np.signbit(got)[want == 0], np.signbit(want)[want == 0])
    assert np.nanmax(off) <= MAX_ULP_DOUBLE.get(name, 5.0)


def _extended(name: str, x: Array) -> Array:
    """The reference for float64, in extended precision where NumPy has the function in it."""
    wide = x.astype(np.longdouble)
    if name == "sigmoid":
        e = np.exp(-np.abs(wide))
        return np.where(x < 0, e, 1) / (1 + e)
    return special.erf(x).astype(np.longdouble) if name == "erf" else UNARY[name](wide)


_TWO = {"pow", "atan2", "hypot", "fmod", "ldexp", "nextafter"}
_NATIVE = {"sqrt", "floor", "trunc", "fabs", "copysign", "reinterpret", "nearbyint"}
_NATIVE |= {"bitwise_and", "bitwise_xor", "shift_left", "shift_right"}


def _arguments(name: str, lanes: int) -> list[Var]:
    kinds = ["float32", "int32" if name == "ldexp" else "float32"][: 2 if name in _TWO else 1]
    return [Var(f"x{i}", DataType(k).with_lanes(lanes)) for i, k in enumerate(kinds)]


@pytest.mark.parametrize("name", sorted(EXPANSIONS))
def test_vectors_take_the_same_way(name: str) -> None:
    narrow, wide = _arguments(name, 1), _arguments(name, 8)
    scalar, vector = EXPANSIONS[name](*narrow), EXPANSIONS[name](*wide)
    assert vector.dtype == scalar.dtype.with_lanes(8)
    for n in pre_order(vector):
        assert n.dtype.lanes == 8 or isinstance(n, (expr.FloatImm, expr.IntImm))
    xs = [points()[:4000].astype(_numpy_type(v.dtype)) for v in narrow[:1]]
    xs += [np.arange(4000).astype(_numpy_type(v.dtype)) for v in narrow[1:]]
    with np.errstate(all="ignore"):
        left = _run(scalar, dict(zip(narrow, xs, strict=True)))
        right = _run(vector, dict(zip(wide, xs, strict=True)))
    np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("has_fma", [False, True])
@pytest.mark.parametrize("name", sorted(EXPANSIONS))
def test_only_native_operators_remain(name: str, has_fma: bool, fast_math: bool) -> None:
    made = EXPANSIONS[name](*_arguments(name, 4), has_fma=has_fma, fast_math=fast_math)
    calls = {n.op.short_name for n in pre_order(made) if isinstance(n, expr.Call)}
    assert calls <= _NATIVE | ({"fma"} if has_fma else set())


def test_what_the_backend_has_is_left_alone() -> None:
    x = Var("x", "float32")
    for f in (ops.sqrt, ops.floor, ops.ceil, ops.trunc, ops.round, ops.nearbyint, ops.fabs):
        assert expand_call(f(x)) is None
    assert expand_call(ops.copysign(x, x)) is None
    assert expand_call(ops.popcount(Var("i", "int32"))) is None
    assert expand_call(ops.exp(x)) is not None


def test_the_argument_is_computed_once() -> None:
    x = Var("x", "float32")
    made = EXPANSIONS["erf"](ops.sqrt(x))
    roots = [n for n in pre_order(made) if isinstance(n, expr.Call) and n.op.short_name == "sqrt"]
    assert len(roots) == 1


# The work of one element in vector operations, selections and conversions included.
_COSTS = {"exp": 22, "sigmoid": 22, "tanh": 21, "erf": 28, "log": 30}


@pytest.mark.parametrize("name", sorted(_COSTS))
def test_the_usual_functions_stay_short(name: str) -> None:
    free = (Var, expr.FloatImm, expr.IntImm, expr.Broadcast, expr.Let)
    made = EXPANSIONS[name](Var("x", "float32"))
    work = [n for n in pre_order(made) if not isinstance(n, free)]
    work = [n for n in work if not (isinstance(n, expr.Call) and n.op.short_name == "reinterpret")]
    assert len(work) <= _COSTS[name]


@ways
@pytest.mark.parametrize("name", [*UNARY, "pow"])
def test_fast_math_in_the_normal_range(name: str, way: str) -> None:
    x = np.random.default_rng(4).uniform(0.01, 30, 50_000).astype(np.float32)
    x = 1 / x if name in ("asin", "acos", "atanh") else x + 1 if name == "acosh" else x
    xs = (x, x[::-1].copy() / 10) if name == "pow" else (x,)
    with np.errstate(all="ignore"):
        exact = (BINARY if name == "pow" else UNARY)[name](*[v.astype(np.float64) for v in xs])
    got, kept = WAYS[way](name, *xs, fast_math=True), np.isfinite(exact)
    check(name, got[kept], exact[kept], tuple(v[kept] for v in xs), max(4.0, MAX_ULP[name]))
