"""Pooling beside max_pool2d and avg_pool2d: of one and three dimensions, to a given size, over everything."""

from __future__ import annotations

from typing import Any

from ..expr import Call
from ..ty import TensorType, Type
from . import layouts
from .computes import topi
from .registry import Attr, OpPattern, RelayOp, flag, ints, refuse, register, text
from .spatial import each, pool_rel, sides, space

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool3d",
    "global_avg_pool1d",
    "global_avg_pool3d",
    "global_max_pool1d",
    "global_max_pool3d",
    "max_pool1d",
    "max_pool3d",
]

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_WINDOWS = {1: topi.nn.pool1d, 3: topi.nn.pool3d}
_ADAPTIVE = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}


def _moved(made: Any, attrs: Any) -> list[Any]:
    if attrs.out_layout and attrs.out_layout != attrs.layout:
        made = topi.layout_transform(made, attrs.layout, attrs.out_layout)
    return [made]


# ---------------------------------------------------------------------------- windows
def _pool(kind: str, rank: int) -> RelayOp:
    more: dict[str, Attr] = {} if kind == "max" else {"count_include_pad": flag(False)}
    return register(
        f"nn.{kind}_pool{rank}d",
        inputs=("data",),
        attrs={
            "pool_size": ints(),
            "strides": ints((1,) * rank),
            "dilation": ints((1,) * rank),
            "padding": ints((0,) * (2 * rank)),
            "layout": text(_LAYOUTS[rank]),
            "out_layout": text(""),
            "ceil_mode": flag(False),
            **more,
        },
        rel=pool_rel,
        compute=lambda attrs, ins, out: _moved(
            _WINDOWS[rank](
                ins[0], attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding,
                kind, attrs.ceil_mode, attrs.layout, attrs.get("count_include_pad", True),
            ),
            attrs,
        ),
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    )  # fmt: skip


def _formed(rank: int, pool_size: Any, strides: Any, dilation: Any, padding: Any) -> dict[str, Any]:
    return {
        "pool_size": each(pool_size, rank),
        "strides": each(strides, rank),
        "dilation": each(dilation, rank),
        "padding": sides(padding, rank),
    }


_max_pool1d, _max_pool3d = _pool("max", 1), _pool("max", 3)
_avg_pool1d, _avg_pool3d = _pool("avg", 1), _pool("avg", 3)


def max_pool1d(
    data: Any,
    pool_size: Any = (1,),
    strides: Any = (1,),
    dilation: Any = (1,),
    padding: Any = (0,),
    layout: str = "NCW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    """The greatest element of each window of one dimension."""
    named = _formed(1, pool_size, strides, dilation, padding)
    return _max_pool1d(data, **named, layout=layout, out_layout=out_layout, ceil_mode=ceil_mode)


def max_pool3d(
    data: Any,
    pool_size: Any = (1, 1, 1),
    strides: Any = (1, 1, 1),
    dilation: Any = (1, 1, 1),
    padding: Any = (0, 0, 0),
    layout: str = "NCDHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    """The greatest element of each window of three dimensions."""
    named = _formed(3, pool_size, strides, dilation, padding)
    return _max_pool3d(data, **named, layout=layout, out_layout=out_layout, ceil_mode=ceil_mode)


def avg_pool1d(
    data: Any,
    pool_size: Any = (1,),
    strides: Any = (1,),
    dilation: Any = (1,),
    padding: Any = (0,),
    layout: str = "NCW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    """The average of each window of one dimension."""
    return _avg_pool1d(
        data,
        **_formed(1, pool_size, strides, dilation, padding),
        layout=layout,
        out_layout=out_layout,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )


def avg_pool3d(
    data: Any,
    pool_size: Any = (1, 1, 1),
    strides: Any = (1, 1, 1),
    dilation: Any = (1, 1, 1),
    padding: Any = (0, 0, 0),
    layout: str = "NCDHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    """The average of each window of three dimensions."""
    return _avg_pool3d(
        data,
        **_formed(3, pool_size, strides, dilation, padding),
        layout=layout,
        out_layout=out_layout,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
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
    return given * len(axes) if len(given) == 1 else given  # type: ignore[no-any-return]


def _adaptive_rel(types: list[Any], attrs: Any) -> Type:
    named = layouts.sizes(attrs.layout, types[0].shape)
    named.update(zip(space(attrs.layout, "layout"), _wanted(attrs, named), strict=True))
    return TensorType(layouts.shape_in(attrs.out_layout or attrs.layout, named), types[0].dtype)


def _adaptive(kind: str, rank: int) -> RelayOp:
    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        size = _wanted(attrs, layouts.sizes(attrs.layout, TensorType(ins[0].shape).shape))
        return _moved(_ADAPTIVE[rank](ins[0], size, kind, attrs.layout), attrs)

    return register(
        f"nn.adaptive_{kind}_pool{rank}d",
        inputs=("data",),
        attrs={"output_size": ints(()), "layout": text(_LAYOUTS[rank]), "out_layout": text("")},
        rel=_adaptive_rel,
        compute=compute,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    )


_max1, _max2, _max3 = (_adaptive("max", rank) for rank in (1, 2, 3))
_avg1, _avg2, _avg3 = (_adaptive("avg", rank) for rank in (1, 2, 3))


def _to(op: RelayOp, data: Any, output_size: Any, layout: str, out_layout: str) -> Call:
    size = () if output_size is None else output_size
    return op(data, output_size=size, layout=layout, out_layout=out_layout)


def adaptive_max_pool1d(
    data: Any, output_size: Any = None, layout: str = "NCW", out_layout: str = ""
) -> Call:
    """The greatest elements of as many windows as the result has elements."""
    return _to(_max1, data, output_size, layout, out_layout)


def adaptive_max_pool2d(
    data: Any, output_size: Any = None, layout: str = "NCHW", out_layout: str = ""
) -> Call:
    """The greatest elements of as many windows as the result has pixels."""
    return _to(_max2, data, output_size, layout, out_layout)


def adaptive_max_pool3d(
    data: Any, output_size: Any = None, layout: str = "NCDHW", out_layout: str = ""
) -> Call:
    """The greatest elements of as many windows as the result has points."""
    return _to(_max3, data, output_size, layout, out_layout)


def adaptive_avg_pool1d(
    data: Any, output_size: Any = None, layout: str = "NCW", out_layout: str = ""
) -> Call:
    """The averages of as many windows as the result has elements."""
    return _to(_avg1, data, output_size, layout, out_layout)


def adaptive_avg_pool2d(
    data: Any, output_size: Any = None, layout: str = "NCHW", out_layout: str = ""
) -> Call:
    """The averages of as many windows as the result has pixels."""
    return _to(_avg2, data, output_size, layout, out_layout)


def adaptive_avg_pool3d(
    data: Any, output_size: Any = None, layout: str = "NCDHW", out_layout: str = ""
) -> Call:
    """The averages of as many windows as the result has points."""
    return _to(_avg3, data, output_size, layout, out_layout)


def global_max_pool1d(data: Any, layout: str = "NCW", out_layout: str = "") -> Call:
    """The greatest element of each channel of a line."""
    return _to(_max1, data, (1,), layout, out_layout)


def global_avg_pool1d(data: Any, layout: str = "NCW", out_layout: str = "") -> Call:
    """The average of each channel of a line."""
    return _to(_avg1, data, (1,), layout, out_layout)


def global_max_pool3d(data: Any, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """The greatest element of each channel of a volume."""
    return _to(_max3, data, (1, 1, 1), layout, out_layout)


def global_avg_pool3d(data: Any, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """The average of each channel of a volume."""
    return _to(_avg3, data, (1, 1, 1), layout, out_layout)
