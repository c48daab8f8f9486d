"""`te.Schedule`: stages that say how each operation is computed, replayed on a `tir.Schedule`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.buffer import Buffer
from ..ir.errors import ScheduleError
from ..ir.expr import IterVar, PrimExpr, ProducerLoad, Range, Reduce, Var, const, const_value
from ..ir.function import PrimFunc
from ..ir.functor import pre_order, substitute, undefined_vars
from ..ir.ops import if_then_else, is_one, logical_and
from ..ir.span import Span, user_span
from ..ir.stmt import BlockRealize, Stmt
from ..runtime.container import Map
from ..tir.schedule import BlockRV, LoopRV
from ..tir.schedule import Schedule as TirSchedule
from ..tir.schedule.index_map import IndexMap
from ..tir.schedule.inline import short_first
from .create_prim_func import PrimFuncBuilder
from .graph import OpGraph, post_order
from .relations import Fuse as Fuse
from .relations import Singleton as Singleton
from .relations import Split as Split
from .relations import Step, at_axes, leaf_indices, reading, root_values
from .stage import Group, StageOp, blamed, fresh_axes, relayout_loops
from .stage import Stage as Stage
from .stretched import stretched_arguments
from .tensor import ComputeOp, Operation, PlaceholderOp, ScanOp, Tensor, TensorComputeOp

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
        self.only_shown = False  # steps that are refused are left out, with a warning
        self._staged: dict[Operation, str] = {}  # operations of several outputs with a cache, and its scope
        self.bounds: dict[IterVar, tuple[Var, Range]] = {}  # the loops of the last replay

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
        axes = [IterVar(Range(0, d), f"ax{i}", IterVar.DataPar) for i, d in enumerate(tensor.shape)]
        at = tensor(*[iv.var for iv in axes])
        op = StageOp(f"{tensor.op.name}_{scope.replace('.', '_')}", tensor.op, axes, [at])
        stage = self._insert(self.stages.index(source) + 1, op)
        stage.scope = scope

        def edit(r: Replay) -> None:
            blocks = [r.blocks[u] for u in users]
            r.blocks[stage] = r.sch.cache_read(blocks[0], r.buffer_of(source, tensor), scope, blocks)

        self._edits.append((user_span(), edit))
        for user in users:
            if isinstance(user.op, ComputeOp):
                self._becomes(user, user.op.axis, reading(user.op.body, tensor, op.output(0)))
        return op.output(0)

    def _becomes(self, stage: Stage, axis: Sequence[IterVar], body: Sequence[PrimExpr]) -> StageOp:
        """Let a stage compute `body` from now on; the operations that it had still find it."""
        stage.op = StageOp(stage.op.name, stage.op, axis, body)
        self.stage_map[stage.op] = stage
        return stage.op

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute a tensor in memory of `scope`, copy it to its own memory, and return the tensor in `scope`.

        A list names all outputs of one operation, and gives a list. If the stage was split, fused or reordered before,
        the tensor in `scope` has the layout of its loops, and the copy its own axes again.
        """
        given = list(tensor) if isinstance(tensor, (list, tuple)) else [tensor]
        stage = self[given[0]]
        old = stage.op
        if not isinstance(old, (ComputeOp, TensorComputeOp)):
            raise ScheduleError(f"cache_write({old.name}): it takes a computed tensor\n  at {user_span()}")
        _check_all_outputs(old, given, self)
        _check_layout_only(stage)
        name = f"{old.name}_{scope.replace('.', '_')}"
        inner = _renamed(old, name)
        made = self._insert(self.stages.index(stage), inner)
        made.scope = scope
        layout = _layout_of(stage)
        at = [iv.var for iv in old.axis]
        self._becomes(stage, old.axis, [t(*at) for t in inner.outputs])
        stage.steps, stage.iter_var_attrs = [], {}
        stage.root_iter_vars = list(old.axis)
        stage.all_iter_vars, stage.leaf_iter_vars = list(old.axis), list(old.axis)
        reduced = len(old.reduce_axis) - len(old.inner_axis)
        if old.num_outputs > 1 or isinstance(old, TensorComputeOp):
            self._staged[stage.origin_op] = scope

        def edit(r: Replay) -> None:
            several = stage.origin_op in self._staged
            copy = r.copies[stage.origin_op] if several else r.sch.cache_write(r.blocks[stage], 0, scope)
            r.blocks[made], r.blocks[stage] = r.blocks[stage], copy
            if layout is not None:
                r.sch.transform_layout(r.blocks[made], ("write", 0), layout)
                relayout_loops(r, made, layout, reduced)

        self._edits.append((user_span(), edit))
        if layout is not None:
            _lay_out(made, layout)
        return inner.outputs if isinstance(tensor, (list, tuple)) else made.op.output(0)

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
        if stage.inner:
            raise ScheduleError(
                f"rfactor({old.name}): the range of its reduction axis `{stage.inner[0].var.name}` depends on the "
                f"point\n  at {user_span()}"
            )
        steps, kept = _parted(stage)
        roots, leaves = stage.root_iter_vars, list(stage.leaf_iter_vars)
        left = [iv for iv in leaves if iv.is_reduction and iv is not axis]
        others = sorted(left, key=lambda iv: not any(iv is r for r in roots))  # whole axes first
        own = IterVar(axis.dom, Var(axis.var.name, axis.var.dtype), IterVar.DataPar)
        spatial = fresh_axes(old.axis)
        axes = list(spatial)
        axes.insert(factor_axis if factor_axis >= 0 else factor_axis + len(axes) + 1, own)
        inner = StageOp(f"{old.name}_rf", old, axes, _partial(old, steps, spatial, (axis, own), others))
        made = self._insert(self.stages.index(stage), inner)
        last = IterVar(axis.dom, Var(f"{axis.var.name}_v", axis.var.dtype), IterVar.CommReduce)
        self._becomes(stage, old.axis, _sum_of_parts(old, inner, own, last))
        stage.steps = kept
        stage.root_iter_vars = [*old.axis, last]
        stage.all_iter_vars = [*[iv for iv in stage.all_iter_vars if not iv.is_reduction], last]
        stage.leaf_iter_vars = [*[iv for iv in leaves if not iv.is_reduction], last]

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
        moved = self._moved_arguments(args, binds)
        binds = stretched_arguments(args, post_order(self.outputs), binds)
        builder = PrimFuncBuilder(args, outputs, binds, scans_in_place=True, apart=moved, staged=self._staged)
        func = builder.build(name).with_attr("global_symbol", name)
        if self.automatic:
            func = func.with_attr(AUTOMATIC, True)
        replay = Replay(TirSchedule(func), self, builder)
        self.bounds.clear()
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
        held = {t: replay.buffer_of(s, t) for t, s in moved.items() if not s.inlined}
        return _in_arguments(made, {args.index(t): b for t, b in held.items() if isinstance(b, Buffer)})

    def shown(
        self, args: Sequence[Any], name: str = "main", binds: Mapping[Any, Any] | None = None
    ) -> PrimFunc:
        """As `to_prim_func`, to look at: a mark or an order that is refused is left out, with a warning."""
        self.only_shown = True
        try:
            return self.to_prim_func(args, name, binds)
        finally:
            self.only_shown = False

    def _moved_arguments(self, args: Sequence[Any], binds: Mapping[Any, Any] | None) -> dict[Tensor, Stage]:
        """The arguments that are computed inside of their consumers: inlined, or at one of their loops."""
        found = {}
        for t in args:
            stage = self.stage_map.get(t.op) if isinstance(t, Tensor) and t not in (binds or {}) else None
            if stage is not None and (stage.inlined or stage.attached() is not None):
                found[t] = stage
        return found


class Replay:
    """A schedule being carried out: the program so far, and which block is which stage's."""

    def __init__(self, sch: TirSchedule, schedule: Schedule, builder: PrimFuncBuilder) -> None:
        self.sch, self.stages, names = sch, schedule.stages, builder.block_names
        self.copies = {op: sch.get_block(n) for op, n in builder.copy_names.items()}
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

    def holder(self, stage: Stage) -> tuple[BlockRV, tuple[str, int]]:
        """A block that has the buffer of a stage, and which of its buffers it is."""
        block = self.blocks.get(stage)
        if block is not None:
            return block, ("write", 0)
        name = self.inputs[stage.op].name
        for user in self.blocks.values():
            for i, region in enumerate(self.sch.get(user).reads):
                if region.buffer.name == name:
                    return user, ("read", i)
        raise ScheduleError(f"nothing reads {stage.op.name}")

    def buffer_of(self, stage: Stage, tensor: Tensor) -> Buffer | str:
        """The buffer that holds a stage's tensor now."""
        block = self.blocks.get(stage)
        if block is None:
            held = self.inputs.get(tensor.op)
            now = {b.name: b for b in self.sch.state.func.buffer_map.values()}  # its layout may have changed
            return tensor.op.name if held is None else now.get(held.name, held)
        return self.sch.get(block).writes[tensor.value_index].buffer


def _in_arguments(func: PrimFunc, buffers: Mapping[int, Buffer]) -> PrimFunc:
    """The function with some of its own buffers in the memory that the caller gives, by position of the argument."""
    if not buffers:
        return func
    assert isinstance(func.body, BlockRealize)
    root = func.body.block
    kept = [b for b in root.alloc_buffers if not any(b is taken for taken in buffers.values())]
    table = {p: buffers.get(i, func.buffer_map[p]) for i, p in enumerate(func.params) if p in func.buffer_map}
    return func.replace(
        body=func.body.replace(block=root.replace(alloc_buffers=tuple(kept))), buffer_map=table
    )


def _renamed(op: ComputeOp | TensorComputeOp, name: str) -> ComputeOp | TensorComputeOp:
    """The same computation under another name, over axes of its own."""
    axes = fresh_axes(op.axis)
    if isinstance(op, ComputeOp):
        return StageOp(name, op, axes, at_axes(op.body, op.axis, axes))
    table = {a.var: b.var for a, b in zip(op.axis, axes, strict=True)}
    regions = [[substitute(r, table) for r in part] for part in op.input_regions]
    scalars = [substitute(e, table) for e in op.scalar_inputs]
    return TensorComputeOp(
        name,
        op.tag,
        axes,
        op.reduce_axis,
        op.schedulable_ndim,
        op.intrin,
        op.inputs,
        regions,
        scalars,
        op.attrs,
    )


def _check_all_outputs(op: ComputeOp | TensorComputeOp, given: Sequence[Tensor], schedule: Schedule) -> None:
    """Refuse a cache of some outputs of an operation only: all of them are computed together."""
    for t in given:
        if schedule[t].op is not op:
            raise ScheduleError(
                f"cache_write: {t.op.name} and {op.name} are computed by two operations\n  at {user_span()}\n\n"
                "  hint: call cache_write for each of them"
            )
    if len({t.value_index for t in given}) != op.num_outputs or len(given) != op.num_outputs:
        raise ScheduleError(
            f"cache_write({op.name}): it has {op.num_outputs} outputs, which are computed together, and "
            f"{len(given)} {'is' if len(given) == 1 else 'are'} named\n  at {user_span()}\n\n"
            "  hint: name all of them, in a list"
        )


def _check_layout_only(stage: Stage) -> None:
    """Refuse a cache of a stage that has more of a schedule than a layout of its axes."""
    wrong = [s for s in stage.steps if s.kind not in ("split", "fuse", "reorder")]
    reduced = [s for s in stage.steps if any(iv.is_reduction for iv in s.axes)]
    if stage.attach or wrong or reduced or (stage.steps and stage.op.num_outputs > 1):
        raise ScheduleError(
            f"cache_write({stage.op.name}): its stage already has a schedule\n  at {user_span()}\n\n"
            "  hint: call cache_write first, then schedule both stages"
        )


def _layout_of(stage: Stage) -> IndexMap | None:
    """The order in which the loops of a stage go through its result, or None for its own axes."""
    if not stage.steps:
        return None
    leaves = [iv for iv in stage.leaf_iter_vars if not iv.is_reduction]
    roots = list(stage.op.axis)

    def order(*at: Any) -> list[PrimExpr]:
        found = leaf_indices(stage.steps, roots, at)
        return [found[iv] for iv in leaves]

    return IndexMap.from_func(order, ndim=len(roots))


def _lay_out(stage: Stage, layout: IndexMap) -> None:
    """Give a stage the axes of a layout."""
    op = stage.op
    shape = layout.map_shape([iv.dom.extent for iv in op.axis])
    axes = [IterVar(Range(0, d), f"ax{i}", IterVar.DataPar) for i, d in enumerate(shape)]
    assert isinstance(op, ComputeOp)
    stage.root_iter_vars = [*axes, *op.reduce_axis]
    stage.all_iter_vars, stage.leaf_iter_vars = list(stage.root_iter_vars), list(stage.root_iter_vars)
    found = layout.inverse([iv.dom for iv in op.axis]).map_indices([iv.var for iv in axes])
    table = {iv.var: e for iv, e in zip(op.axis, found, strict=True)}
    stage.schedule._becomes(stage, axes, [substitute(b, table) for b in op.body])


def _parted(stage: Stage) -> tuple[list[Step], list[Step]]:
    """The steps of a stage about its reduction axes, and those about the others, which stay after rfactor."""
    reduced: list[Step] = []
    kept: list[Step] = []
    for step in stage.steps:
        kinds = {a.is_reduction for a in step.axes}
        if len(kinds) > 1:
            names = ", ".join(a.var.name for a in step.axes)
            raise ScheduleError(
                f"rfactor({stage.op.name}): {step.kind}({names}) comes before it, and moves axes that are reduced "
                f"among others\n  at {user_span()}\n\n"
                "  hint: split the reduction axis, then rfactor, then schedule both stages"
            )
        (reduced if True in kinds else kept).append(step)
    return reduced, kept


def _partial(
    old: Operation,
    steps: Sequence[Step],
    spatial: Sequence[IterVar],
    axis: tuple[IterVar, IterVar],
    rest: Sequence[IterVar],
) -> list[PrimExpr]:
    """The partial results of a reduction, in which the axis of a pair is not reduced, but its second a dimension."""
    assert isinstance(old, ComputeOp)
    table, guard = root_values(steps, old.reduce_axis)
    names: dict[Var, PrimExpr] = {a.var: b.var for a, b in zip(old.axis, spatial, strict=True)}
    names[axis[0].var] = axis[1].var
    first = old.body[0]
    assert isinstance(first, Reduce)
    where = first.condition if guard is None else logical_and(guard, first.condition)
    where, *source = (substitute(substitute(e, table), names) for e in (where, *first.source))
    if not rest:
        made = zip(source, first.combiner.identity_element, strict=True)
        return [if_then_else(where, s, e) for s, e in made] if not is_one(where) else list(source)
    return [Reduce(first.combiner, tuple(source), tuple(rest), where, i) for i in range(len(source))]


def _sum_of_parts(old: Operation, inner: StageOp, own: IterVar, last: IterVar) -> list[PrimExpr]:
    """The reduction of partial results over the dimension `own` of theirs."""
    assert isinstance(old, ComputeOp)
    spatial = iter(old.axis)
    at = [last.var if iv is own else next(spatial).var for iv in inner.axis]
    first = old.body[0]
    assert isinstance(first, Reduce)
    source = tuple(t(*at) for t in inner.outputs)
    return [Reduce(first.combiner, source, (last,), const(True), i, first.init) for i in range(len(source))]


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
    return Schedule(list(dict.fromkeys(found)))


# ---------------------------------------------------------------------------- the classic stages
def InferBound(schedule: Schedule) -> Map:
    """The range of every axis of every stage, which is what its consumers need of it where it is computed."""
    bounds = Map({iv: iv.dom for stage in schedule.stages for iv in stage.all_iter_vars})
    schedule.to_prim_func(_all_arguments(schedule))
    names = {loop: iv.var for iv, (loop, _) in schedule.bounds.items()}
    for iv, (_, dom) in schedule.bounds.items():
        bounds[iv] = Range.from_min_extent(substitute(dom.min, names), substitute(dom.extent, names))
    return bounds


def ScheduleOps(schedule: Schedule, bounds: Any = None, debug_keep_trivial_loop: bool = False) -> Stmt:
    """The loops of the schedule, over all of its tensors."""
    return SchedulePostProcToPrimFunc(_all_arguments(schedule), schedule).body


def SchedulePostProcToPrimFunc(args: Sequence[Any], schedule: Any, binds: Any = None) -> PrimFunc:
    """The schedule as a function over `args`."""
    if not isinstance(schedule, Schedule):
        raise TypeError(f"expected a te.Schedule, not {type(schedule).__name__}")
    return schedule.to_prim_func(args, binds=binds)


def _all_arguments(schedule: Schedule) -> list[Any]:
    """The inputs and outputs of a schedule, and the variables whose values these do not give."""
    ops = [s.op for s in schedule.stages if isinstance(s.op, PlaceholderOp)] + schedule.outputs
    tensors = [op.output(i) for op in ops for i in range(op.num_outputs)]
    states = {t.op for op in schedule.stage_map if isinstance(op, ScanOp) for t in op.state_placeholder}
    tensors = [t for t in tensors if t.op not in states]
    known = {d for t in tensors for d in t.shape if isinstance(d, Var)}
    sizes = [d for t in tensors for d in t.shape]
    splits = [step for stage in schedule.stages for step in stage.relations if isinstance(step, Split)]
    sizes += [e for step in splits for e in (step.factor, step.nparts) if e is not None]
    used = dict.fromkeys(v for e in sizes for v in undefined_vars(e))
    return [*tensors, *(v for v in used if v not in known)]


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
        if not isinstance(op, ComputeOp) or op.reduce_axis or stage.is_output:
            continue
        if stage.steps or stage.attach or stage.scope not in ("", "global"):
            continue
        axes: list[Any] = [iv.var for iv in op.axis]
        reads = [n for e in op.body for n in pre_order(e) if isinstance(n, ProducerLoad)]
        if all(fits(axes, list(n.indices)) for n in reads):
            stage.compute_inline()


def CreateReadGraph(ops: Sequence[Operation]) -> Map:
    """For each operation behind `ops` the tensors that it reads."""
    return Map({op: list(op.input_tensors) for op in post_order(ops)})


def PostDFSOrder(ops: Sequence[Operation], graph: Mapping[Operation, Any] | None = None) -> list[Operation]:
    """The operations behind `ops`, each after those that it reads."""
    return [op for op in post_order(ops) if graph is None or op in graph]


def CreateAttachPath(schedule: Schedule) -> Map:
    """For each stage the loops that it is computed in, innermost first."""
    out = Map()
    for stage in schedule.stages:
        path: list[IterVar] = []
        found = stage.attached()
        while found is not None:
            parent, axis = found
            at = parent._position(axis)
            path += reversed(parent.leaf_iter_vars[: at + 1])
            found = parent.attached()
        out[stage.op] = path
    return out


def ScanGetBody(scan: ScanOp) -> list[Operation]:
    """The operations of a scan's step, in order."""
    return list(OpGraph([scan]).body(scan))
