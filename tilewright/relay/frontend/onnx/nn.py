"""Products of matrices, convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .build import R, cast, constant, dtype_of, is_float, rank, scalar, shape_of, static_shape
from .context import Node, converter
from .windows import Windows, window_index, windows_of

# Sums of products of these are kept in 32 bits.
_SHORT = ("float16", "bfloat16")


# ---------------------------------------------------------------------------- products
def matmul_of(a: Any, b: Any, out_dtype: str = "") -> Any:
    """The product of NumPy's `matmul`: matrices in the last two dimensions, the others broadcast."""
    if rank(a) == 0 or rank(b) == 0:
        raise ValueError("a matrix product needs tensors of one dimension at least")
    if not out_dtype and dtype_of(a) in _SHORT:
        return cast(matmul_of(a, b, "float32"), dtype_of(a))
    gone = []
    if rank(a) == 1:
        a, gone = R.expand_dims(a, 0), [-2]
    if rank(b) == 1:
        b, gone = R.expand_dims(b, 1), [*gone, -1]
    made = _matrices(a, b, out_dtype)
    if gone:
        made = R.squeeze(made, [d % rank(made) for d in gone])
    return made


def _matrices(a: Any, b: Any, out_dtype: str) -> Any:
    out = out_dtype or None
    if rank(a) == 2 and rank(b) == 2:
        return R.nn.matmul(a, b, out_dtype=out_dtype)
    if rank(b) == 2:
        rows = R.reshape(a, [-1, shape_of(a)[-1]])
        return R.reshape(R.nn.matmul(rows, b, out_dtype=out_dtype), [*shape_of(a)[:-1], shape_of(b)[-1]])
    batch = _joined(shape_of(a)[:-2], shape_of(b)[:-2])
    a3, b3 = _as_batch(a, batch), _as_batch(b, batch)
    made = R.nn.batch_matmul(a3, b3, out_dtype=out or "", transpose_a=False, transpose_b=False)
    return (
        made if rank(made) == len(batch) + 2 else R.reshape(made, [*batch, shape_of(a)[-2], shape_of(b)[-1]])
    )


def _joined(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    from ...op.shapes import broadcast

    return list(broadcast(tuple(a), tuple(b)))


def _as_batch(x: Any, batch: list[Any]) -> Any:
    """Matrices with one dimension before them."""
    whole = [*batch, *shape_of(x)[-2:]]
    have = shape_of(x)
    if len(have) == 2:
        x = R.expand_dims(x, 0)
    if len(batch) == 1 and len(have) <= 3:
        return x  # one for all is told from one for each by its size
    if len(have) != len(whole) or any(
        p is not q and not _same(p, q) for p, q in zip(have, whole, strict=True)
    ):
        x = R.broadcast_to(x, whole)
    return x if len(batch) == 1 else R.reshape(x, [-1, *shape_of(x)[-2:]])


def _same(a: Any, b: Any) -> bool:
    from ...op.shapes import same_size

    return same_size(a, b) is True


converter("MatMul")(lambda n: matmul_of(n[0], n[1]))


@converter("Gemm")
def gemm(n: Node) -> Any:
    a, b = n[0], n[1]
    if rank(a) > 2 and n.opset < 7:
        a = R.nn.batch_flatten(a)
    wide = "float32" if dtype_of(a) in _SHORT else ""
    turns = {"transpose_a": n.flag("transA", 0), "transpose_b": n.flag("transB", 0)}
    made = cast(R.nn.matmul(a, b, out_dtype=wide, **turns), dtype_of(a))
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    if alpha != 1.0:
        made = R.multiply(made, scalar(alpha, made))
    if not n.has(2) or beta == 0.0:
        return made
    c = n[2]
    return R.add(made, c if beta == 1.0 else R.multiply(c, scalar(beta, c)))


# ---------------------------------------------------------------------------- convolution
def convolve(x: Any, w: Any, found: Windows, groups: int, out_dtype: str = "") -> Any:
    """A convolution over one, two or three spatial dimensions."""
    dims = len(found.kernel)
    if not out_dtype and dtype_of(x) in _SHORT:
        return cast(convolve(x, w, found, groups, "float32"), dtype_of(x))
    build = {1: "conv1d", 2: "conv2d", 3: "conv3d"}.get(dims)
    if build is None:
        raise ValueError(f"a convolution over {dims} dimensions is not supported")
    return getattr(R.nn, build)(
        x,
        w,
        strides=found.strides,
        padding=found.padding,
        dilation=found.dilations,
        groups=groups,
        channels=static_shape(w)[0],
        kernel_size=found.kernel,
        out_dtype=out_dtype,
    )


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
        raise n.refuse(f"group {groups} does not part {channels} channels")
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
    # What the operator allows as output padding is less than a stride; the rest is a frame of its own.
    allowed = [min(e, s - 1) for e, s in zip(extra, base.strides, strict=True)]
    build = {1: "conv1d_transpose", 2: "conv2d_transpose", 3: "conv3d_transpose"}[dims]
    made = getattr(R.nn, build)(
        x,
        w,
        strides=base.strides,
        padding=(*before, *after),
        dilation=base.dilations,
        groups=groups,
        channels=static_shape(w)[1] * groups,
        kernel_size=tuple(kernel),
        output_padding=tuple(allowed),
    )
    rest = [(0, 0), (0, 0), *((0, e - a) for e, a in zip(extra, allowed, strict=True))]
    if any(b for _, b in rest):
        made = R.nn.pad(made, rest, scalar(0, made))
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
def _pool_windows(n: Node) -> Windows:
    kernel = n.attr("kernel_shape")
    if kernel is None:
        raise n.refuse("kernel_shape is missing")
    if len(kernel) != n.rank(0) - 2:
        raise n.refuse(f"kernel_shape {list(kernel)} does not fit data of {n.rank(0)} dimensions")
    return windows_of(n, kernel, n.shape(0)[2:])


def _pool(kind: str, x: Any, w: Windows, **more: Any) -> Any:
    dims = len(w.kernel)
    if dims > 3:
        raise ValueError(f"a pool over {dims} dimensions is not supported")
    return getattr(R.nn, f"{kind}_pool{dims}d")(
        x,
        pool_size=w.kernel,
        strides=w.strides,
        dilation=w.dilations,
        padding=w.padding,
        ceil_mode=w.ceil,
        **more,
    )


@converter("AveragePool")
def average_pool(n: Node) -> Any:
    return _pool("avg", n[0], _pool_windows(n), count_include_pad=n.flag("count_include_pad", 0))


@converter("MaxPool")
def max_pool(n: Node) -> Any:
    w = _pool_windows(n)
    x = n[0]
    if len(n.outputs) < 2 or not n.outputs[1]:
        return _pool("max", x, w)
    sizes = static_shape(x)
    flat, inside, counts = window_index(w, sizes[2:])
    spatial = int(np.prod(sizes[2:]))
    rows = R.take(R.reshape(x, [*sizes[:2], spatial]), constant(flat.reshape(-1).astype(np.int32)), axis=2)
    low = -math.inf if is_float(x) else np.iinfo(dtype_of(x)).min
    seen = R.where(constant(inside), R.reshape(rows, [*sizes[:2], *flat.shape]), scalar(low, x))
    best = R.argmax(seen, axis=3, keepdims=True)
    place = _places(flat, sizes[2:], n.flag("storage_order", 0))
    table = R.broadcast_to(constant(place), [*sizes[:2], *place.shape])
    index = R.reshape(R.gather(table, 3, cast(best, "int64")), [*sizes[:2], *counts])
    start = np.arange(sizes[0] * sizes[1], dtype=np.int64) * spatial
    whole = R.add(index, constant(start.reshape([*sizes[:2], *([1] * len(counts))])))
    return [R.reshape(R.max(seen, axis=3), [*sizes[:2], *counts]), whole]


def _places(flat: Any, sizes: Sequence[int], by_column: bool) -> Any:
    """Flat indices as they are, or counted with the first dimension running fastest."""
    if not by_column:
        return flat
    parts = np.unravel_index(flat, tuple(sizes))
    return np.ravel_multi_index(parts[::-1], tuple(sizes)[::-1]).astype(np.int64)


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
    zeros = R.zeros([int(np.prod(whole))], dtype_of(x))
    flat = R.scatter_elements(zeros, R.reshape(index, [-1]), R.reshape(x, [-1]), 0, "update")
    made = R.reshape(flat, whole)
    if list(target) != whole:
        made = R.nn.pad(made, [(0, t - s) for t, s in zip(target, whole, strict=True)], scalar(0, x))
    return made


@converter("LpPool")
def lp_pool(n: Node) -> Any:
    """(Σ |x|^p)^(1/p): an average that is multiplied by the size of the window."""
    w, p, x = _pool_windows(n), float(n.attr("p", 2)), n[0]
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
    total = R.multiply(_pool("avg", raised, w, count_include_pad=True), scalar(math.prod(w.kernel), x))
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
