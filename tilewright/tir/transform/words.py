"""Words of several numbers (`pack_word`, `dp4a`, `dp2a`) as loads, shifts and the instructions of the target."""

from __future__ import annotations

from collections.abc import Iterable

from ...arith import Analyzer
from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import (
    LT,
    Add,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Let,
    Mul,
    PrimExpr,
    Ramp,
    Shuffle,
    StringImm,
    Var,
    const,
    const_value,
)
from ...ir.op import Op
from ...ir.words import PER_WORD, DotProduct, element_of_word

__all__ = ["accumulated", "dot", "packed"]

_DOTS = tuple(Op.get(f"tir.{name}") for name in PER_WORD)
_LLVM = "tir.call_llvm_pure_intrin"
_LONGEST = 512  # bits of the neighbours that are loaded at once


def accumulated(n: Add) -> PrimExpr:
    """A sum with a product of words that starts at 0, as one that starts at the other operand."""
    for dot, rest in ((n.b, n.a), (n.a, n.b)):
        if isinstance(dot, Call) and dot.op in _DOTS and _is_zero(dot.args[2]):
            return dot.replace(args=(*dot.args[:2], rest))
    return n


def _is_zero(e: PrimExpr) -> bool:
    return const_value(e.value if isinstance(e, Broadcast) else e) == 0


# ---------------------------------------------------------------------------- products
def dot(n: Call, instructions: Iterable[DotProduct]) -> PrimExpr:
    """A product of words by an instruction for vectors as long as it, else by shifts and multiplications."""
    a, b, _ = n.args
    if a.dtype.bits == 32:
        x, y = element_of_word(n, a), element_of_word(n, b)
        for d in instructions:
            if d.lanes == n.dtype.lanes and d.sums == n.dtype.element:
                if (d.a, d.b) == (x, y):
                    return _instruction(d, n, a, b)
                if (d.b, d.a) == (x, y):
                    return _instruction(d, n, b, a)
    if n.dtype.lanes > 1:
        return _by_shifts(n)
    return _by_element(n)


def _instruction(d: DotProduct, n: Call, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    lanes, c = n.dtype.lanes, n.args[2]

    def operand(word: PrimExpr, kind: str) -> PrimExpr:
        made = (
            DataType("int32").with_lanes(lanes) if d.words else DataType(kind).with_lanes(lanes * d.per_word)
        )
        return ops.reinterpret(made, word)

    given = (operand(a, d.a), operand(b, d.b))
    if d.adds:
        return Call(n.dtype, _LLVM, (StringImm(d.name), c, *given))
    return Add(c, Call(n.dtype, _LLVM, (StringImm(d.name), *given)))


def _by_shifts(n: Call) -> PrimExpr:
    out = n.args[2]
    count = PER_WORD[n.op.short_name]
    names = [Var(name, e.dtype) for name, e in zip("ab", n.args, strict=False)]
    for i in range(count):
        x, y = (_number(v, i, element_of_word(n, v), n.dtype) for v in names)
        out = Add(out, Mul(x, y))
    for var, value in reversed(list(zip(names, n.args, strict=False))):
        out = Let(var, value, out)
    return out


def _number(word: PrimExpr, i: int, kind: DataType, wanted: DataType) -> PrimExpr:
    """Number i of each word of a vector."""
    whole = DataType("uint32" if kind.is_uint or kind.is_float else "int32").with_lanes(word.dtype.lanes)
    bits, word = kind.bits, ops.reinterpret(whole, word)

    def by(amount: int) -> PrimExpr:
        return Broadcast(const(amount, whole.element), whole.lanes)

    up = word if i == 32 // bits - 1 else ops.shift_left(word, by(32 - bits * (i + 1)))
    if kind.is_float:  # a bfloat16 is the upper half of a float32
        high = ops.bitwise_and(up, Broadcast(const(0xFFFF0000, whole.element), whole.lanes))
        return ops.reinterpret(wanted, high)
    down = ops.shift_right(up, by(32 - bits))
    return down if down.dtype is wanted else Cast(wanted, down)


def _by_element(n: Call) -> PrimExpr:
    *given, out = n.args
    count = PER_WORD[n.op.short_name]
    bound: list[tuple[Var, PrimExpr]] = []
    for name, e in zip("ab", given, strict=True):
        if e.dtype.bits == 32:
            e = Call(element_of_word(n, e).with_lanes(count), "tir.reinterpret", (e,))
        bound.append((Var(name, e.dtype), e))
    for i in range(count):
        x, y = (Cast(n.dtype, Shuffle((v,), (const(i),))) for v, _ in bound)
        out = Add(out, Mul(x, y))
    for var, value in reversed(bound):
        out = Let(var, value, out)
    return out


# ---------------------------------------------------------------------------- packing
def packed(n: Call, ana: Analyzer | None) -> PrimExpr:
    """A word from its numbers: put together by shifts; with an analyzer, loaded at once where they are neighbours in
    memory."""
    whole = None if ana is None else _loaded(n, ana)
    if whole is not None:
        return whole
    same = [a.value for a in n.args if isinstance(a, Broadcast)]
    if len(same) == len(n.args):
        return Broadcast(packed(n.replace(dtype=n.dtype.element, args=same), ana), n.dtype.lanes)
    word = DataType("uint32").with_lanes(n.dtype.lanes)
    out: PrimExpr | None = None
    for i, a in enumerate(n.args):
        bits = a.dtype.bits
        part: PrimExpr = Cast(word, ops.reinterpret(DataType(f"uint{bits}").with_lanes(a.dtype.lanes), a))
        if i:
            amount = const(i * bits, word.element)
            part = ops.shift_left(part, Broadcast(amount, word.lanes) if word.lanes > 1 else amount)
        out = part if out is None else ops.bitwise_or(out, part)
    assert out is not None
    return ops.reinterpret(n.dtype, out)


def _loaded(n: Call, ana: Analyzer) -> PrimExpr | None:
    """The words from one or two loads, if their numbers are neighbours in memory: as they are, or each word from a
    place a `step` after the one before. The last numbers of a word may be zeros. Of words under a predicate, only those
    of the first lanes, where it holds, are loaded."""
    numbers = list(n.args)
    while len(numbers) > 1 and _is_zero(numbers[-1]):
        numbers.pop()
    first, count, lanes = numbers[0], len(n.args), n.dtype.lanes
    if not isinstance(first, BufferLoad) or len(first.indices) != 1:
        return None
    active = _active_lanes(first)
    if active is None:
        return None
    starts, steps = [], set()
    for a in numbers:
        if not isinstance(a, BufferLoad) or a.buffer is not first.buffer or _active_lanes(a) != active:
            return None
        (index,) = a.indices
        if lanes > 1:
            if not isinstance(index, Ramp):
                return None
            steps.add(const_value(index.stride))
            index = index.base
        starts.append(index)
    base = starts[0]
    if any(const_value(ana.simplify(ops.sub(s, base))) != i for i, s in enumerate(starts)):
        return None
    step = int(steps.pop() or 0) if lanes > 1 else count
    if step == count and len(numbers) == count and active == lanes:
        wide = Ramp(base, const(1, base.dtype), count * lanes)
        return ops.reinterpret(n.dtype, BufferLoad(first.buffer, (wide,)))
    span = step * (active - 1) + len(numbers)
    if lanes == 1 or steps or step < 1 or span * first.dtype.bits > _LONGEST:
        return None
    return _overlapping(n, first, base, step, active, len(numbers))


def _active_lanes(n: BufferLoad) -> int | None:
    """How many lanes, the first ones, a load has under its predicate; None if these are not known."""
    if n.predicate is None:
        return n.dtype.lanes
    a, b = (n.predicate.a, n.predicate.b) if isinstance(n.predicate, LT) else (None, None)
    if not isinstance(a, Ramp) or not isinstance(b, Broadcast):
        return None
    start, step, limit = const_value(a.base), const_value(a.stride), const_value(b.value)
    if start is None or step != 1 or limit is None or not start < limit:
        return None
    return int(min(limit - start, n.dtype.lanes))


def _overlapping(n: Call, first: BufferLoad, base: PrimExpr, step: int, active: int, used: int) -> PrimExpr:
    """Words of which each begins `step` numbers after the one before: all numbers of the `active` lanes are loaded by
    two vectors of a power of two each, and chosen from these."""
    lanes, count, bits = n.dtype.lanes, len(n.args), first.dtype.bits
    span = step * (active - 1) + used
    half = 1 << (span.bit_length() - 1)
    vectors = [
        BufferLoad(first.buffer, (Ramp(ops.add(base, const(at, base.dtype)), const(1, base.dtype), half),))
        for at in sorted({0, span - half})
    ]
    places = [step * min(i, active - 1) + min(j, used - 1) for i in range(lanes) for j in range(count)]
    order = [const(p if p < half else p - span + 2 * half, "int32") for p in places]
    made = ops.reinterpret(n.dtype, Shuffle(tuple(vectors), tuple(order)))
    if used == count:
        return made
    kept = Broadcast(const((1 << used * bits) - 1, n.dtype.element), lanes)
    return ops.bitwise_and(made, kept)
