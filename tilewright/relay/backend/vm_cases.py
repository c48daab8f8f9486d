"""Kernels for dynamic shapes: one for each possible relation between the sizes.

    add(x: (n,), y: (m,))       n = m:  over (n0,), (n0,)       n = 1:  over (1,), (n1,)       m = 1:  over (n0,), (1,)

The sizes of a function are variables s0, s1, … (its registers). A kernel has variables of its own, one for each
different size among its arguments, so that similar call sites share it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...arith import Analyzer, detect_linear_equation
from ...ir.errors import TVMError
from ...ir.expr import USUAL_SIZE, IntImm, PrimExpr, SizeVar, const_value
from ...ir.expr import Var as TirVar
from ...ir.functor import substitute
from ...tune.program.facts import number
from ..expr import Constant, Function
from ..op.shapes import Assumption, assumptions, floordiv, mul, same_size
from ..op.shapes import sub as size_sub
from ..sizes import free_sizes, retyped, sizes_in
from ..transform.infer_type import infer_type
from ..ty import TensorType, TupleType, tensor_fields
from .lower import lift_constants, scalar_sizes
from .vm_planes import plane_of

_MOST = 9  # most cases of one call


class Check(NamedTuple):
    """Two sizes that must be equal; with `least`, the reason, the first may be larger."""

    a: Any
    b: Any
    least: str = ""


@dataclass(slots=True)
class Case:
    """A kernel for one relation between sizes, with all sizes in terms of the calling function."""

    fn: Function  # over variables of its own, with the arrays in it as further parameters
    arrays: list[Constant]
    guards: list[tuple[Any, Any]]  # pairs of sizes that are equal in this case
    checks: list[Check]
    outs: list[TensorType]  # the results; a size that depends on values is Any
    extras: list[Any]  # the values of sizes in its attributes that are not dimensions
    special: bool = False  # a more general case holds for these sizes too
    more: bool = False  # there are relations of sizes beyond the cases that were found
    inputs: list[TensorType] | None = (
        None  # the types of the arguments as the kernel sees them, if they differ
    )


@dataclass(slots=True)
class Site:
    """A call: the fused function, and the types of its arguments in sizes of the calling function."""

    fn: Function
    kinds: list[Any]
    symbols: dict[Any, Any] = field(default_factory=dict)  # the values of the sizes in attributes
    # sizes of the calling function that are often 1, such as a batch
    often_one: list[Any] = field(default_factory=list)


def replaced(value: Any, known: dict[Any, Any]) -> Any:
    """A size, a type or a tuple with expressions in place of variables."""
    if isinstance(value, PrimExpr):
        made = Analyzer().simplify(substitute(value, {v: _expr(v, e) for v, e in known.items()}))
        return int(made.value) if isinstance(made, IntImm) else made
    if isinstance(value, TensorType):
        if all(isinstance(d, int) for d in value.shape):
            return value
        return TensorType([replaced(d, known) for d in value.shape], value.dtype)
    if isinstance(value, TupleType):
        return TupleType(tuple(replaced(f, known) for f in value.fields))
    if isinstance(value, tuple):
        return tuple(replaced(v, known) for v in value)
    return value


def _expr(var: Any, value: Any) -> PrimExpr:
    return IntImm(var.dtype, value) if isinstance(value, int) else value


class _Names:
    """The variables of a kernel, and their values in the calling function."""

    def __init__(self) -> None:
        self.by_text: dict[str, SizeVar] = {}
        self.values: dict[Any, Any] = {}

    def of(self, size: Any) -> Any:
        if isinstance(size, int):
            return size
        key = str(size)
        if key not in self.by_text:
            var = self.by_text[key] = SizeVar(f"n{len(self.by_text)}", "int32", likely=_likely(size))
            self.values[var] = size
        return self.by_text[key]

    def kind(self, kind: Any) -> Any:
        if isinstance(kind, TupleType):
            return TupleType(tuple(self.kind(f) for f in kind.fields))
        return TensorType([self.of(d) for d in kind.shape], kind.dtype)


def _likely(size: PrimExpr) -> int:
    """The likely value of a size, rounded to a power of two: call sites of about the same sizes share a kernel.

    It is the usual size at most: what is good for that is good for more.
    """
    return min(USUAL_SIZE, 1 << round(math.log2(max(1, number(size)))))


def find_cases(site: Site) -> list[Case]:
    """The cases of a call, the most likely one first; none if the relations cannot be enumerated."""
    general = _found(site)
    if len(general) != 1 or general[0].guards:
        return general
    special: list[Case] = []
    for size in site.often_one:
        if not any(size in sizes_in(v) for v in (*site.kinds, *site.symbols.values())):
            continue
        one = {size: 1}
        symbols = {s: replaced(v, one) for s, v in site.symbols.items()}
        with suppress(TVMError):  # errors for a size of 1 are reported by the general kernel
            special += _found(Site(site.fn, [replaced(k, one) for k in site.kinds], symbols), [(size, 1)])
    special = [c for c in special if _text(c) != _text(general[0])]
    for case in special:
        case.special = True
    return [*special, *general]


def _text(case: Case) -> list[str]:
    """The key of a kernel among those of a call."""
    return [*(str(p.checked_type) for p in case.fn.params), str(case.fn.checked_type.ret_type)]


def _found(site: Site, guards: Sequence[tuple[Any, Any]] = ()) -> list[Case]:
    plane = None if "Compiler" in site.fn.attrs else plane_of(site.fn, site.kinds)
    if plane is None:
        return _enumerated(site, guards)
    flat = Site(site.fn, [plane.flat(k) for k in site.kinds], site.symbols)
    found = _enumerated(flat, guards)
    for case in found:
        case.outs = [plane.whole(t) for t in case.outs]
        case.inputs = [t for k in flat.kinds for t in tensor_fields(k)]
    return found


def _enumerated(site: Site, guards: Sequence[tuple[Any, Any]]) -> list[Case]:
    names = _Names()
    kinds = [names.kind(k) for k in site.kinds]
    attrs: dict[Any, Any] = {}
    for symbol in free_sizes(site.fn):
        if symbol not in site.symbols:
            raise TVMError(f"the size {symbol} in the attributes of an operator is not a size of a parameter")
        value = site.symbols[symbol]
        attrs[symbol] = replaced(value, {s: names.of(s) for s in sizes_in(value)})
    work = _Cases(site.fn, kinds, attrs, names)
    work.explore({}, list(guards), [])
    return work.found


class _Cases:
    def __init__(self, fn: Function, kinds: list[Any], attrs: dict[Any, Any], names: _Names) -> None:
        self.fn, self.kinds, self.attrs, self.names = fn, kinds, attrs, names
        self.found: list[Case] = []

    def explore(
        self,
        equal: dict[Any, Any],
        guards: list[tuple[Any, Any]],
        checks: list[Check],
        taken: frozenset[str] = frozenset(),
    ) -> None:
        """Enumerate the cases under the equalities `equal`."""
        if len(self.found) >= _MOST:
            self.found[-1].more = True
            return
        kinds = [replaced(k, equal) for k in self.kinds]
        attrs = {s: replaced(v, equal) for s, v in self.attrs.items()}
        with assumptions() as noted:
            made = infer_type(retyped(self.fn, kinds, attrs))
        for a in noted:
            key = f"{a.a} {a.b} {a.least}"
            if key in taken:
                continue
            if a.stretches:
                self.stretched(a, equal, guards, checks, taken | {key})
                return
            taken |= {key}
            mine = Check(self.outer(a.a), self.outer(a.b), a.least)
            if a.least:
                checks = [*checks, mine]
                continue
            same = same_size(mine.a, mine.b)
            if same is False:
                raise TVMError(f"the sizes {mine.a} and {mine.b} must be the same")
            if not same:
                checks = [*checks, mine]
            solved = solution(a.a, a.b)
            if solved is not None:
                self.explore(_extended(equal, *solved), guards, checks, taken)
                return
        self.add(made, attrs, guards, checks)

    def stretched(
        self, a: Assumption, equal: dict[Any, Any], guards: Any, checks: Any, taken: frozenset[str]
    ) -> None:
        """A broadcast of two sizes: they are equal, or one of them is 1."""
        mine = self.outer(a.a), self.outer(a.b)
        if same_size(*mine):
            solved = solution(a.a, a.b)
            self.explore(equal if solved is None else _extended(equal, *solved), guards, checks, taken)
            return
        for left, right in ((a.a, a.b), (a.a, 1), (a.b, 1)):
            if same_size(left, right) is False:
                continue
            solved = solution(left, right)
            if solved is None:
                continue
            guard = (self.outer(left), self.outer(right))
            try:
                self.explore(_extended(equal, *solved), [*guards, guard], checks, taken)
            except TVMError:
                if not self.found:
                    raise  # the error does not depend on the sizes

    def outer(self, size: Any) -> Any:
        """A size of the kernel in terms of the calling function."""
        return replaced(size, self.names.values)

    def add(self, made: Function, attrs: dict[Any, Any], guards: Any, checks: Any) -> None:
        fn, arrays = (made, []) if "Compiler" in made.attrs else lift_constants(made)
        result = fn.checked_type.ret_type
        extras = [self.outer(s) for s in scalar_sizes(fn)]
        outs = [self.outer(t) for t in tensor_fields(result)]
        self.found.append(Case(fn, arrays, guards, checks, outs, extras))


def solution(a: Any, b: Any) -> tuple[Any, Any] | None:
    """A variable and the value for which two sizes are equal, or None.

    n = m * 2:  n, m * 2        n * 4 = m * 8:  n, m * 2        n * 4 = m * 6:  none
    """
    for x, y in ((a, b), (b, a)):
        if isinstance(x, TirVar) and x not in sizes_in(y):
            return x, y
    if not isinstance(a, PrimExpr) and not isinstance(b, PrimExpr):
        return None
    rest = size_sub(a, b)
    for x in sizes_in(rest):
        linear = detect_linear_equation(rest, [x])
        factor = const_value(linear[0]) if linear else None
        if not factor:
            continue
        # factor * x + others = 0
        others = size_sub(0, linear[1])
        value = floordiv(others, int(factor))
        if same_size(mul(value, int(factor)), others):
            return (x, value) if not isinstance(value, int) or value > 0 else None
    return None


def _extended(equal: dict[Any, Any], var: Any, value: Any) -> dict[Any, Any]:
    out = {v: replaced(e, {var: value}) for v, e in equal.items()}
    out[var] = value
    return out
