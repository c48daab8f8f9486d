"""The attentions of com.microsoft: with packed projections, over heads, grouped with a KV cache; rotary embeddings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..common.attention import attend, count_up, heads_of, joined_heads
from ..common.embeddings import rotary
from ..common.matrices import matmul
from .build import R, cast, constant, dtype_of, rank, scalar, shape_of, typed
from .context import Node, converter
from .quant import along, integer_matmul

MS = "com.microsoft"


def _head_count(n: Node, name: str = "num_heads") -> int:
    heads = int(n.attr(name, 0))
    if heads < 1:
        raise n.refuse(f"{name} is {heads}")
    return heads


def _scale(n: Node, width: int) -> float:
    return n.attr("scale", 0.0) or 1 / math.sqrt(width)


# ---------------------------------------------------------------------------- masks
def _padding(n: Node, at: int, batch: Any, keys: Any) -> Any:
    """What the mask of an input adds to the scores; None if there is no mask.

    A mask is a number of keys for each of the batch (or ends, then begins), or has a number for each key that is 0
    where it is hidden.
    """
    if not n.has(at):
        return None
    mask = cast(n[at], "int32")
    if rank(mask) == 1:
        size = shape_of(mask)[0]
        line = R.expand_dims(count_up(keys), 0)
        if size is batch or size == batch:
            shown = R.less(line, R.expand_dims(mask, 1))
        elif isinstance(batch, int) and size == 2 * batch:
            ends, begins = R.split(mask, 2, 0)
            shown = R.logical_and(
                R.less(line, R.expand_dims(ends, 1)), R.greater_equal(line, R.expand_dims(begins, 1))
            )
        else:
            raise n.refuse(f"a mask of {size} numbers for a batch of {batch} is not supported")
    else:
        shown = R.greater(mask, scalar(0, mask))
    if rank(shown) == 2:
        shown = R.expand_dims(shown, 1, 2)
    elif rank(shown) == 3:
        shown = R.expand_dims(shown, 1)
    elif rank(shown) != 4:
        raise n.refuse(f"a mask of shape {shape_of(mask)} is not supported")
    low = float(n.attr("mask_filter_value", -10000.0))
    return R.where(shown, constant(np.float32(0)), constant(np.float32(low)))


def _bias(n: Node, like: Any, mask: Any, extra: Any) -> Any:
    """A mask and a bias of the scores as one tensor; None if both are."""
    if mask is not None:
        mask = cast(mask, dtype_of(like))
    if mask is None or extra is None:
        return mask if extra is None else extra
    return R.add(mask, extra)


def _causal(rows: Any, keys: Any, before: Any) -> Any:
    """(rows, keys): whether a query sees a key, each row one more than the row before it, the first `before` + 1."""
    if all(isinstance(v, int) for v in (rows, keys, before)):
        return constant(np.tril(np.ones((rows, keys), bool), before))
    start = constant(np.int32(before)) if isinstance(before, int) else R.reshape(_number(before), ())
    last = R.add(R.expand_dims(count_up(rows), 1), start)
    return R.less_equal(R.expand_dims(count_up(keys), 0), last)


def _number(size: Any) -> Any:
    """A dynamic size as a tensor: the sum of so many ones."""
    return R.sum(R.ones((size,), "int32"), axis=[0])


# ---------------------------------------------------------------------------- packed projections
@converter("Attention", domain=MS)
def attention(n: Node) -> Any:
    """Self-attention with the three projections in one matrix."""
    if n.has(6) or n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0):
        raise n.refuse("with rotary embedding or a past in a shared buffer is not supported")
    whole = matmul(n[0], n[1])
    if n.has(2):
        whole = R.add(whole, n[2])
    sizes = n.attr("qkv_hidden_sizes") or [n.static(1)[1] // 3] * 3
    return _packed(n, whole, sizes, mask=3, past=4, extra=n.get(5))


@converter("QAttention", domain=MS)
def quantized_attention(n: Node) -> Any:
    """Self-attention whose projections multiply 8-bit integers."""
    if n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0):
        raise n.refuse("with rotary embedding or a past in a shared buffer is not supported")
    total = cast(integer_matmul(n[0], n[1], n.get(6), n.get(7)), "float32")
    by = R.multiply(along(n[3], total, 2), along(n[4], total, 2))
    whole = R.add(R.multiply(total, by), n[2])
    return _packed(n, whole, [n.static(1)[1] // 3] * 3, mask=5, past=8, extra=None)


def _packed(n: Node, whole: Any, sizes: list[int], mask: int, past: int, extra: Any) -> Any:
    """Attention over the columns of one matrix: queries, keys, values; the heads, and keys and values for later."""
    heads = _head_count(n)
    batch, rows, _ = shape_of(whole)
    edges = np.cumsum([0, *sizes]).tolist()
    q, k, v = (
        heads_of(R.strided_slice(whole, [edges[i]], [edges[i + 1]], axes=[2]), heads) for i in range(3)
    )
    before: Any = 0
    if n.has(past):
        old = n[past]
        before = shape_of(old)[3]
        k, v = (
            R.concatenate([R.squeeze(R.strided_slice(old, [i], [i + 1], axes=[0]), [0]), new], 2)
            for i, new in ((0, k), (1, v))
        )
    keys = shape_of(k)[2]
    bias = _bias(n, whole, _padding(n, mask, batch, keys), extra)
    seen = _causal(rows, keys, before) if n.flag("unidirectional", 0) else None
    made = joined_heads(attend(q, k, v, _scale(n, sizes[0] // heads), bias, seen))
    present = R.stack([k, v], 0) if len(n.outputs) > 1 and n.outputs[1] else None
    return [made, present]


# ---------------------------------------------------------------------------- given queries, keys and values
def _three(n: Node, heads: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values over heads, with their bias, from the forms in which they may be packed."""
    q = n[0]
    if rank(q) == 5:  # (batch, length, heads, 3, width)
        parts = [R.squeeze(e, [3]) for e in R.split(q, 3, 3)]
        q, k, v = (R.transpose(e, [0, 2, 1, 3]) for e in parts)
        return (*_with_bias(n, [q, k, v]),)  # type: ignore[return-value]
    if not n.has(1):
        raise n.refuse("the key is missing")
    k = n[1]
    q = heads_of(q, heads)
    if rank(k) == 5:  # (batch, length, heads, 2, width)
        k, v = (R.transpose(R.squeeze(e, [3]), [0, 2, 1, 3]) for e in R.split(k, 2, 3))
    else:
        k, v = (heads_of(e, heads) if rank(e) == 3 else e for e in (k, n[2]))
    if n.has(1) and rank(n[1]) == 4:  # keys and values of an encoder, over heads, have theirs already
        return (*_with_bias(n, [q]), k, v)  # type: ignore[return-value]
    return (*_with_bias(n, [q, k, v]),)  # type: ignore[return-value]


def _with_bias(n: Node, parts: list[Any]) -> list[Any]:
    if not n.has(3):
        return parts
    out, at = [], 0
    for e in parts:
        _, heads, _, width = shape_of(e)
        own = R.strided_slice(n[3], [at], [at + heads * width], axes=[0])
        out.append(R.add(e, R.reshape(own, [1, heads, 1, width])))
        at += heads * width
    return out


@converter("MultiHeadAttention", domain=MS)
def multi_head_attention(n: Node) -> Any:
    if n.has(8) or n.has(9):
        raise n.refuse(
            "with the buffers of a beam search (past_sequence_length, cache_indirection) is not supported"
        )
    if len(n.outputs) > 3 and n.outputs[3]:
        raise n.refuse("the scores as an output (qk) are not supported")
    q, k, v = _three(n, _head_count(n))
    before: Any = 0
    if n.has(6) and n.has(7):
        before = n.shape(6)[2]
        k, v = R.concatenate([n[6], k], 2), R.concatenate([n[7], v], 2)
    batch, _, rows, width = shape_of(q)
    keys = shape_of(k)[2]
    bias = _bias(n, q, _padding(n, 4, batch, keys), n.get(5))
    seen = _causal(rows, keys, before) if n.flag("unidirectional", 0) else None
    return [joined_heads(attend(q, k, v, _scale(n, width), bias, seen)), k, v]


@converter("RotaryEmbedding", domain=MS)
def rotary_embedding(n: Node) -> Any:
    """Rotary embedding; the positions are given, or count up from one number."""
    if n.attr("is_packed_batching", 0):
        raise n.refuse("packed batching is not supported")
    x, heads = n[0], int(n.attr("num_heads", 0))
    width = 2 * n.static(2)[1]
    if rank(x) == 3 and heads == 0:
        heads = shape_of(x)[2] // width
    positions = n[1]
    if rank(positions) == 1:
        batch, length = shape_of(x)[0], shape_of(x)[1 if rank(x) == 3 else 2]
        line = R.add(cast(positions, "int32"), count_up(length))
        positions = R.broadcast_to(R.expand_dims(line, 0), (batch, length))
    return rotary(x, n[2], n[3], positions, n.flag("interleaved", 0), heads)


# ---------------------------------------------------------------------------- grouped, with a cache
@converter("GroupQueryAttention", domain=MS)
def group_query_attention(n: Node) -> Any:
    """Causal attention over a KV cache whose heads serve groups of heads of queries.

    Of each sequence `past` keys are in the cache, and the new ones are written behind these. The cache that goes out
    is as long as all keys, or as the one that came in if that has room for them (total_sequence_length says so).
    """
    _refuse_unusual(n)
    heads, shared = _head_count(n), _head_count(n, "kv_num_heads")
    q, k, v = _of_groups(n, heads, shared)
    batch, _, rows, width = shape_of(q)
    past = R.subtract(R.reshape(cast(n[5], "int32"), (batch,)), _minus_one(rows))
    past = R.maximum(past, constant(np.int32(0)))
    places = R.add(R.expand_dims(past, 1), R.expand_dims(count_up(rows), 0))
    if n.flag("do_rotary", 0):
        at = n[9] if n.has(9) else places
        turn = n.flag("rotary_interleaved", 0)
        q, k = (rotary(e, n[7], n[8], at, turn) for e in (q, k))
    if n.has(3) and shape_of(n[3])[2] != 0:
        k, v = (_written(n, old, new, past) for old, new in ((n[3], k), (n[4], v)))
    keys = shape_of(k)[2]
    line, last = R.expand_dims(count_up(keys), 0, 2), R.expand_dims(places, 2)
    seen = R.less_equal(line, last)
    window = int(n.attr("local_window_size", -1))
    if window > 0:
        seen = R.logical_and(seen, R.greater(line, R.subtract(last, constant(np.int32(window)))))
    sink = R.reshape(n[11], [1, heads, 1, 1]) if n.has(11) else None
    if sink is None and n.attr("smooth_softmax", 0) == 1:
        sink = scalar(0, q)
    made = attend(
        q,
        k,
        v,
        _scale(n, width),
        n.get(10),
        R.expand_dims(seen, 1),
        float(n.attr("softcap", 0.0)),
        sink,
    )
    return [joined_heads(made), k, v]


def _refuse_unusual(n: Node) -> None:
    if any(n.has(i) for i in range(12, 16)):
        raise n.refuse("a quantized KV cache, or norms of queries and keys, are not supported")
    if n.attr("qk_output", 0):
        raise n.refuse("the scores as an output (qk_output) are not supported")
    if not n.flag("causal", 1):
        raise n.refuse("causal=0 is not supported: MultiHeadAttention sees all keys")


def _minus_one(size: Any) -> Any:
    if isinstance(size, int):
        return constant(np.int32(size - 1))
    return R.subtract(_number(size), constant(np.int32(1)))


def _of_groups(n: Node, heads: int, shared: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values over heads; they may come in one tensor."""
    if n.has(1):
        return heads_of(n[0], heads), heads_of(n[1], shared), heads_of(n[2], shared)
    width = shape_of(n[0])[2] // (heads + 2 * shared)
    edges = [0, heads * width, (heads + shared) * width, (heads + 2 * shared) * width]
    parts = [R.strided_slice(n[0], [edges[i]], [edges[i + 1]], axes=[2]) for i in range(3)]
    return heads_of(parts[0], heads), heads_of(parts[1], shared), heads_of(parts[2], shared)


def _written(n: Node, old: Any, new: Any, past: Any) -> Any:
    """A cache with new rows behind the `past` ones of each sequence.

    row t of the result  =  old[t]  if t < past,  new[t - past]  if that exists,  else old[t]
    """
    whole = typed(R.concatenate([old, new], 2))
    room, rows = shape_of(old)[2], shape_of(new)[2]
    total = n.need(6, symbols=True)
    count = total.reshape(-1)[0]
    fixed = isinstance(count, (int, np.integer)) and isinstance(room, int) and isinstance(rows, int)
    size = max(room, int(count)) if fixed else shape_of(whole)[2]
    if shape_of(old)[0] == 1 and (not fixed or room + rows == size):
        return whole  # one sequence: its past is the whole cache
    start = constant(np.int32(room)) if isinstance(room, int) else _number(room)
    first, line = R.expand_dims(past, 1), R.expand_dims(count_up(size), 0)
    step = R.subtract(line, first)
    is_new = R.logical_and(R.greater_equal(step, constant(np.int32(0))), R.less_equal(step, _minus_one(rows)))
    index = R.where(is_new, R.add(step, start), R.minimum(line, R.subtract(start, constant(np.int32(1)))))
    batch, heads, _, width = shape_of(old)
    index = R.broadcast_to(R.expand_dims(R.expand_dims(index, 1), 3), (batch, heads, size, width))
    return R.gather(whole, 2, index)
