"""Sums of products of narrow numbers, several steps at a time: `pack_words`.

Instructions such as `vpdpbusd` and `sdot` multiply four pairs of bytes and add them to 32 bits. For them the numbers of
four steps of the reduction lie in one word:

    for m, n, k:                                    Aw[m, q] = the word of A[m, 4q : 4q + 4]
        C[m, n] += int32(A[m, k]) * int32(B[k, n])  Bw[q, n] = the word of B[4q : 4q + 4, n]
                                               ->   for m, n, q:
                                                        C[m, n] += dp4a(Aw[m, q], Bw[q, n])

The steps of a window are packed at each of its places, so that words overlap: in a convolution along a row,

    Xw[p] = the word of X[p : p + 4]          C[i] += dp4a(Xw[i + 4q], Ww[q])

Where an instruction wants another sign, an operand is moved by 128, and what that adds is taken off again:

    Σ a * b  =  Σ (a + 128) * b  -  128 * Σ b
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ....arith import Analyzer
from ....ir.buffer import Buffer, BufferRegion, decl_buffer
from ....ir.dtype import DataType
from ....ir.expr import Add, BufferLoad, Cast, IterVar, Mul, PrimExpr, Range, Var, const, const_value
from ....ir.functor import substitute, vars_used
from ....ir.ops import (
    add,
    bitwise_xor,
    cast,
    floordiv,
    if_then_else,
    is_zero,
    less,
    mul,
    reinterpret,
    sub,
)
from ....ir.stmt import Block, BlockRealize, BufferStore, Stmt
from ....ir.words import dot_of_words, pack_word
from ...analysis.combiner import Combination, NotACombination, combination_of
from ..blocks import check_dominant, enclosing_block, insert_beside, refresh_regions
from ..nests import block_nest, spatial_nest, trivial_nest
from ..primitive import BlockRV, LoopRV, primitive, refuse

if TYPE_CHECKING:
    from ..schedule import Schedule

__all__ = ["NarrowProduct", "narrow_product_of", "pack_words"]

_MIDDLE = 128  # between the ranges of int8 and uint8


@primitive
def pack_words(
    sch: Schedule, block: BlockRV | str, loop: LoopRV, first_type: str, second_type: str
) -> list[BlockRV]:
    """Multiply several steps of a sum of products at once: its factors are packed into words of 32 bits.

    for k in range(64):                                   for q in range(16):
        C[0] = C[0] + int32(A[k]) * int32(B[k])    ->         C[0] = C[0] + dp4a(A_words[q], B_words[q], 0)

    `loop` is the loop of the reduction whose steps are packed. `first_type` and `second_type` are the types in which
    the instruction takes the first and the second factor: of int8 and uint8 four fit into a word, of int16 and bfloat16
    two; with float32, numbers of 16 bits are only widened. Returns the blocks that pack the factors and the block of
    the sum; where a sign had to be changed, also the block of the sum of the other factor, and the one that subtracts.
    """
    me = sch.realize(block)
    check_dominant(sch, me)
    nest = trivial_nest(sch, me, "pack_words")
    found = narrow_product_of(me.block)
    if isinstance(found, str):
        refuse(
            f"block {me.block.name_hint} {found}", at=me, hint="it must be a sum of products of two elements"
        )
    chosen = sch.loop(loop).loop_var
    step = next((iv for iv, value in me.bindings if value is chosen and iv.is_reduction), None)
    if step is None:
        refuse(f"loop `{chosen.name}` is no step of the sum in block {me.block.name_hint}", at=me)
    kinds = (first_type, second_type)
    why = found.why_not(step, kinds)
    if why:
        refuse(f"the steps of loop `{chosen.name}` cannot be packed: {why}", at=me)
    made = _Packing(me, found, step, kinds)
    before, after = made.stages()
    rebuilt: Stmt = made.main
    for x in reversed(nest):
        rebuilt = x.replace(extent=made.count if x.loop_var is chosen else x.extent, body=rebuilt)
    old = nest[0]
    scope = enclosing_block(sch, me)
    assert scope is not None
    for nested, _ in before:
        insert_beside(sch, old, nested, before=True)
    sch.state.replace(old, rebuilt)
    for nested, _ in after:
        insert_beside(sch, rebuilt, nested, before=False)
    scope = enclosing_block(sch, rebuilt)
    assert scope is not None
    sch.state.replace(scope, scope.replace(alloc_buffers=(*scope.alloc_buffers, *made.buffers)))
    blocks = [b for _, b in (*before[:2], (rebuilt, made.main.block), *before[2:], *after)]
    return [BlockRV(b.key, b.name_hint) for b in blocks]


# ---------------------------------------------------------------------------- what is packed
@dataclass(frozen=True, slots=True)
class NarrowProduct:
    """C[...] += wide(X) * wide(Y), where X and Y are elements of 8 or 16 bits."""

    block: Block
    sum: Combination
    factors: tuple[BufferLoad, BufferLoad]

    @property
    def out(self) -> Buffer:
        return self.sum.buffers[0]

    def steps(self, kinds: tuple[str, str]) -> list[IterVar]:
        """The iterators of the reduction whose steps can be packed."""
        return [iv for iv in self.block.iter_vars if iv.is_reduction and not self.why_not(iv, kinds)]

    def why_not(self, step: IterVar, kinds: tuple[str, str]) -> str:
        """Why the steps of an iterator cannot be packed for an instruction; empty if they can."""
        if (
            kinds[0] not in _PER_WORD
            or kinds[1] not in _PER_WORD
            or _PER_WORD[kinds[0]] != _PER_WORD[kinds[1]]
        ):
            return f"no word holds numbers of {kinds[0]} and {kinds[1]}"
        for load, kind in zip(self.factors, kinds, strict=True):
            have = str(load.dtype)
            if have not in _TAKES[kind]:
                return (
                    f"{load.buffer.name} has elements of {have}, and {kind} takes {', '.join(_TAKES[kind])}"
                )
        if all(_sign_changes(load, kind) for load, kind in zip(self.factors, kinds, strict=True)):
            return "the signs of both factors would change"
        if self.out.dtype != _SUMS[kinds[0]]:
            return f"sums of {kinds[0]} are kept in {_SUMS[kinds[0]]}, and {self.out.name} is of {self.out.dtype}"
        size = const_value(step.dom.extent)
        if size is None or not is_zero(step.dom.min):
            return "their number is not known"
        places = [self.place_of(load, step, kinds[0]) for load in self.factors]
        for load, place in zip(self.factors, places, strict=True):
            if place is None:
                return f"they are not the neighbours along one dimension of {load.buffer.name}"
        if all(place.overlaps for place in places if place):
            return "the words of both factors would overlap"
        return ""

    def place_of(self, load: BufferLoad, step: IterVar, kind: str) -> _Place | None:
        size, per = int(const_value(step.dom.extent) or 0), _PER_WORD[kind]
        return _place_of(load, step.var, per, size % per == 0, _SUMS[kind] == "int32" and per > 1)


_PER_WORD = {"int8": 4, "uint8": 4, "int16": 2, "bfloat16": 2, "float32": 1}
_TAKES = {
    "int8": ("int8", "uint8"),
    "uint8": ("uint8", "int8"),
    "int16": ("int8", "uint8", "int16"),
    "bfloat16": ("bfloat16",),
    "float32": ("float16", "bfloat16"),
}
_SUMS = {"int8": "int32", "uint8": "int32", "int16": "int32", "bfloat16": "float32", "float32": "float32"}


def narrow_product_of(block: Block) -> NarrowProduct | str:
    """The sum of products of narrow numbers that a block is, or why it is none."""
    try:
        held = combination_of(block)
    except NotACombination as why:
        return str(why)
    (value, *more) = held.values
    if more or not isinstance(held.reducer.result[0], Add) or not held.start:
        return "is not a sum"
    if not isinstance(value, Mul) or value.dtype is not held.buffers[0].dtype:
        return "does not add up products"
    loads = tuple(_narrow(side) for side in (value.a, value.b))
    if loads[0] is None or loads[1] is None:
        return "does not multiply two elements of 8 or 16 bits"
    return NarrowProduct(block, held, (loads[0], loads[1]))


def _sign_changes(load: BufferLoad, kind: str) -> bool:
    return {str(load.dtype), kind} == {"int8", "uint8"}


def _narrow(e: PrimExpr) -> BufferLoad | None:
    """The element of 8 or 16 bits whose value an expression has."""
    while isinstance(e, Cast) and _keeps(e.value.dtype, e.dtype):
        e = e.value
    if not isinstance(e, BufferLoad) or e.dtype.lanes > 1 or e.dtype.is_bool:
        return None
    return e if e.dtype.bits in (8, 16) else None


def _keeps(old: DataType, new: DataType) -> bool:
    """Whether a type has all values of another one."""
    if old.is_float or new.is_float:
        return old.is_float and new.is_float and old.bits == 16 and new.bits >= 32
    return (new.bits > old.bits and (new.is_int or old.is_uint)) or new is old


class _Place(NamedTuple):
    """The dimension along which an iterator moves by single elements. Words of windows overlap: there is one for each
    element that a window may start with."""

    dim: int
    overlaps: bool


def _place_of(load: BufferLoad, v: Var, per_word: int, whole: bool, windows: bool) -> _Place | None:
    """The dimension along which an iterator moves; None if there is none. Without `whole` words, the iterator itself
    must be the index, unless `windows` may overlap."""
    used = [d for d, i in enumerate(load.indices) if v in vars_used(i)]
    if len(used) != 1:
        return None
    index = load.indices[used[0]]
    if index is v:
        return _Place(used[0], False)
    ana = Analyzer()
    start = ana.simplify(substitute(index, {v: const(0, v.dtype)}))
    if not is_zero(ana.simplify(sub(index, add(start, v)))):
        return None
    known = ana.modular_set(start)
    aligned = known.coeff % per_word == 0 and known.base % per_word == 0
    overlaps = not (whole and aligned)
    return _Place(used[0], overlaps) if windows or not overlaps else None


# ---------------------------------------------------------------------------- the stages
Stage = tuple[Stmt, Block]


class _Packing:
    """Writes the stages of one sum."""

    def __init__(
        self, me: BlockRealize, product: NarrowProduct, step: IterVar, kinds: tuple[str, str]
    ) -> None:
        self.me, self.product, self.step, self.kinds = me, product, step, kinds
        self.per_word = _PER_WORD[kinds[0]]
        self.size = int(const_value(step.dom.extent) or 0)
        self.count = const(-(-self.size // self.per_word), step.var.dtype)
        self._last = self.size - self.per_word * (
            (self.size - 1) // self.per_word
        )  # numbers of the last word
        self.name = me.block.name_hint
        self.buffers: list[Buffer] = []
        # What is added to each factor, as its sign changes.
        self.shifts = [
            _sign_changes(load, kind) * (_MIDDLE if kind == "uint8" else -_MIDDLE)
            for load, kind in zip(product.factors, kinds, strict=True)
        ]

    def stages(self) -> tuple[list[Stage], list[Stage]]:
        """The stages before the sum and after it; `main` is the sum."""
        packs = [self._packed(i) for i in (0, 1)]
        words = self.buffers[:2]
        x, y = loads = [self._word_of(load, b) for load, b in zip(self.product.factors, words, strict=True)]
        indices, out = self.product.sum.indices, self.product.out
        moved = [i for i in (0, 1) if self.shifts[i]]
        held = self._buffer(out.shape, out.dtype, f"{out.name}_words") if moved else out
        value: PrimExpr = mul(x, y)
        if self.per_word > 1:
            value = dot_of_words(self.per_word, x, y, const(0, out.dtype))
        body = BufferStore(held, add(BufferLoad(held, indices), value), indices)
        init = BufferStore(held, self.product.sum.start[0], indices)
        block = self.me.block.replace(iter_vars=tuple(self._iters()), body=body, init=init)
        self.main = self.me.replace(block=refresh_regions(block))
        if not moved:
            return packs, []
        sums: list[Stage] = []
        added: PrimExpr = const(0, out.dtype)
        for i in moved:
            nested, total = self._sum_of(1 - i, loads[1 - i])
            sums.append(nested)
            added = add(added, mul(total, const(self.shifts[i], out.dtype)))
        return [*packs, *sums], [self._corrected(held, added)]

    def _buffer(self, shape: Sequence[PrimExpr], dtype: DataType | str, name: str) -> Buffer:
        made = decl_buffer(tuple(shape), dtype, name)
        self.buffers.append(made)
        return made

    # -- factors -------------------------------------------------------------------------------
    def _packed(self, i: int) -> Stage:
        """The words of a factor, of all of its buffer."""
        load, kind, per = self.product.factors[i], DataType(self.kinds[i]), self.per_word
        place, overlaps = self._place(load)
        buffer = load.buffer
        shape = list(buffer.shape)
        limit = self.size if self.size % per and not overlaps else None
        if not overlaps:
            shape[place] = self.count if limit else floordiv(shape[place], const(per, shape[place].dtype))
        word = DataType({"float32": "float32", "uint8": "uint32"}.get(self.kinds[i], "int32"))
        target = self._buffer(shape, word, f"{buffer.name}_words")

        def content(at: list[PrimExpr]) -> tuple[Stmt, list[BufferRegion], list[BufferRegion]]:
            value = (
                self._window(load, kind, at, place) if overlaps else self._word(load, kind, at, place, limit)
            )
            if self.shifts[i]:
                signs = const(0x80808080 if word.is_uint else 0x80808080 - (1 << 32), word)
                value = bitwise_xor(reinterpret(word, value), signs)
            block = refresh_regions(Block((), (), (), "", BufferStore(target, value, tuple(at))))
            return block.body, list(block.reads), list(block.writes)

        # a buffer of windows has the strides of the factor, and its last elements begin no window
        extents = list(shape)
        if overlaps:
            extents[place] = sub(shape[place], const(self._last - 1, shape[place].dtype))
        return spatial_nest(
            [Range.from_min_extent(const(0, d.dtype), d) for d in extents], target.name, content
        )

    def _word(
        self, load: BufferLoad, kind: DataType, at: list[PrimExpr], place: int, limit: int | None
    ) -> PrimExpr:
        parts = []
        for j in range(self.per_word):
            k = at[place]
            if self.per_word > 1:
                k = add(mul(k, const(self.per_word, k.dtype)), const(j, k.dtype))
            element: PrimExpr = BufferLoad(load.buffer, (*at[:place], k, *at[place + 1 :]))
            if limit is not None and j >= limit % self.per_word:
                zero = const(0, element.dtype)
                element = if_then_else(less(k, const(limit, k.dtype)), element, zero)
            parts.append(element if kind.bits == 8 else cast(kind, element))
        return parts[0] if self.per_word == 1 else pack_word(*parts)

    def _window(self, load: BufferLoad, kind: DataType, at: list[PrimExpr], place: int) -> PrimExpr:
        """The word that begins with an element. Numbers behind the window are multiplied by zeros, or are zeros."""
        parts, whole = [], load.buffer.shape[place]
        zero = const(0, load.dtype)
        for j in range(self.per_word):
            k = add(at[place], const(j, at[place].dtype))
            element: PrimExpr = zero
            if j < self.size:
                element = BufferLoad(load.buffer, (*at[:place], k, *at[place + 1 :]))
                if j >= self._last:
                    element = if_then_else(less(k, whole), element, zero)
            parts.append(element if kind.bits == 8 else cast(kind, element))
        return pack_word(*parts)

    def _place(self, load: BufferLoad) -> _Place:
        place = self.product.place_of(load, self.step, self.kinds[0])
        assert place is not None
        return place

    def _word_of(self, load: BufferLoad, words: Buffer) -> BufferLoad:
        """The word of a factor that a step multiplies."""
        place, overlaps = self._place(load)
        v, per = self.step.var, self.per_word
        index = substitute(load.indices[place], {v: mul(v, const(per, v.dtype))})
        ana = Analyzer()
        ana.bind_ranges({iv.var: iv.dom for iv in self._iters()})
        at = index if overlaps or per == 1 else floordiv(index, const(per, index.dtype))
        at = ana.simplify(at)
        return BufferLoad(words, (*load.indices[:place], at, *load.indices[place + 1 :]))

    # -- signs ---------------------------------------------------------------------------------
    def _sum_of(self, i: int, word: BufferLoad) -> tuple[Stage, BufferLoad]:
        """The sum of a factor over all steps, for the iterators that it moves with, and its element for a result."""
        used = {v for x in word.indices for v in vars_used(x)}
        iters = [iv for iv in self._iters() if iv.is_reduction or iv.var in used]
        own = [iv.var for iv in iters if not iv.is_reduction]
        sizes = [iv.dom.extent for iv in iters if not iv.is_reduction]
        total = self._buffer(sizes or [const(1)], "int32", f"{word.buffer.name}_sum")
        ones = const(0x01010101, "int32" if word.dtype.is_uint else "uint32")

        def body(table: Mapping[Var, PrimExpr]) -> tuple[BufferStore, BufferStore]:
            places = tuple(table[v] for v in own) or (const(0),)
            held = substitute(word, table)
            value = dot_of_words(self.per_word, held, ones, const(0))
            return BufferStore(total, add(BufferLoad(total, places), value), places), BufferStore(
                total, const(0), places
            )

        return block_nest(iters, total.name, body), BufferLoad(total, tuple(own) or (const(0),))

    def _corrected(self, held: Buffer, added: PrimExpr) -> Stage:
        """The results without what was added as signs changed."""
        iters = [iv for iv in self._iters() if not iv.is_reduction]
        indices, out = self.product.sum.indices, self.product.out

        def body(table: Mapping[Var, PrimExpr]) -> tuple[BufferStore, None]:
            value = substitute(sub(BufferLoad(held, indices), added), table)
            return BufferStore(out, value, tuple(substitute(x, table) for x in indices)), None

        return block_nest(iters, f"{self.name}_signed", body)

    def _iters(self) -> list[IterVar]:
        """The iterators of the sum, as it is with words."""
        step = self.step
        count = Range.from_min_extent(const(0, step.var.dtype), self.count)
        made = IterVar(count, step.var, step.iter_type)
        return [made if iv is step else iv for iv in self.me.block.iter_vars]
