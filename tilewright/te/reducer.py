"""Reductions: combining values over axes."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..ir import ops
from ..ir.dtype import BOOL, DataType
from ..ir.expr import (
    CommReducer,
    ExprOp,
    IterVar,
    PrimExpr,
    ProducerLoad,
    Reduce,
    Var,
    const,
    const_value,
    convert,
)
from .errors import blame, refuse, shown
from .tensor import Tensor, elementwise


class Reducer:
    """A commutative, associative combination with an identity, as `te.sum` is one.

    `r(expr, axis=k)` reduces over axes, a tuple of expressions together; `r(a, b)` combines values.
    """

    def __init__(
        self, fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
    ) -> None:
        self.fcombine, self.fidentity, self.__name__ = fcombine, fidentity, name

    def __repr__(self) -> str:
        return f"<reducer te.{self.__name__}>"

    def __call__(self, expr: Any, *operands: Any, **named: Any) -> Any:
        """A reduction of `expr` over `axis=`; without axes the combination of the operands, as in te.max(a, b).

        `where=` is a condition for the elements that take part, `init=` the value that the reduction starts from.
        """
        axis = named.get("axis")
        if isinstance(axis, PrimExpr):  # as a keyword it cannot mean a second value
            raise refuse(
                f"te.{self.__name__}: axis=`{axis}` is not a reduction axis",
                "make the axis with te.reduce_axis((0, n))",
            )
        return self._combine(expr, *operands, **named)

    def _combine(self, expr: Any, axis: Any = None, where: Any = None, init: Any = None, *more: Any) -> Any:
        over_axes = isinstance(axis, IterVar) or (
            isinstance(axis, (list, tuple)) and builtins.all(isinstance(a, IterVar) for a in axis)
        )
        if over_axes:
            return self._reduce(expr, (axis,) if isinstance(axis, IterVar) else tuple(axis), where, init)
        if axis is None:
            raise refuse(
                f"te.{self.__name__} of one value needs axis=", "make the axis with te.reduce_axis((0, n))"
            )
        if isinstance(axis, (list, tuple)) and not isinstance(expr, (list, tuple)):
            raise refuse(
                f"te.{self.__name__}: axis={shown(axis)} is not a list of axes",
                "make them with te.reduce_axis",
            )
        values = [v for v in (expr, axis, where, init, *more) if v is not None]
        if builtins.any(isinstance(v, Tensor) for v in values):
            return functools.reduce(
                lambda a, b: elementwise(self.fcombine, a, b, name=f"T_{self.__name__}"), values
            )
        return functools.reduce(self.fcombine, values)

    def _reduce(self, expr: Any, axis: tuple[IterVar, ...], where: Any, init: Any) -> Any:
        for position, iv in enumerate(axis):
            if not iv.is_reduction:
                raise refuse(
                    f"te.{self.__name__}: `{iv.var.name}` is not a reduction axis",
                    "make the axis with te.reduce_axis((0, n))",
                )
            if builtins.any(iv is earlier for earlier in axis[:position]):
                raise refuse(f"te.{self.__name__}: axis `{iv.var.name}` is used twice in one reduction")
        source = self._operands(expr if isinstance(expr, (tuple, list)) else (expr,), "the value")
        start = () if init is None else self._start(init, source)
        combiner = self._combiner([s.dtype for s in source])
        condition = const(True, BOOL) if where is None else self._operands((where,), "where=")[0]
        if not condition.dtype.is_bool:
            raise refuse(
                f"te.{self.__name__}: where=`{condition}` is {condition.dtype} and must be a condition"
            )
        if not axis:
            return self._over_nothing(source, combiner, condition, start)
        parts = tuple(Reduce(combiner, source, axis, condition, i, start) for i in range(len(source)))
        return parts[0] if len(parts) == 1 else parts

    def _over_nothing(
        self,
        source: tuple[PrimExpr, ...],
        combiner: CommReducer,
        condition: PrimExpr,
        start: tuple[PrimExpr, ...],
    ) -> Any:
        """A reduction over no axes has one point: the value itself."""
        values = tuple(
            ops.if_then_else(condition, s, e) for s, e in zip(source, combiner.identity_element, strict=True)
        )
        if start:
            values = combiner(start, values)
        return values[0] if len(values) == 1 else values

    def _operands(self, values: Sequence[Any], what: str) -> tuple[PrimExpr, ...]:
        out = []
        for v in values:
            if isinstance(v, Tensor):
                raise refuse(
                    f"te.{self.__name__}: {what} is the whole tensor `{v.name}`",
                    f"index it, as in {v.name}[i, k]",
                )
            if v is None or isinstance(v, str):
                raise refuse(f"te.{self.__name__}: {what} is {shown(v)} and must be an expression")
            out.append(convert(v))
        return tuple(out)

    def _start(self, init: Any, source: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        values = tuple(init) if isinstance(init, (tuple, list)) else (init,)
        if len(values) != len(source):
            raise refuse(
                f"te.{self.__name__}: init= has {len(values)} values for a reduction of {len(source)}"
            )
        out = []
        for v, s in zip(values, source, strict=True):
            made = convert(v) if isinstance(v, ExprOp) else const(v, s.dtype)
            if not isinstance(made, ProducerLoad) and const_value(made) is None:
                raise refuse(
                    f"te.{self.__name__}: init=`{made}` must be a constant or an element of a tensor"
                )
            if made.dtype is not s.dtype:
                raise refuse(
                    f"te.{self.__name__}: init=`{made}` is {made.dtype} and the values are {s.dtype}"
                )
            out.append(made)
        return tuple(out)

    def _combiner(self, kinds: Sequence[DataType]) -> CommReducer:
        many = len(kinds) > 1
        left, right = _argument_names(self.fcombine)
        lhs = tuple(Var(f"{left}_{i}" if many else left, k) for i, k in enumerate(kinds))
        rhs = tuple(Var(f"{right}_{i}" if many else right, k) for i, k in enumerate(kinds))
        try:
            made = self.fcombine(lhs, rhs) if many else (self.fcombine(lhs[0], rhs[0]),)
            unit = self.fidentity(*kinds) if many else (self.fidentity(kinds[0]),)
        except (TypeError, ValueError) as error:
            raise (blame(error, f"reducer te.{self.__name__}: ") or error) from None
        result = self._parts(made, kinds, "combines to")
        return CommReducer(lhs, rhs, result, self._parts(unit, kinds, "has as its identity"))

    def _parts(self, values: Any, kinds: Sequence[DataType], verb: str) -> tuple[PrimExpr, ...]:
        if not isinstance(values, (tuple, list)) or len(values) != len(kinds):
            n = len(values) if isinstance(values, (tuple, list)) else 1
            raise refuse(f"reducer te.{self.__name__} {verb} {n} values where {len(kinds)} are reduced")
        out = []
        for v, kind in zip(values, kinds, strict=True):
            made = const(v, kind) if isinstance(v, (int, float)) else convert(v)
            if made.dtype is not kind:
                raise refuse(
                    f"reducer te.{self.__name__} {verb} {made.dtype} for values of type {kind}: `{made}`"
                )
            out.append(made)
        return tuple(out)


def _argument_names(f: Callable[..., Any]) -> tuple[str, str]:
    code = getattr(f, "__code__", None)
    if code is None or code.co_argcount < 2:
        return "x", "y"
    return code.co_varnames[0], code.co_varnames[1]


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Reducer:
    """A reducer: `fcombine` combines two values (or tuples), `fidentity` gives the identity for their types.

    argmax = te.comm_reducer(
        lambda x, y: (te.if_then_else(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
        lambda index, value: (te.const(-1, index), te.min_value(value)),
    )
    """
    return Reducer(fcombine, fidentity, name)


def _greatest(dtype: str) -> PrimExpr:
    """The identity of `min`: infinity for floats, so that a minimum of infinities is infinite."""
    return ops.infinity(dtype) if DataType(dtype).is_float else ops.max_value(dtype)


def _least(dtype: str) -> PrimExpr:
    """The identity of `max`."""
    return ops.neg(ops.infinity(dtype)) if DataType(dtype).is_float else ops.min_value(dtype)


sum = Reducer(ops.add, lambda t: const(0, t), "sum")
prod = Reducer(ops.mul, lambda t: const(1, t), "prod")
min = Reducer(ops.min_of, _greatest, "min")
max = Reducer(ops.max_of, _least, "max")
_all_of = Reducer(ops.logical_and, lambda t: const(True, t), "all")
_any_of = Reducer(ops.logical_or, lambda t: const(False, t), "any")


def _single(name: str, conditions: tuple[Any, ...]) -> Any:
    if len(conditions) != 1:
        raise refuse(f"te.{name} with axis= takes one condition, not {len(conditions)}")
    return conditions[0]


def all(*conditions: Any, axis: Any = None, where: Any = None) -> Any:
    """All conditions hold; with `axis=`, one condition holds everywhere on the axes."""
    return ops.all(*conditions) if axis is None else _all_of(_single("all", conditions), axis, where)


def any(*conditions: Any, axis: Any = None, where: Any = None) -> Any:
    """At least one condition holds; with `axis=`, one condition holds somewhere on the axes."""
    return ops.any(*conditions) if axis is None else _any_of(_single("any", conditions), axis, where)
