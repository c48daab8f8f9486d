"""The network of deep Q-learning over frames of a game."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Expr, Function, var
from ..op import nn
from .init import create_workload
from .layers import conv2d, dense

_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, window, stride


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """Three convolutions and two fully connected layers: a value for each action."""
    x: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for i, (channels, window, stride) in enumerate(_LAYERS):
        made = conv2d(x, f"conv{i + 1}", channels, window, strides=(stride, stride), data_layout=layout)
        x = nn.relu(nn.bias_add(made, var(f"conv{i + 1}_bias"), layout.index("C")))
    x = nn.relu(dense(nn.batch_flatten(x), "dense1", 512))
    x = dense(x, "dense2", num_actions)
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random parameters."""
    return create_workload(get_net(batch_size, num_actions, tuple(image_shape), dtype, layout))
