"""A product over the rows of a softmax, with the keys in parts that do not wait for each other: `split_attention`.

Few queries over a long past leave most of a GPU idle if a thread block walks over all keys of a head. Measured from the
largest value of each part, the sums of the parts are independent, and are corrected when they are combined:

    for each part p    m = max of its scores      w = exp(score - m)      t = sum of w      a = w · v
    together           M = max of m               f = exp(m - M)          sum of a * f / sum of t * f
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....ir.buffer import Buffer, decl_buffer
from ....ir.expr import BufferLoad, Call, IterVar, PrimExpr, Range, Var, const
from ....ir.functor import substitute
from ....ir.ops import (
    add,
    cast,
    div,
    equal,
    floordiv,
    floormod,
    less,
    max_of,
    min_of,
    min_value,
    mul,
    select,
    sub,
)
from ....ir.stmt import Block, BlockRealize, BufferStore, Stmt
from ..blocks import refresh_regions
from ..nests import loop_nest
from ..primitive import BlockRV, primitive, refuse
from .attention import Attention, attention_of
from .stream import replace_attention

if TYPE_CHECKING:
    from ..schedule import Schedule

PART_ROLES = (
    "values", "keys", "scores", "logits", "highest", "weights", "total", "product", "keep_highest", "keep_total",
    "top", "share", "whole", "sum", "out",
)  # fmt: skip
_LOG2_E = math.log2(math.e)
_At = dict[str, PrimExpr]


@primitive
def split_attention(sch: Schedule, block: BlockRV | str, size: int = 256, chunk: int = 1) -> list[BlockRV]:
    """Compute attention over parts of `size` keys that do not depend on each other, and combine them.

        S = q · k                              for parts p of the keys:
        M = max(S)                                 S = q · k;  m[p] = max(S);  w = exp(S - m[p])
        T = sum(exp(S - M))            ->          t[p] = sum(w);  a[p] = w · v
        O = sum(exp(S - M) / T * v)            M = max(m);  f = exp(m - M);  O = sum(a * f) / sum(t * f)

    `block` is the product with v; the blocks between the scores and this product are replaced. Elementwise work on the
    scores (a scale, a mask) is kept; weights and sums are float32. Where `size` does not divide the keys, the last part
    reads the last key again, with a weight of 0. The copy of the keys has its rows in chunks of `chunk` elements.
    Returns a block for each of PART_ROLES; the last computes O and keeps its handle.
    """
    me = sch.realize(block)
    found = attention_of(sch, me)
    if isinstance(found, str):
        refuse(f"block {me.block.name_hint} is not attention: {found}", at=me)
    if size < 1 or chunk < 1 or found.size(found.deep) % chunk:
        refuse(
            f"parts of {size} keys, in chunks of {chunk} elements, are not possible",
            at=me,
            hint=f"both are positive, and chunks divide the {found.size(found.deep)} elements of a key",
        )
    made = _Parts(found, size, chunk)
    nests, after = made.written()
    replace_attention(sch, found, nests, after, made.blocks, made.buffers, f"split_attention({made.name})")
    return [BlockRV(b.key, b.name_hint) for b in made.blocks]


class _Parts:
    """Writes the blocks of one attention, each in loops of its own."""

    def __init__(self, a: Attention, size: int, chunk: int) -> None:
        self.a, self.name, self.size, self.keys = a, a.product.block.name_hint, size, a.size(a.key)
        self.chunk = chunk
        self.count = -(-self.keys // size)
        self.others = [f"other{n}" for n in range(len(a.others))]
        self.sizes = {t: a.size(iv) for t, iv in zip(self.others, a.others, strict=True)}
        self.sizes |= {"part": self.count, "n": size}
        self.sizes |= {t: a.size(iv) for t, iv in (("i", a.row), ("d", a.column), ("e", a.deep))}
        self.sizes |= {"chunk": a.size(a.deep) // chunk, "x": chunk}
        self.by = a.scale * _LOG2_E
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.nests: list[Stmt] = []

    def written(self) -> tuple[list[Stmt], Stmt]:
        """The parts and their combination, and what makes the results of it."""
        a, part, row = self.a, ("part",), ("part", "i")
        values = self.stage("values", ("part", "n", "d"), (), lambda at: self.operand(a.v, at), a.v.dtype)
        keys = self.stage("keys", ("part", "n", "chunk", "x"), (), lambda at: self.operand(
            a.k, {**at, "e": add(mul(at["chunk"], _int(self.chunk)), at["x"])}
        ), a.k.dtype)  # fmt: skip
        scores = self.stage("scores", (*row, "n"), ("e",), lambda at: mul(
            cast("float32", self.operand(a.q, at)),
            cast("float32", self.load(keys, self.in_chunks(at), "part", "n", "chunk", "x")),
        ))  # fmt: skip
        logits = self.stage(
            "logits", (*row, "n"), (), lambda at: self.logit(at, self.load(scores, at, *row, "n"))
        )
        highest = self.stage("highest", row, ("n",), lambda at: self.load(logits, at, *row, "n"), most=True)
        weights = self.stage("weights", (*row, "n"), (), lambda at: self.power(
            self.load(logits, at, *row, "n"), self.load(highest, at, *row)
        ))  # fmt: skip
        total = self.stage("total", row, ("n",), lambda at: self.load(weights, at, *row, "n"))
        product = self.stage("product", (*row, "d"), ("n",), lambda at: mul(
            self.load(weights, at, *row, "n"),
            cast("float32", self.load(values, at, "part", "n", "d")),
        ))  # fmt: skip
        kept = self.stage("keep_highest", row, (), lambda at: self.load(highest, at, *row))
        totals = self.stage("keep_total", row, (), lambda at: self.load(total, at, *row))
        top = self.stage("top", ("i",), part, lambda at: self.load(kept, at, *row), most=True)
        share = self.stage("share", ("i", "part"), (), lambda at: self.power(
            max_of(self.load(kept, at, *row), min_value("float32")), self.load(top, at, "i")
        ))  # fmt: skip
        whole = self.stage("whole", ("i",), part, lambda at: mul(
            self.load(totals, at, *row), self.load(share, at, "i", "part")
        ))  # fmt: skip
        sums = self.stage("sum", ("i", "d"), part, lambda at: mul(
            self.load(product, at, *row, "d"), self.load(share, at, "i", "part")
        ))  # fmt: skip
        return self.nests, self.result(sums, whole)

    # -- values ----------------------------------------------------------------------------
    def load(self, b: Buffer, at: _At, *tags: str) -> BufferLoad:
        return BufferLoad(b, tuple(at[t] for t in (*self.others, *tags)))

    def in_chunks(self, at: _At) -> _At:
        size = _int(self.chunk)
        return {**at, "chunk": floordiv(at["e"], size), "x": floormod(at["e"], size)}

    def place(self, at: _At) -> PrimExpr:
        return add(mul(at["part"], _int(self.size)), at["n"])

    def names(self, at: _At) -> dict[Var, PrimExpr]:
        """The iterators of the product, as a block calls them."""
        a = self.a
        pairs = [*zip(self.others, a.others, strict=True), ("i", a.row), ("d", a.column), ("e", a.deep)]
        found = {iv.var: at[t] for t, iv in pairs if t in at}
        if "n" in at:
            j = self.place(at)
            found[a.key.var] = j if self.whole else min_of(j, _int(self.keys - 1))
        return found

    @property
    def whole(self) -> bool:
        """Whether all parts are of one size."""
        return self.count * self.size == self.keys

    def operand(self, x: BufferLoad, at: _At) -> BufferLoad:
        table = self.names(at)
        return BufferLoad(x.buffer, tuple(substitute(i, table) for i in x.indices))

    def logit(self, at: _At, score: PrimExpr) -> PrimExpr:
        made = substitute(self.a.logit, {**self.names(at), self.a.score: score})
        return (
            made
            if self.whole
            else select(less(self.place(at), _int(self.keys)), made, const(-math.inf, "float32"))
        )

    def power(self, x: PrimExpr, largest: PrimExpr) -> PrimExpr:
        """exp((x - largest) * scale): a part of nothing but -inf counts nothing."""
        away = sub(x, max_of(largest, min_value("float32")))
        return Call("float32", "tir.exp2", (mul(away, const(self.by, "float32")),))

    # -- blocks ----------------------------------------------------------------------------
    def stage(
        self,
        role: str,
        tags: Sequence[str],
        reduced: Sequence[str],
        value: Callable[[_At], PrimExpr],
        dtype: object = "float32",
        most: bool = False,
    ) -> Buffer:
        """A block that computes values for some axes, or sums (or largest values) over others."""
        own = (*self.others, *tags)
        made = decl_buffer(tuple(self.sizes[t] for t in own), str(dtype), f"{self.name}_{role}")
        at: _At = {t: Var(f"v_{t}", "int32") for t in (*own, *reduced)}
        here = BufferLoad(made, tuple(at[t] for t in own))
        result, init = value(at), None
        if reduced:
            result = max_of(here, result) if most else add(here, result)
            init = BufferStore(made, const(-math.inf if most else 0.0, "float32"), here.indices)
        body = BufferStore(made, result, here.indices)
        self.nests.append(self.block(role, at, set(reduced), body, init))
        self.buffers.append(made)
        return made

    def block(
        self, role: str, at: _At, reduced: set[str], body: BufferStore, init: BufferStore | None
    ) -> Stmt:
        iters = []
        for t, v in at.items():
            assert isinstance(v, Var)
            kind = IterVar.CommReduce if t in reduced else IterVar.DataPar
            iters.append(IterVar(Range.from_min_extent(_int(0), _int(self.sizes[t])), v, kind))
        made = refresh_regions(Block(tuple(iters), (), (), f"{self.name}_{role}", body, init))
        self.blocks.append(made)
        loops = [Var(t, "int32") for t in at]
        return loop_nest(loops, [self.sizes[t] for t in at], BlockRealize(loops, True, made))

    def result(self, sums: Buffer, whole: Buffer) -> Stmt:
        """The result of the product, in a block that keeps its handle."""
        a, block = self.a, self.a.product.block
        spatial = [iv for iv in block.iter_vars if iv is not a.key]
        own = {iv.var: Var(iv.var.name, "int32") for iv in spatial}
        rows = tuple(own[iv.var] for iv in (*a.others, a.row))
        total: PrimExpr = BufferLoad(whole, rows)
        if a.guarded:
            total = select(equal(total, const(0.0, "float32")), const(1.0, "float32"), total)
        value = cast(a.out.buffer.dtype, div(BufferLoad(sums, (*rows, own[a.column.var])), total))
        body = BufferStore(a.out.buffer, value, tuple(substitute(i, own) for i in a.out.indices))
        iters = tuple(IterVar(iv.dom, own[iv.var], IterVar.DataPar) for iv in spatial)
        made = refresh_regions(
            Block(iters, (), (), block.name_hint, body, annotations=block.annotations, key=block.key)
        )
        self.blocks.append(made)
        loops = [Var(iv.var.name.removeprefix("v_"), "int32") for iv in spatial]
        return loop_nest(loops, [a.size(iv) for iv in spatial], BlockRealize(loops, True, made))


def _int(n: int) -> PrimExpr:
    return const(n, "int32")
