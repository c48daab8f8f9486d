"""Residual networks, of 18 to 152 layers (pre-activation, as in He et al. 2016)."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Expr, Function, var
from ..op import nn
from .init import create_workload
from .layers import batch_norm, classifier, conv2d

UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}


def _unit(
    x: Expr, channels: int, stride: int, same: bool, name: str, bottleneck: bool, layout: str, axis: int
) -> Expr:
    """A residual unit: normalise, activate, convolve, two or three times, and add what came in."""
    more = {"data_layout": layout}
    act = nn.relu(batch_norm(x, f"{name}_bn1", axis))
    if bottleneck:
        y = conv2d(act, f"{name}_conv1", channels // 4, 1, **more)
        y = nn.relu(batch_norm(y, f"{name}_bn2", axis))
        y = conv2d(y, f"{name}_conv2", channels // 4, 3, strides=(stride, stride), padding=(1, 1), **more)
        y = nn.relu(batch_norm(y, f"{name}_bn3", axis))
        y = conv2d(y, f"{name}_conv3", channels, 1, **more)
    else:
        y = conv2d(act, f"{name}_conv1", channels, 3, strides=(stride, stride), padding=(1, 1), **more)
        y = nn.relu(batch_norm(y, f"{name}_bn2", axis))
        y = conv2d(y, f"{name}_conv2", channels, 3, padding=(1, 1), **more)
    short = x if same else conv2d(act, f"{name}_sc", channels, 1, strides=(stride, stride), **more)
    return y + short


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The network as a function of `data` and its parameters. Images of 32 pixels or less get the small stem."""
    if num_layers not in UNITS:
        raise ValueError(f"resnet: there are {', '.join(map(str, UNITS))} layers, not {num_layers}")
    axis = layout.index("C")
    height = image_shape[1] if layout == "NCHW" else image_shape[0]
    bottleneck = num_layers >= 50
    widths = (256, 512, 1024, 2048) if bottleneck else (64, 128, 256, 512)
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = batch_norm(data, "bn_data", axis)
    if height <= 32:
        x = conv2d(x, "conv0", 64, 3, padding=(1, 1), data_layout=layout)
    else:
        x = conv2d(x, "conv0", 64, 7, strides=(2, 2), padding=(3, 3), data_layout=layout)
        x = nn.relu(batch_norm(x, "bn0", axis))
        x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for i, (count, channels) in enumerate(zip(UNITS[num_layers], widths, strict=True)):
        for j in range(count):
            stride = 2 if j == 0 and i > 0 else 1
            x = _unit(x, channels, stride, j > 0, f"stage{i + 1}_unit{j + 1}", bottleneck, layout, axis)
    x = nn.relu(batch_norm(x, "bn1", axis))
    x = classifier(x, num_classes, "fc1", layout)
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    seed: int = 0,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_net(batch_size, num_classes, num_layers, tuple(image_shape), layout, dtype)
    return create_workload(net, seed=seed)
