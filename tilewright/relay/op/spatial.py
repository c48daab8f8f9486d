"""Windows over spatial dimensions: normalized parameters, output sizes, and type relations of convolutions."""

from __future__ import annotations

from typing import Any

from ..ty import TensorType, Type
from . import attributes, layouts
from .registry import refuse
from .shapes import add, assume_least, ceildiv, differ, floordiv, is_known, least, mul, sub


def space(layout: str, argument: str = "data_layout") -> str:
    """The spatial axes of a layout, in the order depth, height, width."""
    found = set(layouts.letters(layout)) - set("NCOI")
    if not found <= set("DHW"):
        raise refuse(f"{layout} has an axis that is none of N, C, D, H, W", argument)
    return "".join(v for v in "DHW" if v in found)


def windows(size: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool = False) -> Any:
    """The number of windows along a dimension; with `ceil_mode` the last may extend past the end.

    An empty dimension has no window. Otherwise one must fit, which is checked at run time if the size is dynamic.
    """
    for name, value in (("strides", stride), ("dilation", dilation)):
        if isinstance(value, int) and value < 1:
            raise refuse(f"has {value}", name)
    reach = add(mul(sub(kernel, 1), dilation), 1)
    room = sub(add(size, padding), reach)
    over = sub(stride, 1) if ceil_mode else 0
    if is_known(room) and is_known(over) and room + over < 0:
        raise refuse(f"a window of {reach} does not fit into {size} with {padding} of padding")
    needed = sub(sub(reach, padding), over)
    if not is_known(needed) or needed > 1:
        assume_least(size, needed, f"a window of {reach} with {padding} of padding")
    if ceil_mode:
        return add(ceildiv(room, stride), 1)
    return add(floordiv(room, stride), 1)


def _check_rank(attrs: Any, axes: str, *names: str) -> None:
    for name in names:
        wanted = 2 * len(axes) if name == "padding" else len(axes)
        if len(attrs[name]) != wanted:
            raise refuse(f"is {attrs[name]} and the layout has {len(axes)} spatial axes", name)


def _check_weight(attrs: Any, axes: str, weight: TensorType, w: dict[str, Any], outputs: Any) -> None:
    if attrs.channels is not None and differ(attrs.channels, outputs):
        raise refuse(f"is {attrs.channels} and weight has {outputs} output channels", "channels")
    if attrs.kernel_size is not None:
        for letter, k in zip(axes, attrs.kernel_size, strict=True):
            if differ(w[letter], k):
                raise refuse(
                    f"is {attrs.kernel_size} and weight is {weight} in {attrs.kernel_layout}", "kernel_size"
                )


def conv_rel(types: list[Any], attrs: Any) -> Type:
    """The result of a convolution of any rank and layout."""
    data, weight = types[:2]
    d = layouts.sizes(attrs.data_layout, data.shape, "data")
    w = layouts.sizes(attrs.kernel_layout, weight.shape, "weight")
    groups, axes = attrs.groups, space(attrs.data_layout)
    if space(attrs.kernel_layout) != axes:
        raise refuse(f"is {attrs.kernel_layout} and data_layout is {attrs.data_layout}", "kernel_layout")
    _check_rank(attrs, axes, "strides", "dilation", "padding")
    if groups < 1:
        raise refuse(f"is {groups}", "groups")
    if multiplies_channels(data, weight, attrs):
        w = {**w, "O": w["O"] * w["I"], "I": 1}
    if differ(d["C"], mul(w["I"], groups)):
        raise refuse(
            f"is {weight} in {attrs.kernel_layout}: {w['I']} input channels for each of {groups} groups, "
            f"and data has {d['C']}",
            "weight",
        )
    if isinstance(w["O"], int) and w["O"] % groups:
        raise refuse(f"has {w['O']} output channels, which is not a multiple of {groups} groups", "weight")
    _check_weight(attrs, axes, weight, w, w["O"])
    named = {"N": d["N"], "C": w["O"]}
    for i, letter in enumerate(axes):
        padding = add(attrs.padding[i], attrs.padding[i + len(axes)])
        named[letter] = windows(d[letter], w[letter], attrs.strides[i], attrs.dilation[i], padding)
    layout = attrs.out_layout or attrs.data_layout
    return TensorType(layouts.shape_in(layout, named), attrs.out_dtype or data.dtype)


def multiplies_channels(data: TensorType, weight: TensorType, attrs: Any) -> bool:
    """Whether the weight of a depthwise convolution is (input channels, channels from each, …): OIHW with O = groups.

    Legalize writes such a weight as (channels, 1, …), which all other passes and topi take.
    """
    w = layouts.sizes(attrs.kernel_layout, weight.shape, "weight")
    inputs = layouts.sizes(attrs.data_layout, data.shape, "data")["C"]
    return (
        "OI" in attrs.kernel_layout
        and isinstance(w["I"], int)
        and w["I"] > 1
        and inputs == attrs.groups == w["O"]
    )


def conv_weights(data: TensorType, attrs: Any) -> list[TensorType | None]:
    """The type of a convolution's weight, where the attributes say its channels and window."""
    if attrs.channels is None or attrs.kernel_size is None:
        return [None]
    channels = layouts.sizes(attrs.data_layout, data.shape, "data")["C"]
    named = {"O": attrs.channels, "I": floordiv(channels, attrs.groups)}
    return [_window_type(data, attrs, named)]


def transposed_weights(data: TensorType, attrs: Any) -> list[TensorType | None]:
    """The type of a transposed convolution's weight, where the attributes say its channels and window."""
    if attrs.channels is None or attrs.kernel_size is None:
        return [None]
    channels = layouts.sizes(attrs.data_layout, data.shape, "data")["C"]
    return [_window_type(data, attrs, {"I": channels, "O": floordiv(attrs.channels, attrs.groups)})]


def _window_type(data: TensorType, attrs: Any, named: dict[str, Any]) -> TensorType:
    axes = space(attrs.data_layout)
    named.update(zip(axes, attrs.kernel_size, strict=True))
    return TensorType(layouts.shape_in(attrs.kernel_layout, named), data.dtype)


def transposed_rel(types: list[Any], attrs: Any) -> Type:
    """The result of a transposed convolution: each element is spread over a window."""
    data, weight = types[:2]
    d = layouts.sizes(attrs.data_layout, data.shape, "data")
    w = layouts.sizes(attrs.kernel_layout, weight.shape, "weight")
    axes = space(attrs.data_layout)
    _check_rank(attrs, axes, "strides", "dilation", "padding", "output_padding")
    if differ(d["C"], w["I"]):
        raise refuse(
            f"is {weight} in {attrs.kernel_layout}: {w['I']} input channels, and data has {d['C']}", "weight"
        )
    if attrs.groups < 1 or (isinstance(d["C"], int) and d["C"] % attrs.groups):
        raise refuse(f"is {attrs.groups} and data has {d['C']} channels", "groups")
    outputs = mul(w["O"], attrs.groups)
    _check_weight(attrs, axes, weight, w, outputs)
    named = {"N": d["N"], "C": outputs}
    for i, letter in enumerate(axes):
        stride, extra = attrs.strides[i], attrs.output_padding[i]
        if stride < 1:
            raise refuse(f"has {stride}", "strides")
        if extra < 0:
            raise refuse(f"has {extra} and must not be negative", "output_padding")
        reach = add(mul(sub(w[letter], 1), attrs.dilation[i]), 1)
        spread = add(mul(sub(d[letter], 1), stride), add(reach, extra))
        named[letter] = sub(spread, add(attrs.padding[i], attrs.padding[i + len(axes)]))
        if isinstance(named[letter], int) and named[letter] < 1:
            raise refuse(f"{attrs.padding} crops all of dimension {letter} of {d[letter]}", "padding")
    layout = attrs.out_layout or attrs.data_layout
    return TensorType(layouts.shape_in(layout, named), attrs.out_dtype or data.dtype)


def pool_rel(types: list[Any], attrs: Any) -> Type:
    """The result of pooling windows of any rank."""
    data = types[0]
    named = layouts.sizes(attrs.layout, data.shape)
    axes = space(attrs.layout, "layout")
    _check_rank(attrs, axes, "pool_size", "strides", "dilation", "padding")
    for i, letter in enumerate(axes):
        before, after = attrs.padding[i], attrs.padding[i + len(axes)]
        size, stride = named[letter], attrs.strides[i]
        count = windows(
            size, attrs.pool_size[i], stride, attrs.dilation[i], add(before, after), attrs.ceil_mode
        )
        if attrs.ceil_mode:  # a last window must begin inside
            count = least(count, add(floordiv(sub(add(size, before), 1), stride), 1))
        named[letter] = count
    return TensorType(layouts.shape_in(attrs.out_layout or attrs.layout, named), data.dtype)


def get_pad_tuple1d(padding: Any) -> tuple[int, ...]:
    """Padding written as 1 or 2 numbers, as left and right."""
    return _both_sides(padding, 1)


def get_pad_tuple2d(padding: Any) -> tuple[int, ...]:
    """Padding written as 1, 2 or 4 numbers, as top, left, bottom and right."""
    return _both_sides(padding, 2)


def get_pad_tuple3d(padding: Any) -> tuple[int, ...]:
    """Padding written as 1, 3 or 6 numbers, as front, top, left, back, bottom and right."""
    return _both_sides(padding, 3)


def _both_sides(padding: Any, rank: int) -> tuple[int, ...]:
    made: tuple[int, ...] = attributes.padding(rank).convert(padding)
    return made
