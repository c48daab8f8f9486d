"""Attention as one operator, which passes create where it is one kernel; rotary embeddings."""

from __future__ import annotations

from typing import Any

from ..expr import Call
from ..ty import TensorType, Type
from .computes import topi
from .gradients import nn as grads
from .registry import FUSABLE, INJECTIVE, Ints, Place, Tensor, operator, refuse
from .shapes import broadcast, differ, floordiv, is_known, mul, need_dtype, need_rank, sub
from .traits import Traits

__all__ = ["cache_update", "rotary_embedding", "scaled_dot_product_attention"]


def _cache_rel(types: list[Any], attrs: Any) -> Type:
    cache, rows, *positions = types
    need_rank(rows, len(cache.shape), "rows")
    need_dtype(rows, cache.dtype, "rows")
    if not cache.shape or any(map(differ, cache.shape[1:], rows.shape[1:])):
        raise refuse(f"is {rows} and the rows of the cache are {cache}", "rows")
    if all(isinstance(k.shape[0], int) for k in types) and rows.shape[0] > cache.shape[0]:
        raise refuse(f"has {rows.shape[0]} rows and the cache {cache.shape[0]}", "rows")
    if positions:
        need_rank(positions[0], 1, "positions")
        if str(positions[0].dtype) not in ("int32", "int64") or differ(positions[0].shape[0], rows.shape[0]):
            raise refuse(
                f"is {positions[0]}; it has an int32 or int64 for each of {rows.shape[0]} rows", "positions"
            )
    return cache


def _cache_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    cache, rows, *positions = ins
    if positions:
        return [topi.scatter_nd(cache, topi.expand_dims(positions[0], 0), rows, "update")]
    old = sub(cache.shape[0], rows.shape[0])
    kept = topi.strided_slice(cache, [0], [old], [1], [0])
    return [topi.concatenate([kept, rows], 0)]


@operator(
    "nn.cache_update",
    rel=_cache_rel,
    compute=_cache_compute,
    places=lambda types, attrs: [Place(2, "index", 0, (0,))] if len(types) > 2 else [],
)
def cache_update(cache: Tensor, rows: Tensor, positions: Tensor | None = None) -> Call:
    """A KV cache whose last rows, along its first dimension, are replaced by new ones; or those at some positions.

    The virtual machine writes into the memory of the cache if that is an argument of the program with no other use:
    the caller's array then holds the new rows.
    """


def _attention_rel(types: list[Any], attrs: Any) -> Type:
    query, key, value, *mask = types
    rank = len(query.shape)
    if rank < 2:
        raise refuse(f"is {query} and has two dimensions or more", "query")
    for name, kind in (("key", key), ("value", value)):
        need_rank(kind, rank, name)
        need_dtype(kind, query.dtype, name)
    pairs = [("key", key, query, -1), ("value", value, key, -2)]
    pairs += [("key", key, query, d) for d in range(rank - 3)] + [
        ("value", value, key, d) for d in range(rank - 2)
    ]
    for name, kind, other, d in pairs:
        if differ(kind.shape[d], other.shape[d]):
            raise refuse(f"is {kind} beside {other}: {kind.shape[d]} against {other.shape[d]}", name)
    if rank > 2:
        heads, shared = query.shape[-3], key.shape[-3]
        if differ(mul(floordiv(heads, shared), shared), heads):
            raise refuse(f"has {shared} heads, which do not divide the {heads} heads of the query", "key")
    scores = (*query.shape[:-1], key.shape[-2])
    if mask and len(broadcast(mask[0].shape, scores)) != rank:
        raise refuse(f"is {mask[0]} and does not broadcast to the scores {scores}", "mask")
    return TensorType((*query.shape[:-1], value.shape[-1]), value.dtype)


@operator(
    "nn.scaled_dot_product_attention",
    traits=Traits(gradient=grads.attention),
    rel=_attention_rel,
    compute="nn.scaled_dot_product_attention",
    pattern=FUSABLE,
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    window: Ints = None,
    offset: int = 0,
) -> Call:
    """softmax(query · keyᵀ · scale + mask) · value over [..., heads, length, width], as `topi.nn` has it."""


# ---------------------------------------------------------------------------- embeddings
def _rotary_rel(types: list[Any], attrs: Any) -> Type:
    data, *angles = types
    if not data.shape:
        raise refuse(f"must have a dimension and is {data}", "data")
    for kind, name in zip(angles, ("cos", "sin"), strict=True):
        need_dtype(kind, data.dtype, name)
        if not kind.shape or not is_known(kind.shape[-1]) or not is_known(data.shape[-1]):
            raise refuse(f"is {kind} and data is {data}: their last sizes must be known", name)
        if 2 * kind.shape[-1] > data.shape[-1]:
            raise refuse(f"has {kind.shape[-1]} angles for a last dimension of {data.shape[-1]}", name)
        if len(broadcast(kind.shape[:-1], data.shape[:-1], f"{name} and data")) != len(data.shape) - 1:
            raise refuse(f"is {kind}, which has more dimensions than data, {data}", name)
    return data


@operator(
    "nn.rotary_embedding",
    traits=Traits(gradient=grads.rotary_embedding),
    rel=_rotary_rel,
    compute="nn.rotary_embedding",
    pattern=INJECTIVE,
)
def rotary_embedding(data: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Call:
    """Pairs of the last dimension rotated by angles: (a, b) becomes (a·cos - b·sin, a·sin + b·cos).

    A pair is (d, d + half), or (2d, 2d + 1) if interleaved. `cos` and `sin` broadcast to [..., half]; elements beyond
    twice `half` are unchanged.
    """
