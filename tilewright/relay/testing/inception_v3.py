"""Inception v3 (Szegedy et al. 2015): branches of different filters, concatenated."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Expr, Function, var
from ..op import nn
from ..op.rearrange import concatenate
from .init import create_workload
from .layers import classifier, conv_bn_relu

Kernel = tuple[int, int]


class _Builder:
    """Names the convolutions by number."""

    def __init__(self) -> None:
        self.count = 0

    def conv(
        self, x: Expr, channels: int, kernel: int | Kernel = 1, stride: int = 1, padding: Any = 0
    ) -> Expr:
        self.count += 1
        size = (kernel, kernel) if isinstance(kernel, int) else kernel
        pad = (padding, padding) if isinstance(padding, int) else padding
        return conv_bn_relu(x, f"conv{self.count}", channels, size, strides=(stride, stride), padding=pad)

    def chain(self, x: Expr, *layers: tuple[int, Any]) -> Expr:
        """Convolutions one after the other that keep the size of the image: (channels, kernel)."""
        for channels, kernel in layers:
            size = (kernel, kernel) if isinstance(kernel, int) else kernel
            x = self.conv(x, channels, size, padding=(size[0] // 2, size[1] // 2))
        return x

    def pooled(self, x: Expr, channels: int) -> Expr:
        pooled = nn.avg_pool2d(x, pool_size=(3, 3), strides=(1, 1), padding=(1, 1), count_include_pad=True)
        return self.conv(pooled, channels)

    def block_a(self, x: Expr, pool: int) -> Expr:
        """35×35: filters of 1, 5 and twice 3."""
        parts = [
            self.chain(x, (64, 1)),
            self.chain(x, (48, 1), (64, 5)),
            self.chain(x, (64, 1), (96, 3), (96, 3)),
            self.pooled(x, pool),
        ]
        return concatenate(parts, axis=1)

    def block_b(self, x: Expr, width: int) -> Expr:
        """17×17: filters of 7 cut into 1×7 and 7×1."""
        parts = [
            self.chain(x, (192, 1)),
            self.chain(x, (width, 1), (width, (1, 7)), (192, (7, 1))),
            self.chain(x, (width, 1), (width, (7, 1)), (width, (1, 7)), (width, (7, 1)), (192, (1, 7))),
            self.pooled(x, 192),
        ]
        return concatenate(parts, axis=1)

    def block_c(self, x: Expr) -> Expr:
        """8×8: filters of 3 beside each other as 1×3 and 3×1."""
        wide = self.chain(x, (384, 1))
        deep = self.chain(x, (448, 1), (384, 3))
        parts = [
            self.chain(x, (320, 1)),
            concatenate([self.chain(wide, (384, (1, 3))), self.chain(wide, (384, (3, 1)))], axis=1),
            concatenate([self.chain(deep, (384, (1, 3))), self.chain(deep, (384, (3, 1)))], axis=1),
            self.pooled(x, 192),
        ]
        return concatenate(parts, axis=1)

    def halve(self, x: Expr, *branches: tuple[tuple[tuple[int, Any], ...], int]) -> Expr:
        """A step down in size: branches that end in a stride of 2, and a pooling."""
        parts = [self.conv(self.chain(x, *before), channels, 3, stride=2) for before, channels in branches]
        return concatenate([*parts, nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))], axis=1)


def get_net(
    batch_size: int, num_classes: int, image_shape: tuple[int, ...], dtype: str = "float32"
) -> Function:
    """The network, for images of about 299 pixels."""
    b = _Builder()
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = b.conv(data, 32, 3, stride=2)
    x = b.conv(x, 32, 3)
    x = b.conv(x, 64, 3, padding=1)
    x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))
    x = b.conv(b.conv(x, 80), 192, 3)
    x = nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2))
    for pool in (32, 64, 64):
        x = b.block_a(x, pool)
    x = b.halve(x, ((), 384), (((64, 1), (96, 3)), 96))
    for width in (128, 160, 160, 192):
        x = b.block_b(x, width)
    x = b.halve(x, (((192, 1),), 320), (((192, 1), (192, (1, 7)), (192, (7, 1))), 192))
    for _ in range(2):
        x = b.block_c(x)
    x = classifier(x, num_classes, "fc1")
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 299, 299),
    dtype: str = "float32",
    seed: int = 0,
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random parameters."""
    return create_workload(get_net(batch_size, num_classes, tuple(image_shape), dtype), seed=seed)
