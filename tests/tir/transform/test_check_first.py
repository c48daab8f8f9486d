"""The data of stores that follow each other is checked before the first of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.error import OutOfBoundsError
from tilewright.ir import PrimFunc, decl_buffer, ops
from tilewright.ir.expr import LE, Broadcast, BufferLoad, Call, Cast, Ramp, StringImm, const
from tilewright.ir.functor import pre_order
from tilewright.ir.op import Op
from tilewright.ir.stmt import BufferStore, LetStmt, SeqStmt, Stmt
from tilewright.tir.transform.check_first import check_first

A, B = decl_buffer((64,), "float32", "A"), decl_buffer((64,), "float32", "B")
I = decl_buffer((64,), "int32", "I")


def _lanes(first: int, lanes: int = 8) -> Any:
    return Ramp(const(first), const(1), lanes) if lanes > 1 else const(first)


def _place(first: int, lanes: int = 8, of: Any = I) -> Any:
    """Indices from a buffer, checked."""
    index = BufferLoad(of, [_lanes(first, lanes)])
    if of is not I:
        index = Cast(f"int32x{lanes}", index)
    high = Broadcast(const(63), lanes) if lanes > 1 else const(63)
    numbers = [Cast("int64" if lanes == 1 else f"int64x{lanes}", v) for v in (index, high)]
    args = (index, LE(index, high), StringImm("index"), StringImm("rows: index {} is above {}"), *numbers)
    return Call(index.dtype, Op.get("tir.checked"), args)


def _store(first: int, lanes: int = 8, value: Any = None) -> BufferStore:
    read = BufferLoad(B, [_place(first, lanes)]) if value is None else value
    return BufferStore(A, read, [_lanes(first, lanes)])


def _made(*stores: Stmt) -> tuple[PrimFunc, PrimFunc]:
    func = PrimFunc([A.data, B.data, I.data], SeqStmt(stores))
    return func, check_first(func)


def _checks(body: Any) -> int:
    return sum(isinstance(m, Call) and m.op.short_name == "checked" for m in pre_order(body))


def test_vectors_are_checked_before_the_first_store() -> None:
    _, made = _made(_store(0), _store(8), _store(16))
    body, names = made.body, []
    while isinstance(body, LetStmt):
        assert _checks(body.value) == 1
        names.append(body.var)
        body = body.body
    assert isinstance(body, SeqStmt) and _checks(body) == 0
    assert [s.value.indices[0] for s in body.seq] == names


def test_what_has_nothing_to_move_stays_as_it_is() -> None:
    for stores in (
        [_store(0, 1), _store(1, 1)],  # a scalar: its branch is its own
        [BufferStore(A, BufferLoad(B, [_lanes(0)]), [_lanes(0)])] * 2,
    ):
        func, made = _made(*stores)
        assert made is func


def test_data_that_a_store_may_change_stays_behind_it() -> None:
    own = BufferLoad(B, [_place(8, of=A)])
    _, made = _made(_store(0), BufferStore(A, own, [_lanes(8)]))
    assert isinstance(made.body, LetStmt) and isinstance(made.body.body, SeqStmt)
    assert [_checks(s.value) for s in made.body.body.seq] == [0, 1]


def test_data_under_a_condition_stays_there() -> None:
    zero = Broadcast(const(0, "float32"), 8)
    held = ops.if_then_else(ops.less(BufferLoad(I, [const(0)]), 9), BufferLoad(B, [_place(8)]), zero)
    _, made = _made(_store(0), _store(8, value=held))
    assert isinstance(made.body, LetStmt) and isinstance(made.body.body, SeqStmt)
    assert [_checks(s.value) for s in made.body.body.seq] == [0, 1]


def gathered(kind: str, lanes: int, several: int, target: str = "llvm") -> Any:
    """A gather of 96 of 100 elements, `several` vectors in a turn."""
    X, J = te.placeholder((100,), "float32", "X"), te.placeholder((96,), kind, "J")
    inside = topi.checks.check_each(J, "index", [100], "rows")
    Y = te.compute((96,), lambda i: X[tvm.tir.Cast("int32", inside[i])], "Y")
    s = te.create_schedule(Y.op)
    s[inside].compute_inline()
    outer, lane = s[Y].split(Y.op.axis[0], lanes)
    _, turn = s[Y].split(outer, several)
    s[Y].unroll(turn)
    s[Y].vectorize(lane)
    return tvm.build(s, [X, J, Y], target)


@pytest.mark.parametrize("kind", ["int8", "int32", "int64"])
@pytest.mark.parametrize(("lanes", "several"), [(4, 1), (8, 2), (8, 3), (16, 2)])
def test_the_first_index_outside_is_told(kind: str, lanes: int, several: int) -> None:
    f, rng = gathered(kind, lanes, several), np.random.default_rng(0)
    x, out = rng.standard_normal(100).astype("float32"), tvm.nd.empty((96,), "float32")
    good = rng.integers(-100, 100, 96).astype(kind)
    f(tvm.nd.array(x), tvm.nd.array(good), out)
    np.testing.assert_array_equal(out.numpy(), x[good.astype("int64")])
    for _ in range(20):
        bad, places = good.copy(), np.sort(rng.choice(96, 3, replace=False))
        bad[places] = rng.choice([100, 127, -101, -128], 3)
        with pytest.raises(
            OutOfBoundsError, match=rf"^rows: index {bad[places[0]]} at position \[{places[0]}\]"
        ):
            f(tvm.nd.array(x), tvm.nd.array(bad), out)


def test_vectors_share_a_branch_and_lose_no_bits() -> None:
    """One branch for all twelve vectors, and LLVM knows that the places fit in 32 bits."""
    text = gathered("int64", 8, 12).get_source("ll")
    start = text.index("@default_function(")
    body = text[start : text.index("\n}\n", start)]
    assert body.count("!prof !1") == 1
    assert "sext <8 x i32>" not in body  # the places are used as they are, in 64 bits
