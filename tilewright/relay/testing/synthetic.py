"""A small network for tests: two convolutions, a batch normalisation, a pooling, a sum over a way around."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Function, var
from ..op import nn
from .init import create_workload
from .layers import batch_norm, conv2d


def get_net(
    input_shape: tuple[int, ...] = (1, 3, 24, 12), dtype: str = "float32", wtype: str = "float32"
) -> Function:
    """The network over images of `input_shape`."""
    if dtype != wtype:
        raise ValueError(f"synthetic: weights of {wtype} for data of {dtype}; give one type")
    data = var("data", shape=input_shape, dtype=dtype)
    first = conv2d(data, "conv1", 16, 3, padding=(1, 1))
    x = nn.relu(batch_norm(first, "bn1"))
    x = nn.relu(conv2d(x, "conv2", 16, 3, padding=(1, 1)) + first)
    x = nn.batch_flatten(nn.global_avg_pool2d(nn.max_pool2d(x, (2, 2), (2, 2))))
    return Function(free_vars(x), x)


def get_workload(
    input_shape: tuple[int, ...] = (1, 3, 24, 12),
    dtype: str = "float32",
    wtype: str = "float32",
    **options: Any,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random parameters."""
    return create_workload(get_net(input_shape, dtype, wtype), **options)
