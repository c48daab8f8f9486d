"""The combiner of a reduction block, recognized from its statements."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.buffer import Buffer
from ...ir.equal import structural_equal
from ...ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    BufferLoad,
    Call,
    Cast,
    CommReducer,
    FloatImm,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    Sub,
    Var,
    const,
)
from ...ir.functor import Mutator, pre_order, substitute
from ...ir.ops import BINARY, max_value, min_value
from ...ir.stmt import (
    Block,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
    stmt_list,
)

ANY_ORDER = "tir.any_order"  # annotation of a block: its steps may run in any order
_SAYING = (EQ, NE, LT, LE, GT, GE, And, Or, Not)
_COMBINERS: tuple[type[BinaryOp], ...] = (Add, Mul, Max, Min, And, Or)


class NotACombination(Exception):
    """Why a block's steps cannot be regrouped, as the predicate of a sentence about the block."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A reduction as combiner, accumulators and operands: `stores[j] = reducer(stores, values)[j]`, all at the same
    element."""

    buffers: tuple[Buffer, ...]
    indices: tuple[PrimExpr, ...]
    reducer: CommReducer
    values: tuple[PrimExpr, ...]
    start: tuple[PrimExpr, ...]  # values of the init; empty if there is no init

    def update(self, places: Sequence[tuple[Buffer, Sequence[PrimExpr]]], values: Sequence[PrimExpr]) -> Stmt:
        """The statement that combines operands into accumulators."""
        held = [BufferLoad(b, tuple(i)) for b, i in places]
        made = self.reducer(held, values)
        return store_all(places, made)


def store_all(places: Sequence[tuple[Buffer, Sequence[PrimExpr]]], values: Sequence[PrimExpr]) -> Stmt:
    """Store values that may all depend on the previous contents of the elements."""
    if len(places) == 1:
        return BufferStore(places[0][0], values[0], places[0][1])
    parts = [Var(f"v_{b.name}", b.dtype) for b, _ in places]
    body = seq(*(BufferStore(b, v, i) for (b, i), v in zip(places, parts, strict=True)))
    for v, value in reversed(list(zip(parts, values, strict=True))):
        body = LetStmt(v, value, body)
    return body


def guarded_step(block: Block) -> tuple[PrimExpr, Stmt]:
    """The condition around a step of a reduction, as rfactor writes it, and the step."""
    body = block.body
    if isinstance(body, IfThenElse) and body.else_case is None:
        return body.condition, body.then_case
    return const(True, "bool"), body


def combination_of(block: Block) -> Combination:
    """The combiner of a block and its operands in each step; raises NotACombination if it has none.

    C[i] = C[i] + A[i, k] * B[k]      ->      x + y, y = A[i, k] * B[k], from 0
    """
    stores = _stores(block.body)
    if stores is None:
        raise NotACombination("does more than combine one value")
    if block.init is None:
        return _without_init(stores)
    starts = _stores(block.init)
    if starts is None or len(starts) != len(stores):
        raise NotACombination("has an init that does more than store one value")
    indices = stores[0].indices
    if any(not _all_equal(s.indices, indices) for s in (*stores, *starts)):
        raise NotACombination("writes other elements in a step than in its init")
    buffers = tuple(s.buffer for s in stores)
    start = {s.buffer: s.value for s in starts}
    if set(start) != set(buffers) or len(start) != len(buffers):
        raise NotACombination("does not initialize every buffer that it reduces into")
    inits = tuple(start[b] for b in buffers)
    lhs, steps = _steps(stores)
    found = _simple(steps, lhs) or _general(steps, lhs, inits)
    if found is None:
        raise _not_known(stores)
    reducer, values = found
    identity = [e if e is not None else i for e, i in zip(_identities(reducer), inits, strict=True)]
    made = CommReducer(reducer.lhs, reducer.rhs, reducer.result, tuple(identity))
    return Combination(buffers, tuple(indices), made, tuple(values), inits)


def _without_init(stores: list[BufferStore]) -> Combination:
    """The same for a block whose init is elsewhere: its initial value is the identity of the operator."""
    lhs, steps = _steps(stores)
    found = _simple(steps, lhs)
    if found is None or any(not _all_equal(s.indices, stores[0].indices) for s in stores):
        raise _not_known(stores)
    reducer, values = found
    known: dict[type, int | bool] = {Add: 0, Mul: 1, And: True, Or: False}
    start: list[PrimExpr] = []
    for e in reducer.result:
        if isinstance(e, (Max, Min)):
            start.append((min_value if isinstance(e, Max) else max_value)(e.dtype))
        else:
            start.append(const(known[e.__class__], e.dtype))
    made = CommReducer(reducer.lhs, reducer.rhs, reducer.result, tuple(start))
    return Combination(tuple(s.buffer for s in stores), tuple(stores[0].indices), made, tuple(values), ())


def steps_commute(block: Block) -> bool:
    """Whether the steps of a block give the same result in any order: `C[i] += A[i, k]` does, `C[i] = C[i]*2 + A[i, k]`
    does not, nor does an argmax that keeps the first of equal values.

    A block that a tensor intrinsic implements is a reduction if it has reduction iterators.
    """
    if block.annotations.get(ANY_ORDER):
        return True
    written = {w.buffer for w in block.writes}
    return _commutes(block.body, written)


def _commutes(body: Stmt, written: set[Buffer]) -> bool:
    if isinstance(body, BlockRealize):
        here = {w.buffer for w in body.block.writes} & written
        return not here or (bool(body.block.annotations.get(ANY_ORDER)) or _commutes(body.block.body, here))
    if isinstance(body, For):
        return _commutes(body.body, written)
    if isinstance(body, IfThenElse) and body.else_case is None:
        return not _loads(body.condition, written) and _commutes(body.then_case, written)
    if not any(isinstance(m, BufferStore) and m.buffer in written for m in pre_order(body)):
        return not any(isinstance(m, BlockRealize) for m in pre_order(body)) or all(
            _commutes(s, written) for s in stmt_list(body)
        )
    if any(isinstance(m, BlockRealize) for m in pre_order(body)):
        return isinstance(body, SeqStmt) and all(_commutes(s, written) for s in body.seq)
    stores = _stores(body)
    if stores is None or any(not _all_equal(s.indices, stores[0].indices) for s in stores):
        return False
    if any(_loads(i, written) for i in stores[0].indices):
        return False
    try:
        lhs, steps = _steps(stores)
    except NotACombination:
        return False
    return _simple(steps, lhs) is not None or _any_order(steps, lhs)


def _loads(e: PrimExpr, buffers: set[Buffer]) -> bool:
    return any(isinstance(m, BufferLoad) and m.buffer in buffers for m in pre_order(e))


def _any_order(steps: list[PrimExpr], lhs: tuple[Var, ...]) -> bool:
    """Whether two steps commute, tested on numbers of which many are equal."""
    given = _given(steps, lhs)
    stand_ins = [Var(f"y{j}", e.dtype) for j, e in enumerate(given)]
    results = [_swap(s, given, stand_ins) for s in steps]
    rng = random.Random(0)

    def step(held: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
        at = dict(zip((*lhs, *stand_ins), (*held, *values), strict=True))
        return tuple(_value(e, at) for e in results)

    try:
        for _ in range(200):
            start = tuple(_sample(x, rng, 2) for x in lhs)
            a, b = (tuple(_sample(y, rng, 2) for y in stand_ins) for _ in range(2))
            if step(step(start, a), b) != step(step(start, b), a):
                return False
    except (KeyError, ZeroDivisionError, OverflowError):
        return False
    return True


def _steps(stores: list[BufferStore]) -> tuple[tuple[Var, ...], list[PrimExpr]]:
    """The stored values, with variables for the previous contents of the elements."""
    lhs = tuple(Var(f"x{j}" if len(stores) > 1 else "x", s.buffer.dtype) for j, s in enumerate(stores))
    own = _Own({s.buffer: (tuple(s.indices), x) for s, x in zip(stores, lhs, strict=True)})
    steps = [own.visit(s.value) for s in stores]
    if own.elsewhere:
        raise _not_known(stores)
    return lhs, steps


def _not_known(stores: list[BufferStore]) -> NotACombination:
    shown = " and ".join(f"`{s.value}`" for s in stores)
    return NotACombination(
        f"combines by {shown}, which is not a sum, product, min, max, all or "
        "any of the element it writes and a value: its steps may not be regrouped"
    )


def _all_equal(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return len(a) == len(b) and all(map(structural_equal, a, b))


def _stores(body: Stmt) -> list[BufferStore] | None:
    """The stores of a body with let bindings substituted; None if the body has other statements."""
    table: dict[Any, Any] = {}
    while isinstance(body, LetStmt):
        table[body.var] = substitute(body.value, table)
        body = body.body
    out = []
    for s in stmt_list(body):
        if not isinstance(s, BufferStore):
            return None
        out.append(BufferStore(s.buffer, substitute(s.value, table), s.indices))
    if len(out) > 1 and not all(isinstance(s.value, Var) for s in stmt_list(body)):  # type: ignore[attr-defined]
        # Each store sees the effect of the previous one.
        written: set[Buffer] = set()
        for s in out:
            if any(isinstance(m, BufferLoad) and m.buffer in written for m in pre_order(s.value)):
                return None
            written.add(s.buffer)
    return out


class _Own(Mutator):
    """Replaces loads of the elements that a block writes by variables."""

    def __init__(self, places: Mapping[Buffer, tuple[tuple[PrimExpr, ...], Var]]) -> None:
        self.places, self.elsewhere = places, False

    def visit_BufferLoad(self, n: BufferLoad) -> PrimExpr:
        found = self.places.get(n.buffer)
        if found is None:
            return n.map_children(self.visit)
        if _all_equal(n.indices, found[0]):
            return found[1]
        self.elsewhere = True
        return n


Found = tuple[CommReducer, list[PrimExpr]]


def _simple(steps: list[PrimExpr], lhs: tuple[Var, ...]) -> Found | None:
    """Each value combined on its own by an associative operator."""
    values, results = [], []
    rhs = tuple(Var(x.name.replace("x", "y"), x.dtype) for x in lhs)
    held = set(lhs)
    for step, x, y in zip(steps, lhs, rhs, strict=True):
        if not isinstance(step, _COMBINERS):
            return None
        for own, rest in ((step.a, step.b), (step.b, step.a)):
            if own is x and not any(m in held for m in pre_order(rest) if isinstance(m, Var)):
                values.append(rest)
                pair = (x, y) if own is step.a else (y, x)
                results.append(BINARY[step.__class__](*pair))
                break
        else:
            return None
    return CommReducer(lhs, rhs, tuple(results), tuple(rhs)), values


def _identities(r: CommReducer) -> list[PrimExpr | None]:
    """The identity of the operator for each value, even where the init is not the identity: a sum that starts at
    another value must count it only once."""
    out: list[PrimExpr | None] = []
    for e in r.result:
        own = isinstance(e, (Add, Mul)) and {e.a, e.b} <= {*r.lhs, *r.rhs}
        out.append(const(0 if isinstance(e, Add) else 1, e.dtype) if own else None)
    return out


# ---------------------------------------------------------------------------- any other reducer
def _general(steps: list[PrimExpr], lhs: tuple[Var, ...], inits: Sequence[PrimExpr]) -> Found | None:
    """Any other reducer, recognized by testing its laws on numbers: the initial value is an identity, and the operation
    is associative."""
    given = _given(steps, lhs)
    if len(given) != len(lhs):
        return None
    stand_ins = [Var(f"y{j}", e.dtype) for j, e in enumerate(given)]
    results = [_swap(s, given, stand_ins) for s in steps]
    rng = random.Random(0)
    try:
        order = _order(results, lhs, stand_ins, inits, rng)
        if order is None:
            return None
        rhs, values = tuple(stand_ins[j] for j in order), [given[j] for j in order]
        if not _may_be_regrouped(results, lhs, rhs, rng):
            return None
    except (KeyError, ZeroDivisionError, OverflowError):
        return None
    return CommReducer(lhs, rhs, tuple(results), tuple(rhs)), values


def _given(steps: list[PrimExpr], lhs: tuple[Var, ...]) -> list[PrimExpr]:
    """The operands that steps combine with the accumulators."""
    given: list[PrimExpr] = []
    for step in steps:
        _free_parts(step, set(lhs), given)
    # A predicate of a value, such as `x != x`, is not an operand.
    return [e for e in given if not (isinstance(e, _SAYING) and any(_within(m, e) for m in given))]


def _free_parts(e: PrimExpr, own: set[Var], out: list[PrimExpr]) -> None:
    """The largest subexpressions that do not use the accumulators, each once, constants excluded."""
    stack: list[Any] = [e]
    while stack:
        n = stack.pop()
        if not isinstance(n, PrimExpr) or isinstance(n, (IntImm, FloatImm)):
            continue
        if any(m in own for m in pre_order(n) if isinstance(m, Var)):
            stack.extend(reversed(n.children()))
        elif not any(structural_equal(n, m) for m in out):
            out.append(n)


def _within(part: PrimExpr, whole: PrimExpr) -> bool:
    """Whether an expression is a subexpression of another one."""
    return any(m is not whole and structural_equal(m, part) for m in pre_order(whole))


def _swap(e: PrimExpr, given: list[PrimExpr], stand_ins: list[Var]) -> PrimExpr:
    for g, v in zip(given, stand_ins, strict=True):
        if structural_equal(e, g):
            return v
    return e.map_children(lambda c: _swap(c, given, stand_ins) if isinstance(c, PrimExpr) else c)


def _order(
    results: list[PrimExpr],
    lhs: tuple[Var, ...],
    rhs: list[Var],
    inits: Sequence[PrimExpr],
    rng: random.Random,
) -> list[int] | None:
    """The operand that belongs to each accumulator: combined with the initial value, it is unchanged."""
    start = {x: _value(i, {}) for x, i in zip(lhs, inits, strict=True)}
    for order in itertools.permutations(range(len(rhs))):
        if any(rhs[j].dtype is not x.dtype for j, x in zip(order, lhs, strict=True)):
            continue
        for _ in range(12):
            at = start | {y: _sample(y, rng) for y in rhs}
            if any(_value(e, at) != at[rhs[j]] for e, j in zip(results, order, strict=True)):
                break
        else:
            return list(order)
    return None


def _may_be_regrouped(
    results: list[PrimExpr], lhs: tuple[Var, ...], rhs: tuple[Var, ...], rng: random.Random
) -> bool:
    def combine(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        at = dict(zip((*lhs, *rhs), (*a, *b), strict=True))
        return tuple(_value(e, at) for e in results)

    for _ in range(40):
        a, b, c = (tuple(_sample(x, rng) for x in lhs) for _ in range(3))
        if combine(combine(a, b), c) != combine(a, combine(b, c)):
            return False
        # Of two candidates with equal keys an argmax may keep either: these are not swapped here.
        if all(x != y for x, y in zip(a, b, strict=True)) and combine(a, b) != combine(b, a):
            return False
    return True


def _sample(v: Var, rng: random.Random, most: int = 6) -> Any:
    if v.dtype.is_bool:
        return bool(rng.randrange(2))
    return rng.randrange(0 if v.dtype.is_uint else -most, most + 1)


ON_NUMBERS: dict[type, Callable[[Any, Any], Any]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    Min: min,
    Max: max,
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
    And: lambda a, b: a and b,
    Or: lambda a, b: a or b,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "if_then_else": lambda c, t, f: t if c else f,
    "likely": lambda c: c,
    "fabs": abs,
}


def _value(e: PrimExpr, at: Mapping[Var, Any]) -> Any:
    """An expression evaluated at numbers; KeyError if it has an operator that is not supported here."""
    if isinstance(e, Var):
        return at[e]
    if isinstance(e, (IntImm, FloatImm)):
        return e.value
    if isinstance(e, Select):
        return _value(e.true_value if _value(e.condition, at) else e.false_value, at)
    if isinstance(e, Not):
        return not _value(e.a, at)
    if isinstance(e, Cast):
        return _value(e.value, at)
    if isinstance(e, Call):
        return _CALLS[getattr(e.op, "short_name", "")](*[_value(a, at) for a in e.args])
    return ON_NUMBERS[e.__class__](_value(e.a, at), _value(e.b, at))  # type: ignore[attr-defined]
