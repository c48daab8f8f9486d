"""Pieces of attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from .. import tag
from ..indexing import index_tensor, take
from ..utils import (
    broadcast_indices,
    broadcast_shape,
    dtype_of,
    equal_const_int,
    fail,
    injective,
    is_dynamic_shape,
    same_size,
    shape_text,
    static_int,
    tensor_arg,
)
from .stages import float_tensor, reduced, wide

__all__ = [
    "alibi_bias",
    "alibi_slopes",
    "causal_mask",
    "embedding",
    "rotary_embedding",
    "scaled_dot_product_attention",
    "window_mask",
]

_NAME = "nn.scaled_dot_product_attention"


# ---------------------------------------------------------------------------- which keys a query sees
def _visible(i: PrimExpr, j: PrimExpr, causal: bool, window: tuple[int, int] | None) -> PrimExpr | None:
    """Whether the query at position `i` attends to the key at position `j`; None if each attends to all."""
    conditions: list[PrimExpr] = [j <= i] if causal else []
    if window is not None:
        before, after = window
        conditions += [j >= i - before] if before >= 0 else []
        conditions += [j <= i + after] if after >= 0 else []
    return te.all(*conditions) if conditions else None


def _window(operator_name: str, window: Any) -> tuple[int, int]:
    """The window of a query before and after its position; one number is both, a negative one is unlimited."""
    sides = list(window) if isinstance(window, (tuple, list)) else [window, window]
    if len(sides) != 2:
        raise fail(operator_name, f"window has {len(sides)} numbers", "it is (before, after) or one for both")
    return static_int(operator_name, "window", sides[0]), static_int(operator_name, "window", sides[1])


def causal_mask(queries: Any, keys: Any, offset: Any = 0) -> te.Tensor:
    """A bool matrix: query i sees key j where j <= i + offset."""
    return injective("nn.causal_mask", (queries, keys), lambda i, j: j <= i + offset, name="T_causal_mask")


def window_mask(queries: Any, keys: Any, window: Any, offset: Any = 0) -> te.Tensor:
    """A bool matrix: query i sees the keys from `before` in front of i + offset to `after` behind it."""
    sides = _window("nn.window_mask", window)

    def element(i: Any, j: Any) -> PrimExpr:
        seen = _visible(i + offset, j, False, sides)
        return te.const(True, "bool") if seen is None else seen

    return injective("nn.window_mask", (queries, keys), element, name="T_window_mask")


def alibi_slopes(heads: int) -> list[float]:
    """The slopes of ALiBi: a geometric sequence from 2^(-8/n), filled up where the heads are not a power of two."""
    if heads < 1:
        raise fail("nn.alibi_slopes", f"heads is {heads} and must be positive")
    near = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (h + 1) / near) for h in range(near)]
    extra = [2.0 ** (-8.0 * (h + 1) / (2 * near)) for h in range(0, 2 * near, 2)]
    return slopes + extra[: heads - near]


def alibi_bias(slopes: Any, queries: Any, keys: Any, offset: Any = 0, dtype: str = "float32") -> te.Tensor:
    """slope[h]·(j - i - offset): what ALiBi adds to the score of query i and key j in head h."""
    kind = dtype_of("nn.alibi_bias", dtype)
    given = slopes if isinstance(slopes, te.Tensor) else None
    values = [] if given is not None else [float(s) for s in slopes]
    heads = given.shape[0] if given is not None else len(values)

    def slope(h: PrimExpr) -> PrimExpr:
        if given is not None:
            return ops.cast(kind, given(h))
        out: PrimExpr = te.const(values[-1], kind)
        for place in range(len(values) - 2, -1, -1):
            out = ops.select(ops.equal(h, place), te.const(values[place], kind), out)
        return out

    return injective(
        "nn.alibi_bias",
        (heads, queries, keys),
        lambda h, i, j: slope(h) * ops.cast(kind, j - i - offset),
        name="T_alibi_bias",
    )


# ---------------------------------------------------------------------------- attention
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    window: Any = None,
    offset: Any = 0,
) -> te.Tensor:
    """softmax(query · keyᵀ · scale + mask) · value over [..., heads, length, width].

        scores -> scale, mask -> max -> exp -> sum -> divide -> times value

    A mask is bool (True: attend) or additive; it broadcasts. Key and value may have fewer heads, each of which then
    serves a group of query heads (grouped-query attention). `is_causal` and `window` mask keys by position, with query
    i at position i + offset. A query with all keys masked gets zeros.
    """
    q, k, v = (float_tensor(_NAME, n, t) for n, t in (("query", query), ("key", key), ("value", value)))
    group = _check_attention(q, k, v)
    *lead, length, width = q.shape
    keys = k.shape[-2]
    factor = 1 / math.sqrt(static_int(_NAME, "the width", width)) if scale is None else scale
    sides = None if window is None else _window(_NAME, window)
    places = _places(attn_mask, (*lead, length, keys))

    def head(i: Sequence[Any]) -> tuple[Any, ...]:
        return (*i[:-1], ops.floordiv(i[-1], group)) if i else ()

    def dot(*i: Any) -> PrimExpr:
        *at, m, n, d = i
        return wide(q(*at, m, d)) * wide(k(*head(at), n, d))

    rank = len(q.shape)
    scores = reduced("T_attention_scores", (*lead, length, keys, width), [rank], te.sum, dot)

    def shown(*i: Any) -> PrimExpr:
        *_, m, n = i
        out = scores(*i) * te.const(factor, scores.dtype)
        hidden = te.const(-math.inf, out.dtype)
        if attn_mask is not None:
            at = attn_mask(*broadcast_indices(attn_mask.shape, places, i))
            out = ops.select(at, out, hidden) if at.dtype.is_bool else out + ops.cast(out.dtype, at)
        seen = _visible(m + offset, n, is_causal, sides)
        return out if seen is None else ops.select(seen, out, hidden)

    masked = attn_mask is not None or is_causal or sides is not None
    logits = injective(_NAME, scores.shape, shown, tag.INJECTIVE, "T_attention_logits")
    weights = _safe_softmax(logits, masked)

    def mix(*i: Any) -> PrimExpr:
        *at, m, d, n = i
        return weights(*at, m, n) * wide(v(*head(at), n, d))

    out = reduced("T_attention", (*lead, length, v.shape[-1], keys), [rank], te.sum, mix)
    if out.dtype is v.dtype:
        return out
    return injective(
        _NAME, out.shape, lambda *i: ops.cast(v.dtype, out(*i)), tag.ELEMWISE, "T_attention_cast"
    )


def _safe_softmax(logits: te.Tensor, masked: bool) -> te.Tensor:
    """softmax over the last axis; zeros instead of NaN for fully masked rows."""
    last = [len(logits.shape) - 1]
    least = te.min_value(logits.dtype)
    top = reduced("T_attention_max", logits.shape, last, te.max, logits)

    def lifted(*i: Any) -> PrimExpr:
        # -inf minus -inf is NaN; measured from a finite number the hidden ones are exp(-inf) = 0.
        highest = ops.max_of(top(*i[:-1]), least) if masked else top(*i[:-1])
        return te.exp(logits(*i) - highest)

    grown = injective(_NAME, logits.shape, lifted, tag.INJECTIVE, "T_attention_exp")
    total = reduced("T_attention_expsum", logits.shape, last, te.sum, grown)

    def share(*i: Any) -> PrimExpr:
        whole = total(*i[:-1])
        if not masked:
            return grown(*i) / whole
        one = te.const(1, whole.dtype)
        return grown(*i) / ops.select(ops.equal(whole, te.const(0, whole.dtype)), one, whole)

    return injective(_NAME, logits.shape, share, tag.INJECTIVE, "T_attention_weights")


def _check_attention(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> int:
    """Check the shapes; returns the number of query heads per key head."""
    rank = len(q.shape)
    if rank < 2 or len(k.shape) != rank or len(v.shape) != rank:
        ranks = ", ".join(str(len(t.shape)) for t in (q, k, v))
        raise fail(
            _NAME, f"query, key and value have {ranks} dimensions and must have the same number, two or more"
        )
    pairs = [("width of query and key", q, k, -1), ("length of key and value", k, v, -2)]
    pairs += [(f"dimension {d} of query and key", q, k, d) for d in range(rank - 3)]
    pairs += [(f"dimension {d} of key and value", k, v, d) for d in range(rank - 2)]
    for what, a, b, d in pairs:
        if not same_size(a.shape[d], b.shape[d]):
            shapes = " and ".join(shape_text(t.shape) for t in (a, b))
            raise fail(_NAME, f"the {what} differ: {shapes}")
    if rank == 2 or same_size(q.shape[-3], k.shape[-3]):
        return 1
    heads, shared = q.shape[-3], k.shape[-3]
    if is_dynamic_shape([heads, shared]) or not equal_const_int(ops.floormod(heads, shared), 0):
        raise fail(
            _NAME, f"the {heads} heads of the query do not make equal groups for {shared} heads of the key"
        )
    return static_int(_NAME, "the group", ops.floordiv(heads, shared))


def _places(mask: Any, shape: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The shape of the scores, to which the mask must broadcast."""
    whole = tuple(shape)
    if mask is None:
        return whole
    given = tensor_arg(_NAME, "attn_mask", mask)
    if not (given.dtype.is_bool or given.dtype.is_float):
        raise fail(_NAME, f"attn_mask is {given.dtype} and must be bool or a float type")
    common = broadcast_shape(_NAME, given.shape, whole)
    if len(common) != len(whole) or not all(map(same_size, common, whole)):
        raise fail(
            _NAME, f"attn_mask {shape_text(given.shape)} is larger than the scores {shape_text(whole)}"
        )
    return whole


# ---------------------------------------------------------------------------- embeddings
def rotary_embedding(x: Any, cos: Any, sin: Any, interleaved: bool = False) -> te.Tensor:
    """Rotate pairs of the last dimension by angles whose cosine and sine are given.

        (a, b) -> (a·cos - b·sin, a·sin + b·cos)

    A pair is (d, d + half), or (2d, 2d + 1) if interleaved. cos and sin broadcast to [..., half]; elements beyond
    twice `half` are unchanged.
    """
    name = "nn.rotary_embedding"
    data, c, s = (float_tensor(name, n, t) for n, t in (("x", x), ("cos", cos), ("sin", sin)))
    if not data.shape or not c.shape:
        raise fail(name, "x or cos has no dimensions")
    half = static_int(name, "the last dimension of cos", c.shape[-1])
    width = static_int(name, "the last dimension of x", data.shape[-1])
    if 2 * half > width:
        raise fail(name, f"cos has {half} angles for the {width // 2} pairs of the last dimension of x")
    angles = (*data.shape[:-1], te.const(half, "int32"))
    for argument, t in (("cos", c), ("sin", s)):
        common = broadcast_shape(name, t.shape, angles)
        if len(common) != len(angles) or not all(map(same_size, common, angles)):
            raise fail(name, f"{argument} {shape_text(t.shape)} does not broadcast to {shape_text(angles)}")

    def element(*i: Any) -> PrimExpr:
        *at, d = i
        pair = ops.floordiv(d, 2) if interleaved else ops.select(d < half, d, d - half)
        second = ops.equal(ops.floormod(d, 2), 1) if interleaved else d >= half
        other = ops.select(second, d - 1, d + 1) if interleaved else ops.select(second, d - half, d + half)
        inside = d < 2 * half

        def turned() -> PrimExpr:
            spot: list[Any] = [*at, pair]
            co = wide(c(*broadcast_indices(c.shape, angles, spot)))
            si = wide(s(*broadcast_indices(s.shape, angles, spot)))
            own, partner = wide(data(*i)), wide(data(*at, other))
            return own * co + ops.select(second, partner, -partner) * si

        if half == 0:
            return data(*i)
        if 2 * half == width:
            return ops.cast(data.dtype, turned())
        return ops.if_then_else(inside, ops.cast(data.dtype, turned()), data(*i))

    return injective(name, data.shape, element, tag.INJECTIVE, "T_rotary_embedding")


def embedding(indices: Any, weight: Any) -> te.Tensor:
    """The row of the table for each index; out-of-bounds indices are clamped."""
    ids, table = (
        index_tensor("nn.embedding", "indices", indices),
        tensor_arg("nn.embedding", "weight", weight),
    )
    if len(table.shape) != 2:
        raise fail("nn.embedding", f"weight has {len(table.shape)} dimensions and must have two")
    return take(table, ids, axis=0)
