"""CheckData: bounds checks of indices, and checks of divisors, that come from data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import config
from ...ir.errors import DivisionByZeroError, OutOfBoundsError
from ...ir.pass_config import PassConfigError
from ...ir.transform import PassContext
from ...target import Target
from ..adt import Match
from ..expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem
from ..op.checks import check_divisor, check_each, check_indices
from ..op.registry import OpPattern, Place, RelayOp
from ..ty import Any as AnySize
from .rewriting import Mutator, type_of, typed_pass


def is_checked() -> bool:
    """Whether models compiled in this context check their indices and divisors."""
    value = PassContext.current().config.get("tilewright.data_check") or config.data_check.value
    if value not in ("check", "clamp"):
        raise PassConfigError(f"option 'tilewright.data_check' takes 'check' or 'clamp', not {value!r}")
    target = Target.current(allow_none=True)
    return value == "check" and (target is None or target.has("aot_executor") or target.is_gpu)


def _on_gpu() -> bool:
    """Whether each element has a thread of its own, which reports illegal values: `runtime/reports.py`."""
    target = Target.current(allow_none=True)
    return target is not None and target.is_gpu


def check_data(func: Any) -> Any:
    """Put a check before each operator that reads indices or integer divisors from data.

        gather(%x, %i)      ->      gather(%x, check_indices(%i, sizes=[4], node="gather at model.py:3"))

    Constants are checked at compile time. A tensor of indices that several operators use is checked once. Operators
    clamp indices themselves, so that memory out of bounds is never accessed even without a check.

    Needs: types, the operators not fused yet.
    """
    return _Checks().visit(func) if is_checked() else func


class _Checks(Mutator):
    def __init__(self) -> None:
        super().__init__()
        self.made: dict[Any, Expr] = {}  # the checks of this scope, by the checked expression

    def visit_function(self, fn: Function) -> Any:
        return self.scoped(super().visit_function, fn)

    def visit_if(self, if_: If) -> Any:
        return if_.map_children(lambda e: self.visit(e) if e is if_.cond else self.scoped(self.visit, e))

    def visit_match(self, m: Match) -> Any:
        rows = [(c.lhs, self.scoped(self.visit, c.rhs)) for c in m.clauses]
        return m.over(self.visit(m.data), rows)

    def scoped(self, work: Any, expr: Any) -> Any:
        outer, self.made = self.made, dict(self.made)
        try:
            return work(expr)
        finally:
            self.made = outer

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        op = new.op
        if not isinstance(op, RelayOp) or op.places is None:
            return new
        args, attrs = list(new.args), new.attrs
        for place in op.places([type_of(a) for a in call.args], call.attrs):
            if _checks_itself(call, place):
                attrs = attrs.replace(node=_node(call))
            elif place.field is None:
                args[place.argument] = self.checked(place, args[place.argument], args, call, call.args)
            else:
                fields = _fields(args[place.argument])
                old = _fields(call.args[place.argument])
                fields[place.field] = self.checked(place, fields[place.field], fields, call, old)
                args[place.argument] = Tuple(fields)
        return new.over(args, attrs)

    def checked(self, place: Place, data: Any, beside: Sequence[Any], call: Call, old: Sequence[Any]) -> Any:
        """One checked operand."""
        node = _node(call)
        if place.kind == "divisor":
            if isinstance(data, Constant):
                _refuse_zero(data.numpy(), node)
                return data
            return self.once(("divisor", data), lambda: check_divisor(data, node=node))
        sizes, dims = place.sizes, place.dims
        if not sizes:
            sizes = tuple(type_of(old[place.source]).shape[d] for d in dims)
        if isinstance(data, Constant) and all(isinstance(s, int) for s in sizes):
            _refuse_outside(data.numpy(), place, sizes, node)
            return data
        attrs = {
            "kind": place.kind,
            "ignored": place.ignored,
            "columns": place.columns,
            "node": node,
            "each": _on_gpu(),
        }
        if not any(isinstance(s, AnySize) for s in sizes):
            key: Any = (data, place.kind, tuple(map(str, sizes)), place.ignored, place.columns)
            if _is_fused(call, place) and not any(isinstance(s, int) and s < 2 for s in sizes):
                return self.once(key, lambda: check_each(data, kind=place.kind, sizes=sizes, node=node))
            return self.once(key, lambda: check_indices(data, sizes=sizes, **attrs))
        if not dims:
            return data  # the size of the indexed tensor is known only at run time; the operator clamps
        source = beside[place.source]
        key = (data, place.kind, source, dims, place.ignored, place.columns)
        if _is_fused(call, place):
            return self.once(key, lambda: check_each(data, source, kind=place.kind, dims=dims, node=node))
        return self.once(key, lambda: check_indices(data, source, dims=dims, **attrs))

    def once(self, key: Any, make: Any) -> Any:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]


def _checks_itself(call: Call, place: Place) -> bool:
    """Whether the operator checks its indices as it reads them, under the name of a node.

    It does not read the indices into a tensor that may be empty, nor the class if there is only one; constants are
    checked at compile time, and lengths in a pass of their own.
    """
    if (
        "node" not in call.op.spec
        or place.kind == "length"
        or isinstance(call.args[place.argument], Constant)
    ):
        return False
    shape = type_of(call.args[place.source]).shape
    known = all(isinstance(s, int) and s > 0 for s in (*shape, *place.sizes))
    return known and (place.ignored is None or all(shape[d] > 1 for d in place.dims))


def _is_fused(call: Call, place: Place) -> bool:
    """Whether the check is fused into the kernel that reads the indices, where it costs nothing.

    An index into a dimension of size 1 is not read at all, and the check would be lost with it.
    """
    plain = place.kind != "length" and place.ignored is None and not place.columns
    return bool(plain and call.op.pattern == OpPattern.INJECTIVE)


def _fields(value: Any) -> list[Any]:
    if isinstance(value, Tuple):
        return list(value.fields)
    return [TupleGetItem(value, i) for i in range(len(type_of(value).fields))]


def _node(call: Call) -> str:
    """The name of a call in errors: the node of the model that it came from, or the operator and its line."""
    if call.span is None:
        return str(call.op.name)
    return str(call.span) if call.span.node else f"{call.op.name} at {call.span}"


def _refuse_zero(values: Any, node: str) -> None:
    if (values == 0).any():
        at = [int(k) for k in np.argwhere(values == 0)[0]]
        where = f" at position {at}" if at else ""
        raise DivisionByZeroError(f"{node}: the divisor{where} is 0, and integers cannot be divided by 0")


def _refuse_outside(values: Any, place: Place, sizes: Sequence[int], node: str) -> None:
    """Refuse constant indices that are out of bounds, with the message of the run-time check."""
    groups: list[tuple[Any, tuple[Any, ...]]] = [(values, ())]
    if place.columns:
        groups = [(values[..., c], (..., c)) for c in place.columns]
    elif len(sizes) > 1:
        groups = [(values[g], (g,)) for g in range(len(sizes))]
    for (part, where), n in zip(groups, sizes, strict=True):
        low = -n if place.kind == "index" else 0
        high = n if place.kind == "length" else n - 1
        bad = ~((part >= low) & (part <= high))
        if place.ignored is not None:
            bad &= part != place.ignored
        if not bad.any():
            continue
        at = [int(k) for k in np.argwhere(bad)[0]]
        value = int(part[tuple(at)])
        at = [*at, where[1]] if where[:1] == (...,) else [*where, *at]
        shown = f" at position {at}" if at else ""
        word = "length" if place.kind == "length" else "index"
        raise OutOfBoundsError(
            f"{node}: {word} {value}{shown} is out of bounds; the legal range is {low} to {high}"
        )


CheckData = typed_pass(check_data, name="CheckData", opt_level=0)
