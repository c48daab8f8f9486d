"""Strided slices: strided_slice, and writing to a slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..ir import ops
from ..ir.expr import ExprOp, IntImm, PrimExpr, convert
from ..te.tensor import checked_shape
from .utils import (
    ceil_div,
    clamped,
    equal_const_int,
    fail,
    get_const_tuple,
    injective,
    int_list,
    normalize_axes,
    same_size,
    shape_text,
    shown,
    simplify,
    static_int,
    tensor_arg,
)

__all__ = ["dynamic_strided_slice", "strided_set", "strided_slice"]

_FAR = 2**31 - 1  # an index from here on means "to the end"


class _Range:
    """start, start + step, … before stop, `count` of them, inside a dimension."""

    def __init__(self, start: Any, stop: Any, step: int) -> None:
        self.start, self.step = start, step
        if isinstance(start, int) and isinstance(stop, int):
            self.count: Any = len(range(start, stop, step))
        else:
            span = ops.sub(stop, start) if step > 0 else ops.sub(start, stop)
            self.count = simplify(ops.max_of(ceil_div(span, abs(step)), 0))

    def place(self, i: Any) -> PrimExpr:
        return ops.add(self.start, ops.mul(i, self.step))


def _inside(value: Any, size: Any, low: Any, high: Any, far: int) -> Any:
    """A non-negative index clamped between `low` and `high`; a symbolic one is unchanged."""
    if isinstance(value, ExprOp):
        return value
    if abs(value) >= far:
        return high if value > 0 else low
    if isinstance(size, int):
        return min(max(value + size if value < 0 else value, low), high)
    if value < 0:
        return simplify(ops.max_of(ops.add(size, value), low))
    return 0 if value == 0 else simplify(ops.min_of(value, high))


def _range(begin: Any, end: Any, step: int, size: Any) -> _Range:
    """What `begin:end:step` means for a dimension, as in Python; None is the end in that direction."""
    low: Any = 0 if step > 0 else -1
    high: Any = size if step > 0 else (size - 1 if isinstance(size, int) else simplify(ops.sub(size, 1)))
    first, last = (low, high) if step > 0 else (high, low)
    start = first if begin is None else _inside(begin, size, low, high, _FAR)
    stop = last if end is None else _inside(end, size, low, high, _FAR)
    return _Range(start, stop, step)


def _places(name: str, argument: str, value: Any, count: int) -> list[Any]:
    """The entries of begin or end, None where they are left out."""
    listed = list(value) if isinstance(value, (tuple, list)) or hasattr(value, "tolist") else [value]
    out = [None if v is None else int_list(name, argument, v)[0] for v in listed]
    if len(out) > count:
        raise fail(name, f"{argument} has {len(out)} entries for {count} dimensions")
    return out + [None] * (count - len(out))


def _ranges(
    name: str, x: te.Tensor, begin: Any, end: Any, strides: Any, axes: Any, mode: str
) -> list[_Range]:
    """What is taken of each dimension of `x`."""
    dims = list(range(x.ndim)) if axes is None else list(normalize_axes(name, axes, x.ndim, "axes"))
    begins = _places(name, "begin", [] if begin is None else begin, len(dims))
    ends = _places(name, "end", [] if end is None else end, len(dims))
    steps = _places(name, "strides", [1] if strides is None else strides, len(dims))
    sizes = get_const_tuple(x.shape)
    out = [_Range(0, size, 1) for size in sizes]
    for d, b, e, s in zip(dims, begins, ends, steps):
        step = 1 if s is None or mode == "size" else static_int(name, "strides", s)
        if step == 0:
            raise fail(name, "strides has 0: it would never end")
        if mode == "size" and e is not None:
            start = _range(b, None, 1, sizes[d]).start
            e = None if isinstance(e, int) and e < 0 else simplify(ops.add(start, e))
            e = e.value if isinstance(e, IntImm) else e
        out[d] = _range(b, e, step, sizes[d])
    return out


def strided_slice(
    a: te.Tensor,
    begin: Any,
    end: Any,
    strides: Any = None,
    axes: Any = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> te.Tensor:
    """`a[begin:end:strides]` for each dimension (or those in `axes`), as Python slices.

    With slice_mode "size", `end` has the sizes of the parts and -1 takes the rest; steps are then 1. A symbolic
    index must be in bounds. Of bounds that are tensors the sizes of the result are variables, whose values are
    those of the array that the caller gives for it.
    """
    x = tensor_arg("strided_slice", "a", a)
    if any(isinstance(p, te.Tensor) for p in (begin, end, strides)):
        if axes is not None or slice_mode != "end":
            raise fail(
                "strided_slice", "begin, end or strides is a tensor, and then there are no axes or sizes"
            )
        sizes = [te.size_var(f"{x.name}_slice_{d}") for d in range(x.ndim)]
        return dynamic_strided_slice(x, begin, end, strides, sizes)
    if slice_mode not in ("end", "size"):
        raise fail("strided_slice", f"slice_mode is {shown(slice_mode)} and may be 'end' or 'size'")
    ranges = _ranges("strided_slice", x, begin, end, strides, axes, slice_mode)
    return injective(
        "strided_slice",
        [r.count for r in ranges],
        lambda *i: x(*(r.place(p) for r, p in zip(ranges, i))),
    )


def dynamic_strided_slice(
    a: te.Tensor, begin: Any, end: Any, strides: Any, output_shape: Sequence[Any]
) -> te.Tensor:
    """`a[begin:end:strides]` whose bounds are tensors and whose shape is given.

    Negative bounds count from the end; out-of-bounds ones are clamped.
    """
    x = tensor_arg("dynamic_strided_slice", "a", a)
    sizes = checked_shape(output_shape)
    if len(sizes) != x.ndim:
        raise fail("dynamic_strided_slice", f"output_shape has {len(sizes)} dimensions and `a` has {x.ndim}")
    starts = _reader("dynamic_strided_slice", "begin", begin, x.ndim)
    steps = _reader("dynamic_strided_slice", "strides", strides, x.ndim)

    def element(*i: Any) -> PrimExpr:
        at = []
        for d, p in enumerate(i):
            size, start = x.shape[d], starts(d)
            if start is None:
                at.append(p)
                continue
            step = steps(d)
            start = _wrapped(start, size)
            place = ops.add(start, ops.mul(ops.cast(p.dtype, p), convert(1 if step is None else step)))
            at.append(clamped(place, size))
        return x(*at)

    return injective("dynamic_strided_slice", sizes, element)


def _wrapped(place: Any, size: Any) -> PrimExpr:
    """A non-negative index, clamped to the dimension."""
    place = ops.select(ops.less(place, 0), ops.add(place, size), place)
    return ops.max_of(ops.min_of(place, ops.sub(size, 1)), 0)


def _reader(name: str, argument: str, value: Any, ndim: int) -> Any:
    """The entries of a list or of a tensor of one dimension; None beyond its end."""
    if not isinstance(value, te.Tensor):
        listed = _places(name, argument, [] if value is None else value, ndim)
        return lambda d: listed[d]
    if value.ndim != 1 or not value.dtype.is_integral:
        raise fail(name, f"{argument} `{value.name}` must be a list of integers")
    count = static_int(name, f"the length of {argument}", value.shape[0])
    return lambda d: value(d) if d < count else None


def strided_set(a: te.Tensor, v: te.Tensor, begin: Any, end: Any, strides: Any = None) -> te.Tensor:
    """The tensor with `a[begin:end:strides] = v` done; the places are lists or tensors of integers."""
    x, new = tensor_arg("strided_set", "a", a), tensor_arg("strided_set", "v", v)
    if x.dtype is not new.dtype:
        raise fail("strided_set", f"v is {new.dtype} and a is {x.dtype}", "cast one of them")
    if new.ndim != x.ndim:
        raise fail("strided_set", f"v has {new.ndim} dimensions and a has {x.ndim}")
    if any(isinstance(p, te.Tensor) for p in (begin, end, strides)):
        return _set_by_tensors(x, new, begin, end, strides)
    ranges = _ranges("strided_set", x, begin, end, strides, None, "end")
    for d, r in enumerate(ranges):
        if not equal_const_int(new.shape[d], 1) and not same_size(new.shape[d], convert(r.count)):
            raise fail(
                "strided_set",
                f"v of shape {shape_text(new.shape)} does not fit: dimension {d} has {r.count} places",
            )

    def element(*i: Any) -> PrimExpr:
        inside: list[PrimExpr] = []
        at: list[Any] = []
        for d, (p, r) in enumerate(zip(i, ranges)):
            off = ops.sub(p, r.start) if r.step > 0 else ops.sub(r.start, p)
            step = abs(r.step)
            place = ops.floordiv(off, step)
            inside += [ops.greater_equal(off, 0), ops.less(place, r.count)]
            if step > 1:
                inside.append(ops.equal(ops.floormod(off, step), 0))
            at.append(te.const(0) if equal_const_int(new.shape[d], 1) else place)
        return ops.if_then_else(ops.all(*inside), new(*at), x(*i)) if i else new()

    return injective("strided_set", x.shape, element)


def _set_by_tensors(x: te.Tensor, new: te.Tensor, begin: Any, end: Any, strides: Any) -> te.Tensor:
    begins = _reader("strided_set", "begin", begin, x.ndim)
    ends = _reader("strided_set", "end", end, x.ndim)
    steps = _reader("strided_set", "strides", strides, x.ndim)

    def moved(place: Any, size: Any, low: PrimExpr, high: PrimExpr) -> PrimExpr:
        place = ops.select(ops.less(place, 0), ops.add(place, size), place)
        return ops.cast(low.dtype, ops.max_of(ops.min_of(place, high), low))

    def element(*i: Any) -> PrimExpr:
        inside: list[PrimExpr] = []
        at: list[Any] = []
        for d, p in enumerate(i):
            size, b, e = x.shape[d], begins(d), ends(d)
            s = convert(1 if steps(d) is None else steps(d))
            # A step longer than the dimension is equivalent to one of its size.
            s = ops.cast(p.dtype, ops.max_of(ops.min_of(s, size), ops.sub(0, size)))
            up = ops.greater(s, 0)
            low = ops.select(up, te.const(0, p.dtype), te.const(-1, p.dtype))
            high = ops.select(up, size, ops.sub(size, 1))
            start = ops.select(up, low, high) if b is None else moved(b, size, low, high)
            stop = ops.select(up, high, low) if e is None else moved(e, size, low, high)
            off = ops.select(up, ops.sub(p, start), ops.sub(start, p))
            span = ops.select(up, ops.sub(stop, start), ops.sub(start, stop))
            step = ops.abs(s)
            place = ops.floordiv(off, step)
            inside += [ops.greater_equal(off, 0), ops.less(off, span), ops.equal(ops.floormod(off, step), 0)]
            at.append(te.const(0) if equal_const_int(new.shape[d], 1) else clamped(place, new.shape[d]))
        return ops.if_then_else(ops.all(*inside), new(*at), x(*i)) if i else new()

    return injective("strided_set", x.shape, element)
