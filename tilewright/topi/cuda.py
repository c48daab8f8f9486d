"""Schedules of the classic API for GPUs. There are no hand-written ones here: each returns plain loops, one thread per
element of every stage, with elementwise stages inlined.

    with tvm.target.Target("cuda"):
        s = topi.cuda.schedule_reduce(C)      # or topi.cuda.schedule_softmax, schedule_injective, …

`tilewright.auto_schedule` finds a good one. Kernels of the classic package are the operators of all targets:
`topi.cuda.conv2d_nchw` is `topi.nn.conv2d_nchw`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from .. import te
from ..absent import attributes as _attributes
from ..te.tensor import ComputeOp
from . import generic
from .elsewhere import is_scheduled
from .elsewhere import operator_or as _operator_or
from .tag import is_injective

_THREADS = 64  # threads per block

__all__ = [name for name in generic.__all__ if name.startswith("schedule_")]


def spread(outs: Any) -> te.Schedule:
    """A thread for each element of every stage that is not inlined."""
    tensors = [outs] if isinstance(outs, te.Tensor) else list(outs)
    s = te.create_schedule([t.op for t in tensors])
    kept = {t.op for t in tensors}
    for stage in s.stages:
        op = stage.op
        if not isinstance(op, ComputeOp):
            continue
        if op not in kept and not op.reduce_axis and is_injective(op.tag):
            stage.compute_inline()
        elif op.axis:
            block, thread = stage.split(stage.fuse(*op.axis), factor=_THREADS)
            stage.bind(block, te.thread_axis("blockIdx.x"))
            stage.bind(thread, te.thread_axis("threadIdx.x"))
    for op in [stage.op for stage in s.stages]:
        if isinstance(op, ComputeOp) and not op.axis and op.reduce_axis:
            _add_up(s, op)
    return s


def _add_up(s: te.Schedule, op: ComputeOp) -> None:
    """A reduction to a scalar by a thread block: each thread reduces a part, then the parts are combined."""
    whole = op.output(0)
    _, part = s[whole].split(s[whole].fuse(*op.reduce_axis), factor=_THREADS)
    parts = s.rfactor(whole, part)
    (inner,) = s[whole].op.reduce_axis
    s[whole].bind(inner, te.thread_axis("threadIdx.x"))
    s[parts].compute_at(s[whole], inner)


def _spread(name: str) -> Callable[..., Any]:
    def schedule(outs: Any, *args: Any, **kwargs: Any) -> te.Schedule:
        return spread(outs)

    schedule.__name__ = schedule.__qualname__ = name
    schedule.__doc__ = (
        f"Plain loops over threads for `{name.removeprefix('schedule_')}`, to be scheduled further."
    )
    return schedule


def schedule_injective_from_existing(sch: te.Schedule, out: te.Tensor) -> te.Schedule:
    """The schedule with a thread for each element of one of its tensors."""
    block, thread = sch[out].split(sch[out].fuse(*out.op.axis), factor=_THREADS)
    sch[out].bind(block, te.thread_axis("blockIdx.x"))
    sch[out].bind(thread, te.thread_axis("threadIdx.x"))
    return sch


@cache
def schedule_of(name: str) -> Callable[..., Any] | None:
    """The schedule function of the name `schedule_…`, if there is an operator of that name."""
    found = vars(sys.modules[__name__]).get(name)
    return found or (_spread(name) if is_scheduled(name.removeprefix("schedule_")) else None)


globals().update({n: _spread(n) for n in __all__ if n != "schedule_injective_from_existing"})
__path__: list[str] = []  # its modules have its names
__getattr__ = _operator_or(_attributes(__name__), "cuda")
