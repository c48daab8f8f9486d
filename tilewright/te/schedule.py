"""`te.Schedule`: stages that say how each operation is computed, replayed on a `tir.Schedule`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.buffer import Buffer
from ..ir.errors import ScheduleError, UnsupportedError
from ..ir.expr import IterVar, ProducerLoad, Range, Var, const_value
from ..ir.function import PrimFunc
from ..ir.functor import pre_order
from ..ir.span import Span, user_span
from ..ir.stmt import Stmt
from ..tir.schedule import BlockRV, LoopRV
from ..tir.schedule import Schedule as TirSchedule
from ..tir.schedule.inline import short_first
from .create_prim_func import build_prim_func
from .graph import post_order
from .stage import Group, StageOp, blamed, fresh_axes
from .stage import Stage as Stage
from .tensor import BaseComputeOp, ComputeOp, Operation, PlaceholderOp, ScanOp, Tensor

# The attribute of a function whose loops the automatic scheduler chooses when it is lowered.
AUTOMATIC = "tilewright.auto_schedule"


class Schedule:
    """The stages of the operations behind some outputs.

    With `automatic`, lowering lets the automatic scheduler choose the loops for the target, unless a stage was
    scheduled by hand: the schedules of `topi` and of accelerators are of this kind.
    """

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs = list(outputs)
        self.stages: list[Stage] = [Stage(self, op, op in self.outputs) for op in post_order(self.outputs)]
        self.stage_map: dict[Operation, Stage] = {s.op: s for s in self.stages}
        self.groups: list[Group] = []
        self.threads: dict[Var, IterVar] = {}  # the thread axes that loops are bound to
        # Caches and factors, in the order in which they were asked for, and where.
        self._edits: list[tuple[Span | None, Callable[[Replay], None]]] = []
        self._replayed: TirSchedule | None = None
        self.automatic = False

    def __getitem__(self, tensor: Tensor | Operation) -> Stage:
        op = tensor.op if isinstance(tensor, Tensor) else tensor
        if not isinstance(op, Operation):
            raise TypeError(f"s[…] takes a tensor or an operation, not {tensor!r}")
        found = self.stage_map.get(op)
        if found is None:
            names = ", ".join(s.op.name for s in self.stages)
            raise ScheduleError(
                f"the schedule has no stage for {op.name}; it has: {names}\n  at {user_span()}"
            )
        return found

    def __contains__(self, tensor: Tensor | Operation) -> bool:
        return (tensor.op if isinstance(tensor, Tensor) else tensor) in self.stage_map

    def normalize(self) -> Schedule:
        """The schedule with every axis starting at zero, as ours do."""
        return self

    # -- caches and factors --------------------------------------------------------------------
    def _insert(self, at: int, op: Operation) -> Stage:
        stage = Stage(self, op, False)
        self.stages.insert(at, stage)
        self.stage_map[op] = stage
        return stage

    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """Copy a tensor into memory of `scope` for some of its readers, and return the copy.

        `readers` are the tensors or operations that read the copy instead of the tensor.
        """
        source = self[tensor] if tensor.op in self.stage_map else None
        if source is None:
            raise ScheduleError(f"the schedule has no stage for {tensor.op.name}\n  at {user_span()}")
        given = list(readers) if isinstance(readers, (list, tuple)) else [readers]
        if not given:
            raise ScheduleError(
                f"cache_read({tensor.op.name}): name the readers of the copy in a list of tensors\n  at {user_span()}"
            )
        users = [self[r] for r in given]
        axes = fresh_axes(
            [IterVar(Range(0, d), f"ax{i}", IterVar.DataPar) for i, d in enumerate(tensor.shape)]
        )
        op = StageOp(f"{tensor.op.name}_{scope.replace('.', '_')}", [tensor], axes, (), [tensor])
        stage = self._insert(self.stages.index(source) + 1, op)
        stage.scope = scope

        def edit(r: Replay) -> None:
            blocks = [r.blocks[u] for u in users]
            r.blocks[stage] = r.sch.cache_read(blocks[0], r.buffer_of(source, tensor), scope, blocks)

        self._edits.append((user_span(), edit))
        return op.output(0)

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute a tensor in memory of `scope`, copy it to its own memory, and return the tensor in `scope`."""
        if isinstance(tensor, (list, tuple)):
            if len(tensor) != 1:
                raise UnsupportedError("cache_write of several tensors at once is not supported")
            return [self.cache_write(tensor[0], scope)]
        stage = self[tensor]
        old = stage.op
        if not isinstance(old, BaseComputeOp) or old.num_outputs != 1:
            raise ScheduleError(
                f"cache_write({old.name}): it takes a computed tensor of one output\n  at {user_span()}"
            )
        if stage.relations or stage.attach:
            raise ScheduleError(
                f"cache_write({old.name}): its stage already has a schedule\n  at {user_span()}\n\n"
                "  hint: call cache_write first, then schedule both stages"
            )
        name = f"{old.name}_{scope.replace('.', '_')}"
        inner = StageOp(name, [tensor], fresh_axes(old.axis), old.reduce_axis, old.input_tensors)
        made = self._insert(self.stages.index(stage), inner)
        made.scope = scope
        stage.op = StageOp(old.name, [tensor], old.axis, (), [inner.output(0)])
        stage.root_iter_vars = list(old.axis)
        stage.all_iter_vars, stage.leaf_iter_vars = list(old.axis), list(old.axis)
        self.stage_map[stage.op] = stage

        def edit(r: Replay) -> None:
            copy = r.sch.cache_write(r.blocks[stage], 0, scope)
            r.blocks[made], r.blocks[stage] = r.blocks[stage], copy

        self._edits.append((user_span(), edit))
        return inner.output(0)

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any:
        """Let each iteration of a reduction axis reduce into an element of its own, and return the partial results.

        `factor_axis` is the position of the new dimension in the partial results. A stage that reduces several values
        at once gives a list of tensors.
        """
        stage = self[tensor]
        old = stage.op
        tensors = [old.output(i) for i in range(old.num_outputs)]
        stage._leaf(axis, "rfactor")
        if axis.iter_type != IterVar.CommReduce:
            raise ScheduleError(
                f"rfactor({old.name}): `{axis.var.name}` is not a reduction axis of it\n  at {user_span()}"
            )
        _check_reduction_only(stage)
        steps, stage.relations = stage.relations, []
        roots = stage.root_iter_vars
        others = [iv for iv in stage.leaf_iter_vars if iv.is_reduction and iv is not axis]
        own = IterVar(axis.dom, Var(axis.var.name, axis.var.dtype), IterVar.DataPar)
        spatial, rest = fresh_axes(old.axis), fresh_axes(others)
        axes = list(spatial)
        axes.insert(factor_axis if factor_axis >= 0 else factor_axis + len(axes) + 1, own)
        inner = StageOp(f"{old.name}_rf", tensors, axes, rest, old.input_tensors)
        made = self._insert(self.stages.index(stage), inner)
        last = IterVar(axis.dom, Var(f"{axis.var.name}_v", axis.var.dtype), IterVar.CommReduce)
        stage.op = StageOp(old.name, tensors, old.axis, [last], inner.outputs)
        stage.root_iter_vars = [*old.axis, last]
        stage.all_iter_vars, stage.leaf_iter_vars = list(stage.root_iter_vars), list(stage.root_iter_vars)
        self.stage_map[stage.op] = stage

        def edit(r: Replay) -> None:
            block, sch = r.blocks[stage], r.sch
            handles = dict(zip(roots, sch.get_loops(block), strict=True))
            for step in steps:
                stage._carry_out(sch, step, handles)
            old_loops = [x.var for x in sch.get_loops(block)]
            r.blocks[made] = sch.rfactor(handles[axis], factor_axis)
            loops = dict(zip(old_loops, sch.get_loops(r.blocks[made]), strict=True))
            # The axes in the order in which the new stage has them.
            back = dict(zip([*spatial, own], [*old.axis, axis], strict=True))
            sch.reorder(*[loops[handles[iv].var] for iv in (*[back[iv] for iv in axes], *others)])

        self._edits.append((user_span(), edit))
        return inner.output(0) if len(tensors) == 1 else inner.outputs

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Group:
        """The group of stages from `inputs` to `outputs`, which can be computed at one place together.

        `outputs` belong to the group; `inputs` belong to it with `include_inputs`.
        """
        first = [self[t] for t in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]
        given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        ends = {t.op if isinstance(t, Tensor) else t for t in given}
        found: dict[Stage, None] = {}
        waiting = [s.op for s in first]
        while waiting:
            op = waiting.pop()
            stage = self.stage_map.get(op)
            if stage is None or stage in found or isinstance(op, PlaceholderOp):
                continue
            if op in ends and not include_inputs:
                continue
            found[stage] = None
            if op not in ends:
                waiting.extend(t.op for t in stage.op.input_tensors)
        for stage in found:
            if stage.is_output:
                raise ScheduleError(
                    f"create_group: {stage.op.name} is an output of the schedule, which is computed at the root"
                    f"\n  at {user_span()}"
                )
        group = Group(self, [s for s in self.stages if s in found])
        for stage in group.stages:
            if stage.group is None:
                stage.group = group
            elif stage.group is not group and stage.group.group is None:
                stage.group.group = group  # a group of groups
        self.groups.append(group)
        return group

    @property
    def trace(self) -> Any:
        """What the schedule became, once it was lowered."""
        if self._replayed is None:
            raise ScheduleError(
                "the schedule has no trace before it is lowered: call tvm.lower(s, args) first"
            )
        return self._replayed.trace

    def to_prim_func(
        self, args: Sequence[Any], name: str = "main", binds: Mapping[Any, Any] | None = None
    ) -> PrimFunc:
        """The program in block form with every stage's calls carried out, outputs before inputs."""
        outputs = [op.output(i) for op in self.outputs for i in range(op.num_outputs)]
        func, blocks = build_prim_func(args, outputs=outputs, binds=binds, name=name, scans_in_place=True)
        func = func.with_attr("global_symbol", name)
        if self.automatic:
            func = func.with_attr(AUTOMATIC, True)
        replay = Replay(TirSchedule(func), self, blocks)
        for arg, param in zip(args, func.params, strict=False):
            if isinstance(arg, Tensor) and param in func.buffer_map:
                replay.inputs[arg.op] = func.buffer_map[param]
        sch = replay.sch
        for span, edit in self._edits:
            with blamed(span):
                edit(replay)
        live = [s for s in reversed(self.stages) if s in replay.blocks]
        for stage in short_first([s for s in live if s.inlined]):
            with blamed(stage.place):
                sch.compute_inline(replay.blocks[stage])
        handles: dict[IterVar, LoopRV] = replay.steps_of_scans()
        for stage in live:
            stage.replay(sch, replay.blocks[stage], handles)
        for stage in self.stages:
            if stage.env:
                stage.replay_env(sch, handles)
        for stage in live:
            stage.check_store()
        for stage in live:
            stage.replay_tensorize(sch, handles)
        self._replayed = sch
        made = sch.state.func
        assert isinstance(made, PrimFunc)
        return made


class Replay:
    """A schedule being carried out: the program so far, and which block is which stage's."""

    def __init__(self, sch: TirSchedule, schedule: Schedule, names: Mapping[Operation, str]) -> None:
        self.sch, self.stages = sch, schedule.stages
        self.blocks: dict[Stage, BlockRV] = {}
        self.inputs: dict[Operation, Buffer] = {}  # names may stand for several
        for stage in schedule.stages:
            name = names.get(stage.origin_op)
            if name is not None and not isinstance(stage.origin_op, (PlaceholderOp, StageOp)):
                self.blocks[stage] = sch.get_block(name)

    def steps_of_scans(self) -> dict[IterVar, LoopRV]:
        """The loops over the steps of scans."""
        out = {}
        for stage in self.stages:
            if isinstance(stage.op, ScanOp):
                inside = next((self.blocks[s] for s in self.stages if s.op is stage.op.update[0].op), None)
                block = self.blocks.get(stage, inside)
                if block is not None:
                    out[stage.op.scan_axis] = self.sch.get_loops(block)[0]
        return out

    def buffer_of(self, stage: Stage, tensor: Tensor) -> Buffer | str:
        """The buffer that holds a stage's tensor now."""
        block = self.blocks.get(stage)
        if block is None:
            return self.inputs.get(tensor.op, tensor.op.name)
        return self.sch.get(block).writes[tensor.value_index].buffer


def _check_reduction_only(stage: Stage) -> None:
    """Refuse if steps of a stage are about its spatial axes: these come anew with rfactor."""
    for step in stage.relations:
        axes = [a for a in step.args if isinstance(a, IterVar)]
        if any(not a.is_reduction for a in axes):
            names = ", ".join(a.var.name for a in axes)
            raise ScheduleError(
                f"rfactor({stage.op.name}): {step.kind}({names}) comes before it, and the axes that are not "
                f"reduced start anew\n  at {user_span()}\n\n"
                "  hint: split the reduction axis, then rfactor, then schedule both stages"
            )


def automatic_schedule(outs: Any) -> Schedule:
    """A schedule of tensors whose loops the automatic scheduler chooses, until a stage is scheduled by hand."""
    made = create_schedule(outs)
    made.automatic = True
    return made


def create_schedule(ops: Any) -> Schedule:
    """A schedule of `ops` (operations or tensors) and all operations that they need, each with its plain loops."""
    given = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    found = [t.op if isinstance(t, Tensor) else t for t in given]
    for op in found:
        if not isinstance(op, Operation):
            raise TypeError(f"te.create_schedule takes operations (C.op) or tensors, not {op!r}")
    if not found:
        raise ValueError("te.create_schedule needs at least one operation")
    return Schedule(found)


# ---------------------------------------------------------------------------- the classic stages
def InferBound(schedule: Schedule) -> dict[IterVar, Range]:
    """The range of every axis of every stage."""
    return {iv: iv.dom for stage in schedule.stages for iv in stage.all_iter_vars}


def ScheduleOps(schedule: Schedule, bounds: Any = None, debug_keep_trivial_loop: bool = False) -> Stmt:
    """The loops of the schedule, over all of its tensors."""
    return SchedulePostProcToPrimFunc(_all_tensors(schedule), schedule).body


def SchedulePostProcToPrimFunc(args: Sequence[Any], schedule: Any, binds: Any = None) -> PrimFunc:
    """The schedule as a function over `args`."""
    if not isinstance(schedule, Schedule):
        raise TypeError(f"expected a te.Schedule, not {type(schedule).__name__}")
    return schedule.to_prim_func(args, binds=binds)


def _all_tensors(schedule: Schedule) -> list[Tensor]:
    ops = [s.op for s in schedule.stages if isinstance(s.op, PlaceholderOp)] + schedule.outputs
    return [op.output(i) for op in ops for i in range(op.num_outputs)]


def AutoInlineInjective(schedule: Schedule) -> None:
    """Inline every intermediate stage that has no reduction and no schedule."""
    _inline(schedule, lambda axes, indices: True)


def AutoInlineElemWise(schedule: Schedule) -> None:
    """Inline such stages if they read only the elements at their own indices."""
    _inline(schedule, lambda axes, at: len(axes) == len(at) and all(map(operator.is_, axes, at)))


def AutoInlineBroadcast(schedule: Schedule) -> None:
    """Inline such stages if they read at their own indices, apart from broadcast axes."""

    def follows(axes: list[Any], indices: list[Any]) -> bool:
        rest = iter(axes)
        return all(const_value(i) == 0 or any(i is axis for axis in rest) for i in indices)

    _inline(schedule, follows)


def _inline(schedule: Schedule, fits: Callable[[list[Any], list[Any]], bool]) -> None:
    """Inline stages of which each read fits their axes."""
    for stage in schedule.stages:
        op = stage.op
        if not isinstance(op, ComputeOp) or op.reduce_axis or op in schedule.outputs:
            continue
        if stage.relations or stage.attach or stage.scope not in ("", "global"):
            continue
        axes: list[Any] = [iv.var for iv in op.axis]
        reads = [n for e in op.body for n in pre_order(e) if isinstance(n, ProducerLoad)]
        if all(fits(axes, list(n.indices)) for n in reads):
            stage.compute_inline()
