"""Building expressions: common types, folding of constants against NumPy, the functions behind operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import ops
from tilewright.ir.buffer import decl_buffer
from tilewright.ir.dtype import DataType
from tilewright.ir.expr import (
    EQ,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    IntImm,
    Max,
    Mod,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Sub,
    Var,
    const,
)

i, n = Var("i"), Var("n")
x, y = Var("x", "float32"), Var("y", "float32")
p, q = Var("p", "bool"), Var("q", "bool")

INTEGERS = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]


def same_float(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


# -- folding ------------------------------------------------------------------------------------
def _trunc_div(a: int, b: int) -> int:
    return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))


INTEGER_FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[int, int], int]]] = {
    "add": (ops.add, lambda a, b: a + b),
    "sub": (ops.sub, lambda a, b: a - b),
    "mul": (ops.mul, lambda a, b: a * b),
    "floordiv": (ops.floordiv, lambda a, b: a // b),
    "floormod": (ops.floormod, lambda a, b: a % b),
    "truncdiv": (ops.truncdiv, _trunc_div),
    "truncmod": (ops.truncmod, lambda a, b: a - _trunc_div(a, b) * b),
    "min_of": (ops.min_of, min),
    "max_of": (ops.max_of, max),
}


@st.composite
def integer_pairs(draw: st.DrawFn) -> tuple[str, int, int]:
    kind = DataType(draw(st.sampled_from(INTEGERS)))
    low, high = int(kind.low), int(kind.high)
    near = st.sampled_from([low, low + 1, high, high - 1, 0, 1, min(2, high), max(low, -1)])
    number = st.one_of(near, st.integers(low, high))
    return str(kind), draw(number), draw(number)


@pytest.mark.parametrize("name", INTEGER_FUNCTIONS)
@given(pair=integer_pairs())
@settings(max_examples=examples(80), derandomize=True, deadline=None)
def test_integers_fold_to_what_python_says(name: str, pair: tuple[str, int, int]) -> None:
    build, reference = INTEGER_FUNCTIONS[name]
    kind, a, b = pair
    left, right = const(a, kind), const(b, kind)
    if b == 0 and name in ("floordiv", "floormod", "truncdiv", "truncmod"):
        with pytest.raises(ZeroDivisionError):
            build(left, right)
        return
    made, expected = build(left, right), reference(a, b)
    assert made.dtype == kind
    if DataType(kind).low <= expected <= DataType(kind).high:
        assert made.__class__ is IntImm and made.value == expected
    else:
        assert made.__class__ is not IntImm, "what does not fit is left to the machine"


@given(pair=integer_pairs())
@settings(max_examples=examples(80), derandomize=True, deadline=None)
def test_bits_and_comparisons_fold(pair: tuple[str, int, int]) -> None:
    kind, a, b = pair
    left, right = const(a, kind), const(b, kind)
    element = np.dtype(kind).type
    for build, reference in (
        (ops.bitwise_and, np.bitwise_and),
        (ops.bitwise_or, np.bitwise_or),
        (ops.bitwise_xor, np.bitwise_xor),
    ):
        assert build(left, right).value == int(reference(element(a), element(b)))
    amount = b % DataType(kind).bits
    with np.errstate(all="ignore"):
        shifted = np.left_shift(element(a), element(amount)), np.right_shift(element(a), element(amount))
    shifts = ops.shift_left(left, const(amount, kind)), ops.shift_right(left, const(amount, kind))
    assert [s.value for s in shifts] == [int(s) for s in shifted]
    for build, truth in (
        (ops.equal, a == b),
        (ops.not_equal, a != b),
        (ops.less, a < b),
        (ops.less_equal, a <= b),
        (ops.greater, a > b),
        (ops.greater_equal, a >= b),
    ):
        made = build(left, right)
        assert made.__class__ is IntImm and made.dtype == "bool" and made.value == int(truth)


FLOAT_FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], Any]]] = {
    "add": (ops.add, np.add),
    "sub": (ops.sub, np.subtract),
    "mul": (ops.mul, np.multiply),
    "div": (ops.div, np.divide),
    "min_of": (ops.min_of, np.minimum),
    "max_of": (ops.max_of, np.maximum),
}
SPECIAL = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 1e-45, 3.4e38, 0.1, 1e308, 5e-324]


@pytest.mark.parametrize("name", FLOAT_FUNCTIONS)
@pytest.mark.parametrize("kind", ["float32", "float64"])
@given(
    a=st.one_of(st.sampled_from(SPECIAL), st.floats()),
    b=st.one_of(st.sampled_from(SPECIAL), st.floats()),
)
@settings(max_examples=examples(120), derandomize=True, deadline=None)
def test_floats_fold_to_what_numpy_says(name: str, kind: str, a: float, b: float) -> None:
    build, reference = FLOAT_FUNCTIONS[name]
    made = build(const(a, kind), const(b, kind))
    if made.__class__ is not FloatImm:
        assert name == "div" and (b == 0 or np.dtype(kind).type(b) == 0)
        return
    element = np.dtype(kind).type
    with np.errstate(all="ignore"):
        expected = float(reference(element(a), element(b)))
    if name in ("min_of", "max_of") and a == b:
        assert made.value == expected  # which zero is open
    else:
        assert same_float(made.value, expected)


def test_a_result_of_zero_folds() -> None:
    assert ops.sub(const(2), 2).value == 0 and ops.mul(const(0.0), 2.0).value == 0.0
    assert ops.add(const(1.0), const(2.0)).value == 3.0


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_narrow_floats_are_left_to_the_machine_unless_the_result_is_exact(kind: str) -> None:
    def of(value: float) -> Any:
        return const(value, kind)

    assert ops.add(of(1.0), of(2.0)).value == 3.0 and ops.mul(of(0.0), of(0.5)).value == 0.0
    assert ops.div(of(0.5), of(1.0)).value == 0.5 and ops.sub(of(0.5), of(0.0)).value == 0.5
    assert ops.add(of(1024.0), of(0.01)).__class__ is Add and ops.div(of(1.0), of(3.0)).__class__ is Div
    assert ops.mul(of(3e4), of(3e4)).__class__ is Mul or kind == "bfloat16"
    assert ops.add(of(math.inf), of(1.0)).__class__ is Add


def test_rounded() -> None:
    import ml_dtypes

    values = [0.1, 1.0, 65519.9, 65520.0, 1e-8, 3.4e38, 3.39e38, 1e39, -0.0, math.inf, 1.00390625, 2**-130]
    for v in values:
        with np.errstate(all="ignore"):
            assert same_float(ops.rounded(v, DataType("float16")), float(np.float16(v)))
            assert same_float(ops.rounded(v, DataType("float32")), float(np.float32(v)))
            assert same_float(ops.rounded(v, DataType("bfloat16")), float(ml_dtypes.bfloat16(np.float32(v))))
        assert ops.rounded(v, DataType("float64")) == v


# -- neutral elements ---------------------------------------------------------------------------
def test_neutral_elements() -> None:
    assert ops.add(i, 0) is i and ops.add(0, i) is i and ops.sub(i, 0) is i
    assert ops.mul(i, 1) is i and ops.mul(1, i) is i and ops.mul(i, 0).value == 0
    assert ops.floordiv(i, 1) is i and ops.truncdiv(i, 1) is i
    assert ops.floormod(i, 1).value == 0 and ops.floordiv(0, i).value == 0 and ops.floormod(0, i).value == 0
    assert ops.min_of(i, i) is i and ops.max_of(x, x) is x
    assert ops.add(x, 0.0).__class__ is Add, "-0.0 + 0.0 is 0.0"
    assert ops.mul(x, 0.0).__class__ is Mul, "NaN times 0 is NaN"


def test_divisions() -> None:
    assert ops.floordiv(i, n).__class__ is FloorDiv and ops.truncdiv(i, n).__class__ is Div
    assert ops.truncmod(i, n).__class__ is Mod and ops.div(i, n).__class__ is Div
    assert ops.floordiv(x, y).op.name == "tir.floor" and ops.floormod(x, y).__class__ is Sub
    assert ops.ceildiv(7, 2).value == 4 and ops.ceildiv(-7, 2).value == -3
    assert ops.ceildiv(const(7.0), const(2.0)).value == 4.0 and ops.ceildiv(x, y).op.name == "tir.ceil"
    assert ops.indexdiv(7, 2).value == 3 and ops.indexmod(7, 2).value == 1
    for build in (ops.floordiv, ops.floormod, ops.truncdiv, ops.truncmod):
        with pytest.raises(ZeroDivisionError, match="division by zero in an integer expression"):
            build(i, 0)
    with pytest.raises(TypeError, match="truncmod of float32: it takes integers; fmod"):
        ops.truncmod(x, y)


def test_negation() -> None:
    assert ops.neg(const(5)).value == -5 and ops.neg(const(2.5)).value == -2.5
    assert ops.neg(const(3, "uint8")).value == 253 and ops.neg(const(-128, "int8")).value == -128
    assert math.copysign(1, ops.neg(const(0.0)).value) == -1


# -- types --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        ("int32", "int64", "int64"),
        ("int8", "uint8", "uint8"),
        ("int8", "uint32", "uint32"),
        ("int64", "uint32", "int64"),
        ("uint8", "uint32", "uint32"),
        ("int32", "float16", "float16"),
        ("float32", "float64", "float64"),
        ("float16", "float32", "float32"),
        ("bool", "int8", "int8"),
        ("bool", "float32", "float32"),
        ("bfloat16", "float32", "float32"),
        ("bfloat16", "float16", None),
        ("handle", "int32", None),
    ],
)
def test_common_type(a: str, b: str, common: str | None) -> None:
    assert ops.common_type(DataType(a), DataType(b)) == common
    assert ops.common_type(DataType(b), DataType(a)) == common


def test_match_broadcasts() -> None:
    a, b = ops.match(x, Var("v", "float32x4"))
    assert a.__class__ is Broadcast and a.dtype == b.dtype == "float32x4"
    a, b = ops.match(i, Var("v", "float32x4"))
    assert a.dtype == b.dtype == "float32x4"
    a, b = ops.match(2, 3)
    assert a.value == 2 and b.value == 3
    a, b = ops.match(p, 2)
    assert a.dtype == b.dtype == "int32"


def test_cast() -> None:
    assert ops.cast("int32", i) is i and ops.cast("float32", i).__class__ is Cast
    assert ops.cast("uint8", const(300)).value == 44 and ops.cast("int8", const(200)).value == -56
    assert ops.cast("bool", const(7)).value == 1 and ops.cast("float32", const(True)).value == 1.0
    assert ops.cast("int32", const(-2.7)).value == -2 and ops.cast("int8", const(1e9)).__class__ is Cast
    assert ops.cast("int32", const(math.nan)).__class__ is Cast
    assert ops.cast("float64", const(0.1, "float32")).value == float(np.float32(0.1))
    assert ops.cast("float32", const(0.1, "float64")).value == 0.1, (
        "rounded when it is used, shown as written"
    )
    vector = ops.cast("int64x4", Broadcast(i, 4))
    assert vector.__class__ is Broadcast and vector.dtype == "int64x4"
    nested = ops.cast("int64x8", Broadcast(Ramp(i, 1, 4), 2))
    assert nested.dtype == "int64x8"
    assert ops.cast("float32x4", x).dtype == "float32x4"
    with pytest.raises(TypeError, match="cannot cast int32x4 to int32x8: the lanes differ"):
        ops.cast("int32x8", Ramp(i, 1, 4))


def test_reinterpret() -> None:
    assert ops.reinterpret("int32", x).op.name == "tir.reinterpret" and ops.reinterpret("float32", x) is x
    with pytest.raises(TypeError, match="the sizes differ"):
        ops.reinterpret("int64", x)


# -- logic --------------------------------------------------------------------------------------
def test_logic() -> None:
    assert ops.logical_and(p, True) is p and ops.logical_and(False, p).value == 0
    assert ops.logical_or(p, False) is p and ops.logical_or(p, True).value == 1
    assert ops.logical_and(p, q).__class__ is And and ops.logical_or(p, q).__class__ is Or
    assert ops.logical_not(ops.logical_not(p)) is p and ops.logical_not(True).value == 0
    assert ops.logical_not(p).__class__ is Not
    lanes = Var("m", "boolx4")
    assert ops.logical_and(False, lanes).dtype == "boolx4" and ops.logical_or(True, lanes).dtype == "boolx4"
    assert ops.logical_and(p, lanes).dtype == "boolx4"
    with pytest.raises(TypeError, match="`i` of type int32 is used as a condition"):
        ops.logical_and(i, p)
    assert ops.all(p) is p and ops.all(p, True, q).__class__ is And and ops.any(p, q, p).__class__ is Or
    for build in (ops.all, ops.any):
        with pytest.raises(ValueError, match="takes at least one condition"):
            build()


def test_choices() -> None:
    assert ops.select(True, i, 1) is i and ops.select(p, i, 1).__class__ is Select
    assert ops.if_then_else(False, i, 1).value == 1 and ops.if_then_else(p, i, 1.5).dtype == "float32"
    assert ops.if_then_else(p, i, 1).op.name == "tir.if_then_else"
    assert ops.likely(const(True)).value == 1 and ops.likely(p).op.name == "tir.likely"
    with pytest.raises(TypeError, match="is used as a condition"):
        ops.select(i, i, i)


def test_conjuncts() -> None:
    a, b, c = i < 1, i < 2, i < 3
    assert [id(e) for e in ops.conjuncts(ops.all(a, b, c))] == [id(a), id(b), id(c)]
    assert ops.conjuncts(const(True)) == [] and len(ops.conjuncts(a)) == 1


# -- bits ---------------------------------------------------------------------------------------
def test_bits() -> None:
    with pytest.raises(TypeError, match="bitwise_not of float32: it takes integers"):
        ops.bitwise_not(Var("x", "float32"))
    assert ops.bitwise_not(p).__class__ is Not and ops.bitwise_not(i).op.name == "tir.bitwise_not"
    assert ops.bitwise_and(p, q).dtype == "bool"
    for amount in (-1, 32, 10**12):
        with pytest.raises(ValueError, match=r"shift_left of int(32|64) by"):
            ops.shift_left(i, amount)
    with pytest.raises(TypeError, match="bitwise_and of float32: it takes integers"):
        ops.bitwise_and(x, 1)
    assert ops.clz(Var("k", "int64")).dtype == "int32" and ops.popcount(i).dtype == "int32"


# -- mathematics --------------------------------------------------------------------------------
def test_unary_functions_take_floats() -> None:
    assert ops.exp(x).dtype == "float32" and ops.exp(x).op.name == "tir.exp"
    assert ops.exp(i).dtype == "float32" and ops.exp(i).args[0].__class__ is Cast
    assert ops.sqrt(Var("d", "float64")).dtype == "float64" and ops.tanh(2).args[0].value == 2.0


@pytest.mark.parametrize("value", [-2.5, -0.3, -0.0, 0.0, 0.5, 1.5, 2.7, 1e30])
def test_rounding_folds_as_numpy_does(value: float) -> None:
    for build, reference in (
        (ops.floor, np.floor),
        (ops.ceil, np.ceil),
        (ops.trunc, np.trunc),
        (ops.round, np.round),
        (ops.nearbyint, np.rint),
    ):
        assert same_float(build(const(value)).value, float(reference(np.float32(value))))


def test_rounding_of_others() -> None:
    assert ops.floor(i) is i and ops.ceil(x).op.name == "tir.ceil"
    assert ops.floor(const(math.inf)).__class__ is Call
    assert ops.floor(const(0.9999999999)).value == 1.0, "the constant is a float32"


def test_abs_and_powers() -> None:
    assert ops.abs(const(-3)).value == 3 and ops.abs(const(-2.5)).value == 2.5 and ops.abs(p) is p
    assert ops.abs(const(-128, "int8")).value == -128 and ops.abs(const(200, "uint8")).value == 200
    assert ops.power(x, 1.0) is x and ops.power(x, 3.0).__class__ is Mul
    assert ops.power(x, y).op.name == "tir.pow" and ops.power(const(2), 10).value == 1024
    assert ops.power(i, 0).value == 1
    with pytest.raises(TypeError, match="takes a constant exponent from 0 to 64"):
        ops.power(i, n)


def test_questions_about_floats() -> None:
    assert ops.isnan(x).__class__ is NE and ops.isinf(x).__class__ is EQ and ops.isfinite(x).__class__ is LT
    assert ops.isnan(i).value == 0 and ops.isinf(i).value == 0 and ops.isfinite(i).value == 1


def test_limits() -> None:
    assert ops.min_value("int8").value == -128 and ops.max_value("float16").value == 65504.0
    assert ops.infinity("float32").value == math.inf
    assert ops.max_value("int32x4").__class__ is Broadcast


# -- calls --------------------------------------------------------------------------------------
def test_calls() -> None:
    made = ops.call_extern("int32", "f", i, 2.0)
    assert made.op.name == "tir.call_extern" and made.args[0] == "f" and made.dtype == "int32"
    buffer = decl_buffer((4, n), "float32", "A")
    packed = ops.call_packed("name", buffer, 3)
    assert packed.args[1].op.name == "tir.tvm_stack_make_array" and packed.args[2].value == 3
    assert ops.ret(i).op.name == "tir.ret" and ops.call_intrin("float32", "tir.exp", x).op.name == "tir.exp"
    assert ops.address_of(buffer[0, 0]).dtype == "handle" and ops.undef().op.name == "tir.undef"
    assert ops.assume(p).dtype == "bool" and ops.call_llvm_intrin("int32", "llvm.x", 1).args[0] == "llvm.x"


def test_small_helpers() -> None:
    assert ops.is_zero(const(0)) and ops.is_zero(const(0.0)) and not ops.is_zero(i) and ops.is_one(const(1))
    assert ops.product([2, 3, i]).__class__ is Mul and ops.product([]).value == 1
    assert ops.wrap(256, DataType("uint8")) == 0 and ops.wrap(128, DataType("int8")) == -128
    for cls, build in ops.BINARY.items():
        a, b = (p, q) if cls in (And, Or) else (i, n)
        assert build(a, b).__class__ is cls
    assert ops.BINARY[Max] is ops.max_of


def test_leading_zeros_and_truths_of_constants_are_known() -> None:
    assert [ops.clz(const(v, k)).value for v, k in ((0, "int32"), (1, "int64"), (128, "int32"))] == [
        32,
        63,
        24,
    ]
    assert ops.clz(const(-1, "int32")).value == 0
    assert [ops.cast("bool", const(v, "float32")).value for v in (0.0, 0.5)] == [0, 1]
