"""Products with sparse matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.contrib import sparse
from tilewright.ir.errors import TensorExpressionError

sp = pytest.importorskip("scipy.sparse")


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).random(shape, "float32")


def matrix(rows: int, columns: int, tall: int = 1, wide: int = 1) -> Any:
    """A random matrix of which every third block is not zero, as SciPy has it."""
    blocks = np.random.default_rng(rows).random((rows // tall, columns // wide)) < 0.34
    made = np.kron(blocks, np.ones((tall, wide))) * floats(rows, columns)
    made = made.astype("float32")
    return sp.csr_matrix(made) if tall == wide == 1 else sp.bsr_matrix(made, blocksize=(tall, wide))


def feed(made: Any) -> tuple[list[te.Tensor], dict[te.Tensor, Any]]:
    """Placeholders of (data, indices, indptr), and their values."""
    parts = {
        te.placeholder(a.shape, str(a.dtype), name): a
        for name, a in (("data", made.data), ("indices", made.indices), ("indptr", made.indptr))
    }
    return list(parts), parts


@pytest.mark.parametrize(("tall", "wide"), [(1, 1), (4, 1), (2, 3)])
def test_sparse_dense(check: Callable[..., None], tall: int, wide: int) -> None:
    weight, x = matrix(8, 6, tall, wide), floats(3, 6)
    parts, values = feed(weight)
    X = te.placeholder(x.shape, name="X")
    wanted = x @ weight.toarray().T
    outs = [topi.nn.sparse_dense(X, *parts), topi.nn.sparse_dense(X, *parts, sparse_lhs=True)]
    check(outs, {X: x, **values}, [wanted, wanted.T])


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_sparse_conv2d(check: Callable[..., None], layout: str) -> None:
    last = layout == "NHWC"
    x = floats(2, 3, 4, 5)
    small, large = matrix(4, 3), matrix(4, 27, 2, 1)
    (one, ones), (nine, nines) = feed(small), feed(large)
    w = large.toarray().reshape(4, 3, 3, 3)
    w = w.transpose(0, 3, 1, 2) if last else w
    wanted = [
        topi.testing.conv2d_nchw_python(x, small.toarray().reshape(4, 3, 1, 1), 1, 0),
        topi.testing.conv2d_nchw_python(x, w, 1, 1),
    ]
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x
    X = te.placeholder(given.shape, name="X")
    outs = [
        topi.nn.sparse_conv2d(X, *one, layout),
        topi.nn.sparse_conv2d(X, *nine, layout, kernel_size=3),
    ]
    check(outs, {X: given, **ones, **nines}, [e.transpose(0, 2, 3, 1) if last else e for e in wanted])


def test_transposes_and_sums(check: Callable[..., None]) -> None:
    square, x = matrix(6, 6), floats(6, 6)
    parts, values = feed(square)
    turned = sp.csr_matrix(square.toarray().T)
    check(topi.nn.sparse_transpose(*parts), values, [turned.data, turned.indices, turned.indptr])
    X = te.placeholder(x.shape, name="X")
    check(topi.nn.sparse_add(X, *parts), {X: x, **values}, x + square.toarray())


def test_placeholders_of_sparse_matrices() -> None:
    rows, count = te.var("rows"), te.var("count")
    A = sparse.placeholder((rows, 5), nonzeros=count, dtype="float32", name="A")
    B, C = te.placeholder((5, 2), name="B"), te.placeholder((2, 5), name="C")
    made, layer = topi.sparse.csrmm(A, B), topi.sparse.dense(A, C)
    f = tvm.build(
        te.create_schedule([made.op, layer.op]), [rows, A.data, A.indices, A.indptr, B, C, made, layer]
    )
    x, b, c = matrix(4, 5).toarray(), floats(5, 2), floats(2, 5)
    a = sparse.array(x)
    np.testing.assert_array_equal(a.numpy(), x)
    out = [tvm.nd.array(np.zeros((4, 2), "float32")) for _ in range(2)]
    f(4, a.data, a.indices, a.indptr, tvm.nd.array(b), tvm.nd.array(c), *out)
    np.testing.assert_allclose(out[0].numpy(), x @ b, 1e-5)
    np.testing.assert_allclose(out[1].numpy(), x @ c.T, 1e-5)


def test_what_is_no_sparse_matrix_is_refused() -> None:
    flat, whole = te.placeholder((4,)), te.placeholder((4,), "int32")
    X = te.placeholder((2, 4))
    with pytest.raises(TensorExpressionError, match=r"a list of numbers, or of blocks"):
        topi.nn.sparse_dense(X, te.placeholder((4, 2)), whole, whole)
    with pytest.raises(TensorExpressionError, match=r"NHWC or NCHW data and a kernel of 1 or 3"):
        topi.nn.sparse_conv2d(te.placeholder((1, 2, 2, 4)), flat, whole, whole, kernel_size=5)
    with pytest.raises(TensorExpressionError, match=r"one of data and weight must be sparse"):
        topi.sparse.dense(X, X)
    with pytest.raises(NotImplementedError, match=r"stype is 'coo'"):
        sparse.array(np.eye(2), stype="coo")
