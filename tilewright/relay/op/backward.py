"""Gradients of windows as operators: of a convolution by its kernel, and of pooling by its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..expr import Call
from ..ty import TensorType, Type
from . import layouts
from .attributes import padding, window
from .computes import topi
from .gradients import windows as grads
from .registry import FUSABLE, Constructor, Dtype, Ints, Tensor, alike, operator, refuse
from .shapes import differ, floordiv, unlike
from .spatial import pool_rel, space
from .traits import FOLLOW, SMALL, Traits

__all__ = [
    "avg_pool1d_grad",
    "avg_pool2d_grad",
    "avg_pool3d_grad",
    "conv1d_backward_weight",
    "conv2d_backward_weight",
    "conv3d_backward_weight",
    "max_pool1d_grad",
    "max_pool2d_grad",
    "max_pool3d_grad",
]


# ---------------------------------------------------------------------------- the kernel of a convolution
def _weight_rel(types: list[Any], attrs: Any) -> Type:
    grad, data = types
    if attrs.kernel_size is None:
        raise refuse("must be given: the sizes of data and gradient do not determine it", "kernel_size")
    g = layouts.sizes(attrs.grad_layout, grad.shape, "grad")
    x = layouts.sizes(attrs.data_layout, data.shape, "data")
    if differ(g["N"], x["N"]):
        raise refuse(f"is {grad} and data is {data}: the batches differ", "grad")
    if attrs.channels is not None and differ(attrs.channels, g["C"]):
        raise refuse(f"is {attrs.channels} and grad has {g['C']} channels", "channels")
    named = {"O": g["C"], "I": floordiv(x["C"], attrs.groups)}
    named.update(zip(space(attrs.data_layout), attrs.kernel_size, strict=True))
    return TensorType(layouts.shape_in(attrs.kernel_layout, named), attrs.out_dtype or data.dtype)


def _weight_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    axes = space(attrs.data_layout)
    plain = f"NC{axes}"
    grad, data = (
        t if layout == plain else topi.layout_transform(t, layout, plain)
        for t, layout in zip(ins, (attrs.grad_layout, attrs.data_layout), strict=True)
    )
    made = topi.nn.conv_backward_weight(
        grad, data, attrs.kernel_size, attrs.strides, attrs.padding, attrs.dilation, attrs.groups, out.dtype
    )
    same = attrs.kernel_layout == f"OI{axes}"
    return [made if same else topi.layout_transform(made, f"OI{axes}", attrs.kernel_layout)]


def _weight(rank: int) -> Callable[[Constructor], Constructor]:
    each = {name: window(rank) for name in ("strides", "dilation", "kernel_size")}
    return operator(
        f"nn.conv{rank}d_backward_weight",
        attrs={**each, "padding": padding(rank)},
        rel=_weight_rel,
        compute=_weight_compute,
        pattern=FUSABLE,
        traits=Traits(precision=SMALL, gradient=grads.conv_backward_weight),
    )


@_weight(2)
def conv2d_backward_weight(
    grad: Tensor,
    data: Tensor,
    strides: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Ints = None,
    grad_layout: str = "NCHW",
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_dtype: Dtype = "",
) -> Call:
    """The gradient of nn.conv2d by its kernel."""


conv1d_backward_weight = _weight(1)(
    alike(conv2d_backward_weight, "conv1d_backward_weight", "The gradient of nn.conv1d by its kernel.", 1)
)
conv3d_backward_weight = _weight(3)(
    alike(conv2d_backward_weight, "conv3d_backward_weight", "The gradient of nn.conv3d by its kernel.", 3)
)


# ---------------------------------------------------------------------------- pooling
def _pool_rel(types: list[Any], attrs: Any) -> Type:
    out_grad, data = types
    wanted = pool_rel([data], attrs)
    assert isinstance(wanted, TensorType)
    if unlike(wanted.shape, out_grad.shape):
        raise refuse(f"is {out_grad} and the windows make {wanted}", "out_grad")
    return TensorType(data.shape, out_grad.dtype)


def _pool(kind: str, rank: int) -> Callable[[Constructor], Constructor]:
    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        grad = ins[0]
        if attrs.out_layout and attrs.out_layout != attrs.layout:
            grad = topi.layout_transform(grad, attrs.out_layout, attrs.layout)
        return [
            topi.nn.pool_grad(
                grad, ins[1], attrs.pool_size, attrs.strides, attrs.padding, kind, attrs.ceil_mode,
                attrs.get("count_include_pad", True), attrs.layout, attrs.dilation,
            )
        ]  # fmt: skip

    each = {name: window(rank) for name in ("pool_size", "strides", "dilation")}
    return operator(
        f"nn.{kind}_pool{rank}d_grad",
        attrs={**each, "padding": padding(rank)},
        rel=_pool_rel,
        compute=compute,
        traits=Traits(precision=FOLLOW, gradient=grads.avg_pool_grad if kind == "avg" else None),
    )


@_pool("max", 2)
def max_pool2d_grad(
    out_grad: Tensor,
    data: Tensor,
    pool_size: Ints = (1, 1),
    strides: Ints = (1, 1),
    padding: Ints = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    dilation: Ints = (1, 1),
) -> Call:
    """The gradient of nn.max_pool2d by its data: each maximum passes its own to the first element that has it."""


@_pool("avg", 2)
def avg_pool2d_grad(
    out_grad: Tensor,
    data: Tensor,
    pool_size: Ints = (1, 1),
    strides: Ints = (1, 1),
    padding: Ints = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    dilation: Ints = (1, 1),
) -> Call:
    """The gradient of nn.avg_pool2d by its data."""


max_pool1d_grad = _pool("max", 1)(
    alike(max_pool2d_grad, "max_pool1d_grad", "The gradient of nn.max_pool1d by its data.", 1)
)
max_pool3d_grad = _pool("max", 3)(
    alike(max_pool2d_grad, "max_pool3d_grad", "The gradient of nn.max_pool3d by its data.", 3)
)
avg_pool1d_grad = _pool("avg", 1)(
    alike(avg_pool2d_grad, "avg_pool1d_grad", "The gradient of nn.avg_pool1d by its data.", 1)
)
avg_pool3d_grad = _pool("avg", 3)(
    alike(avg_pool2d_grad, "avg_pool3d_grad", "The gradient of nn.avg_pool3d by its data.", 3)
)
