"""Padding with a constant, mirrored or with the edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import ExprOp
from .. import tag as _tag
from ..utils import fail, get_const_tuple, injective, int_list, shape_text, shown, simplify, tensor_arg

__all__ = ["mirror_pad", "pad"]


def _amounts(
    operator_name: str, data: te.Tensor, before: Any, after: Any, may_cut: bool = False
) -> tuple[list[Any], list[Any], tuple[Any, ...]]:
    """The padding before and after each dimension, and the resulting shape."""
    first = int_list(operator_name, "pad_before", before)
    last = first if after is None else int_list(operator_name, "pad_after", after)
    for argument, given in (("pad_before", first), ("pad_after", last)):
        if len(given) != data.ndim:
            raise fail(
                operator_name,
                f"{argument} has {len(given)} numbers and `{data.name}` has {data.ndim} dimensions",
            )
        if not may_cut and any(isinstance(p, int) and p < 0 for p in given):
            raise fail(
                operator_name,
                f"{argument} is {shown(tuple(given))} and must not be negative",
                "cut with topi.strided_slice",
            )
    shape = get_const_tuple(data.shape)
    made = tuple(simplify(b + d + a) for b, d, a in zip(first, shape, last, strict=True))
    if any(isinstance(n, int) and n < 0 for n in get_const_tuple(made)):
        raise fail(
            operator_name, f"`{data.name}` of shape {shape_text(data.shape)} has fewer elements than are cut"
        )
    return first, last, made


def _is_zero(amount: Any) -> bool:
    return isinstance(amount, int) and amount == 0


def pad(
    data: te.Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    pad_value: Any = 0.0,
    name: str = "PadInput",
    attrs: Mapping[str, Any] | None = None,
) -> te.Tensor:
    """The tensor padded with `pad_value`; a negative amount cuts.

    pad(x, (0, 1), (0, 2)) of shape (n, m) has shape (n, m + 3)
    """
    data = tensor_arg("nn.pad", "data", data)
    before, after, shape = _amounts("nn.pad", data, pad_before, pad_after, may_cut=True)
    value = pad_value(*[0] * pad_value.ndim) if isinstance(pad_value, te.Tensor) else pad_value
    fill = ops.cast(data.dtype, value) if isinstance(value, ExprOp) else te.const(value, data.dtype)

    def element(*at: Any) -> Any:
        inside, source = [], []
        for i, b, a, size in zip(at, before, after, data.shape, strict=True):
            if not _is_zero(b):
                inside.append(ops.greater_equal(i, b))
            if not _is_zero(a):
                inside.append(ops.less(i, simplify(size + b)))
            source.append(i if _is_zero(b) else ops.sub(i, b))
        return ops.if_then_else(ops.all(*inside), data(*source), fill) if inside else data(*source)

    return injective("nn.pad", shape, element, f"{_tag.INJECTIVE},pad", name, attrs)


# For each mode, the source index of the out-of-bounds index i of a dimension of n elements.
_MODES: dict[str, tuple[Callable[..., Any], Callable[..., Any], int | None]] = {
    "SYMMETRIC": (lambda i, n: -i - 1, lambda i, n: 2 * n - 1 - i, 0),
    "REFLECT": (lambda i, n: -i, lambda i, n: 2 * n - 2 - i, 1),
    "EDGE": (lambda i, n: i * 0, lambda i, n: i * 0 + (n - 1), None),
}


def mirror_pad(
    data: te.Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> te.Tensor:
    """The tensor padded with its own elements.

    of 1 2 3, two on each side:  SYMMETRIC 2 1 1 2 3 3 2,  REFLECT 3 2 1 2 3 2 1,  EDGE 1 1 1 2 3 3 3
    """
    data = tensor_arg("nn.mirror_pad", "data", data)
    if not isinstance(mode, str) or mode.upper() not in _MODES:
        raise fail("nn.mirror_pad", f"mode is {shown(mode)}", f"known are {', '.join(_MODES)}")
    low, high, kept = _MODES[mode.upper()]
    before, after, shape = _amounts("nn.mirror_pad", data, pad_before, pad_after)
    for axis, (b, a, size) in enumerate(zip(before, after, get_const_tuple(data.shape), strict=True)):
        known = [p for p in (b, a) if isinstance(p, int)]
        most = None if not isinstance(size, int) else size - kept if kept is not None else (size > 0) * 2**62
        if most is not None and known and max(known) > max(most, 0):
            raise fail(
                "nn.mirror_pad",
                f"dimension {axis} has {size} elements, too few for {max(known)} of padding",
                f"{mode.upper()} pads at most {max(most, 0)} on a side",
            )

    def element(*at: Any) -> Any:
        source = []
        for i, b, a, size in zip(at, before, after, data.shape, strict=True):
            where = i if _is_zero(b) else ops.sub(i, b)
            inner = where
            if not _is_zero(b):
                inner = ops.select(ops.less(where, 0), low(where, size), inner)
            if not _is_zero(a):
                inner = ops.select(ops.greater_equal(where, size), high(where, size), inner)
            source.append(inner)
        return data(*source)

    return injective("nn.mirror_pad", shape, element, f"{_tag.INJECTIVE},pad", name)
