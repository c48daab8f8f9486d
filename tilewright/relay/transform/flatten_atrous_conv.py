"""FlattenAtrousConv: a convolution between space_to_batch and batch_to_space is a dilated convolution."""

from __future__ import annotations

from typing import Any

from .. import op as R
from ..expr import Call, Expr, Function
from ..op import layouts as names
from .rewriting import CallRewriter, is_call, static_shape, typed_pass


def flatten_atrous_conv(func: Function) -> Function:
    """Rewrite a convolution of space_to_batch as a dilated convolution.

    %0 = nn.space_to_batch_nd(%x, block_shape=[d, d], …);
    %1 = nn.conv2d(%0, %w);                                      ->   nn.conv2d(%x, %w, dilation=[d, d], …)
    nn.batch_to_space_nd(%1, block_shape=[d, d], …)
    """
    return CallRewriter({R.nn.batch_to_space_nd: _flattened}).visit(func)


def _flattened(at: Call) -> Expr | None:
    conv: Any = at.args[0]
    if not is_call(conv, R.nn.conv2d) or not is_call(conv.args[0], R.nn.space_to_batch_nd):
        return None
    parted: Any = conv.args[0]
    block = tuple(at.attrs.block_shape)
    attrs = conv.attrs
    plain = attrs.strides == (1, 1) and attrs.dilation == (1, 1) and attrs.padding == (0, 0, 0, 0)
    layout = attrs.data_layout
    if (
        tuple(parted.attrs.block_shape) != block
        or len(block) != 2
        or not plain
        or layout not in ("NHWC", "NCHW")
    ):
        return None
    if layout != "NHWC":  # the blocks are those of dimensions 1 and 2
        return None
    if len(parted.args) > 1 or parted.attrs.get("pad_value", 0):
        return None
    shape, out = static_shape(parted.args[0]), static_shape(at)
    if shape is None or out is None:
        return None
    pads = parted.attrs.paddings
    crops = at.attrs.crops
    sizes = names.sizes(attrs.kernel_layout, static_shape(conv.args[1]) or ())
    padding = []
    for i, letter in enumerate("HW"):
        low = pads[i][0] - crops[i][0]
        reach = (sizes[letter] - 1) * block[i] + 1
        high = out[1 + i] - 1 + reach - shape[1 + i] - low
        if low < 0 or high < 0 or crops[i][0] != 0:
            return None
        padding.append((low, high))
    changed = attrs.replace(
        dilation=block, padding=(padding[0][0], padding[1][0], padding[0][1], padding[1][1])
    )
    return R.nn.conv2d(parted.args[0], conv.args[1], **dict(changed.items()))


FlattenAtrousConv = typed_pass(flatten_atrous_conv, name="FlattenAtrousConv", opt_level=3)
