"""A page that shows how a matrix product is scheduled: every step, the loops, and what they touch.

Open the file in a browser. The slider goes through the steps; the grids play the order in which the elements
of A, B and C are read and written, so that tiles, vectors and workers can be seen.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tilewright import te, tir


def blocked_matmul(n: int) -> tir.Schedule:
    """Tiles of 8 × 16 of C, the reduction in steps of 4, the rows on all cores, the columns as vectors."""
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    sch = tir.Schedule(te.create_prim_func([A, B, C]))

    i, j, k = sch.get_loops(sch.get_block("C"))
    i_outer, i_inner = sch.split(i, factors=[None, 8])
    j_outer, j_inner = sch.split(j, factors=[None, 16])
    k_outer, k_inner = sch.split(k, factors=[None, 4])
    sch.reorder(i_outer, j_outer, k_outer, k_inner, i_inner, j_inner)
    sch.vectorize(j_inner)
    sch.parallel(i_outer)
    return sch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=64, help="rows and columns of the matrices")
    parser.add_argument(
        "--out", type=Path, help="the file to write; a new one in the temporary folder if left out"
    )
    options = parser.parse_args()

    sch = blocked_matmul(options.size)
    sch.diff(step=-1)
    out = options.out or Path(tempfile.mkdtemp()) / "matmul.html"
    sch.to_html(out)
    print(f"\nthe report is in {out}")


if __name__ == "__main__":
    main()
