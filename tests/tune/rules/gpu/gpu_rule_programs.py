"""Small programs for the tests of rules for GPUs."""

from __future__ import annotations

from functools import cache
from typing import Any

from tilewright import te, topi

H200, A100, T4, OPENCL = "cuda -model=h200", "cuda -arch=sm_80", "cuda -arch=sm_75", "opencl"


@cache
def product(m: int, n: int, k: int, dtype: str = "float32", across: bool = False) -> list[Any]:
    """A product of matrices that are contiguous along the reduction; with `across`, the second is not."""
    a = te.placeholder((m, k), dtype, name="a")
    b = te.placeholder((k, n) if across else (n, k), dtype, name="b")
    out = "int32" if dtype == "int8" else "float32"
    return [a, b, topi.nn.matmul(a, b, None, out) if across else topi.nn.dense(a, b, None, out)]


@cache
def conv(
    shape: tuple[int, ...], filters: int, window: int, dtype: str = "float32", pad: int = 0
) -> list[Any]:
    """A convolution: channels last for narrow types, else first."""
    last = dtype != "float32"
    channels = shape[3] if last else shape[1]
    kernel = (window, window, channels, filters) if last else (filters, channels, window, window)
    x, w = te.placeholder(shape, dtype, name="x"), te.placeholder(kernel, dtype, name="w")
    out = "int32" if dtype == "int8" else "float32"
    return [x, w, topi.nn.conv2d(x, w, 1, pad, 1, "NHWC" if last else "NCHW", out_dtype=out)]


@cache
def channels_first(shape: tuple[int, ...], filters: int, window: int, dtype: str, pad: int = 0) -> list[Any]:
    x = te.placeholder(shape, dtype, name="x")
    w = te.placeholder((filters, shape[1], window, window), dtype, name="w")
    return [x, w, topi.nn.conv2d(x, w, 1, pad, 1, "NCHW", out_dtype="float32")]


def rows(f: Any, *shape: Any) -> list[Any]:
    x = te.placeholder(shape, name="x")
    return [x, f(x)]


@cache
def softmax(*shape: int, axis: int = -1) -> list[Any]:
    return rows(lambda x: topi.nn.softmax(x, axis=axis), *shape)


@cache
def total(*shape: Any, axis: Any = -1) -> list[Any]:
    return rows(lambda x: topi.sum(x, axis=axis), *shape)


@cache
def tanh(*shape: int) -> list[Any]:
    return rows(topi.tanh, *shape)


@cache
def transposed(*shape: int) -> list[Any]:
    return rows(topi.transpose, *shape)


@cache
def cumsum(*shape: int) -> list[Any]:
    return rows(lambda x: topi.cumsum(x, axis=1), *shape)


@cache
def cumulated(*shape: int) -> list[Any]:
    """Lines in parallel, with an operator that is not known to be associative."""
    return rows(lambda x: topi.reduction.scanop(x, lambda a, b: a * b + b, 1, "sums", 1), *shape)


@cache
def pooled(*shape: int, layout: str = "NCHW") -> list[Any]:
    """The largest values of windows of 3 x 3, at every second pixel."""
    return rows(
        lambda x: topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max", layout=layout), *shape
    )


@cache
def depthwise(channels: int = 32, size: int = 8) -> list[Any]:
    x = te.placeholder((1, channels, size, size), name="x")
    w = te.placeholder((channels, 1, 3, 3), name="w")
    return [x, w, topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)]


@cache
def decoding(keys: int, width: int, heads: int = 1, dtype: str = "float16") -> list[Any]:
    """Attention of one query over its past."""
    q, k, v = (
        te.placeholder((1, heads, n, width), dtype, name=x) for x, n in (("q", 1), ("k", keys), ("v", keys))
    )
    return [q, k, v, topi.nn.scaled_dot_product_attention(q, k, v)]


@cache
def attention(rows: int = 128, width: int = 64, heads: int = 1, dtype: str = "float16") -> list[Any]:
    q, k, v = (te.placeholder((1, heads, rows, width), dtype, name=n) for n in "qkv")
    return [q, k, v, topi.nn.scaled_dot_product_attention(q, k, v)]
