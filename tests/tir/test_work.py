"""Operations and bytes of programs, in their symbolic sizes."""

from __future__ import annotations

from typing import Any

from tilewright import te, topi
from tilewright.ir.expr import const_value
from tilewright.ir.functor import substitute
from tilewright.tir.analysis import estimate_tir_flops
from tilewright.tir.analysis.work import work_of


def _product(n: Any) -> list[Any]:
    A, B = te.placeholder((n, 32), name="A"), te.placeholder((32, 64), name="B")
    k = te.reduce_axis((0, 32), name="k")
    return [A, B, te.compute((n, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


def test_a_product() -> None:
    func = te.create_prim_func(_product(16))
    flops, nbytes = map(const_value, work_of(func) or ())
    assert flops == 2 * 16 * 64 * 32 == estimate_tir_flops(func)
    assert nbytes == 4 * (16 * 32 + 32 * 64 + 16 * 64)


def test_symbolic_sizes() -> None:
    from tilewright.arith import Analyzer

    n = te.var("n")
    work = work_of(te.create_prim_func(_product(n)))
    assert work is not None
    flops, nbytes = (
        const_value(Analyzer().simplify(substitute(each, {n: te.const(16, "int32")}))) for each in work
    )
    assert (flops, nbytes) == (2 * 16 * 64 * 32, 4 * (16 * 32 + 32 * 64 + 16 * 64))


def test_a_gather_reads_the_rows_that_it_returns() -> None:
    T, rows = te.placeholder((30000, 64), name="T"), te.placeholder((5,), "int32", name="rows")
    work = work_of(te.create_prim_func([T, rows, te.compute((5, 64), lambda i, j: T[rows[i], j])]))
    assert work is not None and const_value(work.nbytes) == 4 * (5 * 64 + 5 + 5 * 64)


def test_iterations_that_depend_on_data_are_not_counted() -> None:
    boxes, scores = te.placeholder((1, 8, 4), name="boxes"), te.placeholder((1, 1, 8), name="scores")
    made = topi.vision.all_class_non_max_suppression(boxes, scores, te.const(4, "int64"), 0.5, 0.1)
    found = work_of(te.create_prim_func([boxes, scores, *made]))
    assert found is None or const_value(found.flops) is not None
