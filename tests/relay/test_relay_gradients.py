"""The gradient of each operator, compared with differences of its values along a random direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir.op import graph_operators
from tilewright.relay.op.registry import get
from tilewright.relay.transform import gradient
from tilewright.relay.ty import TupleType

nn, image = relay.nn, relay.image


class Case(NamedTuple):
    """An expression of some tensors; those listed in `fixed` are integers or conditions, given as arrays."""

    build: Callable[..., Any]
    shapes: tuple[Any, ...]
    fixed: tuple[Any, ...] = ()
    low: float = -1.0
    high: float = 1.0


def c(build: Callable[..., Any], *shapes: Any, fixed: Any = (), low: float = -1.0, high: float = 1.0) -> Case:
    return Case(build, shapes, tuple(map(np.asarray, fixed)), low, high)


S = (2, 3)
IMAGE = (2, 4, 5, 6)
ONE: dict[str, Case] = {
    **{n: c(getattr(relay, n), S) for n in "exp sin cos tanh sigmoid erf sinh cosh asinh atan tan".split()},
    **{
        n: c(getattr(relay, n), S, low=0.2, high=0.9)
        for n in "log log2 log10 sqrt rsqrt asin acos atanh".split()
    },
    **{n: c(getattr(relay, n), S) for n in "negative copy fast_exp fast_tanh".split()},
    **{n: c(getattr(relay, n), S, low=0.2, high=0.4) for n in "floor ceil trunc round sign abs".split()},
    "acosh": c(relay.acosh, S, low=1.5, high=3),
    "fast_erf": c(lambda x: relay.op.fast_erf(x), S),
    "clip": c(lambda x: relay.clip(x, -0.5, 0.5), (4, 5)),
    "cast": c(lambda x: relay.cast(relay.cast(x, "float32"), "float64"), S),
    "cast_like": c(lambda x, y: relay.cast_like(x, y), S, (1,)),
    "nn.relu": c(nn.relu, (4, 5)),
    "nn.leaky_relu": c(lambda x: nn.leaky_relu(x, 0.3), (4, 5)),
    "nn.prelu": c(lambda x, a: nn.prelu(x, a), (2, 3, 2), (3,)),
    "nn.dropout": c(lambda x: nn.dropout(x), S),
}
TWO: dict[str, Case] = {
    **{n: c(getattr(relay, n), (2, 1, 3), (4, 1)) for n in "add subtract multiply maximum minimum".split()},
    "divide": c(relay.divide, (2, 1, 3), (4, 3), low=0.5, high=2),
    "power": c(relay.power, (2, 3), (3,), low=0.5, high=2),
    "power of negative": c(lambda x: relay.power(x, relay.const(2.0, "float64")), S),
    **{n: c(getattr(relay, n), (3,), (3,), low=1.1, high=1.4) for n in ("floor_divide", "trunc_divide")},
    **{n: c(getattr(relay, n), (3,), (2, 3), low=1.1, high=1.9) for n in ("mod", "floor_mod", "trunc_mod")},
    "where": c(lambda x, y, k: relay.where(k, x, y), (2, 3), (3,), fixed=[np.array([[True], [False]])]),
}
REDUCTIONS: dict[str, Case] = {
    **{
        n: c(lambda x, n=n: getattr(relay, n)(x, axis=[0, 2]), (2, 3, 2))
        for n in "sum mean max min logsumexp".split()
    },
    "sum all": c(lambda x: relay.sum(x), S),
    "max keepdims exclude": c(lambda x: relay.max(x, axis=1, keepdims=True, exclude=True), (2, 3, 2)),
    "prod": c(lambda x: relay.prod(x * relay.const([[1.0, 0, 2]], "float64"), axis=1), S),
    "prod two axes": c(lambda x: relay.prod(x, axis=[0, 2]), (2, 3, 2)),
    "variance": c(lambda x: relay.variance(x, axis=1), (2, 4)),
    "variance unbiased": c(lambda x: relay.variance(x, axis=-1, keepdims=True, unbiased=True), (2, 4)),
    "cumsum": c(lambda x: relay.cumsum(x, axis=1), S),
    "cumsum exclusive": c(lambda x: relay.cumsum(x, exclusive=True), S),
    "cumprod": c(lambda x: relay.cumprod(x * relay.const([[1.0, 0, 2]], "float64"), axis=1), S),
    "cumprod exclusive": c(lambda x: relay.cumprod(x, axis=0, exclusive=True), (3, 2)),
    "broadcast_to": c(lambda x: relay.broadcast_to(x, (2, 4, 3)), (4, 1)),
    "broadcast_to_like": c(lambda x, y: relay.broadcast_to_like(x, y) * y, (3, 1), (2, 3, 2)),
    "collapse_sum_to": c(lambda x: relay.collapse_sum_to(x, (3, 1)), (2, 3, 4)),
    "collapse_sum_like": c(lambda x, y: relay.collapse_sum_like(x, y) * y, (2, 3, 4), (3, 1)),
    "tile": c(lambda x: relay.tile(x, (2, 1, 3)), S),
    "repeat": c(lambda x: relay.repeat(x, 2, 1), S),
    "repeat flat": c(lambda x: relay.repeat(x, 2, None), S),
}
PRODUCTS: dict[str, Case] = {
    "nn.dense": c(nn.dense, (2, 3), (4, 3)),
    "nn.dense of rank 3": c(nn.dense, (2, 2, 3), (4, 3)),
    **{
        f"nn.matmul {a} {b}": c(
            lambda x, y, a=a, b=b: nn.matmul(x, y, transpose_a=a, transpose_b=b),
            (3, 2) if a else (2, 3),
            (4, 3) if b else (3, 4),
        )
        for a in (False, True)
        for b in (False, True)
    },
    **{
        f"nn.matmul of many {a} {b}": c(
            lambda x, y, a=a, b=b: nn.matmul(x, y, transpose_a=a, transpose_b=b),
            (2, 3, 4) if a else (2, 4, 3),
            (5, 3) if b else (3, 5),
        )
        for a in (False, True)
        for b in (False, True)
    },
    **{
        f"nn.batch_matmul {a} {b}": c(
            lambda x, y, a=a, b=b: nn.batch_matmul(x, y, transpose_a=a, transpose_b=b),
            (2, 3, 2) if a else (2, 2, 3),
            (1, 4, 3) if b else (2, 3, 4),
        )
        for a in (False, True)
        for b in (False, True)
    },
    "nn.bias_add": c(lambda x, b: nn.bias_add(x, b, 1), (2, 3, 2), (3,)),
    "nn.contrib_dense_pack": c(lambda x, w: nn.contrib_dense_pack(x, w, "NC2n"), (2, 3), (2, 3, 2)),
    "einsum": c(lambda x, y: relay.einsum([x, y], "bij,bjk->bik"), (2, 2, 3), (2, 3, 2)),
    "einsum summed": c(lambda x, y: relay.einsum([x, y], "ij,k->k"), (2, 3), (2,)),
    "einsum dots": c(lambda x, y: relay.einsum([x, y], "...i,ij"), (2, 2, 3), (3, 2)),
}


def _conv(rank: int, groups: int = 1, **options: Any) -> Case:
    space = (5, 4, 4)[:rank]
    build = getattr(nn, f"conv{rank}d")
    return c(
        lambda x, w: build(x, w, groups=groups, **options),
        (2, 4, *space),
        (4, 4 // groups, *(2, 3, 2)[:rank]),
    )


def _transposed(rank: int, groups: int = 1, **options: Any) -> Case:
    space = (3, 4, 3)[:rank]
    build = getattr(nn, f"conv{rank}d_transpose")
    return c(
        lambda x, w: build(x, w, groups=groups, **options),
        (2, 4, *space),
        (4, 4 // groups, *(2, 3, 2)[:rank]),
    )


def _pool(name: str, rank: int = 2, **options: Any) -> Case:
    return c(lambda x: getattr(nn, f"{name}_pool{rank}d")(x, **options), (2, 2, 5, 6, 4)[: 2 + rank])


WINDOWS: dict[str, Case] = {
    "nn.conv1d": _conv(1, strides=2, padding=1),
    "nn.conv2d": _conv(2),
    "nn.conv2d strides": _conv(2, strides=(2, 3), padding=(1, 0, 0, 1)),
    "nn.conv2d dilation": _conv(2, dilation=(2, 1), padding=1),
    "nn.conv2d groups": _conv(2, groups=2, strides=2),
    "nn.conv2d depthwise": _conv(2, groups=4, padding=1),
    "nn.conv3d": _conv(3, strides=(1, 2, 1), padding=1),
    "nn.conv2d NHWC": c(
        lambda x, w: nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", padding=1),
        (2, 4, 4, 3),
        (3, 3, 3, 2),
    ),
    "nn.conv1d_transpose": _transposed(1, strides=2, output_padding=1),
    "nn.conv2d_transpose": _transposed(2, padding=1),
    "nn.conv2d_transpose strides": _transposed(2, strides=(2, 3), output_padding=(1, 2)),
    "nn.conv2d_transpose groups": _transposed(2, groups=2, dilation=2),
    "nn.conv3d_transpose": _transposed(3),
    "nn.conv2d_backward_weight": c(
        lambda g, x: nn.conv2d_backward_weight(g, x, strides=2, padding=1, kernel_size=(3, 2)),
        (2, 2, 3, 3),
        (2, 3, 5, 5),
    ),
    "nn.max_pool1d": _pool("max", 1, pool_size=3, strides=2),
    "nn.max_pool2d": _pool("max", pool_size=(2, 3), strides=(2, 1), padding=1),
    "nn.max_pool2d ceil": _pool("max", pool_size=2, strides=2, ceil_mode=True),
    "nn.max_pool2d dilation": _pool("max", pool_size=2, dilation=2),
    "nn.max_pool3d": _pool("max", 3, pool_size=2, strides=2),
    "nn.max_pool2d NHWC": _pool("max", pool_size=2, layout="NHWC"),
    "nn.avg_pool1d": _pool("avg", 1, pool_size=3, strides=2, padding=1),
    "nn.avg_pool2d": _pool("avg", pool_size=(2, 3), strides=(2, 1), padding=1),
    "nn.avg_pool2d counts": _pool(
        "avg", pool_size=3, strides=2, padding=1, ceil_mode=True, count_include_pad=True
    ),
    "nn.avg_pool3d": _pool("avg", 3, pool_size=2),
    "nn.avg_pool2d_grad": c(
        lambda g, x: nn.avg_pool2d_grad(g, x, pool_size=2, strides=2, padding=1), (1, 2, 3, 3), (1, 2, 4, 4)
    ),
    "nn.global_max_pool2d": _pool("global_max"),
    "nn.global_avg_pool2d": _pool("global_avg"),
    "nn.adaptive_avg_pool2d": _pool("adaptive_avg", output_size=(3, 2)),
    "nn.adaptive_max_pool2d": _pool("adaptive_max", output_size=(3, 2)),
    "nn.adaptive_avg_pool1d": _pool("adaptive_avg", 1, output_size=2),
    "nn.adaptive_max_pool3d": _pool("adaptive_max", 3, output_size=2),
    "image.resize2d": c(lambda x: image.resize2d(x, (7, 3)), (1, 2, 4, 5)),
    "image.resize2d nearest": c(
        lambda x: image.resize2d(
            x, (7, 3), method="nearest_neighbor", coordinate_transformation_mode="asymmetric", layout="NHWC"
        ),
        (1, 4, 5, 2),
    ),
    "image.resize2d cubic": c(
        lambda x: image.resize2d(x, (6, 6), method="cubic", coordinate_transformation_mode="align_corners"),
        (1, 1, 4, 5),
    ),
    "image.resize1d": c(lambda x: image.resize1d(x, (7,)), (2, 2, 4)),
    "image.resize3d": c(lambda x: image.resize3d(x, (3, 4, 2)), (1, 1, 2, 3, 3)),
    "nn.upsampling": c(lambda x: nn.upsampling(x, 2, 3), (1, 2, 2, 2)),
    "nn.upsampling bilinear": c(lambda x: nn.upsampling(x, 2, 2, method="bilinear"), (1, 2, 2, 3)),
    "nn.upsampling3d": c(lambda x: nn.upsampling3d(x, 2, 1, 2), (1, 1, 2, 2, 2)),
    "image.affine_grid": c(lambda x: image.affine_grid(x, (3, 2)), (2, 2, 3)),
    "image.affine_grid centres": c(lambda x: image.affine_grid(x, (3, 2), align_corners=False), (2, 2, 3)),
}
MOVES: dict[str, Case] = {
    "reshape": c(lambda x: relay.reshape(x, (3, -1)), S),
    "reshape_like": c(lambda x, y: relay.reshape_like(x, y) * y, S, (3, 2)),
    "contrib_reverse_reshape": c(lambda x: relay.reverse_reshape(x, (-1, 0)), (2, 3, 2)),
    "nn.batch_flatten": c(nn.batch_flatten, (2, 3, 2)),
    "squeeze": c(lambda x: relay.squeeze(x), (2, 1, 3)),
    "expand_dims": c(lambda x: relay.expand_dims(x, 1, 2), S),
    "transpose": c(lambda x: relay.transpose(x, (1, 2, 0)), (2, 3, 4)),
    "concatenate": c(lambda x, y: relay.concatenate([x, y, x], 1), (2, 3), (2, 1)),
    "stack": c(lambda x, y: relay.stack([x, y], -1), S, S),
    "split": c(lambda x: relay.split(x, [1, 3], 1)[1] * relay.const(2.0, "float64"), (2, 4)),
    "nn.fifo_buffer": c(lambda x, y: nn.fifo_buffer(x, y, 1), (2, 1), (2, 3)),
    "reverse": c(lambda x: relay.reverse(x, 1), S),
    "layout_transform": c(lambda x: relay.layout_transform(x, "NCHW", "NHWC2c"), IMAGE),
    "nn.depth_to_space": c(lambda x: nn.depth_to_space(x, 2), (1, 4, 2, 3)),
    "nn.space_to_depth": c(lambda x: nn.space_to_depth(x, 2), (1, 2, 2, 4)),
    "nn.space_to_batch_nd": c(lambda x: nn.space_to_batch_nd(x, [2], [[1, 0]], 3), (2, 3, 2)),
    "nn.batch_to_space_nd": c(lambda x: nn.batch_to_space_nd(x, [2], [[1, 0]]), (4, 2, 2)),
    "nn.pad": c(lambda x, v: nn.pad(x, ((1, 0), (2, 1)), v), S, ()),
    "nn.pad none": c(lambda x: nn.pad(x, ((0, 0), (0, 0))), S),
    "nn.pad edge": c(lambda x: nn.pad(x, ((1, 0), (2, 1)), pad_mode="edge"), S),
    "nn.pad reflect": c(lambda x: nn.pad(x, ((1, 0), (2, 1)), pad_mode="reflect"), S),
    "nn.mirror_pad": c(lambda x: nn.mirror_pad(x, ((1, 0), (2, 1))), S),
    "nn.dilate": c(lambda x: nn.dilate(x, (2, 3)), S),
    "full": c(lambda x: relay.full(x, (2, 3), "float64"), ()),
    "full_like": c(lambda x, y: relay.full_like(x, y) * x, S, ()),
    "zeros_like": c(lambda x: relay.zeros_like(x) + x, S),
    "meshgrid": c(lambda x, y: relay.meshgrid([x, y], "xy")[1] * relay.const(2.0, "float64"), (2,), (3,)),
    "annotation.checkpoint": c(lambda x: relay.annotation.checkpoint(x), S),
    "annotation.stop_fusion": c(lambda x: relay.annotation.stop_fusion(x), S),
    "on_device": c(lambda x: relay.annotation.on_device(x, "cpu"), S),
}
INDICES: dict[str, Case] = {
    "strided_slice": c(lambda x: relay.strided_slice(x, [0, 1], [3, 6], [2, 2]), (3, 7)),
    "strided_slice back": c(lambda x: relay.strided_slice(x, [2, 5], [-4, 0], [-1, -2]), (3, 7)),
    "strided_slice size": c(lambda x: relay.strided_slice(x, [1, 0], [-1, 2], slice_mode="size"), (3, 4)),
    "slice_like": c(lambda x, y: relay.slice_like(x, y) * y, (3, 4), (2, 3)),
    "strided_set": c(lambda x, v: relay.strided_set(x, v, [0, 1], [2, 3], [1, 1]), (3, 4), (2, 2)),
    "take": c(lambda x, i: relay.take(x, i), S, fixed=[[[0, 5], [3, 3]]]),
    "take axis": c(lambda x, i: relay.take(x, i, axis=1), (2, 3, 2), fixed=[[[0, 2], [2, 7]]]),
    "take wrap": c(lambda x, i: relay.take(x, i, axis=0, mode="wrap"), (3, 2), fixed=[[-1, 4]]),
    "take fast": c(lambda x, i: relay.take(x, i, axis=0, mode="fast"), (3, 2), fixed=[[-1, 1]]),
    "take batch": c(lambda x, i: relay.take(x, i, axis=2, batch_dims=1), (2, 2, 3), fixed=[[[0, 2], [1, 1]]]),
    "gather": c(lambda x, i: relay.gather(x, 1, i), S, fixed=[[[0, 0], [2, 1]]]),
    "gather_nd": c(lambda x, i: relay.gather_nd(x, i), (2, 3), fixed=[[[0, 1, 1], [0, 1, 1]]]),
    "gather_nd batch": c(lambda x, i: relay.gather_nd(x, i, batch_dims=1), (2, 3), fixed=[[[0, 1]]]),
    "adv_index": c(lambda x, i, j: relay.adv_index([x, i, j]), (2, 3, 2), fixed=[[[0], [1]], [0, 2, 2]]),
    "segment_sum": c(lambda x, i: relay.segment_sum(x, i, 2), (3, 2), fixed=[[0, 1, 0]]),
    "one_hot": c(lambda a, b, i: relay.one_hot(i, a, b, 3, -1, "float64"), (), (), fixed=[[0, 2]]),
    "scatter_elements": c(
        lambda x, u, i: relay.scatter_elements(x, i, u, 1), (2, 3), (2, 2), fixed=[[[0, 1], [2, 0]]]
    ),
    "scatter_elements add": c(
        lambda x, u, i: relay.scatter_elements(x, i, u, 1, "add"), (2, 3), (2, 2), fixed=[[[0, 0], [2, 0]]]
    ),
    "scatter_nd": c(lambda x, u, i: relay.scatter_nd(x, i, u), (3, 2), (2, 2), fixed=[[[2, 0]]]),
    "scatter_nd add": c(lambda x, u, i: relay.scatter_nd(x, i, u, "add"), (3, 2), (2, 2), fixed=[[[2, 2]]]),
    "sparse_to_dense": c(lambda v, d, i: relay.sparse_to_dense(i, (5,), v, d), (2,), (), fixed=[[1, 3]]),
    "sequence_mask": c(lambda x, n: relay.sequence_mask(x, n, 2.0), (3, 2), fixed=[[1, 3]]),
    "reverse_sequence": c(lambda x, n: relay.reverse_sequence(x, n, 0, 1), (3, 2), fixed=[[1, 3]]),
    "sliding_window": c(lambda x: relay.sliding_window(x, 0, [2, 2], [1, 1]), (3, 3)),
    "matrix_set_diag": c(lambda x, d: relay.matrix_set_diag(x, d), (3, 4), (3,)),
    "trilu": c(lambda x: relay.trilu(x, 0, False), (3, 3)),
    "sort": c(lambda x: relay.sort(x, 1, False), (2, 4)),
    "topk": c(lambda x: relay.topk(x, 2, ret_type="values"), (2, 4)),
    "topk both": c(lambda x: relay.topk(x, 2)[0] * relay.const(2.0, "float64"), (2, 4)),
}
_TARGETS = np.array([0, 2, 1])
NETWORKS: dict[str, Case] = {
    "nn.softmax": c(lambda x: nn.softmax(x, 1), (2, 3, 2)),
    "nn.fast_softmax": c(lambda x: nn.fast_softmax(x), S),
    "nn.log_softmax": c(nn.log_softmax, S),
    "nn.batch_norm": c(
        lambda x, g, b, m, v: nn.batch_norm(x, g, b, m, v)[0],
        (2, 3, 2),
        (3,),
        (3,),
        (3,),
        (3,),
        low=0.3,
        high=2,
    ),
    "nn.layer_norm": c(lambda x, g, b: nn.layer_norm(x, g, b), (2, 4), (4,), (4,)),
    "nn.instance_norm": c(lambda x, g, b: nn.instance_norm(x, g, b), (2, 3, 4), (3,), (3,)),
    "nn.group_norm": c(lambda x, g, b: nn.group_norm(x, g, b, 2), (2, 4, 3), (4,), (4,)),
    "nn.rms_norm": c(lambda x, w: nn.rms_norm(x, w), (2, 4), (4,)),
    "nn.l2_normalize": c(lambda x: nn.l2_normalize(x, 1e-3, [1]), (2, 4)),
    "nn.lrn": c(lambda x: nn.lrn(x, 3, 1, 2.0, 0.5, 0.75), (1, 4, 2, 2)),
    "nn.cross_entropy": c(nn.cross_entropy, S, S, low=0.2, high=1),
    "nn.cross_entropy_with_logits": c(nn.cross_entropy_with_logits, S, S),
    "nn.nll_loss": c(lambda p, w, t: nn.nll_loss(p, t, w), (3, 3), (3,), fixed=[_TARGETS], low=0.5, high=1),
    "nn.nll_loss ignore": c(
        lambda p, w, t: nn.nll_loss(p, t, w, "none", 2),
        (3, 3, 2),
        (3,),
        fixed=[np.array([[0, 2], [2, 1], [1, 1]])],
    ),
    "nn.scaled_dot_product_attention": c(
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, is_causal=True),
        (2, 3, 4),
        (1, 3, 4),
        (1, 3, 2),
    ),
    "attention with a mask": c(nn.scaled_dot_product_attention, (2, 3, 4), (2, 3, 4), (2, 3, 2), (3, 3)),
    "nn.rotary_embedding": c(nn.rotary_embedding, (2, 6), (2, 2), (2, 2)),
    "rotary interleaved": c(lambda x, a, b: nn.rotary_embedding(x, a, b, True), (2, 4), (2, 2), (2, 2)),
    "nn.lstm": c(lambda *a: nn.lstm(*a)[0], (2, 2, 3), (8, 3), (8, 2), (8,), (8,), (2, 2), (2, 2)),
    "nn.gru": c(lambda *a: nn.gru(*a, reverse=True), (2, 2, 3), (6, 3), (6, 2), (6,), (6,), (2, 2)),
}
CASES = {**ONE, **TWO, **REDUCTIONS, **PRODUCTS, **WINDOWS, **MOVES, **INDICES, **NETWORKS}


def weighted(case: Case) -> tuple[Any, list[Any], list[Any]]:
    """A function that gives one number, its inputs to vary and those that are fixed."""
    rng = np.random.default_rng(7)
    params = [relay.var(f"x{i}", shape=s, dtype="float64") for i, s in enumerate(case.shapes)]
    marks = [relay.var(f"i{i}", shape=v.shape, dtype=str(v.dtype)) for i, v in enumerate(case.fixed)]
    made = case.build(*params, *marks)
    made = relay.infer_type(made.astuple() if hasattr(made, "astuple") else made)
    assert not isinstance(made.checked_type, TupleType)
    weights = relay.const(rng.uniform(0.5, 1.5, made.checked_type.shape), "float64")
    values = [rng.uniform(case.low, case.high, s) for s in case.shapes]
    return relay.Function([*params, *marks], relay.sum(made * weights)), values, list(case.fixed)


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_slope(name: str, compile_graph: Any) -> None:
    func, values, fixed = weighted(CASES[name])
    grads = gradient(func)
    run = compile_graph(grads.body)
    names = [p.name_hint for p in grads.params]

    def at(given: list[Any]) -> list[Any]:
        return run(**dict(zip(names, [*given, *fixed], strict=True)))

    rng, eps = np.random.default_rng(3), 1e-6
    found = at(values)[1:]
    for i, value in enumerate(values):
        step = rng.standard_normal(value.shape)
        moved = [[*values[:i], value + s * step, *values[i + 1 :]] for s in (eps, -eps)]
        slope = (at(moved[0])[0] - at(moved[1])[0]) / (2 * eps)
        loose = 1e-3 if "fast" in name or name == "cast" else 1e-6
        np.testing.assert_allclose(
            np.sum(found[i] * step), slope, rtol=loose, atol=loose, err_msg=f"input {i}"
        )


# Rules that are tested beside other operators, or need sizes that are known only when a program runs.
ELSEWHERE = {
    "dyn.arange", "dyn.broadcast_to", "dyn.expand_dims", "dyn.full", "dyn.ones", "dyn.reshape", "dyn.squeeze",
    "dyn.zeros", "nn.adaptive_avg_pool3d", "nn.adaptive_max_pool1d", "nn.avg_pool1d_grad", "nn.avg_pool3d_grad",
    "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc", "nn.conv1d_backward_weight",
    "nn.conv3d_backward_weight", "ones_like",
}  # fmt: skip


def test_every_rule_is_tested() -> None:
    used: set[str] = set()
    for case in CASES.values():
        func, _, _ = weighted(case)
        used |= {e.op.name for e in relay.analysis.post_order(func) if isinstance(e, relay.Call)}
    ruled = {n for n, op in graph_operators.items() if getattr(op, "traits", None) and op.traits.gradient}
    ours = {n for n in ruled if (getattr(get(n).compute, "__module__", "") or "").startswith("tilewright.")}
    assert ours - used - ELSEWHERE == set()
