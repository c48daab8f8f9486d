"""Views that TMA copies read through: stages that only rearrange the elements of their source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from ...ir.expr import GE, GT, LE, LT, BufferLoad, Call, FloorMod, PrimExpr, Range, Var, const, const_value
from ...ir.functor import substitute, vars_used
from ...ir.op import Op
from ...ir.ops import add, conjuncts, floordiv, floormod, mul, sub
from ...ir.stmt import Block, BufferStore

# annotation of a block: the sizes of the result axes that its first index linearizes, row-major
VIEW = "tilewright.view"
_LINE = 128  # bytes of a line within which TMA swizzles
_PIECE = 16  # alignment of the pixels of an image, in bytes
_MOST_STEPS = 8
_CORNERS = {
    3: 1 << 15,
    4: 1 << 7,
    5: 1 << 4,
}  # by rank: how far the im2col box may begin and end outside of the tensor


def line_of(kind: DataType) -> int:
    """The elements of a swizzled line of shared memory: 64 of 16 bits, 32 of 32 bits."""
    return _LINE // kind.nbytes


def guarded_load(value: PrimExpr) -> tuple[BufferLoad, list[PrimExpr]] | str:
    """A load, and the conditions outside of which the value is 0; refuses any other value."""
    conditions: list[PrimExpr] = []
    while isinstance(value, Call) and isinstance(value.op, Op) and value.op.short_name == "if_then_else":
        if const_value(value.args[2]) != 0:
            return "elements outside the tensor are 0"
        conditions += conjuncts(value.args[0])
        value = value.args[1]
    return (value, conditions) if isinstance(value, BufferLoad) else "it copies elements as they are"


def only_ends(
    ana: Analyzer, conditions: Sequence[PrimExpr], places: Sequence[PrimExpr], shape: Sequence[PrimExpr]
) -> PrimExpr | None:
    """The first condition that does more than check the bounds of the tensor."""
    ends: list[PrimExpr] = []
    for place, dim in zip(places, shape, strict=True):
        ends += [place, sub(sub(dim, const(1, dim.dtype)), place)]  # both are non-negative in bounds
    for c in conditions:
        room = _room(c)
        if room is None or not any(ana.can_prove_equal(room, end) for end in ends):
            return c
    return None


def _room(c: PrimExpr) -> PrimExpr | None:
    """The expression that a comparison requires to be non-negative."""
    one = const(1, c.a.dtype) if isinstance(c, (LT, LE, GT, GE)) else None
    if isinstance(c, (LT, GT)):
        low, high = (c.a, c.b) if isinstance(c, LT) else (c.b, c.a)
        return sub(sub(high, low), one)
    if isinstance(c, (LE, GE)):
        low, high = (c.a, c.b) if isinstance(c, LE) else (c.b, c.a)
        return sub(high, low)
    return None


class View:
    """`View[m, k] = Source[…]`, either the same memory in other dimensions (`same`), or windows of an image."""

    def __init__(self, buffer: Buffer, source: Buffer, windows: Windows | None) -> None:
        self.buffer, self.source, self.windows = buffer, source, windows

    @property
    def same(self) -> Buffer:
        """The view as a buffer over the memory of its source."""
        return self.buffer.replace(data=self.source.data, elem_offset=self.source.elem_offset)


class Windows:
    """The pixels of a channels-last image, one window after the other, in the order in which TMA visits them.

        m = (n * oh + y) * ow + x
        View[m, k] = Image[n, y * steps[0] + offsets[0](k) + low[0], x * steps[1] + offsets[1](k) + low[1], channel(k)]

    A walk begins at `low` in each spatial dimension, and wraps around after as many pixels as the result has.
    """

    def __init__(self, k: Var, sizes: Sequence[int], pixels: PrimExpr) -> None:
        self.k, self.sizes, self.pixels = k, sizes, pixels
        self.low: list[int] = []
        self.steps: list[int] = []
        self.offsets: list[PrimExpr] = []
        self.channel: PrimExpr = k

    def first(self, ana: Analyzer, m: PrimExpr) -> list[PrimExpr]:
        """The start of the walk at a pixel: the image, and the coordinate in each spatial dimension."""
        digits = _digits(m, self.sizes)
        spatial = [
            add(mul(d, const(s, d.dtype)), const(low, d.dtype))
            for d, s, low in zip(digits[1:], self.steps, self.low, strict=True)
        ]
        return [ana.simplify(e) for e in (digits[0], *spatial)]

    def corners(self, shape: Sequence[int]) -> tuple[list[int], list[int]]:
        """The corners of the im2col bounding box, relative to the first and to the last element of each dimension."""
        high = [
            low + (count - 1) * step - (size - 1)
            for low, count, step, size in zip(self.low, self.sizes[1:], self.steps, shape, strict=True)
        ]
        return self.low, high


def _digits(m: PrimExpr, sizes: Sequence[int]) -> list[PrimExpr]:
    """A linear index in mixed-radix digits, the last one fastest; the first is unbounded."""
    out: list[PrimExpr] = []
    below = 1
    for n in reversed(sizes[1:]):
        out.append(floormod(floordiv(m, const(below, m.dtype)), const(n, m.dtype)))
        below *= n
    return [floordiv(m, const(below, m.dtype)), *reversed(out)]


def view_of(block: Block, point: Sequence[tuple[Var, Range]]) -> View:
    """The view of a marked block, whose iterators or loops are the variables of `point`."""
    found = find_view(block.body, point, block.annotations[VIEW])
    if isinstance(found, str):
        raise LoweringError(
            f"block {block.name_hint} cannot be a view, which requires that {found}; remove {VIEW!r} from it"
        )
    return found


def find_view(body: Any, point: Sequence[tuple[Var, Range]], sizes: Sequence[int]) -> View | str:
    """The view that a statement fills, with `sizes` as the annotation `VIEW` gives them; else the requirement that it
    does not meet."""
    loaded = guarded_load(body.value) if isinstance(body, BufferStore) else "it copies elements as they are"
    if isinstance(loaded, str):
        return loaded
    load, conditions = loaded
    if [v for v, _ in point] != list(body.indices):
        return "its loops are its indices"
    ana = Analyzer()
    for v, dom in point:
        ana.bind_range(v, dom)
    source, places, view = load.buffer, load.indices, body.buffer
    if source.dtype is not view.dtype:
        return "its elements have the type of its source"
    if not conditions and ana.can_prove_equal(
        source.offset_at(load.indices),
        add(view.offset_at(body.indices), source.elem_offset),
    ):
        return View(view, source, None)
    joined = _joined(ana, load, conditions, point[-1][0])
    if joined is not None:
        source, places = joined
    beyond = only_ends(ana, conditions, places, source.shape)
    if beyond is not None:
        return f"the condition `{beyond}` is only a bounds check of the tensor"
    windows = _windows(ana, [int(n) for n in sizes], source, places, [v for v, _ in point])
    return windows if isinstance(windows, str) else View(view, source, windows)


def _joined(
    ana: Analyzer, load: BufferLoad, conditions: Sequence[PrimExpr], k: Var
) -> tuple[Buffer, tuple[PrimExpr, ...]] | None:
    """Windows along the last dimension of an image with few channels as its channels: they are contiguous. The pixels
    of the resulting image overlap.

        Image[n, y, x * s + k % 32 // 4, k % 4] if k % 32 < 28     ->     Joined[n, y, x * s, k % 32], 28 channels
    """
    source = load.buffer
    sizes = [const_value(d) for d in source.shape]
    if len(sizes) < 3 or None in sizes or source.strides:
        return None
    shape = [int(n or 0) for n in sizes]
    wide, few = shape[-2:]
    column, channel = load.indices[-2:]
    zero = const(0, k.dtype)
    begin = ana.simplify(substitute(column, {k: zero}))
    line = ana.simplify(add(mul(sub(column, begin), const(few, k.dtype)), channel))
    if few >= line_of(source.dtype) or few * source.dtype.nbytes % _PIECE or k not in vars_used(column):
        return None
    if not (line is k or (isinstance(line, FloorMod) and line.a is k)):
        return None
    ends = [const_value(ana.simplify(add(room, line))) for room in map(_room, conditions) if room is not None]
    most = [int(e) for e in ends if e is not None] or [ana.const_int_bound(line).max_value]
    count = min(most) + 1
    row = wide * few
    steps = [row * math.prod(shape[i + 1 : -2]) for i in range(len(shape) - 2)]
    made = source.replace(
        shape=tuple(const(n, k.dtype) for n in (*shape[:-2], (row - count) // few + 1, count)),
        strides=tuple(const(s, k.dtype) for s in (*steps, few, 1)),
    )
    return made, (*load.indices[:-2], begin, line)


def _windows(
    ana: Analyzer, sizes: list[int], source: Buffer, places: Sequence[PrimExpr], point: list[Var]
) -> Windows | str:
    """The windows of a view, or the requirement that they do not meet."""
    shape = [const_value(d) for d in source.shape]
    rank = len(shape)
    if len(point) != 2 or rank not in _CORNERS or len(sizes) != rank - 1 or None in shape:
        return "it has pixels and elements of windows, and its source is images of one to three dimensions"
    m, k = point
    zero = const(0, m.dtype)
    out = Windows(k, sizes, const(math.prod(sizes), m.dtype))
    digits = _digits(m, sizes)
    below = 1
    found: list[tuple[int, int, PrimExpr]] = []
    for e, digit, n in reversed(list(zip(places[1:-1], digits[1:], sizes[1:], strict=True))):
        low = const_value(ana.simplify(substitute(e, {m: zero, k: zero})))
        next_one = ana.simplify(substitute(e, {m: const(below, m.dtype), k: zero}))
        step = const_value(next_one - low) if n > 1 and low is not None else 1
        below *= n
        if low is None or step is None:
            return f"the index `{e}` has a constant stride from pixel to pixel"
        offset = ana.simplify(sub(substitute(e, {m: zero}), const(int(low), m.dtype)))
        whole = add(add(mul(digit, const(int(step), m.dtype)), offset), const(int(low), m.dtype))
        if not ana.can_prove_equal(e, whole) or not 1 <= step <= _MOST_STEPS:
            return f"the index `{e}` has strides of 1 to {_MOST_STEPS} over pixels and windows"
        found.append((int(low), int(step), offset))
    for low, step, offset in reversed(found):
        out.low.append(low)
        out.steps.append(step)
        out.offsets.append(offset)
    out.channel = places[-1]
    if m in vars_used(out.channel) or not ana.can_prove_equal(places[0], digits[0]):
        return "its first index selects the image, its last one the channel"
    limit = _CORNERS[rank]
    ends = [e for corner in out.corners([int(n or 0) for n in shape[1:-1]]) for e in corner]
    if not all(-limit <= e < limit for e in ends) or not all(
        ana.const_int_bound(o).min_value >= 0 and ana.const_int_bound(o).max_value < 2 * limit
        for o in out.offsets
    ):
        return f"windows begin and end less than {limit} beyond the image"
    return out
