"""Functions of libraries as operations of programs: products, random numbers, sorting, sparse matrices."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.contrib import cblas, mkl, random, sparse


def run(args, *arrays):
    held = [tvm.nd.array(a) for a in arrays]
    outputs = [t.op for t in args if isinstance(t, te.Tensor) and not isinstance(t.op, te.PlaceholderOp)]
    tvm.build(te.create_schedule(outputs), args, "llvm")(*held)
    return [a.numpy() for a in held]


@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("transb", [False, True])
def test_a_product_by_blas(transa, transb):
    rng = np.random.default_rng(0)
    a, b = rng.random((5, 4), "float32"), rng.random((4, 3), "float32")
    want = a @ b
    a, b = np.ascontiguousarray(a.T) if transa else a, np.ascontiguousarray(b.T) if transb else b
    A, B = te.placeholder(a.shape, name="A"), te.placeholder(b.shape, name="B")
    for library in (cblas, mkl):
        C = library.matmul(A, B, transa, transb)
        D = te.compute(C.shape, lambda i, j, C=C: C[i, j] + 1, name="D")
        *_, d = run([A, B, D], a, b, np.zeros((5, 3), "float32"))
        np.testing.assert_allclose(d, want + 1, rtol=1e-6)


def test_products_of_batches():
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 5, 4), "float32"), rng.random((2, 3, 4), "float32")
    A, B = te.placeholder(a.shape, name="A"), te.placeholder(b.shape, name="B")
    for iterative in (False, True):
        C = cblas.batch_matmul(A, B, transb=True, iterative=iterative)
        *_, c = run([A, B, C], a, b, np.zeros((2, 5, 3), "float32"))
        np.testing.assert_allclose(c, a @ b.swapaxes(1, 2), rtol=1e-6)


def test_a_product_of_bytes():
    a, b = np.full((2, 3), 200, "uint8"), np.full((3, 2), -100, "int8")
    A, B = te.placeholder(a.shape, "uint8", "A"), te.placeholder(b.shape, "int8", "B")
    C = mkl.matmul_u8s8s32(A, B)
    *_, c = run([A, B, C], a, b, np.zeros((2, 2), "int32"))
    np.testing.assert_array_equal(c, a.astype(int) @ b.astype(int))


def test_random_numbers():
    A = random.randint(-3, 4, (200,))
    B = random.uniform(2.0, 3.0, (200,))
    C = random.normal(5.0, 0.1, (200,))
    empty = np.zeros(200, "float32")
    random.seed(1)
    first = run([A, B, C], empty.astype("int32"), empty, empty)
    random.seed(1)
    second = run([A, B, C], empty.astype("int32"), empty, empty)
    for x, y in zip(first, second, strict=True):
        np.testing.assert_array_equal(x, y)
    a, b, c = first
    assert set(a) == set(range(-3, 4)) and b.min() >= 2 and b.max() < 3 and abs(c.mean() - 5) < 0.1
    with pytest.raises(ValueError, match="gives integers, not float32"):
        random.randint(0, 2, (4,), "float32")


@pytest.mark.parametrize("ascending", [True, False])
def test_sorting_keeps_the_order_of_equal_elements(ascending):
    x = np.array([[2, 1, 2, 1, 3]], "float32")
    X = te.placeholder(x.shape, name="X")
    I = te.extern(
        x.shape,
        [X],
        lambda ins, outs: tir.call_packed("tvm.contrib.sort.argsort", ins[0], outs[0], 1, ascending),
        dtype="int32",
    )
    _, i = run([X, I], x, np.zeros(x.shape, "int32"))
    assert i.tolist() == ([[1, 3, 0, 2, 4]] if ascending else [[4, 0, 2, 1, 3]])


def test_the_greatest_elements():
    x = np.array([[2.0, 5.0, 1.0, 4.0]], "float32")
    values, indices = tvm.nd.empty((1, 2)), tvm.nd.empty((1, 2), "int32")
    tvm.get_global_func("tvm.contrib.sort.topk")(tvm.nd.array(x), values, indices, 2, 1, "both", False)
    assert values.numpy().tolist() == [[5, 4]] and indices.numpy().tolist() == [[1, 3]]


def test_sparse_matrices():
    dense = np.array([[0, 2, 0], [0, 0, 0], [3, 0, 4]], "float32")
    made = sparse.array(dense)
    assert made.indptr.numpy().tolist() == [0, 1, 1, 3] and made.indices.numpy().tolist() == [1, 0, 2]
    np.testing.assert_array_equal(made.numpy(), dense)
    again = sparse.array((made.data, made.indices, made.indptr), shape=dense.shape)
    np.testing.assert_array_equal(again.numpy(), dense)
    held = sparse.placeholder((3, 3), nonzeros=3, name="A")
    assert held.stype == "csr" and [str(d) for d in held.indptr.shape] == ["4"]
    with pytest.raises(NotImplementedError, match="'coo'"):
        sparse.array(dense, stype="coo")


def test_a_function_of_a_library_is_found_by_its_name():
    assert tvm.get_global_func("tvm.contrib.cblas.matmul", allow_missing=True) is not None
    assert tvm.get_global_func("tvm.contrib.cblas.nothing", allow_missing=True) is None


# ---------------------------------------------------------------------------- traces
@pytest.fixture
def seen():
    values = []
    tvm.register_func("tests.watch", lambda *args: values.append(args), override=True)
    tvm.register_func("tests.change", lambda x: 2 * x, override=True)
    yield values
    for name in ("tests.watch", "tests.change"):
        tvm.runtime.remove_global_func(name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_trace_sees_values_and_may_change_them(seen, dtype):
    A = te.placeholder((3,), dtype, "A")
    B = te.compute((3,), lambda i: tir.trace([i, A[i]], "tests.watch") + te.trace([A[i]], "tests.change"))
    a = np.arange(3).astype(dtype)
    _, b = run([A, B], a, a * 0)
    np.testing.assert_array_equal(b, 3 * a)
    assert seen == [(0, 0), (1, 1), (2, 2)]


def test_a_trace_prints(capsys):
    A = te.placeholder((2,), "int32", "A")
    B = te.compute((2,), lambda i: tir.trace([i, A[i]]))
    run([A, B], np.array([7, 8], "int32"), np.zeros(2, "int32"))
    assert capsys.readouterr().out == "[0, 7]\n[1, 8]\n"
    with pytest.raises(ValueError, match="a list of expressions"):
        tir.trace([])


def test_sorting_a_part_of_each_row() -> None:
    f = tvm.get_global_func("tvm.contrib.sort.argsort_nms")
    data = np.array([[3, 1, 2, 0], [1, 2, 3, 4]], "float32")
    out = tvm.nd.empty((2, 4), "int32")
    f(tvm.nd.array(data), tvm.nd.array(np.array([3, 2], "int32")), out, 1, False)
    np.testing.assert_array_equal(out.numpy(), [[0, 2, 1, 3], [1, 0, 2, 3]])
