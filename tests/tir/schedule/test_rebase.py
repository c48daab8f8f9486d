"""Parts of a sum measured from the parts of an earlier reduction: rebase."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir, topi

SIZE = 50


def parts(sch: Any, name: str, size: int) -> Any:
    part, _ = sch.split(sch.get_loops(name)[-1], [None, size])
    return sch.rfactor(part, factor_axis=len(sch.get_loops(name)) - 2)


def softmax_sum(rows: int = 2, size: int = SIZE, power: Any = te.exp, scale: float | None = None) -> Any:
    """The largest element M of each row, and the sum S of exp(x - M)."""
    x = te.placeholder((rows, size), name="x")
    k, j = te.reduce_axis((0, size), name="k"), te.reduce_axis((0, size), name="j")
    M = te.compute((rows,), lambda i: te.max(x[i, k], k), name="M")

    def term(i: Any) -> Any:
        away = x[i, j] - M[i]
        return power(away if scale is None else away * scale)

    return te.create_prim_func([x, te.compute((rows,), lambda i: te.sum(term(i), j), name="S")])


def variance(rows: int = 2, size: int = SIZE, square: Any = lambda d: d * d) -> Any:
    x = te.placeholder((rows, size), name="x")
    k, j = te.reduce_axis((0, size), name="k"), te.reduce_axis((0, size), name="j")
    M = te.compute((rows,), lambda i: te.sum(x[i, k], k), name="M")
    S = te.compute((rows,), lambda i: te.sum(square(x[i, j] - M[i] / float(size)), j), name="S")
    return te.create_prim_func([x, S])


def online(func: Any, size: int) -> Any:
    """Both reductions part by part, and each part read once."""
    sch = tir.Schedule(func, debug_mask="all")
    p, q = parts(sch, "M", size), parts(sch, "S", size)
    sch.rebase(q, p)
    sch.reverse_compute_at(q, sch.get_loops(p)[-2])
    return sch


def result(func_or_mod: Any, x: Any) -> Any:
    out = tvm.nd.empty((x.shape[0],))
    tvm.build(func_or_mod, target="llvm")(tvm.nd.array(x), out)
    return out.numpy()


# ---------------------------------------------------------------------------- expect
def test_a_part_waits_only_for_its_own(expect: Any) -> None:
    expect(
        online(softmax_sum(2, 8), 4).mod["main"],
        """
        @T.prim_func
        def main(x: T.Buffer((2, 8), "float32"), S: T.Buffer((2,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            M = T.alloc_buffer((2,))
            M_rf = T.alloc_buffer((2, 2))
            S_rf = T.alloc_buffer((2, 2))
            for i, k_0 in T.grid(2, 2):
                for k_1 in range(4):
                    with T.block("M_rf"):
                        vk_0, v_i, vk_1 = T.axis.remap("SSR", [k_0, i, k_1])
                        T.reads(x[v_i, vk_0 * 4 + vk_1])
                        T.writes(M_rf[v_i, vk_0])
                        with T.init():
                            M_rf[v_i, vk_0] = T.float32("-inf")
                        M_rf[v_i, vk_0] = T.max(M_rf[v_i, vk_0], x[v_i, vk_0 * 4 + vk_1])
                for ax2 in range(4):
                    with T.block("S_rf"):
                        vj_0, v_i, vj_1 = T.axis.remap("SSR", [k_0, i, ax2])
                        T.reads(x[v_i, vj_0 * 4 + vj_1], M_rf[v_i, vj_0])
                        T.writes(S_rf[v_i, vj_0])
                        with T.init():
                            S_rf[v_i, vj_0] = T.float32(0)
                        S_rf[v_i, vj_0] = S_rf[v_i, vj_0] + T.exp(x[v_i, vj_0 * 4 + vj_1] - T.max(M_rf[v_i, vj_0], T.float32(-3.4028234663852886e+38)))
            for i, k_0 in T.grid(2, 2):
                with T.block("M"):
                    v_i, vk_0 = T.axis.remap("SR", [i, k_0])
                    T.reads(M_rf[v_i, vk_0])
                    T.writes(M[v_i])
                    with T.init():
                        M[v_i] = T.float32("-inf")
                    M[v_i] = T.max(M[v_i], M_rf[v_i, vk_0])
            for i, j_0 in T.grid(2, 2):
                with T.block("S"):
                    v_i, vj_0 = T.axis.remap("SR", [i, j_0])
                    T.reads(S_rf[v_i, vj_0], M_rf[v_i, vj_0], M[v_i])
                    T.writes(S[v_i])
                    with T.init():
                        S[v_i] = T.float32(0)
                    S[v_i] = S[v_i] + S_rf[v_i, vj_0] * T.exp(T.max(M_rf[v_i, vj_0], T.float32(-3.4028234663852886e+38)) - M[v_i])
        """,
    )


def test_squares_are_measured_from_the_mean_of_their_part(expect: Any) -> None:
    expect(
        online(variance(2, 10), 4).mod["main"],
        """
        @T.prim_func
        def main(x: T.Buffer((2, 10), "float32"), S: T.Buffer((2,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            M = T.alloc_buffer((2,))
            M_rf = T.alloc_buffer((2, 3))
            S_rf = T.alloc_buffer((2, 3))
            for i, k_0 in T.grid(2, 3):
                for k_1 in range(4):
                    with T.block("M_rf"):
                        vk_0, v_i, vk_1 = T.axis.remap("SSR", [k_0, i, k_1])
                        T.reads(x[v_i, vk_0 * 4 + vk_1])
                        T.writes(M_rf[v_i, vk_0])
                        with T.init():
                            M_rf[v_i, vk_0] = T.float32(0)
                        if vk_0 * 4 + vk_1 < 10:
                            M_rf[v_i, vk_0] = M_rf[v_i, vk_0] + x[v_i, vk_0 * 4 + vk_1]
                for ax2 in range(4):
                    with T.block("S_rf"):
                        vj_0, v_i, vj_1 = T.axis.remap("SSR", [k_0, i, ax2])
                        T.reads(x[v_i, vj_0 * 4 + vj_1], M_rf[v_i, vj_0])
                        T.writes(S_rf[v_i, vj_0])
                        with T.init():
                            S_rf[v_i, vj_0] = T.float32(0)
                        if vj_0 * 4 + vj_1 < 10:
                            S_rf[v_i, vj_0] = S_rf[v_i, vj_0] + (x[v_i, vj_0 * 4 + vj_1] - M_rf[v_i, vj_0] / T.Cast("float32", T.min(4, 10 - vj_0 * 4))) * (x[v_i, vj_0 * 4 + vj_1] - M_rf[v_i, vj_0] / T.Cast("float32", T.min(4, 10 - vj_0 * 4)))
            for i, k_0 in T.grid(2, 3):
                with T.block("M"):
                    v_i, vk_0 = T.axis.remap("SR", [i, k_0])
                    T.reads(M_rf[v_i, vk_0])
                    T.writes(M[v_i])
                    with T.init():
                        M[v_i] = T.float32(0)
                    M[v_i] = M[v_i] + M_rf[v_i, vk_0]
            for i, j_0 in T.grid(2, 3):
                with T.block("S"):
                    v_i, vj_0 = T.axis.remap("SR", [i, j_0])
                    T.reads(S_rf[v_i, vj_0], M_rf[v_i, vj_0], M[v_i])
                    T.writes(S[v_i])
                    with T.init():
                        S[v_i] = T.float32(0)
                    S[v_i] = S[v_i] + (S_rf[v_i, vj_0] + T.Cast("float32", T.min(4, 10 - vj_0 * 4)) * ((M_rf[v_i, vj_0] / T.Cast("float32", T.min(4, 10 - vj_0 * 4)) - M[v_i] / T.float32(10)) * (M_rf[v_i, vj_0] / T.Cast("float32", T.min(4, 10 - vj_0 * 4)) - M[v_i] / T.float32(10))))
        """,
    )


# ---------------------------------------------------------------------------- meaning
@pytest.mark.parametrize("size", [1, 7, 10, 64])
@pytest.mark.parametrize("power", [te.exp, te.exp2, te.exp10], ids=["exp", "exp2", "exp10"])
def test_sums_of_exponentials(size: int, power: Any) -> None:
    x = np.random.default_rng(size).standard_normal((3, SIZE)).astype("float32") * 3
    func = softmax_sum(3, power=power)
    np.testing.assert_allclose(result(online(func, size).mod, x), result(func, x), rtol=2e-6)


def test_a_scaled_exponent() -> None:
    x = np.random.default_rng(0).standard_normal((3, SIZE)).astype("float32") * 9
    func = softmax_sum(3, scale=0.125)
    np.testing.assert_allclose(result(online(func, 8).mod, x), result(func, x), rtol=2e-6)


@pytest.mark.parametrize("square", [lambda d: d * d, lambda d: te.power(d, 2.0)], ids=["product", "power"])
@pytest.mark.parametrize("size", [1, 7, 10, 64])
def test_sums_of_squares(size: int, square: Any) -> None:
    x = np.random.default_rng(size).standard_normal((3, SIZE)).astype("float32") + 1000
    got = result(online(variance(3, square=square), size).mod, x)
    np.testing.assert_allclose(got, x.astype("float64").var(1) * SIZE, rtol=1e-4)


def test_masked_and_unbounded_rows_stay_what_they_are() -> None:
    """Parts of nothing but -inf count nothing; where the whole row is such, the sum is nan as it was before."""
    x = np.random.default_rng(0).standard_normal((6, SIZE)).astype("float32")
    x[0, :20], x[1, 3:] = -np.inf, -np.inf
    x[2] = -np.inf
    x[3, 17], x[4, 21] = np.inf, np.nan
    func = softmax_sum(6)
    got, want = result(online(func, 10).mod, x), result(func, x)
    np.testing.assert_allclose(got, want, rtol=2e-6)
    assert np.isfinite(got[:2]).all() and np.isnan(got[2:5]).all()


def test_of_a_softmax_whole() -> None:
    x = te.placeholder((4, 300), name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    sch = tir.Schedule(func, debug_mask="all")
    sch.compute_inline("T_softmax_exp")
    p, q = parts(sch, "T_softmax_maxelem", 64), parts(sch, "T_softmax_expsum", 64)
    sch.rebase(q, p)
    values, out = np.random.default_rng(0).standard_normal((4, 300)).astype("float32"), tvm.nd.empty((4, 300))
    tvm.build(sch.mod, target="llvm")(tvm.nd.array(values), out)
    want = np.exp(values - values.max(1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), want / want.sum(1, keepdims=True), rtol=1e-5)


def test_weighted_sums_keep_their_weights() -> None:
    """The numerator of attention: exp(s - M) times values."""
    s, v = te.placeholder((3, 40), name="s"), te.placeholder((40, 5), name="v")
    k, j = te.reduce_axis((0, 40), name="k"), te.reduce_axis((0, 40), name="j")
    M = te.compute((3,), lambda i: te.max(s[i, k], k), name="M")
    O = te.compute((3, 5), lambda i, d: te.sum(te.exp(s[i, j] - M[i]) * v[j, d], j), name="O")
    func = te.create_prim_func([s, v, O])
    sch = tir.Schedule(func, debug_mask="all")
    p = parts(sch, "M", 8)
    q = parts(sch, "O", 8)
    sch.rebase(q, p)
    rng = np.random.default_rng(0)
    scores, values = (rng.standard_normal(n).astype("float32") for n in ((3, 40), (40, 5)))
    out = tvm.nd.empty((3, 5))
    tvm.build(sch.mod, target="llvm")(tvm.nd.array(scores), tvm.nd.array(values), out)
    want = np.exp(scores - scores.max(1, keepdims=True)) @ values
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5)


def test_the_trace_rebuilds_it() -> None:
    sch = online(softmax_sum(), 8)
    again = tir.Schedule(softmax_sum())
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


# ---------------------------------------------------------------------------- refuse
def reason(sch: Any, *blocks: Any) -> str:
    before = sch.mod
    with pytest.raises(tir.ScheduleError) as told:
        sch.rebase(*blocks)
    assert sch.mod is before
    return str(told.value).splitlines()[0]


def test_parts_of_other_sizes() -> None:
    sch = tir.Schedule(softmax_sum())
    p, q = parts(sch, "M", 8), parts(sch, "S", 10)
    assert (
        reason(sch, q, p) == "rebase(S_rf, partial=M_rf): the parts of block S_rf are not those of block M_rf"
    )


def test_no_parts() -> None:
    sch = tir.Schedule(softmax_sum())
    p = parts(sch, "M", 8)
    assert (
        reason(sch, "S", p)
        == "rebase(S, partial=M_rf): block S makes no partial results that one block combines"
    )


def test_another_law() -> None:
    sch = tir.Schedule(softmax_sum(power=te.sin))
    p, q = parts(sch, "M", 8), parts(sch, "S", 8)
    assert reason(sch, q, p) == (
        "rebase(S_rf, partial=M_rf): `T.sin(x[v_i, vj_0 * 8 + vj_1] - M[v_i])` is not a product with exp(x - M), so there "
        "is no correcting it later"
    )


def test_other_values() -> None:
    x, y = te.placeholder((2, SIZE), name="x"), te.placeholder((2, SIZE), name="y")
    k, j = te.reduce_axis((0, SIZE), name="k"), te.reduce_axis((0, SIZE), name="j")
    M = te.compute((2,), lambda i: te.max(y[i, k], k), name="M")
    S = te.compute((2,), lambda i: te.sum(te.exp(x[i, j] - M[i]), j), name="S")
    sch = tir.Schedule(te.create_prim_func([x, y, S]))
    p, q = parts(sch, "M", 8), parts(sch, "S", 8)
    assert reason(sch, q, p) == (
        "rebase(S_rf, partial=M_rf): block S_rf is over `x[v_i, vj_0 * 8 + vj_1]`, and block M_rf over "
        "`y[v_i, vj_0 * 8 + vj_1]`"
    )


def test_a_sum_that_reads_another() -> None:
    x = te.placeholder((2, SIZE), name="x")
    k, j = te.reduce_axis((0, SIZE), name="k"), te.reduce_axis((0, SIZE), name="j")
    M = te.compute((2,), lambda i: te.max(x[i, k], k), name="M")
    S = te.compute((2,), lambda i: te.sum(x[i, j], j), name="S")
    out = te.compute((2,), lambda i: M[i] + S[i], name="out")
    sch = tir.Schedule(te.create_prim_func([x, out]))
    p, q = parts(sch, "M", 8), parts(sch, "S", 8)
    assert reason(sch, q, p) == (
        "rebase(S_rf, partial=M_rf): block S_rf does not read M, the result of the parts of block M_rf"
    )
