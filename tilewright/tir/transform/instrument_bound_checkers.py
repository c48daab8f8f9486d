"""Bounds checks at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import And, BufferLoad, Call, Let, Or, PrimExpr, Ramp, Select, StringImm, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, substitute
from ...ir.op import Op
from ...ir.ops import add, cast, greater_equal, less, logical_and, logical_not, mul, sub
from ...ir.stmt import AssertStmt, BufferStore, Evaluate, Stmt, While, seq

_IF, _ADDRESS = Op.get("tir.if_then_else"), Op.get("tir.address_of")
_Check = tuple[PrimExpr, str]


def instrument_bound_checkers(func: PrimFunc) -> PrimFunc:
    """Assert before each statement that its reads and writes are in bounds.

        A[i] = B[C[i]]       ->       assert 0 <= i < 8, "C[i]: …"
                                      assert 0 <= C[i] < 16, "B[C[i]]: …"
                                      assert 0 <= i < 4, "A[i]: …"
                                      A[i] = B[C[i]]

    A read under a condition is checked under it. Vectors are checked if they are ramps of constant stride.
    Needs: no blocks, buffers with their shapes. Gives: assertions, which Simplify removes where it can prove them.
    """
    return _Instrument().run(func)


class _Instrument(Mutator):
    def visit(self, n: Any) -> Any:
        if not isinstance(n, Stmt):
            return n
        checks = [c for e in _own_expressions(n) for c in _checks(e)]
        if isinstance(n, BufferStore):
            checks += _inside(n)
        made = super().visit(n)
        if isinstance(n, While) and checks:
            made = made.replace(body=seq(made.body, _asserted(checks, Evaluate(const(0)))))
        return _asserted(checks, made)


def _own_expressions(n: Stmt) -> list[PrimExpr]:
    """The expressions of a statement itself, in the order in which they are evaluated."""
    if isinstance(n, BufferStore):
        return [*n.indices, n.value]
    return [c for c in n.children() if isinstance(c, PrimExpr)]


def _asserted(checks: Sequence[_Check], s: Stmt) -> Stmt:
    for condition, message in reversed(checks):
        s = AssertStmt(condition, StringImm(message), s)
    return s


def _checks(e: PrimExpr) -> list[_Check]:
    """The conditions under which the reads of the expression are in bounds, those of nested reads first."""
    if isinstance(e, Call) and e.op is _IF:
        condition, then, other = e.args
        return _checks(condition) + _under(condition, then) + _under(logical_not(condition), other)
    if isinstance(e, Select):
        return (
            _checks(e.condition)
            + _under(e.condition, e.true_value)
            + _under(logical_not(e.condition), e.false_value)
        )
    if isinstance(e, And):
        return _checks(e.a) + _under(e.a, e.b)
    if isinstance(e, Or):
        return _checks(e.a) + _under(logical_not(e.a), e.b)
    if isinstance(e, Let):
        return _checks(e.value) + [(substitute(c, {e.var: e.value}), text) for c, text in _checks(e.body)]
    if isinstance(e, Call) and e.op is _ADDRESS and isinstance(e.args[0], BufferLoad):
        return [c for i in e.args[0].indices for c in _checks(i)]  # an address is not read
    found = [c for child in e.children() if isinstance(child, PrimExpr) for c in _checks(child)]
    return found + _inside(e) if isinstance(e, BufferLoad) else found


def _under(condition: PrimExpr, e: PrimExpr) -> list[_Check]:
    if condition.dtype.is_vector:
        return []
    true = const(True, "bool")
    return [(Call(c.dtype, _IF, (condition, c, true)), text) for c, text in _checks(e)]


def _inside(n: BufferLoad | BufferStore) -> list[_Check]:
    """The condition that the indices of an access are in bounds."""
    out: list[_Check] = []
    for at, (index, size) in enumerate(zip(n.indices, n.buffer.shape, strict=True)):
        first = last = index
        if isinstance(index, Ramp):
            stride = const_value(index.stride)
            if stride is None:
                continue
            more = cast(index.base.dtype, sub(index.lanes, 1))
            end = add(index.base, mul(index.stride, more))
            first, last = (index.base, end) if stride >= 0 else (end, index.base)
        if first.dtype.is_vector or n.predicate is not None:
            continue
        holds = logical_and(greater_equal(first, const(0, first.dtype)), less(last, size))
        name = f"{n.buffer.name}[{', '.join(map(str, n.indices))}]"
        out.append(
            (
                holds,
                f"{name}: the index of dimension {at} is out of bounds, it must be from 0 to below {size}",
            )
        )
    return out
