"""Building expressions: type matching, folding of constants, and the functions behind the operators."""

from __future__ import annotations

import builtins
import math
import operator
import sys
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final

from ..homes import home_of
from . import expr as _expr
from .dtype import BOOL, FLOAT32, HANDLE, INT32, DataType
from .errors import DivisionByZeroError, OperandTypeError, OperandValueError
from .expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    CommReducer,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Range,
    Select,
    Sub,
    Var,
    const,
    const_value,
    convert,
)
from .fold import cast as cast
from .fold import common_type as common_type
from .fold import folded, int_value
from .fold import match as match
from .fold import rounded as rounded
from .fold import wrap as wrap
from .op import Op

_abs, _max, _min, _pow, _round, _all, _any = (
    builtins.abs,
    builtins.max,
    builtins.min,
    builtins.pow,
    builtins.round,
    builtins.all,
    builtins.any,
)


def op_named(name: str) -> Any:
    return Op.get(name)


def expr_text(expr: Any) -> str:
    """The expression in the script form, in its shortest spelling."""
    from .printer import expr_text as text

    return text(expr)


def call(dtype: str, name: str, *args: Any) -> PrimExpr:
    """The operator `name` applied to `args`, giving `dtype`."""
    return Call(dtype, Op.get(name), args)


def binary(function: Callable[[Any, Any], PrimExpr], a: Any, b: Any) -> Any:
    """`function(a, b)`, or NotImplemented if an operand is not an expression (for example a tensor)."""
    if isinstance(a, PrimExpr) and isinstance(b, PrimExpr):
        return function(a, b)
    for x in (a, b):
        if not isinstance(x, (PrimExpr, int, float)) and not hasattr(x, "__prim_expr__"):
            if hasattr(x, "__tensor_operand__") or not (hasattr(x, "item") and getattr(x, "ndim", 1) == 0):
                return NotImplemented
    return function(a, b)


# ---------------------------------------------------------------------------- arithmetic
def add(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """`a + b`."""
    a, b = match(a, b)
    if a.__class__ is IntImm and a.value == 0:
        return b
    if b.__class__ is IntImm and b.value == 0:
        return a
    return folded(Add, a, b, operator.add)


def sub(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """`a - b`."""
    a, b = match(a, b)
    if b.__class__ is IntImm and b.value == 0:
        return a
    return folded(Sub, a, b, operator.sub)


def mul(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """`a * b`."""
    a, b = match(a, b)
    for x, y in ((a, b), (b, a)):
        if x.__class__ is IntImm:
            if x.value == 1:
                return y
            if x.value == 0:
                return x
    return folded(Mul, a, b, operator.mul)


def neg(a: Any) -> PrimExpr:
    """`-a`."""
    a = convert(a)
    if a.__class__ is IntImm and not a.dtype.is_bool:
        return IntImm(a.dtype, wrap(-a.value, a.dtype))
    if a.__class__ is FloatImm:
        return FloatImm(a.dtype, -a.value)
    return mul(a, const(-1, a.dtype)) if a.dtype.is_float else sub(const(0, a.dtype), a)


def _trunc_div(a: int, b: int) -> int:
    q = _abs(a) // _abs(b)
    return q if (a < 0) == (b < 0) else -q


def _need_divisor(b: PrimExpr) -> None:
    if int_value(b) == 0:
        raise DivisionByZeroError("division by zero in an integer expression")


def truncdiv(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """Integer division rounded towards zero."""
    a, b = match(a, b)
    if not a.dtype.is_float:
        _need_divisor(b)
        if int_value(b) == 1:
            return a
        return folded(Div, a, b, _trunc_div)
    return Div(a, b)


def truncmod(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """The remainder of `truncdiv`."""
    a, b = match(a, b)
    if a.dtype.is_float:
        raise OperandTypeError(f"truncmod of {a.dtype}: it takes integers; fmod is the one for floats")
    _need_divisor(b)
    if int_value(b) == 1:
        return const(0, a.dtype)
    return folded(Mod, a, b, lambda x, y: x - _trunc_div(x, y) * y)


def floordiv(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """`a // b`, rounded down."""
    a, b = match(a, b)
    if a.dtype.is_float:
        return floor(Div(a, b))
    _need_divisor(b)
    if int_value(b) == 1:
        return a
    if int_value(a) == 0:
        return a
    return folded(FloorDiv, a, b, operator.floordiv)


def floormod(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """`a % b`, with the sign of `b`."""
    a, b = match(a, b)
    if a.dtype.is_float:
        return sub(a, mul(floor(Div(a, b)), b))
    _need_divisor(b)
    if int_value(b) == 1:
        return const(0, a.dtype)
    if int_value(a) == 0:
        return a
    return folded(FloorMod, a, b, operator.mod)


def ceildiv(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """`a / b` rounded up."""
    a, b = match(a, b)
    if a.dtype.is_float:
        return ceil(div(a, b))
    return floordiv(add(a, sub(b, const(1, b.dtype))), b)


def true_divide(a: Any, b: Any) -> PrimExpr:
    """`a / b` of floats. Integers are refused, since there are several integer divisions."""
    a, b = match(a, b)
    if not a.dtype.is_float:
        raise RuntimeError(
            f"`{a} / {b}` divides integers; choose a division: floordiv/floormod (Python's //), "
            "truncdiv/truncmod (C's), indexdiv/indexmod (for indices), or cast to a float first"
        )
    return div(a, b)


def div(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """`a / b` as C has it: towards zero for integers."""
    a, b = match(a, b)
    if a.dtype.is_float:
        if b.__class__ is FloatImm and rounded(b.value, b.dtype) != 0:
            return folded(Div, a, b, operator.truediv)
        return Div(a, b)
    return truncdiv(a, b)


def indexdiv(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """Division of an index, known not to be negative."""
    return floordiv(a, b)


def indexmod(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """Remainder of an index, known not to be negative."""
    return floormod(a, b)


def _lesser(x: Any, y: Any) -> Any:
    return x if x != x or x < y else y


def _greater(x: Any, y: Any) -> Any:
    return x if x != x or x > y else y


def min_of(a: Any, b: Any) -> PrimExpr:
    """The lesser of two."""
    a, b = match(a, b)
    return a if a is b else folded(Min, a, b, _lesser)


def max_of(a: Any, b: Any) -> PrimExpr:
    """The greater of two."""
    a, b = match(a, b)
    return a if a is b else folded(Max, a, b, _greater)


# ---------------------------------------------------------------------------- comparison and logic
def _compare(cls: type, f: Callable[[Any, Any], bool]) -> Callable[..., PrimExpr]:
    def build(a: Any, b: Any, span: Any = None) -> PrimExpr:
        a, b = match(a, b)
        if a.__class__ is IntImm and b.__class__ is IntImm:
            return IntImm(BOOL, int(f(a.value, b.value)))  # type: ignore[attr-defined]
        return cls(a, b)  # type: ignore[no-any-return]

    build.__name__ = cls.__name__
    return build


equal = _compare(EQ, operator.eq)
not_equal = _compare(NE, operator.ne)
less = _compare(LT, operator.lt)
less_equal = _compare(LE, operator.le)
greater = _compare(GT, operator.gt)
greater_equal = _compare(GE, operator.ge)


def equal_or_not(a: Any, b: Any, same: bool) -> Any:
    """The result of `==` and `!=`: an expression, or NotImplemented for a value that is not an operand."""
    if b is None or isinstance(b, (str, tuple, list, dict)):
        return NotImplemented
    try:
        return (equal if same else not_equal)(a, b)
    except TypeError:
        return NotImplemented


def _truth(a: Any) -> PrimExpr:
    a = convert(a)
    if not a.dtype.is_bool:
        raise OperandTypeError(f"`{a}` of type {a.dtype} is used as a condition")
    return a


def logical_and(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """Both hold."""
    a, b = _truth(a), _truth(b)
    for x, y in ((a, b), (b, a)):
        if x.__class__ is IntImm:
            return y if x.value else x if y.dtype is BOOL else const(False, y.dtype)
    return And(*match(a, b))


def logical_or(a: Any, b: Any, span: Any = None) -> PrimExpr:
    """One of both holds."""
    a, b = _truth(a), _truth(b)
    for x, y in ((a, b), (b, a)):
        if x.__class__ is IntImm:
            return y if not x.value else x if y.dtype is BOOL else const(True, y.dtype)
    return Or(*match(a, b))


def logical_not(a: Any, span: Any = None) -> PrimExpr:
    """It does not hold."""
    a = _truth(a)
    if a.__class__ is IntImm:
        return IntImm(BOOL, 1 - a.value)
    return a.a if a.__class__ is Not else Not(a)


def all(*conditions: Any, span: Any = None) -> PrimExpr:
    """All conditions hold."""
    if not conditions:
        raise OperandValueError("tir.all takes at least one condition")
    out = _truth(conditions[0])
    for c in conditions[1:]:
        out = logical_and(out, c)
    return out


def any(*conditions: Any, span: Any = None) -> PrimExpr:
    """At least one condition holds."""
    if not conditions:
        raise OperandValueError("tir.any takes at least one condition")
    out = _truth(conditions[0])
    for c in conditions[1:]:
        out = logical_or(out, c)
    return out


def select(condition: Any, true_value: Any, false_value: Any, span: Any = None) -> PrimExpr:
    """One of two values; both may be evaluated."""
    condition = _truth(condition)
    a, b = match(true_value, false_value)
    if condition.__class__ is IntImm:
        return a if condition.value else b
    return Select(condition, a, b)


def if_then_else(cond: Any, t: Any, f: Any, span: Any = None) -> PrimExpr:
    """One of two values; only the chosen one is evaluated."""
    cond = _truth(cond)
    a, b = match(t, f)
    if cond.__class__ is IntImm:
        return a if cond.value else b
    return Call(a.dtype, Op.get("tir.if_then_else"), (cond, a, b))


def likely(cond: Any, span: Any = None) -> PrimExpr:
    """A condition that mostly holds."""
    cond = convert(cond)
    return cond if cond.__class__ is IntImm else Call(cond.dtype, Op.get("tir.likely"), (cond,))


# ---------------------------------------------------------------------------- bits
def _bits(name: str, f: Callable[[int, int], int]) -> Callable[..., PrimExpr]:
    def build(a: Any, b: Any, span: Any = None) -> PrimExpr:
        a, b = match(a, b)
        if a.dtype.is_float:
            raise OperandTypeError(f"{name} of {a.dtype}: it takes integers")
        amount = int_value(b) if name.startswith("shift") else None
        if amount is not None and not 0 <= amount < a.dtype.bits:
            raise OperandValueError(f"{name} of {a.dtype} by {amount}: it goes from 0 to {a.dtype.bits - 1}")
        if a.__class__ is IntImm and b.__class__ is IntImm:
            return IntImm(a.dtype, wrap(f(a.value, b.value), a.dtype))  # type: ignore[attr-defined]
        return Call(a.dtype, Op.get(f"tir.{name}"), (a, b))

    build.__name__ = name
    return build


bitwise_and = _bits("bitwise_and", operator.and_)
bitwise_or = _bits("bitwise_or", operator.or_)
bitwise_xor = _bits("bitwise_xor", operator.xor)
shift_left = _bits("shift_left", lambda a, b: a << b)
shift_right = _bits("shift_right", lambda a, b: a >> b)


def bitwise_not(a: Any, span: Any = None) -> PrimExpr:
    """All bits inverted."""
    a = convert(a)
    if a.dtype.is_bool:
        return logical_not(a)
    if a.dtype.is_float:
        raise OperandTypeError(f"bitwise_not of {a.dtype}: it takes integers")
    return Call(a.dtype, Op.get("tir.bitwise_not"), (a,))


# ---------------------------------------------------------------------------- mathematics
def _float_arg(a: Any) -> PrimExpr:
    a = convert(a)
    return a if a.dtype.is_float else cast(FLOAT32.with_lanes(a.dtype.lanes), a)


def _unary(name: str, doc: str) -> Callable[..., PrimExpr]:
    def build(x: Any, span: Any = None) -> PrimExpr:
        if hasattr(x, "__tensor_operand__"):
            return x.__tensor_operand__(build)  # type: ignore[no-any-return]
        x = _float_arg(x)
        return Call(x.dtype, Op.get(f"tir.{name}"), (x,))

    build.__name__, build.__doc__ = name, doc
    return build


exp = _unary("exp", "e to the power of x.")
exp2 = _unary("exp2", "2 to the power of x.")
exp10 = _unary("exp10", "10 to the power of x.")
log = _unary("log", "The natural logarithm.")
log2 = _unary("log2", "The logarithm to base 2.")
log10 = _unary("log10", "The logarithm to base 10.")
log1p = _unary("log1p", "log(1 + x), exact near 0.")
sqrt = _unary("sqrt", "The square root.")
rsqrt = _unary("rsqrt", "One over the square root.")
sin = _unary("sin", "The sine.")
cos = _unary("cos", "The cosine.")
tan = _unary("tan", "The tangent.")
asin = _unary("asin", "The arc sine.")
acos = _unary("acos", "The arc cosine.")
atan = _unary("atan", "The arc tangent.")
sinh = _unary("sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
tanh = _unary("tanh", "The hyperbolic tangent.")
asinh = _unary("asinh", "The inverse hyperbolic sine.")
acosh = _unary("acosh", "The inverse hyperbolic cosine.")
atanh = _unary("atanh", "The inverse hyperbolic tangent.")
erf = _unary("erf", "The error function.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")


def _rounding(name: str, doc: str, f: Callable[[float], float]) -> Callable[..., PrimExpr]:
    def build(x: Any, span: Any = None) -> PrimExpr:
        if hasattr(x, "__tensor_operand__"):
            return x.__tensor_operand__(build)  # type: ignore[no-any-return]
        x = convert(x)
        if not x.dtype.is_float:
            return x
        if x.__class__ is FloatImm and math.isfinite(x.value):
            held = rounded(x.value, x.dtype)
            return FloatImm(x.dtype, math.copysign(f(held), held))
        return Call(x.dtype, Op.get(f"tir.{name}"), (x,))

    build.__name__, build.__doc__ = name, doc
    return build


floor = _rounding("floor", "The greatest integer not above x.", math.floor)
ceil = _rounding("ceil", "The least integer not below x.", math.ceil)
trunc = _rounding("trunc", "x without its fraction.", math.trunc)
nearbyint = _rounding("nearbyint", "The nearest integer, ties to even.", _round)
round = _rounding("round", "The nearest integer, ties to even (as NumPy's).", _round)


def abs(x: Any, span: Any = None) -> PrimExpr:
    """The absolute value."""
    if hasattr(x, "__tensor_operand__"):
        return x.__tensor_operand__(abs)  # type: ignore[no-any-return]
    x = convert(x)
    if x.__class__ in (IntImm, FloatImm):
        size = _abs(x.value)
        return const(wrap(int(size), x.dtype) if x.dtype.is_int else size, x.dtype)
    if x.dtype.is_float:
        return Call(x.dtype, Op.get("tir.fabs"), (x,))
    if x.dtype.is_uint or x.dtype.is_bool:
        return x
    return select(greater_equal(x, const(0, x.dtype)), x, neg(x))


fabs = abs


def power(x: Any, y: Any, span: Any = None) -> PrimExpr:
    """x to the power of y."""
    a, b = match(x, y)
    if not a.dtype.is_float:
        if b.__class__ is IntImm and 0 <= b.value <= 64:
            out: PrimExpr = const(1, a.dtype)
            for _ in range(b.value):
                out = mul(out, a)
            return out
        raise OperandTypeError(
            f"pow of {a.dtype} takes a constant exponent from 0 to 64; cast to a float for others"
        )
    if b.__class__ in (FloatImm, IntImm) and b.value in (1.0, 2.0, 3.0):
        return mul(mul(a, a), a) if b.value == 3.0 else a if b.value == 1.0 else mul(a, a)
    return Call(a.dtype, Op.get("tir.pow"), (a, b))


pow = power


def _two_floats(name: str, doc: str) -> Callable[..., PrimExpr]:
    def build(x: Any, y: Any, span: Any = None) -> PrimExpr:
        a, b = match(x, y)
        a, b = _float_arg(a), _float_arg(b)
        return Call(a.dtype, Op.get(f"tir.{name}"), (a, b))

    build.__name__, build.__doc__ = name, doc
    return build


fmod = _two_floats("fmod", "The remainder of x / y with the sign of x.")
atan2 = _two_floats("atan2", "The angle of the point (y, x).")
hypot = _two_floats("hypot", "sqrt(x·x + y·y).")
copysign = _two_floats("copysign", "x with the sign of y.")
nextafter = _two_floats("nextafter", "The next number from x towards y.")


def ldexp(x: Any, exponent: Any, span: Any = None) -> PrimExpr:
    """x times 2 to the power of an integer."""
    a = _float_arg(x)
    return Call(a.dtype, Op.get("tir.ldexp"), (a, convert(exponent)))


def isnan(x: Any, span: Any = None) -> PrimExpr:
    """Whether x is not a number."""
    x = convert(x)
    return not_equal(x, x) if x.dtype.is_float else const(False, BOOL.with_lanes(x.dtype.lanes))


def isinf(x: Any, span: Any = None) -> PrimExpr:
    """Whether x is infinite."""
    x = convert(x)
    if not x.dtype.is_float:
        return const(False, BOOL.with_lanes(x.dtype.lanes))
    return equal(abs(x), infinity(x.dtype))


def isfinite(x: Any, span: Any = None) -> PrimExpr:
    """Whether x is a number and not infinite."""
    x = convert(x)
    if not x.dtype.is_float:
        return const(True, BOOL.with_lanes(x.dtype.lanes))
    return less(abs(x), infinity(x.dtype))


def popcount(x: Any, span: Any = None) -> PrimExpr:
    """The number of one bits."""
    x = convert(x)
    return Call(x.dtype, Op.get("tir.popcount"), (x,))


def clz(x: Any, span: Any = None) -> PrimExpr:
    """The number of leading zero bits."""
    x = convert(x)
    value = int_value(x)
    if value is not None and x.dtype.is_integral:
        return const(x.dtype.bits - (value % (1 << x.dtype.bits)).bit_length(), INT32)
    return Call(INT32.with_lanes(x.dtype.lanes), Op.get("tir.clz"), (x,))


def reinterpret(dtype: str, value: Any, span: Any = None) -> PrimExpr:
    """The bits of `value` as another type of the same size."""
    value, kind = convert(value), DataType(dtype)
    if value.dtype is kind:
        return value
    if kind.bits * kind.lanes != value.dtype.bits * value.dtype.lanes:
        raise OperandTypeError(f"reinterpret from {value.dtype} to {kind}: the sizes differ")
    return Call(kind, Op.get("tir.reinterpret"), (value,))


def min_value(dtype: str, span: Any = None) -> PrimExpr:
    """The least finite value of a type."""
    kind = DataType(dtype)
    if kind.is_custom:
        from ..runtime.registry import get_global_func

        found = get_global_func(f"tvm.datatype.min.{kind.code[7:-1]}", allow_missing=True)
        if found is not None:
            return found(kind.bits)  # type: ignore[no-any-return]
    return const(kind.min_value(), dtype)


def max_value(dtype: str, span: Any = None) -> PrimExpr:
    """The greatest finite value of a type."""
    return const(DataType(dtype).max_value(), dtype)


def infinity(dtype: str, span: Any = None) -> PrimExpr:
    """Positive infinity of a float type."""
    return const(math.inf, dtype)


# ---------------------------------------------------------------------------- calls
def call_extern(dtype: str, func_name: str, *args: Any, span: Any = None) -> PrimExpr:
    """A call of a C function by name."""
    return call(dtype, "tir.call_extern", func_name, *args)


def call_pure_extern(dtype: str, func_name: str, *args: Any, span: Any = None) -> PrimExpr:
    """A call of a C function without effects."""
    return call(dtype, "tir.call_pure_extern", func_name, *args)


def call_intrin(dtype: str, func_name: Any, *args: Any, span: Any = None) -> PrimExpr:
    """A call of a registered operator."""
    return Call(dtype, func_name, args)


def call_packed(*args: Any, span: Any = None) -> PrimExpr:
    """A call of a function from the global registry: the name, then buffers and scalars."""
    return Call(INT32, Op.get("tir.call_packed"), tuple(_packed_arg(a) for a in args))


def trace(args: Any, trace_action: str = "tvm.default_trace_action") -> PrimExpr:
    """The last of `args`, which a function of the global registry sees, with all of them, each time it is computed.

    te.compute((n,), lambda i: tir.trace([i, A[i]], "my.watch"))

    The function may return another value, which takes the place of the last one; None keeps it.
    """
    if not isinstance(args, (list, tuple)) or not args:
        raise ValueError("trace takes a list of expressions, of which the last is the value")
    values = tuple(_packed_arg(a) for a in args)
    watch = (convert("tvm.contrib.trace"), convert(trace_action))
    return Call(values[-1].dtype, Op.get("tir.call_packed"), (*watch, *values))


def _packed_arg(value: Any) -> PrimExpr:
    access = getattr(value, "access_ptr", None)
    return convert(value) if access is None else stack_array(value)


def stack_array(buffer: Any) -> PrimExpr:
    """A description of `buffer` (pointer, shape, strides, type) as an argument of a packed call."""
    shape = call(HANDLE, "tir.tvm_stack_make_shape", *buffer.shape)
    strides = call(HANDLE, "tir.tvm_stack_make_shape", *buffer.strides) if buffer.strides else const(0, INT32)
    kind = call(buffer.dtype, "tir.type_annotation")
    return call(
        HANDLE,
        "tir.tvm_stack_make_array",
        buffer.data,
        shape,
        strides,
        len(buffer.shape),
        kind,
        buffer.elem_offset,
    )


def _llvm_name(name: Any) -> Any:
    """The name of an LLVM intrinsic, given by name or by the number of `llvm_lookup_intrinsic_id`."""
    number = const_value(name) if not isinstance(name, str) else None
    if not isinstance(number, int):
        return name
    return home_of("targets").codegen.llvm_get_intrinsic_name(number)


def llvm_lookup_intrinsic_id(name: Any, span: Any = None) -> PrimExpr:
    """An LLVM intrinsic as the first argument of `call_llvm_intrin`: here its name stands for its number."""
    return convert(name)


def call_llvm_intrin(dtype: str, name: str, *args: Any, span: Any = None) -> PrimExpr:
    """A call of an LLVM intrinsic by name."""
    return call(dtype, "tir.call_llvm_intrin", _llvm_name(name), *args)


def call_llvm_pure_intrin(dtype: str, name: str, *args: Any, span: Any = None) -> PrimExpr:
    """A call of an LLVM intrinsic without effects."""
    return call(dtype, "tir.call_llvm_pure_intrin", _llvm_name(name), *args)


def call_tir(global_var: Any, *args: Any) -> Any:
    """A call of a function of the module."""
    return global_var(*args)


def ret(value: Any, span: Any = None) -> PrimExpr:
    """Return from the function with `value`."""
    value = convert(value)
    return call(value.dtype, "tir.ret", value)


def fail(kind: str, message: str, *values: Any) -> PrimExpr:
    """Return from the function with an error of a kind ("index", "value" or "divisor"); `values` replace the `{}` in
    its message. A GPU kernel reports the error and continues."""
    if message.count("{}") != len(values):
        raise OperandValueError(
            f"fail: the message {message!r} does not have a placeholder for each of {len(values)} values"
        )
    return call(INT32, "tir.fail", kind, message, *(cast("int64", v) for v in values))


def checked(value: Any, good: Any, kind: str, message: str, *values: Any) -> PrimExpr:
    """`value` if the condition holds; else the function returns as by `fail`, or continues with 0 in a GPU kernel.

    For the kind "index" it is a non-negative index, and the last of `values` is the greatest legal one. For the kind
    "value" it is an index or a length as in the data.
    """
    held = convert(value)
    numbers = fail(kind, message, *values).args[2:]  # type: ignore[attr-defined]
    return call(held.dtype, "tir.checked", held, good, kind, message, *numbers)


def assume(cond: Any, span: Any = None) -> PrimExpr:
    """A promise that `cond` holds here."""
    return call(BOOL, "tir.assume", cond)


def undef(dtype: str = INT32) -> PrimExpr:
    """An undefined value, which is never used."""
    return call(dtype, "tir.undef")


LARGEST_VSCALE: Final = 1024  # vectors of RISC-V have at most 65536 bits, and those of SVE 2048
_VSCALE = call(INT32, "tir.vscale")  # one node, so that `lanes.a == vscale()` holds


def vscale() -> PrimExpr:
    """The length factor of scalable vectors on the CPU that runs the program."""
    return _VSCALE


def address_of(load: Any, span: Any = None) -> PrimExpr:
    """The address of a buffer's element."""
    return call(HANDLE, "tir.address_of", load)


# ---------------------------------------------------------------------------- reducers
def apply_reducer(
    reducer: CommReducer, lhs: tuple[PrimExpr, ...], rhs: tuple[PrimExpr, ...]
) -> tuple[PrimExpr, ...]:
    from .functor import substitute

    table: dict[Var, PrimExpr] = dict(zip(reducer.lhs, lhs, strict=True))
    table.update(zip(reducer.rhs, rhs, strict=True))
    return tuple(substitute(r, table) for r in reducer.result)


def is_zero(e: Any) -> bool:
    return e.__class__ in (IntImm, FloatImm) and e.value == 0


def is_one(e: Any) -> bool:
    return e.__class__ in (IntImm, FloatImm) and e.value == 1


def product(values: Iterable[Any]) -> PrimExpr:
    """The product of sizes."""
    out: PrimExpr = const(1)
    for v in values:
        out = mul(out, v)
    return out


def conjuncts(condition: PrimExpr) -> list[PrimExpr]:
    """The conjuncts of a condition, without those that always hold."""
    out: list[PrimExpr] = []
    stack = [condition]
    while stack:
        c = stack.pop()
        if c.__class__ is And:
            stack += [c.b, c.a]  # type: ignore[attr-defined]
        elif not (c.__class__ is IntImm and c.value):  # type: ignore[attr-defined]
            out.append(c)
    return out


def conjunction(conditions: Iterable[PrimExpr]) -> PrimExpr:
    """The condition that all of some conditions hold; true if there are none."""
    return reduce(logical_and, conditions, const(True, "bool"))


def in_range(value: PrimExpr, dom: Range) -> PrimExpr:
    """The condition that a value is in a range."""
    return logical_and(greater_equal(value, dom.min), less(value, add(dom.min, dom.extent)))


BINARY: dict[type, Callable[[Any, Any], PrimExpr]] = {
    Add: add,
    Sub: sub,
    Mul: mul,
    Div: div,
    Mod: truncmod,
    FloorDiv: floordiv,
    FloorMod: floormod,
    Min: min_of,
    Max: max_of,
    EQ: equal,
    NE: not_equal,
    LT: less,
    LE: less_equal,
    GT: greater,
    GE: greater_equal,
    And: logical_and,
    Or: logical_or,
}

_expr._bind_ops(sys.modules[__name__])
