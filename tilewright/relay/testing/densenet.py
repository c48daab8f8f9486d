"""DenseNet: blocks whose layers' results are all concatenated."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Expr, Function, var
from ..op import nn
from ..op.rearrange import concatenate
from .init import create_workload
from .layers import batch_norm, conv2d, dense

# Channels of the first convolution and of each layer, and the number of layers of each block.
_SIZES = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}
_NARROW = 4  # a layer's first convolution has this many times its channels


def _layer(x: Expr, growth: int, name: str) -> Expr:
    x = conv2d(nn.relu(batch_norm(x, f"bn1_{name}")), f"conv1_{name}", _NARROW * growth, 1)
    return conv2d(nn.relu(batch_norm(x, f"bn2_{name}")), f"conv2_{name}", growth, 3, padding=(1, 1))


def get_net(
    densenet_size: int, classes: int, batch_size: int, image_shape: tuple[int, ...], dtype: str
) -> Function:
    """The network of 121, 161, 169 or 201 layers."""
    if densenet_size not in _SIZES:
        raise ValueError(f"densenet: there are {', '.join(map(str, _SIZES))} layers, not {densenet_size}")
    channels, growth, blocks = _SIZES[densenet_size]
    x: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = nn.relu(batch_norm(conv2d(x, "conv1", channels, 7, strides=(2, 2), padding=(3, 3)), "bn1"))
    x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for i, count in enumerate(blocks):
        for j in range(count):
            x = concatenate([x, _layer(x, growth, f"{i}_{j}")], 1)
        channels += count * growth
        if i + 1 < len(blocks):
            channels //= 2
            x = conv2d(nn.relu(batch_norm(x, f"bn_t{i}")), f"conv_t{i}", channels, 1)
            x = nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    x = nn.batch_flatten(nn.global_avg_pool2d(nn.relu(batch_norm(x, "bn2"))))
    x = dense(x, "dense", classes)
    return Function(free_vars(x), x)


def get_workload(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random parameters."""
    return create_workload(get_net(densenet_size, classes, batch_size, tuple(image_shape), dtype))
