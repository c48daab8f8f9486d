"""The tensor-expression programs of the seed documents, with only their import line changed.

Each runs through the reference interpreter and, through the plain schedule and `tvm.build`, as machine
code. A test's name says what the program is; its docstring names the document.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.ir.functor import pre_order
from tilewright.ir.module import IRModule
from tilewright.ir.stmt import Block
from tilewright.tir.interpret import InterpreterError, interpret

Call = Callable[..., np.ndarray]


def _interpreted(args: list[Any], arrays: list[np.ndarray]) -> np.ndarray:
    interpret(te.create_prim_func(args), *arrays, check_regions=True)
    return arrays[-1]


def _built(args: list[Any], arrays: list[np.ndarray]) -> np.ndarray:
    s = te.create_schedule(args[-1].op)
    func = tvm.build(s, args, target="llvm", name="program")
    held = [tvm.nd.array(a) for a in arrays]
    func(*held)
    return held[-1].numpy()


@pytest.fixture(params=["interpreted", "built"])
def call(request: pytest.FixtureRequest) -> Call:
    """Runs a program on arrays; the last argument is its output, of which the shape is given."""
    if request.param == "built" and importlib.util.find_spec("tilewright.driver") is None:
        pytest.skip("there is no driver yet")
    how = _built if request.param == "built" else _interpreted

    def run(args: list[Any], *values: Any) -> np.ndarray:
        *inputs, shape = values
        return how(args, [*inputs, np.zeros(shape, str(args[-1].dtype))])

    return run


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------------------- vector addition
def test_elementwise_addition(call: Call) -> None:
    """000_c94b23ed02cfc284: Core Concepts, 1. Tensor Expressions."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    a, b = floats(1024), floats(1024)[::-1].copy()
    assert np.array_equal(call([A, B, C], a, b, (1024,)), a + b)


def test_vector_add_over_the_shape_of_an_input(call: Call) -> None:
    """004_eb1758ed1c90b5cf: Flow, 1. Describe the computation."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    assert type(C) is te.tensor.Tensor
    a, b = floats(65), floats(65) * 3
    assert np.array_equal(call([A, B, C], a, b, (65,)), a + b)


# ---------------------------------------------------------------------------- element by element
def test_elementwise_product_of_matrices(call: Call) -> None:
    """003_6d17afb3b306fbc9: TE."""
    m = te.var("m")
    n = te.var("n")
    a = te.placeholder((m, n), name="A")
    b = te.placeholder((m, n), name="B")
    c = te.compute((m, n), lambda i, j: a[i, j] * b[i, j], name="C")
    x, y = floats(7, 13), floats(7, 13) + 1
    assert np.array_equal(call([a, b, c], x, y, (7, 13)), x * y)


def test_plus_one_of_eight_elements(call: Call) -> None:
    """003_6d17afb3b306fbc9: Demo for IRModule transform."""
    A = te.placeholder((8,), dtype="float32", name="A")
    B = te.compute((8,), lambda *i: A(*i) + 1.0, name="B")
    a = floats(8)
    assert np.array_equal(call([A, B], a, (8,)), a + 1)


def test_plus_one_as_a_module() -> None:
    """003_6d17afb3b306fbc9: Demo for IRModule transform, the script (in today's form of it)."""
    A = te.placeholder((8,), dtype="float32", name="A")
    B = te.compute((8,), lambda *i: A(*i) + 1.0, name="B")
    func = te.create_prim_func([A, B])
    ir_module = IRModule({"main": func})
    lines = [line.strip() for line in ir_module.script().splitlines()]
    start = lines.index('def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):')
    assert lines[start + 1 :] == [
        'T.func_attr({"tir.noalias": T.bool(True)})',
        '# with T.block("root"):',
        "for i0 in range(8):",
        'with T.block("B"):',
        "v_i0 = T.axis.spatial(8, i0)",
        "T.reads(A[v_i0])",
        "T.writes(B[v_i0])",
        "B[v_i0] = A[v_i0] + T.float32(1)",
    ]
    assert func.attrs["global_symbol"] == "main"


def test_elementwise_sum_of_matrices(call: Call) -> None:
    """001_1e32228900fa6a2d: 2.3 Operations Supported, Element-wise."""
    m, n = te.var("m"), te.var("n")
    A, B = te.placeholder((m, n), name="A"), te.placeholder((m, n), name="B")
    C = te.compute((m, n), lambda i, j: A[i, j] + B[i, j])
    a, b = floats(5, 3), floats(5, 3) * 2
    assert np.array_equal(call([A, B, C], a, b, (5, 3)), a + b)


# ---------------------------------------------------------------------------- reductions
def test_sum_of_rows(call: Call) -> None:
    """003_6d17afb3b306fbc9: TOPI, origin; 001_1e32228900fa6a2d: 2.3 Operations Supported, Reduction."""
    n = te.var("n")
    m = te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    a = floats(6, 17)
    np.testing.assert_allclose(call([A, B], a, (6,)), a.sum(1), rtol=1e-4, atol=1e-5)


def matmul(M: int, N: int, K: int) -> list[te.Tensor]:
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))
    return [A, B, C]


def test_matmul(call: Call) -> None:
    """000_c94b23ed02cfc284: AutoScheduler, the workload; 002_d39a76ab4d320c7f: Phase 1."""
    a, b = floats(12, 10), floats(10, 9)
    np.testing.assert_allclose(call(matmul(12, 9, 10), a, b, (12, 9)), a @ b, rtol=1e-4, atol=1e-5)


def test_matmul_of_the_paper(call: Call) -> None:
    """001_1e32228900fa6a2d: 2.1 Core Concept.

    The document indexes A[k, y] of a tensor declared (m, h), which stays inside it for square matrices.
    """
    t = te
    m, n, h = t.var("m"), t.var("n"), t.var("h")
    A = t.placeholder((m, h), name="A")
    B = t.placeholder((n, h), name="B")
    k = t.reduce_axis((0, h), name="k")
    C = t.compute((m, n), lambda y, x: t.sum(A[k, y] * B[k, x], axis=k))
    a, b = floats(9, 9), floats(9, 9) + 1
    np.testing.assert_allclose(call([A, B, C], a, b, (9, 9)), a.T @ b, rtol=1e-4, atol=1e-5)


def test_the_behaviour_of_an_8x8_gemm_instruction(call: Call) -> None:
    """001_1e32228900fa6a2d: 3.2, Tensorization: the declaration without its lowering rule."""
    t = te
    w, x = t.placeholder((8, 8)), t.placeholder((8, 8))
    k = t.reduce_axis((0, 8))
    y = t.compute((8, 8), lambda i, j: t.sum(w[i, k] * x[j, k], axis=k))
    a, b = floats(8, 8), floats(8, 8) - 1
    np.testing.assert_allclose(call([w, x, y], a, b, (8, 8)), a @ b.T, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------- stencils
def test_stencil_as_written_reads_outside() -> None:
    """001_1e32228900fa6a2d: 2.3 Operations Supported, Stencil: the edges are the program's affair."""
    m, n = te.var("m"), te.var("n")
    A = te.placeholder((m, n), name="A")
    B = te.compute((m, n), lambda i, j: A[i - 1, j] + A[i, j] + A[i + 1, j])
    func = te.create_prim_func([A, B])
    (read,) = [n.reads[0] for n in pre_order(func.body) if isinstance(n, Block) and n.reads]
    assert [str(r.min) for r in read.region] == ["v_i - 1", "v_j"]
    assert [int(r.extent) for r in read.region] == [3, 1]
    with pytest.raises(InterpreterError):
        interpret(func, floats(4, 3), np.zeros((4, 3), np.float32))


def test_stencil_with_zeros_around(call: Call) -> None:
    """001_1e32228900fa6a2d: 2.3 Operations Supported, Stencil, of a tensor that is zero outside."""
    m, n = te.var("m"), te.var("n")
    A = te.placeholder((m, n), name="A")
    P = te.compute(
        (m + 2, n),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < m + 1), A[i - 1, j], 0.0),
        name="P",
    )
    B = te.compute((m, n), lambda i, j: P[i, j] + P[i + 1, j] + P[i + 2, j], name="B")
    a = floats(6, 4)
    padded = np.pad(a, ((1, 1), (0, 0)))
    assert np.array_equal(call([A, B], a, (6, 4)), padded[:-2] + padded[1:-1] + padded[2:])


# ---------------------------------------------------------------------------- what the documents say of te
def test_math_functions_are_those_of_tir() -> None:
    """003_6d17afb3b306fbc9: Relay v.s. TE: te.sqrt is an alias of tir.sqrt."""
    assert te.sqrt is tvm.tir.sqrt
