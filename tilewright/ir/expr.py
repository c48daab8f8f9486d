"""Expressions. Each docstring is the meaning of the node."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar

from . import operators
from .dtype import BOOL, FLOAT32, FLOAT64, HANDLE, INT32, INT64, DataType
from .errors import OperandTypeError, OperandValueError
from .node import BaseExpr, Node, node, register_converter
from .operators import ExprOp as ExprOp
from .types import PointerType, PrimType, Type

if TYPE_CHECKING:
    from .buffer import Buffer

__all__ = [
    "EQ",
    "GE",
    "GT",
    "LE",
    "LT",
    "NE",
    "Add",
    "And",
    "BinaryOp",
    "Broadcast",
    "BufferLoad",
    "Call",
    "Cast",
    "CmpOp",
    "CommReducer",
    "Div",
    "ExprOp",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "IntImm",
    "IterVar",
    "IterVarType",
    "Let",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Not",
    "Or",
    "PrimExpr",
    "ProducerLoad",
    "Ramp",
    "Range",
    "Reduce",
    "Select",
    "Shuffle",
    "SizeVar",
    "StringImm",
    "Sub",
    "Var",
    "const",
    "convert",
    "const_value",
]

_V = TypeVar("_V")
Def: TypeAlias = _V  # type: ignore[misc]  # marks a field whose variable is bound by the node

# The arithmetic behind the operators; `ops` fills it in when it is imported (it needs the nodes).
_ops: Any = None


def _bind_ops(module: Any) -> None:
    global _ops
    _ops = module
    operators.bind(module)


class PrimExpr(ExprOp, BaseExpr):
    """A value, computed without side effects."""

    __slots__ = ("dtype",)
    dtype: DataType
    __hash__ = object.__hash__

    def asobject(self) -> PrimExpr:
        """This expression (classic programs call it on a deferred `==`)."""
        return self

    def __repr__(self) -> str:
        return _ops.expr_text(self)  # type: ignore[no-any-return]

    __str__ = __repr__


def const(value: Any, dtype: str | None = None, span: Any = None) -> PrimExpr:
    """A constant; the type defaults to int32, float32 or bool by the kind of the Python value."""
    if dtype is None:
        if isinstance(value, bool):
            dtype = BOOL
        elif isinstance(value, int):
            dtype = INT32 if -(1 << 31) <= value < 1 << 31 else INT64
        else:  # a scalar of NumPy's has its own type, also a float64, which is a Python float too
            large = isinstance(value, float) and math.isfinite(value) and abs(value) > FLOAT32.high
            dtype = str(getattr(value, "dtype", FLOAT64 if large else FLOAT32))
    kind = DataType(dtype)
    one = kind.element
    made: PrimExpr
    if one.is_float:
        made = FloatImm(one, float(value))
    elif isinstance(value, float) and not math.isfinite(value):
        raise OperandValueError(f"{value} does not fit into {kind}")
    else:
        made = IntImm(one, int(value))
    return made if kind.lanes == 1 else Broadcast(made, kind.lanes)


def convert(value: Any) -> PrimExpr:
    """A Python value as an expression; an expression is returned unchanged."""
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, bool):
        return IntImm(BOOL, int(value))
    if isinstance(value, (int, float)):
        return const(value if isinstance(value, int) else float(value))
    if isinstance(value, str):
        return StringImm(value)
    as_expr = getattr(value, "__prim_expr__", None)
    if as_expr is not None:
        return as_expr()  # type: ignore[no-any-return]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return const(value.item(), str(value.dtype))
    raise OperandTypeError(f"cannot use {value!r} ({type(value).__name__}) as an expression")


def whole(value: Any) -> Any:
    """A size that Python's `/` made a float, as the integer that it is: 8.0 is 8; anything else unchanged."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value.__class__ is FloatImm and value.value.is_integer():
        return int(value.value)
    return value


def _converted(values: Iterable[Any]) -> tuple[PrimExpr, ...]:
    if values.__class__ is tuple:
        for v in values:
            if not isinstance(v, PrimExpr):
                break
        else:
            return values  # type: ignore[return-value]
    if values is None:
        return ()
    if isinstance(values, (int, PrimExpr)):
        return (convert(values),)
    return tuple([v if isinstance(v, PrimExpr) else convert(v) for v in values])


def const_value(expr: Any) -> int | float | None:
    """The value of a constant as a Python number, else None."""
    if expr.__class__ is IntImm or expr.__class__ is FloatImm:
        return expr.value  # type: ignore[no-any-return]
    if expr.__class__ is Broadcast:
        return const_value(expr.value)
    return expr if isinstance(expr, (int, float)) else None


register_converter("_expr", PrimExpr)
register_converter("_to_expr", convert)
register_converter("_to_exprs", _converted)
register_converter("_dtype", DataType)


def _check_same(a: PrimExpr, b: PrimExpr, name: str) -> None:
    if a.dtype is not b.dtype:
        raise OperandTypeError(
            f"{name} of mismatched types {a.dtype} and {b.dtype}: `{a}` and `{b}`; cast one of them"
        )


def _checked_predicate(
    buffer: Buffer, predicate: PrimExpr, kind: DataType, stored: bool = False
) -> PrimExpr | None:
    """The predicate of a vector access; None if it holds in all lanes."""
    given = predicate.dtype
    if given.lanes != kind.lanes or not given.is_predicate:
        if given.is_scalable != kind.is_scalable:
            other = "value dtype" if stored else "load indices"
            reason = f"Predicate mask dtype and {other} must both be scalable."
        elif given.lanes != kind.lanes:
            what = "store a value" if stored else "load a vector"
            reason = (
                f"Got a predicate mask with {abs(given.lanes)} lanes, but trying to {what} with "
                f"{abs(kind.lanes)} lanes. The number of lanes must match."
            )
        else:
            reason = f"Predicate mask elements must be boolean values, but got {given.element}."
        raise OperandTypeError(
            f"{reason} The access to {buffer.name} has the type {kind}, and its mask `{predicate}` is {given}"
        )
    if not given.is_bool:
        predicate = _to_type(BOOL.with_lanes(given.lanes), predicate)
    held = predicate.value if isinstance(predicate, Broadcast) else predicate
    return None if isinstance(held, IntImm) and held.value else predicate


def _check_indices(buffer: Any, indices: tuple[PrimExpr, ...]) -> None:
    raise OperandValueError(
        f"buffer {buffer.name} has {len(buffer.shape)} dimensions and was indexed with {len(indices)}"
    )


def _to_type(kind: DataType, value: PrimExpr) -> PrimExpr:
    return _ops.cast(kind, value)  # type: ignore[no-any-return]


_scaled: dict[int, PrimExpr] = {}


def vscale_factor(e: Any) -> int | None:
    """The number in `T.vscale() * number`, of any integer type, or None for other expressions."""
    while isinstance(e, Cast) and e.dtype.is_integral:
        e = e.value
    if not isinstance(e, Mul):
        return None
    for one, other in ((e.a, e.b), (e.b, e.a)):
        factor, alone = const_value(other), one.value if isinstance(one, Cast) else one
        if not isinstance(factor, int):
            continue
        if isinstance(alone, Call) and alone.op is _ops.op_named("tir.vscale"):
            return factor
        rest = vscale_factor(one)
        if rest is not None:
            return factor * rest
    return None


def _lanes_of(lanes: Any) -> Any:
    """The number of lanes of a vector in its one form: an int, or the one expression `T.vscale() * number`."""
    count = const_value(lanes) if isinstance(lanes, PrimExpr) else lanes
    factor = (
        vscale_factor(lanes) if count is None else -count if isinstance(count, int) and count < 0 else None
    )
    if factor is None:
        if count is None or int(count) < 1:
            raise OperandValueError(
                f"a vector has {lanes} lanes: this must be a number from 1 on, or T.vscale() * number"
            )
        return int(count)
    if factor < 1:
        raise OperandValueError(f"a vector has {lanes} lanes: the factor of T.vscale() must be at least 1")
    if factor not in _scaled:
        _scaled[factor] = Mul(_ops.vscale(), const(factor))
    return _scaled[factor]


def scalable_vectors_were_made() -> bool:
    """Whether any program of this process has scalable vectors."""
    return bool(_scaled)


def _count_of(lanes: Any) -> int:
    """The number of lanes as a data type counts them: below 0 for a scalable vector."""
    return lanes if lanes.__class__ is int else -lanes.b.value  # type: ignore[no-any-return]


register_converter("_lanes_of", _lanes_of)
register_converter("_count_of", _count_of)
register_converter("_check_same", _check_same)
register_converter("_check_indices", _check_indices)
register_converter("_checked_predicate", _checked_predicate)
register_converter("_to_type", _to_type)
register_converter("_BOOL", BOOL)
register_converter("_INT32", INT32)
register_converter("_HANDLE", HANDLE)
register_converter("OperandTypeError", OperandTypeError)
register_converter("_INT32", INT32)


# ---------------------------------------------------------------------------- leaves
@node
class Var(PrimExpr):
    """A variable. Two variables of the same name are different variables."""

    name: str
    type_annotation: Type
    _derived = ("dtype",)

    def __init__(self, name: str = "v", dtype: Any = INT32, span: Any = None) -> None:
        self.name = name
        if isinstance(dtype, Type):
            self.type_annotation = dtype
            self.dtype = dtype.dtype if isinstance(dtype, PrimType) else HANDLE
        else:
            self.dtype = DataType(dtype)
            self.type_annotation = (
                PointerType(PrimType("void")) if self.dtype is HANDLE else PrimType(self.dtype)
            )
        self.span = span

    @property
    def name_hint(self) -> str:
        return self.name

    def copy_with_suffix(self, suffix: str) -> Var:
        return self.__class__(self.name + suffix, self.type_annotation)


USUAL_SIZE: Final = 256  # the likely value of a size of which nothing else is known


@node
class SizeVar(Var):
    """A variable that is a size, and so never negative. Schedules are chosen for its `likely` value."""

    likely: int
    _derived = ("likely",)  # not a part of the program: structural equality and JSON leave it out

    def __init__(
        self, name: str = "v", dtype: Any = INT32, span: Any = None, likely: int = USUAL_SIZE
    ) -> None:
        self.likely = likely
        Var.__init__(self, name, dtype, span)


@node
class IntImm(PrimExpr):
    """An integer or boolean constant."""

    dtype: DataType
    value: int

    def __init__(self, dtype: str, value: int, span: Any = None) -> None:
        kind = dtype if dtype.__class__ is DataType else DataType(dtype)
        value = int(value)
        if not kind.low <= value <= kind.high and (kind.bits != 1 or value != 1):
            raise OperandValueError(f"{value} does not fit into {kind}")
        self.dtype, self.value, self.span = kind, value, span  # type: ignore[assignment]

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __bool__(self) -> bool:
        return self.value != 0

    def __hash__(self) -> int:
        return self.value


@node
class FloatImm(PrimExpr):
    """A floating point constant."""

    dtype: DataType
    value: float
    _tail: ClassVar[str] = (
        "if value.__class__ is not float: self.value = float(value)\n"
        "if not self.dtype.is_float: raise OperandTypeError(f'FloatImm of type {self.dtype}: use IntImm or const')"
    )

    def __float__(self) -> float:
        return self.value


@node
class StringImm(PrimExpr):
    """A string, as an argument of calls that take one."""

    value: str
    _tail: ClassVar[str] = "self.dtype = _HANDLE"

    def __eq__(self, other: object) -> Any:
        return self.value == (other.value if isinstance(other, StringImm) else other)

    def __ne__(self, other: object) -> Any:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.value)


# ---------------------------------------------------------------------------- arithmetic
@node
class BinaryOp(PrimExpr):
    """Two operands `a` and `b` of one type, and a result of that type."""

    a: PrimExpr
    b: PrimExpr
    _tail: ClassVar[str] = (
        "if self.a.dtype is not self.b.dtype: _check_same(self.a, self.b, self.__class__.__name__)\n"
        "self.dtype = self.a.dtype"
    )


@node
class CmpOp(PrimExpr):
    """Two operands of one type, and a truth value."""

    a: PrimExpr
    b: PrimExpr
    _tail: ClassVar[str] = (
        "if self.a.dtype is not self.b.dtype: _check_same(self.a, self.b, self.__class__.__name__)\n"
        "self.dtype = _BOOL if self.a.dtype.lanes == 1 else _BOOL.with_lanes(self.a.dtype.lanes)"
    )


@node
class Add(BinaryOp):
    """`a + b`."""


@node
class Sub(BinaryOp):
    """`a - b`."""


@node
class Mul(BinaryOp):
    """`a * b`."""


@node
class Div(BinaryOp):
    """`a / b`; for integers rounded towards zero, as C does."""


@node
class Mod(BinaryOp):
    """The remainder that belongs to `Div`: it has the sign of `a`."""


@node
class FloorDiv(BinaryOp):
    """`a / b` rounded down, as Python does."""


@node
class FloorMod(BinaryOp):
    """The remainder that belongs to `FloorDiv`: it has the sign of `b`."""


@node
class Min(BinaryOp):
    """The lesser of two; NaN if either is NaN."""


@node
class Max(BinaryOp):
    """The greater of two; NaN if either is NaN."""


@node
class EQ(CmpOp):
    """`a == b`. As a Python truth value: whether both are the same node."""

    def __bool__(self) -> bool:
        return self.a is self.b

    __hash__ = object.__hash__


@node
class NE(CmpOp):
    """`a != b`. As a Python truth value: whether both are different nodes."""

    def __bool__(self) -> bool:
        return self.a is not self.b

    __hash__ = object.__hash__


@node
class LT(CmpOp):
    """`a < b`."""


@node
class LE(CmpOp):
    """`a <= b`."""


@node
class GT(CmpOp):
    """`a > b`."""


@node
class GE(CmpOp):
    """`a >= b`."""


@node
class And(BinaryOp):
    """`a and b`; `b` is evaluated only if `a` holds."""


@node
class Or(BinaryOp):
    """`a or b`; `b` is evaluated only if `a` does not hold."""


@node
class Not(PrimExpr):
    """`not a`."""

    a: PrimExpr
    _tail: ClassVar[str] = "self.dtype = self.a.dtype"


@node
class Cast(PrimExpr):
    """`value` converted to `dtype`; from float to integer it is rounded towards zero."""

    dtype: DataType
    value: PrimExpr


@node
class Select(PrimExpr):
    """`true_value` where `condition` holds, else `false_value`; both may be evaluated."""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr
    _tail: ClassVar[str] = (
        "if self.true_value.dtype is not self.false_value.dtype: "
        "_check_same(self.true_value, self.false_value, 'Select')\n"
        "self.dtype = self.true_value.dtype"
    )


@node
class Let(PrimExpr):
    """`body` with `var` standing for `value`."""

    var: Def[Var]
    value: PrimExpr
    body: PrimExpr
    _tail: ClassVar[str] = (
        "if self.var.dtype is not self.value.dtype: _check_same(self.var, self.value, 'Let')\n"
        "self.dtype = self.body.dtype"
    )


# ---------------------------------------------------------------------------- vectors
@node
class Ramp(PrimExpr):
    """The vector `base, base + stride, …` of `lanes` lanes: a number, or `T.vscale() * number`."""

    base: PrimExpr
    stride: PrimExpr
    lanes: Any
    _tail: ClassVar[str] = (
        "if self.lanes.__class__ is not int or self.lanes < 1: self.lanes = _lanes_of(self.lanes)\n"
        "if self.stride.dtype is not self.base.dtype: self.stride = _to_type(self.base.dtype, self.stride)\n"
        "self.dtype = self.base.dtype.with_lanes(_count_of(self.lanes) * self.base.dtype.lanes)"
    )


@node
class Broadcast(PrimExpr):
    """The vector with `value` in each of `lanes` lanes."""

    value: PrimExpr
    lanes: Any
    _tail: ClassVar[str] = (
        "if self.lanes.__class__ is not int or self.lanes < 1: self.lanes = _lanes_of(self.lanes)\n"
        "self.dtype = self.value.dtype.with_lanes(_count_of(self.lanes) * self.value.dtype.lanes)"
    )


@node
class Shuffle(PrimExpr):
    """The lanes of the concatenated `vectors`, selected by `indices`."""

    vectors: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]
    _tail: ClassVar[str] = "self.dtype = self.vectors[0].dtype.with_lanes(len(self.indices))"


# ---------------------------------------------------------------------------- memory and calls
@node
class BufferLoad(PrimExpr):
    """The element of `buffer` at `indices`; a vector if the last index is one.

    With a `predicate` (a vector of bools) only the lanes where it holds are read; the others are 0.
    """

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None = None
    _tail: ClassVar[str] = (
        "if len(self.indices) != len(self.buffer.shape): _check_indices(self.buffer, self.indices)\n"
        "lanes = self.indices[-1].dtype.lanes if self.indices else 1\n"
        "kind = self.buffer.dtype\n"
        "self.dtype = kind if lanes == 1 else kind.with_lanes(lanes * kind.lanes)\n"
        "if predicate is not None: self.predicate = _checked_predicate(self.buffer, self.predicate, self.dtype)"
    )


@node
class ProducerLoad(PrimExpr):
    """The element of a tensor (`te.Tensor`) at `indices`, before the tensor has a buffer."""

    producer: Any
    indices: tuple[PrimExpr, ...]
    _tail: ClassVar[str] = "self.dtype = self.producer.dtype"


@node
class Call(PrimExpr):
    """`op` applied to `args`. `op` is an `Op`, or a GlobalVar for a function of the module."""

    dtype: DataType
    op: Any
    args: tuple[PrimExpr, ...]

    def __init__(self, dtype: str, op: Any, args: Iterable[Any], span: Any = None) -> None:
        self.dtype = DataType(dtype)
        self.op = _ops.op_named(op) if isinstance(op, str) else op
        self.args = _converted(args)
        self.span = span


# ---------------------------------------------------------------------------- iteration
@node
class Range(Node):
    """The integers from `min` on, `extent` of them. `Range(n)` and `Range(begin, end)` as Python's."""

    min: PrimExpr
    extent: PrimExpr

    def __init__(self, begin: Any, end: Any = None, span: Any = None) -> None:
        begin, end = whole(begin), whole(end)
        if end is None:
            self.extent = convert(begin)
            self.min = const(0, self.extent.dtype)
        else:
            self.min = convert(begin)
            self.extent = _ops.sub(*_ops.match(convert(end), self.min))
            if self.min.dtype is not self.extent.dtype:
                self.min = _ops.cast(self.extent.dtype, self.min)
        self.span = span

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any, span: Any = None) -> Range:
        """The range that starts at `min_value` and holds `extent` integers."""
        low, size = _ops.match(convert(whole(min_value)), convert(whole(extent)))
        made = Range.__new__(Range)
        made.min, made.extent, made.span = low, size, span  # type: ignore[misc]
        return made

    def map_children(self, f: Any) -> Range:
        low, size = f(self.min), f(self.extent)
        if low is self.min and size is self.extent:
            return self
        return Range.from_min_extent(low, size, self.span)

    def replace(self, **changes: Any) -> Range:
        low, size = changes.pop("min", self.min), changes.pop("extent", self.extent)
        if changes:
            raise OperandTypeError(f"Range has no field {next(iter(changes))!r}")
        return Range.from_min_extent(low, size, self.span)

    def __repr__(self) -> str:
        return f"Range({self.min}, {_ops.add(self.min, self.extent)})"


class IterVarType(IntEnum):
    """The kind of an iterator; the first four are those of blocks."""

    DataPar = 0
    ThreadIndex = 1
    CommReduce = 2
    Ordered = 3
    Opaque = 4
    Unrolled = 5
    Vectorized = 6
    Parallelized = 7
    Tensorized = 8


@node
class IterVar(ExprOp, Node):
    """A variable with its domain and kind (spatial, reduction, thread index, …)."""

    dom: Any
    var: Def[Var]
    iter_type: int
    thread_tag: str = ""

    DataPar: ClassVar[int] = 0
    ThreadIndex: ClassVar[int] = 1
    CommReduce: ClassVar[int] = 2
    Ordered: ClassVar[int] = 3
    Opaque: ClassVar[int] = 4
    DimInfo: ClassVar[int] = 4
    Unrolled: ClassVar[int] = 5
    Vectorized: ClassVar[int] = 6
    Parallelized: ClassVar[int] = 7
    Tensorized: ClassVar[int] = 8

    def __init__(self, dom: Any, var: Any, iter_type: int, thread_tag: str = "", span: Any = None) -> None:
        if dom is not None and not isinstance(dom, Range):
            dom = Range(*dom) if isinstance(dom, (tuple, list)) else Range(dom)
        if isinstance(var, str):
            var = Var(var, INT32 if dom is None else dom.extent.dtype)
        self.dom, self.var, self.iter_type, self.thread_tag = dom, var, int(iter_type), thread_tag
        self.span = span

    __hash__ = object.__hash__

    def __prim_expr__(self) -> PrimExpr:
        return self.var

    @property
    def is_reduction(self) -> bool:
        """Whether it counts the steps of a reduction."""
        return self.iter_type == IterVar.CommReduce

    @property
    def dtype(self) -> DataType:
        return self.var.dtype

    def children(self) -> list[Any]:
        return [] if self.dom is None else [self.dom]

    def map_children(self, f: Any) -> IterVar:
        dom = None if self.dom is None else f(self.dom)
        if dom is self.dom:
            return self
        return IterVar(dom, self.var, self.iter_type, self.thread_tag, self.span)

    def __repr__(self) -> str:
        return f"IterVar({self.var.name}, {self.dom}, {IterVarType(self.iter_type).name})"


@node
class CommReducer(Node):
    """A commutative, associative combination: `lhs` and `rhs` to `result`, starting from `identity`."""

    lhs: tuple[Def[Var], ...]
    rhs: tuple[Def[Var], ...]
    result: tuple[PrimExpr, ...]
    identity_element: tuple[PrimExpr, ...]

    def __call__(self, lhs: Iterable[PrimExpr], rhs: Iterable[PrimExpr]) -> tuple[PrimExpr, ...]:
        """The combination of two tuples of values."""
        return _ops.apply_reducer(self, tuple(lhs), tuple(rhs))  # type: ignore[no-any-return]


@node
class Reduce(PrimExpr):
    """Component `value_index` of combining `source` over `axis` where `condition` holds.

    It occurs only as the body of a tensor expression; in a loop program it is a block.
    """

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr
    value_index: int
    init: tuple[PrimExpr, ...] = ()
    _tail: ClassVar[str] = "self.dtype = self.source[self.value_index].dtype"


# Classic names of what `==` and `!=` give, and of the bases of operators.
EqualOp, NotEqualOp = EQ, NE
BinaryOpExpr, CmpExpr, PrimExprWithOp = BinaryOp, CmpOp, PrimExpr
