"""How one operation is computed: a stage of a `te.Schedule`, which records calls and replays them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..ir.errors import ScheduleError
from ..ir.expr import IterVar, PrimExpr, Range, StringImm, Var, const_value, convert, whole
from ..ir.functor import undefined_vars
from ..ir.ops import ceildiv, mul
from ..ir.say_once import say_once
from ..ir.span import Span, user_span
from ..ir.stmt import For
from ..tir.schedule import BlockRV, LoopRV
from ..tir.schedule import Schedule as TirSchedule
from ..tir.schedule import loops as tir_loops
from ..tir.schedule.index_map import IndexMap
from ..tir.schedule.marks import thread_of
from ..tir.schedule.tensorize import tensorize_declared
from .relations import MARKS, Fuse, IterVarAttr, Singleton, Split, Step, follow
from .tensor import BaseComputeOp, ComputeOp, HybridOp, Operation, ScanOp, Tensor, TensorComputeOp
from .tensor_intrin import TensorIntrin

if TYPE_CHECKING:
    from .schedule import Replay, Schedule


class StageOp(ComputeOp):
    """The operation of a stage after cache_read, cache_write or rfactor: what is computed there now."""

    __slots__ = ()
    kind = "te.stage"

    def __init__(self, name: str, like: Operation, axis: Sequence[IterVar], body: Sequence[PrimExpr]) -> None:
        super().__init__(name, like.tag, like.attrs, axis, body)


def fresh_axes(axes: Sequence[IterVar]) -> list[IterVar]:
    return [IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), iv.iter_type) for iv in axes]


@contextmanager
def blamed(span: Span | None) -> Iterator[None]:
    """Let a refusal inside name the line that recorded the step, not the line that lowers the schedule."""
    try:
        yield
    except ScheduleError as err:
        if hasattr(err, "place") and span is not None:
            err.place = span
        raise


class Group:
    """Stages that are computed at one place, except for stages with a place of their own."""

    def __init__(self, schedule: Schedule, stages: Sequence[Stage]) -> None:
        self.schedule, self.stages = schedule, list(stages)
        self.group: Group | None = None
        self.attach: tuple[Stage, IterVar] | None = None
        self.place: Span | None = None

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute all stages of the group inside the loop `scope` of their consumer `parent`."""
        if not isinstance(parent, Stage):
            raise ScheduleError(
                f"a group's compute_at takes a stage (s[C]) and one of its loops\n  at {user_span()}"
            )
        parent._leaf(scope, "compute_at")
        if parent in self.stages:
            raise ScheduleError(
                f"{self!r}.compute_at: {parent.op.name} is itself in the group\n  at {user_span()}"
            )
        self.attach, self.place = (parent, scope), user_span()

    @property
    def attach_stage(self) -> Stage | None:
        """The stage in whose loops the group is computed."""
        return None if self.attach is None else self.attach[0]

    @property
    def attach_ivar(self) -> IterVar | None:
        """The loop that the group is computed in."""
        return None if self.attach is None else self.attach[1]

    @property
    def num_child_stages(self) -> int:
        """How many stages and groups stand directly in the group."""
        groups = sum(g.group is self for g in self.schedule.groups)
        return groups + sum(s.group is self for s in self.stages)

    def compute_root(self) -> None:
        """Compute all stages of the group at the root."""
        self.attach = None

    def __repr__(self) -> str:
        return f"group({', '.join(s.op.name for s in self.stages)})"


class Stage:
    """The schedule of one operation. Calls are recorded, and applied when the schedule is lowered."""

    def __init__(self, schedule: Schedule, op: Operation, is_output: bool) -> None:
        self.op = self.origin_op = op
        self.schedule, self.is_output = schedule, is_output
        axes = [*op.axis, *op.reduce_axis] if isinstance(op, (BaseComputeOp, HybridOp)) else []
        if isinstance(op, ScanOp):
            axes = [op.scan_axis]
        if isinstance(op, TensorComputeOp):
            axes = [*op.axis[: op.schedulable_ndim], *op.reduce_axis]
        # The axes that are loops inside of the block: they stay as they are.
        self.inner: tuple[IterVar, ...] = op.inner_axis if isinstance(op, BaseComputeOp) else ()
        self.root_iter_vars: list[IterVar] = list(axes)
        self.all_iter_vars: list[IterVar] = list(axes)
        self.leaf_iter_vars: list[IterVar] = list(axes)
        self.steps: list[Step] = []
        self.iter_var_attrs: dict[IterVar, IterVarAttr] = {}
        self.scope = ""
        self.group: Group | None = None
        self.env: list[IterVar] = []  # the thread axes around a scan
        self.store_predicate: tuple[PrimExpr, Span | None] | None = None
        self.attach: tuple[Stage, IterVar] | None = None
        self.inlined = False
        self.at_root = False  # whether compute_root was called
        self.tensorized: list[Step] = []  # axes handed to the hardware
        self.settings: list[Step] = []  # about the buffer that it fills
        self.place: Span | None = None  # where it was said where the stage is computed
        self.inner_placed: Span | None = None  # where inner axes were last reordered

    @property
    def relations(self) -> list[Step]:
        """How its axes came from others: the splits and fusions, in order."""
        return [step for step in self.steps if isinstance(step, (Split, Fuse, Singleton))]

    # -- axes ----------------------------------------------------------------------------------
    def _leaf(self, axis: Any, call: str) -> IterVar:
        if not isinstance(axis, IterVar):
            raise ScheduleError(f"s[{self.op.name}].{call}: {axis!r} is not an axis\n  at {user_span()}")
        if not any(axis is leaf for leaf in self.leaf_iter_vars):
            names = ", ".join(iv.var.name for iv in self.leaf_iter_vars) or "none"
            why = (
                "it was split or fused" if any(axis is iv for iv in self.all_iter_vars) else "it is another's"
            )
            raise ScheduleError(
                f"s[{self.op.name}].{call}: axis `{axis.var.name}` is not a loop of this stage ({why})\n"
                f"  at {user_span()}\n\n  hint: the loops are {names}"
            )
        if call != "reorder" and self._stays(axis):
            raise ScheduleError(
                f"s[{self.op.name}].{call}: the range of reduction axis `{self.inner[0].var.name}` depends on the "
                f"point, so the loop over `{axis.var.name}` stays as it is\n  at {user_span()}\n\n"
                "  hint: split, bind and mark the other axes"
            )
        return axis

    def _stays(self, axis: IterVar) -> bool:
        return any(axis is iv for iv in self.inner)

    @property
    def _roots(self) -> list[IterVar]:
        """The axes that are loops around the block."""
        return [iv for iv in self.root_iter_vars if not self._stays(iv)]

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
        """Split an axis into (outer, inner), by the extent of the inner axis (`factor`) or of the outer one (`nparts`).

        `disable_predication` omits the predicate; the factor must then divide the extent.
        """
        if (factor is None) == (nparts is None):
            raise ValueError(f"s[{self.op.name}].split takes exactly one of factor and nparts")
        self._leaf(parent, "split")
        size = convert(whole(factor if factor is not None else nparts))
        value = const_value(size)
        if not (size.dtype.is_int or size.dtype.is_uint) or (value is not None and value < 1):
            raise ValueError(
                f"s[{self.op.name}].split: the {'factor' if nparts is None else 'nparts'} is {size}; "
                "it must be a whole number from 1 on"
            )
        rest = ceildiv(parent.dom.extent, size)
        outer_size, inner_size = (rest, size) if factor is not None else (size, rest)
        outer = self._new_axis(f"{parent.var.name}_outer", outer_size, parent)
        inner = self._new_axis(f"{parent.var.name}_inner", inner_size, parent)
        at = self._position(parent)
        self.leaf_iter_vars[at : at + 1] = [outer, inner]
        factors = [None, size] if factor is not None else [size, None]
        self.steps.append(Split(parent, factors, disable_predication, (outer, inner)))
        return outer, inner

    def fuse(self, *args: IterVar) -> IterVar:
        """Fuse neighbouring axes, outermost first; of no axes, make one of extent 1 around all others."""
        for axis in args:
            self._leaf(axis, "fuse")
        if not args:
            return self._singleton()
        first = self._position(args[0])
        for i, axis in enumerate(args):
            if self._position(axis) != first + i:
                raise ScheduleError(
                    f"s[{self.op.name}].fuse: `{axis.var.name}` is not directly inside "
                    f"`{args[i - 1].var.name}`\n  at {user_span()}\n\n"
                    "  hint: reorder them to be adjacent, outermost first"
                )
        if len(args) == 1:
            return args[0]
        size: PrimExpr = args[0].dom.extent
        for axis in args[1:]:
            size = mul(size, axis.dom.extent)
        name = "_".join(axis.var.name for axis in args) + "_fused"
        # A reduction goes on in every part of a fused axis.
        kind = max(args, key=lambda axis: axis.iter_type)
        fused = self._new_axis(name, size, kind)
        self.leaf_iter_vars[first : first + len(args)] = [fused]
        self.steps.append(Fuse(args, fused))
        return fused

    def _singleton(self) -> IterVar:
        made = IterVar(Range.from_min_extent(0, 1), Var("singleton", "int32"), IterVar.DataPar)
        self.all_iter_vars.append(made)
        self.leaf_iter_vars.insert(0, made)
        self.steps.append(Singleton(made))
        return made

    def reorder(self, *args: IterVar) -> None:
        """Put axes into the given order; those not named keep their places."""
        for axis in args:
            self._leaf(axis, "reorder")
        if len({id(a) for a in args}) != len(args):
            raise ScheduleError(f"s[{self.op.name}].reorder: an axis is named twice\n  at {user_span()}")
        places = sorted(self._position(a) for a in args)
        for place, axis in zip(places, args, strict=True):
            self.leaf_iter_vars[place] = axis
        around = tuple(a for a in args if not self._stays(a))
        if around:
            self.steps.append(Step("reorder", around))
        if len(around) != len(args):
            self.inner_placed = user_span()

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two axes by their factors and reorder them to (x_outer, y_outer, x_inner, y_inner)."""
        held = list(self.leaf_iter_vars), list(self.all_iter_vars), list(self.steps)
        try:
            x_outer, x_inner = self.split(x_parent, factor=x_factor)
            y_outer, y_inner = self.split(y_parent, factor=y_factor)
            self.reorder(x_outer, y_outer, x_inner, y_inner)
        except BaseException:  # as a whole or not at all
            self.leaf_iter_vars, self.all_iter_vars, self.steps = held
            raise
        return x_outer, y_outer, x_inner, y_inner

    # -- marks ---------------------------------------------------------------------------------
    def _mark(self, kind: str, axis: IterVar, *more: Any) -> None:
        self._leaf(axis, kind)
        self.steps.append(Step(kind, (axis, *more)))
        self._attr(axis).iter_type = MARKS.get(kind, self._attr(axis).iter_type)

    def _attr(self, axis: IterVar) -> IterVarAttr:
        return self.iter_var_attrs.setdefault(axis, IterVarAttr())

    def vectorize(self, var: IterVar) -> None:
        """Run an axis as the lanes of vectors."""
        if isinstance(var, IterVar) and var.iter_type == IterVar.CommReduce:
            raise ScheduleError(
                f"s[{self.op.name}].vectorize: {var.var.name} is a reduction axis, whose steps add to one element; "
                f"split it and rfactor the inner part, whose loop can be vectorized\n  at {user_span()}"
            )
        self._mark("vectorize", var)

    def parallel(self, var: IterVar) -> None:
        """Run an axis on several cores."""
        self._mark("parallel", var)

    def unroll(self, var: IterVar) -> None:
        """Unroll an axis: repeat its body for each iteration."""
        self._mark("unroll", var)

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Bind an axis to the GPU threads of `thread_ivar`, a `te.thread_axis`."""
        if not isinstance(thread_ivar, IterVar) or not thread_ivar.thread_tag:
            raise ScheduleError(
                f"s[{self.op.name}].bind takes a te.thread_axis, not {thread_ivar!r}\n  at {user_span()}"
            )
        self._mark("bind", ivar, thread_ivar.thread_tag)
        self._attr(ivar).bind_thread = thread_ivar
        self.schedule.threads[thread_ivar.var] = thread_ivar

    def env_threads(self, threads: Any) -> None:
        """Launch the threads of some axes once around all steps of a scan; its stages bind loops to them."""
        given = list(threads) if isinstance(threads, (list, tuple)) else [threads]
        if not isinstance(self.op, ScanOp):
            raise ScheduleError(
                f"s[{self.op.name}].env_threads: {self.op.name} is not a scan, and only the steps of a scan can "
                f"share a launch of threads\n  at {user_span()}\n\n  hint: bind its loops"
            )
        for axis in given:
            if not isinstance(axis, IterVar) or not axis.thread_tag:
                raise ScheduleError(
                    f"s[{self.op.name}].env_threads takes te.thread_axis axes, not {axis!r}\n  at {user_span()}"
                )
        self.env, self.place = given, user_span()

    def set_store_predicate(self, predicate: Any) -> None:
        """Select the thread that stores the result of a cross-thread reduction: `thread_x.var.equal(0)`."""
        self.store_predicate = (convert(predicate), user_span())

    def tensorize(self, var: IterVar, tensor_intrin: TensorIntrin) -> None:
        """Replace an axis and everything inside it by a hardware instruction, from `te.decl_tensor_intrin`.

        A later call for the same axis takes the place of an earlier one.
        """
        if not isinstance(tensor_intrin, TensorIntrin):
            raise ScheduleError(
                f"s[{self.op.name}].tensorize takes the result of te.decl_tensor_intrin, not {tensor_intrin!r}"
            )
        self._leaf(var, "tensorize")
        self.tensorized = [step for step in self.tensorized if step.args[0] is not var]
        self.tensorized.append(Step("tensorize", (var, tensor_intrin)))
        attr = self._attr(var)
        attr.iter_type, attr.tensor_intrin = MARKS["tensorize"], tensor_intrin

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Annotate an axis for lowering, such as with auto_unroll_max_step; `pragma_value` is 1 by default."""
        if pragma_type in ("vectorize", "unroll", "parallel"):
            self._mark(pragma_type, var)
            return
        self._leaf(var, "pragma")
        value = 1 if pragma_value is None else pragma_value
        self.steps.append(Step("annotate", (var, f"pragma_{pragma_type}", value)))
        attr = self._attr(var)
        attr.pragma_keys.append(StringImm(pragma_type))
        attr.pragma_values.append(value)

    # -- place ---------------------------------------------------------------------------------
    @property
    def attach_type(self) -> int:
        """1 at the root, 2 inlined, 4 under a loop of another stage."""
        return 2 if self.inlined else 1 if self.attach is None else 4

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute the stage inside the loop `scope` of its consumer `parent`."""
        if not isinstance(parent, Stage):
            raise ScheduleError(
                f"s[{self.op.name}].compute_at takes a stage (s[C]) and one of its loops\n  at {user_span()}"
            )
        parent._leaf(scope, "compute_at")
        if self.is_output:
            raise ScheduleError(
                f"s[{self.op.name}].compute_at: {self.op.name} is an output of the schedule, which is "
                f"computed at the root\n  at {user_span()}"
            )
        self.attach, self.inlined, self.place = (parent, scope), False, user_span()

    def compute_inline(self) -> None:
        """Inline the stage: its expression replaces every read of it."""
        if self.is_output:
            raise ScheduleError(
                f"s[{self.op.name}].compute_inline: {self.op.name} is an output of the schedule, which must "
                f"be stored\n  at {user_span()}"
            )
        self.attach, self.inlined, self.place = None, True, user_span()

    def prefetch(self, tensor: Tensor, var: IterVar, offset: Any) -> None:
        """Prefetch the elements of a tensor that the axis `var` reads `offset` iterations later."""
        self._leaf(var, "prefetch")
        ahead = const_value(convert(offset))
        if ahead is None or ahead < 0:
            raise ScheduleError(
                f"s[{self.op.name}].prefetch: the offset must be 0 or greater, not {offset}\n  at {user_span()}"
            )
        self.steps.append(Step("annotate", (var, f"prefetch_{tensor.op.name}", int(ahead))))

    def attached(self) -> tuple[Stage, IterVar] | None:
        """The stage and loop at which this stage is computed: its own, else those of its group."""
        group, found = self.group, self.attach
        while group is not None and found is None and not self.at_root:
            if group.attach is not None:
                self.place = self.place or group.place
                found = group.attach
            group = group.group
        if found is None:
            return None
        parent, axis = found
        if any(axis is leaf for leaf in parent.leaf_iter_vars):
            return found
        return parent, follow(axis, parent.steps)

    @property
    def attach_stage(self) -> Stage | None:
        """The stage in whose loops this one is computed."""
        found = self.attached()
        return None if found is None else found[0]

    @property
    def attach_ivar(self) -> IterVar | None:
        """The loop that this stage is computed in."""
        found = self.attached()
        return None if found is None else found[1]

    def compute_root(self) -> None:
        """Compute the stage at the root, the default, in a loop nest of its own."""
        self.attach, self.inlined, self.at_root = None, False, True

    def set_scope(self, scope: str) -> None:
        """Store the result of the stage in memory of `scope`, such as "shared" or "local"."""
        self.scope = scope
        self.settings.append(Step("set_scope", (0, scope)))

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Pad the stride of the dimension of `axis` to k * `factor` + `offset` elements."""
        found = [i for i, iv in enumerate(self.op.axis) if iv is axis]
        if not found:
            raise ScheduleError(
                f"s[{self.op.name}].storage_align: `{axis.var.name}` is not an axis of {self.op.name}"
            )
        self.settings.append(Step("storage_align", (0, found[0], factor, offset)))

    def double_buffer(self) -> None:
        """Double-buffer the stage: fill one copy of its buffer while the other is read."""
        self.settings.append(Step("annotate", ("double_buffer_scope", 0)))

    def rolling_buffer(self) -> None:
        """Keep only the window of the result that its consumer still reads, in a circular buffer."""
        self.settings.append(Step("rolling_buffer", (0,)))

    def transform_layout(self, mapping: Callable[..., Any]) -> list[IterVar]:
        """Change the layout of the result, and the loops with it, to `mapping(*indices)`; return the new axes."""
        if self.steps:
            raise ScheduleError(
                f"s[{self.op.name}].transform_layout: the stage already has a schedule\n  at {user_span()}\n\n"
                "  hint: call transform_layout first, then split, reorder and mark the new axes"
            )
        old = self.op.output(0).shape
        index_map, separators = IndexMap.from_func_with_separators(mapping, ndim=len(old))
        axes = [
            IterVar(Range(0, d), f"ax{i}", IterVar.DataPar)
            for i, d in enumerate(index_map.map_shape(list(old)))
        ]
        reduced = list(self.op.reduce_axis)
        if isinstance(self.op, BaseComputeOp):
            self.root_iter_vars, self.all_iter_vars = [*axes, *reduced], [*axes, *reduced]
            self.leaf_iter_vars = [*axes, *reduced]

        def edit(r: Replay) -> None:
            block, buffer = r.holder(self)
            r.sch.transform_layout(block, buffer, index_map)
            if separators:
                r.sch.set_axis_separator(block, buffer, separators)
            if self in r.blocks:
                relayout_loops(r, self, index_map, len(reduced) - len(self.inner))

        self.schedule._edits.append((user_span(), edit))
        return axes

    def __repr__(self) -> str:
        return f"stage({self.op.name}, {[iv.var.name for iv in self.leaf_iter_vars]})"

    # -- replay --------------------------------------------------------------------------------
    def replay(self, sch: TirSchedule, block: BlockRV, handles: dict[IterVar, LoopRV]) -> None:
        """Apply the recorded calls to a `tir.Schedule` of the whole program."""
        if self.inlined:
            return
        attach = self.attached()
        if attach is not None:
            parent, axis = attach
            axis = parent.loop_of(axis)
            if axis not in handles:
                raise ScheduleError(
                    f"s[{self.op.name}].compute_at: {parent.op.name} has no loops of its own to compute it in "
                    f"(it is inlined, or is computed before {self.op.name})\n  at {self.place}"
                )
            with blamed(self.place):
                self._choose_memory(sch, block, handles[axis])
                sch.compute_at(block, handles[axis], preserve_unit_loops=True)
            loops = sch.get_loops(block)
            loops = loops[len(loops) - len(self._roots) :]
        else:
            loops = sch.get_loops(block)
        handles.update(zip(self._roots, loops, strict=False))
        self._note_bounds(sch, self._roots, handles)
        self._check_inner()
        for step in self.steps:
            with self._shown_without(step.kind not in ("split", "fuse")), blamed(step.span):
                if isinstance(step, Singleton):
                    own = sch.get_loops(block)[-len(self._roots) :] if self._roots else []
                    handles[step.iter] = sch.add_unit_loop(own[0] if own else block)
                else:
                    self._carry_out(sch, step, handles)
            self._note_bounds(sch, step.outputs, handles)
        for step in self.settings:
            with blamed(step.span):
                getattr(sch, step.kind)(block, *step.args)

    @contextmanager
    def _shown_without(self, optional: bool = True) -> Iterator[None]:
        """Leave out a refused step, with a warning, where the schedule is only shown."""
        try:
            yield
        except ScheduleError as error:
            if not (optional and self.schedule.only_shown):
                raise
            why = str(error).strip().partition("\n")[0]
            say_once(f"the schedule is shown without a step that is refused: {why}", UserWarning)

    def _check_inner(self) -> None:
        """Refuse an order in which a loop stands inside of one that stays in the block, unless their order makes no
        difference: the lanes of a vector, or threads."""
        at = next((k for k, iv in enumerate(self.leaf_iter_vars) if self._stays(iv)), None)
        if at is None:
            return
        inside = [iv for iv in self.leaf_iter_vars[at:] if not self._stays(iv)]
        kept = [iv for iv in self.leaf_iter_vars if self._stays(iv)]
        for iv in inside:
            mark = self.iter_var_attrs.get(iv)
            if mark is None or (mark.iter_type != IterVar.Vectorized and mark.bind_thread is None):
                raise ScheduleError(
                    f"s[{self.op.name}].reorder: axis `{iv.var.name}` stands inside of `{kept[0].var.name}`, whose "
                    f"range depends on the point, and is neither vectorized nor bound to threads\n"
                    f"  at {self.inner_placed}\n\n  hint: vectorize it, or put it outside"
                )
        if any(a is not b for a, b in zip(kept, self.inner, strict=True)):
            names = ", ".join(iv.var.name for iv in self.inner)
            raise ScheduleError(
                f"s[{self.op.name}].reorder: the axes {names} keep their order, since the range of one depends on "
                f"the point\n  at {self.inner_placed}"
            )

    def _note_bounds(self, sch: TirSchedule, axes: Sequence[IterVar], handles: dict[IterVar, LoopRV]) -> None:
        """Keep the ranges of axes for `InferBound`, before other steps take their loops away."""
        for iv in axes:
            if iv in handles:
                loop = sch.loop(handles[iv])
                self.schedule.bounds[iv] = (loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    def loop_of(self, axis: IterVar) -> IterVar:
        """The loop that stands for an axis where another stage is computed: of a split axis the inner loop, and of axes
        that were fused after it the fused loop, if it was the innermost of them."""
        for step in self.relations:
            if step.kind == "split" and step.args[0] is axis:
                axis = step.outputs[1]
            elif step.kind == "fuse" and step.args[-1] is axis:
                axis = step.outputs[0]
        return axis

    def _choose_memory(self, sch: TirSchedule, block: BlockRV, loop: LoopRV) -> None:
        """Choose the scope of a stage inside loops bound to threads, unless it was set: private memory of each thread,
        or shared memory if several threads fill it together."""
        n = sch.loop(loop)
        tags = [thread_of(x) for x in (n, *sch.state.index.ancestors(n)) if isinstance(x, For)]
        own = [step.args[1] for step in self.steps if step.kind == "bind"]
        if self.scope or not any(t.startswith(("threadIdx", "blockIdx")) for t in tags):
            return
        alone = any(t.startswith("threadIdx") for t in tags) and not any(
            t.startswith("threadIdx") for t in own
        )
        for i in range(len(sch.get(block).writes)):
            sch.set_scope(block, i, "local" if alone else "shared")

    def replay_tensorize(self, sch: TirSchedule, handles: dict[IterVar, LoopRV]) -> None:
        """Tensorize the marked axes, after the loops of all stages are in their final form."""
        for step in self.tensorized:
            axis, intrin = step.args
            with self._shown_without(), blamed(step.span):
                tensorize_declared(sch, handles[axis], f"te.{intrin.name}", *intrin.forms())

    def replay_env(self, sch: TirSchedule, handles: dict[IterVar, LoopRV]) -> None:
        """Open the thread axes around the steps of a scan."""
        assert isinstance(self.op, ScanOp)
        for axis in reversed(self.env):
            size = None if axis.dom is None else axis.dom.extent
            with blamed(self.place):
                made = sch.launch_around(handles[self.op.scan_axis], axis.thread_tag, size)
            handles.setdefault(axis, made)

    def check_store(self) -> None:
        """Refuse a store predicate that is not about threads that share a result."""
        if self.store_predicate is not None:
            with self._shown_without():
                self._check_store()

    def _check_store(self) -> None:
        assert self.store_predicate is not None
        predicate, span = self.store_predicate
        known = self.schedule.threads
        used = [v for v in undefined_vars(predicate) if v not in known]
        if used:
            names = ", ".join(f"{v.name} ({a.thread_tag})" for v, a in known.items())
            hint = f"the axes are {names}" if known else "bind a loop to a thread axis first; none is bound"
            raise ScheduleError(
                f"s[{self.op.name}].set_store_predicate: `{used[0].name}` is not a thread axis that a loop is bound "
                f"to\n  at {span}\n\n  hint: {hint}"
            )
        tags = {known[v].thread_tag for v in undefined_vars(predicate)}
        for step in self.steps:
            if step.kind == "bind" and step.args[1] in tags and step.args[0].iter_type != IterVar.CommReduce:
                raise ScheduleError(
                    f"s[{self.op.name}].set_store_predicate: each thread of {step.args[1]} stores elements of its "
                    f"own (loop `{step.args[0].var.name}`), and where `{predicate}` does not hold they would be "
                    f"missing\n  at {span}\n\n  hint: it is for axes that {self.op.name} is reduced over"
                )

    def _carry_out(self, sch: TirSchedule, step: Step, handles: dict[IterVar, LoopRV]) -> None:
        if step.kind == "split":
            parent, factors, free = step.args
            names = [iv.var.name for iv in step.outputs]
            made = tir_loops.split(sch, handles[parent], factors, disable_predication=free, names=names)
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


def relayout_loops(r: Replay, stage: Stage, index_map: IndexMap, reduced: int) -> None:
    """Run the spatial loops of a stage in the order of another layout."""
    count = len(index_map.initial_indices)

    def with_reduced(*at: Any) -> list[Any]:
        return [*index_map.map_indices(list(at[:count])), *at[count:]]

    loops = IndexMap.from_func(with_reduced, ndim=count + reduced) if reduced else index_map
    r.sch.transform_block_layout(r.blocks[stage], loops)
