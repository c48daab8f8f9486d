"""MobileNet (v1): depthwise-separable convolutions."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Expr, Function, var
from .init import create_workload
from .layers import classifier, conv_bn_relu

# For each block: channels that come out (of a network of width 1), and the stride.
BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip


def _separable(x: Expr, name: str, taken: int, channels: int, stride: int, layout: str, axis: int) -> Expr:
    """One filter for each channel, then a mix of the channels."""
    options = {"data_layout": layout}
    if layout == "NHWC":
        options["kernel_layout"] = "HWOI"
    x = conv_bn_relu(
        x,
        f"{name}_depthwise",
        taken,
        3,
        axis,
        strides=(stride, stride),
        padding=(1, 1),
        groups=taken,
        **options,
    )
    return conv_bn_relu(x, f"{name}_pointwise", channels, 1, axis, data_layout=layout)


def get_net(
    num_classes: int = 1000,
    data_shape: tuple[int, ...] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    layout: str = "NCHW",
) -> Function:
    """The network; `alpha` scales the number of channels."""
    axis = layout.index("C")
    data = var("data", shape=data_shape, dtype=dtype)
    width = int(32 * alpha)
    x = conv_bn_relu(data, "conv_block_1", width, 3, axis, strides=(2, 2), padding=(1, 1), data_layout=layout)
    for i, (channels, stride) in enumerate(BLOCKS):
        wide = int(channels * alpha)
        x = _separable(x, f"separable_conv_block_{i + 1}", width, wide, stride, layout, axis)
        width = wide
    x = classifier(x, num_classes, "fc", layout)
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
    alpha: float = 1.0,
    seed: int = 0,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random parameters."""
    return create_workload(get_net(num_classes, (batch_size, *image_shape), dtype, alpha, layout), seed=seed)
