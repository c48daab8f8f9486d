"""A product over the rows of a softmax, in one walk over them: `stream`, the step to attention in one kernel.

The weights exp(x - M) / T of a row need the largest value M of the whole row, and their sum T. Measured from the
largest value so far, the sum and the product need only the parts before, and are corrected when a larger value comes
(the law of `rebase`, one part after the other):

    N = max(M, max of the part)              c = exp(M - N)          w = exp(x - N)
    T = T * c + sum of w                     A = A * c + w · v       M = N                   at the end: A / T
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....ir.buffer import Buffer, decl_buffer
from ....ir.expr import (
    BufferLoad,
    Call,
    IterVar,
    PrimExpr,
    Range,
    Var,
    const,
    const_value,
)
from ....ir.functor import pre_order, substitute
from ....ir.ops import (
    add,
    cast,
    div,
    equal,
    floordiv,
    floormod,
    if_then_else,
    less,
    less_equal,
    logical_and,
    max_of,
    min_of,
    min_value,
    mul,
    select,
    sub,
)
from ....ir.ops import all as all_of
from ....ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt, seq
from ..blocks import enclosing_block, insert_beside, refresh_regions, remove_stmt
from ..nests import loop_nest
from ..primitive import BlockRV, primitive, refuse
from .attention import Attention, attention_of

if TYPE_CHECKING:
    from ..schedule import Schedule

_LOG2_E = math.log2(math.e)
_WIDE = 64  # sizes of heads are padded to multiples of this


@primitive
def stream(
    sch: Schedule, block: BlockRV | str, rows: int = 64, columns: int = 64, together: int = 1, lanes: int = 1
) -> list[BlockRV]:
    """Compute attention part by part, so that no row of scores is ever stored.

        S = q · k                              for tiles of rows:
        M = max(S)                                 for parts of columns:
        T = sum(exp(S - M))            ->              S = q · k;  N = max(M, S);  w = exp(S - N);  …
        O = sum(exp(S - M) / T * v)                    A = A * c + w · v
                                               O = A / T

    `block` is the product with v; the blocks between the scores and this product are replaced. Elementwise work on the
    scores (a scale, a mask) is kept; the weights are rounded to the type of v. Sizes are padded: rows to multiples of
    rows * together, columns to multiples of `columns`, heads to multiples of 64. Values of a row are stored `lanes`
    times; column j uses copy j / 2 % lanes. Returns a block for each of ROLES; the last computes O and keeps its
    handle.
    """
    me = sch.realize(block)
    found = attention_of(sch, me)
    if isinstance(found, str):
        refuse(f"block {me.block.name_hint} is not attention: {found}", at=me)
    if found.q.dtype.bits != 16:
        refuse(f"the operands of block {me.block.name_hint} are not floats of 16 bits", at=me)
    if rows < 1 or columns < 1 or together < 1 or lanes < 1:
        refuse("sizes of tiles are positive", at=me)
    made = _Parts(found, rows, columns, together, lanes)
    before, nest, after = made.written()
    nests = [*before, nest]
    replace_attention(sch, found, nests, after, made.blocks, made.buffers, f"stream({made.name})")
    return [BlockRV(b.key, b.name_hint) for b in made.blocks]


def replace_attention(
    sch: Schedule,
    found: Attention,
    before: Sequence[Stmt],
    after: Stmt,
    blocks: Sequence[Block],
    buffers: Sequence[Buffer],
    by: str,
) -> None:
    """Put nests, of which `after` makes the result, in the place of the stages of an attention."""
    loops = sch.state.index.loops_of(found.product)
    old: Stmt = loops[0]
    for s in before:
        insert_beside(sch, old, s, before=True)
    sch.state.replace(old, after)
    gone = {w.buffer for r in found.stages for w in r.block.writes}
    for r in found.stages:
        for x in sch.state.index.loops_of(sch.state.index.blocks[r.block.key]):
            sch.forget(x.loop_var, by)
        remove_stmt(sch, sch.state.index.blocks[r.block.key])
    scope = enclosing_block(sch, sch.state.index.blocks[blocks[-1].key])
    assert scope is not None
    kept = tuple(b for b in scope.alloc_buffers if b not in gone)
    sch.state.replace(scope, scope.replace(alloc_buffers=(*kept, *buffers)))
    for x in loops:
        sch.forget(x.loop_var, by)


# ---------------------------------------------------------------------------- the parts
ROLES = (
    "start_highest", "start_total", "start_sum", "scores", "logits", "highest", "correction", "shift", "weights",
    "total", "keep_highest", "keep_total", "corrected", "narrow", "product", "share", "out",
)  # fmt: skip
_At = dict[str, Var]


@dataclass(frozen=True, slots=True)
class _Axis:
    """An iterator of a block and the loop that drives it: value = base + loop."""

    tag: str
    extent: int  # of the loop
    kind: int = IterVar.DataPar
    base: PrimExpr | None = None
    domain: int = 0  # of the iterator; the loop's where it is 0


class _Parts:
    """Writes the blocks of one attention."""

    def __init__(self, a: Attention, rows: int, columns: int, together: int, lanes: int) -> None:
        self.a, self.rows, self.columns, self.together, self.lanes = a, rows, columns, together, lanes
        self.name = a.product.block.name_hint
        self.high = _up(a.size(a.row), rows * together)
        self.wide = _up(a.size(a.key), columns)
        self.deep, self.across = (_up(a.size(iv), _WIDE) for iv in (a.deep, a.column))
        self.blocks: list[Block] = []
        self.buffers: list[Buffer] = []
        self.loops = [(Var(iv.var.name.removeprefix("v_"), "int32"), a.size(iv)) for iv in a.others]
        self.tile, self.part = Var("tile", "int32"), Var("part", "int32")
        self.by = a.scale * _LOG2_E
        self.row = _Axis("i", rows, base=mul(self.tile, _int(rows)), domain=self.high)
        self.lane = _Axis("lane", lanes)
        self.key = _Axis("j", columns, base=mul(self.part, _int(columns)), domain=self.wide)
        self.column = _Axis("d", self.across)
        self.step = _Axis("part", 1, IterVar.Ordered, self.part, self.wide // columns)

    def written(self) -> tuple[list[Stmt], Stmt, Stmt]:
        """What comes before the parts, the parts, and what makes the results of their sums."""
        before: list[Stmt] = []
        a = self.a
        q = self.padded("query", a.q, a.row, self.high, self.deep, before)
        k = self.padded("key", a.k, a.key, self.wide, self.deep, before)
        v = self.padded("value", a.v, a.key, self.wide, self.across, before)
        made = [
            self.buffer(n, self.lanes) for n in ("highest", "next_highest", "correction", "shift", "total")
        ]
        highest, upper, correction, shift, total = made
        more, share = self.buffer("next_total", self.lanes), self.buffer("share", self.lanes)
        sums = self.buffer("sum", self.across)
        scores, logits, weights = (self.buffer(n, self.wide) for n in ("scores", "logits", "weights"))
        narrow = self.buffer("narrow", self.wide, str(q.dtype))
        lowest = min_value("float32")  # a part of nothing but -inf counts nothing
        start = [
            self.each("start_highest", highest, [self.lane], lambda at: lowest),
            self.each("start_total", total, [self.lane], lambda at: _float(0)),
            self.each("start_sum", sums, [self.column], lambda at: _float(0)),
        ]
        steps = [
            self.score_stage(scores, q, k),
            self.logit_stage(logits, scores),
            self.along("highest", upper, highest, None, logits, max_of),
            self.each("correction", correction, [self.lane], lambda at: self.corrected(at, highest, upper)),
            self.each("shift", shift, [self.lane], lambda at: self.shifted(self.load(upper, at, "lane"))),
            self.each("weights", weights, [self.key], lambda at: self.weight(at, logits, shift)),
            self.along("total", more, total, correction, weights, add),
            self.each("keep_highest", highest, [self.lane], lambda at: self.load(upper, at, "lane"), ordered=True),
            self.each("keep_total", total, [self.lane], lambda at: self.load(more, at, "lane"), ordered=True),
            self.each("corrected", sums, [self.column], lambda at: mul(
                self.load(sums, at, "d"), BufferLoad(correction, (*self.place(at), self.lane_of(at["d"])))
            ), ordered=True),
            self.each("narrow", narrow, [self.key], lambda at: cast(narrow.dtype, self.load(weights, at, "j"))),
            self.product_stage(sums, narrow, v),
        ]  # fmt: skip
        parts = For(self.part, *self.seen(), ForKind.SERIAL, seq(*steps))
        last = self.each("share", share, [self.lane], lambda at: self.shared(self.load(total, at, "lane")))
        nest: Stmt = seq(*start, parts, last)
        for v_, size in reversed([*self.loops, (self.tile, self.high // self.rows)]):
            nest = For(v_, _int(0), _int(size), ForKind.SERIAL, nest)
        return before, nest, self.result(sums, share)

    def seen(self) -> tuple[PrimExpr, PrimExpr]:
        """The first part and the number of parts for the tiles of rows that go together: what none of them sees is left
        out, but for one."""
        edges, every = self.a.edges()[0], self.wide // self.columns
        high = self.together * self.rows
        top = mul(floordiv(self.tile, _int(self.together)), _int(high))
        first: PrimExpr = _int(0)
        end: PrimExpr = _int(every)
        for sign, limit in edges:
            if sign > 0:
                last = floordiv(add(top, _int(high - 1 + limit)), _int(self.columns))
                end = min_of(end, max_of(add(last, _int(1)), _int(1)))
            else:
                first = max_of(
                    first, min_of(floordiv(sub(top, _int(limit)), _int(self.columns)), _int(every - 1))
                )
        return first, end if const_value(first) == 0 else max_of(sub(end, first), _int(1))

    # -- pieces ----------------------------------------------------------------------------
    def buffer(self, name: str, width: int, dtype: str = "float32") -> Buffer:
        shape = (*(size for _, size in self.loops), self.high, width)
        made = decl_buffer(shape, dtype, f"{self.name}_{name}")
        self.buffers.append(made)
        return made

    @staticmethod
    def place(at: _At) -> tuple[PrimExpr, ...]:
        return (*(v for t, v in at.items() if t.startswith("other")), at["i"])

    def load(self, b: Buffer, at: _At, tag: str) -> BufferLoad:
        return BufferLoad(b, (*self.place(at), at[tag]))

    def lane_of(self, column: PrimExpr) -> PrimExpr:
        return floormod(floordiv(column, _int(2)), _int(self.lanes))

    def names(self, at: _At) -> dict[Var, PrimExpr]:
        """The iterators of the product, as a block calls them."""
        pairs = [(f"other{n}", iv) for n, iv in enumerate(self.a.others)]
        pairs += [("i", self.a.row), ("j", self.a.key), ("d", self.a.column), ("e", self.a.deep)]
        return {iv.var: at[t] for t, iv in pairs if t in at}

    def logit(self, at: _At, score: PrimExpr) -> PrimExpr:
        a = self.a
        out = substitute(a.logit, {**self.names(at), a.score: score})
        inside: list[PrimExpr] = []
        loads = [m for m in pre_order(a.logit) if isinstance(m, BufferLoad)]
        if self.wide != a.size(a.key):
            inside.append(less(at["j"], _int(a.size(a.key))))
        if loads and self.high != a.size(a.row):
            inside.append(less(at["i"], _int(a.size(a.row))))
        if not inside:
            return out
        condition = inside[0] if len(inside) == 1 else logical_and(*inside)
        hidden = _float(-math.inf)
        return if_then_else(condition, out, hidden) if loads else select(condition, out, hidden)

    @property
    def fused(self) -> bool:
        """Whether x * by - N * by cannot overflow, so that one instruction does it."""
        return self.by <= 1

    def shifted(self, highest: PrimExpr) -> PrimExpr:
        return mul(highest, _float(self.by)) if self.fused else highest

    def weight(self, at: _At, logits: Buffer, shift: Buffer) -> PrimExpr:
        x = self.load(logits, at, "j")
        low = BufferLoad(shift, (*self.place(at), self.lane_of(at["j"])))
        by = _float(self.by)
        return _power(sub(mul(x, by), low) if self.fused else mul(sub(x, low), by))

    def corrected(self, at: _At, highest: Buffer, upper: Buffer) -> PrimExpr:
        away = sub(self.load(highest, at, "lane"), self.load(upper, at, "lane"))
        return _power(mul(away, _float(self.by)))

    def shared(self, total: PrimExpr) -> PrimExpr:
        if self.a.guarded:
            total = select(equal(total, _float(0)), _float(1), total)
        return div(_float(1), total)

    # -- stages ----------------------------------------------------------------------------
    def padded(
        self, name: str, load: BufferLoad, row: IterVar, high: int, wide: int, before: list[Stmt]
    ) -> BufferLoad:
        """An operand with its rows and columns last, and with zeros around it where it is no whole tiles; of a tensor
        that holds several operands a view for each."""
        b = load.buffer
        sizes = [const_value(s) for s in b.shape]
        place = next(n for n, i in enumerate(load.indices) if i is row.var)
        order = [*(n for n in range(len(sizes) - 1) if n != place), place, len(sizes) - 1]
        alone = [x.buffer for x in (self.a.q, self.a.k, self.a.v)].count(b) == 1
        if alone and [*order, *(sizes[n] for n in order[-2:])] == [*range(len(sizes)), high, wide]:
            return load
        if None in sizes:
            refuse(f"the sizes of {b.name} are not known", at=self.a.product)
        shape = [int(sizes[n] or 0) for n in order]
        out = decl_buffer((*shape[:-2], high, wide), b.dtype, f"{self.name}_{name}")
        self.buffers.append(out)
        loops = [Var(f"i{n}", "int32") for n in range(len(shape))]
        own = [Var(f"v_i{n}", "int32") for n in range(len(shape))]
        known = [int(const_value(s) or 0) for s in out.shape]
        inside: list[PrimExpr] = [
            less(v, _int(small))
            for v, small, large in zip(own[-2:], shape[-2:], (high, wide), strict=True)
            if small != large
        ]
        value: PrimExpr = BufferLoad(b, tuple(own[order.index(n)] for n in range(len(shape))))
        if inside:
            value = if_then_else(all_of(*inside), value, const(0, b.dtype))
        iters = [IterVar(_range(n), v, IterVar.DataPar) for v, n in zip(own, known, strict=True)]
        block = refresh_regions(
            Block(tuple(iters), (), (), f"{self.name}_{name}", BufferStore(out, value, tuple(own)))
        )
        before.append(loop_nest(loops, known, BlockRealize(loops, True, block)))
        return BufferLoad(out, tuple(load.indices[n] for n in order))

    def stage(
        self,
        role: str,
        axes: Sequence[_Axis],
        body: Callable[[_At], Stmt],
        init: Callable[[_At], Stmt] | None = None,
    ) -> Stmt:
        """A block over the rows of a tile and some more, in its loops."""
        iters: list[IterVar] = []
        values: list[PrimExpr] = []
        loops: list[tuple[Var, int]] = []
        at: _At = {}
        for n, (loop, size) in enumerate(self.loops):
            at[f"other{n}"] = Var(f"v_{loop.name}", "int32")
            iters.append(IterVar(_range(size), at[f"other{n}"], IterVar.DataPar))
            values.append(loop)
        for x in axes:
            at[x.tag] = Var(f"v_{x.tag}", "int32")
            iters.append(IterVar(_range(x.domain or x.extent), at[x.tag], x.kind))
            inner: PrimExpr = _int(0)
            if x.extent > 1 or x.kind != IterVar.Ordered:
                loops.append((Var(x.tag, "int32"), x.extent))
                inner = loops[-1][0]
            values.append(inner if x.base is None else add(x.base, inner))
        made = refresh_regions(
            Block(tuple(iters), (), (), f"{self.name}_{role}", body(at), None if init is None else init(at))
        )
        self.blocks.append(made)
        return loop_nest([v for v, _ in loops], [n for _, n in loops], BlockRealize(values, True, made))

    def each(
        self,
        role: str,
        target: Buffer,
        axes: Sequence[_Axis],
        value: Callable[[_At], PrimExpr],
        ordered: bool = False,
    ) -> Stmt:
        """Element by element."""
        tag = axes[-1].tag
        carried = [self.step] if ordered else []
        return self.stage(
            role,
            [self.row, *axes, *carried],
            lambda at: BufferStore(target, value(at), (*self.place(at), at[tag])),
        )

    def along(
        self,
        role: str,
        target: Buffer,
        earlier: Buffer,
        correction: Buffer | None,
        source: Buffer,
        combine: Callable[[PrimExpr, PrimExpr], PrimExpr],
    ) -> Stmt:
        """A reduction over the columns of a part, which starts from that of the parts before."""
        inner = _Axis("n", self.columns, IterVar.CommReduce)

        def body(at: _At) -> Stmt:
            j = add(mul(at["part"], _int(self.columns)), at["n"])
            here = self.load(target, at, "lane")
            return BufferStore(target, combine(here, BufferLoad(source, (*self.place(at), j))), here.indices)

        def init(at: _At) -> Stmt:
            before: PrimExpr = self.load(earlier, at, "lane")
            if correction is not None:
                before = mul(before, self.load(correction, at, "lane"))
            return BufferStore(target, before, (*self.place(at), at["lane"]))

        return self.stage(role, [self.row, self.lane, self.step, inner], body, init)

    def score_stage(self, scores: Buffer, q: BufferLoad, k: BufferLoad) -> Stmt:
        deep = _Axis("e", self.deep, IterVar.CommReduce)

        def body(at: _At) -> Stmt:
            table = self.names(at)
            a, b = (
                cast("float32", BufferLoad(t.buffer, tuple(substitute(i, table) for i in t.indices)))
                for t in (q, k)
            )
            here = self.load(scores, at, "j")
            return BufferStore(scores, add(here, mul(a, b)), here.indices)

        return self.stage(
            "scores",
            [self.row, self.key, deep],
            body,
            lambda at: BufferStore(scores, _float(0), (*self.place(at), at["j"])),
        )

    def logit_stage(self, logits: Buffer, scores: Buffer) -> Stmt:
        """What is done with the scores; where all of a tile is seen, without asking for each of them."""
        edges, inside = self.a.edges()

        def value(at: _At) -> PrimExpr:
            score = self.load(scores, at, "j")
            masked = self.logit(at, score)
            first, last = _ends(at["j"], self.columns)
            row, bottom = _ends(at["i"], self.rows)
            whole = [
                less_equal(last, add(row, _int(limit)))
                if sign > 0
                else less_equal(bottom, add(first, _int(limit)))
                for sign, limit in edges
            ]
            if self.wide != self.a.size(self.a.key):
                whole.append(less(last, _int(self.a.size(self.a.key))))
            if not whole or any(isinstance(m, BufferLoad) for m in pre_order(self.a.logit)):
                return masked
            plain = substitute(inside, {**self.names(at), self.a.score: score})
            return if_then_else(all_of(*whole), plain, masked)

        return self.each("logits", logits, [self.key], value)

    def product_stage(self, sums: Buffer, narrow: Buffer, v: BufferLoad) -> Stmt:
        inner = _Axis("n", self.columns, IterVar.CommReduce)

        def body(at: _At) -> Stmt:
            j = add(mul(at["part"], _int(self.columns)), at["n"])
            table = {**self.names(at), self.a.key.var: j}
            value = BufferLoad(v.buffer, tuple(substitute(i, table) for i in v.indices))
            weight = BufferLoad(narrow, (*self.place(at), j))
            here = self.load(sums, at, "d")
            term = mul(cast("float32", weight), cast("float32", value))
            return BufferStore(sums, add(here, term), here.indices)

        return self.stage("product", [self.row, self.column, self.step, inner], body)

    def result(self, sums: Buffer, share: Buffer) -> Stmt:
        """The result of the product, computed from the sums; its block keeps its handle."""
        a = self.a
        block = a.product.block
        spatial = [iv for iv in block.iter_vars if iv is not a.key]
        loops = [Var(iv.var.name.removeprefix("v_"), "int32") for iv in spatial]
        own = {iv.var: Var(iv.var.name, "int32") for iv in spatial}
        rows = tuple(own[iv.var] for iv in (*a.others, a.row))
        d = own[a.column.var]
        value = mul(BufferLoad(sums, (*rows, d)), BufferLoad(share, (*rows, self.lane_of(d))))
        # Sums of 16 bits are summed in float32 as well, and rounded once.
        value = cast(a.out.buffer.dtype, value)
        body = BufferStore(a.out.buffer, value, tuple(substitute(i, own) for i in a.out.indices))
        iters = tuple(IterVar(_range(a.size(iv)), own[iv.var], IterVar.DataPar) for iv in spatial)
        made = refresh_regions(
            Block(iters, (), (), block.name_hint, body, annotations=block.annotations, key=block.key)
        )
        self.blocks.append(made)
        return loop_nest(loops, [a.size(iv) for iv in spatial], BlockRealize(loops, True, made))


def _ends(v: PrimExpr, size: int) -> tuple[PrimExpr, PrimExpr]:
    """The first and the last number of the tile that one is in."""
    first = mul(floordiv(v, _int(size)), _int(size))
    return first, add(first, _int(size - 1))


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _int(n: int) -> PrimExpr:
    return const(n, "int32")


def _float(x: float) -> PrimExpr:
    return const(float(x), "float32")


def _range(n: int) -> Range:
    return Range.from_min_extent(_int(0), _int(n))


def _power(e: PrimExpr) -> PrimExpr:
    """2 to the power e: weights are at most 1, so that what is too small for a normal number may be 0."""
    return Call(e.dtype, "tir.fast_exp2", (e,))
