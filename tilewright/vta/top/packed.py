"""Operators on tensors in blocks, the layout of the chip's memories, with the classic names.

    data    (N/BATCH, C/BLOCK_IN, H, W, BATCH, BLOCK_IN)
    kernel  (O/BLOCK_OUT, C/BLOCK_IN, KH, KW, BLOCK_OUT, BLOCK_IN)
    result  (N/BATCH, O/BLOCK_OUT, OH, OW, BATCH, BLOCK_OUT)

A `schedule_…` is an automatic schedule: `vta.build` tiles it to the intrinsics of the chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te, topi
from ...te.schedule import automatic_schedule
from ...topi.nn.conv import Layouts, convolve
from ...topi.nn.utils import get_pad_tuple
from ..errors import ConfigError


def conv2d_packed(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    out_dtype: str,
) -> te.Tensor:
    """A convolution of tensors in blocks; `layout` is that of the data, such as NCHW1n16c."""
    if not is_packed_layout(layout):
        raise ConfigError(f"conv2d_packed: layout {layout!r} has no blocks; give one such as NCHW1n16c")
    return group_conv2d_packed(data, kernel, strides, padding, dilation, 1, out_dtype)


def group_conv2d_packed(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    group: int,
    out_dtype: str,
) -> te.Tensor:
    """A convolution in blocks whose output channels read only the input channels of their group."""
    for given in (data, kernel):
        _check_rank("group_conv2d_packed", given, 6)
    rows, block_in, block_out = data.shape[4], data.shape[5], kernel.shape[4]
    image = f"NCHW{rows}n{{}}c"
    layouts = Layouts(image.format(block_in), f"OIHW{block_out}o{block_in}i", image.format(block_out))
    return convolve(
        "vta.top.group_conv2d_packed",
        data,
        kernel,
        strides,
        padding,
        dilation,
        group,
        layouts,
        out_dtype,
        "conv2d_dense",
    )


def conv2d_transpose_packed(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Sequence[int],
    padding: Any,
    out_dtype: str,
    output_padding: Sequence[int] = (0, 0),
) -> te.Tensor:
    """A transposed convolution of tensors in blocks.

    `kernel` is that of the convolution which it becomes: OIHW in blocks, with its window flipped. The chip runs it with
    strides of 1: no transfer puts zeros between elements.
    """
    for given in (data, kernel):
        _check_rank("conv2d_transpose_packed", given, 6)
    kh, kw = topi.utils.get_const_tuple(kernel.shape)[2:4]
    top, left, bottom, right = get_pad_tuple(padding, (kh, kw))
    around = [
        kh - 1 - top,
        kw - 1 - left,
        kh - 1 - bottom + output_padding[0],
        kw - 1 - right + output_padding[1],
    ]
    spread = data if set(strides) == {1} else topi.nn.dilate(data, [1, 1, *strides, 1, 1])
    return group_conv2d_packed(spread, kernel, 1, around, 1, 1, out_dtype)


def dense_packed(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None
) -> te.Tensor:
    """The product of matrices in blocks, (N/BATCH, C/BLOCK_IN, BATCH, BLOCK_IN) by the transposed weights."""
    for given in (data, weight):
        _check_rank("dense_packed", given, 4)
    kind = out_dtype or data.dtype
    k_o = te.reduce_axis((0, data.shape[1]), name="k_o")
    k_i = te.reduce_axis((0, data.shape[3]), name="k_i")
    made = te.compute(
        (data.shape[0], weight.shape[0], data.shape[2], weight.shape[2]),
        lambda b_o, c_o, b_i, c_i: te.sum(
            data[b_o, k_o, b_i, k_i].astype(kind) * weight[c_o, k_o, c_i, k_i].astype(kind), axis=[k_o, k_i]
        ),
        name="res",
        tag="dense_pack",
    )
    return made if bias is None else topi.add(made, bias)


def schedule_conv2d_packed(outs: Any) -> te.Schedule:
    """An automatic schedule of a packed operator and its epilogue."""
    return automatic_schedule(outs)


def schedule_conv2d_transpose_packed(outs: Any) -> te.Schedule:
    """An automatic schedule of a packed transposed convolution with strides of 1, and its epilogue."""
    made = automatic_schedule(outs)
    for stage in made.stages:
        if "dilate" in str(getattr(stage.op, "tag", "")):
            raise ConfigError(
                f"schedule_conv2d_transpose_packed: strides greater than 1 put zeros between the elements of "
                f"`{stage.op.input_tensors[0].name}`, which no transfer of the chip does; let relay.build compile "
                "nn.conv2d_transpose, which becomes a convolution for each phase of the stride"
            )
    return made


schedule_group_conv2d_packed = schedule_dense_packed = schedule_conv2d_packed


def is_packed_layout(layout: str) -> bool:
    """Whether a layout such as NCHW1n16c has blocks."""
    return layout != "NCHW" and "n" in layout and "c" in layout


def _check_rank(name: str, given: te.Tensor, rank: int) -> None:
    if given.ndim != rank:
        raise ConfigError(
            f"{name}: `{given.name}` has {given.ndim} dimensions, and a tensor in blocks has {rank}; "
            "reshape and transpose it, or let relay.build pack the network"
        )
