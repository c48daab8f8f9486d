"""FoldSizes: shapes computed from the sizes of inputs become attributes; what depends on values stays."""

from __future__ import annotations

from typing import Any

import tilewright as tvm
from tilewright import relay, te
from tilewright.relay.op import dyn

N, M = te.size_var("n"), te.size_var("m")


def folded(body: Any, *more: Any) -> Any:
    x = relay.var("x", shape=(N, M, 4))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, *more], body(x))))
    made = relay.transform.FoldSizes()(mod)
    return made if made is not mod else None


def expected(body: Any) -> Any:
    x = relay.var("x", shape=(N, M, 4))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body(x))))


def sizes(x: Any) -> Any:
    return relay.shape_of(x, dtype="int64")


def i64(*values: int) -> Any:
    return relay.const(values, "int64")


def test_reshape() -> None:
    def before(x: Any) -> Any:
        first = relay.take(sizes(x), relay.const(0)) * relay.take(sizes(x), relay.const(1))
        return relay.reshape(x, relay.stack([first, relay.const(4, "int64")], 0))

    tvm.ir.assert_structural_equal(
        folded(before), expected(lambda x: relay.reshape(x, [N * M, 4])), map_free_vars=True
    )


def test_what_is_found_lets_more_be_found() -> None:
    def before(x: Any) -> Any:
        y = relay.reshape(x, relay.concatenate([relay.strided_slice(sizes(x), [0], [1]), i64(-1)], 0))
        return relay.broadcast_to(relay.sum(y, 0, True), relay.shape_of(y))

    def after(x: Any) -> Any:
        y = relay.reshape(x, [N, -1])
        return relay.broadcast_to(relay.sum(y, 0, True), (N, M * 4))

    tvm.ir.assert_structural_equal(folded(before), expected(after), map_free_vars=True)


def test_created_tensors() -> None:
    def before(x: Any) -> Any:
        return relay.add(x, relay.zeros(sizes(x), "float32"))

    tvm.ir.assert_structural_equal(
        folded(before),
        expected(lambda x: relay.add(x, relay.zeros((N, M, 4), "float32"))),
        map_free_vars=True,
    )


def test_slices_only_where_they_lie_inside() -> None:
    def inside(x: Any) -> Any:
        return dyn.strided_slice(x, i64(0, 1), relay.strided_slice(sizes(x), [0], [2]), i64(1, 2))

    def outside(x: Any) -> Any:  # beyond the end, where the operator stops and an attribute must not
        return dyn.strided_slice(x, i64(0, 0), relay.strided_slice(sizes(x), [0], [2]) + i64(1, 0), i64(1, 1))

    want = expected(lambda x: relay.strided_slice(x, [0, 1], [N, M], [1, 2]))
    tvm.ir.assert_structural_equal(folded(inside), want, map_free_vars=True)
    assert folded(outside) is None


def test_values_stay() -> None:
    s = relay.var("s", shape=(2,), dtype="int64")
    assert folded(lambda x: relay.reshape(x, s), s) is None
    assert folded(lambda x: relay.exp(x)) is None
