"""Element by element: arithmetic, comparison, logic, activations, conversion of types."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ..common.activations import gelu_of
from .build import R, cast, constant, dtype_of, is_float, rank, scalar
from .context import Node, Value, converter, of_inputs, rows
from .load import storage_dtype
from .narrow import decode, encode

# ---------------------------------------------------------------------------- unary
# Operators whose name in lower case is that of a constructor.
_SAME = (
    "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor IsNaN Log Round Sigmoid Sign Sin Sinh Sqrt Tan Tanh "
    "Where"
)
rows({name: of_inputs(getattr(R, name.lower())) for name in _SAME.split()})
rows(
    {
        "Abs": lambda n: n[0] if n.dtype(0).startswith("uint") else R.abs(n[0]),
        "BitwiseNot": of_inputs(R.bitwise_not),
        "Identity": lambda n: n.value(0),
        "Neg": of_inputs(R.negative),
        "Not": of_inputs(R.logical_not),
        "Reciprocal": lambda n: R.divide(scalar(1, n[0]), n[0]),
    }
)


@converter("IsInf")
def is_inf(n: Node) -> Any:
    x = n[0]
    up, down = n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    if up and down:
        return R.isinf(x)
    inf = scalar(math.inf, x)
    if up:
        return R.equal(x, inf)
    if down:
        return R.equal(x, scalar(-math.inf, x))
    return R.logical_and(R.isinf(x), constant(np.zeros((), bool)))


# ---------------------------------------------------------------------------- binary
def _broadcast(n: Node) -> tuple[Any, Any]:
    """The two operands; before opset 7 an attribute said where the second one's dimensions stand."""
    a, b = n[0], n[1]
    if n.opset < 7 and n.attr("broadcast", 0) and "axis" in n.attrs:
        missing = rank(a) - int(n.attr("axis")) - rank(b)
        if missing > 0:
            b = R.expand_dims(b, rank(b), missing)
    return a, b


def _two(build: Callable[[Any, Any], Any]) -> Callable[[Node], Any]:
    return lambda n: build(*_broadcast(n))


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": R.add,
    "Sub": R.subtract,
    "Mul": R.multiply,
    "And": R.logical_and,
    "Or": R.logical_or,
    "Xor": R.logical_xor,
    "BitwiseAnd": R.bitwise_and,
    "BitwiseOr": R.bitwise_or,
    "BitwiseXor": R.bitwise_xor,
    "Equal": R.equal,
    "Greater": R.greater,
    "GreaterOrEqual": R.greater_equal,
    "Less": R.less,
    "LessOrEqual": R.less_equal,
}
rows({name: _two(build) for name, build in _BINARY.items()})


@converter("Div")
def divide(n: Node) -> Any:
    a, b = _broadcast(n)
    if is_float(a):
        return R.divide(a, b)
    return R.floor_divide(a, b) if dtype_of(a).startswith("uint") else R.trunc_divide(a, b)


@converter("Mod")
def mod(n: Node) -> Any:
    a, b = n[0], n[1]
    if is_float(a):
        rest = R.mod(a, b)
        if n.attr("fmod", 0):
            return rest
        zero = scalar(0, rest)
        other = R.not_equal(R.less(rest, zero), R.less(b, zero))
        moved = R.where(R.logical_and(R.not_equal(rest, zero), other), R.add(rest, b), rest)
        return R.where(
            R.equal(rest, zero), R.where(R.less(b, zero), R.negative(R.abs(rest)), R.abs(rest)), moved
        )
    return R.trunc_mod(a, b) if n.attr("fmod", 0) else R.floor_mod(a, b)


@converter("BitShift")
def bit_shift(n: Node) -> Any:
    x, by = n[0], n[1]
    made = (R.left_shift if n.attr("direction") == "LEFT" else R.right_shift)(x, by)
    width = int(dtype_of(x).lstrip("uint"))
    is_signed = not dtype_of(x).startswith("u")
    known = n.known(1)
    if known is not None and known.size and known.min() >= 0 and known.max() < width:
        return made
    # A shift by more than the width, or by a negative number, moves all bits out: the sign's stay on the right.
    far = (
        R.right_shift(x, scalar(width - 1, x))
        if is_signed and n.attr("direction") == "RIGHT"
        else scalar(0, x)
    )
    return R.where(R.less(_unsigned(by), constant(np.asarray(width, _unsigned_name(by)))), made, far)


def _unsigned_name(x: Any) -> str:
    kind = dtype_of(x)
    return kind if kind.startswith("u") else f"u{kind}"


def _unsigned(x: Any) -> Any:
    """A negative number as a great one."""
    return x if dtype_of(x).startswith("u") else R.reinterpret(x, _unsigned_name(x))


@converter("Pow")
def power(n: Node) -> Any:
    a, b = _broadcast(n)
    kind = dtype_of(a)
    if not is_float(a):
        return cast(R.round(R.power(cast(a, "float64"), cast(b, "float64"))), kind)
    known = n.known(1)
    if known is not None and known.size == 1 and float(known.reshape(-1)[0]) == 2.0 and known.ndim <= rank(a):
        return R.multiply(a, a)
    return R.power(a, cast(b, kind))


def _variadic(build: Callable[[Any, Any], Any]) -> Callable[[Node], Any]:
    return lambda n: reduce(build, n.all())


rows({"Max": _variadic(R.maximum), "Min": _variadic(R.minimum), "Sum": _variadic(R.add)})


@converter("Mean")
def mean_of(n: Node) -> Any:
    total = reduce(R.add, n.all())
    return R.divide(total, scalar(len(n), total))


# ---------------------------------------------------------------------------- bounds
@converter("Clip")
def clip_attributes(n: Node) -> Any:
    x = n[0]
    if "min" in n.attrs:
        x = R.maximum(x, scalar(n.attr("min"), n[0]))
    return R.minimum(x, scalar(n.attr("max"), n[0])) if "max" in n.attrs else x


@converter("Clip", since=11)
def clip(n: Node) -> Any:
    x = n[0]
    low, high = n.known(1), n.known(2)
    if is_float(x) and low is not None and high is not None and low <= high:
        return R.clip(x, float(low.reshape(-1)[0]), float(high.reshape(-1)[0]))
    if n.has(1):
        x = R.maximum(x, R.reshape(n[1], ()) if rank(n[1]) else n[1])
    if n.has(2):
        x = R.minimum(x, R.reshape(n[2], ()) if rank(n[2]) else n[2])
    return R.copy(x) if x is n[0] else x


# ---------------------------------------------------------------------------- activations
rows(
    {
        "Relu": lambda n: R.nn.relu(n[0]) if is_float(n[0]) else R.maximum(n[0], scalar(0, n[0])),
        "LeakyRelu": lambda n: R.nn.leaky_relu(n[0], n.attr("alpha", 0.01)),
        "ThresholdedRelu": lambda n: thresholded_relu_of(n[0], n.attr("alpha", 1.0)),
        "HardSigmoid": lambda n: hard_sigmoid_of(n[0], n.attr("alpha", 0.2), n.attr("beta", 0.5)),
        "HardSwish": lambda n: R.multiply(n[0], hard_sigmoid_of(n[0], 1 / 6, 0.5)),
        "Elu": lambda n: elu_of(n[0], n.attr("alpha", 1.0)),
        "Gelu": lambda n: gelu_of(n[0], n.attr("approximate", "none")),
        "Mish": lambda n: R.multiply(n[0], R.tanh(softplus_of(n[0]))),
        "Softplus": lambda n: softplus_of(n[0]),
        "Softsign": lambda n: softsign_of(n[0]),
        "Swish": lambda n: swish_of(n[0], n.attr("alpha", 1.0)),
    }
)


@converter("PRelu")
def prelu(n: Node) -> Any:
    x, slope = n[0], n[1]
    if n.opset < 7 and rank(slope) == 1 and rank(x) > 2:
        slope = R.expand_dims(slope, 1, rank(x) - 2)
    return R.where(R.less(x, scalar(0, x)), R.multiply(x, slope), x)


def thresholded_relu_of(x: Any, alpha: float) -> Any:
    return R.where(R.greater(x, scalar(alpha, x)), x, scalar(0, x))


def hard_sigmoid_of(x: Any, alpha: float, beta: float) -> Any:
    return R.clip(R.add(R.multiply(scalar(alpha, x), x), scalar(beta, x)), 0.0, 1.0)


def elu_of(x: Any, alpha: float) -> Any:
    """x where it is positive, else alpha·(exp(x) - 1)."""
    grown = R.subtract(R.exp(R.minimum(x, scalar(0, x))), scalar(1, x))
    return R.where(R.greater(x, scalar(0, x)), x, R.multiply(scalar(alpha, x), grown))


@converter("Selu")
def selu(n: Node) -> Any:
    alpha, gamma = n.attr("alpha", 1.67326319217681884765625), n.attr("gamma", 1.05070102214813232421875)
    return R.multiply(scalar(gamma, n[0]), elu_of(n[0], alpha))


@converter("Celu")
def celu(n: Node) -> Any:
    x, alpha = n[0], n.attr("alpha", 1.0)
    inner = R.exp(R.divide(R.minimum(x, scalar(0, x)), scalar(alpha, x)))
    return R.add(
        R.maximum(x, scalar(0, x)),
        R.minimum(scalar(0, x), R.multiply(scalar(alpha, x), R.subtract(inner, scalar(1, x)))),
    )


def softplus_of(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    small, one = R.exp(R.negative(R.abs(x))), scalar(1, x)
    # log(1 + s) for a small s: what is lost in 1 + s is lost in (1 + s) - 1 as well, and cancels.
    more = R.add(one, small)
    lost = R.divide(small, R.maximum(R.subtract(more, one), scalar(1e-7, x)))
    growth = R.where(R.equal(more, one), small, R.multiply(R.log(more), lost))
    return R.add(R.maximum(x, scalar(0, x)), growth)


def softsign_of(x: Any) -> Any:
    return R.divide(x, R.add(scalar(1, x), R.abs(x)))


def swish_of(x: Any, alpha: float) -> Any:
    return R.multiply(x, R.sigmoid(R.multiply(scalar(alpha, x), x)))


@converter("Shrink")
def shrink(n: Node) -> Any:
    x, bias, lambd = n[0], n.attr("bias", 0.0), n.attr("lambd", 0.5)
    wide = cast(x, "float64") if not is_float(x) else x
    above = R.where(
        R.greater(wide, scalar(lambd, wide)), R.subtract(wide, scalar(bias, wide)), scalar(0, wide)
    )
    made = R.where(R.less(wide, scalar(-lambd, wide)), R.add(wide, scalar(bias, wide)), above)
    return cast(made, dtype_of(x))


# ---------------------------------------------------------------------------- types
def cast_value(n: Node, elem: int) -> Value:
    """A tensor converted to the type that has this number in ONNX."""
    value = n.value(0)
    wanted = storage_dtype(elem)
    x = decode(value)
    if elem >= 17:
        return encode(x, elem, n.flag("saturate", 1), n.attr("round_mode", "up"))
    if dtype_of(x) == wanted:
        return Value(x)
    if wanted == "bool":
        return Value(R.not_equal(x, scalar(0, x)))
    return Value(R.cast(x, wanted))


_TYPES = {"FLOAT": 1, "UINT8": 2, "INT8": 3, "INT32": 6, "INT64": 7, "BOOL": 9, "FLOAT16": 10, "DOUBLE": 11}


@converter("Cast")
def cast_node(n: Node) -> Any:
    to = n.attr("to")
    if isinstance(to, str):  # before opset 6
        to = _TYPES.get(to)
    if to is None:
        raise n.refuse("the attribute `to` is missing")
    return cast_value(n, to)


@converter("CastLike")
def cast_like(n: Node) -> Any:
    from .bodies import ELEMS

    like = n.value(1)
    return cast_value(n, like.elem or ELEMS[like.dtype])


@converter("BitCast")
def bit_cast(n: Node) -> Any:
    to = n.attr("to")
    x = n[0]
    if dtype_of(x) == "bool":
        x = cast(x, "uint8")
    wanted = storage_dtype(to)
    if wanted == "bool":
        return R.not_equal(R.reinterpret(x, "uint8"), constant(np.uint8(0)))
    return Value(x if dtype_of(x) == wanted else R.reinterpret(x, wanted), elem=to if to >= 17 else 0)


@converter("Constant")
def constant_node(n: Node) -> Any:
    found = n.attr("value")
    if found is None or isinstance(found, list):
        raise n.refuse(f"a constant given by {', '.join(n.attrs) or 'nothing'} is not supported")
    return found if isinstance(found, Value) else Value(known=found)


@converter("Det")
def det(n: Node) -> Any:
    """By expansion along the first row: right for the small matrices that models have."""
    x = n[0]
    size = n.static(0)[-1]
    if size > 5 or n.static(0)[-2] != size:
        raise n.refuse(f"of matrices {n.static(0)[-2:]}: only square ones up to 5 x 5")

    def at(i: int, j: int) -> Any:
        d = rank(x)
        row = R.strided_slice(x, [i, j], [i + 1, j + 1], axes=[d - 2, d - 1])
        return R.squeeze(row, [d - 2, d - 1])

    def minor(rows: list[int], columns: list[int]) -> Any:
        if len(rows) == 1:
            return at(rows[0], columns[0])
        total = None
        for i, c in enumerate(columns):
            term = R.multiply(at(rows[0], c), minor(rows[1:], [d for d in columns if d != c]))
            total = term if total is None else (R.subtract if i % 2 else R.add)(total, term)
        return total

    return minor(list(range(size)), list(range(size)))


@converter("EyeLike")
def eye_like(n: Node) -> Any:
    rows, columns = n.static(0)
    kind = storage_dtype(n.attr("dtype")) if "dtype" in n.attrs else n.dtype(0)
    return constant(np.eye(rows, columns, int(n.attr("k", 0)), dtype=_numpy(kind)))


def _numpy(kind: str) -> Any:
    from ....runtime.dtypes import element

    return element(kind).numpy
