"""The channel axes of products: of their data, results and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..expr import Call
from ..op.traits import traits_of
from .rewriting import static_shape, type_of


class Channels(NamedTuple):
    """The channel axes of an operator with weights."""

    in_axis: Callable[[Call], int]  # of its data
    out_axis: Callable[[Call], int]  # of its result
    weights: Callable[[Call], tuple[int | None, int | None] | None]  # (inputs, outputs) of its weight


def weight_axes(at: Call) -> tuple[Any, Any] | None:
    """The input and output channel axes of the weight, None where a factor cannot be folded."""
    if static_shape(at.args[1]) is None or static_shape(at) is None:
        return None
    if not type_of(at.args[1]).dtype.is_float or type_of(at).dtype != type_of(at.args[1]).dtype:
        return None
    found = channels_of(at)
    return None if found is None else found.weights(at)


def _letter(layout: str, letter: str) -> int:
    return layout.find(letter) if layout.isupper() else -1


def _conv_weights(at: Call) -> tuple[int | None, int | None] | None:
    attrs = at.attrs
    kernel, data = attrs.kernel_layout, attrs.data_layout
    if not kernel.isupper() or not data.isupper() or (attrs.get("out_layout") or data) != data:
        return None
    inputs, outputs = kernel.find("I"), kernel.find("O")
    if attrs.groups == 1:
        return inputs, outputs
    shape = static_shape(at.args[1])
    assert shape is not None
    channels = type_of(at.args[0]).shape[data.find("C")]
    transposed = "output_padding" in attrs
    if not transposed and attrs.groups == channels == shape[outputs]:
        return outputs, outputs  # depthwise: one input for each output
    return None, None if transposed else outputs


def _conv(in_axis: Callable[[Call], int]) -> Channels:
    return Channels(in_axis, in_axis, _conv_weights)


_by_layout = _conv(lambda at: _letter(at.attrs.data_layout, "C"))
_last = Channels(
    lambda at: len(type_of(at.args[0]).shape) - 1, lambda at: len(type_of(at).shape) - 1, lambda at: (1, 0)
)
_matmul = Channels(
    lambda at: len(type_of(at.args[0]).shape) - (2 if at.attrs.transpose_a else 1),
    lambda at: len(type_of(at).shape) - 1,
    lambda at: (1, 0) if at.attrs.transpose_b else (0, 1),
)


def channels_of(at: Any) -> Channels | None:
    """The channel axes of a product with weights; a batch of products has none."""
    if not traits_of(at).product:
        return None
    if "kernel_layout" in at.attrs:
        return _by_layout
    if len(type_of(at.args[1]).shape) != 2:
        return None
    return _matmul if "transpose_b" in at.attrs else _last
