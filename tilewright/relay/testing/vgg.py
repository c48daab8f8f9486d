"""VGG: plain stacks of 3×3 convolutions."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Expr, Function, var
from ..op import nn
from .init import create_workload
from .layers import batch_norm, conv2d, dense

_LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_CHANNELS = (64, 128, 256, 512, 512)


def get_net(
    batch_size: int,
    image_shape: tuple[int, ...],
    num_classes: int,
    dtype: str = "float32",
    num_layers: int = 11,
    with_norm: bool = False,
) -> Function:
    """The network of 11, 13, 16 or 19 layers."""
    if num_layers not in _LAYERS:
        raise ValueError(f"vgg: there are {', '.join(map(str, _LAYERS))} layers, not {num_layers}")
    x: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for i, (count, channels) in enumerate(zip(_LAYERS[num_layers], _CHANNELS, strict=True)):
        for j in range(count):
            name = f"conv{i + 1}_{j + 1}"
            x = nn.bias_add(
                conv2d(x, name, channels, 3, padding=(1, 1)), var(f"{name}_bias", shape=(channels,))
            )
            x = nn.relu(batch_norm(x, f"bn{i + 1}_{j + 1}") if with_norm else x)
        x = nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    x = nn.batch_flatten(x)
    for i, units in enumerate((4096, 4096)):
        x = nn.dropout(nn.relu(dense(x, f"fc{i + 6}", units)), rate=0.5)
    x = nn.softmax(dense(x, "fc8", num_classes))
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
    seed: int = 0,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_net(batch_size, tuple(image_shape), num_classes, dtype, num_layers, batch_norm)
    return create_workload(net, seed=seed)
