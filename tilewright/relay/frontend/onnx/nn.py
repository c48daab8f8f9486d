"""Products of matrices, convolutions and pools."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..common import windows
from ..common.embeddings import rotary
from ..common.matrices import SHORT, matmul
from ..common.pads import padded
from ..common.windows import Windows, max_with_places, pool, transposed, unpooled
from .build import R, cast, constant, dtype_of, rank, scalar, shape_of, static_shape
from .context import Node, converter
from .windows import windows_of

# ---------------------------------------------------------------------------- products
converter("MatMul")(lambda n: matmul(n[0], n[1]))


@converter("Gemm")
def gemm(n: Node) -> Any:
    a, b = n[0], n[1]
    if rank(a) > 2 and n.opset < 7:
        a = R.nn.batch_flatten(a)
    wide = "float32" if dtype_of(a) in SHORT else ""
    turns = {"transpose_a": n.flag("transA", 0), "transpose_b": n.flag("transB", 0)}
    made = cast(R.nn.matmul(a, b, out_dtype=wide, **turns), dtype_of(a))
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    if alpha != 1.0:
        made = R.multiply(made, scalar(alpha, made))
    if not n.has(2) or beta == 0.0:
        return made
    c = n[2]
    return R.add(made, c if beta == 1.0 else R.multiply(c, scalar(beta, c)))


@converter("RotaryEmbedding")
def rotary_embedding(n: Node) -> Any:
    positions = n[3] if n.has(3) else None
    return rotary(n[0], n[1], n[2], positions, n.flag("interleaved", 0), int(n.attr("num_heads", 0)))


# ---------------------------------------------------------------------------- convolution
def convolve(x: Any, w: Any, found: Windows, groups: int, out_dtype: str = "") -> Any:
    """A convolution whose sums are 32 bits wide at least."""
    if not out_dtype and dtype_of(x) in SHORT:
        return cast(windows.convolve(x, w, found, groups, "float32"), dtype_of(x))
    return windows.convolve(x, w, found, groups, out_dtype)


def conv_windows(n: Node, weight: int = 1) -> Windows:
    """The windows of a convolution."""
    return windows_of(n, _kernel(n, weight), n.shape(0)[2:])


def _kernel(n: Node, weight: int = 1) -> tuple[int, ...]:
    """The size of a convolution's windows: the shape of its weight, which an attribute may say again."""
    kernel = n.static(weight)[2:]
    given = n.attr("kernel_shape")
    if given is not None and tuple(given) != tuple(kernel):
        raise n.refuse(f"kernel_shape {list(given)} differs from the weight's {list(kernel)}")
    if n.rank(0) != n.rank(weight):
        raise n.refuse(f"data of shape {n.shape(0)} and a weight of {n.shape(weight)} do not fit")
    return kernel


def group_count(n: Node, channels: Any) -> int:
    groups = int(n.attr("group", 1))
    if groups < 1 or groups >= 1 << 31 or (isinstance(channels, int) and channels % groups):
        raise n.refuse(f"group {groups} does not divide {channels} channels")
    return groups


@converter("Conv")
def conv(n: Node) -> Any:
    made = convolve(n[0], n[1], conv_windows(n), group_count(n, n.shape(0)[1]))
    return R.nn.bias_add(made, n[2]) if n.has(2) else made


@converter("ConvTranspose")
def conv_transpose(n: Node) -> Any:
    x, w = n[0], n[1]
    kernel = _kernel(n)
    dims = len(kernel)
    base = windows_of(_without_auto(n), kernel, n.shape(0)[2:])
    extra = [int(v) for v in n.attr("output_padding", [0] * dims)]
    before, after = list(base.before), list(base.after)
    wanted = n.attr("output_shape")
    auto = n.attr("auto_pad", "NOTSET")
    for d in range(dims):
        reach = base.dilations[d] * (kernel[d] - 1) + 1
        if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
            size = n.static(0)[2 + d]
            goal = wanted[d] if wanted is not None else size * base.strides[d]
            total = (size - 1) * base.strides[d] + extra[d] + reach - goal
            if total < 0:
                extra[d], total = extra[d] - total, 0
            small, big = total // 2, total - total // 2
            # With an output shape, the larger half goes to the end only for SAME_UPPER.
            before[d], after[d] = (small, big) if auto == "SAME_UPPER" else (big, small)
    groups = group_count(n, n.shape(0)[1])
    base = replace(base, before=tuple(before), after=tuple(after))
    made = transposed(x, w, base, groups, extra)
    return R.nn.bias_add(made, n[2]) if n.has(2) else made


def _without_auto(n: Node) -> Node:
    """The node as one whose padding is explicit."""
    made = Node(n.importer, n.proto, n.inputs, n.opset)
    made.attrs = {k: v for k, v in n.attrs.items() if k not in ("auto_pad", "pads")}
    if n.attr("auto_pad", "NOTSET") == "NOTSET" and "pads" in n.attrs and "output_shape" not in n.attrs:
        made.attrs["pads"] = n.attrs["pads"]
    return made


@converter("DeformConv")
def deform_conv(n: Node) -> Any:
    """Bilinear samples at shifted places, then a product with the weight."""
    from .image import deformable

    return deformable(n)


# ---------------------------------------------------------------------------- pools
def pool_windows(n: Node) -> Windows:
    kernel = n.attr("kernel_shape")
    if kernel is None:
        raise n.refuse("kernel_shape is missing")
    if len(kernel) != n.rank(0) - 2:
        raise n.refuse(f"kernel_shape {list(kernel)} does not fit data of {n.rank(0)} dimensions")
    return windows_of(n, kernel, n.shape(0)[2:])


@converter("AveragePool")
def average_pool(n: Node) -> Any:
    return pool("avg", n[0], pool_windows(n), count_include_pad=n.flag("count_include_pad", 0))


@converter("MaxPool")
def max_pool(n: Node) -> Any:
    w, x = pool_windows(n), n[0]
    if len(n.outputs) < 2 or not n.outputs[1]:
        return pool("max", x, w)
    made, index = max_with_places(x, w, n.flag("storage_order", 0))
    images = math.prod(static_shape(x)[:2])
    start = np.arange(images, dtype=np.int64) * math.prod(static_shape(x)[2:])
    return [made, R.add(index, constant(start.reshape([*shape_of(x)[:2], *[1] * len(w.kernel)])))]


@converter("MaxUnpool")
def max_unpool(n: Node) -> Any:
    x, index = n[0], n[1]
    sizes = n.static(0)
    w = windows_of(n, n.attr("kernel_shape"), sizes[2:])
    natural = [
        (s - 1) * w.strides[d] - w.before[d] - w.after[d] + w.kernel[d] for d, s in enumerate(sizes[2:])
    ]
    whole = [*sizes[:2], *natural]
    target = n.ints(2) if n.has(2) else whole
    made = R.reshape(unpooled(x, index, 1, math.prod(whole)), whole)
    return padded(made, [(0, t - s) for t, s in zip(target, whole, strict=True)], value=scalar(0, x))


@converter("LpPool")
def lp_pool(n: Node) -> Any:
    """(Σ |x|^p)^(1/p): an average that is multiplied by the size of the window."""
    w, p, x = pool_windows(n), float(n.attr("p", 2)), n[0]
    raised = R.abs(x) if p == 1 else R.multiply(x, x) if p == 2 else R.power(R.abs(x), scalar(p, x))
    if w.ceil:
        sizes = static_shape(x)[2:]
        spare = [
            max((c - 1) * s + dl * (k - 1) + 1 - size - b - a, 0)
            for c, s, dl, k, size, b, a in zip(
                w.counts(sizes), w.strides, w.dilations, w.kernel, sizes, w.before, w.after, strict=True
            )
        ]
        after = tuple(a + m for a, m in zip(w.after, spare, strict=True))
        w = Windows(w.kernel, w.strides, w.dilations, w.before, after)
    total = R.multiply(pool("avg", raised, w, count_include_pad=True), scalar(math.prod(w.kernel), x))
    return total if p == 1 else R.sqrt(total) if p == 2 else R.power(total, scalar(1 / p, x))


def _spatial(n: Node) -> list[int]:
    return list(range(2, n.rank(0)))


@converter("GlobalAveragePool")
def global_average_pool(n: Node) -> Any:
    return R.nn.global_avg_pool2d(n[0]) if n.rank(0) == 4 else R.mean(n[0], axis=_spatial(n), keepdims=True)


@converter("GlobalMaxPool")
def global_max_pool(n: Node) -> Any:
    return R.nn.global_max_pool2d(n[0]) if n.rank(0) == 4 else R.max(n[0], axis=_spatial(n), keepdims=True)


@converter("GlobalLpPool")
def global_lp_pool(n: Node) -> Any:
    x, p = n[0], float(n.attr("p", 2))
    total = R.sum(R.power(R.abs(x), scalar(p, x)), axis=_spatial(n), keepdims=True)
    return R.power(total, scalar(1 / p, x))
