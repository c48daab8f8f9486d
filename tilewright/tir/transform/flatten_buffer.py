"""Flattening: buffers of many dimensions become one-dimensional."""

from __future__ import annotations

from math import prod
from typing import Any

from ...ir.buffer import Buffer
from ...ir.expr import IntImm, PrimExpr, Ramp, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator
from ...ir.ops import add, mul, product, sub
from ...ir.stmt import Allocate, DeclBuffer, Stmt


def flatten_buffer(func: PrimFunc) -> PrimFunc:
    """Make every access one-dimensional.

        A: Buffer((4, 8))                        A_1 = decl_buffer((32,), data=A.data)
        A[i, j] = 1                    ->        A_1[i * 8 + j] = 1

    Needs: no blocks. Gives: buffers of one dimension, without strides and offsets.
    """
    walk = _Flatten()
    body = walk.visit(func.body)
    if body is func.body:
        return func
    for buffer in reversed(func.buffer_params()):
        flat = walk.flat.get(buffer)
        if flat is not None and flat is not buffer:
            body = DeclBuffer(flat, body)
    return func.replace(body=body)


class _Flatten(Mutator):
    def __init__(self) -> None:
        self.flat: dict[Buffer, Buffer] = {}

    def visit_buffer(self, b: Buffer) -> Buffer:
        made = self.flat.get(b)
        if made is None:
            simple = len(b.shape) == 1 and not b.strides and _is_zero(b.elem_offset)
            made = self.flat[b] = b if simple else self.flattened(b)
        return made

    def flattened(self, b: Buffer) -> Buffer:
        size = add(reach(b) if b.strides else _count(b.shape), b.elem_offset)
        name = f"{b.name}_1" if b.name == b.data.name else b.name
        zero = const(0, size.dtype)
        return Buffer(b.data, b.dtype, (size,), (), zero, name, b.data_alignment, 1, ())

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        flat = self.visit_buffer(made.buffer)
        if flat is made.buffer:
            return made
        return made.replace(buffer=flat, indices=(flat_index(made.buffer, made.indices),))

    visit_BufferLoad = visit_BufferStore = access

    def visit_Allocate(self, n: Allocate) -> Stmt:
        made = n.map_children(self.visit)
        if len(made.extents) == 1:
            return made
        return made.replace(extents=(_count(made.extents),))

    visit_AllocateConst = visit_Allocate

    def visit_DeclBuffer(self, n: DeclBuffer) -> Stmt:
        flat, body = self.visit_buffer(n.buffer), self.visit(n.body)
        return n if flat is n.buffer and body is n.body else DeclBuffer(flat, body)


def _count(shape: tuple[PrimExpr, ...]) -> PrimExpr:
    """The number of elements; an int64 where int32 would overflow."""
    sizes = [const_value(d) for d in shape]
    if shape and None not in sizes and (count := prod(int(s) for s in sizes if s is not None)) >= 1 << 31:
        return IntImm("int64", count)
    return product(shape)


def reach(b: Buffer) -> PrimExpr:
    """The number of elements from the first to the last one of a strided buffer.

    Buffers in registers have whole rows, so that a vector at the end of the last row is in bounds.
    """
    last: PrimExpr = const(0, b.strides[0].dtype)
    for dim, stride in zip(b.shape, b.strides, strict=True):
        last = add(last, mul(sub(dim, const(1, dim.dtype)), stride))
    size = add(last, const(1, last.dtype))
    if b.scope_name != "local":
        return size
    whole, least = mul(b.shape[0], b.strides[0]), const_value(size)
    rows = const_value(whole)
    return size if rows is not None and least is not None and rows < least else whole


def flat_index(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
    """The linear index of an element; a vector if one of the indices is a vector."""
    total: PrimExpr = buffer.elem_offset
    for index, stride in zip(indices, buffer.dense_strides(), strict=True):
        if isinstance(index, Ramp) and index.base.dtype.lanes == 1:
            term: PrimExpr = Ramp(mul(index.base, stride), mul(index.stride, stride), index.lanes)
        else:
            term = mul(index, stride)
        total = _plus(total, term)
    return total


def _plus(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if isinstance(b, Ramp) and a.dtype.lanes == 1:
        return Ramp(add(a, b.base), b.stride, b.lanes)
    if isinstance(a, Ramp) and b.dtype.lanes == 1:
        return Ramp(add(a.base, b), a.stride, a.lanes)
    return add(a, b)


def _is_zero(e: Any) -> bool:
    return getattr(e, "value", None) == 0
