"""Recognition of attention: the stages of a product with a softmax before it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....arith import Analyzer
from ....ir.buffer import Buffer
from ....ir.dtype import DataType
from ....ir.equal import structural_equal
from ....ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    Add,
    BufferLoad,
    Call,
    Cast,
    Div,
    FloatImm,
    IterVar,
    Max,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
    const,
    const_value,
)
from ....ir.functor import Mutator, pre_order, substitute, vars_used
from ....ir.ops import conjuncts, sub
from ....ir.stmt import BlockRealize, BufferStore
from ...analysis.combiner import Combination, NotACombination, combination_of
from ..blocks import check_dominant, consumers_of, enclosing_block

if TYPE_CHECKING:
    from ..schedule import Schedule

_WIDE = DataType("float32")


@dataclass(frozen=True, slots=True)
class Attention:
    """O[…, i, d] = Σ over j of exp(x - M) / T * v[…, j, d], x made of the scores q[…, i, e] · k[…, j, e]."""

    product: BlockRealize
    out: BufferStore
    others: tuple[IterVar, ...]
    row: IterVar
    column: IterVar  # of the result
    key: IterVar
    deep: IterVar  # of the scores
    q: BufferLoad
    k: BufferLoad
    v: BufferLoad
    score: Var  # stands for an element of the scores in `logit`
    logit: PrimExpr  # x / scale
    scale: float
    guarded: bool  # whether rows of weights 0 give 0
    stages: tuple[BlockRealize, ...]  # all that goes, the last first

    @staticmethod
    def size(iv: IterVar) -> int:
        return int(const_value(iv.dom.extent) or 0)

    def edges(self) -> tuple[list[tuple[int, int]], PrimExpr]:
        """The conditions sign * (i - j) + limit >= 0 without which a logit is -inf, by sign and limit, and what the
        logit is where they hold."""
        ana, e = Analyzer(), self.logit
        found: list[tuple[int, int]] = []
        i, j = self.row.var, self.key.var
        while (
            isinstance(e, Select) and isinstance(e.false_value, FloatImm) and e.false_value.value == -math.inf
        ):
            these: list[tuple[int, int]] = []
            for c in conjuncts(e.condition):
                for sign, away in ((1, sub(i, j)), (-1, sub(j, i))):
                    room = _room(c)
                    limit = None if room is None else const_value(ana.simplify(sub(room, away)))
                    these += [] if limit is None else [(sign, int(limit))]
            if len(these) != len(conjuncts(e.condition)):
                break
            found, e = [*found, *these], e.true_value
        return found, e


def _room(c: PrimExpr) -> PrimExpr | None:
    """What a comparison asks not to be negative."""
    if not isinstance(c, (LE, LT, GE, GT)):
        return None
    room = sub(c.b, c.a) if isinstance(c, (LE, LT)) else sub(c.a, c.b)
    return sub(room, const(1, room.dtype)) if isinstance(c, (LT, GT)) else room


class _No(Exception):
    """Why something is not an attention."""


def attention_of(sch: Schedule, me: BlockRealize) -> Attention | str:
    """The attention that a block is the last product of, or why it is none."""
    try:
        return _Reading(sch, me).found()
    except _No as why:
        return str(why)
    except NotACombination as why:
        return f"a stage {why}"


@dataclass(slots=True)
class _Reading:
    sch: Schedule
    me: BlockRealize
    seen: dict[Buffer, BlockRealize] = field(default_factory=dict)  # the stages that were looked into

    def found(self) -> Attention:
        me, block = self.me, self.me.block
        check = [x.loop_var for x in self.sch.state.index.loops_of(me)] == list(me.iter_values)
        if not check or any(const_value(iv.dom.extent) is None for iv in block.iter_vars):
            raise _No("it is scheduled already, or its sizes are not known")
        held = self.sum_of(me)
        reduces = [iv for iv in block.iter_vars if iv.is_reduction]
        out = block.body
        by_var = {iv.var: iv for iv in block.iter_vars}
        if len(reduces) != 1 or not isinstance(out, BufferStore) or len(held.indices) < 2:
            raise _No("it is not a sum over one axis")
        if not all(i in by_var for i in held.indices) or len(set(held.indices)) != len(held.indices):
            raise _No("it does not write where its iterators say")
        kind = out.buffer.dtype
        if not kind.is_float or kind.bits > 32:
            raise _No(f"its sums are {kind}, and those of its parts would be float32")
        (key,) = reduces
        row, column = (by_var[i] for i in held.indices[-2:])  # type: ignore[index]
        value = _bare(held.values[0])
        if not isinstance(value, Mul):
            raise _No("it does not multiply weights by values")
        why = ""
        for weight, other in ((value.a, value.b), (value.b, value.a)):
            before = dict(self.seen)
            try:
                return self.weighed(weight, other, out, row, column, key)
            except _No as said:
                why, self.seen = why or str(said), before
        raise _No(why)

    def weighed(
        self, weight: PrimExpr, other: PrimExpr, out: BufferStore, row: IterVar, column: IterVar, key: IterVar
    ) -> Attention:
        up, down = _fraction(self.expand(_bare(weight)))
        if len(up) != 1 or len(down) != 1 or not _is_exp(up[0]):
            raise _No("its weights are not exp(x - M) / T")
        power, (total, guarded) = up[0], _total(down[0])
        self.check_same(total, Add, power, key, "the weights are divided by another sum than their own")
        x, highest = _difference(power)
        self.check_same(highest, Max, x, key, "the exponents are not measured from the largest of them")
        score, load, logit = _over_scores(self, x, key)
        scale, logit = _scaled(logit, score)
        q, k, deep = self.scores(load, row, key)
        v = self.operand(other, (key, column), row)
        if len({str(t.buffer.dtype) for t in (q, k, v)}) != 1 or not q.dtype.is_float or q.dtype.bits > 32:
            raise _No("its operands are not all of one type of floats of at most 32 bits")
        others = tuple(iv for iv in self.me.block.iter_vars if iv not in (row, column, key))
        self.check_only()
        stages = tuple(sorted(self.seen.values(), key=self.sch.state.index.order.index, reverse=True))
        return Attention(
            self.me, out, others, row, column, key, deep, q, k, v, score, logit, scale, guarded, stages
        )

    # -- stages ----------------------------------------------------------------------------
    def maker(self, buffer: Buffer) -> BlockRealize | None:
        found = [r for r in self.sch.siblings(self.me) if any(w.buffer is buffer for w in r.block.writes)]
        return found[0] if len(found) == 1 else None

    def sum_of(self, r: BlockRealize) -> Combination:
        check_dominant(self.sch, r)
        held = combination_of(r.block)
        if len(held.values) != 1:
            raise _No(f"block {r.block.name_hint} reduces several values")
        return held

    def expand(self, e: PrimExpr) -> PrimExpr:
        """An expression with the stages that work element by element written out in it."""
        return _Expand(self).visit(e)  # type: ignore[no-any-return]

    def at(self, load: PrimExpr, op: type, key: IterVar) -> PrimExpr:
        """What the reduction that a load reads is over, in the variables of the product."""
        r = self.maker(load.buffer) if isinstance(load, BufferLoad) else None
        if r is None or not isinstance(load, BufferLoad):
            raise _No(f"`{load}` is made by no reduction")
        held = self.sum_of(r)
        reduces = [iv for iv in r.block.iter_vars if iv.is_reduction]
        plain = all(isinstance(i, Var) for i in held.indices)
        if held.reducer.result[0].__class__ is not op or len(reduces) != 1 or not plain:
            raise _No(f"block {r.block.name_hint} is another reduction")
        if not structural_equal(reduces[0].dom.extent, key.dom.extent):
            raise _No(f"block {r.block.name_hint} reduces over {reduces[0].dom.extent}")
        self.seen[load.buffer] = r
        table: dict[Var, PrimExpr] = {reduces[0].var: key.var}
        table.update(zip(held.indices, load.indices, strict=True))  # type: ignore[arg-type]
        return substitute(held.values[0], table)

    def check_same(self, load: PrimExpr, op: type, value: PrimExpr, key: IterVar, reason: str) -> None:
        if not structural_equal(_bare(self.expand(self.at(load, op, key))), _bare(value)):
            raise _No(reason)

    def scores(self, load: BufferLoad, row: IterVar, key: IterVar) -> tuple[BufferLoad, BufferLoad, IterVar]:
        r = self.maker(load.buffer)
        if r is None or load.dtype != "float32":
            raise _No("its scores are not sums of float32")
        deep = next((iv for iv in r.block.iter_vars if iv.is_reduction), key)
        value = _bare(self.at(load, Add, deep))
        if not isinstance(value, Mul):
            raise _No("its scores are not products")
        for a, b in ((value.a, value.b), (value.b, value.a)):
            try:
                q = self.operand(a, (row, deep), key)
                k = self.operand(b, (key, deep), row)
            except _No:
                continue
            return q, k, deep
        raise _No("its scores are not products of rows with rows")

    def operand(self, e: PrimExpr, last: tuple[IterVar, IterVar], never: IterVar) -> BufferLoad:
        """A matrix that is read in its own layout: […, row, …, column], with whole rows and columns."""
        seen = dict(self.seen)
        row, column = (iv.var for iv in last)
        for tried in (self.expand(_bare(e)), _bare(e)):
            bare = _bare(tried)
            if isinstance(bare, BufferLoad) and bare.indices and bare.indices[-1] is column:
                rest = [i for i in bare.indices[:-1] if i is not row]
                used = {v for i in rest for v in vars_used(i)}
                sizes = dict(zip(bare.indices, bare.buffer.shape, strict=True))
                whole = all(structural_equal(sizes.get(iv.var, iv.var), iv.dom.extent) for iv in last)
                if len(rest) == len(bare.indices) - 2 and whole and not used & {row, column, never.var}:
                    return bare
            self.seen = dict(seen)
        raise _No(f"`{e}` is not read row by row")

    def check_only(self) -> None:
        """Nobody else reads what goes."""
        inside = {id(r) for r in self.seen.values()} | {id(self.me)}
        scope = enclosing_block(self.sch, self.me)
        own = set(scope.alloc_buffers) if scope is not None else set()
        for buffer, r in self.seen.items():
            if buffer not in own or any(id(c) not in inside for c in consumers_of(self.sch, r)):
                raise _No(f"{buffer.name} is read elsewhere too")


class _Expand(Mutator):
    """Writes stages out; what was rounded to 16 bits between two of them is not rounded any more."""

    def __init__(self, reading: _Reading) -> None:
        self.reading = reading

    def visit_Cast(self, n: Cast) -> PrimExpr:
        made: Cast = n.map_children(self.visit)
        inner = made.value
        if isinstance(inner, Cast) and inner.dtype.is_float and inner.value.dtype is made.dtype is _WIDE:
            return inner.value
        return made

    def visit_BufferLoad(self, n: BufferLoad) -> PrimExpr:
        r = self.reading.maker(n.buffer)
        body = None if r is None else r.block.body
        if r is None or not isinstance(body, BufferStore) or r.block.init is not None:
            return n
        spatial = all(iv.iter_type == IterVar.DataPar for iv in r.block.iter_vars)
        if not spatial or not all(isinstance(i, Var) for i in body.indices):
            return n
        if len(r.block.iter_vars) != len(set(body.indices)) or const_value(r.predicate) != 1:
            return n
        self.reading.seen[n.buffer] = r
        table = dict(zip(body.indices, n.indices, strict=True))
        return self.visit(substitute(body.value, table))  # type: ignore[arg-type, no-any-return]


def _bare(e: PrimExpr) -> PrimExpr:
    """A value without the types that it is carried in."""
    while isinstance(e, Cast) and e.dtype.is_float and e.value.dtype.is_float:
        e = e.value
    return e


def _fraction(e: PrimExpr) -> tuple[list[PrimExpr], list[PrimExpr]]:
    """The factors and the divisors of a value."""
    e = _bare(e)
    if isinstance(e, (Mul, Div)):
        (a, b), (c, d) = _fraction(e.a), _fraction(e.b)
        return ([*a, *c], [*b, *d]) if isinstance(e, Mul) else ([*a, *d], [*b, *c])
    return ([], []) if isinstance(e, FloatImm) and e.value == 1 else ([e], [])


def _is_exp(e: PrimExpr) -> bool:
    return isinstance(e, Call) and getattr(e.op, "short_name", "") == "exp"


def _total(e: PrimExpr) -> tuple[PrimExpr, bool]:
    """What is divided by, and whether that is 1 where it would be 0."""
    if isinstance(e, Select) and isinstance(e.condition, EQ) and const_value(e.true_value) == 1:
        sides = (e.condition.a, e.condition.b)
        if structural_equal(sides[0], e.false_value) and const_value(sides[1]) == 0:
            return e.false_value, True
    return e, False


def _difference(power: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """x and M of exp(x - M), or of exp(x - max(M, lowest))."""
    assert isinstance(power, Call)
    e = _bare(power.args[0])
    if not isinstance(e, Sub):
        raise _No("its weights are not exp(x - M) / T")
    highest = _bare(e.b)
    if isinstance(highest, Max):
        a, b = highest.a, highest.b
        highest = a if isinstance(b, FloatImm) and b.value < -1e38 else highest
    return e.a, highest


def _over_scores(reading: _Reading, x: PrimExpr, key: IterVar) -> tuple[Var, BufferLoad, PrimExpr]:
    """The elementwise work on the scores, as a function of a variable for the score."""
    loads = [m for m in pre_order(x) if isinstance(m, BufferLoad) and _is_sum(reading, m, key)]
    if not loads or any(not structural_equal(m, loads[0]) for m in loads):
        raise _No("its exponents are made of no scores, or of several")
    score = Var("score", loads[0].dtype)
    logit = _Replace(loads[0].buffer, score).visit(_bare(x))
    narrow = [m for m in pre_order(logit) if m is not score and score in vars_used(m)]
    if any(m.dtype != "float32" for m in narrow if isinstance(m, PrimExpr) and m.dtype.is_float):
        raise _No("its scores are rounded on the way")
    return score, loads[0], logit


class _Replace(Mutator):
    """The loads of a buffer as a variable."""

    def __init__(self, buffer: Buffer, var: Var) -> None:
        self.buffer, self.var = buffer, var

    def visit_BufferLoad(self, n: BufferLoad) -> PrimExpr:
        return self.var if n.buffer is self.buffer else n.map_children(self.visit)


def _is_sum(reading: _Reading, load: BufferLoad, key: IterVar) -> bool:
    r = reading.maker(load.buffer)
    return (
        r is not None
        and r.block.init is not None
        and key.var in {v for i in load.indices for v in vars_used(i)}
    )


def _scaled(e: PrimExpr, score: Var) -> tuple[float, PrimExpr]:
    """A positive constant that all of a value is multiplied by, and the value without it."""
    if isinstance(e, Mul):
        for a, b in ((e.a, e.b), (e.b, e.a)):
            if isinstance(a, FloatImm) and a.value > 0 and score in vars_used(b):
                more, rest = _scaled(b, score)
                return a.value * more, rest
    if isinstance(e, Div) and isinstance(e.b, FloatImm) and e.b.value > 0:
        more, rest = _scaled(e.a, score)
        return more / e.b.value, rest
    if isinstance(e, Select) and isinstance(e.false_value, FloatImm) and e.false_value.value == -math.inf:
        more, rest = _scaled(e.true_value, score)
        return more, Select(e.condition, rest, e.false_value)
    return 1.0, e
