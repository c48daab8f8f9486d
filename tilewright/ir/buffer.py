"""Buffers: memory with a shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ..homes import home_of
from .dtype import HANDLE, INT32, DataType
from .expr import Add, BufferLoad, IntImm, PrimExpr, Ramp, Range, Sub, Var, const, const_value, convert, whole
from .node import Node, node
from .ops import add, call, floordiv, min_of, mul, product, sub
from .types import PointerType, PrimType


@node
class Buffer(Node):
    """Memory at the pointer `data`, as an array of `shape`.

    The element at indices i is at offset `elem_offset + Σ i·strides`, in elements of `dtype`; empty `strides` mean
    contiguous row-major. `scope` is the memory scope: global, shared, local, …
    `data_alignment` is in bytes; `elem_offset` is a multiple of `offset_factor`.
    """

    data: Var
    dtype: DataType
    shape: tuple[PrimExpr, ...]
    strides: tuple[PrimExpr, ...]
    elem_offset: PrimExpr
    name: str
    data_alignment: int = 64
    offset_factor: int = 1
    axis_separators: tuple[int, ...] = ()

    __iter__: ClassVar[None] = None  # else Python would ask for elements without end
    READ: ClassVar[int] = 1
    WRITE: ClassVar[int] = 2

    @property
    def scope_name(self) -> str:
        kind = self.data.type_annotation
        return (kind.storage_scope or "global") if isinstance(kind, PointerType) else "global"

    def scope(self) -> str:
        """The memory scope."""
        return self.scope_name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def const_shape(self) -> tuple[int, ...] | None:
        """The shape as Python integers, or None if a dimension is symbolic."""
        dims = [const_value(d) for d in self.shape]
        return None if any(d is None for d in dims) else tuple(int(d) for d in dims)  # type: ignore[arg-type]

    def __getitem__(self, indices: Any) -> Any:
        """`B[i, j]` is a load, `B[i, 0:4]` a vector load (or a region, for `T.reads`)."""
        items = indices if isinstance(indices, tuple) else (indices,)
        if len(items) != len(self.shape):
            raise ValueError(
                f"buffer {self.name} has {len(self.shape)} dimensions and was indexed with {len(items)}"
            )
        if not any(isinstance(i, slice) for i in items):
            return BufferLoad(self, items)
        stepped = [isinstance(i, slice) and i.step is not None for i in items]
        if not any(stepped):
            return BufferRegion.of_slices(self, items)
        if any(isinstance(i, slice) for i in items[:-1]):
            raise ValueError(f"buffer {self.name}: only the last index may be a slice with a step")
        return BufferLoad(self, (*items[:-1], self._vector_index(items[-1])))

    def _vector_index(self, part: slice) -> PrimExpr:
        """The vector index of a slice with a step."""
        start = convert(0 if part.start is None else part.start)
        stop = self.shape[-1] if part.stop is None else convert(part.stop)
        step, size = const_value(convert(part.step)), _distance(start, stop)
        if size is None or not isinstance(step, int) or step < 1:
            raise ValueError(
                f"buffer {self.name}: a slice with a step must have a constant step greater than 0 and a "
                f"constant size, not {start}:{stop}:{part.step}"
            )
        lanes = -(-size // step)
        if lanes < 1:
            raise ValueError(f"buffer {self.name}: the slice {start}:{stop}:{part.step} is empty")
        return Ramp(start, const(step, start.dtype), lanes) if lanes > 1 else start

    def vload(self, begin: Any, dtype: str | None = None, predicate: Any = None) -> PrimExpr:
        """The vector of `dtype` that starts at indices `begin`; 0 in lanes where `predicate` does not hold."""
        index = tuple(begin) if isinstance(begin, (tuple, list)) else (begin,)
        lanes = DataType(dtype or self.dtype).lanes // self.dtype.lanes
        if lanes > 1:
            index = (*index[:-1], Ramp(index[-1], const(1, convert(index[-1]).dtype), lanes))
        return BufferLoad(self, index, predicate)

    def vstore(self, begin: Any, value: Any, predicate: Any = None) -> Any:
        """The statement that stores `value` at `begin`, the lanes where `predicate` holds."""
        from .stmt import BufferStore

        index = tuple(begin) if isinstance(begin, (tuple, list)) else (begin,)
        value = convert(value)
        lanes = value.dtype.lanes // self.dtype.lanes
        if lanes > 1 and convert(index[-1]).dtype.lanes == 1:
            index = (*index[:-1], Ramp(index[-1], const(1, convert(index[-1]).dtype), lanes))
        return BufferStore(self, value, index, predicate)

    def dense_strides(self) -> tuple[PrimExpr, ...]:
        """The strides; those of row-major order if none were given."""
        if self.strides:
            return self.strides
        out: list[PrimExpr] = []
        size: PrimExpr = const(1, self.shape[-1].dtype if self.shape else INT32)
        for dim in reversed(self.shape):
            out.append(size)
            size = mul(size, dim)
        return tuple(reversed(out))

    def offset_of(self, indices: Iterable[Any]) -> list[PrimExpr]:
        """The linear offset of the element at `indices`, simplified."""
        return [home_of("arithmetic").Analyzer().simplify(self.offset_at(indices))]

    def offset_at(self, indices: Iterable[Any]) -> PrimExpr:
        """The linear offset of the element at `indices`, as a sum over the dimensions."""
        total = self.elem_offset
        for i, s in zip(indices, self.dense_strides(), strict=True):
            total = add(total, mul(convert(i), s))
        return total

    def get_flattened_buffer(self) -> Buffer:
        """This memory as an array of one dimension, or of one for each group of axes between `axis_separators`."""
        starts = [0, *self.axis_separators]
        ends = [*self.axis_separators, len(self.shape)]
        if len(self.shape) == len(starts) and not self.strides:
            return self
        sizes = tuple(self._span(start, end) for start, end in zip(starts, ends, strict=True))
        return self.replace(
            shape=sizes, strides=(), axis_separators=tuple(range(1, len(self.axis_separators) + 1))
        )

    def _span(self, start: int, end: int) -> PrimExpr:
        """The number of elements from the first to the last of a group of axes."""
        if start == end:
            return const(1, self.shape[0].dtype if self.shape else INT32)
        if self.strides:
            return mul(self.strides[start], self.shape[start])
        return product(self.shape[start:end])

    def access_ptr(
        self,
        access_mask: int | str,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: Any = 0,
        extent: Any = None,
    ) -> PrimExpr:
        """A pointer to the buffer's memory for an intrinsic; the mask is "r", "w" or "rw"."""
        if isinstance(access_mask, str):
            if not set(access_mask) <= set("rw"):
                raise ValueError(f"access_ptr of {self.name}: the mask is r, w or rw, not {access_mask!r}")
            access_mask = sum({"r": 1, "w": 2}[c] for c in set(access_mask))
        start = add(self.elem_offset, convert(offset))
        if extent is None:
            whole = mul(self.strides[0], self.shape[0]) if self.strides else product(self.shape)
            extent = sub(whole, convert(offset))
        if content_lanes > 1:
            start, extent = floordiv(start, content_lanes), floordiv(extent, content_lanes)
        annotation = call(self.dtype.with_lanes(content_lanes), "tir.type_annotation")
        return call(ptr_type, "tir.tvm_access_ptr", annotation, self.data, start, extent, access_mask)

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"Buffer({self.name}, ({dims}), {self.dtype})"


def _distance(start: PrimExpr, stop: PrimExpr) -> int | None:
    """`stop - start` where both are a constant from the same expression, else None."""
    from .equal import structural_equal

    def parts(e: PrimExpr) -> tuple[PrimExpr | None, int]:
        value = const_value(e)
        if isinstance(value, int):
            return None, value
        if isinstance(e, (Add, Sub)):
            right = const_value(e.b)
            if isinstance(right, int):
                return e.a, right if isinstance(e, Add) else -right
        return e, 0

    (a, low), (b, high) = parts(start), parts(stop)
    same = a is b or (a is not None and b is not None and structural_equal(a, b))
    return high - low if same else None


@node
class BufferRegion(Node):
    """A box of a buffer: one range for each dimension."""

    buffer: Buffer
    region: tuple[Range, ...]

    @staticmethod
    def of_slices(buffer: Buffer, items: Sequence[Any]) -> BufferRegion:
        ranges = []
        for item, dim in zip(items, buffer.shape, strict=True):
            if isinstance(item, slice):
                start = convert(0 if item.start is None else item.start)
                stop = dim if item.stop is None else convert(item.stop)
                ranges.append(Range(start, stop))
            elif isinstance(item, Range):
                ranges.append(item)
            else:
                index = convert(item)
                ranges.append(Range.from_min_extent(index, const(1, index.dtype)))
        return BufferRegion(buffer, tuple(ranges))

    @staticmethod
    def full(buffer: Buffer) -> BufferRegion:
        """All of the buffer."""
        zero = [const(0, d.dtype) for d in buffer.shape]
        return BufferRegion(
            buffer, tuple(Range.from_min_extent(z, d) for z, d in zip(zero, buffer.shape, strict=True))
        )

    @staticmethod
    def point(buffer: Buffer, indices: Iterable[PrimExpr]) -> BufferRegion:
        """The one element at `indices`."""
        return BufferRegion(buffer, tuple(Range.from_min_extent(i, const(1, i.dtype)) for i in indices))


@node
class MatchBufferRegion(Node):
    """Inside a block, `buffer` is an alias of the region `source`."""

    buffer: Buffer
    source: BufferRegion


def _broadcast_strides(shape: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The strides of row-major order, and 0 where a dimension is 1: min(dim - 1, 1) is 0 there, and 1 elsewhere."""
    out: list[PrimExpr] = []
    size: PrimExpr = const(1, shape[-1].dtype) if shape else const(1)
    for dim in reversed(shape):
        one = const(1, dim.dtype)
        out.append(mul(min_of(sub(dim, one), one), size))
        size = mul(size, dim)
    return tuple(reversed(out))


def decl_buffer(
    shape: Any,
    dtype: str | None = None,
    name: str = "buffer",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Any = None,
    span: Any = None,
) -> Buffer:
    """A buffer; by default contiguous, aligned to 64 bytes, with offset 0 in memory of its own.

    With `buffer_type="auto_broadcast"` a dimension that has the size 1 when the program runs stands for any size.
    """
    if buffer_type not in ("", "default", "auto_broadcast"):
        raise ValueError(
            f"decl_buffer(buffer_type={buffer_type!r}): the types are 'default' and 'auto_broadcast'"
        )
    dims = tuple(convert(whole(d)) for d in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    kind = DataType(dtype or "float32")
    if data is None:
        # A bool is stored as a byte.
        data = Var(name, PointerType(PrimType(kind), scope or "global"))
    elif scope and isinstance(data.type_annotation, PointerType) and data.dtype is HANDLE:
        held = data.type_annotation.storage_scope or "global"
        if held != scope:
            raise ValueError(f"buffer {name}: scope {scope!r}, but its data pointer is in {held!r}")
    if buffer_type == "auto_broadcast":
        if strides:
            raise ValueError(
                f"buffer {name}: a buffer that broadcasts has the strides of its shape; give none"
            )
        strides = _broadcast_strides(dims)
    index_type = dims[0].dtype if dims else INT32
    if offset_factor and elem_offset is None:
        elem_offset = Var(f"{name}_elem_offset", index_type)
    made = Buffer(
        data,
        kind,
        dims,
        tuple(convert(whole(s)) for s in strides or ()),
        IntImm(index_type, 0) if elem_offset is None else convert(elem_offset),
        name,
        64 if data_alignment <= 0 else int(data_alignment),
        offset_factor or 1,
        tuple(int(a) for a in axis_separators or ()),
    )
    made.span = span
    return made
