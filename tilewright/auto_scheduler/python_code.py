"""The steps of a state as Python code for a te.Schedule.

C_i, C_j, C_k = tuple(s[C].op.axis) + tuple(s[C].op.reduce_axis)
C_i_0, C_i_1 = s[C].split(C_i, factor=8)
s[C].vectorize(C_i_1)
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from ..te.tensor import BaseComputeOp
from .loop_state import State, Step


def python_code(state: State) -> str:
    """The code: `s` is the schedule of the outputs, and tensors are variables with the names of their operations."""
    writer = _Writer(state)
    for step in state.transform_steps:
        writer.step(step)
    return "".join(f"{line}\n" for line in writer.lines)


def _clean(name: str) -> str:
    return re.sub(r"\W", "_", name)


class _Writer:
    """Replays a state step by step, and writes a line or two for each."""

    def __init__(self, state: State) -> None:
        self.now, self.lines = State.begin(state.compute_dag), list[str]()
        self.steps = state.transform_steps
        self.loops: list[list[str]] = []  # the variables of the loops of each stage
        for number in range(len(self.now.stages)):
            self.loops.append([])
            self._axes(number)

    def _stage(self, number: int) -> str:
        return _clean(self.now.stages[number].op.name)

    def _axes(self, number: int) -> None:
        """Name the loops of a stage anew."""
        op = self.now.stages[number].op
        if not isinstance(op, BaseComputeOp):
            return
        name = _clean(op.name)
        self.loops[number] = [f"{name}_{_clean(iv.var.name)}" for iv in (*op.axis, *op.reduce_axis)]
        if self.loops[number]:
            left = ", ".join(self.loops[number])
            comma = "," if len(self.loops[number]) == 1 else ""
            self.lines.append(f"{left}{comma} = tuple(s[{name}].op.axis) + tuple(s[{name}].op.reduce_axis)")

    def step(self, step: Step) -> None:
        stage, loops = self._stage(step.stage), self.loops[step.stage]
        named = [loops[i] for i in step.iters]
        getattr(self, f"_{step.kind}", self._call)(step, stage, named)

    def _call(self, step: Step, stage: str, named: Sequence[str]) -> None:
        """A method of the stage with the same name and arguments."""
        self._written(step, f"s[{stage}].{step.kind}({', '.join([*named, *map(repr, step.more)])})")

    def _written(self, step: Step, line: str) -> None:
        self.lines.append(line)
        self.now._do(step)

    # -- loops -----------------------------------------------------------------------------------------
    def _parts(self, step: Step, stage: str, sizes: Sequence[Any], inside: bool) -> None:
        place = step.iters[0]
        name = rest = self.loops[step.stage][place]
        made: list[str] = []
        for number, size in enumerate(reversed(sizes) if inside else sizes):
            index = len(sizes) - number if inside else number
            part = f"{name}_{index}"
            last = number == len(sizes) - 1
            other = f"{name}_{0 if inside else len(sizes)}" if last else f"{name}_rest{number}"
            left, by = (f"{other}, {part}", "factor") if inside else (f"{part}, {other}", "nparts")
            self.lines.append(f"{left} = s[{stage}].split({rest}, {by}={size})")
            made.append(part)
            rest = other
        parts = [rest, *reversed(made)] if inside else [*made, rest]
        self.now._do(step)
        self.loops[step.stage][place : place + 1] = parts

    def _split(self, step: Step, stage: str, named: Sequence[str]) -> None:
        self._parts(step, stage, *step.more)

    def _follow_split(self, step: Step, stage: str, named: Sequence[str]) -> None:
        source, count = step.more
        sizes = list(self.steps[source].more[0])
        self._parts(step, stage, [*sizes[: count - 1], math.prod(sizes[count - 1 :])], True)

    def _follow_fused_split(self, step: Step, stage: str, named: Sequence[str]) -> None:
        sources, level, by_factor = step.more
        self._parts(step, stage, [math.prod(self.steps[i].more[0][level] for i in sources)], by_factor)

    def _fuse(self, step: Step, stage: str, named: Sequence[str]) -> None:
        made = "_".join([named[0], *(n.removeprefix(f"{stage}_") for n in named[1:]), "fused"])
        self._written(step, f"{made} = s[{stage}].fuse({', '.join(named)})")
        first = min(step.iters)
        kept = [n for i, n in enumerate(self.loops[step.stage]) if i not in step.iters]
        self.loops[step.stage] = [*kept[:first], made, *kept[first:]]

    def _reorder(self, step: Step, stage: str, named: Sequence[str]) -> None:
        self._call(step, stage, named)
        self.loops[step.stage] = list(named)

    def _bind(self, step: Step, stage: str, named: Sequence[str]) -> None:
        self._written(step, f's[{stage}].bind({named[0]}, te.thread_axis("{step.more[0]}"))')

    def _pragma(self, step: Step, stage: str, named: Sequence[str]) -> None:
        kind, _, value = step.more[0].partition("$")
        self._written(step, f's[{stage}].pragma({named[0]}, "{kind}"{f", {value}" if value else ""})')

    def _tensorize(self, step: Step, stage: str, named: Sequence[str]) -> None:
        self._written(step, f's[{stage}].tensorize({named[0]}, tvm.get_global_func("{step.more[0]}")())')

    # -- stages ----------------------------------------------------------------------------------------
    def _compute_at(self, step: Step, stage: str, named: Sequence[str]) -> None:
        at, place = step.more
        self._written(step, f"s[{stage}].compute_at(s[{self._stage(at)}], {self.loops[at][place]})")

    def _cache_read(self, step: Step, stage: str, named: Sequence[str]) -> None:
        scope, readers = step.more
        names = ", ".join(self._stage(r) for r in readers)
        self._new(step, step.stage + 1, f's.cache_read({stage}, "{scope}", [{names}])')

    def _cache_write(self, step: Step, stage: str, named: Sequence[str]) -> None:
        self._new(step, step.stage, f's.cache_write([{stage}], "{step.more[0]}")', listed=True)
        self._axes(step.stage + 1)

    def _rfactor(self, step: Step, stage: str, named: Sequence[str]) -> None:
        self._new(step, step.stage, f"s.rfactor({stage}, {named[0]}, {step.more[0]})")
        self._axes(step.stage + 1)

    def _new(self, step: Step, number: int, call: str, listed: bool = False) -> None:
        made: Any = self.now._do(step)
        self.loops.insert(number, [])
        self.lines.append(f"{_clean(made.op.name)}{',' if listed else ''} = {call}")
        self._axes(number)
