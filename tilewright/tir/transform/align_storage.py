"""Row strides with padding, against bank conflicts and cache aliasing."""

from __future__ import annotations

from ...ir.buffer import Buffer
from ...ir.expr import PrimExpr, const
from ...ir.function import PrimFunc
from ...ir.functor import rewrite, statements, substitute
from ...ir.ops import add, floormod, mul, sub
from ...ir.stmt import Block

_KEY = "buffer_dim_align"


def align_storage(func: PrimFunc) -> PrimFunc:
    """Give buffers the strides that `storage_align` asked for.

        with block("B"):                                 B = alloc_buffer((8, 32), strides=(33, 1))
            block_attr({"buffer_dim_align":      ->
                        [[0, 0, 32, 1]]})

    Needs: allocations in place and compact. Gives: no `buffer_dim_align`.
    """
    wanted: dict[Buffer, dict[int, tuple[int, int]]] = {}
    allocated: set[Buffer] = set()
    for m in statements(func.body):
        if isinstance(m, Block):
            allocated.update(m.alloc_buffers)
            for which, axis, factor, offset in m.annotations.get(_KEY, ()):
                buffer = m.writes[int(which)].buffer
                wanted.setdefault(buffer, {})[int(axis)] = (int(factor), int(offset))
    table = {b: b.replace(strides=_strides(b, rules)) for b, rules in wanted.items() if b in allocated}
    if not wanted:
        return func
    return func.updated(body=rewrite(substitute(func.body, {}, table), {Block: _unmarked}))


def _strides(buffer: Buffer, rules: dict[int, tuple[int, int]]) -> tuple[PrimExpr, ...]:
    """Row-major strides, each rounded up to the alignment of its dimension."""
    kind = buffer.shape[0].dtype
    out: list[PrimExpr] = []
    size: PrimExpr = const(1, kind)
    for axis in reversed(range(len(buffer.shape))):
        if axis in rules:
            factor, offset = (const(n, kind) for n in rules[axis])
            # the least stride from `size` on that is `offset` more than a multiple of `factor`
            size = add(size, floormod(sub(add(factor, offset), floormod(size, factor)), factor))
        out.append(size)
        size = mul(size, buffer.shape[axis])
    return tuple(reversed(out))


def _unmarked(n: Block) -> Block | None:
    if _KEY not in n.annotations:
        return None
    return n.replace(annotations={k: v for k, v in n.annotations.items() if k != _KEY})
