"""A multilayer perceptron."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Function, var
from ..op import nn
from .init import create_workload
from .layers import dense


def get_net(
    batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> Function:
    """Two hidden layers of 128 and 64, softmax."""
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = nn.batch_flatten(data)
    x = nn.relu(dense(x, "fc1", 128))
    x = nn.relu(dense(x, "fc2", 64))
    x = nn.softmax(dense(x, "fc3", num_classes))
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32",
    **options: Any,
) -> tuple[IRModule, dict[str, NDArray]]:  # fmt: skip
    """The network with random parameters."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype), **options)
