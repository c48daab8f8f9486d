"""`te.Schedule`: stages that say how each operation is computed, replayed on a `tir.Schedule`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.errors import ScheduleError, UnsupportedError
from ..ir.expr import IterVar, PrimExpr, Range, Var, const_value, convert
from ..ir.function import PrimFunc
from ..ir.ops import ceildiv, mul
from ..ir.span import Span, user_span
from ..ir.stmt import Stmt
from ..tir.schedule import LoopRV
from ..tir.schedule import Schedule as TirSchedule
from ..tir.schedule import loops as tir_loops
from .create_prim_func import build_prim_func
from .tensor import ComputeOp, Operation, PlaceholderOp, Tensor

__all__ = ["InferBound", "Schedule", "ScheduleOps", "SchedulePostProcToPrimFunc", "Stage", "create_schedule"]

_LATER_STAGE = [
    "compute_at",
    "compute_inline",
    "double_buffer",
    "env_threads",
    "prefetch",
    "rolling_buffer",
    "set_scope",
    "set_store_predicate",
    "storage_align",
    "tensorize",
    "transform_layout",
]
_LATER = ["cache_read", "cache_write", "create_group", "rfactor"]


class Step:
    """One line of a schedule: what was called on a stage, with the axes that it takes and gives."""

    __slots__ = ("args", "kind", "outputs", "span")

    def __init__(self, kind: str, args: tuple[Any, ...], outputs: tuple[IterVar, ...] = ()) -> None:
        self.kind, self.args, self.outputs = kind, args, outputs
        self.span: Span | None = user_span()


class Stage:
    """How one operation is computed. Calls are recorded and carried out when the schedule is lowered."""

    def __init__(self, schedule: Schedule, op: Operation, is_output: bool) -> None:
        self.op = self.origin_op = op
        self.schedule, self.is_output = schedule, is_output
        axes = [*op.axis, *op.reduce_axis] if isinstance(op, ComputeOp) else []
        self.all_iter_vars: list[IterVar] = list(axes)
        self.leaf_iter_vars: list[IterVar] = list(axes)
        self.relations: list[Step] = []
        self.iter_var_attrs: dict[IterVar, str] = {}
        self.scope = ""
        self.group = None
        self.attach_type = 1  # at the root, the only place there is yet

    # -- axes ----------------------------------------------------------------------------------
    def _leaf(self, axis: Any, call: str) -> IterVar:
        if not isinstance(axis, IterVar):
            raise ScheduleError(f"s[{self.op.name}].{call}: {axis!r} is no axis")
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
        if value is not None and value < 1:
            raise ValueError(
                f"s[{self.op.name}].split: the {'factor' if nparts is None else 'nparts'} is {value}"
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
                "only axes of one kind can be fused"
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
            raise ScheduleError(f"s[{self.op.name}].reorder: an axis is named twice")
        places = sorted(self._position(a) for a in args)
        for place, axis in zip(places, args, strict=True):
            self.leaf_iter_vars[place] = axis
        self.relations.append(Step("reorder", args))

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two axes and put the inner parts inside both outer ones."""
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
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
            raise ScheduleError(f"s[{self.op.name}].bind takes a te.thread_axis, not {thread_ivar!r}")
        self._mark("bind", ivar, thread_ivar.thread_tag)

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Say something about an axis that later stages read, such as auto_unroll_max_step."""
        if pragma_type in ("vectorize", "unroll", "parallel"):
            self._mark(pragma_type, var)
            return
        self._leaf(var, "pragma")
        value = 1 if pragma_value is None else pragma_value
        self.relations.append(Step("annotate", (var, f"pragma_{pragma_type}", value)))

    def compute_root(self) -> None:
        """Compute it at the root, where every stage is unless it is attached."""

    def __getattr__(self, name: str) -> Any:
        if name in _LATER_STAGE:
            return _later(f"s[{self.op.name}].{name}")
        raise AttributeError(f"Stage has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"stage({self.op.name}, {[iv.var.name for iv in self.leaf_iter_vars]})"

    # -- replay --------------------------------------------------------------------------------
    def replay(self, sch: TirSchedule, block_name: str) -> None:
        """Carry the recorded calls out on a `tir.Schedule` of the whole program."""
        if not self.relations:
            return
        handles = dict(zip(self.all_iter_vars, sch.get_loops(block_name), strict=False))
        for step in self.relations:
            try:
                self._carry_out(sch, step, handles)
            except ScheduleError as err:
                if hasattr(err, "place"):
                    err.place = step.span
                raise

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
        sch = TirSchedule(func)
        for stage in reversed(self.stages):
            if not isinstance(stage.op, PlaceholderOp) and stage.op in blocks:
                stage.replay(sch, blocks[stage.op])
        self._replayed = sch
        made = sch.state.func
        assert isinstance(made, PrimFunc)
        return made

    def __getattr__(self, name: str) -> Any:
        if name in _LATER:
            return _later(f"te.Schedule.{name}")
        raise AttributeError(f"Schedule has no attribute {name!r}")


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
    """A schedule of the operations behind `ops` (operations or tensors) with the plain loops of each stage."""
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
