"""`te.Schedule.automatic`: loops that the automatic scheduler chooses when the schedule is lowered."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import te
from tilewright.te.schedule import automatic_schedule
from tilewright.tir import For, ForKind
from tilewright.tir.stmt_functor import post_order_visit


def product(n: int = 64) -> list[te.Tensor]:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def kinds(s: te.Schedule, args: list[te.Tensor]) -> set[ForKind]:
    found: set[ForKind] = set()
    post_order_visit(
        tvm.lower(s, args)["main"].body, lambda x: found.add(x.kind) if isinstance(x, For) else None
    )
    return found


def test_the_scheduler_chooses_the_loops() -> None:
    args = product()
    s = automatic_schedule(args[-1])
    assert "C_local" not in tvm.lower(te.create_schedule(args[-1].op), args).script()
    assert "C_local" in tvm.lower(s, args).script()  # accumulators in registers
    func = tvm.build(s, args, "llvm")
    x, y = (np.random.default_rng(i).random((64, 64), "float32") for i in range(2))
    out = np.empty_like(x)
    func(x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5)
    assert "tilewright.auto_schedule" not in tvm.lower(s, args)["main"].attrs


def test_a_stage_that_is_scheduled_by_hand_stays_as_it_is() -> None:
    args = product()
    s = automatic_schedule([args[-1]])
    s[args[-1]].unroll(s[args[-1]].split(s[args[-1]].op.axis[1], factor=2)[1])
    assert kinds(s, args) == {ForKind.SERIAL}  # unrolled loops are gone


def test_gpus_get_threads() -> None:
    args = product()
    source = tvm.build(automatic_schedule(args[-1]), args, "opencl").imported_modules[0].get_source()
    assert "get_local_id" in source
