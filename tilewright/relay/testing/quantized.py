"""Networks of 8-bit integers: ResNet and MobileNet (v1) as an accelerator computes them.

    int8 ─▶ conv2d ─▶ int32 ─▶ + bias ─▶ >> shift ─▶ clip ─▶ int8

Scales are powers of two, so that rescaling is a shift. Images are quantized at the start, scores are floats at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from .. import op as R
from ..analysis import free_vars
from ..expr import Expr, Function, const, var
from .init import INTEGERS, create_workload
from .mobilenet import BLOCKS
from .resnet import UNITS

_WIDTHS = (64, 128, 256, 512)
_SCALE = 32.0  # of images: 1.0 is this number


def resnet(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    widths: tuple[int, ...] = _WIDTHS,
) -> Function:
    """A residual network of 18 or 34 layers; `widths` are the channels of its stages.

    Images of 32 pixels or less get the small stem.
    """
    if num_layers not in (18, 34):
        raise ValueError(f"resnet of integers: there are 18 and 34 layers, not {num_layers}")
    x = _image(batch_size, image_shape)
    if image_shape[1] <= 32:
        x = _layer(x, "conv0", widths[0], 3)
    else:
        x = _layer(x, "conv0", widths[0], 7, 2)
        x = R.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for i, (count, channels) in enumerate(zip(UNITS[num_layers], widths, strict=False)):
        for j in range(count):
            stride = 2 if j == 0 and i > 0 else 1
            x = _unit(x, channels, stride, f"stage{i + 1}_unit{j + 1}")
    return _classified(x, num_classes)


def mobilenet(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    alpha: float = 1.0,
    blocks: int = len(BLOCKS),
) -> Function:
    """A network of depthwise-separable convolutions; `alpha` scales the number of channels."""
    x = _layer(_image(batch_size, image_shape), "conv0", int(32 * alpha), 3, 2)
    for i, (channels, stride) in enumerate(BLOCKS[:blocks], 1):
        x = _layer(x, f"block{i}_depthwise", _channels(x), 3, stride, groups=_channels(x))
        x = _layer(x, f"block{i}_pointwise", int(channels * alpha), 1)
    return _classified(x, num_classes)


def get_workload(name: str = "resnet", seed: int = 0, **options: Any) -> tuple[IRModule, dict[str, NDArray]]:
    """A network, `resnet` or `mobilenet`, with random parameters."""
    networks: dict[str, Callable[..., Function]] = {"resnet": resnet, "mobilenet": mobilenet}
    if name not in networks:
        raise ValueError(f"there is no network of integers {name!r}; there are {', '.join(networks)}")
    return create_workload(networks[name](**options), seed=seed)


# ---------------------------------------------------------------------------- layers
def _image(batch_size: int, shape: tuple[int, ...]) -> Expr:
    data = var("data", shape=(batch_size, *shape), dtype="float32")
    return R.cast(R.clip(R.round(R.multiply(data, const(_SCALE))), -127, 127), "int8")


def _layer(
    x: Expr, name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1, low: int = 0
) -> Expr:
    """A convolution with bias, rescaled to int8; `low` is the least value, 0 for a relu."""
    taken = _channels(x) // groups
    weight = var(f"{name}_weight", shape=(channels, taken, kernel, kernel), dtype="int8")
    bias = var(f"{name}_bias", shape=(channels,), dtype="int32")
    y = R.nn.conv2d(
        x,
        weight,
        strides=(stride, stride),
        padding=(kernel // 2, kernel // 2),
        groups=groups,
        channels=channels,
        kernel_size=(kernel, kernel),
        out_dtype="int32",
    )
    return _rescaled(R.nn.bias_add(y, bias), _shift(taken * kernel * kernel), low)


def _unit(x: Expr, channels: int, stride: int, name: str) -> Expr:
    """A residual unit: two convolutions, and the sum with its input."""
    y = _layer(x, f"{name}_conv1", channels, 3, stride)
    y = _layer(y, f"{name}_conv2", channels, 3, low=-127)
    if stride > 1 or _channels(x) != channels:
        x = _layer(x, f"{name}_sc", channels, 1, stride, low=-127)
    total = R.add(R.cast(y, "int32"), R.cast(x, "int32"))
    return R.cast(R.clip(total, 0, 127), "int8")


def _classified(x: Expr, num_classes: int) -> Function:
    """The mean over the image up to a factor, a dense layer, softmax."""
    height, width = _shape(x)[2:]
    total = R.sum(R.cast(x, "int32"), axis=(2, 3))
    pooled = _rescaled(total, math.ceil(math.log2(height * width)), 0)
    weight = var("fc_weight", shape=(num_classes, _channels(x)), dtype="int8")
    bias = var("fc_bias", shape=(num_classes,), dtype="int32")
    scores = R.nn.bias_add(R.nn.dense(pooled, weight, units=num_classes, out_dtype="int32"), bias)
    scale = 2.0 ** -(_shift(_channels(x)) + 4)
    out = R.nn.softmax(R.multiply(R.cast(scores, "float32"), const(scale)))
    return Function(free_vars(out), out)


def _rescaled(x: Expr, shift: int, low: int) -> Expr:
    return R.cast(R.clip(R.right_shift(x, const(shift, "int32")), low, 127), "int8")


def _shift(products: int) -> int:
    """The shift that gives a sum of random products the spread of its inputs."""
    return round(math.log2(math.sqrt(products) * INTEGERS / math.sqrt(3)))


def _shape(x: Expr) -> tuple[int, ...]:
    from ..transform.infer_type import infer_type

    return infer_type(x).checked_type.shape  # type: ignore[no-any-return]


def _channels(x: Expr) -> int:
    return _shape(x)[1]
