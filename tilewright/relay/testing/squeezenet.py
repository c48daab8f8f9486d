"""SqueezeNet: few parameters, many concatenations."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Expr, Function, var
from ..op import nn
from ..op.rearrange import concatenate
from .init import create_workload
from .layers import conv2d

# For each fire module (squeeze, expand); None is a pooling.
_FIRES = {
    "1.0": ((16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256)),
    "1.1": ((16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256)),
}


def _conv(x: Expr, name: str, channels: int, kernel: int, padding: int = 0, stride: int = 1) -> Expr:
    made = conv2d(x, name, channels, kernel, padding=(padding, padding), strides=(stride, stride))
    return nn.relu(nn.bias_add(made, var(f"{name}_bias", shape=(channels,))))


def _fire(x: Expr, name: str, squeeze: int, expand: int) -> Expr:
    x = _conv(x, f"{name}_squeeze", squeeze, 1)
    return concatenate(
        [_conv(x, f"{name}_expand1", expand, 1), _conv(x, f"{name}_expand3", expand, 3, 1)], axis=1
    )


def get_net(
    batch_size: int, image_shape: tuple[int, ...], num_classes: int, version: str, dtype: str = "float32"
) -> Function:
    """The network of version "1.0" or "1.1"."""
    if version not in _FIRES:
        raise ValueError(f"squeezenet: there are versions 1.0 and 1.1, not {version}")
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = _conv(data, "conv1", 96 if version == "1.0" else 64, 7 if version == "1.0" else 3, 0, 2)
    x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))
    for i, fire in enumerate(_FIRES[version]):
        x = (
            nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))
            if fire is None
            else _fire(x, f"fire{i + 2}", *fire)
        )
    x = _conv(nn.dropout(x, rate=0.5), "conv_final", num_classes, 1)
    x = nn.softmax(nn.batch_flatten(nn.global_avg_pool2d(x)))
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    seed: int = 0,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random parameters."""
    return create_workload(get_net(batch_size, tuple(image_shape), num_classes, version, dtype), seed=seed)
