"""`te.Schedule`: stages that say how each operation is computed, replayed on a `tir.Schedule`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..ir.buffer import Buffer
from ..ir.dtype import DataType
from ..ir.errors import ScheduleError, UnsupportedError
from ..ir.expr import IterVar, PrimExpr, Range, Var, const_value, convert
from ..ir.function import PrimFunc
from ..ir.ops import ceildiv, mul
from ..ir.span import Span, user_span
from ..ir.stmt import Stmt
from ..tir.schedule import BlockRV, LoopRV
from ..tir.schedule import Schedule as TirSchedule
from ..tir.schedule import loops as tir_loops
from ..tir.schedule.index_map import IndexMap
from ..tir.schedule.tensorize import tensorize_declared
from .create_prim_func import build_prim_func
from .tensor import BaseComputeOp, Operation, PlaceholderOp, Tensor
from .tensor_intrin import TensorIntrin

__all__ = ["InferBound", "Schedule", "ScheduleOps", "SchedulePostProcToPrimFunc", "Stage", "create_schedule"]

_LATER_STAGE = ("env_threads", "set_store_predicate")
_LATER = ("create_group",)


class StageOp(BaseComputeOp):
    """What a stage computes after caching or factoring took it apart: axes to schedule, without a rule."""

    __slots__ = ("dtype", "shape")
    kind = "te.stage"

    def __init__(
        self,
        name: str,
        tensor: Tensor,
        axis: Sequence[IterVar],
        reduce_axis: Sequence[IterVar],
        inputs: Sequence[Tensor],
    ) -> None:
        super().__init__(name, tensor.op.tag, tensor.op.attrs)
        self._axis, self._reduce_axis = tuple(axis), tuple(reduce_axis)
        self.shape, self.dtype = tuple(iv.dom.extent for iv in axis), tensor.dtype
        self.input_tensors = tuple(inputs)

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        return self.shape

    def output_dtype(self, index: int) -> DataType:
        return self.dtype


def _fresh(axes: Sequence[IterVar]) -> list[IterVar]:
    return [IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), iv.iter_type) for iv in axes]


class Step:
    """One line of a schedule: what was called on a stage, with the axes that it takes and gives."""

    __slots__ = ("args", "kind", "outputs", "span")

    def __init__(self, kind: str, args: tuple[Any, ...], outputs: tuple[IterVar, ...] = ()) -> None:
        self.kind, self.args, self.outputs = kind, args, outputs
        self.span: Span | None = user_span()


@contextmanager
def _blamed(span: Span | None) -> Iterator[None]:
    """A refusal inside names the line that asked for the step, not the one that lowers the schedule."""
    try:
        yield
    except ScheduleError as err:
        if hasattr(err, "place") and span is not None:
            err.place = span
        raise


class Stage:
    """How one operation is computed. Calls are recorded and carried out when the schedule is lowered."""

    def __init__(self, schedule: Schedule, op: Operation, is_output: bool) -> None:
        self.op = self.origin_op = op
        self.schedule, self.is_output = schedule, is_output
        axes = [*op.axis, *op.reduce_axis] if isinstance(op, BaseComputeOp) else []
        self.root_iter_vars: list[IterVar] = list(axes)
        self.all_iter_vars: list[IterVar] = list(axes)
        self.leaf_iter_vars: list[IterVar] = list(axes)
        self.relations: list[Step] = []
        self.iter_var_attrs: dict[IterVar, str] = {}
        self.scope = ""
        self.group = None
        self.attach: tuple[Stage, IterVar] | None = None
        self.inlined = False
        self.tensorized: list[Step] = []  # axes handed to the hardware
        self.settings: list[Step] = []  # about the buffer that it fills
        self.place: Span | None = None  # where it was said where the stage is computed

    # -- axes ----------------------------------------------------------------------------------
    def _leaf(self, axis: Any, call: str) -> IterVar:
        if not isinstance(axis, IterVar):
            raise ScheduleError(f"s[{self.op.name}].{call}: {axis!r} is no axis\n  at {user_span()}")
        if not any(axis is leaf for leaf in self.leaf_iter_vars):
            names = ", ".join(iv.var.name for iv in self.leaf_iter_vars) or "none"
            why = (
                "it was split or fused" if any(axis is iv for iv in self.all_iter_vars) else "it is another's"
            )
            raise ScheduleError(
                f"s[{self.op.name}].{call}: axis `{axis.var.name}` is not a loop of this stage ({why})\n"
                f"  at {user_span()}\n\n  hint: the loops are {names}"
            )
        return axis

    def _position(self, axis: IterVar) -> int:
        return next(i for i, leaf in enumerate(self.leaf_iter_vars) if leaf is axis)

    def _new_axis(self, name: str, extent: PrimExpr, like: IterVar) -> IterVar:
        made = IterVar(Range.from_min_extent(0, extent), Var(name, like.var.dtype), like.iter_type)
        self.all_iter_vars.append(made)
        return made

    def split(
        self,
        parent: IterVar,
        factor: Any = None,
        nparts: Any = None,
        disable_predication: bool = False,
    ) -> tuple[IterVar, IterVar]:
        """Split an axis by the size of the inner part (`factor`) or by the number of parts (`nparts`)."""
        if (factor is None) == (nparts is None):
            raise ValueError(f"s[{self.op.name}].split takes either factor or nparts, one of both")
        self._leaf(parent, "split")
        size = convert(factor if factor is not None else nparts)
        value = const_value(size)
        if not (size.dtype.is_int or size.dtype.is_uint) or (value is not None and value < 1):
            raise ValueError(
                f"s[{self.op.name}].split: the {'factor' if nparts is None else 'nparts'} is {size}; "
                "it must be a whole number from 1 on"
            )
        whole = parent.dom.extent
        rest = ceildiv(whole, size)
        outer_size, inner_size = (rest, size) if factor is not None else (size, rest)
        outer = self._new_axis(f"{parent.var.name}_outer", outer_size, parent)
        inner = self._new_axis(f"{parent.var.name}_inner", inner_size, parent)
        at = self._position(parent)
        self.leaf_iter_vars[at : at + 1] = [outer, inner]
        factors = [None, size] if factor is not None else [size, None]
        self.relations.append(Step("split", (parent, factors, disable_predication), (outer, inner)))
        return outer, inner

    def fuse(self, *args: IterVar) -> IterVar:
        """Fuse neighbouring axes, outermost first."""
        if len(args) < 1:
            raise ValueError(f"s[{self.op.name}].fuse takes at least one axis")
        for axis in args:
            self._leaf(axis, "fuse")
        first = self._position(args[0])
        for i, axis in enumerate(args):
            if self._position(axis) != first + i:
                raise ScheduleError(
                    f"s[{self.op.name}].fuse: `{axis.var.name}` does not stand directly inside "
                    f"`{args[i - 1].var.name}`\n  at {user_span()}\n\n"
                    "  hint: reorder them to be adjacent, outermost first"
                )
        if len(args) == 1:
            return args[0]
        size: PrimExpr = args[0].dom.extent
        for axis in args[1:]:
            size = mul(size, axis.dom.extent)
        name = "_".join(axis.var.name for axis in args) + "_fused"
        kinds = {axis.iter_type for axis in args}
        if len(kinds) > 1:
            raise ScheduleError(
                f"s[{self.op.name}].fuse: `{args[0].var.name}` is spatial and another one is a reduction; "
                f"only axes of one kind can be fused\n  at {user_span()}"
            )
        fused = self._new_axis(name, size, args[0])
        self.leaf_iter_vars[first : first + len(args)] = [fused]
        self.relations.append(Step("fuse", args, (fused,)))
        return fused

    def reorder(self, *args: IterVar) -> None:
        """Put axes into the given order; those not named keep their places."""
        for axis in args:
            self._leaf(axis, "reorder")
        if len({id(a) for a in args}) != len(args):
            raise ScheduleError(f"s[{self.op.name}].reorder: an axis is named twice\n  at {user_span()}")
        places = sorted(self._position(a) for a in args)
        for place, axis in zip(places, args, strict=True):
            self.leaf_iter_vars[place] = axis
        self.relations.append(Step("reorder", args))

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two axes and put the inner parts inside both outer ones."""
        held = list(self.leaf_iter_vars), list(self.all_iter_vars), list(self.relations)
        try:
            x_outer, x_inner = self.split(x_parent, factor=x_factor)
            y_outer, y_inner = self.split(y_parent, factor=y_factor)
            self.reorder(x_outer, y_outer, x_inner, y_inner)
        except BaseException:  # as a whole or not at all
            self.leaf_iter_vars, self.all_iter_vars, self.relations = held
            raise
        return x_outer, y_outer, x_inner, y_inner

    # -- marks ---------------------------------------------------------------------------------
    def _mark(self, kind: str, axis: IterVar, *more: Any) -> None:
        self._leaf(axis, kind)
        self.relations.append(Step(kind, (axis, *more)))
        self.iter_var_attrs[axis] = kind

    def vectorize(self, var: IterVar) -> None:
        """Run an axis as the lanes of vectors."""
        self._mark("vectorize", var)

    def parallel(self, var: IterVar) -> None:
        """Run an axis on several cores."""
        self._mark("parallel", var)

    def unroll(self, var: IterVar) -> None:
        """Write an axis's iterations one after the other."""
        self._mark("unroll", var)

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Give an axis to the threads of an axis of the GPU."""
        if not isinstance(thread_ivar, IterVar) or not thread_ivar.thread_tag:
            raise ScheduleError(
                f"s[{self.op.name}].bind takes a te.thread_axis, not {thread_ivar!r}\n  at {user_span()}"
            )
        self._mark("bind", ivar, thread_ivar.thread_tag)

    def tensorize(self, var: IterVar, tensor_intrin: TensorIntrin) -> None:
        """Let an instruction of the hardware do an axis and all that is inside it."""
        if not isinstance(tensor_intrin, TensorIntrin):
            raise ScheduleError(
                f"s[{self.op.name}].tensorize takes what te.decl_tensor_intrin gave, not {tensor_intrin!r}"
            )
        self._leaf(var, "tensorize")
        self.tensorized.append(Step("tensorize", (var, tensor_intrin)))
        self.iter_var_attrs[var] = "tensorize"

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Say something about an axis that later stages read, such as auto_unroll_max_step."""
        if pragma_type in ("vectorize", "unroll", "parallel"):
            self._mark(pragma_type, var)
            return
        self._leaf(var, "pragma")
        value = 1 if pragma_value is None else pragma_value
        self.relations.append(Step("annotate", (var, f"pragma_{pragma_type}", value)))

    # -- place ---------------------------------------------------------------------------------
    @property
    def attach_type(self) -> int:
        """1 at the root, 2 inlined, 4 under a loop of another stage."""
        return 2 if self.inlined else 1 if self.attach is None else 4

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute it inside a loop of its consumer."""
        if not isinstance(parent, Stage):
            raise ScheduleError(f"s[{self.op.name}].compute_at takes a stage (s[C]) and one of its loops")
        parent._leaf(scope, "compute_at")
        if self.is_output:
            raise ScheduleError(
                f"s[{self.op.name}].compute_at: {self.op.name} is an output of the schedule, which is "
                f"computed at the root\n  at {user_span()}"
            )
        self.attach, self.inlined, self.place = (parent, scope), False, user_span()

    def compute_inline(self) -> None:
        """Compute its elements where they are read."""
        if self.is_output:
            raise ScheduleError(
                f"s[{self.op.name}].compute_inline: {self.op.name} is an output of the schedule, which must "
                f"be stored\n  at {user_span()}"
            )
        self.attach, self.inlined, self.place = None, True, user_span()

    def prefetch(self, tensor: Tensor, var: IterVar, offset: Any) -> None:
        """Ask for what an axis reads of a tensor `offset` iterations ahead."""
        self._leaf(var, "prefetch")
        ahead = const_value(convert(offset))
        if ahead is None or ahead < 0:
            raise ScheduleError(
                f"s[{self.op.name}].prefetch: the offset must be a number from 0 on, not {offset}"
            )
        self.relations.append(Step("annotate", (var, f"prefetch_{tensor.op.name}", int(ahead))))

    def compute_root(self) -> None:
        """Compute it at the root, where every stage is unless it is attached."""
        self.attach, self.inlined = None, False

    def set_scope(self, scope: str) -> None:
        """Put what it computes into another memory."""
        self.scope = scope
        self.settings.append(Step("set_scope", (0, scope)))

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Let the stride of a dimension be a multiple of `factor`, plus `offset`."""
        found = [i for i, iv in enumerate(self.op.axis) if iv is axis]
        if not found:
            raise ScheduleError(
                f"s[{self.op.name}].storage_align: `{axis.var.name}` is no axis of {self.op.name}"
            )
        self.settings.append(Step("storage_align", (0, found[0], factor, offset)))

    def double_buffer(self) -> None:
        """Fill one copy of its buffer while the other is read."""
        self.settings.append(Step("annotate", ("double_buffer_scope", 0)))

    def rolling_buffer(self) -> None:
        """Keep of what it computes only the window that its consumer still reads."""
        self.settings.append(Step("rolling_buffer", (0,)))

    def transform_layout(self, mapping: Callable[..., Any]) -> list[IterVar]:
        """Lay what it computes out anew, and run over it in that order; gives the new axes."""
        if self.relations:
            raise ScheduleError(
                f"s[{self.op.name}].transform_layout: the stage is scheduled already\n  at {user_span()}\n\n"
                "  hint: call transform_layout first, then split, reorder and mark the new axes"
            )
        if self.op.reduce_axis:
            raise ScheduleError(
                f"s[{self.op.name}].transform_layout: {self.op.name} is a reduction, whose loops cannot follow "
                f"its layout\n  at {user_span()}\n\n  hint: cache_write it, and transform the copy"
            )
        index_map = IndexMap.from_func(mapping, ndim=len(self.op.axis))
        shape = index_map.map_shape([iv.dom.extent for iv in self.op.axis])
        axes = [IterVar(Range(0, d), f"ax{i}", IterVar.DataPar) for i, d in enumerate(shape)]
        self.root_iter_vars, self.all_iter_vars, self.leaf_iter_vars = list(axes), list(axes), list(axes)

        def edit(r: _Replay) -> None:
            r.sch.transform_layout(r.blocks[self], ("write", 0), index_map)
            r.sch.transform_block_layout(r.blocks[self], index_map)

        self.schedule._edits.append((user_span(), edit))
        return axes

    def __getattr__(self, name: str) -> Any:
        if name in _LATER_STAGE:
            return _later(f"s[{self.op.name}].{name}")
        raise AttributeError(f"Stage has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"stage({self.op.name}, {[iv.var.name for iv in self.leaf_iter_vars]})"

    # -- replay --------------------------------------------------------------------------------
    def replay(self, sch: TirSchedule, block: BlockRV, handles: dict[IterVar, LoopRV]) -> None:
        """Carry the recorded calls out on a `tir.Schedule` of the whole program."""
        if self.inlined:
            return
        if self.attach is not None:
            parent, axis = self.attach
            if axis not in handles:
                raise ScheduleError(
                    f"s[{self.op.name}].compute_at: {parent.op.name} has no loops of its own to compute it in "
                    f"(it is inlined, or is computed before {self.op.name})\n  at {self.place}"
                )
            with _blamed(self.place):
                sch.compute_at(block, handles[axis], preserve_unit_loops=True)
            loops = sch.get_loops(block)
            loops = loops[len(loops) - len(self.root_iter_vars) :]
        else:
            loops = sch.get_loops(block)
        handles.update(zip(self.root_iter_vars, loops, strict=False))
        for step in self.relations:
            with _blamed(step.span):
                self._carry_out(sch, step, handles)
        for step in self.settings:
            with _blamed(step.span):
                getattr(sch, step.kind)(block, *step.args)

    def replay_tensorize(self, sch: TirSchedule, handles: dict[IterVar, LoopRV]) -> None:
        """Hand the tensorized axes over, when all loops of all stages are as they should be."""
        for step in self.tensorized:
            axis, intrin = step.args
            with _blamed(step.span):
                tensorize_declared(sch, handles[axis], f"te.{intrin.name}", *intrin.forms())

    def _carry_out(self, sch: TirSchedule, step: Step, handles: dict[IterVar, LoopRV]) -> None:
        if step.kind == "split":
            parent, factors, free = step.args
            names = [iv.var.name for iv in step.outputs]
            made = tir_loops.split(sch, handles[parent], factors, True, free, names)
            handles.update(zip(step.outputs, made, strict=True))
        elif step.kind == "fuse":
            name = step.outputs[0].var.name
            handles[step.outputs[0]] = tir_loops.fuse(sch, *[handles[a] for a in step.args], name=name)
        elif step.kind == "reorder":
            sch.reorder(*[handles[a] for a in step.args])
        elif step.kind == "annotate":
            axis, key, value = step.args
            sch.annotate(handles[axis], key, value)
        else:
            axis, *more = step.args
            getattr(sch, step.kind)(handles[axis], *more)


class Schedule:
    """The stages of the operations behind some outputs."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs = list(outputs)
        self.stages: list[Stage] = [Stage(self, op, op in self.outputs) for op in _post_order(self.outputs)]
        self.stage_map: dict[Operation, Stage] = {s.op: s for s in self.stages}
        self.groups: list[Any] = []
        # Caches and factors, in the order in which they were asked for, and where.
        self._edits: list[tuple[Span | None, Callable[[_Replay], None]]] = []
        self._replayed: TirSchedule | None = None

    def __getitem__(self, tensor: Tensor | Operation) -> Stage:
        op = tensor.op if isinstance(tensor, Tensor) else tensor
        if not isinstance(op, Operation):
            raise TypeError(f"s[…] takes a tensor or an operation, not {tensor!r}")
        found = self.stage_map.get(op)
        if found is None:
            names = ", ".join(s.op.name for s in self.stages)
            raise ScheduleError(f"the schedule has no stage for {op.name}; it has: {names}")
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
        """Copy a tensor into other memory for some of its readers; gives the copy."""
        source = self[tensor] if tensor.op in self.stage_map else None
        if source is None:
            raise ScheduleError(f"the schedule has no stage for {tensor.op.name}")
        given = list(readers) if isinstance(readers, (list, tuple)) else [readers]
        if not given:
            raise ScheduleError(f"cache_read({tensor.op.name}): say who reads the copy, in a list of tensors")
        users = [self[r] for r in given]
        axes = _fresh([IterVar(Range(0, d), f"ax{i}", IterVar.DataPar) for i, d in enumerate(tensor.shape)])
        op = StageOp(f"{tensor.op.name}_{scope.replace('.', '_')}", tensor, axes, (), [tensor])
        stage = self._insert(self.stages.index(source) + 1, op)

        def edit(r: _Replay) -> None:
            blocks = [r.blocks[u] for u in users]
            r.blocks[stage] = r.sch.cache_read(blocks[0], r.buffer_of(source, tensor), scope, blocks)

        self._edits.append((user_span(), edit))
        return op.output(0)

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute a tensor in other memory and copy it from there; gives the tensor there."""
        if isinstance(tensor, (list, tuple)):
            if len(tensor) != 1:
                raise UnsupportedError("cache_write of several tensors at once is not there yet")
            return [self.cache_write(tensor[0], scope)]
        stage = self[tensor]
        old = stage.op
        if not isinstance(old, BaseComputeOp) or old.num_outputs != 1:
            raise ScheduleError(f"cache_write({old.name}): it takes a computed tensor of one output")
        if stage.relations or stage.attach:
            raise ScheduleError(
                f"cache_write({old.name}): its stage is scheduled already\n  at {user_span()}\n\n"
                "  hint: call cache_write first, then schedule both stages"
            )
        name = f"{old.name}_{scope.replace('.', '_')}"
        inner = StageOp(name, tensor, _fresh(old.axis), _fresh(old.reduce_axis), old.input_tensors)
        made = self._insert(self.stages.index(stage), inner)
        stage.op = StageOp(old.name, tensor, old.axis, (), [inner.output(0)])
        stage.root_iter_vars = list(old.axis)
        stage.all_iter_vars, stage.leaf_iter_vars = list(old.axis), list(old.axis)
        self.stage_map[stage.op] = stage

        def edit(r: _Replay) -> None:
            copy = r.sch.cache_write(r.blocks[stage], 0, scope)
            r.blocks[made], r.blocks[stage] = r.blocks[stage], copy

        self._edits.append((user_span(), edit))
        return inner.output(0)

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Let each iteration of a reduction axis reduce into a place of its own; gives that tensor."""
        stage = self[tensor]
        old = stage.op
        stage._leaf(axis, "rfactor")
        if axis.iter_type != IterVar.CommReduce:
            raise ScheduleError(f"rfactor({old.name}): `{axis.var.name}` is not a reduction axis of it")
        _check_reduction_only(stage)
        steps, stage.relations = stage.relations, []
        roots = stage.root_iter_vars
        others = [iv for iv in stage.leaf_iter_vars if iv.iter_type == IterVar.CommReduce and iv is not axis]
        own = IterVar(axis.dom, Var(axis.var.name, axis.var.dtype), IterVar.DataPar)
        spatial, rest = _fresh(old.axis), _fresh(others)
        axes = list(spatial)
        axes.insert(factor_axis if factor_axis >= 0 else factor_axis + len(axes) + 1, own)
        inner = StageOp(f"{old.name}_rf", tensor, axes, rest, old.input_tensors)
        made = self._insert(self.stages.index(stage), inner)
        last = IterVar(axis.dom, Var(f"{axis.var.name}_v", axis.var.dtype), IterVar.CommReduce)
        stage.op = StageOp(old.name, tensor, old.axis, [last], [inner.output(0)])
        stage.root_iter_vars = [*old.axis, last]
        stage.all_iter_vars, stage.leaf_iter_vars = list(stage.root_iter_vars), list(stage.root_iter_vars)
        self.stage_map[stage.op] = stage

        def edit(r: _Replay) -> None:
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
        return inner.output(0)

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
        func, blocks = build_prim_func(args, outputs=outputs, binds=binds, name=name)
        func = func.with_attr("global_symbol", name)
        replay = _Replay(TirSchedule(func), self, blocks)
        for arg, param in zip(args, func.params, strict=False):
            if isinstance(arg, Tensor) and param in func.buffer_map:
                replay.inputs[arg.op] = func.buffer_map[param]
        sch = replay.sch
        for span, edit in self._edits:
            with _blamed(span):
                edit(replay)
        live = [s for s in reversed(self.stages) if s in replay.blocks]
        for stage in live:
            if stage.inlined:
                with _blamed(stage.place):
                    sch.compute_inline(replay.blocks[stage])
        handles: dict[IterVar, LoopRV] = {}
        for stage in live:
            stage.replay(sch, replay.blocks[stage], handles)
        for stage in live:
            stage.replay_tensorize(sch, handles)
        self._replayed = sch
        made = sch.state.func
        assert isinstance(made, PrimFunc)
        return made

    def __getattr__(self, name: str) -> Any:
        if name in _LATER:
            return _later(f"te.Schedule.{name}")
        raise AttributeError(f"Schedule has no attribute {name!r}")


class _Replay:
    """A schedule being carried out: the program so far, and which block is which stage's."""

    def __init__(self, sch: TirSchedule, schedule: Schedule, names: Mapping[Operation, str]) -> None:
        self.sch = sch
        self.blocks: dict[Stage, BlockRV] = {}
        self.inputs: dict[Operation, Buffer] = {}  # names may stand for several
        for stage in schedule.stages:
            name = names.get(stage.origin_op)
            if name is not None and not isinstance(stage.origin_op, (PlaceholderOp, StageOp)):
                self.blocks[stage] = sch.get_block(name)

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
        if any(a.iter_type != IterVar.CommReduce for a in axes):
            names = ", ".join(a.var.name for a in axes)
            raise ScheduleError(
                f"rfactor({stage.op.name}): {step.kind}({names}) comes before it, and the axes that are not "
                f"reduced start anew\n  at {user_span()}\n\n"
                "  hint: split the reduction axis, then rfactor, then schedule both stages"
            )


def _later(what: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"{what} is not there yet; stages have: split, fuse, reorder, tile, vectorize, parallel, unroll, "
            "bind, pragma"
        )

    return call


def _post_order(outputs: Sequence[Operation]) -> list[Operation]:
    """Operations before those that use them, without recursion."""
    out: dict[Operation, None] = {}
    stack: list[tuple[Operation, bool]] = [(op, False) for op in reversed(outputs)]
    while stack:
        op, done = stack.pop()
        if op in out:
            continue
        if done:
            out[op] = None
            continue
        stack.append((op, True))
        stack.extend((t.op, False) for t in reversed(op.input_tensors) if t.op not in out)
    return list(out)


def create_schedule(ops: Any) -> Schedule:
    """A schedule of the operations behind `ops` (operations or tensors), each with its plain loops."""
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
