"""Broadcasting and repetition along dimensions, and the sums that reverse it."""

from __future__ import annotations

from typing import Any

from ..expr import Call
from ..ty import TensorType, Type
from . import dyn
from .attributes import dtype, integer
from .computes import topi
from .gradients import reduce as grads
from .registry import BROADCAST, COMM_REDUCE, Ints, Sizes, Tensor, operator, refuse
from .shapes import axis_of, broadcast, mul, product, stretches
from .traits import Traits

__all__ = ["broadcast_to", "broadcast_to_like", "collapse_sum_like", "collapse_sum_to", "repeat", "tile"]


def _tile_rel(types: list[Any], attrs: Any) -> Type:
    shape, reps = types[0].shape, attrs.reps
    ndim = max(len(shape), len(reps))
    full = [1] * (ndim - len(shape)) + list(shape)
    times = [1] * (ndim - len(reps)) + list(reps)
    return TensorType([mul(d, r) for d, r in zip(full, times, strict=True)], types[0].dtype)


@operator(
    "tile",
    traits=Traits(rearranges=True, quantised="same", gradient=grads.tile),
    rel=_tile_rel,
    compute="tile",
    pattern=BROADCAST,
    dynamic=dyn.tile,
)
def tile(data: Tensor, reps: Ints) -> Call:
    """The whole tensor several times along each dimension."""


def _repeat_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    if attrs.axis is None:
        return TensorType((mul(product(shape), attrs.repeats),), types[0].dtype)
    at = axis_of(attrs.axis, len(shape))
    return TensorType([mul(d, attrs.repeats) if i == at else d for i, d in enumerate(shape)], types[0].dtype)


@operator(
    "repeat",
    traits=Traits(rearranges=True, quantised="same", gradient=grads.repeat),
    attrs={"axis": integer(None)},
    rel=_repeat_rel,
    compute="repeat",
    pattern=BROADCAST,
)
def repeat(data: Tensor, repeats: int, axis: int | None) -> Call:
    """Each slice along `axis` repeated consecutively."""


def _broadcast_to_rel(types: list[Any], attrs: Any) -> Type:
    have, want = types[0].shape, attrs.shape
    pairs = zip(reversed(have), reversed(want), strict=False)
    fits = len(have) <= len(want) and all(stretches(a, b) for a, b in pairs)
    if not fits:
        raise refuse(f"{types[0]} does not broadcast to {want}", "shape")
    return TensorType(attrs.shape, attrs.dtype or types[0].dtype)


@operator(
    "broadcast_to",
    traits=Traits(quantised="same", gradient=grads.broadcast_to),
    rel=_broadcast_to_rel,
    compute=lambda attrs, ins, out: [topi.broadcast_to(ins[0], out.shape)],
    pattern=BROADCAST,
    attrs={"dtype": dtype(None)},
    dynamic=dyn.broadcast_to,
)
def broadcast_to(data: Tensor, shape: Sizes) -> Call:
    """The tensor repeated along dimensions of size 1 to a shape."""


@operator(
    "broadcast_to_like",
    traits=Traits(gradient=grads.broadcast_to),
    rel=lambda types, attrs: TensorType(broadcast(types[0].shape, types[1].shape), types[0].dtype),
    compute=lambda attrs, ins, out: [topi.broadcast_to(ins[0], ins[1].shape)],
    pattern=BROADCAST,
)
def broadcast_to_like(data: Tensor, broadcast_type: Tensor) -> Call:
    """The tensor repeated to the shape of another."""


@operator(
    "collapse_sum_like",
    traits=Traits(gradient=grads.collapse_sum),
    rel=lambda types, attrs: TensorType(types[1].shape, types[0].dtype),
    compute=lambda attrs, ins, out: [topi.collapse_sum(ins[0], ins[1].shape)],
    pattern=COMM_REDUCE,
)
def collapse_sum_like(data: Tensor, collapse_type: Tensor) -> Call:
    """The sum over the dimensions along which another tensor would be repeated."""


@operator(
    "collapse_sum_to",
    traits=Traits(gradient=grads.collapse_sum),
    rel=lambda types, attrs: TensorType(attrs.shape, types[0].dtype),
    compute=lambda attrs, ins, out: [topi.collapse_sum(ins[0], attrs.shape)],
    pattern=COMM_REDUCE,
)
def collapse_sum_to(data: Tensor, shape: Ints) -> Call:
    """The sum over the dimensions along which a tensor of this shape would be repeated."""
