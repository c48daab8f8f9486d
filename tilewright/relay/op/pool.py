"""Pooling: windows of one to three dimensions, to a given size, over everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..expr import Call
from ..ty import TensorType, Type
from . import layouts
from .attributes import padding, printed, window
from .computes import in_layout, topi
from .gradients import windows as grads
from .registry import FUSABLE, Constructor, Ints, Tensor, alike, operator, refuse
from .spatial import pool_rel, space
from .traits import FOLLOW, GradientRule, Traits

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "global_avg_pool1d",
    "global_avg_pool2d",
    "global_avg_pool3d",
    "global_max_pool1d",
    "global_max_pool2d",
    "global_max_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]


def _traits(kind: str, gradient: GradientRule, average: str = "") -> Traits:
    """Traits of pooling: a maximum of quantised integers is that of their values; an average may have a qnn
    operator."""
    return Traits(
        layout="attribute",
        precision=FOLLOW,
        scale="positive" if kind == "max" else "linear",
        quantised="same" if kind == "max" else average,
        gradient=gradient,
    )


# ---------------------------------------------------------------------------- windows
def _pool(kind: str, rank: int) -> Callable[[Constructor], Constructor]:
    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        work = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}[rank]
        made = work(
            ins[0], attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding,
            kind, attrs.ceil_mode, attrs.layout, attrs.get("count_include_pad", True),
        )  # fmt: skip
        return in_layout(made, attrs.layout, attrs.out_layout)

    each = {name: window(rank) for name in ("strides", "dilation")}
    return operator(
        f"nn.{kind}_pool{rank}d",
        attrs={**each, "pool_size": printed(window(rank)), "padding": padding(rank)},
        rel=pool_rel,
        compute=compute,
        pattern=FUSABLE,
        traits=_traits(kind, grads.pool, "qnn.avg_pool2d" if rank == 2 else ""),
    )


@_pool("max", 2)
def max_pool2d(
    data: Tensor,
    pool_size: Ints = (1, 1),
    strides: Ints = (1, 1),
    dilation: Ints = (1, 1),
    padding: Ints = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    """The greatest element of each window of two dimensions."""


max_pool1d = _pool("max", 1)(
    alike(max_pool2d, "max_pool1d", "The greatest element of each window of one dimension.", 1)
)
max_pool3d = _pool("max", 3)(
    alike(max_pool2d, "max_pool3d", "The greatest element of each window of three dimensions.", 3)
)


@_pool("avg", 2)
def avg_pool2d(
    data: Tensor,
    pool_size: Ints = (1, 1),
    strides: Ints = (1, 1),
    dilation: Ints = (1, 1),
    padding: Ints = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    """The average of each window of two dimensions."""


avg_pool1d = _pool("avg", 1)(
    alike(avg_pool2d, "avg_pool1d", "The average of each window of one dimension.", 1)
)
avg_pool3d = _pool("avg", 3)(
    alike(avg_pool2d, "avg_pool3d", "The average of each window of three dimensions.", 3)
)


# ---------------------------------------------------------------------------- to a given size
def _wanted(attrs: Any, named: dict[str, Any]) -> tuple[Any, ...]:
    """The size of the result along each spatial axis; where none is named, that of the data."""
    axes = space(attrs.layout, "layout")
    given = attrs.output_size or ()
    if not given:
        return tuple(named[v] for v in axes)
    if len(given) not in (1, len(axes)):
        raise refuse(f"is {given} and the layout has {len(axes)} spatial axes", "output_size")
    if any(isinstance(v, int) and v < 1 for v in given):
        raise refuse(f"is {given} and must be positive", "output_size")
    return given * len(axes) if len(given) == 1 else given


def _adaptive_rel(types: list[Any], attrs: Any) -> Type:
    named = layouts.sizes(attrs.layout, types[0].shape)
    named.update(zip(space(attrs.layout, "layout"), _wanted(attrs, named), strict=True))
    return TensorType(layouts.shape_in(attrs.out_layout or attrs.layout, named), types[0].dtype)


def _adaptive(kind: str, rank: int) -> Callable[[Constructor], Constructor]:
    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        work = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}[rank]
        size = _wanted(attrs, layouts.sizes(attrs.layout, TensorType(ins[0].shape).shape))
        return in_layout(work(ins[0], size, kind, attrs.layout), attrs.layout, attrs.out_layout)

    return operator(
        f"nn.adaptive_{kind}_pool{rank}d",
        rel=_adaptive_rel,
        compute=compute,
        pattern=FUSABLE,
        traits=Traits(
            layout="attribute",
            precision=FOLLOW,
            scale="positive" if kind == "max" else "linear",
            gradient=grads.adaptive_max_pool if kind == "max" else grads.adaptive_avg_pool,
        ),
    )


@_adaptive("max", 2)
def adaptive_max_pool2d(
    data: Tensor, output_size: Ints = None, layout: str = "NCHW", out_layout: str = ""
) -> Call:
    """The greatest elements of as many windows as the result has pixels."""


adaptive_max_pool1d = _adaptive("max", 1)(
    alike(
        adaptive_max_pool2d,
        "adaptive_max_pool1d",
        "The greatest elements of as many windows as the result has elements.",
        1,
    )
)
adaptive_max_pool3d = _adaptive("max", 3)(
    alike(
        adaptive_max_pool2d,
        "adaptive_max_pool3d",
        "The greatest elements of as many windows as the result has points.",
        3,
    )
)


@_adaptive("avg", 2)
def adaptive_avg_pool2d(
    data: Tensor, output_size: Ints = None, layout: str = "NCHW", out_layout: str = ""
) -> Call:
    """The averages of as many windows as the result has pixels."""


adaptive_avg_pool1d = _adaptive("avg", 1)(
    alike(
        adaptive_avg_pool2d,
        "adaptive_avg_pool1d",
        "The averages of as many windows as the result has elements.",
        1,
    )
)
adaptive_avg_pool3d = _adaptive("avg", 3)(
    alike(
        adaptive_avg_pool2d,
        "adaptive_avg_pool3d",
        "The averages of as many windows as the result has points.",
        3,
    )
)


# ---------------------------------------------------------------------------- over everything
def _global_rel(types: list[Any], attrs: Any) -> Type:
    named = layouts.sizes(attrs.layout, types[0].shape)
    named.update(dict.fromkeys([v for v in named if v not in "NC"], 1))
    return TensorType(layouts.shape_in(attrs.layout, named), types[0].dtype)


def _global(kind: str) -> Callable[[Constructor], Constructor]:
    return operator(
        f"nn.global_{kind}_pool2d",
        rel=_global_rel,
        compute=lambda attrs, ins, out: [topi.nn.global_pool(ins[0], kind, attrs.layout)],
        pattern=FUSABLE,
        traits=_traits(kind, grads.global_pool(kind)),
    )


@_global("max")
def global_max_pool2d(data: Tensor, layout: str = "NCHW", out_layout: str = "") -> Call:
    """The greatest element of each channel."""


@_global("avg")
def global_avg_pool2d(data: Tensor, layout: str = "NCHW", out_layout: str = "") -> Call:
    """The average of each channel."""


def global_max_pool1d(data: Any, layout: str = "NCW", out_layout: str = "") -> Call:
    """The greatest element of each channel of a line."""
    return adaptive_max_pool1d(data, (1,), layout, out_layout)


def global_avg_pool1d(data: Any, layout: str = "NCW", out_layout: str = "") -> Call:
    """The average of each channel of a line."""
    return adaptive_avg_pool1d(data, (1,), layout, out_layout)


def global_max_pool3d(data: Any, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """The greatest element of each channel of a volume."""
    return adaptive_max_pool3d(data, (1, 1, 1), layout, out_layout)


def global_avg_pool3d(data: Any, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """The average of each channel of a volume."""
    return adaptive_avg_pool3d(data, (1, 1, 1), layout, out_layout)
