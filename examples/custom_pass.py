"""A pass of one's own in the pipeline, and an instrument that watches all of them.

`tir.add_lower_pass` hooks a pass behind one of the phases 0 to 3; here behind phase 1, when storage is flat
and loops are still loops. The instrument counts the nodes of the program after each pass.
"""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import te, tir


@tir.transform.prim_func_pass(opt_level=0, name="doubling_as_addition")
def doubling_as_addition(
    func: tir.PrimFunc, mod: tvm.IRModule, ctx: tvm.transform.PassContext
) -> tir.PrimFunc:
    """Write `x * 2` as `x + x`.

    A[i] = B[i] * 2        ->        A[i] = B[i] + B[i]
    """

    def rewrite(n: tir.PrimExpr) -> tir.PrimExpr | None:
        if isinstance(n, tir.Mul) and isinstance(n.b, tir.FloatImm) and n.b.value == 2.0:
            return tir.Add(n.a, n.a)
        return None  # leave it as it is

    body = tir.stmt_functor.ir_transform(func.body, None, rewrite, ["tir.Mul"])
    return func.with_body(body)


@tvm.instrument.pass_instrument
class Sizes:
    """How many nodes the program has after each pass."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []

    def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        count = 0

        def see(node: object) -> None:
            nonlocal count
            count += 1

        for func in mod.functions.values():
            tir.stmt_functor.post_order_visit(func.body, see)
        self.rows.append((info.name, count))


def main() -> None:
    A = te.placeholder((100,), name="A")
    B = te.compute((100,), lambda i: A[i] * 2.0 + 1.0, name="B")
    s = te.create_schedule(B.op)
    _, lanes = s[B].split(B.op.axis[0], factor=16)
    s[B].vectorize(lanes)

    sizes = Sizes()
    with tvm.transform.PassContext(
        config={"tir.add_lower_pass": [(1, doubling_as_addition)]}, instruments=[sizes]
    ):
        print(tvm.lower(s, [A, B], simple_mode=True))
        sizes.rows.clear()
        function = tvm.build(s, [A, B], target="llvm")

    print("nodes in the program after each pass:")
    before = 0
    for name, count in sizes.rows:
        mark = "" if count == before else "  <-- changed"
        print(f"  {name:<45} {count:4}{mark}")
        before = count

    a, b = np.arange(100, dtype="float32"), np.empty(100, "float32")
    function(a, b)
    np.testing.assert_array_equal(b, a * 2 + 1)
    print("and it computes what it should")


if __name__ == "__main__":
    main()
