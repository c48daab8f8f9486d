"""The generator of DCGAN: an image of 64 × 64 from a vector of random numbers."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Expr, Function, var
from ..op import nn
from ..op.elementwise import tanh
from ..op.rearrange import reshape
from .init import create_workload
from .layers import batch_norm

_KERNELS = {"NCHW": "IOHW", "NHWC": "HWOI"}


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    code: Expr | None = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """A fully connected layer and four transposed convolutions, each of which doubles height and width."""
    if tuple(oshape[-2:]) != (64, 64) or layout not in _KERNELS:
        raise ValueError(f"dcgan: images are of 64 × 64 in NCHW or NHWC, not {oshape} in {layout}")
    data = var("data", shape=(batch_size, random_len), dtype=dtype) if code is None else code
    x = nn.relu(nn.dense(data, var("dense_weight"), units=4 * 4 * ngf * 8))
    channels = ngf * 8
    x = reshape(x, (-1, channels, 4, 4) if layout == "NCHW" else (-1, 4, 4, channels))
    for i in range(4):
        channels = oshape[0] if i == 3 else channels // 2
        x = nn.conv2d_transpose(
            x,
            var(f"g{i + 2}_deconv_weight"),
            strides=(2, 2),
            padding=(1, 1),
            channels=channels,
            kernel_size=(4, 4),
            data_layout=layout,
            kernel_layout=_KERNELS[layout],
        )
        if i < 3:
            x = nn.relu(batch_norm(x, f"g{i + 2}_batch_norm", layout.index("C"), 1e-5))
    x = tanh(x)
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The generator with random parameters."""
    return create_workload(get_net(batch_size, random_len, tuple(oshape), ngf, None, layout, dtype))
