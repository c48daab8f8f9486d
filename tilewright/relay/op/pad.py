"""Padding, and dilation of elements."""

from __future__ import annotations

from typing import Any

from ..expr import Call, Expr, const, type_so_far
from ..ty import TensorType, Type
from . import dyn
from .arguments import columns
from .computes import topi
from .gradients import rearrange as grads
from .registry import INJECTIVE, Ints, Tensor, given, operator, refuse
from .shapes import add, is_known, mul, sub
from .traits import Traits

__all__ = ["dilate", "mirror_pad", "pad"]


def _pad_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    if len(attrs.pad_width) != len(data.shape):
        raise refuse(f"has {len(attrs.pad_width)} entries and data is {data}", "pad_width")
    out = [add(d, add(before, after)) for d, (before, after) in zip(data.shape, attrs.pad_width, strict=True)]
    if any(isinstance(d, int) and d < 0 for d in out):
        raise refuse(f"{attrs.pad_width} crops more than {data} has", "pad_width")
    return TensorType(out, data.dtype)


def _pad_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    before, after = ([w[i] for w in attrs.pad_width] for i in (0, 1))
    if attrs.pad_mode == "constant":
        return [topi.nn.pad(ins[0], before, after, ins[1])]
    if attrs.pad_mode == "reflect":
        return [topi.nn.mirror_pad(ins[0], before, after, "REFLECT")]
    last = [max(int(d) - 1, 0) for d in ins[0].shape]
    return [
        topi.utils.injective(
            "pad",
            list(out.shape),
            lambda *at: ins[0](*(topi.clip(i - b, 0, m) for i, b, m in zip(at, before, last, strict=True))),
        )
    ]


@operator(
    "nn.pad",
    traits=Traits(gradient=grads.pad),
    rel=_pad_rel,
    compute=_pad_compute,
    pattern=INJECTIVE,
    dynamic=dyn.pad,
)
def pad(data: Tensor, pad_width: Ints, pad_value: Tensor = 0, pad_mode: str = "constant") -> Call:
    """The tensor with padding: constant, edge, or reflect."""
    if pad_mode not in ("constant", "edge", "reflect"):
        raise ValueError(f"nn.pad: pad_mode is {pad_mode!r} and may be 'constant', 'edge' or 'reflect'")
    if isinstance(pad_value, Expr):
        return given()
    kind = type_so_far(data) if isinstance(data, Expr) else None
    return given(pad_value=const(pad_value, str(kind.dtype) if isinstance(kind, TensorType) else "float32"))


def _mirror_pad_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    if attrs.mode not in ("SYMMETRIC", "REFLECT"):
        raise refuse(f"is {attrs.mode!r} and must be SYMMETRIC or REFLECT", "mode")
    if len(attrs.pad_width) != len(data.shape):
        raise refuse(f"has {len(attrs.pad_width)} entries and data is {data}", "pad_width")
    kept = 1 if attrs.mode == "REFLECT" else 0
    for d, (size, width) in enumerate(zip(data.shape, attrs.pad_width, strict=True)):
        if is_known(size) and max(width) > max(size - kept, 0):
            raise refuse(f"{width} for dimension {d} of {size}, which is too small to reflect", "pad_width")
    return TensorType(
        [add(d, a + b) for d, (a, b) in zip(data.shape, attrs.pad_width, strict=True)], data.dtype
    )


@operator(
    "nn.mirror_pad",
    traits=Traits(rearranges=True, gradient=grads.mirror_pad),
    rel=_mirror_pad_rel,
    compute=lambda attrs, ins, out: [topi.nn.mirror_pad(ins[0], *columns(attrs.pad_width), attrs.mode)],
    pattern=INJECTIVE,
)
def mirror_pad(data: Tensor, pad_width: Ints, mode: str = "SYMMETRIC") -> Call:
    """The tensor with mirror padding, including the edge (SYMMETRIC) or not (REFLECT)."""


def _dilate_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    if len(attrs.strides) != len(data.shape) or any(s < 1 for s in attrs.strides):
        raise refuse(
            f"is {attrs.strides} and needs a positive number for each dimension of {data}", "strides"
        )
    return TensorType(
        [add(mul(sub(d, 1), s), 1) for d, s in zip(data.shape, attrs.strides, strict=True)], data.dtype
    )


@operator(
    "nn.dilate", traits=Traits(gradient=grads.dilate), rel=_dilate_rel, compute="nn.dilate", pattern=INJECTIVE
)
def dilate(data: Tensor, strides: Ints, dilation_value: float = 0.0) -> Call:
    """The elements with `stride - 1` others between them."""
