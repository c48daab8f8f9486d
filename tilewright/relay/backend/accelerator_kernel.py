"""Kernels of fused functions for accelerators: programs for the engines of a chip."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from ...compiler.build import build
from ...ir.errors import ScheduleError
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...runtime.accelerator_module import AcceleratorModule
from ...target import Target
from ...tir.schedule import Schedule
from ...tune import auto_schedule
from ...tune.auto import unasked
from ...tune.plan import plan_of
from ..expr import Function
from .lower import device_loops


def chip_code(
    fn: Function, constants: Sequence[int], target: Target, symbol: str, record: Any, planned: bool
) -> tuple[dict[str, Any], Any, tuple[str, ...], tuple[str, ...], tuple[tuple[str, int], ...]]:
    """A fused function for the engines of a chip: its program as data, the packer of its constants, the labels of the
    packed constants, their names, and its workspaces, of which it has none.

    Raises an error with the reason if there is no program.
    """
    before, func, labels, names = device_loops(fn, constants)
    func = func.with_attr("global_symbol", symbol)
    with unasked():
        sch = (
            auto_schedule(func, target, record=record) if record is not None else chip_schedule(func, target)
        )
    module = build(IRModule({symbol: sch.mod[symbol]}), target=target)
    assert isinstance(module, AcceleratorModule)
    params = [
        {"kind": "buffer", "name": a.name, "dtype": a.dtype, "shape": list(a.shape)}
        for a in module.functions[symbol]
    ]
    code = {
        "function": {"name": symbol, "params": params},
        "program": base64.b64encode(module.encoded()).decode(),
        "schedule": str(sch.explanation),
    }
    return code, before, labels, names, ()


def chip_schedule(func: PrimFunc, target: Target) -> Schedule:
    """A schedule in which engines of the chip compute every stage; refuses if no rule takes one of them."""
    plan = plan_of(func, target)
    for stage, refused in plan.left.items():
        why = "; ".join(f"{rule}: {no.why}" for rule, no in refused.items())
        raise ScheduleError(f"no unit of {target.accelerator.name} computes {stage}: {why}")
    if not plan.choices:
        raise ScheduleError(f"there is nothing for {target.accelerator.name} to compute")
    return plan.sch
