"""The program of a task: its operations in order, and states of its schedule."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Sequence
from typing import Any

from ..forks import cached_property
from ..ir.errors import ScheduleError
from ..ir.expr import Call, Reduce
from ..ir.function import PrimFunc
from ..ir.module import IRModule
from ..ir.serialize import register_record
from ..target import Target
from ..te.create_prim_func import create_prim_func
from ..te.schedule import Schedule as TeSchedule
from ..te.tensor import BaseComputeOp, ComputeOp, Operation, PlaceholderOp, Tensor
from ..tune.arguments import get_const_int
from ..tune.flops import FlopCalculationError, operations
from ..tune.program.facts import number
from ..tune.search.search import flop_of
from ..tune.workload import Task
from .loop_state import State
from .python_code import python_code
from .workload_registry import workload_key_to_tensors


class LayoutRewriteOption(enum.IntEnum):
    """The rewriting of weight layouts, which changes nothing: packing is part of the schedule here, inside the kernel
    or, for constant weights, at compile time."""

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2

    @staticmethod
    def get_target_default(target: Any, in_relay_integration: bool = False) -> LayoutRewriteOption:
        """The default for a target."""
        if "cpu" not in Target(target).keys:
            return LayoutRewriteOption.NO_REWRITE
        if in_relay_integration:
            return LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
        return LayoutRewriteOption.INSERT_TRANSFORM_STAGE


class ComputeDAG:
    """A program, given by tensors, the key of a workload, a te.Schedule, a PrimFunc, or a module with one PrimFunc.

    A program from a PrimFunc has no tensors, so its states cannot be scheduled by hand. `constants` are the names of
    the parameters whose values are known at compile time.
    """

    def __init__(self, compute_or_sche: Any, constants: Sequence[str] = ()) -> None:
        self.mod: IRModule
        self.constants = tuple(constants)
        given = (
            workload_key_to_tensors(compute_or_sche) if isinstance(compute_or_sche, str) else compute_or_sche
        )
        self.tensors: list[Tensor] = []
        if isinstance(given, TeSchedule):
            reads = [s.op.output(0) for s in given.stages if isinstance(s.op, PlaceholderOp)]
            given = [*reads, *(op.output(i) for op in given.outputs for i in range(op.num_outputs))]
        if isinstance(given, ComputeDAG):
            self.mod, self.constants, self.tensors = given.mod, given.constants, given.tensors
            return
        if isinstance(given, PrimFunc):
            given = IRModule({"main": given})
        if isinstance(given, IRModule):
            self.mod = given
            return
        if not isinstance(given, Sequence) or not all(isinstance(t, Tensor) for t in given) or not given:
            raise ValueError(
                "a ComputeDAG is made of a list of tensors, the key of a workload, a te.Schedule or a PrimFunc, not of "
                f"{type(compute_or_sche).__name__}"
            )
        self.tensors = list(given)
        for op in self.ops:
            _check_names(op)
        self.mod = IRModule({"main": create_prim_func(self.tensors)})

    @property
    def given(self) -> Any:
        """What a copy is made of: the tensors, or the module if there are none."""
        return self.tensors or self.mod

    @cached_property
    def ops(self) -> list[Operation]:
        """All operations, producers first, in the order by which steps of records number their stages."""
        return _ordered(self.tensors)

    @property
    def outputs(self) -> list[Operation]:
        """The operations without readers, and those of the given tensors."""
        read = {t.op for op in self.ops for t in op.input_tensors}
        asked = {t.op for t in self.tensors if not isinstance(t.op, PlaceholderOp)}
        return [op for op in self.ops if op in asked or op not in read]

    @cached_property
    def flop_ct(self) -> float:
        """The estimated number of arithmetic operations on elements: operations on indices, calls and copies do not
        count. The attribute FLOP of an operation overrides it; -1 if it is not known."""
        if not self.tensors:
            return float(flop_of(Task(self.mod, Target("llvm"))))
        try:
            return float(sum(map(_flops, self.ops)))
        except (FlopCalculationError, ValueError):  # a dynamic size
            return -1.0

    # -- states ----------------------------------------------------------------------------------
    def get_init_state(self) -> State:
        """The state of the unscheduled program, to be scheduled by hand."""
        return State.begin(self)

    @property
    def init_state(self) -> State:
        return self.get_init_state()

    def apply_steps_from_state(self, state: State, layout_rewrite: Any = None) -> tuple[Any, list[Tensor]]:
        """The schedule of a state and its tensors, for `tvm.lower` and `tvm.build`.

        It is a te.Schedule for a state that was made by hand, and a tir.Schedule for a state of the search.
        """
        return state.applied(), list(self.tensors)

    def infer_bound_from_state(self, state: State) -> State:
        """The state with inferred extents for the loops of stages that are computed at other stages."""
        return state.bounded()

    def print_python_code_from_state(self, state: State) -> str:
        """The steps of a state as Python code: for a te.Schedule `s` if it was made by hand or is from TVM's own logs,
        else for a tir.Schedule `sch`."""
        return python_code(state) if state.by_hand else str(state.schedule.trace)

    def rewrite_layout_from_state(self, state: State) -> ComputeDAG:
        """The program for weights in the layout of a state: unchanged, as packing is part of the schedule."""
        return self

    # -- keys and text -----------------------------------------------------------------------------
    def hash_key(self) -> str:
        """A digest, equal for programs of equal structure, whatever their names."""
        return Task(self.mod, Target("llvm"), self.constants).workload

    @property
    def func(self) -> PrimFunc:
        (func,) = (f for f in self.mod.functions.values() if isinstance(f, PrimFunc))
        return func

    def workload_key(self) -> str:
        """A key made of the digest and the shapes of all parameters."""
        shapes = [
            [number(d) for d in self.func.buffer_map[v].shape]
            for v in self.func.params
            if v in self.func.buffer_map
        ]
        return json.dumps([self.hash_key(), *shapes])

    def __str__(self) -> str:
        if not self.tensors:
            return str(self.mod)
        return "\n".join(_line(op) for op in self.ops) + "\n"

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self.hash_key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComputeDAG) and self.hash_key() == other.hash_key()


def _ordered(tensors: Sequence[Tensor]) -> list[Operation]:
    """The operations that tensors need, producers first. Of those that are ready, the one that a walk from the last
    tensor to its inputs meets last comes first: A, B, C for C = A * B."""
    met: dict[Operation, int] = {}
    waiting = [t.op for t in tensors]
    while waiting:
        op = waiting.pop()
        if op not in met:
            met[op] = len(met)
            waiting += [t.op for t in op.input_tensors]
    missing = {op: len(op.input_tensors) for op in met}
    readers: dict[Operation, list[Operation]] = {op: [] for op in met}
    for op in met:
        for t in op.input_tensors:
            readers[t.op].append(op)
    ready = [(-met[op], op) for op in met if not missing[op]]
    out: list[Operation] = []
    while ready:
        ready.sort(key=lambda item: item[0], reverse=True)
        out.append(ready.pop()[1])
        for reader in readers[out[-1]]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append((-met[reader], reader))
    return out


def _check_names(op: Operation) -> None:
    if not isinstance(op, BaseComputeOp):
        return
    names = [iv.var.name for iv in (*op.axis, *op.reduce_axis)]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ScheduleError(
            f"{op.name}: two of its axes are named `{twice}`, and schedules name loops by their axes; give them "
            "different names"
        )


def _flops(op: Operation) -> float:
    if "FLOP" in op.attrs:
        return float(getattr(op.attrs["FLOP"], "value", op.attrs["FLOP"]))
    if not isinstance(op, ComputeOp):
        return 0.0
    kind = op.output(0).dtype.code

    def counts(e: Any) -> int:
        operands = [e.a, getattr(e, "b", e.a)] if not isinstance(e, Call) else []
        return int(any(x.dtype.code == kind for x in operands))

    points = math.prod(get_const_int(iv.dom.extent) for iv in op.axis)
    body = (
        op.body[:1] if isinstance(op.body[0], Reduce) else op.body
    )  # several results of one reduction share it
    return float(points * sum(operations(e, counts, conditions=True) for e in body))


def _line(op: Operation) -> str:
    """An operation as a line: `C(i, j) += (A[i, k]*B[k, j])`."""
    if isinstance(op, PlaceholderOp):
        return f"{op.name} = PLACEHOLDER [{', '.join(map(str, op.output(0).shape))}]"
    if not isinstance(op, ComputeOp):
        return f"{op.name} = {type(op).__name__}({', '.join(t.op.name for t in op.input_tensors)})"
    left = f"{op.name}({', '.join(iv.var.name for iv in op.axis)})"
    body = op.body[0]
    if not isinstance(body, Reduce):
        return f"{left} = {body}"
    combined = type(body.combiner.result[0]).__name__ if len(body.source) == 1 else ""
    sign = {"Add": "+=", "Mul": "*=", "Max": "max=", "Min": "min="}.get(combined, "reduce=")
    return f"{left} {sign} {', '.join(map(str, body.source))}"


def get_shape_from_rewritten_layout(rewritten_layout: str, axis_names: Sequence[str]) -> list[int]:
    """The extents of axes in a layout such as `4i8j16i`: the products of their factors."""
    found = dict.fromkeys(axis_names, 0)
    for size, name in re.findall(r"(\d+)([a-zA-Z_][a-zA-Z_.]*)", rewritten_layout):
        if name in found:
            found[name] = max(1, found[name]) * int(size)
    missing = [name for name, size in found.items() if not size]
    if missing:
        raise ValueError(f"the layout {rewritten_layout!r} has no axis {', '.join(missing)}")
    return list(found.values())


def _from_json(given: Any, constants: Any) -> ComputeDAG:
    return ComputeDAG(list(given) if isinstance(given, tuple) else given, constants)


register_record(ComputeDAG, "auto_scheduler.ComputeDAG", ("given", "constants"), _from_json)
