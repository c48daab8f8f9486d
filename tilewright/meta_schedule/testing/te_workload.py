"""Operators that tuners are measured with, as tensor expressions: each function returns inputs and result.

func = create_te_workload("C2D", 0)        # the first convolution of ResNet-18, as a PrimFunc
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ... import te, topi
from ...absent import attributes
from ...ir.function import PrimFunc

Tensors = tuple[te.Tensor, ...]


def _product(a: Any, b: Any, dtype: str) -> Any:
    return a.astype(dtype) * b.astype(dtype)


# ---------------------------------------------------------------------------- products of matrices
def matmul(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> Tensors:
    """C[i, j] = sum over k of A[i, k] * B[k, j]."""
    a = te.placeholder((n, k), name="A", dtype=in_dtype)
    b = te.placeholder((k, m), name="B", dtype=in_dtype)
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(_product(a[i, r], b[r, j], out_dtype), axis=r), name="C")
    return a, b, c


def matmul_fp16(n: int, m: int, k: int) -> Tensors:
    """A product of float16 matrices, summed in float32."""
    return matmul(n, m, k, "float16", "float32")


def matmul_relu(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> Tensors:
    """A product of matrices, and the rectifier behind it."""
    a, b, c = matmul(n, m, k, in_dtype, out_dtype)
    return a, b, topi.nn.relu(c)


def batch_matmul_nkkm(
    B: int, N: int, M: int, K: int, in_dtype: str = "float32", out_dtype: str = "float32"
) -> Tensors:
    """Z[b, i, j] = sum over k of X[b, i, k] * Y[b, k, j]."""
    x = te.placeholder((B, N, K), name="X", dtype=in_dtype)
    y = te.placeholder((B, K, M), name="Y", dtype=in_dtype)
    k = te.reduce_axis((0, K), name="k")
    z = te.compute(
        (B, N, M), lambda b, i, j: te.sum(_product(x[b, i, k], y[b, k, j], out_dtype), axis=k), name="Z"
    )
    return x, y, z


def transpose_batch_matmul(
    batch: int, seq_len: int, n_head: int, n_dim: int, in_dtype: str = "float32", out_dtype: str = "float32"
) -> Tensors:
    """The scores of attention: the products of queries and values, which lie in memory head by head for each place."""
    shape = (batch, seq_len, n_head, n_dim)
    query = te.placeholder(shape, name="query", dtype=in_dtype)
    value = te.placeholder(shape, name="value", dtype=in_dtype)
    rows = te.compute((batch, n_head, seq_len, n_dim), lambda b, h, s, d: query[b, s, h, d], name="query_T")
    columns = te.compute(
        (batch, n_head, n_dim, seq_len), lambda b, h, d, s: value[b, s, h, d], name="value_T"
    )
    k = te.reduce_axis((0, n_dim), name="k")
    out = te.compute(
        (batch, n_head, seq_len, seq_len),
        lambda b, h, i, j: te.sum(_product(rows[b, h, i, k], columns[b, h, k, j], out_dtype), axis=k),
        name="C",
    )
    return query, value, out


# ---------------------------------------------------------------------------- convolutions
def _channels_last(
    name: str, batch: int, sizes: dict[str, int], ci: int, co: int, kernel_size: int, stride: int, padding: int,
    dilation: int, groups: int, in_dtype: str, out_dtype: str,
) -> Tensors:  # fmt: skip
    """A convolution over the axes in `sizes`, whose inputs have the channels last."""
    inputs = te.placeholder((batch, *sizes.values(), ci), name="inputs", dtype=in_dtype)
    weight = te.placeholder((*[kernel_size] * len(sizes), ci // groups, co), name="weight", dtype=in_dtype)
    padded = topi.nn.pad(inputs, [0, *[padding] * len(sizes), 0])
    window = [te.reduce_axis((0, kernel_size), name=f"r{axis}") for axis in sizes]
    rc = te.reduce_axis((0, ci // groups), name="rc")
    reach = dilation * (kernel_size - 1) + 1
    shape = (batch, *[(size + 2 * padding - reach) // stride + 1 for size in sizes.values()], co)

    def at(n: Any, *rest: Any) -> Any:
        *places, c = rest
        moved = [p * stride + r * dilation for p, r in zip(places, window, strict=True)]
        channel = c // (co // groups) * (ci // groups) + rc
        taken = _product(padded[(n, *moved, channel)], weight[(*window, rc, c)], out_dtype)
        return te.sum(taken, axis=[*window, rc])

    return inputs, weight, te.compute(shape, at, name=name)


def conv1d_nlc(
    N: int, L: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1,
    groups: int = 1, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:  # fmt: skip
    """A convolution of sequences."""
    sizes = {"l": L}
    return _channels_last(
        "conv1d_nlc", N, sizes, CI, CO, kernel_size, stride, padding, dilation, groups, in_dtype, out_dtype
    )


def conv2d_nhwc(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0,
    dilation: int = 1, groups: int = 1, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:  # fmt: skip
    """A convolution of images."""
    sizes = {"h": H, "w": W}
    return _channels_last(
        "conv2d_nhwc", N, sizes, CI, CO, kernel_size, stride, padding, dilation, groups, in_dtype, out_dtype
    )


def conv3d_ndhwc(
    N: int, D: int, H: int, W: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0,
    dilation: int = 1, groups: int = 1, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:  # fmt: skip
    """A convolution of volumes."""
    sizes = {"d": D, "h": H, "w": W}
    return _channels_last(
        "conv3d_ndhwc", N, sizes, CI, CO, kernel_size, stride, padding, dilation, groups, in_dtype, out_dtype
    )


def depthwise_conv2d_nhwc(
    N: int, H: int, W: int, C: int, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1,
    factor: int = 1, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:  # fmt: skip
    """A convolution of each channel by itself, with `factor` results for each."""
    inputs = te.placeholder((N, H, W, C), name="inputs", dtype=in_dtype)
    weight = te.placeholder((factor, kernel_size, kernel_size, C), name="weight", dtype=in_dtype)
    padded = topi.nn.pad(inputs, [0, padding, padding, 0])
    rh, rw = (te.reduce_axis((0, kernel_size), name=name) for name in ("rh", "rw"))
    reach = dilation * (kernel_size - 1) + 1
    high, wide = ((size + 2 * padding - reach) // stride + 1 for size in (H, W))

    def at(n: Any, h: Any, w: Any, c: Any) -> Any:
        own = padded[n, h * stride + rh * dilation, w * stride + rw * dilation, c // factor]
        return te.sum(_product(own, weight[c % factor, rh, rw, c // factor], out_dtype), axis=[rh, rw])

    return inputs, weight, te.compute((N, high, wide, C * factor), at, name="depth_conv2d_nhwc")


def conv2d_transpose_nhwc(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0,
    in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:  # fmt: skip
    """A transposed convolution: out[p] sums in[q] * weight[r] over all q and r with q * stride + r = p + padding."""
    inputs = te.placeholder((N, H, W, CI), name="inputs", dtype=in_dtype)
    weight = te.placeholder((kernel_size, kernel_size, CI, CO), name="weight", dtype=in_dtype)
    rh, rw = (te.reduce_axis((0, kernel_size), name=name) for name in ("rh", "rw"))
    rc = te.reduce_axis((0, CI), name="rc")
    high, wide = ((size - 1) * stride - 2 * padding + kernel_size for size in (H, W))

    def at(n: Any, h: Any, w: Any, c: Any) -> Any:
        p, q = h + padding - rh, w + padding - rw
        y, x = p // stride, q // stride
        there = te.all((p % stride).equal(0), (q % stride).equal(0), y >= 0, y < H, x >= 0, x < W)
        taken = te.if_then_else(there, inputs[n, y, x, rc], te.const(0, in_dtype))
        return te.sum(_product(taken, weight[rh, rw, rc, c], out_dtype), axis=[rh, rw, rc])

    return inputs, weight, te.compute((N, high, wide, CO), at, name="conv2d_transpose_nhwc")


def conv2d_capsule_nhwijc(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0,
    capsule_size: int = 4, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:  # fmt: skip
    """A convolution whose elements are small matrices."""
    cap = capsule_size
    inputs = te.placeholder((N, H, W, cap, cap, CI), name="inputs", dtype=in_dtype)
    weight = te.placeholder((kernel_size, kernel_size, cap, cap, CI, CO), name="weight", dtype=in_dtype)
    padded = topi.nn.pad(inputs, [0, padding, padding, 0, 0, 0])
    rh, rw = (te.reduce_axis((0, kernel_size), name=name) for name in ("rh", "rw"))
    k, rc = te.reduce_axis((0, cap), name="cap_k"), te.reduce_axis((0, CI), name="rc")
    high, wide = ((size + 2 * padding - kernel_size) // stride + 1 for size in (H, W))

    def at(n: Any, h: Any, w: Any, i: Any, j: Any, c: Any) -> Any:
        taken = padded[n, h * stride + rh, w * stride + rw, i, k, rc]
        return te.sum(_product(taken, weight[rh, rw, k, j, rc, c], out_dtype), axis=[rh, rw, k, rc])

    shape = (N, high, wide, cap, cap, CO)
    return inputs, weight, te.compute(shape, at, name="conv2d_capsule_nhwijc")


def conv2d_nhwc_bn_relu(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, strides: int, padding: int, dilation: int = 1,
    in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:  # fmt: skip
    """A convolution, a bias, the scale and offset of a batch norm, and the rectifier."""
    conv = conv2d_nhwc(N, H, W, CI, CO, kernel_size, strides, padding, dilation, 1, in_dtype, out_dtype)
    return _normalised(conv, "bias", (CO,), out_dtype)


def _normalised(layer: Tensors, bias: str, shape: tuple[int, ...], dtype: str) -> Tensors:
    """The result of a layer with a bias, the scale and offset of a batch norm, and the rectifier behind it."""
    names = (bias, "bn_scale", "bn_offset")
    own, scale, offset = (te.placeholder(shape, name=name, dtype=dtype) for name in names)
    out = topi.nn.relu(topi.add(topi.multiply(topi.add(layer[-1], own), scale), offset))
    return *layer[:-1], own, offset, scale, out


def conv2d_nchw(
    n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int, padding: int, dilation: int = 1,
    in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:  # fmt: skip
    """A convolution of images whose channels come before the rows."""
    data = te.placeholder((n, ci, h, w), name="X", dtype=in_dtype)
    kernel = te.placeholder((co, ci, kh, kw), name="W", dtype=in_dtype)
    return data, kernel, topi.nn.conv2d_nchw(data, kernel, stride, padding, dilation, out_dtype)


def conv2d_nchw_bias_bn_relu(
    n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int, padding: int, dilation: int = 1,
    in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:  # fmt: skip
    """The same with a bias, the scale and offset of a batch norm, and the rectifier."""
    conv = conv2d_nchw(n, h, w, ci, co, kh, kw, stride, padding, dilation, in_dtype, out_dtype)
    return _normalised(conv, "B", (co, 1, 1), out_dtype)


# ---------------------------------------------------------------------------- reductions
def max_pool2d_nchw(n: int, h: int, w: int, ci: int, padding: int) -> Tensors:
    """The largest of each 2x2 pixels."""
    data = te.placeholder((n, ci, h, w), name="X")
    return data, topi.nn.pool2d(data, [2, 2], [1, 1], [1, 1], [padding] * 4, "max")


def norm_bmn(B: int, M: int, N: int) -> Tensors:
    """The length of each matrix of a batch, as a vector."""
    a = te.placeholder((B, M, N), name="A")
    i, j = te.reduce_axis((0, M), name="i"), te.reduce_axis((0, N), name="j")
    c = te.compute((B,), lambda b: te.sum(a[b, i, j] * a[b, i, j], axis=[i, j]), name="C")
    return a, te.compute((B,), lambda b: te.sqrt(c[b]), name="D")


def softmax_mn(m: int, n: int) -> Tensors:
    """The softmax of each row."""
    a = te.placeholder((m, n), name="A")
    return a, topi.nn.softmax(a, axis=1)


# The operators by short names, each with some shapes.
CONFIGS: Final[dict[str, tuple[Callable[..., Tensors], list[tuple[int, ...]]]]] = {
    "C1D": (
        conv1d_nlc,
        [
            (1, 256, 64, 128, 3, 2, 1),
            (1, 128, 128, 256, 1, 2, 0),
            (1, 64, 256, 256, 5, 1, 2),
            (1, 32, 512, 512, 3, 1, 1),
        ],
    ),
    "C2D": (
        conv2d_nhwc,
        [
            (1, 224, 224, 3, 64, 7, 2, 3),
            (1, 56, 56, 64, 64, 1, 1, 0),
            (1, 14, 14, 256, 256, 3, 1, 1),
            (1, 7, 7, 512, 512, 3, 1, 1),
        ],
    ),
    "C3D": (
        conv3d_ndhwc,
        [
            (1, 16, 224, 224, 3, 64, 7, 2, 3),
            (1, 16, 56, 56, 64, 64, 1, 1, 0),
            (1, 16, 14, 14, 256, 256, 3, 1, 1),
            (1, 16, 7, 7, 512, 512, 3, 1, 1),
        ],
    ),
    "GMM": (batch_matmul_nkkm, [(1, 128, 128, 128), (1, 512, 32, 512), (1, 512, 512, 512), (1, 1024, 1024, 1024)]),
    "GRP": (
        conv2d_nhwc,
        [
            (1, 56, 56, 64, 128, 3, 2, 1, 1, 4),
            (1, 56, 56, 64, 64, 1, 1, 0, 1, 4),
            (1, 14, 14, 256, 256, 3, 1, 1, 1, 4),
            (1, 7, 7, 512, 512, 3, 1, 1, 1, 4),
        ],
    ),
    "DIL": (
        conv2d_nhwc,
        [
            (1, 224, 224, 3, 64, 7, 2, 3, 2),
            (1, 56, 56, 64, 64, 1, 1, 0, 2),
            (1, 14, 14, 256, 256, 3, 1, 1, 2),
            (1, 7, 7, 512, 512, 3, 1, 1, 2),
        ],
    ),
    "DEP": (
        depthwise_conv2d_nhwc,
        [
            (1, 112, 112, 32, 3, 1, 1),
            (1, 112, 112, 64, 3, 2, 1),
            (1, 14, 14, 512, 3, 2, 1),
            (1, 7, 7, 1024, 3, 1, 1),
        ],
    ),
    "T2D": (
        conv2d_transpose_nhwc,
        [
            (1, 4, 4, 512, 256, 4, 2, 1),
            (1, 8, 8, 256, 128, 4, 2, 1),
            (1, 16, 16, 128, 64, 4, 2, 1),
            (1, 32, 32, 64, 3, 4, 2, 1),
        ],
    ),
    "CAP": (
        conv2d_capsule_nhwijc,
        [
            (1, 16, 16, 32, 32, 3, 2, 1),
            (1, 8, 8, 32, 32, 3, 1, 1),
            (1, 16, 16, 8, 16, 3, 2, 1),
            (1, 8, 8, 16, 16, 3, 1, 1),
        ],
    ),
    "NRM": (norm_bmn, [(1, 256, 256), (1, 512, 512), (1, 1024, 1024), (1, 4096, 1024)]),
    "SFM": (softmax_mn, [(256, 256), (512, 512), (1024, 1024), (2048, 2048)]),
    "CBR": (
        conv2d_nhwc_bn_relu,
        [
            (1, 224, 224, 3, 64, 7, 2, 3),
            (1, 56, 56, 64, 128, 3, 2, 1),
            (1, 28, 28, 128, 256, 1, 2, 0),
            (1, 7, 7, 512, 512, 3, 1, 1),
        ],
    ),
    "TBG": (transpose_batch_matmul, [(1, 128, 12, 64), (1, 128, 16, 64), (1, 64, 12, 128), (1, 128, 12, 128)]),
}  # fmt: skip


def create_te_workload(name: str, idx: int) -> PrimFunc:
    """The operator of a short name with its shape of that number, as a loop program."""
    if name not in CONFIGS:
        raise ValueError(f"there is no workload {name!r}; there are {', '.join(CONFIGS)}")
    function, shapes = CONFIGS[name]
    if not 0 <= idx < len(shapes):
        raise ValueError(f"workload {name} has {len(shapes)} shapes, and none of number {idx}")
    return te.create_prim_func(list(function(*shapes[idx])))


__getattr__ = attributes(__name__)
