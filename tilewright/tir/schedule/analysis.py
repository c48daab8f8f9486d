"""Questions about a schedule: its blocks, and how a block could be computed by a tensor intrinsic.

A block and the description of an intrinsic correspond by what their iterators index. In a product of matrices the
rows are in A and C, the columns in B and C, and the summed axis in A and B; so are those of a convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer, IterMapLevel, IterSplitExpr, IterSumExpr, detect_iter_map
from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, Cast, IterVar, PrimExpr, Range, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, vars_used
from ...ir.ops import add, floordiv, floormod, is_one, mul, sub
from ...ir.stmt import Block, BlockRealize, BufferStore, For
from ..tensor_intrin.intrin import body_block
from .blocks import is_output
from .index_map import IndexMap
from .primitive import BlockRV
from .schedule import StmtSRef

if TYPE_CHECKING:
    from .schedule import Schedule


def has_block(sch: Schedule, block_name: str) -> bool:
    """Whether a schedule has a block of that name."""
    return bool(sch.state.index.named(block_name))


def is_output_block(sch: Schedule, block: BlockRV | str) -> bool:
    """Whether a block writes a buffer that is visible outside of its scope."""
    return is_output(sch, sch.realize(block))


# ---------------------------------------------------------------------------- tensor intrinsics
@dataclass(frozen=True, slots=True)
class TensorizeInfo:
    """Which loops of a block are those of a description; its loops in order; how far each iterator is padded, if any
    is."""

    loop_map: dict[StmtSRef, For]
    desc_loop_indexer: dict[For, int]
    block_iter_paddings: list[int] | None


@dataclass(frozen=True, slots=True)
class AutoTensorizeMappingInfo:
    """Layouts of a block's iterators in which it has the form of a description, and what they were found from.

    Buffers of the block are on the right (`rhs`), those of the description on the left (`lhs`).
    """

    mappings: list[IndexMap]
    lhs_buffer_map: dict[Buffer, Buffer]
    rhs_buffer_indices: dict[Buffer, list[PrimExpr]]
    lhs_iters: list[IterVar]
    rhs_iters: list[IterVar]


@dataclass(slots=True)
class _Accesses:
    """A block that stores one value: its operands in order, and which of them each iterator indexes."""

    iters: list[IterVar]
    operands: list[tuple[Buffer, tuple[PrimExpr, ...]]] = field(default_factory=list)
    form: list[type] = field(default_factory=list)

    def signature(self, iv: IterVar) -> tuple[int, frozenset[int]]:
        """The kind of an iterator and the operands that it indexes."""
        used = {n for n, (_, at) in enumerate(self.operands) if any(iv.var in vars_used(e) for e in at)}
        return iv.iter_type, frozenset(used)


def _accesses(block: Block) -> _Accesses | None:
    """What a block stores; types, and what casts them, do not matter here."""
    if not isinstance(block.body, BufferStore):
        return None
    found, ana = _Accesses(list(block.iter_vars)), Analyzer()
    for iv in block.iter_vars:
        if not is_one(
            iv.dom.extent
        ):  # its place among the indices says what it is, and would be simplified to 0
            ana.bind(iv.var, iv.dom)
    found.operands.append((block.body.buffer, tuple(map(ana.simplify, block.body.indices))))
    stack: list[Any] = [block.body.value]
    while stack:
        n = stack.pop()
        if isinstance(n, Cast):
            stack.append(n.value)
            continue
        found.form.append(type(n))
        if isinstance(n, BufferLoad):
            found.operands.append((n.buffer, tuple(map(ana.simplify, n.indices))))
        else:
            stack.extend(reversed(list(n.children())))
    return found


def _corresponding(
    sch: Schedule, block: BlockRV | str, desc_func: PrimFunc
) -> tuple[BlockRealize, _Accesses, BlockRealize, _Accesses] | None:
    """A block and the innermost block of a description, if both compute the same of as many operands."""
    me = sch.realize(block)
    inside = [n for n in pre_order(body_block(desc_func, "desc").body) if isinstance(n, BlockRealize)]
    if len(inside) != 1:
        return None
    ours, theirs = _accesses(me.block), _accesses(inside[0].block)
    if ours is None or theirs is None or ours.form != theirs.form:
        return None
    mine: dict[Buffer, Buffer] = {}
    for (b, _), (a, _) in zip(theirs.operands, ours.operands, strict=True):
        if mine.setdefault(b, a) is not a:
            return None
    return me, ours, inside[0], theirs


def _loop_of(value: PrimExpr, loops: Sequence[For]) -> For | None:
    """The loop whose variable, and a constant of the others, is a value."""
    ana, all_vars = Analyzer(), {x.loop_var for x in loops}
    for x in loops:
        if not vars_used(ana.simplify(sub(value, x.loop_var))) & all_vars:
            return x
    return None


def get_tensorize_loop_mapping(
    sch: Schedule, block: BlockRV | str, desc_func: PrimFunc, allow_padding: bool = False
) -> TensorizeInfo | None:
    """The loops of a block that a description has, innermost first; None if it has some that the block has not.

    for i, j, k in grid(512, 512, 512):        for i, j, k in grid(16, 16, 16):
        C[i, j] += A[i, k] * B[k, j]               c[i, j] += a[i, k] * b[k, j]      ->  {i: i, j: j, k: k}

    The extent of a loop is a multiple of the description's, or is padded to one with `allow_padding`.
    """
    found = _corresponding(sch, block, desc_func)
    if found is None:
        return None
    me, ours, inner, theirs = found
    loops = sch.state.index.loops_of(me)
    desc_loops = [n for n in pre_order(desc_func.body) if isinstance(n, For)]
    left, padding = list(me.bindings), [1] * len(me.block.iter_vars)
    loop_map: dict[StmtSRef, For] = {}
    for iv, value in reversed(inner.bindings):
        their_loop = _loop_of(value, desc_loops)
        tile = None if their_loop is None else const_value(their_loop.extent)
        if their_loop is None or not isinstance(tile, int):
            return None
        for own in reversed(left):
            loop = _loop_of(own[1], loops)
            size = None if loop is None else const_value(loop.extent)
            fits = isinstance(size, int) and (allow_padding or size % tile == 0)
            if loop is not None and fits and ours.signature(own[0]) == theirs.signature(iv):
                break
        else:
            return None
        left.remove(own)
        assert isinstance(size, int)
        if size % tile:
            padding[ours.iters.index(own[0])] = tile
        loop_map[StmtSRef(loop)] = their_loop
    needed = padding if any(p != 1 for p in padding) else None
    return TensorizeInfo(loop_map, {x: i for i, x in enumerate(desc_loops)}, needed)


def get_auto_tensorize_mapping_info(
    sch: Schedule, block: BlockRV | str, desc_func: PrimFunc
) -> AutoTensorizeMappingInfo | None:
    """The layout in which a block has the iterators of a description: those that index the same operands are fused,
    and those that the description has not come first. None if there is none.

    A convolution for a product of matrices:   (n, h, w, c, rh, rw, rc)  ->  (fuse(n, h, w), c, fuse(rh, rw, rc))
    """
    found = _corresponding(sch, block, desc_func)
    if found is None:
        return None
    _, ours, inner, theirs = found
    wanted = [theirs.signature(iv) for iv in inner.block.iter_vars]
    groups: dict[Any, list[IterVar]] = {signature: [] for signature in wanted}
    if len(groups) != len(wanted):
        return None  # which of two is which cannot be told
    batch: list[IterVar] = []
    for iv in ours.iters:
        groups.get(ours.signature(iv), batch).append(iv)
    if not all(groups.values()):
        return None
    renamed = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in ours.iters}
    final: list[PrimExpr] = [renamed[iv.var] for iv in batch]
    for group in groups.values():
        fused: PrimExpr = renamed[group[0].var]
        for iv in group[1:]:
            fused = add(mul(fused, iv.dom.extent), renamed[iv.var])
        final.append(Analyzer().simplify(fused))
    buffers = {b: a for (b, _), (a, _) in zip(theirs.operands, ours.operands, strict=True)}
    return AutoTensorizeMappingInfo(
        [IndexMap(list(renamed.values()), final)],
        buffers,
        {a: list(at) for a, at in ours.operands},
        list(inner.block.iter_vars),
        ours.iters,
    )


# ---------------------------------------------------------------------------- layouts of buffers
def suggest_index_map(
    buffer: Buffer, indices: Sequence[PrimExpr], loops: Sequence[For], predicate: Any
) -> IndexMap | None:
    """The layout of a buffer in which loops access it in the order of its memory; None if it has that, or none is
    found.

    for i, j in grid(2, 32):  B[j % 4 * 2 + i]      ->      x: (x % 2, x // 2)
    """
    domains = {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in loops}
    found = detect_iter_map([_flat(buffer, indices)], domains, predicate, IterMapLevel.Surjective).indices
    if len(found) != 1 or const_value(found[0].base) != 0:
        return None
    place = {x.loop_var: i for i, x in enumerate(loops)}
    splits: list[tuple[tuple[int, int], int, int]] = []  # what is sorted by, scale and extent
    for split in _innermost(found[0]):
        source = split.source.source
        numbers = [const_value(e) for e in (split.lower_factor, split.scale, split.extent)]
        if not isinstance(source, Var) or not all(isinstance(n, int) for n in numbers):
            return None
        lower, scale, extent = (int(n) for n in numbers if n is not None)
        splits.append(((place[source], -lower), scale, extent))
    given = sorted(splits, key=lambda s: -s[1])
    order = sorted(splits, key=lambda s: s[0])
    if given == order:
        return None
    ana, initial = Analyzer(), [Var(f"i{i}", buffer.shape[i].dtype) for i in range(len(buffer.shape))]
    for v, size in zip(initial, buffer.shape, strict=True):
        ana.bind(v, Range.from_min_extent(const(0, v.dtype), size))
    flat = _flat(buffer, initial)
    final = [
        ana.simplify(floormod(floordiv(flat, const(scale)), const(extent))) for _, scale, extent in order
    ]
    return IndexMap(initial, final)


def _flat(buffer: Buffer, indices: Sequence[PrimExpr]) -> PrimExpr:
    """The place of an element, counted in the order of memory."""
    flat: PrimExpr = const(0)
    for i, size in zip(indices, buffer.shape, strict=True):
        flat = add(mul(flat, size), i)
    return flat


def _innermost(total: IterSumExpr) -> list[IterSplitExpr]:
    """The splits of single iterators that a sum consists of; sums of sums are taken apart."""
    out: list[IterSplitExpr] = []
    for split in total.args:
        assert isinstance(split, IterSplitExpr)  # what detect_iter_map makes sums of
        inner = split.source.source
        if const_value(split.lower_factor) == 1 and isinstance(inner, IterSumExpr):
            out += [s.replace(scale=mul(s.scale, split.scale)) for s in _innermost(inner)]
        else:
            out.append(split)
    return out


__all__ = [
    "AutoTensorizeMappingInfo",
    "TensorizeInfo",
    "get_auto_tensorize_mapping_info",
    "get_tensorize_loop_mapping",
    "has_block",
    "is_output_block",
    "suggest_index_map",
]
