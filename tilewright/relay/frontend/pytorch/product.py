"""Products of matrices, linear layers, attention, embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...expr import Expr
from ...op.shapes import broadcast, product
from ..common.build import take_rows
from ..common.embeddings import rotary
from ..common.matrices import matmul
from .build import (
    NN,
    R,
    cast,
    constant,
    dtype_of,
    full,
    literal,
    permute,
    places,
    rank,
    reshape,
    scatter_rows,
    shape_of,
    sizes_of,
)
from .table import Refusal, Site, aten


def _three(e: Expr, lead: Sequence[Any]) -> Expr:
    """A stack of matrices with its leading dimensions repeated to some sizes and made one."""
    tail = shape_of(e)[-2:]
    if shape_of(e)[:-2] != tuple(lead):
        e = R.broadcast_to(e, (*lead, *tail))
    return reshape(e, (product(lead), *tail))


@aten("matmul", "mm", "bmm", "mv", "dot", "vdot", "linalg_matmul")
def matmul_(
    n: Site, x: Expr, other: Any = None, mat2: Any = None, vec: Any = None, tensor: Any = None
) -> Expr:
    b = next(e for e in (other, mat2, vec, tensor) if e is not None)
    return matmul(x, b)


@aten("addmm", "addmv", "baddbmm")
def addmm(
    n: Site,
    x: Expr,
    mat1: Any = None,
    mat2: Any = None,
    mat: Any = None,
    vec: Any = None,
    batch1: Any = None,
    batch2: Any = None,
    beta: Any = 1,
    alpha: Any = 1,
) -> Expr:
    pairs = ((mat1, mat2), (mat, vec), (batch1, batch2))
    a, b = next(p for p in pairs if p[0] is not None)
    made = matmul(a, b)
    if alpha != 1:
        made = R.multiply(made, n.to(alpha))
    if beta == 0:
        return made
    return R.add(made, x if beta == 1 else R.multiply(x, n.to(beta)))


@aten("linear")
def linear(n: Site, x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    if rank(weight) == 1:
        made = matmul(x, weight)
    elif rank(x) == 1:
        made = reshape(NN.dense(reshape(x, (1, *shape_of(x))), weight), n.shape)
    else:
        made = NN.dense(x, weight)
    return made if bias is None else R.add(made, bias)


@aten("bilinear")
def bilinear(n: Site, input1: Expr, input2: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    rows = product(shape_of(input1)[:-1])
    a, b = (reshape(e, (rows, shape_of(e)[-1])) for e in (input1, input2))
    out, left, right = shape_of(weight)
    half = reshape(NN.dense(a, reshape(permute(weight, [0, 2, 1]), (out * right, left))), (rows, out, right))
    made = R.sum(R.multiply(half, reshape(b, (rows, 1, right))), [2], False)
    made = made if bias is None else R.add(made, bias)
    return reshape(made, n.shape)


# ---------------------------------------------------------------------------- mixtures of experts
@aten("transformers::grouped_mm_fallback")
def grouped_mm_fallback(n: Site, x: Expr, weight: Expr, offs: Expr) -> Expr:
    """The custom operator for experts that `transformers` registers."""
    return NN.grouped_matmul(x, weight, offs)


@aten("_grouped_mm", "grouped_mm")
def grouped_mm(
    n: Site, x: Expr, mat2: Expr, offs: Expr | None = None, bias: Expr | None = None, out_dtype: Any = None
) -> Expr:
    if bias is not None:
        raise Refusal("a bias is not supported; add it to the result")
    if offs is None and (rank(x), rank(mat2)) == (3, 3):
        return NN.batch_matmul(x, mat2, transpose_b=False)
    if offs is None or (rank(x), rank(mat2)) != (2, 3):
        raise Refusal(
            f"groups are of rows of a matrix, with a weight each (2 and 3 dimensions), not of operands with {rank(x)} "
            f"and {rank(mat2)} dimensions"
        )
    return NN.grouped_matmul(x, mat2, offs)


@aten("onnx::RotaryEmbedding")
def rotary_embedding(
    n: Site,
    x: Expr,
    cos_cache: Expr,
    sin_cache: Expr,
    position_ids: Expr | None = None,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Expr:
    """`torch.onnx.ops.rotary_embedding`; the caches have one angle for each pair that is rotated."""
    return rotary(x, cos_cache, sin_cache, position_ids, interleaved, num_heads)


@aten("einsum")
def einsum(n: Site, equation: str, tensors: list[Expr]) -> Expr:
    """As a product of matrices where it is one; else as it is written."""
    plain = equation.replace(" ", "")
    if len(tensors) == 2 and "..." not in plain:
        made = _as_product(plain, [n.to(e) for e in tensors])
        if made is not None:
            return made
    return R.einsum([n.to(e) for e in tensors], plain)


def _as_product(equation: str, tensors: list[Expr]) -> Expr | None:
    """Two tensors summed over labels that both have: dimensions in order, then one product of stacks of matrices."""
    left, _, result = equation.partition("->")
    terms = left.split(",")
    if "->" not in equation:
        both = "".join(terms)
        result = "".join(sorted(c for c in set(both) if both.count(c) == 1))
    a, b = terms
    if any(len(set(t)) != len(t) for t in (a, b, result)):
        return None
    shared = [c for c in a if c in b and c in result]
    summed = [c for c in a if c in b and c not in result]
    own = [[c for c in t if c not in other] for t, other in ((a, b), (b, a))]
    if not summed or any(c not in result for t in own for c in t):
        return None
    sizes = dict(zip(a + b, (*shape_of(tensors[0]), *shape_of(tensors[1])), strict=True))
    if any(sizes[c] != d for t, e in zip(terms, tensors) for c, d in zip(t, shape_of(e))):
        return None
    stacks = []
    for e, t, mine, first in ((tensors[0], a, own[0], True), (tensors[1], b, own[1], False)):
        order = [*shared, *mine, *summed] if first else [*shared, *summed, *mine]
        groups = [shared, mine, summed] if first else [shared, summed, mine]
        moved = permute(e, [t.index(c) for c in order])
        stacks.append(reshape(moved, [product([sizes[c] for c in g]) for g in groups]))
    made = NN.batch_matmul(stacks[0], stacks[1], transpose_b=False)
    laid = [*shared, *own[0], *own[1]]
    return permute(reshape(made, [sizes[c] for c in laid]), [laid.index(c) for c in result])


# ---------------------------------------------------------------------------- attention
@aten("scaled_dot_product_attention")
def attention(
    n: Site,
    query: Expr,
    key: Expr,
    value: Expr,
    attn_mask: Expr | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    """softmax(query · keyᵀ · scale + mask) · value over all leading dimensions."""
    if dropout_p:
        raise Refusal("dropout is random in training; export the model in eval() mode")
    if enable_gqa:
        groups = shape_of(query)[-3] // shape_of(key)[-3]
        key, value = (R.repeat(e, groups, rank(e) - 3) if groups > 1 else e for e in (key, value))
    lead = broadcast(shape_of(query)[:-2], shape_of(key)[:-2])
    width, rows, columns = shape_of(query)[-1], shape_of(query)[-2], shape_of(key)[-2]
    by = 1 / math.sqrt(width) if scale is None else scale
    scaled = R.multiply(_three(query, lead), literal(by, n.dtype))
    scores = NN.batch_matmul(scaled, _three(key, lead), transpose_b=True)
    weights = _weights(n, scores, (*lead, rows, columns), attn_mask, is_causal)
    made = NN.batch_matmul(weights, _three(value, lead), transpose_b=False)
    return reshape(made, (*lead, rows, shape_of(value)[-1]))


def _weights(n: Site, scores: Expr, shape: tuple[Any, ...], mask: Expr | None, is_causal: bool) -> Expr:
    """The softmax of the scores where a mask allows it; a row of which it allows nothing is 0."""
    if is_causal:
        rows, columns = shape[-2:]
        if not isinstance(rows, int) or not isinstance(columns, int):
            raise Refusal("causal attention over dynamic sizes is not supported; give a mask")
        mask = constant(np.tril(np.ones((rows, columns), bool)))
    if mask is None:
        return NN.softmax(scores, -1)
    flat = shape_of(scores)
    if any(d != 1 for d in shape_of(mask)[:-2]):
        mask = reshape(
            R.broadcast_to(mask, (*shape[:-2], *shape_of(mask)[-2:])), (flat[0], *shape_of(mask)[-2:])
        )
    elif rank(mask) > 2:
        mask = reshape(mask, shape_of(mask)[-2:])
    if dtype_of(mask) != "bool":
        return NN.softmax(R.add(scores, cast(mask, n.dtype)), -1)
    low = literal(-3e38 if n.dtype != "float16" else -6e4, n.dtype)
    kept = NN.softmax(R.where(mask, scores, low), -1)
    return R.where(mask, kept, literal(0.0, n.dtype))


@aten("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math",
      "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention")  # fmt: skip
def fused_attention(
    n: Site,
    query: Expr,
    key: Expr,
    value: Expr,
    attn_mask: Expr | None = None,
    attn_bias: Expr | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    compute_log_sumexp: bool = False,
) -> list[Any]:
    mask = attn_mask if attn_mask is not None else attn_bias
    made = attention(n, query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)
    return [made, *[None] * (len(n.kinds) - 1)]


# ---------------------------------------------------------------------------- embeddings
@aten("embedding")
def embedding(n: Site, weight: Expr, indices: Expr, padding_idx: int = -1) -> Expr:
    return R.take(weight, places(indices), axis=0, mode="fast", negative=False)


@aten("cdist", "_cdist_forward")
def cdist(n: Site, x1: Expr, x2: Expr, p: float = 2, compute_mode: Any = None) -> Expr:
    a, b = (R.expand_dims(e, rank(e) - at) for e, at in ((x1, 1), (x2, 2)))
    return _length(n, R.subtract(a, b), p)


@aten("_pdist_forward", "pdist")
def pdist(n: Site, x: Expr, p: float = 2) -> Expr:
    """The distances between each two rows."""
    first, second = np.triu_indices(sizes_of(x, "the distances of rows")[0], 1)
    pairs = [take_rows(x, rows.tolist(), 0) for rows in (first, second)]
    return _length(n, R.subtract(*pairs), p)


def _length(n: Site, difference: Expr, p: float) -> Expr:
    """The p-norm of the last dimension."""
    apart = R.abs(difference)
    last = [rank(apart) - 1]
    if p == 1:
        return R.sum(apart, last, False)
    if p == 2:
        return R.sqrt(R.sum(R.multiply(apart, apart), last, False))
    if math.isinf(p):
        return R.max(apart, last, False)
    if not p:
        return R.sum(cast(cast(apart, "bool"), n.dtype), last, False)
    total = R.sum(R.power(apart, literal(p, n.dtype)), last, False)
    return R.power(total, literal(1 / p, n.dtype))


@aten("embedding_bag", "_embedding_bag_forward_only", "_embedding_bag")
def embedding_bag(
    n: Site,
    weight: Expr,
    indices: Expr,
    offsets: Expr,
    mode: int = 0,
    per_sample_weights: Expr | None = None,
    include_last_offset: bool = False,
    padding_idx: Any = None,
) -> list[Any]:
    """Sums, averages or greatest of the rows of bags, each from its offset to the next."""
    from ...expr import Constant

    if padding_idx not in (None, -1):
        raise Refusal("padding_idx is not supported")
    rows = R.take(weight, places(indices), axis=0, mode="fast", negative=False)
    if per_sample_weights is not None:
        rows = R.multiply(rows, R.expand_dims(per_sample_weights, 1))
    rest = [None] * (len(n.kinds) - 1)
    if not isinstance(offsets, Constant):
        return [_bags(n, rows, places(offsets), mode), *rest]
    starts = [int(v) for v in offsets.numpy()]
    edges = starts if include_last_offset else [*starts, shape_of(indices)[0]]
    bags: list[Any] = []
    for a, b in zip(edges, edges[1:]):
        if a == b:
            bags.append(full(0, (1, shape_of(weight)[1]), dtype_of(weight)))
        else:
            work = (R.sum, R.mean, R.max)[mode]
            bags.append(work(R.strided_slice(rows, [a], [b], [1], axes=[0]), [0], True))
    return [R.concatenate(bags, 0) if len(bags) > 1 else bags[0], *rest]


def _bags(n: Site, rows: Expr, offsets: Expr, mode: int) -> Expr:
    """Bags whose offsets are known when the model runs: each row is added to that of its bag."""
    count = sizes_of(rows, "bags with offsets that are inputs")[0]
    line = constant(np.arange(count, dtype=np.int64))
    bag = R.searchsorted(cast(offsets, "int64"), line, right=True, dtype="int64")
    bag = reshape(R.subtract(bag, literal(1, "int64")), (1, count))
    if mode == 2:
        low = scatter_rows(full(float("-inf"), n.shape, n.dtype), rows, 0, bag, "max", False)
        return R.where(R.isinf(low), literal(0, n.dtype), low)
    total = scatter_rows(full(0, n.shape, n.dtype), rows, 0, bag, "add", False)
    if mode == 0:
        return total
    ones = full(1, (count, 1), n.dtype)
    counts = scatter_rows(full(0, (n.shape[0], 1), n.dtype), ones, 0, bag, "add", False)
    return R.divide(total, R.maximum(counts, literal(1, n.dtype)))
