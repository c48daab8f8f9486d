"""Threefry, a random number generator that counts: block i is a function of the key and of i.

A generator is ten words of 64 bits:

    0 to 3   the key
    4, 5     the path of splits that led to it, a bit each, from the top
    6, 7     the counter
    8, 9     the bit of the path that the next split sets; 0 where the path is full

Splitting sets a bit of the path or not; a full path is hashed into a new key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import te
from ...homes import home_of
from ...ir import ops
from ...ir.expr import PrimExpr
from ...tir import ir_builder
from ..broadcast import add, divide, maximum, multiply, subtract
from ..math import cast, log, sin, sqrt
from ..reduction import argmin, cumsum
from ..reduction import sum as _sum
from ..transform import expand_dims
from ..utils import extern, fail, get_const_tuple, injective, prod, shape_text, tensor_arg

# Of "Parallel Random Numbers: As Easy as 1, 2, 3" (Salmon and others, 2011), for four words.
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22
_ROUNDS = 20
_WORD = "uint64"
_LAST = 2**64 - 1


def _word(value: int) -> PrimExpr:
    return te.const(value, _WORD)


def _hashed(ib: Any, key: Sequence[PrimExpr], counter: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Four random words of a key and a counter of four words each."""
    whole = [*key, ib.let("parity", key[0] ^ key[1] ^ key[2] ^ key[3] ^ _word(_PARITY))]
    state = list(counter)
    for turn in range(_ROUNDS):
        if turn % 4 == 0:  # a part of the key goes in
            part = turn // 4
            state = [x + whole[(part + j) % 5] for j, x in enumerate(state)]
            state[3] = state[3] + _word(part)
        for pair in (0, 2):
            by = _ROTATIONS[turn % 8][pair // 2]
            a, b = ib.let("a", state[pair]), ib.let("b", state[pair + 1])
            x = ib.let("x", a + b)
            state[pair] = x
            state[pair + 1] = ib.let("y", x ^ ((b << _word(by)) | (b >> _word(64 - by))))
        state = [state[0], state[3], state[2], state[1]]
    return state


def _next_bit(bit: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The path bit one place down, from the first word into the second."""
    high, low = bit
    carried = ops.select(ops.equal(high, _word(1)), _word(1 << 63), _word(0))
    down = ops.select(ops.equal(high, _word(0)), low >> _word(1), carried)
    return [high >> _word(1), down]


def _is_full(gen: Any) -> PrimExpr:
    return ops.logical_and(ops.equal(gen[8], _word(0)), ops.equal(gen[9], _word(0)))


def _generator(what: str, gen: Any) -> te.Tensor:
    made = tensor_arg(what, "gen", gen)
    if made.dtype != _WORD or get_const_tuple(made.shape) != (10,):
        raise fail(
            what,
            f"gen is {shape_text(made.shape)} of {made.dtype} and must be ten words of uint64",
            "relay.random.threefry_key makes one",
        )
    return made


def _store(out: Any, words: Sequence[PrimExpr], first: int = 0) -> None:
    for i, word in enumerate(words, first):
        out[i] = word


def threefry_generate(gen: te.Tensor, out_shape: Any) -> list[te.Tensor]:
    """The generator after, and random words of 64 bits in that shape."""
    what = "random.threefry_generate"
    source = _generator(what, gen)
    shape = get_const_tuple(out_shape)
    count = prod(shape)
    if not isinstance(count, int):
        raise fail(what, f"out_shape is {shape_text(shape)} and must be known at compile time")
    blocks, rest = divmod(count, 4)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        old, new, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]), ib.buffer_ptr(outs[1])
        with ib.if_scope(old[7] < _word(_LAST - count)):
            _store(new, [old[i] for i in range(10)])
        with ib.else_scope():  # the counter would overflow: take a new path, or a new key if the path is full
            with ib.if_scope(_is_full(old)):
                top = [_word(_LAST)] * 4
                _store(new, _hashed(ib, [old[i] for i in range(4)], top))
                _store(new, [_word(0)] * 4 + [_word(1 << 63), _word(0)], 4)
            with ib.else_scope():
                _store(new, [old[i] for i in range(4)])
                _store(new, [old[4] | old[8], old[5] | old[9], _word(0), _word(0)], 4)
                _store(new, _next_bit([old[8], old[9]]), 8)
        with ib.for_range(0, blocks, "block", kind="parallel") as block:
            at = [new[4 + j] + ops.cast(_WORD, block) for j in range(4)]
            _store_block(out, block, _hashed(ib, [new[j] for j in range(4)], at), 4)
        if rest:
            at = [new[4], new[5], new[6], new[7] + _word(blocks * 4)]
            _store_block(out, blocks, _hashed(ib, [new[j] for j in range(4)], at), rest)
        new[6] = _word(0)
        new[7] = new[7] + _word(blocks * 4 + (4 if rest else 0))
        return ib.get()

    new, words = extern("threefry_generate", [(10,), (max(count, 1),)], [source], build, [_WORD, _WORD])
    flat = injective("threefry_words", shape, lambda *at: words(_place(at, shape)))
    return [new, flat]


def _store_block(out: Any, block: Any, words: Sequence[PrimExpr], count: int) -> None:
    for j in range(count):
        out[block * 4 + j] = words[j]


def _place(at: Sequence[Any], shape: Sequence[int]) -> Any:
    place: Any = 0
    for i, n in zip(at, shape, strict=True):
        place = place * n + i
    return place


def threefry_split(gen: te.Tensor) -> list[te.Tensor]:
    """Two generators whose numbers have nothing to do with each other; do not use the first one again."""
    source = _generator("random.threefry_split", gen)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        old, left, right = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0]), ib.buffer_ptr(outs[1])
        with ib.if_scope(_is_full(old)):
            key = _hashed(ib, [old[i] for i in range(4)], [old[i] for i in range(4, 8)])
            for out, path in ((left, 0), (right, 1 << 63)):
                _store(out, key)
                _store(out, [_word(w) for w in (path, 0, 0, 0, 1 << 62, 0)], 4)
        with ib.else_scope():
            bit = [old[8], old[9]]
            for out in (left, right):
                _store(out, [old[i] for i in range(8)])
                _store(out, _next_bit(bit), 8)
            _store(right, [old[4] | old[8], old[5] | old[9]], 4)
        return ib.get()

    return extern("threefry_split", [(10,), (10,)], [source], build, [_WORD, _WORD])


def threefry_test_wrapping(target: Any, device: Any) -> bool:
    """Whether words wrap around on a target, as the generator needs."""
    one = te.placeholder((1,), _WORD, "one")
    made = te.compute((1,), lambda i: one(i) + _word(_LAST), "sum")
    s = te.create_schedule(made.op)
    if home_of("targets").Target(target).is_gpu:
        s[made].bind(made.op.axis[0], te.thread_axis("threadIdx.x"))
    array = home_of("arrays").array
    import numpy as np

    given, out = (array(np.ones(1, _WORD), device) for _ in range(2))
    home_of("compiler").build(s, [one, made], target)(given, out)
    return bool(out.numpy()[0] == 0)


def uniform(
    gen: te.Tensor, low: Any, high: Any, out_shape: Any, out_dtype: str
) -> tuple[te.Tensor, te.Tensor]:
    """The generator after, and numbers from `low` (inclusive) to `high` (exclusive), all equally likely."""
    layout = {"float32": ("uint32", 23, 127, 9), "float64": ("uint64", 52, 1023, 12)}.get(str(out_dtype))
    if layout is None:
        raise fail("random.uniform", f"out_dtype is {out_dtype} and must be float32 or float64")
    kind, fraction, bias, shift = layout
    new, words = threefry_generate(gen, out_shape)

    def element(*at: Any) -> PrimExpr:
        # random bits behind the point of a number from 1 to 2
        bits = ops.cast(kind, words(*at)) >> te.const(shift, kind)
        return ops.reinterpret(out_dtype, bits | te.const(bias << fraction, kind)) - te.const(1, out_dtype)

    unit = injective("random_unit", words.shape, element)
    return new, add(multiply(unit, subtract(high, low)), low)


def normal(
    gen: te.Tensor, mean: Any, scale: Any, out_shape: Any, out_dtype: str
) -> tuple[te.Tensor, te.Tensor]:
    """The generator after, and numbers around `mean` with the standard deviation `scale` (Box and Muller)."""
    shape = tuple(get_const_tuple(out_shape))
    new, pairs = uniform(gen, te.const(0.0, out_dtype), te.const(1.0, out_dtype), (2, *shape), out_dtype)
    first = injective("random_first", shape, lambda *at: te.const(1, out_dtype) - pairs(0, *at))
    second = injective("random_second", shape, lambda *at: pairs(1, *at))
    length = sqrt(multiply(log(first), te.const(-2.0, out_dtype)))
    wave = sin(multiply(second, te.const(2 * math.pi, out_dtype)))
    return new, add(multiply(multiply(length, wave), scale), mean)


def multinomial(gen: te.Tensor, probs: te.Tensor, num_samples: int) -> tuple[te.Tensor, te.Tensor]:
    """The generator after, and indices of the last axis, each as likely as its share of `probs`; below 0 is never."""
    likely = maximum(
        cast(tensor_arg("random.multinomial", "probs", probs), "float32"), te.const(0.0, "float32")
    )
    share = divide(likely, expand_dims(_sum(likely, axis=-1), -1))
    upto = cumsum(share, axis=-1)
    shape = (*share.shape[:-1], num_samples)
    new, drawn = uniform(gen, te.const(0.0, "float32"), te.const(1.0, "float32"), shape, "float32")
    far = subtract(expand_dims(upto, -1), expand_dims(drawn, -2))
    zero, one = te.const(0.0, "float32"), te.const(1.0, "float32")
    near = injective("random_near", far.shape, lambda *at: ops.select(far(*at) > zero, far(*at), one))
    return new, argmin(near, axis=-2)
