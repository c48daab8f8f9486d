"""Attention in one walk over its rows: stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import te, tir, topi
from tilewright.ir.errors import ScheduleError
from tilewright.tir.interpret import interpret
from tilewright.tir.schedule.library.stream import ROLES


def attention(
    rows: int = 20, keys: int = 20, width: int = 8, heads: int = 2, shared: int = 1, **facts: Any
) -> Any:
    q = te.placeholder((1, heads, rows, width), "float16", name="q")
    k, v = (te.placeholder((1, heads // shared, keys, width), "float16", name=n) for n in "kv")
    return te.create_prim_func([q, k, v, topi.nn.scaled_dot_product_attention(q, k, v, **facts)])


def composed(rows: int = 8, keys: int = 24, width: int = 8, change: Any = None) -> Any:
    """The same of other operators: a product, softmax, a product."""
    q, k, v = (
        te.placeholder((2, n, width), "float16", name=x) for n, x in ((rows, "q"), (keys, "k"), (keys, "v"))
    )
    scores = topi.nn.batch_matmul(q, k, None, "float32")
    weights = topi.nn.softmax(change(scores) if change is not None else scores)
    return te.create_prim_func([q, k, v, topi.nn.batch_matmul(weights, v, None, "float32", False, False)])


# ---------------------------------------------------------------------------- expect
def test_the_scores_of_a_part_are_all_that_is_held() -> None:
    sch = tir.Schedule(attention(32, 32, 64))
    blocks = sch.stream("T_attention", 16, 8, 1, 4)
    assert [b.name for b in blocks] == [f"T_attention_{r}" for r in ROLES[:-1]] + ["T_attention"]
    loops = [x.name for x in sch.get_loops(blocks[ROLES.index("scores")])]
    assert loops == ["i0", "i1", "tile", "part", "i", "j", "e"]
    text = sch.mod["main"].script()
    assert (
        "T_attention_logits[v_i0, v_i1, v_i, v_j] * T.float32(0.18033688011112042) - T_attention_shift"
        in text
    )
    assert "T_attention_exp" not in text and "T.if_then_else" not in text


def test_a_step_of_the_walk(expect: Any) -> None:
    sch = tir.Schedule(attention(16, 16, 64))
    blocks = dict(zip(ROLES, sch.stream("T_attention", 16, 8), strict=True))
    for role in ROLES[:-1]:
        sch.set_scope(blocks[role], 0, "local")
    lines = [line.strip() for line in sch.mod["main"].script().splitlines()]
    made = [line for line in lines if " = " in line and "[v_i0, v_i1, v_i" in line.split(" = ")[0]]
    names = {"T_attention_": "", "[v_i0, v_i1, v_i, v_lane]": "", "v_i0, v_i1, ": "", "[v_i, v_lane]": ""}
    for old, new in names.items():
        made = [line.replace(old, new) for line in made]
    expect(
        "\n".join(made[3:-2]),
        """
        scores[v_i, v_j] = T.float32(0)
        scores[v_i, v_j] = scores[v_i, v_j] + T.Cast("float32", q[v_i, v_e]) * T.Cast("float32", k[v_j, v_e])
        logits[v_i, v_j] = scores[v_i, v_j]
        next_highest = highest
        next_highest = T.max(next_highest, logits[v_i, v_part * 8 + v_n])
        correction = T.fast_exp2((highest - next_highest) * T.float32(0.18033688011112042))
        shift = next_highest * T.float32(0.18033688011112042)
        weights[v_i, v_j] = T.fast_exp2(logits[v_i, v_j] * T.float32(0.18033688011112042) - shift[v_i, 0])
        next_total = total * correction
        next_total = next_total + weights[v_i, v_part * 8 + v_n]
        highest = next_highest
        total = next_total
        sum[v_i, v_d] = sum[v_i, v_d] * correction[v_i, 0]
        narrow[v_i, v_j] = T.Cast("float16", weights[v_i, v_j])
        sum[v_i, v_d] = sum[v_i, v_d] + T.Cast("float32", narrow[v_i, v_part * 8 + v_n]) * T.Cast("float32", v[v_part * 8 + v_n, v_d])
        share = T.float32(1) / total
        """,
    )


# ---------------------------------------------------------------------------- meaning
@pytest.mark.parametrize(
    ("sizes", "facts"),
    [
        ((9, 13, 8, 1), {}),
        ((8, 9, 8, 1), {"is_causal": True, "scale": 3.0}),  # too steep for one instruction
        pytest.param((17, 20, 8, 4, 2), {"window": 3}, marks=pytest.mark.slow),
    ],
)
def test_it_means_the_same(sizes: Any, facts: dict[str, Any]) -> None:
    sch = tir.Schedule(attention(*sizes, **facts))
    sch.stream("T_attention", 8, 4, 2, 4)
    assert sch.verify()


@pytest.mark.slow
def test_softmax_between_two_products() -> None:
    for change in (None, lambda s: topi.tanh(s) * 0.25 + 1.0, lambda s: s.astype("float16")):
        sch = tir.Schedule(composed(change=change))
        sch.stream("T_batch_matmul_NN", 8, 8)
        rng = np.random.default_rng(0)
        # numbers that float16 has more than enough digits for
        given = [rng.integers(-1, 2, (2, n, 8)).astype("float16") for n in (8, 24, 24)]
        want, got = (np.zeros((2, 8, 8), "float32") for _ in range(2))
        interpret(composed(change=change), *given, want)
        interpret(sch.mod["main"], *given, got)
        np.testing.assert_allclose(got, want, atol=2e-3)


def test_a_row_that_sees_nothing_is_zero() -> None:
    func = attention(12, 4, 8, window=(2, 0))  # the last queries are beyond all keys
    sch = tir.Schedule(func)
    sch.stream("T_attention", 4, 4)
    given = [np.ones((1, 2, n, 8), "float16") for n in (12, 4, 4)]
    out = np.full((1, 2, 12, 8), np.nan, "float16")
    interpret(sch.mod["main"], *given, out)
    assert (out[:, :, :6] == 1).all() and (out[:, :, 6:] == 0).all()


def test_the_step_is_recorded() -> None:
    sch = tir.Schedule(attention())
    sch.stream("T_attention", 8, 8)
    again = tir.Schedule(attention())
    sch.trace.apply_to_schedule(again)
    assert again.mod["main"].script() == sch.mod["main"].script()


# ---------------------------------------------------------------------------- refuse
def refused(func: Any, name: str) -> str:
    sch = tir.Schedule(func)
    before = sch.mod
    with pytest.raises(ScheduleError) as why:
        sch.stream(name)
    assert sch.mod is before
    return str(why.value).splitlines()[0]


def test_a_product_is_no_attention() -> None:
    A, B = (te.placeholder((8, 8), "float16", name=n) for n in "AB")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")
    why = refused(te.create_prim_func([A, B, C]), "C")
    assert why == "stream(C): block C is not attention: its weights are not exp(x - M) / T"


def test_weights_that_are_also_a_result_stay() -> None:
    q, k, v = (te.placeholder((2, 8, 8), "float16", name=n) for n in "qkv")
    weights = topi.nn.softmax(topi.nn.batch_matmul(q, k, None, "float32"))
    out = topi.nn.batch_matmul(weights, v, None, "float32", False, False)
    why = refused(te.create_prim_func([q, k, v, weights, out]), "T_batch_matmul_NN")
    assert why.endswith("is read elsewhere too")


@pytest.mark.parametrize(
    ("shift", "divisor", "reason"),
    [
        (2, 1, "the exponents are not measured from the largest of them"),
        (1, 2, "the weights are divided by another sum than their own"),
    ],
)
def test_another_softmax_is_refused(shift: int, divisor: int, reason: str) -> None:
    q, k, v = (te.placeholder((8, 8), "float16", name=n) for n in "qkv")
    S = topi.nn.matmul(q, k, None, "float32", transpose_b=True)
    M = topi.max(S * 2.0 if shift == 2 else S, axis=1)
    E = te.compute((8, 8), lambda i, j: te.exp(S[i, j] - M[i]), name="E")
    T = topi.sum(E * 2.0 if divisor == 2 else E, axis=1)
    W = te.compute((8, 8), lambda i, j: E[i, j] / T[i], name="W")
    out = topi.nn.matmul(W, v, None, "float32")
    assert refused(te.create_prim_func([q, k, v, out]), "T_matmul_NN").endswith(reason)


def test_operands_of_32_bits_are_refused() -> None:
    q, k, v = (te.placeholder((1, 2, 8, 8), "float32", name=n) for n in "qkv")
    out = topi.nn.scaled_dot_product_attention(q, k, v)
    why = refused(te.create_prim_func([q, k, v, out]), "T_attention")
    assert why.endswith("are not floats of 16 bits")
