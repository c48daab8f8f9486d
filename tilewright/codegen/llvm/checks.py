"""Checks of data: an unlikely branch out of the function, shared by consecutive checks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...ir.expr import LE, Call, Cast, Let, PrimExpr, Var, const_value
from ...ir.functor import vars_used
from ...ir.op import Op
from ...ir.stmt import LetStmt
from ...runtime.errors import CHECK_CODES
from .types import reg_type, vector_suffix

if TYPE_CHECKING:
    from .emit import FunctionEmitter

_CHECKED = Op.get("tir.checked")


def failed(f: FunctionEmitter, e: Call) -> str:
    """Return from the function with an error."""
    kind, message, *values = e.args
    _leave(f, kind, message, [f.expr(v) for v in values])
    f.start(f.label("after"))
    return "0"


def checked(f: FunctionEmitter, e: Call) -> str:
    """A value that passes through, and the branch."""
    value, good = f.expr(e.args[0]), f.expr(e.args[1])
    _branch(f, [(e, good)])
    return value


class Waiting:
    """Checks of vectors around a statement that share a branch, which comes before the first use of a checked value.

    p0 = checked(i0, i0 < n)                    br (i0 < n) & (i1 < n), inside, outside
    p1 = checked(i1, i1 < n)            ->    outside:
    …                                           report the first of both checks that fails
                                              inside:
                                                …
    """

    def __init__(self, f: FunctionEmitter) -> None:
        self.f = f
        self.checks: list[tuple[Call, str]] = []  # with the register of each condition
        self.vars: set[Var] = set()

    def takes(self, s: LetStmt) -> bool:
        """Bind the variable of a vector check and defer its branch; for any other value, emit the pending branch
        first."""
        found = _check_of(s.value)
        wide = found is not None and found.dtype.is_vector
        lanes = found.args[1].dtype.lanes if found is not None else 0
        other = any(e.args[1].dtype.lanes != lanes for e, _ in self.checks)
        if (wide and other) or (self.vars and not self.vars.isdisjoint(vars_used(s.value))):
            self.end()
        if wide:
            self.f.bind(s.var, self.value(s.value))
            self.vars.add(s.var)
        return wide

    def value(self, e: Any) -> str:
        if isinstance(e, Cast):
            return self.f.narrowed(self.value(e.value), e)
        if isinstance(e, Let):
            self.f.bind(e.var, self.f.expr(e.value))
            return self.value(e.body)
        value, good = self.f.expr(e.args[0]), self.f.expr(e.args[1])
        self.checks.append((e, good))
        return value

    def end(self) -> None:
        """Emit the pending branch, if there is one."""
        if self.checks:
            _branch(self.f, self.checks)
        self.checks, self.vars = [], set()


def _check_of(e: PrimExpr) -> Call | None:
    """The check that produces a value, possibly through a cast."""
    while isinstance(e, (Cast, Let)):
        e = e.value if isinstance(e, Cast) else e.body
    return e if isinstance(e, Call) and e.op is _CHECKED else None


def greatest_place(e: PrimExpr) -> float:
    """The greatest value of a checked index, which LLVM cannot derive from the branch for a vector."""
    found = None if isinstance(e, Cast) else _check_of(e)
    if found is None or not isinstance(found.args[1], LE):  # nothing is known of masked lanes
        return math.inf
    high = const_value(found.args[-1])
    return math.inf if high is None or found.args[2].value != "index" else high  # type: ignore[attr-defined]


def _branch(f: FunctionEmitter, checks: list[tuple[Call, str]]) -> None:
    """Return from the function if one of some conditions, of the same number of lanes, does not hold."""
    kind = checks[0][0].args[1].dtype
    good = checks[0][1]
    for _, other in checks[1:]:
        good = f.tmp(f"and {reg_type(kind)} {good}, {other}")
    inside, outside = f.label("inside"), f.label("outside")
    f.branch_if(_all(f, good, kind), inside, outside, ", !prof !1")
    f.start(outside)
    with f.branching():
        for e, holds in checks[:-1]:
            this, following = f.label("outside"), f.label("next")
            f.branch_if(_all(f, holds, kind), following, this)
            f.start(this)
            _report(f, e, holds)
            f.start(following)
        _report(f, *checks[-1])
    f.start(inside)


def _all(f: FunctionEmitter, good: str, kind: Any) -> str:
    """Whether a condition holds in each lane."""
    if kind.lanes == 1:
        return good
    name = f"llvm.vector.reduce.and.{vector_suffix('i1', kind.lanes)}"
    f.module.declare(f"declare i1 @{name}({reg_type(kind)})")
    return f.tmp(f"call i1 @{name}({reg_type(kind)} {good})")


def _report(f: FunctionEmitter, e: Call, good: str) -> None:
    """Return with the error of the first lane in which a condition does not hold."""
    _, holds, kind, message, *values = e.args
    with f.branching():
        numbers = [f.expr(v) for v in values]
        if holds.dtype.is_vector:
            which = _first_lane(f, good, reg_type(holds.dtype), holds.dtype.lanes)
            vectors = [reg_type(v.dtype) for v in values]
            numbers = [f.tmp(f"extractelement {text} {n}, i64 {which}") for text, n in zip(vectors, numbers)]
        _leave(f, kind, message, numbers)


def _first_lane(f: FunctionEmitter, good: str, bits: str, lanes: int) -> str:
    """The index of the first lane in which a condition does not hold."""
    bad = f.tmp(f"xor {bits} {good}, splat (i1 true)")
    if lanes < 0:
        name = f"llvm.experimental.cttz.elts.i64.{vector_suffix('i1', lanes)}"
        f.module.declare(f"declare i64 @{name}({bits}, i1)")
        return f.tmp(f"call i64 @{name}({bits} {bad}, i1 true)")
    number = f.tmp(f"bitcast {bits} {bad} to i{lanes}")
    f.module.declare(f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)")
    first = f.tmp(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {number}, i1 true)")
    how = "trunc" if lanes > 64 else "zext"
    return first if lanes == 64 else f.tmp(f"{how} i{lanes} {first} to i64")


def _leave(f: FunctionEmitter, kind: Any, message: Any, numbers: list[str]) -> None:
    """Return with an error whose message contains these numbers."""
    held = f.alloca("i64", max(1, len(numbers)), align=8)
    for i, number in enumerate(numbers):
        slot = f.tmp(f"getelementptr inbounds i64, ptr {held}, i64 {i}")
        f.emit(f"store i64 {number}, ptr {slot}")
    f.module.describes = True
    text = f.module.string(message.value.replace("{}", "\1"))
    f.emit(f"call void @__tw_describe(ptr {text}, ptr {held})")
    f.ret(str(CHECK_CODES[kind.value]))
