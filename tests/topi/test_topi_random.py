"""Random numbers."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.ir.errors import TensorExpressionError

FRESH = [0, 0, 0, 0, 0, 0, 0, 0, 1 << 63, 0]
ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
WORD = 2**64 - 1


def hashed(key: list[int], counter: list[int]) -> list[int]:
    """Threefry in Python's integers."""
    whole = [*key, 0x1BD11BDAA9FC1A22 ^ key[0] ^ key[1] ^ key[2] ^ key[3]]
    x = list(counter)
    for turn in range(20):
        if turn % 4 == 0:
            x = [(v + whole[(turn // 4 + j) % 5]) & WORD for j, v in enumerate(x)]
            x[3] = (x[3] + turn // 4) & WORD
        for p in (0, 2):
            by = ROTATIONS[turn % 8][p // 2]
            a, b = x[p], x[p + 1]
            x[p] = (a + b) & WORD
            x[p + 1] = x[p] ^ (((b << by) | (b >> (64 - by))) & WORD)
        x = [x[0], x[3], x[2], x[1]]
    return x


def run(outs: list[te.Tensor], gen: te.Tensor, state: list[int]) -> list[np.ndarray]:
    f = tvm.build(te.create_schedule([o.op for o in outs]), [gen, *outs])
    results = [np.zeros(topi.utils.get_const_tuple(o.shape), str(o.dtype)) for o in outs]
    arrays = [tvm.nd.array(r) for r in results]
    f(tvm.nd.array(np.array(state, "uint64")), *arrays)
    return [a.numpy() for a in arrays]


def generator() -> te.Tensor:
    return te.placeholder((10,), "uint64", "gen")


def test_words_are_those_of_threefry() -> None:
    gen = generator()
    state = [5, 6, 7, 2**64 - 8, *FRESH[4:]]
    after, words = run(topi.random.threefry_generate(gen, (2, 4)), gen, state)
    blocks = [hashed(state[:4], [i] * 4) for i in range(2)]
    np.testing.assert_array_equal(words, np.array(blocks, "uint64"))
    assert after.tolist() == [*state[:7], 8, *state[8:]]
    after, words = run(topi.random.threefry_generate(gen, (5,)), gen, state)
    assert words.tolist() == [*blocks[0], hashed(state[:4], [0, 0, 0, 4])[0]] and after[7] == 8


def test_a_counter_that_overflows_takes_another_path() -> None:
    gen = generator()
    state = [1, 2, 3, 4, 0, 0, 0, WORD - 1, 1 << 63, 0]
    after, _ = run(topi.random.threefry_generate(gen, (4,)), gen, state)
    assert after.tolist() == [1, 2, 3, 4, 1 << 63, 0, 0, 4, 1 << 62, 0]
    full = [*state[:8], 0, 0]
    after, _ = run(topi.random.threefry_generate(gen, (4,)), gen, full)
    assert after[:4].tolist() == hashed([1, 2, 3, 4], [WORD] * 4)


def test_splits_are_paths() -> None:
    gen = generator()
    left, right = run(topi.random.threefry_split(gen), gen, FRESH)
    assert left.tolist() == [0] * 8 + [1 << 62, 0] and right[4] == 1 << 63
    left, right = run(topi.random.threefry_split(gen), gen, [0] * 8 + [1, 0])
    assert left[8:].tolist() == [0, 1 << 63]


@pytest.mark.slow
def test_distributions() -> None:
    gen, n = generator(), 4096
    _, even = run(list(topi.random.uniform(gen, 5.0, 10.0, (n,), "float64")), gen, FRESH)
    assert even.min() >= 5 and even.max() < 10 and abs(even.mean() - 7.5) < 0.1
    _, bell = run(list(topi.random.normal(gen, 1.0, 2.0, (n,), "float32")), gen, FRESH)
    assert abs(bell.mean() - 1) < 0.15 and abs(bell.std() - 2) < 0.15
    odds = np.array([1, -3, 2, 1], "float32")
    key = relay.random.threefry_key(7)
    drawn = relay.TupleWrapper(relay.random.multinomial(key, relay.const(odds), n), 2)[1]
    found = relay.create_executor("graph", tvm.IRModule.from_expr(relay.Function([], drawn))).evaluate()()
    counts = np.bincount(found.numpy(), minlength=4) / n
    np.testing.assert_allclose(counts, [0.25, 0, 0.5, 0.25], atol=0.05)
    assert topi.random.threefry_test_wrapping("llvm", tvm.cpu())


def test_refusals() -> None:
    with pytest.raises(TensorExpressionError, match="ten words of uint64"):
        topi.random.threefry_split(te.placeholder((9,), "uint64"))
    with pytest.raises(TensorExpressionError, match="must be float32 or float64"):
        topi.random.uniform(generator(), 0, 1, (2,), "float16")
    with pytest.raises(relay.RelayTypeError, match="must be a generator"):
        relay.transform.infer_type(relay.random.threefry_split(relay.const(np.zeros(9, "uint64"))))
