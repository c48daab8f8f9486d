"""Primitives for the layout and type of a buffer: transform_layout, set_axis_separator, unsafe_set_dtype."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...arith import eval_set
from ...ir.buffer import Buffer, BufferRegion
from ...ir.dtype import DataType
from ...ir.expr import BufferLoad, IterVar, PrimExpr, Range, Var, const, const_value
from ...ir.functor import Mutator, vars_used
from ...ir.ops import cast
from ...ir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt
from ...ir.types import PointerType, PrimType
from .blocks import insert_beside, top_level
from .buffers import check_plain_accesses, chosen_buffer, holder_of, named_buffer, swap_buffer
from .cache import _name
from .dependence import recheck_uses
from .index_map import IndexMap
from .nests import Ranged, loop_nest
from .primitive import BlockRV, Refusal, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule


def relayout(
    sch: Schedule,
    block: BlockRV,
    buffer: Any,
    index_map: Any,
    pad_value: Any = None,
    assume_injective_transform: bool = False,
) -> None:
    """`transform_layout` of what a person writes: functions become maps, separators a step of their own."""
    buffer = named_buffer(sch, block, buffer)
    with sch.all_or_nothing():
        separators: list[int] = []
        if not isinstance(index_map, IndexMap):
            ndim = _ndim(sch, block, buffer, index_map)
            index_map, separators = IndexMap.from_func_with_separators(index_map, ndim, index_dtype="int32")
        if callable(pad_value) and not isinstance(pad_value, (IndexMap, PrimExpr)):
            pad_value = IndexMap.from_func(pad_value, len(index_map.final_indices), index_dtype="int32")
        transform_layout(sch, block, buffer, index_map, pad_value, assume_injective_transform)
        if separators:
            set_axis_separator(sch, block, buffer, separators)


def _ndim(sch: Schedule, block: BlockRV, buffer: Any, function: Any) -> int | None:
    """The number of indices for a function that takes any number of them."""
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return None
    try:
        return len(chosen_buffer(sch.realize(block), buffer)[2].shape)
    except Refusal:  # the primitive will say it again, and better
        return len(kinds)


@primitive
def transform_layout(
    sch: Schedule,
    block: BlockRV | str,
    buffer: Any,
    index_map: IndexMap,
    pad_value: Any = None,
    assume_injective_transform: bool = False,
) -> None:
    """Change the layout of a buffer in the whole program (`lambda i, j: (i // 4, j, i % 4)`).

    B = alloc_buffer((16, 8))               B = alloc_buffer((4, 8, 4))
    B[i, j] = A[i, j]               ->      B[i // 4, j, i % 4] = A[i, j]
    C[i, j] = B[i, j] + 1                   C[i, j] = B[i // 4, j, i % 4] + 1

    `buffer` is a name, a buffer, or ("read" or "write", position). Padding, elements of the new shape without an old
    one, is set to `pad_value` after the last block that writes the buffer. `assume_injective_transform` skips the proof
    that no two elements get the same place.
    """
    me = sch.realize(block)
    _, _, old = chosen_buffer(me, buffer)
    if len(index_map.initial_indices) != len(old.shape):
        refuse(
            f"the map takes {len(index_map.initial_indices)} indices, and {old.name} has "
            f"{len(old.shape)} dimensions",
            at=me,
        )
    check_plain_accesses(sch, me, old, "another layout")
    _check_alignment(sch, old)
    index_map = index_map.with_dtype(old.shape[0].dtype) if old.shape else index_map
    shape, padding = _new_shape(me, old, index_map, pad_value, assume_injective_transform, sch.trusting)
    new = old.replace(shape=tuple(shape), axis_separators=())
    holder = holder_of(sch, old)
    if holder is None:
        _check_symbols(sch, me, old, new)
    func = sch.state.func
    body = _Relayout(old, new, index_map).visit(func.body)
    held = {p: new if b is old else b for p, b in func.buffer_map.items()}
    sch.state.replace_func(func.replace(body=body, buffer_map=held))
    if padding is not None and pad_value is not None:
        _pad(sch, new, padding, pad_value)


def _check_alignment(sch: Schedule, buffer: Buffer) -> None:
    for r in sch.state.index.order:
        for entry in r.block.annotations.get("buffer_dim_align", ()):
            if r.block.writes[int(entry[0])].buffer is buffer:
                refuse(
                    f"the strides of {buffer.name} were set by storage_align for the old layout",
                    at=r,
                    hint="transform_layout first, then storage_align",
                )


def _new_shape(
    me: BlockRealize, old: Buffer, index_map: IndexMap, pad_value: Any, assume_injective: bool, trusting: bool
) -> tuple[list[PrimExpr], tuple[IndexMap, PrimExpr] | None]:
    """The shape, and the map back with the condition for padding where there is any."""
    try:
        shape = index_map.map_shape(old.shape)
        if assume_injective and pad_value is None and trusting:
            return shape, None
        back, padding = index_map.non_surjective_inverse(old.shape)
    except ValueError as why:
        refuse(
            f"{why}, so {old.name} cannot be laid out by it",
            at=me,
            hint="use a map that gives each element a place of its own, such as (i // 4, i % 4)",
        )
    if const_value(padding) == 0 or (assume_injective and pad_value is None):
        return shape, None
    if pad_value is None:
        refuse(
            f"{old.name} of shape {_dims(old.shape)} becomes {_dims(shape)}, and nothing is said about what "
            f"the new elements hold (those where `{padding}`)",
            at=me,
            hint="give pad_value, or choose factors that divide the shape",
        )
    return shape, (back, padding)


def _dims(shape: Sequence[PrimExpr]) -> str:
    return f"({', '.join(map(str, shape))})"


def _check_symbols(sch: Schedule, me: BlockRealize, old: Buffer, new: Buffer) -> None:
    """Symbolic sizes of a parameter are read off its shape: they must still stand there."""
    func = sch.state.func
    known = set(func.params)
    for b in func.buffer_params():
        known |= {d for d in (new if b is old else b).shape if isinstance(d, Var)}
    for d in old.shape:
        for v in sorted(vars_used(d) - known, key=lambda v: v.name):
            refuse(
                f"the function learns `{v.name}` from the shape of its parameter {old.name}, "
                "which would not show it any more",
                at=me,
                hint="cache_read or cache_write the parameter, and transform the copy",
            )


class _Relayout(Ranged):
    """Accesses of one buffer at mapped indices, simplified with what the loops say."""

    def __init__(self, old: Buffer, new: Buffer, index_map: IndexMap) -> None:
        super().__init__()
        self.old, self.new, self.map = old, new, index_map

    def visit_Block(self, n: Block) -> Block:
        made = super().visit_Block(n)
        if not any(b is self.old for b in made.alloc_buffers):
            return made
        return made.replace(alloc_buffers=tuple(self.new if b is self.old else b for b in made.alloc_buffers))

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        if made.buffer is not self.old:
            return made
        return made.replace(buffer=self.new, indices=tuple(self.mapped(made.indices)))

    visit_BufferLoad = visit_BufferStore = access

    def mapped(self, indices: Sequence[PrimExpr]) -> list[PrimExpr]:
        return [self.ana.simplify(i) for i in self.map.map_indices(indices)]

    def visit_BufferRegion(self, n: BufferRegion) -> BufferRegion:
        made = n.map_children(self.visit)
        if made.buffer is not self.old:
            return made
        if all(const_value(r.extent) == 1 for r in made.region):
            return BufferRegion.point(self.new, self.mapped([r.min for r in made.region]))
        doms = dict(zip(self.map.initial_indices, made.region, strict=True))
        out = []
        for e, dim in zip(self.map.final_indices, self.new.shape, strict=True):
            found = eval_set(e, doms, self.ana).as_range()
            if found is None:
                found = Range.from_min_extent(const(0, dim.dtype), dim)
            out.append(Range.from_min_extent(self.ana.simplify(found.min), self.ana.simplify(found.extent)))
        return BufferRegion(self.new, tuple(out))


def _pad(sch: Schedule, new: Buffer, padding: tuple[IndexMap, PrimExpr], pad_value: Any) -> None:
    """Write the padding behind the last block that writes the buffer. That of an input is the caller's."""
    back, condition = padding
    holder = holder_of(sch, new)
    scope = sch.state.index.order[0].block if holder is None else holder
    users = [r for r in sch.state.index.blocks_under(scope.body) if _uses(r.block, new)]
    makers = [r for r in users if any(w.buffer is new for w in r.block.writes)]
    if not makers:
        return
    anchor = top_level(sch, makers[-1], scope if holder is None else _around(sch, users))
    nest = _pad_nest(sch, new, back, condition, pad_value, f"{new.name}_pad")
    insert_beside(sch, anchor, nest, before=False)
    recheck_uses(sch, new)


def _uses(block: Block, buffer: Buffer) -> bool:
    return any(r.buffer is buffer for r in (*block.reads, *block.writes))


def _around(sch: Schedule, users: list[BlockRealize]) -> Stmt:
    """The innermost loop or block around all users of a buffer: what is private to an iteration stays so."""
    index = sch.state.index
    shared = [set(index.ancestors(r)) for r in users]
    for up in index.ancestors(users[0]):
        alone = isinstance(up, For) and len(users) == 1
        if isinstance(up, (For, Block)) and not alone and all(up in held for held in shared):
            return up
    raise AssertionError("blocks stand inside a block")


def _pad_nest(
    sch: Schedule, new: Buffer, back: IndexMap, condition: PrimExpr, pad_value: Any, name: str
) -> Stmt:
    iters = [IterVar(Range(d), Var(f"v{i}", d.dtype), IterVar.DataPar) for i, d in enumerate(new.shape)]
    indices: list[PrimExpr] = [iv.var for iv in iters]
    if isinstance(pad_value, IndexMap):
        value = pad_value.map_indices(indices)[0]
    else:
        value = pad_value if isinstance(pad_value, PrimExpr) else const(pad_value, new.dtype)
    where = IndexMap(back.initial_indices, [condition]).map_indices(indices)[0]
    body = IfThenElse(where, BufferStore(new, cast(new.dtype, value), indices))
    block = Block(iters, [], [BufferRegion.point(new, indices)], _name(sch, name), body)
    loops = [Var(f"ax{i}", d.dtype) for i, d in enumerate(new.shape)]
    return loop_nest(loops, new.shape, BlockRealize(loops, True, block))


# ---------------------------------------------------------------------------- attributes
@primitive(buffer=named_buffer)
def set_axis_separator(
    sch: Schedule, block: BlockRV | str, buffer: Any, axis_separators: Sequence[int] | None
) -> None:
    """Set the dimensions at which a buffer is divided into the dimensions of physical memory, if there are several.

    B = alloc_buffer((8, 32))     ->        B = alloc_buffer((8, 32), axis_separators=[1])
    """
    me = sch.realize(block)
    _, _, old = chosen_buffer(me, buffer)
    cuts = [int(a) for a in axis_separators or ()]
    if any(a >= b for a, b in zip(cuts, cuts[1:], strict=False)) or any(
        not 0 < a < len(old.shape) for a in cuts
    ):
        refuse(
            f"axis_separators={cuts}: they must rise, and lie between the {len(old.shape)} dimensions "
            f"of {old.name}",
            at=me,
        )
    if tuple(cuts) != old.axis_separators:
        swap_buffer(sch, old, old.replace(axis_separators=tuple(cuts)))


@primitive
def unsafe_set_dtype(sch: Schedule, block: BlockRV | str, buffer_index: int, dtype: str) -> None:
    """Store the result of a block in another type. The step is unsafe because values may be rounded.

    B = alloc_buffer((8,), "float32")               B = alloc_buffer((8,), "float16")
    B[i] = A[i] * 2                         ->      B[i] = float16(A[i] * 2)
    C[i] = B[i] + 1                                 C[i] = float32(B[i]) + 1
    """
    me = sch.realize(block)
    _, _, old = chosen_buffer(me, ("write", buffer_index))
    try:
        kind = DataType(dtype)
    except (TypeError, ValueError):
        refuse(f"there is no type {dtype!r}", at=me)
    if holder_of(sch, old) is None:
        refuse(
            f"{old.name} is a parameter of the function: who calls it decides of which type it is",
            at=me,
            hint="cache_write it, and change the type of the copy",
        )
    if kind is old.dtype:
        return
    check_plain_accesses(sch, me, old, "another type")
    data = Var(old.data.name, PointerType(PrimType(kind), old.scope()))
    new = old.replace(data=data, dtype=kind)
    sch.state.replace_func(_Recast(old, new).run(sch.state.func))
    swap_buffer(sch, old, new)


class _Recast(Mutator):
    """Stores converted to the type of another buffer, loads converted back."""

    def __init__(self, old: Buffer, new: Buffer) -> None:
        self.old, self.new = old, new

    def visit_BufferLoad(self, n: BufferLoad) -> PrimExpr:
        made = n.map_children(self.visit)
        return cast(self.old.dtype, made.replace(buffer=self.new)) if made.buffer is self.old else made

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        made = n.map_children(self.visit)
        if made.buffer is not self.old:
            return made
        return BufferStore(self.new, cast(self.new.dtype, made.value), made.indices, span=made.span)
