"""Calling Python from compiled code: one stage is a NumPy function, and an error in it comes back whole."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import te, tir


@tvm.register_func("example.sort_rows")
def sort_rows(source: tvm.nd.NDArray, target: tvm.nd.NDArray) -> None:
    """What no loop nest of ours does well yet."""
    values = source.numpy()
    if np.isnan(values).any():
        raise ValueError("there is no order among numbers that are not numbers")
    target.copyfrom(np.sort(values, axis=1))


def main() -> None:
    n, m = 4, 6
    A = te.placeholder((n, m), name="A")
    squared = te.compute((n, m), lambda i, j: A[i, j] * A[i, j], name="squared")
    ordered = te.extern(
        (n, m),
        [squared],
        lambda ins, outs: tir.call_packed("example.sort_rows", ins[0], outs[0]),
        name="ordered",
        dtype="float32",
    )
    median = te.compute((n,), lambda i: (ordered[i, m // 2 - 1] + ordered[i, m // 2]) * 0.5, name="median")
    s = te.create_schedule(median.op)
    print(tvm.lower(s, [A, median], simple_mode=True))
    function = tvm.build(s, [A, median], target="llvm", name="median_of_squares")

    a = np.random.default_rng(0).normal(size=(n, m)).astype("float32")
    out = np.empty(n, "float32")
    function(a, out)
    np.testing.assert_allclose(out, np.median(a * a, axis=1), rtol=1e-6)
    print("the median of the squares of each row:", out.round(3))

    a[2, 2] = np.nan
    try:
        function(a, out)
    except ValueError as error:
        print(f"an error of the Python function, through the compiled code: ValueError: {error}")


if __name__ == "__main__":
    main()
