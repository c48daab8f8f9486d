"""Reductions that depend on an earlier one, taken part by part: `rebase`, the step to online softmax and variance.

A sum of exp(x - M), where M is the largest of all x, needs M first: two walks over x. Measured from the largest of each
part, the parts of the sum need only their own part, and are corrected when they are added up:

    sum over all parts f of  exp(x - M)   =   sum over f of  Q[f] * exp(P[f] - M),    Q[f] = sum of exp(x - P[f])
    sum over all parts f of  (x - E)²     =   sum over f of  Q[f] + n * (c - E)²,     Q[f] = sum of (x - c)²
                                                                                      c = P[f] / n, the part's own mean
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....arith import Analyzer
from ....ir.buffer import Buffer
from ....ir.equal import structural_equal
from ....ir.expr import Add, BufferLoad, Call, Cast, IterVar, Max, Mul, PrimExpr, Sub, Var, const, const_value
from ....ir.functor import pre_order, rewrite, substitute, vars_used
from ....ir.ops import add, cast, conjuncts, div, less, max_of, min_of, min_value, mul, sub
from ....ir.stmt import Block, BlockRealize, IfThenElse, Stmt
from ...analysis.combiner import Combination, NotACombination, combination_of
from ..blocks import check_dominant, consumers_of, is_output, refresh_regions
from ..primitive import BlockRV, primitive, refuse

if TYPE_CHECKING:
    from ..schedule import Schedule

_EXPONENTIALS = ("exp", "exp2", "exp10")


@primitive
def rebase(sch: Schedule, block: BlockRV | str, partial: BlockRV | str) -> None:
    """Let partial sums depend on partial results of another reduction instead of its total, and correct them later.

    for f: P[f] = max(x[f, :])                       for f: P[f] = max(x[f, :])
    M = max(P[:])                                    M = max(P[:])
    for f: Q[f] = sum(exp(x[f, :] - M))      ->      for f: Q[f] = sum(exp(x[f, :] - P[f]))
    S = sum(Q[:])                                    S = sum(Q[f] * exp(P[f] - M) for f)

    `block` computes Q and `partial` computes P; both were made by rfactor. Q then no longer waits for M. This works for
    sums of products with exp(x - M), where M is the largest x, and for sums of (x - E)², where E is computed from the
    sum of x.
    """
    mine, base = _part(sch, sch.realize(block)), _part(sch, sch.realize(partial))
    _check_parts(mine, base)
    told = _Told(mine, base)
    made, correct = _exponential(told) if base.op is Max else _square(told)
    body: Stmt = mine.held.update([(mine.buffer, mine.held.indices)], [made])
    if mine.guard is not None:
        body = IfThenElse(mine.guard, body)
    after = mine.whole.block
    whole = mine.whole_held.update(
        [(b, mine.whole_held.indices) for b in mine.whole_held.buffers], [correct(mine.whole_held.values[0])]
    )
    sch.state.replace(mine.me.block, refresh_regions(mine.me.block.replace(body=body)))
    sch.state.replace(after, refresh_regions(after.replace(body=whole)))


# ---------------------------------------------------------------------------- parts and wholes
@dataclass(frozen=True, slots=True)
class _Part:
    """A block that rfactor made, and the one that combines its results."""

    me: BlockRealize
    held: Combination
    guard: PrimExpr | None  # which steps count
    whole: BlockRealize
    whole_held: Combination
    factor: Var  # of `me`: which part
    places: dict[Var, PrimExpr]  # the iterators of `me` that name an element, as `whole` names it

    @property
    def buffer(self) -> Buffer:
        return self.held.buffers[0]

    @property
    def result(self) -> Buffer:
        return self.whole_held.buffers[0]

    @property
    def op(self) -> type:
        return self.held.reducer.result[0].__class__

    @property
    def name(self) -> str:
        return self.me.block.name_hint

    @property
    def steps(self) -> list[IterVar]:
        return [iv for iv in self.me.block.iter_vars if iv.is_reduction]

    def domain(self, var: Var) -> IterVar:
        return next(iv for iv in self.me.block.iter_vars if iv.var is var)


def _part(sch: Schedule, me: BlockRealize) -> _Part:
    name = me.block.name_hint
    check_dominant(sch, me)
    body: Stmt = me.block.body
    guard: PrimExpr | None = None
    if isinstance(body, IfThenElse) and body.else_case is None:
        guard, body = body.condition, body.then_case
    held = _combination(me, me.block.replace(body=body))
    found: list[tuple[BlockRealize, Combination, BufferLoad]] = []
    for reader in consumers_of(sch, me):
        try:
            whole = combination_of(reader.block)
        except NotACombination:
            continue
        (value, *more) = whole.values
        if isinstance(value, BufferLoad) and value.buffer is held.buffers[0] and not more:
            found.append((reader, whole, value))
    if len(found) != 1 or is_output(sch, me) or len(held.buffers) != 1:
        refuse(
            f"block {name} makes no partial results that one block combines",
            at=me,
            hint="rfactor makes such parts, of one value each",
        )
    reader, whole, value = found[0]
    check_dominant(sch, reader)
    reducing = {iv.var for iv in reader.block.iter_vars if iv.is_reduction}
    own, theirs = list(held.indices), list(value.indices)
    plain = all(isinstance(i, Var) for i in (*own, *theirs)) and len({*own}) == len(own) == len({*theirs})
    where = [i for i in range(len(theirs)) if theirs[i] in reducing]
    same = whole.reducer.result[0].__class__ is held.reducer.result[0].__class__
    if not plain or len(where) != 1 or reducing != {theirs[where[0]]} or not same:
        refuse(
            f"block {reader.block.name_hint} does not combine the parts of block {name} along one axis",
            at=reader,
            hint="take rebase right after rfactor",
        )
    factor = own[where[0]]
    assert isinstance(factor, Var)
    places = {i: x for i, x in zip(own, theirs, strict=True) if isinstance(i, Var)}
    return _Part(me, held, guard, reader, whole, factor, places)


def _combination(at: BlockRealize, block: Block) -> Combination:
    try:
        return combination_of(block)
    except NotACombination as why:
        refuse(f"block {block.name_hint} {why}", at=at)


def _check_parts(mine: _Part, base: _Part) -> None:
    """Refuse unless both have as many parts of the same steps."""
    if mine.op is not Add:
        refuse(f"block {mine.name} is not a sum", at=mine.me)
    if base.op not in (Max, Add):
        refuse(f"block {base.name} is neither a largest value nor a sum", at=base.me)
    pairs = [(mine.domain(mine.factor), base.domain(base.factor)), *zip(mine.steps, base.steps, strict=False)]
    alike = all(structural_equal(a.dom, b.dom) for a, b in pairs)
    if not alike or len(mine.steps) != len(base.steps):
        refuse(
            f"the parts of block {mine.name} are not those of block {base.name}",
            at=mine.me,
            hint="split both reductions by the same factors before rfactor",
        )


class _Told:
    """The parts of a `rebase`: the term of the sum, and its reads of the other reduction's result."""

    def __init__(self, mine: _Part, base: _Part) -> None:
        self.mine, self.base = mine, base
        self.term = mine.held.values[0]
        loads = [m for m in pre_order(self.term) if isinstance(m, BufferLoad) and m.buffer is base.result]
        if not loads:
            refuse(
                f"block {mine.name} does not read {base.result.name}, the result of the parts of block {base.name}",
                at=mine.me,
            )
        self.row = loads[0].indices
        rows = {v for i in self.row for v in vars_used(i)}
        if any(not structural_equal(a, b) for m in loads for a, b in zip(m.indices, self.row, strict=True)):
            refuse(f"block {mine.name} reads {base.result.name} at several places", at=mine.me)
        if mine.factor in rows or not rows <= mine.places.keys():
            refuse(f"block {mine.name} reads {base.result.name} at other places in each part", at=mine.me)

    def reads(self, e: PrimExpr) -> bool:
        """Whether an expression depends on the other reduction."""
        return any(isinstance(m, BufferLoad) and m.buffer is self.base.result for m in pre_order(e))

    def part(self, row: tuple[PrimExpr, ...], factor: PrimExpr) -> BufferLoad:
        """The partial result that belongs to a row."""
        whole = self.base.whole_held
        table: dict[Var, PrimExpr] = {}
        for i, x in zip(whole.indices, row, strict=True):
            if not isinstance(i, Var):
                refuse(f"block {self.base.whole.block.name_hint} writes at `{i}`", at=self.base.whole)
            table[i] = x
        load = whole.values[0]
        assert isinstance(load, BufferLoad)
        names = self.base.places[self.base.factor]
        assert isinstance(names, Var)
        return BufferLoad(load.buffer, tuple(substitute(i, {**table, names: factor}) for i in load.indices))

    def there(self, e: PrimExpr) -> PrimExpr:
        """An expression over rows, where the parts are combined."""
        return substitute(e, self.mine.places)

    @property
    def factor_there(self) -> PrimExpr:
        return self.mine.places[self.mine.factor]

    def of_row(self, e: PrimExpr) -> bool:
        """Whether an expression is the same for all steps of a row, and known where the parts are combined."""
        loads = {m.buffer for m in pre_order(e) if isinstance(m, BufferLoad)}
        return vars_used(e) <= self.mine.places.keys() - {self.mine.factor} and loads <= {self.base.result}

    def check_same_values(self, value: PrimExpr) -> None:
        """Refuse unless the earlier reduction is over these values, step by step."""
        base = self.base
        table: dict[Var, PrimExpr] = {a.var: b.var for a, b in zip(base.steps, self.mine.steps, strict=True)}
        row = self.part(self.row, self.mine.factor)
        for i, x in zip(base.held.indices, row.indices, strict=True):
            assert isinstance(i, Var)
            table[i] = x
        theirs = substitute(base.held.values[0], table)
        guards = [g for g in (base.guard, self.mine.guard) if g is not None]
        alike = structural_equal(_bare(theirs), _bare(value)) and (
            not guards or (len(guards) == 2 and structural_equal(substitute(guards[0], table), guards[1]))
        )
        if not alike:
            refuse(
                f"block {self.mine.name} is over `{value}`, and block {base.name} over `{theirs}`",
                at=self.mine.me,
                hint="both must be over the same values",
            )


def _bare(e: PrimExpr) -> PrimExpr:
    """A value without the types that it is carried in."""
    while isinstance(e, Cast) and e.dtype.is_float:
        e = e.value
    return e


# ---------------------------------------------------------------------------- the two laws
Law = tuple[PrimExpr, Callable[[PrimExpr], PrimExpr]]


def _exponential(told: _Told) -> Law:
    """exp(x - M): measured from the part's own largest value, and scaled by how far that is from M."""
    found = [m for m in _factors(told.term) if told.reads(m)]
    call = found[0]
    if (
        len(found) != 1
        or not isinstance(call, Call)
        or getattr(call.op, "short_name", "") not in _EXPONENTIALS
    ):
        _not_known(told)
    assert isinstance(call, Call)
    argument, scale = _away(told, call.args[0])
    told.check_same_values(argument.a)
    largest = told.base.result
    lowest = min_value(largest.dtype)  # a part of nothing but -inf counts nothing

    def scaled(e: PrimExpr) -> PrimExpr:
        return e if scale is None else mul(e, scale)

    def measured(row: tuple[PrimExpr, ...], factor: PrimExpr, e: PrimExpr) -> PrimExpr:
        base = max_of(told.part(row, factor), lowest)
        return rewrite(e, {BufferLoad: lambda n: base if n.buffer is largest else None})

    new = scaled(sub(argument.a, measured(told.row, told.mine.factor, argument.b)))
    instead = Call(call.dtype, call.op, (new, *call.args[1:]))
    made = rewrite(told.term, {Call: lambda n: instead if n is call else None})
    far = told.there(argument.b)
    row = tuple(told.there(i) for i in told.row)
    away = sub(measured(row, told.factor_there, far), far)
    power = Call(call.dtype, call.op, (told.there(scaled(away)), *call.args[1:]))
    factor = cast(told.mine.buffer.dtype, power)
    return made, lambda value: mul(value, factor)


def _away(told: _Told, e: PrimExpr) -> tuple[Sub, PrimExpr | None]:
    """The difference x - M in an exponent, and what it is multiplied by."""
    by: PrimExpr | None = None
    if isinstance(e, Mul):
        e, by = (e.a, e.b) if isinstance(e.a, Sub) else (e.b, e.a)
    fixed = by is None or (told.of_row(by) and not told.reads(by))
    if not isinstance(e, Sub) or told.reads(e.a) or not told.of_row(e.b) or not fixed:
        _not_known(told)
    assert isinstance(e, Sub)
    return e, by


def _factors(e: PrimExpr) -> list[PrimExpr]:
    """The factors of a product."""
    return [*_factors(e.a), *_factors(e.b)] if isinstance(e, Mul) else [e]


def _square(told: _Told) -> Law:
    """(x - E)²: measured from the part's own mean, which is n · (c - E)² away from E."""
    term, dtype = told.term, told.mine.buffer.dtype
    off: PrimExpr | None = None
    if isinstance(term, Mul) and structural_equal(term.a, term.b):
        off = term.a
    elif isinstance(term, Call) and getattr(term.op, "short_name", "") == "pow":
        off = term.args[0] if const_value(term.args[1]) == 2 else None
    if not isinstance(off, Sub) or told.reads(off.a) or not told.of_row(off.b):
        _not_known(told)
    assert isinstance(off, Sub)
    told.check_same_values(off.a)

    def mean(row: tuple[PrimExpr, ...], factor: PrimExpr) -> PrimExpr:
        return div(cast(off.dtype, told.part(row, factor)), count(factor))

    def count(factor: PrimExpr) -> PrimExpr:
        return cast(off.dtype, _steps_of(told, factor))

    here = sub(off.a, mean(told.row, told.mine.factor))
    away = sub(
        mean(tuple(told.there(i) for i in told.row), told.factor_there),
        told.there(off.b),
    )
    more = mul(count(told.factor_there), mul(away, away))
    return mul(here, here), lambda value: add(value, cast(dtype, more))


def _steps_of(told: _Told, factor: PrimExpr) -> PrimExpr:
    """How many steps a part has."""
    mine = told.mine
    sizes = [iv.dom.extent for iv in mine.steps]
    whole: PrimExpr = const(1, factor.dtype)
    for s in sizes:
        whole = mul(whole, s)
    if mine.guard is None:
        return whole
    step = mine.steps[-1]
    ana = Analyzer()
    (condition, *more) = conjuncts(mine.guard)
    # the last part is shorter: step + rest < size
    if len(mine.steps) == 1 and not more and condition.__class__ is less(step.var, factor).__class__:
        rest = ana.simplify(sub(condition.a, step.var))  # type: ignore[attr-defined]
        if step.var not in vars_used(rest) and vars_used(rest) <= {mine.factor}:
            left = sub(condition.b, rest)  # type: ignore[attr-defined]
            return min_of(whole, substitute(left, {mine.factor: factor}))
    refuse(
        f"block {mine.name} has parts of different sizes",
        at=mine.me,
        hint="split by a factor that divides, and fuse the loops of the reduction first",
    )
    return whole


def _not_known(told: _Told) -> None:
    base = told.base
    law = (
        f"exp(x - {base.result.name})" if base.op is Max else f"(x - e)², with e made from {base.result.name}"
    )
    refuse(
        f"`{told.term}` is not a product with {law}, so there is no correcting it later",
        at=told.mine.me,
        hint="sums of exp(x - largest) and of (x - mean)² can be rebased",
    )
