"""Operators of ATen that torch has no decomposition for, written in its other operators.

`torch.nn.TransformerEncoderLayer` and `MultiheadAttention` call them in inference, where torch.compile records them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any


@lru_cache
def own_decompositions() -> dict[Any, Callable[..., Any]]:
    """Each overload and the function that computes it."""
    import torch

    A: Any = torch.ops.aten
    return {
        A._transformer_encoder_layer_fwd.default: _encoder_layer,
        A._native_multi_head_attention.default: _attention,
    }


def _attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Any, Any]:
    """Attention over heads with its projections, and its weights, or an empty tensor for them."""
    import torch
    from torch.nn.functional import linear

    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (linear(x, w, b).unflatten(2, (num_head, -1)).transpose(1, 2) for x, w, b in parts)
    scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(2, 3)
    if mask is not None:
        hidden = mask.to(torch.bool)
        if mask_type == 1:  # keys of each of the batch
            hidden = hidden[:, None, None, :]
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = scores.softmax(-1)
    if mask is not None:  # where all is hidden, torch gives 0
        weights = weights.masked_fill(hidden.expand_as(weights).all(-1, keepdim=True), 0.0)
    made = linear((weights @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return made, weights.new_empty(0)
    return made, weights.mean(1) if average_attn_weights else weights


def _encoder_layer(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """A layer of a transformer: attention and two products, each with a residual and a norm before or behind it."""
    from torch.nn.functional import gelu, layer_norm, linear, relu

    def attend(x: Any) -> Any:
        return _attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]  # fmt: skip

    def feed(x: Any) -> Any:
        inner = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(gelu(inner) if use_gelu else relu(inner), ffn_weight_2, ffn_bias_2)

    def first(x: Any) -> Any:
        return layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Any) -> Any:
        return layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attend(first(src))
        return x + feed(second(x))
    x = first(src + attend(src))
    return second(x + feed(x))
