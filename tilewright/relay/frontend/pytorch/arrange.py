"""Other shapes and orders, parts, joins, copies, padding, new tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.expr import PrimExpr
from ...expr import Expr
from ..common.pads import padded
from .build import (
    R,
    cast,
    constant,
    full,
    literal,
    permute,
    places,
    rank,
    reshape,
    scatter_rows,
    shape_of,
    sizes_of,
)
from .table import Refusal, Site, aten, rows


# ---------------------------------------------------------------------------- shapes
@aten("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy", "_reshape_copy", "unflatten", "flatten",
      "unsqueeze", "squeeze", "unsqueeze_copy", "squeeze_copy", "ravel")  # fmt: skip
def view(
    n: Site,
    x: Expr,
    size: Any = None,
    shape: Any = None,
    sizes: Any = None,
    dim: Any = None,
    start_dim: Any = None,
    end_dim: Any = None,
    stride: Any = None,
) -> Expr:
    """The same elements in the same order; the shape of the result says it all."""
    return reshape(x, n.shape)


rows(
    {
        "view.dtype": lambda n, x, dtype: R.reinterpret(x, dtype),
        "permute permute_copy": lambda n, x, dims: permute(x, dims),
        "expand expand_copy expand_as broadcast_to": lambda n, x, size=None, other=None, implicit=None: (
            x if shape_of(x) == n.shape else R.broadcast_to(x, n.shape)
        ),
        "stack": lambda n, tensors, dim=0: R.stack([n.to(e) for e in tensors], dim % len(n.shape)),
    }
)


@aten("transpose", "swapaxes", "transpose_copy", "swapdims")
def transpose(n: Site, x: Expr, dim0: int, dim1: int) -> Expr:
    order = list(range(rank(x)))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(x, order)


@aten("t", "numpy_T", "t_copy", "adjoint", "mT")
def t(n: Site, x: Expr) -> Expr:
    order = list(range(rank(x)))
    return permute(x, order if rank(x) < 2 else [*order[:-2], order[-1], order[-2]])


@aten("movedim.int")
def movedim(n: Site, x: Expr, source: int, destination: int) -> Expr:
    order = list(range(rank(x)))
    moved = order.pop(source)
    order.insert(destination % rank(x), moved)
    return permute(x, order)


# ---------------------------------------------------------------------------- joins and parts
@aten("cat", "concat", "concatenate")
def cat(n: Site, tensors: list[Expr], dim: int = 0) -> Expr:
    # torch lets an empty list of numbers stand beside tensors of any rank
    kept = [n.to(e) for e in tensors if shape_of(e) != (0,) or len(n.shape) == 1]
    kept = [e for e in kept if shape_of(e)[dim] != 0] or kept[:1]
    return kept[0] if len(kept) == 1 else R.concatenate(kept, dim % rank(kept[0]))


@aten("split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk",
      "split_with_sizes_copy", "tensor_split")  # fmt: skip
def split(
    n: Site,
    x: Expr,
    split_size: Any = None,
    split_sizes: Any = None,
    chunks: Any = None,
    sections: Any = None,
    indices: Any = None,
    dim: int = 0,
) -> Any:
    """The parts one behind the other; the shapes of the results say how large each is."""
    at = dim % rank(x)
    sizes = [kind.shape[at] for kind in n.kinds if kind is not None]
    if len(sizes) == 1:
        return [x]
    if not all(isinstance(s, int) for s in sizes):
        raise Refusal("parts of dynamic sizes are not supported")
    return R.split(x, [int(e) for e in np.cumsum(sizes)[:-1]], at)


@aten("unbind", "unbind_copy")
def unbind(n: Site, x: Expr, dim: int = 0) -> list[Any]:
    at = dim % rank(x)
    if len(n.kinds) == 1:
        return [R.squeeze(x, [at])]
    parts = R.split(x, len(n.kinds), at)
    return [R.squeeze(p, [at]) for p in parts]


@aten("slice", "slice_copy")
def slice_(n: Site, x: Expr, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Expr:
    if shape_of(x) == n.shape and step == 1:
        return x
    at = dim % rank(x)
    size = shape_of(x)[at]
    first, last = _bound(start, 0, size), _bound(end, size, size)
    made = R.strided_slice(x, [first], [last], [step], axes=[at])
    return reshape(made, n.shape) if not isinstance(size, int) else made


def _bound(value: Any, default: Any, size: Any) -> Any:
    """A bound of a slice; those beyond 32 bits mean the end."""
    if value is None:
        return default
    if isinstance(value, PrimExpr):
        return value
    if isinstance(size, int):
        return min(max(value + size if value < 0 else value, 0), size)
    return size if value > 2**31 - 1 else value


@aten("select", "select_copy")
def select(n: Site, x: Expr, dim: int, index: Any) -> Expr:
    at = dim % rank(x)
    if isinstance(index, PrimExpr):
        raise Refusal("an index that depends on sizes is not supported")
    place = _front(index, shape_of(x)[at])
    return R.squeeze(R.strided_slice(x, [place], [place + 1], [1], axes=[at]), [at])


def _front(index: int, size: Any) -> int:
    if index >= 0:
        return index
    if not isinstance(size, int):
        raise Refusal("a negative index into a dynamic size is not supported")
    return index + size


@aten("slice_scatter")
def slice_scatter(
    n: Site, x: Expr, src: Expr, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Expr:
    at = dim % rank(x)
    if not isinstance(start, (int, type(None))) and step == 1:  # from a place that depends on sizes
        count = sizes_of(src, "writing a slice")[at]
        line = R.add(n.to(start, "int64"), constant(np.arange(count)))
        return scatter_rows(x, cast(src, n.dtype), at, reshape(line, (1, count)), "update")
    size = sizes_of(x, "writing a slice")[at]
    rows = range(size)[slice(start, end, step)]
    src = R.broadcast_to(cast(src, n.dtype), (*n.shape[:at], len(rows), *n.shape[at + 1 :]))
    if len(rows) == size:
        return src
    if step == 1:  # what is before it, it, what is behind it
        parts = [(0, rows.start), (rows.stop, size)]
        around = [R.strided_slice(x, [a], [b], [1], axes=[at]) if b > a else None for a, b in parts]
        return R.concatenate([e for e in (around[0], src, around[1]) if e is not None], at)
    return scatter_rows(x, src, at, places([list(rows)]), "update")


@aten("select_scatter")
def select_scatter(n: Site, x: Expr, src: Expr, dim: int, index: int) -> Expr:
    at = dim % rank(x)
    place = _front(index, shape_of(x)[at])
    return slice_scatter(n, x, R.expand_dims(src, at), at, place, place + 1, 1)


# ---------------------------------------------------------------------------- copies and orders
rows(
    {
        "flip": lambda n, x, dims: R.reverse(x, [d % rank(x) for d in dims]) if dims and rank(x) else x,
        "tril": lambda n, x, diagonal=0: _corner(n, x, diagonal, lower=True),
        "triu": lambda n, x, diagonal=0: _corner(n, x, diagonal, lower=False),
        "narrow": lambda n, x, dim, start, length: R.strided_slice(
            x, [start], [start + length], [1], axes=[dim % rank(x)]
        ),
        "repeat tile": lambda n, x, repeats=None, dims=None: R.tile(
            x, list(repeats if repeats is not None else dims)
        ),
        "repeat_interleave.self_int": lambda n, x, repeats, dim=None, output_size=None: R.repeat(
            x, repeats, None if dim is None else dim % rank(x)
        ),
    }
)


@aten("roll")
def roll(n: Site, x: Expr, shifts: Any, dims: Any = ()) -> Expr:
    moves = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    if not dims:
        sizes = sizes_of(x, "rolling all elements")
        return reshape(roll(n, reshape(x, (int(np.prod(sizes)),)), moves, [0]), sizes)
    for by, dim in zip(moves, dims if isinstance(dims, (list, tuple)) else [dims], strict=True):
        size = sizes_of(x, "rolling")[dim]
        by = by % size if size else 0
        if by:
            head, tail = R.split(x, [size - by], dim % rank(x))
            x = R.concatenate([tail, head], dim % rank(x))
    return x


def _corner(n: Site, x: Expr, diagonal: int, lower: bool) -> Expr:
    if not isinstance(shape_of(x)[-1], int) or not isinstance(shape_of(x)[-2], int):
        return R.trilu(x, literal(diagonal, "int32"), not lower)
    ones = np.ones(shape_of(x)[-2:], bool)
    mask = np.tril(ones, diagonal) if lower else np.triu(ones, diagonal)
    return R.where(constant(mask), x, literal(0, n.dtype))


@aten("diagonal", "diagonal_copy")
def diagonal(n: Site, x: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    a, b = dim1 % rank(x), dim2 % rank(x)
    front = permute(x, [a, b, *(d for d in range(rank(x)) if d not in (a, b))])
    count = n.shape[-1]
    rows = np.arange(count) + max(-offset, 0)
    columns = np.arange(count) + max(offset, 0)
    found = R.gather_nd(front, places(np.stack([rows, columns])))
    return permute(found, [*range(1, rank(x) - 1), 0])


@aten("unfold", "unfold_copy")
def unfold(n: Site, x: Expr, dimension: int, size: int, step: int) -> Expr:
    """Windows along a dimension, their elements along a new last one."""
    if not rank(x):
        return reshape(x, n.shape)
    at = dimension % rank(x)
    count = (sizes_of(x, "unfolding")[at] - size) // step + 1
    windows = np.arange(count)[:, None] * step + np.arange(size)[None, :]
    made = R.take(x, places(windows), axis=at)
    return permute(made, [*range(at + 1), *range(at + 2, rank(x) + 1), at + 1])


@aten("as_strided")
def as_strided(
    n: Site, x: Expr, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Expr:
    """Elements selected by their offsets in the memory of a contiguous tensor."""
    wanted = np.full(size, storage_offset or 0)
    for d, (count, by) in enumerate(zip(size, stride, strict=True)):
        wanted += (np.arange(count) * by).reshape([-1 if i == d else 1 for i in range(len(size))])
    total = int(np.prod(sizes_of(x, "as_strided")))
    flat = reshape(x, (total,))
    if wanted.size == total and (wanted.reshape(-1) == np.arange(total)).all():
        return reshape(flat, n.shape)
    return R.take(flat, places(wanted), axis=0)


@aten("pixel_shuffle")
def pixel_shuffle(n: Site, x: Expr, upscale_factor: int) -> Expr:
    r, lead, (c, h, w) = upscale_factor, list(shape_of(x)[:-3]), shape_of(x)[-3:]
    k = len(lead)
    parted = reshape(x, [*lead, c // (r * r), r, r, h, w])
    return reshape(permute(parted, [*range(k), k, k + 3, k + 1, k + 4, k + 2]), n.shape)


@aten("pixel_unshuffle")
def pixel_unshuffle(n: Site, x: Expr, downscale_factor: int) -> Expr:
    r, lead, (c, h, w) = downscale_factor, list(shape_of(x)[:-3]), shape_of(x)[-3:]
    k = len(lead)
    parted = reshape(x, [*lead, c, h // r, r, w // r, r])
    return reshape(permute(parted, [*range(k), k, k + 2, k + 4, k + 1, k + 3]), n.shape)


@aten("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(n: Site, x: Expr, groups: int) -> Expr:
    batch, c, *rest = shape_of(x)
    parted = reshape(x, [batch, groups, c // groups, *rest])
    return reshape(permute(parted, [0, 2, 1, *range(3, 3 + len(rest))]), n.shape)


# ---------------------------------------------------------------------------- padding
def _widths(x: Expr, pad: Sequence[int]) -> list[tuple[int, int]]:
    """(before, after) for each dimension, from torch's list, which begins at the last one."""
    pairs = list(zip(pad[0::2], pad[1::2], strict=True))[::-1]
    return [(0, 0)] * (rank(x) - len(pairs)) + pairs


# ---------------------------------------------------------------------------- new tensors
@aten("full_like", "new_full", "full")
def full_like(n: Site, fill_value: Any) -> Expr:
    if isinstance(fill_value, Expr):
        return R.broadcast_to(n.to(fill_value), n.shape)
    return full(fill_value, n.shape, n.dtype)


rows(
    {
        # `x` is not taken by what only asks for its shape; a form whose size is given has it in `size`.
        "zeros_like new_zeros zeros empty_like new_empty empty new_empty_strided": (
            lambda n, size=None, stride=None, dtype=None: full(0, n.shape, n.dtype)
        ),
        "ones_like new_ones ones": (lambda n, size=None, stride=None, dtype=None: full(1, n.shape, n.dtype)),
        "fill": lambda n, x, value: full_like(n, value),
        "copy": lambda n, x, src: (
            R.broadcast_to(n.to(src), n.shape) if shape_of(src) != n.shape else n.to(src)
        ),
        "scalar_tensor": lambda n, s: n.to(s),
        "constant_pad_nd": lambda n, x, pad, value=0: padded(x, _widths(x, pad), value=n.to(value)),
        "reflection_pad1d reflection_pad2d reflection_pad3d": lambda n, x, padding: padded(
            x, _widths(x, padding), "reflect"
        ),
        "replication_pad1d replication_pad2d replication_pad3d": lambda n, x, padding: padded(
            x, _widths(x, padding), "edge"
        ),
    }
)


@aten("arange")
def arange(n: Site, end: Any, start: Any = 0, step: Any = 1) -> Expr:
    """Numbers up to a bound that depends on sizes; others are known at import."""
    steps = R.cumsum(full(1, n.shape, n.dtype), 0, n.dtype, True)
    return R.add(R.multiply(steps, n.to(step)), n.to(start))


@aten("meshgrid")
def meshgrid(n: Site, tensors: list[Expr], indexing: str = "ij") -> list[Any]:
    out = []
    for i, e in enumerate(tensors):
        at = i if indexing == "ij" or i > 1 else 1 - i
        shape = [1] * len(tensors)
        shape[at] = shape_of(e)[0] if rank(e) else 1
        out.append(R.broadcast_to(reshape(e, shape), n.shape))
    return out
