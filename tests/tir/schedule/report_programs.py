"""The program whose schedules the tests of reports show."""

from __future__ import annotations

from tilewright import te, tir


def matmul(n: int, m: int | None = None, k: int | None = None) -> tir.Schedule:
    m, k = m or n, k or n
    A, B = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return tir.Schedule(te.create_prim_func([A, B, C]))
