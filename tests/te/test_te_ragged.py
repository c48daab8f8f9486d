"""Reductions whose range depends on the point: rows of sparse matrices, runs of an embedding, triangles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import ScheduleError

FEATURES = 32


def sparse_times_dense() -> tuple[te.Tensor, list[te.Tensor]]:
    """Y = a sparse matrix (P, I, D) times X."""
    n, entries = te.size_var("n"), te.size_var("entries")
    X = te.placeholder((n, FEATURES), name="X")
    D, I = te.placeholder((entries,), name="D"), te.placeholder((entries,), "int32", name="I")
    P = te.placeholder((n + 1,), "int32", name="P")

    def row(i: Any, j: Any) -> Any:
        k = te.reduce_axis((P[i], P[i + 1]), "k")
        return te.sum(D[k] * X[I[k], j], axis=k)

    Y = te.compute((n, FEATURES), row, name="Y")
    return Y, [P, I, D, X, Y]


def agrees(made: Any) -> None:
    """Compare with NumPy, with empty rows first, in the middle and last."""
    rng = np.random.default_rng(1)
    lengths = np.array([0, 3, 1, 0, 5, 2, 0])
    P = np.concatenate([[0], np.cumsum(lengths)]).astype("int32")
    n, entries = len(lengths), int(P[-1])
    I, D = rng.integers(0, n, entries).astype("int32"), rng.random(entries, dtype="float32")
    X = rng.random((n, FEATURES), dtype="float32")
    wanted = np.zeros((n, FEATURES), "float32")
    for r in range(n):
        for k in range(P[r], P[r + 1]):
            wanted[r] += D[k] * X[I[k]]
    out = tvm.nd.array(np.full((n, FEATURES), np.nan, "float32"))
    made(*map(tvm.nd.array, (P, I, D, X)), out)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5)


def test_rows_of_a_sparse_matrix(expect: Any) -> None:
    Y, args = sparse_times_dense()
    assert [t.op.name for t in Y.op.input_tensors] == ["D", "X", "I", "P"]
    func = te.create_prim_func(args)
    expect(
        func,
        """
        @T.prim_func
        def main(var_P: T.handle, var_I: T.handle, var_D: T.handle, var_X: T.handle, var_Y: T.handle):
            T.func_attr({"tir.noalias": T.bool(True)})
            n = T.int32(is_size_var=True)
            P = T.match_buffer(var_P, (n + 1,), "int32")
            entries = T.int32(is_size_var=True)
            I_1 = T.match_buffer(var_I, (entries,), "int32")
            D = T.match_buffer(var_D, (entries,))
            X = T.match_buffer(var_X, (n, 32))
            Y = T.match_buffer(var_Y, (n, 32))
            # with T.block("root"):
            for i, j in T.grid(n, 32):
                with T.block("Y"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    T.reads(D[0:entries], X[0:n, v_j], I_1[0:entries], P[v_i:v_i + 2])
                    T.writes(Y[v_i, v_j])
                    Y[v_i, v_j] = T.float32(0)
                    for k in T.serial(P[v_i], P[v_i] + (P[v_i + 1] - P[v_i])):
                        Y[v_i, v_j] = Y[v_i, v_j] + D[k] * X[I_1[k], v_j]
        """,
    )
    agrees(tvm.build(te.create_schedule(Y.op), args, "llvm"))


@pytest.mark.slow
def test_a_schedule_is_found() -> None:
    _, args = sparse_times_dense()
    agrees(tvm.build(te.create_prim_func(args), target="llvm"))


def test_the_other_axes_are_scheduled() -> None:
    """Lanes of a vector may be ordered inside of the reduction, as programs for sparse matrices do."""
    Y, args = sparse_times_dense()
    s = te.create_schedule(Y.op)
    (i, j), (k,) = s[Y].op.axis, s[Y].op.reduce_axis
    outer, inner = s[Y].split(j, 16)
    s[Y].reorder(i, outer, k, inner)
    s[Y].vectorize(inner)
    s[Y].parallel(i)
    text = str(tvm.lower(s, args))
    assert "T.parallel(n)" in text and "if " not in text
    assert text.index("T.Broadcast(T.float32(0), 16)") < text.index("for k in ")
    agrees(tvm.build(s, args, "llvm"))


def test_in_threads() -> None:
    Y, args = sparse_times_dense()
    s = te.create_schedule(Y.op)
    (i, j), (k,) = s[Y].op.axis, s[Y].op.reduce_axis
    s[Y].reorder(i, k, j)
    s[Y].bind(i, te.thread_axis("blockIdx.x"))
    s[Y].bind(j, te.thread_axis("threadIdx.x"))
    source = tvm.build(s, args, "cuda").imported_modules[0].get_source()
    assert "for (" in source and "blockIdx.x" in source


def test_a_cache_and_a_producer() -> None:
    Y, args = sparse_times_dense()
    Z = te.compute(Y.shape, lambda i, j: Y[i, j] + 0.0, name="Z")
    s = te.create_schedule(Z.op)
    cached = s.cache_write(Y, "local")
    s[cached].compute_at(s[Y], s[Y].op.axis[0])
    s[Y].compute_at(s[Z], s[Z].op.axis[0])
    agrees(tvm.build(s, [*args[:-1], Z], "llvm"))


def test_an_axis_behind_one_that_varies() -> None:
    """A range that depends on another axis of the reduction, and one behind it that does not vary."""
    L, A = te.placeholder((5,), "int32", name="L"), te.placeholder((5, 6, 3), name="A")
    e = te.reduce_axis((0, 2), "e")

    def rows(i: Any) -> Any:
        k = te.reduce_axis((0, L[i] + e.var), "k")
        m = te.reduce_axis((0, 3), "m")
        return te.sum(A[i, k, m], axis=[e, k, m])

    B = te.compute((5,), rows, name="B")
    assert [iv.var.name for iv in B.op.inner_axis] == ["k", "m"]
    lengths = np.array([0, 5, 2, 1, 4], "int32")
    a = np.random.default_rng(2).random((5, 6, 3), dtype="float32")
    out = tvm.nd.array(np.full(5, np.nan, "float32"))
    tvm.build(te.create_schedule(B.op), [L, A, B], "llvm")(tvm.nd.array(lengths), tvm.nd.array(a), out)
    wanted = [sum(a[i, : n + e].sum() for e in range(2)) for i, n in enumerate(lengths)]
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5)


def test_what_is_refused() -> None:
    Y, args = sparse_times_dense()
    s = te.create_schedule(Y.op)
    (i, j), (k,) = s[Y].op.axis, s[Y].op.reduce_axis
    with pytest.raises(
        ScheduleError, match=r"s\[Y\].split: the range of reduction axis `k` depends on the point"
    ):
        s[Y].split(k, 4)
    with pytest.raises(ScheduleError, match=r"s\[Y\].rfactor: the range of reduction axis `k` depends"):
        s.rfactor(Y, k)
    s[Y].reorder(i, k, j)
    with pytest.raises(
        ScheduleError, match="axis `j` stands inside of `k`, whose range depends on the point"
    ) as bad:
        tvm.lower(s, args)
    assert "test_te_ragged.py" in str(bad.value)
    with pytest.raises(tvm.error.TVMError, match="the range of its reduction axis `k` depends on the point"):
        te.gradient(Y, [args[3]])
