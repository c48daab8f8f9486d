"""Pattern matching, with the matched expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...ir.equal import structural_equal
from ...ir.op import Op
from ..expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from ..transform.rewriting import type_of
from ..ty import TensorType
from ..visitor import flow_inputs
from . import pattern as P

_COMMUTATIVE: Final = (
    "add",
    "multiply",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "logical_and",
    "logical_or",
)


def match(pattern: P.DFPattern, expr: Any) -> bool:
    """Whether an expression matches."""
    return Matcher().match(pattern, expr)


class Matcher:
    """One attempt to match. `found` has the matched expressions of each pattern."""

    def __init__(self) -> None:
        self.found: dict[P.DFPattern, list[Any]] = {}

    def match(self, pattern: P.DFPattern, expr: Any) -> bool:
        known = self.found.get(pattern)
        if known is not None:
            return known[0] is expr
        before = dict(self.found)
        if _CASES[type(pattern)](self, pattern, expr):
            self.found[pattern] = [expr]
            return True
        self.found = before
        return False

    def all(self, patterns: Any, exprs: Any) -> bool:
        if len(patterns) != len(exprs):
            return False
        before = dict(self.found)
        if all(self.match(p, e) for p, e in zip(patterns, exprs, strict=True)):
            return True
        self.found = before
        return False

    # -- kinds -------------------------------------------------------------------------------
    def op(self, p: P.OpPattern, e: Any) -> bool:
        return e is p.op

    def wildcard(self, p: P.WildcardPattern, e: Any) -> bool:
        return True

    def var(self, p: P.VarPattern, e: Any) -> bool:
        return isinstance(e, Var) and p.name in ("", e.name_hint)

    def constant(self, p: P.ConstantPattern, e: Any) -> bool:
        return isinstance(e, Constant)

    def expr(self, p: P.ExprPattern, e: Any) -> bool:
        return e is p.expr or (isinstance(e, Expr) and structural_equal(e, p.expr, False))

    def call(self, p: P.CallPattern, e: Any) -> bool:
        if not isinstance(e, Call) or not self.match(p.op, e.op):
            return False
        if p.args is None:
            return True
        if self.all(p.args, e.args):
            return True
        swaps = isinstance(e.op, Op) and e.op.name in _COMMUTATIVE and len(e.args) == 2
        return swaps and self.all(p.args, e.args[::-1])

    def function(self, p: P.FunctionPattern, e: Any) -> bool:
        if not isinstance(e, Function):
            return False
        return (p.params is None or self.all(p.params, e.params)) and self.match(p.body, e.body)

    def tuple(self, p: P.TuplePattern, e: Any) -> bool:
        return isinstance(e, Tuple) and (p.fields is None or self.all(p.fields, e.fields))

    def item(self, p: P.TupleGetItemPattern, e: Any) -> bool:
        if not isinstance(e, TupleGetItem) or p.index not in (None, e.index):
            return False
        return self.match(p.tuple_value, e.tuple_value)

    def choice(self, p: P.IfPattern, e: Any) -> bool:
        return isinstance(e, If) and self.all(
            (p.cond, p.true_branch, p.false_branch), (e.cond, e.true_branch, e.false_branch)
        )

    def let(self, p: P.LetPattern, e: Any) -> bool:
        return isinstance(e, Let) and self.all((p.var, p.value, p.body), (e.var, e.value, e.body))

    def alternative(self, p: P.AltPattern, e: Any) -> bool:
        return self.match(p.left, e) or self.match(p.right, e)

    def attrs(self, p: P.AttrPattern, e: Any) -> bool:
        return self.match(p.pattern, e) and all(_attr(e, k) == _plain(v) for k, v in p.attrs.items())

    def type(self, p: P.TypePattern, e: Any) -> bool:
        return self.match(p.pattern, e) and bool(_type(e) == p.type)

    def dtype(self, p: P.DataTypePattern, e: Any) -> bool:
        kind = _type(e)
        return isinstance(kind, TensorType) and kind.dtype == p.dtype and self.match(p.pattern, e)

    def shape(self, p: P.ShapePattern, e: Any) -> bool:
        kind = _type(e)
        if not isinstance(kind, TensorType) or len(kind.shape) != len(p.shape):
            return False
        wanted = TensorType(p.shape, kind.dtype)
        return bool(wanted == kind) and self.match(p.pattern, e)

    # -- dominators --------------------------------------------------------------------------
    def dominator(self, p: P.DominatorPattern, e: Any) -> bool:
        if not self.match(p.child, e):
            return False
        before = dict(self.found)
        # The parts of the child itself are not on the way.
        for parent in self._above(e):
            self.found = dict(before)
            if self.match(p.parent, parent):
                between = _between(parent, e)
                if between is not None and all(self._on_path(p.path, at) for at in between):
                    self.found[p.path] = between
                    return True
        self.found = before
        return False

    def _on_path(self, path: P.DFPattern, at: Any) -> bool:
        """Whether an expression on the path matches `path`; each is matched separately."""
        kept = self.found
        self.found = dict(kept)
        try:
            for q in _parts(path):
                self.found.pop(q, None)
            return self.match(path, at)
        finally:
            self.found = kept

    def _above(self, e: Any) -> list[Any]:
        """The transitive operands, the nearest first."""
        out: dict[Any, None] = {}
        row = [e]
        while row:
            row = [b for at in row for b in flow_inputs(at) if b not in out]
            out.update(dict.fromkeys(row))
        return list(out)


def _is_copy(a: Any, b: Any) -> bool:
    """Whether an expression is another, or the same computation again: a rewriting may have made it twice."""
    if a is b:
        return True
    return isinstance(a, Call) and isinstance(b, Call) and a.op is b.op and structural_equal(a, b, False)


def _between(parent: Any, child: Any) -> list[Any] | None:
    """The expressions on the paths from one to the other, both excluded; None if a path comes from elsewhere.

    Variables and constants are no paths.
    """
    between: dict[Any, None] = {}
    stack: list[Any] = [child]
    while stack:
        at = stack.pop()
        above = [b for b in flow_inputs(at) if not isinstance(b, (Var, Constant))]
        if not above:
            return None
        for b in above:
            if b not in between and not _is_copy(b, parent):
                between[b] = None
                stack.append(b)
    return list(between)


def _parts(pattern: P.DFPattern) -> list[P.DFPattern]:
    out, stack = [], [pattern]
    while stack:
        at = stack.pop()
        out.append(at)
        stack += at.children()
    return out


def _type(e: Any) -> Any:
    try:
        return type_of(e) if isinstance(e, Expr) else None
    except (ValueError, TypeError):
        return None  # a variable without a type


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _attr(e: Any, name: str) -> Any:
    if isinstance(e, Call):
        if e.attrs is not None and name in e.attrs:
            return _plain(e.attrs[name])
        e = e.op
    if isinstance(e, Function):
        return _plain(e.attrs.get(name))
    return _plain(e.get_attr(name)) if isinstance(e, Op) else None


_CASES: Final[dict[type, Callable[[Matcher, Any, Any], bool]]] = {
    P.OpPattern: Matcher.op,
    P.WildcardPattern: Matcher.wildcard,
    P.VarPattern: Matcher.var,
    P.ConstantPattern: Matcher.constant,
    P.ExprPattern: Matcher.expr,
    P.CallPattern: Matcher.call,
    P.FunctionPattern: Matcher.function,
    P.TuplePattern: Matcher.tuple,
    P.TupleGetItemPattern: Matcher.item,
    P.IfPattern: Matcher.choice,
    P.LetPattern: Matcher.let,
    P.AltPattern: Matcher.alternative,
    P.AttrPattern: Matcher.attrs,
    P.TypePattern: Matcher.type,
    P.DataTypePattern: Matcher.dtype,
    P.ShapePattern: Matcher.shape,
    P.DominatorPattern: Matcher.dominator,
}
