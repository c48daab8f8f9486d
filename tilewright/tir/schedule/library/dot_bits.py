"""Dot products of bytes with integers of few bits: `pack_dot_bits`.

Of the integers of 2, 4 or 8 bits in a word, every part of a byte is an operand of a dot product once it is shifted and
masked: a word of eight integers of 4 bits

    bits   0-3   4-7   8-11  12-15  16-19  20-23  24-27  28-31
    step    0     4     1      5      2      6      3      7

gives steps 0 to 3 by a mask, and steps 4 to 7 by a shift and a mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....arith import Analyzer
from ....ir.dtype import DataType
from ....ir.expr import (
    Add,
    BufferLoad,
    Cast,
    IterVar,
    Mul,
    PrimExpr,
    Range,
    Var,
    const,
    const_value,
)
from ....ir.functor import substitute, vars_used
from ....ir.ops import add, bitwise_and, cast, floordiv, floormod, is_zero, mul, shift_right, sub
from ....ir.stmt import Block, BufferStore, Stmt
from ....ir.words import dot_of_words, pack_word
from ...analysis.combiner import NotACombination, combination_of
from ..blocks import refresh_regions
from ..nests import trivial_nest
from ..primitive import BlockRV, LoopRV, primitive, refuse
from .scales import packed_words, place_before

if TYPE_CHECKING:
    from ..schedule import Schedule

__all__ = ["pack_dot_bits"]

_STEPS = 4  # of one dot product
_BYTE = 8


@dataclass(frozen=True, slots=True)
class _Found:
    data: BufferLoad  # signed bytes, neighbours along the steps
    value: PrimExpr  # the integers of few bits
    bits: int

    @property
    def per_byte(self) -> int:
        return _BYTE // self.bits


@primitive
def pack_dot_bits(sch: Schedule, block: BlockRV | str, loop: LoopRV) -> BlockRV:
    """Multiply bytes by integers of few bits, four at a time: the latter are packed into words of 32 bits.

    for j in range(32):                        for w in range(4):
        P[0] += int32(A[j]) * int32(q(j))  ->      words[w] = q(8 * w) | q(8 * w + 4) << 4 | q(8 * w + 1) << 8 | …
                                               for g in range(8):
                                                   P[0] += dp4a(the word of A[4 * g : 4 * g + 4],
                                                                words[g // 2] >> g % 2 * 4 & 0x0f0f0f0f)

    A has signed bytes, and q is not negative; its bits follow from its expression. Returns the block of the words.
    """
    me = sch.realize(block)
    nest = trivial_nest(sch, me, "pack_dot_bits")
    chosen, name = sch.loop(loop).loop_var, me.block.name_hint
    step = next((iv for iv, value in me.bindings if value is chosen and iv.is_reduction), None)
    if step is None:
        refuse(f"loop `{chosen.name}` is no step of the sum in block {name}", at=me)
    found = _found(me.block, step)
    if isinstance(found, str):
        refuse(f"block {name} {found}", at=me)
    per, size = _STEPS * found.per_byte, const_value(step.dom.extent)
    if size is None or not is_zero(step.dom.min) or size % per:
        refuse(
            f"loop `{chosen.name}` has {step.dom.extent} steps, and a word holds {per} integers of {found.bits} bits",
            at=me,
            hint="its extent must be a multiple of that",
        )
    places = [_BYTE * (i % _STEPS) + found.bits * (i // _STEPS) for i in range(per)]
    nested, words, used = packed_words(me.block, found.value, step, places, DataType("uint32"))
    count = const(int(size) // _STEPS, step.var.dtype)
    held = BufferLoad(
        words, (*(sub(iv.var, iv.dom.min) for iv in used), floordiv(step.var, _int(found.per_byte, step)))
    )
    body = _body(me.block, found, step, held)
    made = IterVar(Range.from_min_extent(const(0, step.var.dtype), count), step.var, step.iter_type)
    iters = tuple(made if iv is step else iv for iv in me.block.iter_vars)
    rebuilt: Stmt = me.replace(block=refresh_regions(me.block.replace(iter_vars=iters, body=body)))
    for x in reversed(nest):
        rebuilt = x.replace(extent=count if x.loop_var is chosen else x.extent, body=rebuilt)
    place_before(sch, nest[0], [nested[0]], rebuilt, [words])
    return BlockRV(nested[1].key, nested[1].name_hint)


def _int(value: int, step: IterVar) -> PrimExpr:
    return const(value, step.var.dtype)


def _body(block: Block, found: _Found, step: IterVar, word: PrimExpr) -> BufferStore:
    """The sum of a step: a word of bytes times a part of a word of few bits."""
    store = block.body
    assert isinstance(store, BufferStore)
    *lead, last = found.data.indices
    start = substitute(last, {step.var: mul(step.var, _int(_STEPS, step))})
    data = pack_word(
        *(BufferLoad(found.data.buffer, (*lead, add(start, _int(i, step)))) for i in range(_STEPS))
    )
    if found.per_byte > 1:
        place = cast(word.dtype, mul(floormod(step.var, _int(found.per_byte, step)), _int(found.bits, step)))
        part = sum(((1 << found.bits) - 1) << _BYTE * i for i in range(_STEPS))
        word = bitwise_and(shift_right(word, place), const(part, word.dtype))
    value = dot_of_words(_STEPS, data, word, const(0, store.value.dtype))
    return store.replace(value=add(BufferLoad(store.buffer, store.indices), value))


def _found(block: Block, step: IterVar) -> _Found | str:
    """The factors of the sum that a block is, or why these cannot be packed."""
    try:
        held = combination_of(block)
    except NotACombination as why:
        return str(why)
    (value, *more) = held.values
    if more or not isinstance(held.reducer.result[0], Add) or str(value.dtype) != "int32":
        return "is not a sum of int32"
    sides = [e.value for e in (value.a, value.b) if isinstance(e, Cast)] if isinstance(value, Mul) else []
    for data, few in (sides, sides[::-1]) if len(sides) == 2 else ():
        if isinstance(data, BufferLoad) and str(data.dtype) == "int8" and _contiguous(data, step.var):
            ana = Analyzer()
            ana.bind_ranges({iv.var: iv.dom for iv in block.iter_vars})
            bound = ana.const_int_bound(few)
            bits = next((b for b in (2, 4, 8) if bound.min_value >= 0 and bound.max_value < 1 << b), 0)
            if bits:
                return _Found(data, few, bits)
            return (
                f"has integers from {bound.min_value} to {bound.max_value}, which are no bytes without a sign"
            )
    return "does not multiply signed bytes, neighbours in memory, by other integers of 8 bits or fewer"


def _contiguous(load: BufferLoad, v: Var) -> bool:
    *lead, last = load.indices
    if any(v in vars_used(i) for i in lead):
        return False
    moved = Analyzer().simplify(sub(substitute(last, {v: add(v, const(1, v.dtype))}), last))
    return const_value(moved) == 1
