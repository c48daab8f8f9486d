"""Programs that tests of the automatic scheduler share, under their classic names."""

from __future__ import annotations

from typing import Any

from .. import topi
from ..auto_scheduler import ComputeDAG, register_workload
from ..auto_scheduler.loop_state import State
from ..te import compute, placeholder, reduce_axis
from ..te import sum as te_sum


@register_workload
def matmul_auto_scheduler_test(N: int, M: int, K: int) -> list[Any]:
    """A product of two matrices."""
    A, B = placeholder((N, K), name="A"), placeholder((K, M), name="B")
    k = reduce_axis((0, K), name="k")
    C = compute(
        (N, M),
        lambda i, j: te_sum(A[i][k] * B[k][j], axis=[k]),
        name="C",
        attrs={"layout_free_placeholders": [B]},
    )
    return [A, B, C]


def _product(left: Any, right: Any, name: str) -> Any:
    N = left.shape[0]
    k = reduce_axis((0, N), name="k")
    return compute((N, N), lambda i, j: te_sum(left[i][k] * right[k][j], axis=[k]), name=name)


@register_workload
def double_matmul_auto_scheduler_test(N: int) -> list[Any]:
    """A product of three square matrices, from left to right."""
    A, B, C = (placeholder((N, N), name=name) for name in "ABC")
    return [A, B, C, _product(_product(A, B, "D"), C, "E")]


@register_workload
def parallel_matmul_auto_scheduler_test(N: int) -> list[Any]:
    """Two products with the same left matrix, neither of which reads the other."""
    A, B, C = (placeholder((N, N), name=name) for name in "ABC")
    return [A, B, C, _product(A, B, "D"), _product(A, C, "E")]


register_workload("matmul_auto_scheduler_test_rename_1", matmul_auto_scheduler_test)
matmul_auto_scheduler_test_rename_0 = matmul_auto_scheduler_test


@register_workload
def conv2d_nchw_bn_relu_auto_scheduler_test(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, strides: int, padding: int, dilation: int = 1
) -> list[Any]:
    """A convolution with a bias, a scale, an offset and a cut at zero."""
    data = placeholder((N, CI, H, W), name="Data")
    kernel = placeholder((CO, CI, kernel_size, kernel_size), name="Kernel")
    extra = [placeholder((CO, 1, 1), name=name) for name in ("Bias", "Bn_scale", "Bn_offset")]
    bias, scale, offset = extra
    conv = topi.nn.conv2d_nchw(data, kernel, strides, padding, dilation)
    shape = tuple(conv.shape)
    biased = compute(shape, lambda i, j, k, l: conv[i, j, k, l] + bias[j, 0, 0], name="Bias_add")
    scaled = compute(shape, lambda i, j, k, l: biased[i, j, k, l] * scale[j, 0, 0], name="Bn_mul")
    moved = compute(shape, lambda i, j, k, l: scaled[i, j, k, l] + offset[j, 0, 0], name="Bn_add")
    return [data, kernel, bias, offset, scale, topi.nn.relu(moved)]


@register_workload
def max_pool2d_auto_scheduler_test(N: int, H: int, W: int, CI: int, padding: int) -> list[Any]:
    """The largest of each window of two by two."""
    data = placeholder((N, CI, H, W), name="Data")
    out = topi.nn.pool2d(data, [2, 2], [1, 1], [1, 1], [padding] * 4, "max")
    return [data, out]


@register_workload
def min_nm_auto_scheduler_test(N: int, M: int) -> list[Any]:
    """The smallest number of each row."""
    A = placeholder((N, M), name="A")
    return [A, topi.min(A, axis=-1)]


@register_workload
def softmax_abcd_auto_scheduler_test(a: int, b: int, c: int, d: int) -> list[Any]:
    """Softmax along the last of four axes."""
    A = placeholder((a, b, c, d), name="A")
    return [A, topi.nn.softmax(A, axis=-1)]


@register_workload
def softmax_nm_auto_scheduler_test(N: int, M: int) -> list[Any]:
    """Softmax along rows."""
    A = placeholder((N, M), name="A")
    return [A, topi.nn.softmax(A, axis=1)]


@register_workload
def zero_rank_reduce_auto_scheduler_test(N: int) -> list[Any]:
    """A sum of all numbers."""
    A = placeholder((N,), name="A")
    k = reduce_axis((0, N), name="k")
    return [A, compute((), lambda: te_sum(A[k], axis=[k]), name="B")]


@register_workload
def zero_rank_compute_auto_scheduler_test(N: int) -> list[Any]:
    """The first number of an array."""
    A = placeholder((N,), name="A")
    return [A, compute((), lambda: A[0], name="B")]


@register_workload
def conv2d_winograd_nhwc_auto_scheduler_test(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int = 3,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> list[Any]:
    """A convolution by Winograd's transforms of tiles of four by four, for weights that are transformed already."""
    assert stride == dilation == 1
    tile, alpha = 4, 4 + kernel_size - 1
    inputs = placeholder((N, H, W, CI), name="inputs")
    A, B, _ = topi.nn.winograd_transform_matrices(tile, kernel_size, "float32")
    height, width = H + 2 * padding - kernel_size + 1, W + 2 * padding - kernel_size + 1
    rows, columns = -(-height // tile), -(-width // tile)
    below, right = padding + rows * tile - height, padding + columns * tile - width  # whole tiles
    padded = topi.nn.pad(inputs, (0, padding, padding, 0), (0, below, right, 0), name="data_pad")
    weight = placeholder((alpha, alpha, CI, CO), name="weight")
    shape = (alpha, alpha, N * rows * columns, CI)
    tiles = compute(
        shape,
        lambda e, n, p, ci: padded[
            p // (rows * columns), p // columns % rows * tile + e, p % columns * tile + n, ci
        ],
        name="input_tile",
    )
    ra, rb = reduce_axis((0, alpha), "r_a"), reduce_axis((0, alpha), "r_b")
    packed = compute(
        shape,
        lambda e, n, p, ci: te_sum(tiles[ra, rb, p, ci] * B[ra, e] * B[rb, n], axis=[ra, rb]),
        name="data_pack",
        attrs={"auto_scheduler_simplify_const_tensor_indices": ["e", "n", "r_a", "r_b"]},
    )
    k = reduce_axis((0, CI), name="ci")
    product = compute(
        (alpha, alpha, shape[2], CO),
        lambda e, n, p, co: te_sum(packed[e, n, p, k] * weight[e, n, k, co], axis=[k]),
        name="bgemm",
    )
    ia, ib = reduce_axis((0, alpha), "r_a"), reduce_axis((0, alpha), "r_b")
    inverse = compute(
        (tile, tile, shape[2], CO),
        lambda h, w, p, co: te_sum(product[ia, ib, p, co] * A[ia, h] * A[ib, w], axis=[ia, ib]),
        name="inverse",
        attrs={"auto_scheduler_simplify_const_tensor_indices": ["h", "w", "r_a", "r_b"]},
    )
    out = compute(
        (N, height, width, CO),
        lambda n, h, w, co: inverse[
            h % tile, w % tile, n * rows * columns + h // tile * columns + w // tile, co
        ],
        name="conv2d_winograd",
    )
    return [inputs, weight, out]


@register_workload
def invalid_compute_definition() -> list[Any]:
    """Two axes of one name, which is refused."""
    A = placeholder((10, 10), name="A")
    first, second = reduce_axis((0, 2), name="r1"), reduce_axis((0, 2), name="r1")
    return [A, compute((10,), lambda i: te_sum(A[i][first + second], axis=[first, second]), name="B")]


def get_tiled_matmul() -> tuple[ComputeDAG, State]:
    """A product with both of its axes in four parts."""
    A, B, C = matmul_auto_scheduler_test(512, 512, 512)
    dag = ComputeDAG([A, B, C])
    s = dag.get_init_state()
    rows = s.split(C, s[C].iters[0], [4, 8, 8])
    columns = s.split(C, s[C].iters[4], [8, 4, 4])
    tiles = [it for pair in zip(rows, columns, strict=True) for it in pair]
    s.reorder(C, [*tiles, s[C].iters[8]])
    return dag, s
