"""What every primitive must keep: the meaning of the program, and the trace that makes it again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from schedule_programs import arrays

import tilewright as tvm
from tilewright import tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.tir.schedule import Trace
from tilewright.tir.schedule.testing import verify_trace_roundtrip


def keeps_meaning(func: Any, sch: tir.Schedule, n: int = 5, planned: bool = False) -> None:
    """The scheduled program, interpreted and compiled, gives what `func` gives; its trace gives it again.

    With `planned` buffers are put where they live first: one for each iteration of a parallel loop.
    """
    want = arrays(func, n)
    got = [np.copy(a) for a in want]
    compiled = [tvm.nd.array(np.copy(a)) for a in want]
    tir.interpret(func, *want)
    mod = tir.transform.PlanAndUpdateBufferAllocationLocation()(sch.mod) if planned else sch.mod
    tir.interpret(mod["main"], *got)
    # What LLVM makes of the loops is tested elsewhere: here it need not try hard.
    with tvm.transform.PassContext(opt_level=0):
        tvm.build(sch.mod, target="llvm")(*compiled)
    for x, y, z in zip(want, got, compiled, strict=True):
        np.testing.assert_array_equal(x, y, err_msg=str(sch.mod))
        np.testing.assert_allclose(x, z.numpy(), rtol=1e-6, err_msg=str(sch.mod))
    replays(func, sch)


def replays(func: Any, sch: tir.Schedule) -> None:
    """The trace, from memory, as JSON and as Python, makes the same program of `func`."""
    again = tir.Schedule(func)
    sch.trace.apply_to_schedule(again)
    assert_structural_equal(again.mod, sch.mod)
    again = tir.Schedule(func)
    Trace.apply_json_to_schedule(json.dumps(sch.trace.as_json()), again, trusted=True)
    assert_structural_equal(again.mod, sch.mod)
    verify_trace_roundtrip(sch, func)
