"""Queries of custom sketch rules about states, and tasks as text, under their classic names."""

from __future__ import annotations

import json
from typing import Any

from ..ir.expr import ProducerLoad
from ..ir.functor import pre_order
from ..te.broadcast import same_size
from ..te.tensor import BaseComputeOp, ComputeOp
from .loop_state import State
from .search_task import SearchTask
from .step_lines import read_task_line, task_as_json


def _readers(state: State, op: Any) -> list[int]:
    """The stages that read an operation; for an inlined stage, the stages that read it."""
    out: dict[int, None] = {}
    for i, stage in enumerate(state.stages):
        if any(t.op is op for t in getattr(stage.op, "input_tensors", ())):
            further = _readers(state, stage.op) if stage.compute_at == 1 else [i]
            out |= dict.fromkeys(further)
    return list(out)


class _Map(dict[int, int]):
    """A dict whose `items()` is a list, as in classic maps."""

    def items(self) -> Any:
        return list(super().items())


def SearchPolicyUtilsGetConsumers(task: Any, state: State, stage_id: int) -> dict[int, int]:
    """The numbers of the stages that read a stage."""
    return _Map({i: i for i in _readers(state, state.stages[stage_id].op)})


def SearchPolicyUtilsIsElementwiseMatch(task: Any, state: State, stage_id: int, target_stage_id: int) -> bool:
    """Whether `target_stage_id` is the only reader of a stage, and elementwise."""
    source, target = state.stages[stage_id].op, state.stages[target_stage_id].op
    if not isinstance(source, BaseComputeOp) or not isinstance(target, ComputeOp):
        return False
    shape, other = source.output(0).shape, target.output(0).shape
    if _readers(state, source) != [target_stage_id] or len(shape) != len(other):
        return False
    if not all(same_size(a, b) for a, b in zip(shape, other, strict=True)):
        return False
    axes = [iv.var for iv in target.axis]
    loads = [
        m
        for body in target.body
        for m in pre_order(body)
        if isinstance(m, ProducerLoad) and m.producer.op is source
    ]
    return bool(loads) and all(all(i is v for i, v in zip(m.indices, axes, strict=True)) for m in loads)


def SearchPolicyUtilsIsTiled(state: State, stage_id: int) -> bool:
    """Whether a loop of a stage was split."""
    return any(s.stage == stage_id and "split" in s.kind for s in state.transform_steps)


def SearchPolicyUtilsHasCacheReadStage(state: State, stage_id: int) -> bool:
    """Whether a stage has a cache_read copy."""
    return any(s.stage == stage_id and s.kind == "cache_read" for s in state.transform_steps)


def SearchPolicyUtilsHasCacheWriteStage(state: State, stage_id: int) -> bool:
    """Whether a stage has a cache_write copy."""
    return any(s.stage == stage_id and s.kind == "cache_write" for s in state.transform_steps)


def SerializeSearchTask(task: SearchTask) -> str:
    """A task as text: its key, target and figures, without its program."""
    return json.dumps(task_as_json(task))


def DeserializeSearchTask(text: str) -> SearchTask:
    """The inverse of `SerializeSearchTask`."""
    return SearchTask.named(read_task_line(text))
