"""Layers whose parameters are variables named after them."""

from __future__ import annotations

from typing import Any

from ..expr import Expr, Var, var
from ..op import nn


def conv2d(data: Expr, name: str, channels: int, kernel: int | tuple[int, int], **options: Any) -> Expr:
    """A convolution with the weight `{name}_weight`; its shape is found when the data's is known."""
    size = (kernel, kernel) if isinstance(kernel, int) else kernel
    weight = _weight(data, name, channels, size, options)
    return nn.conv2d(data, weight, channels=channels, kernel_size=size, **options)


def _weight(data: Expr, name: str, channels: int, size: tuple[int, int], options: dict[str, Any]) -> Var:
    from ..transform.infer_type import infer_type

    layout = options.get("data_layout", "NCHW")
    taken = infer_type(data).checked_type.shape[layout.index("C")] // options.get("groups", 1)
    if layout == "NHWC":
        kernel_layout = options.setdefault("kernel_layout", "HWIO")
        sizes = {"H": size[0], "W": size[1], "I": taken, "O": channels}
        return var(f"{name}_weight", shape=tuple(sizes[c] for c in kernel_layout))
    return var(f"{name}_weight", shape=(channels, taken, *size))


def batch_norm(data: Expr, name: str, axis: int = 1, epsilon: float = 2e-5) -> Expr:
    """Batch normalisation with `{name}_gamma`, `_beta`, `_moving_mean`, `_moving_var`."""
    from ..transform.infer_type import infer_type

    size = infer_type(data).checked_type.shape[axis]
    gamma, beta, mean, variance = (
        var(f"{name}_{part}", shape=(size,)) for part in ("gamma", "beta", "moving_mean", "moving_var")
    )
    return nn.batch_norm(data, gamma, beta, mean, variance, axis=axis, epsilon=epsilon)[0]


def conv_bn_relu(data: Expr, name: str, channels: int, kernel: Any, axis: int = 1, **options: Any) -> Expr:
    """Convolution, batch normalisation, relu."""
    return nn.relu(batch_norm(conv2d(data, name, channels, kernel, **options), f"{name}_bn", axis))


def dense(data: Expr, name: str, units: int) -> Expr:
    """A fully connected layer with `{name}_weight` and `{name}_bias`."""
    from ..transform.infer_type import infer_type

    taken = infer_type(data).checked_type.shape[-1]
    weight, bias = var(f"{name}_weight", shape=(units, taken)), var(f"{name}_bias", shape=(units,))
    return nn.bias_add(nn.dense(data, weight, units=units), bias, axis=-1)


def classifier(data: Expr, num_classes: int, name: str = "fc", layout: str = "NCHW") -> Expr:
    """Mean over the image, a fully connected layer, softmax."""
    pooled = nn.batch_flatten(nn.global_avg_pool2d(data, layout=layout))
    return nn.softmax(dense(pooled, name, num_classes))
