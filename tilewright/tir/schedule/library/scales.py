"""Sums of products with quantized weights: `split_scales` and `pack_bits`.

Weights of few bits have a scale and a zero point for each block of neighbours along the sum. Both leave the sum of a
block, which multiplies by small integers:

    Σ x · (q - z) · s     =     Σ over blocks  s · (Σ x · q  -  z · Σ x)

The integers of several steps are packed into a word of 32 bits, from which the sum takes them in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....arith import Analyzer
from ....ir.buffer import Buffer, decl_buffer
from ....ir.dtype import DataType
from ....ir.expr import (
    Add,
    BufferLoad,
    Cast,
    FloorDiv,
    IntImm,
    IterVar,
    Mul,
    PrimExpr,
    Range,
    Sub,
    Var,
    const,
    const_value,
)
from ....ir.functor import pre_order, rewrite, substitute, vars_used
from ....ir.ops import (
    add,
    bitwise_and,
    bitwise_or,
    cast,
    floordiv,
    floormod,
    is_zero,
    mul,
    shift_left,
    shift_right,
    sub,
)
from ....ir.stmt import Block, BlockRealize, BufferStore, Stmt
from ...analysis.combiner import Combination, NotACombination, combination_of
from ..blocks import check_dominant, enclosing_block, insert_beside, refresh_regions
from ..nests import block_nest, trivial_nest
from ..primitive import BlockRV, LoopRV, primitive, refuse

if TYPE_CHECKING:
    from ..schedule import Schedule

__all__ = [
    "FewBits",
    "ScaledSum",
    "few_bits_of",
    "pack_bits",
    "packed_words",
    "place_before",
    "scaled_sum_of",
    "split_scales",
]

_WORD = 32  # bits of a packed word
_LONGEST = 1 << 15  # the most products of two bytes whose sum surely fits into 32 bits


# ---------------------------------------------------------------------------- scales
@dataclass(frozen=True, slots=True)
class ScaledSum:
    """C[...] += x · (q - zero) · scale, where `zero` and `scale` are the same for all steps of a block of `size`.

    The expressions are those of a step, by the number of its block, for which the iterator stands, and by its number
    in the block, `inside`.
    """

    sum: Combination
    size: int
    inside: Var
    data: PrimExpr  # x, the product of all factors that are no scales
    quantized: PrimExpr  # q
    zero: PrimExpr | None
    scale: PrimExpr

    @property
    def integers(self) -> tuple[PrimExpr, PrimExpr] | None:
        """The data and the quantized factor as the integers of 8 bits that they are, if both are; sums of a block of
        products of such fit into 32 bits."""
        found = [e.value for e in (self.data, self.quantized) if _is_integer(e)]  # type: ignore[attr-defined]
        narrow = len(found) == 2 and all(e.dtype.bits <= 8 for e in found)
        return (found[0], found[1]) if narrow and self.size <= _LONGEST else None


def block_sizes(block: Block, step: IterVar) -> list[int]:
    """The sizes of blocks of steps that a sum may have scales for, the largest first: those by which it divides the
    iterator, and all steps together."""
    whole = int(const_value(step.dom.extent) or 0)
    found = {whole}
    for m in pre_order(block.body):
        if isinstance(m, FloorDiv) and m.a is step.var and isinstance(m.b, IntImm):
            found.add(int(m.b.value))
    return sorted((n for n in found if n > 1 and whole % n == 0), reverse=True)


def scaled_sum_of(block: Block, step: IterVar, size: int) -> ScaledSum | str:
    """The sum of scaled products that a block is, with blocks of `size` steps, or why it is none."""
    try:
        held = combination_of(block)
    except NotACombination as why:
        return str(why)
    (value, *more) = held.values
    if more or not isinstance(held.reducer.result[0], Add) or not held.start or not is_zero(held.start[0]):
        return "is not a sum"
    whole = const_value(step.dom.extent)
    if whole is None or not is_zero(step.dom.min) or whole % size:
        return f"does not have a multiple of {size} steps"
    if any(iv.is_reduction and iv is not step and const_value(iv.dom.extent) != 1 for iv in block.iter_vars):
        return "sums over several axes"
    inside, ana = Var(f"{step.var.name}_in", step.var.dtype), Analyzer()
    ana.bind_ranges({iv.var: iv.dom for iv in block.iter_vars if iv is not step})
    ana.bind_loop(step.var, const(0, step.var.dtype), const(whole // size, step.var.dtype))
    ana.bind_loop(inside, const(0, step.var.dtype), const(size, step.var.dtype))
    at = add(mul(step.var, const(size, step.var.dtype)), inside)
    factors = [_indexed(substitute(f, {step.var: at}), ana) for f in _factors(value)]
    scales = [f for f in factors if inside not in vars_used(f)]
    others = [f for f in factors if inside in vars_used(f)]
    moved = [f for f in others if isinstance(f, Sub) and inside not in vars_used(f.b)]
    if not scales and not moved:
        return f"has neither a scale nor a zero point for each {size} steps"
    if len(moved) > 1:
        return "has zero points of several factors"
    quantized: list[PrimExpr] = [*moved] or [f for f in others if _is_integer(f)]
    if len(quantized) == 2:  # the data is quantized as well: the weights have fewer bits, or come last
        quantized = [min(reversed(quantized), key=lambda f: _values(f, ana))]
    if len(quantized) != 1:
        return "does not multiply by one quantized factor"
    rest = [f for f in others if f is not quantized[0]]
    if not rest:
        return "does not multiply two elements of each step"
    left, zero = (moved[0].a, moved[0].b) if moved else (quantized[0], None)
    return ScaledSum(
        held, size, inside, _product(rest), left, zero, _product(scales) if scales else const(1, value.dtype)
    )


def _factors(e: PrimExpr) -> list[PrimExpr]:
    return [*_factors(e.a), *_factors(e.b)] if isinstance(e, Mul) else [e]


def _product(factors: Sequence[PrimExpr]) -> PrimExpr:
    made = factors[0]
    for f in factors[1:]:
        made = mul(made, f)
    return made


def _is_integer(e: PrimExpr) -> bool:
    return isinstance(e, Cast) and e.dtype.is_float and not e.value.dtype.is_float


def _values(e: PrimExpr, ana: Analyzer) -> int:
    """How many values the integer in a conversion may have."""
    assert isinstance(e, Cast)
    bound = ana.const_int_bound(e.value)
    return int(bound.max_value) - int(bound.min_value)


def _indexed(e: PrimExpr, ana: Analyzer) -> PrimExpr:
    """An expression with its indices in normal form."""

    def load(n: BufferLoad) -> PrimExpr:
        return BufferLoad(n.buffer, tuple(ana.simplify(i) for i in n.indices))

    return rewrite(e, {BufferLoad: load})  # type: ignore[return-value]


@primitive
def split_scales(
    sch: Schedule, block: BlockRV | str, loop: LoopRV, size: int, integers: bool = False
) -> list[BlockRV]:
    """Take the scales and zero points of a sum out of the sums of blocks of `size` steps.

    for k in range(64):                                     for b, j in grid(2, 32):
        C[0] += A[k] * ((Q[k] - Z[k // 32]) * S[k // 32])       P[b] += A[32 * b + j] * Q[32 * b + j]
                                                     ->     for b, j in grid(2, 32):
                                                                A_sum[b] += A[32 * b + j]
                                                            for b in range(2):
                                                                C[0] += S[b] * (P[b] - Z[b] * A_sum[b])

    `loop` is the loop of the sum, and all its factors are in `block`. Returns the blocks of P, of A_sum if there are
    zero points, and of C. The sum is added up in another order. With `integers`, A has integers of 8 bits too, and the
    sums of blocks are int32.
    """
    me = sch.realize(block)
    check_dominant(sch, me)
    nest = trivial_nest(sch, me, "split_scales")
    chosen = sch.loop(loop).loop_var
    step = next((iv for iv, value in me.bindings if value is chosen and iv.is_reduction), None)
    if step is None:
        refuse(f"loop `{chosen.name}` is no step of the sum in block {me.block.name_hint}", at=me)
    found = scaled_sum_of(me.block, step, size)
    if isinstance(found, str):
        refuse(f"block {me.block.name_hint} {found}", at=me)
    if integers and found.integers is None:
        refuse(f"block {me.block.name_hint} does not multiply two integers of 8 bits", at=me)
    made = _Blocks(me, found, step, integers)
    before = made.before()
    rebuilt: Stmt = made.main
    for x in reversed(nest):
        rebuilt = x.replace(extent=made.count if x.loop_var is chosen else x.extent, body=rebuilt)
    place_before(sch, nest[0], [nested for nested, _ in before], rebuilt, made.buffers)
    return [BlockRV(b.key, b.name_hint) for b in (*(b for _, b in before), made.main.block)]


def place_before(
    sch: Schedule, old: Stmt, before: Sequence[Stmt], rebuilt: Stmt, buffers: Sequence[Buffer]
) -> None:
    """Put a statement in the place of an old one, with others before it, and the buffers between them."""
    for nested in before:
        insert_beside(sch, old, nested, before=True)
    sch.state.replace(old, rebuilt)
    scope = enclosing_block(sch, rebuilt)
    assert scope is not None
    sch.state.replace(scope, scope.replace(alloc_buffers=(*scope.alloc_buffers, *buffers)))


class _Blocks:
    """Writes the sums of the blocks of one sum."""

    def __init__(self, me: BlockRealize, found: ScaledSum, step: IterVar, integers: bool) -> None:
        self.me, self.found, self.step = me, found, step
        self.count = const(int(const_value(step.dom.extent) or 0) // found.size, step.var.dtype)
        self.out = found.sum.buffers[0]
        self.kind = DataType("int32") if integers else self.out.dtype  # of the sums of blocks
        self.buffers: list[Buffer] = []
        self.block = IterVar(
            Range.from_min_extent(const(0, step.var.dtype), self.count), step.var, IterVar.DataPar
        )
        size = const(found.size, step.var.dtype)
        self.inner = IterVar(
            Range.from_min_extent(const(0, step.var.dtype), size), found.inside, IterVar.CommReduce
        )

    def before(self) -> list[tuple[Stmt, Block]]:
        """The sums of the blocks; `main` adds them up."""
        f, own = self.found, [iv for iv in self.me.block.iter_vars if not iv.is_reduction]
        name = self.me.block.name_hint
        x, q = f.data, f.quantized
        if self.kind.is_int:
            assert f.integers is not None
            x, q = (cast(self.kind, e) for e in f.integers)
        made = [self._sum(own, mul(x, q), f"{name}_blocks")]
        value: PrimExpr = cast(
            self.out.dtype, BufferLoad(self.buffers[0], (self.step.var, *(iv.var for iv in own)))
        )
        if f.zero is not None:
            used = [iv for iv in own if iv.var in vars_used(f.data)]
            made.append(self._sum(used, x, f"{name}_data"))
            data = cast(
                self.out.dtype, BufferLoad(self.buffers[1], (self.step.var, *(iv.var for iv in used)))
            )
            value = sub(value, mul(f.zero, data))
        indices = f.sum.indices
        body = BufferStore(self.out, add(BufferLoad(self.out, indices), mul(f.scale, value)), indices)
        iters = tuple(
            IterVar(self.block.dom, iv.var, iv.iter_type) if iv is self.step else iv
            for iv in self.me.block.iter_vars
        )
        self.main = self.me.replace(block=refresh_regions(self.me.block.replace(iter_vars=iters, body=body)))
        return made

    def _sum(self, own: Sequence[IterVar], value: PrimExpr, name: str) -> tuple[Stmt, Block]:
        """A sum over the steps of each block."""
        iters = [self.block, *own]
        shape = tuple(iv.dom.extent for iv in iters)
        made = decl_buffer(shape, self.kind, name)
        self.buffers.append(made)

        def body(table: Mapping[Var, PrimExpr]) -> tuple[BufferStore, BufferStore]:
            at = tuple(sub(table[iv.var], iv.dom.min) for iv in iters)
            return (
                BufferStore(made, add(BufferLoad(made, at), substitute(value, table)), at),
                BufferStore(made, const(0, made.dtype), at),
            )

        return block_nest([*iters, self.inner], name, body)


# ---------------------------------------------------------------------------- words of few bits
@dataclass(frozen=True, slots=True)
class FewBits:
    """The integers of few bits that a sum converts to floats: `value`, which has 2, 4 or 8 bits, `signed` or not."""

    conversion: Cast
    bits: int
    signed: bool

    @property
    def value(self) -> PrimExpr:
        return self.conversion.value


def few_bits_of(block: Block, step: Var) -> FewBits | str:
    """The integers of few bits that a block converts to floats in its step, or why there are none."""
    found = [m for m in pre_order(block.body) if _is_integer(m) and step in vars_used(m)]  # type: ignore[arg-type]
    loaded = [m for m in found if any(isinstance(x, BufferLoad) for x in pre_order(m))]
    if len(loaded) != 1:
        return "does not convert one integer to a float in each step"
    (conversion,) = loaded
    assert isinstance(conversion, Cast)
    ana = Analyzer()
    ana.bind_ranges({iv.var: iv.dom for iv in block.iter_vars})
    bound = ana.const_int_bound(conversion.value)
    for bits in (2, 4, 8):
        if bound.min_value >= 0 and bound.max_value < 1 << bits:
            return FewBits(conversion, bits, False)
        if bound.min_value >= -(1 << (bits - 1)) and bound.max_value < 1 << (bits - 1):
            return FewBits(conversion, bits, True)
    return f"has integers from {bound.min_value} to {bound.max_value}, which need more than 8 bits"


@primitive
def pack_bits(sch: Schedule, block: BlockRV | str, loop: LoopRV) -> BlockRV:
    """Pack integers of few bits along a loop into words of 32 bits, from which the block takes them.

    for j in range(32):                       for w in range(4):
        P[0] += A[j] * float32(q(j))   ->         words[w] = q(8 * w) & 15 | (q(8 * w + 1) & 15) << 4 | …
                                              for j in range(32):
                                                  P[0] += A[j] * float32(words[j // 8] >> j % 8 * 4 & 15)

    The bits of q follow from its expression: from 0 to 15 it has 4, from -2 to 1 it has 2. Returns the block of the
    words.
    """
    me = sch.realize(block)
    nest = trivial_nest(sch, me, "pack_bits")
    chosen = sch.loop(loop).loop_var
    step = next((iv for iv, value in me.bindings if value is chosen), None)
    name = me.block.name_hint
    if step is None:
        refuse(f"loop `{chosen.name}` is no iterator of block {name}", at=me)
    found = few_bits_of(me.block, step.var)
    if isinstance(found, str):
        refuse(f"block {name} {found}", at=me)
    per = _WORD // found.bits
    size = const_value(step.dom.extent)
    if size is None or not is_zero(step.dom.min) or size % per:
        refuse(
            f"loop `{chosen.name}` has {step.dom.extent} steps, and a word holds {per} integers of {found.bits} bits",
            at=me,
            hint="its extent must be a multiple of that",
        )
    nested, words, value = _words(me.block, found, step, per)
    body = rewrite(me.block.body, {Cast: lambda n: value if n is found.conversion else n})
    made = me.replace(block=refresh_regions(me.block.replace(body=body)))
    rebuilt: Stmt = made
    for x in reversed(nest):
        rebuilt = x.replace(body=rebuilt)
    place_before(sch, nest[0], [nested[0]], rebuilt, [words])
    return BlockRV(nested[1].key, nested[1].name_hint)


def _words(
    block: Block, found: FewBits, step: IterVar, per: int
) -> tuple[tuple[Stmt, Block], Buffer, PrimExpr]:
    """The stage that packs the words, their buffer, and the integer of a step as a float."""
    kind, bits, word = step.var.dtype, found.bits, DataType("int32")
    nested, words, used = packed_words(block, found.value, step, [bits * i for i in range(per)], word)
    mask = const((1 << bits) - 1, word)
    at = (*(sub(iv.var, iv.dom.min) for iv in used), floordiv(step.var, const(per, kind)))
    held: PrimExpr = BufferLoad(words, at)
    place = cast(word, mul(floormod(step.var, const(per, kind)), const(bits, kind)))
    if found.signed:
        up = const(_WORD - bits, word)
        held = shift_right(shift_left(held, sub(up, place)), up)
    else:
        held = bitwise_and(shift_right(held, place), mask)
    return nested, words, cast(found.conversion.dtype, held)


def packed_words(
    block: Block, value: PrimExpr, step: IterVar, places: Sequence[int], word: DataType
) -> tuple[tuple[Stmt, Block], Buffer, list[IterVar]]:
    """A stage that packs an integer of several steps into each word, its buffer, and the other iterators that the
    integer depends on. `places` are the lowest bits of the integers of a word."""
    kind, per, bits = step.var.dtype, len(places), _WORD // len(places)
    used = [iv for iv in block.iter_vars if iv is not step and iv.var in vars_used(value)]
    count = const(int(const_value(step.dom.extent) or 0) // per, kind)
    number = IterVar(Range.from_min_extent(const(0, kind), count), Var("word", kind), IterVar.DataPar)
    iters = [*(IterVar(iv.dom, iv.var, IterVar.DataPar) for iv in used), number]
    words = decl_buffer(tuple(iv.dom.extent for iv in iters), word, f"{block.name_hint}_words")
    mask = const((1 << bits) - 1, word)
    ana = Analyzer()
    ana.bind_ranges({iv.var: iv.dom for iv in iters})

    def body(table: Mapping[Var, PrimExpr]) -> tuple[BufferStore, None]:
        ana.bind_ranges({table[iv.var]: iv.dom for iv in iters})  # type: ignore[misc]
        made: PrimExpr | None = None
        for i in range(per):
            at = add(mul(table[number.var], const(per, kind)), const(i, kind))
            q = _indexed(substitute(value, {**table, step.var: at}), ana)
            part = shift_left(bitwise_and(cast(word, q), mask), const(places[i], word))
            made = part if made is None else bitwise_or(made, part)
        assert made is not None
        return BufferStore(words, made, tuple(sub(table[iv.var], iv.dom.min) for iv in iters)), None

    return block_nest(iters, words.name, body), words, used
