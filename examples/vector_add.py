"""Adding two vectors of any length: one definition, three schedules, one error message.

The length is a symbol, so one compiled function takes them all.
"""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import te


def main() -> None:
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")

    plain = te.create_schedule(C.op)

    vectors = te.create_schedule(C.op)
    _, lanes = vectors[C].split(C.op.axis[0], factor=16)
    vectors[C].vectorize(lanes)

    parts = te.create_schedule(C.op)
    outer, inner = parts[C].split(C.op.axis[0], factor=4096)
    _, lanes = parts[C].split(inner, factor=16)
    parts[C].parallel(outer)
    parts[C].vectorize(lanes)

    print("The loops of the second schedule. The tail stands apart, so full vectors ask no question:\n")
    print(tvm.lower(vectors, [A, B, C], simple_mode=True))

    rng = np.random.default_rng(0)
    size = 1_000_003  # a prime: no factor divides it
    a, b = (rng.random(size, dtype=np.float32) for _ in range(2))
    for name, s in (("plain", plain), ("vectors", vectors), ("vectors on all cores", parts)):
        add = tvm.build(s, [A, B, C], target="llvm", name="add")
        c = np.empty_like(a)
        add(a, b, c)
        np.testing.assert_array_equal(c, a + b)
        timer = add.time_evaluator("add", tvm.cpu(0), number=20, repeat=3)
        seconds = timer(a, b, c).median
        print(f"{name:<22} {seconds * 1e6:8.0f} µs   {3 * a.nbytes / seconds / 1e9:5.1f} GB/s")

    print("\nA call with vectors that do not fit is refused before any compiled code runs:\n")
    try:
        add(a, b[:-1], c)
    except ValueError as error:
        print(f"ValueError: {error}")


if __name__ == "__main__":
    main()
