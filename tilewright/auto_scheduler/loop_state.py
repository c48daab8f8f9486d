"""States: a program and its schedule.

A state from `dag.get_init_state()` is scheduled by hand, with the methods below, which work on a te.Schedule. A state
of the search has its schedule in `state.schedule`, a tir.Schedule, and refuses these methods.

    s = dag.get_init_state()
    i0, i1 = s.split(C, s[C].iters[0], [8])
    s.reorder(C, [i0, s[C].iters[2], i1, …])
    s.vectorize(C, s[C].iters[-1])
    sch, args = dag.apply_steps_from_state(s)
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..forks import cached_property
from ..ir.equal import structural_equal
from ..ir.errors import ScheduleError, UnsupportedError
from ..ir.expr import IterVar, Range, const_value
from ..ir.functor import pre_order
from ..ir.stmt import Block, BlockRealize, For, ForKind, SeqStmt
from ..runtime.registry import get_global_func
from ..te.operation import thread_axis
from ..te.schedule import Schedule as TeSchedule
from ..te.schedule import create_schedule
from ..te.stage import Stage as TeStage
from ..te.tensor import BaseComputeOp, Operation, PlaceholderOp, Tensor
from ..tir.schedule import Schedule
from ..tir.schedule.sampling import divisors

if TYPE_CHECKING:
    from .compute_dag import ComputeDAG


@dataclass(frozen=True)
class Iterator:
    """A loop of a stage. `range` is None if its extent is undecided."""

    name: str
    range: Range | None
    annotation: int = 0
    iter_kind: int = 0  # 1 for a reduction
    axis: Any = None  # the IterVar of the te.Schedule

    def __repr__(self) -> str:
        extent = "None" if self.range is None else f"{self.range.min},{self.range.extent}"
        return f"{self.name} ({extent})"


@dataclass(frozen=True)
class Stage:
    """An operation and its loops."""

    op: Any
    iters: list[Iterator]
    compute_at: int = 0  # 0: at the root, 1: inlined, 2: inside a loop of another stage

    @property
    def op_type(self) -> str:
        return "placeholder" if isinstance(self.op, PlaceholderOp) else "compute"


@dataclass(frozen=True)
class Step:
    """A call of a method: its name, the number of the stage, the numbers of the loops, and further arguments."""

    kind: str
    stage: int
    iters: tuple[int, ...] = ()
    more: tuple[Any, ...] = ()


class State:
    """A program and its schedule, made by hand or by the search."""

    ANNOTATION_TRANS_TABLE: dict[str, int] = {
        "none": 0, "unroll": 1, "vectorize": 2, "parallel": 3, "vthread": 4, "blockIdx.x": 5, "threadIdx.x": 6,
        "blockIdx.y": 7, "threadIdx.y": 8, "blockIdx.z": 9, "threadIdx.z": 10, "tensorize": 11,
    }  # fmt: skip

    compute_dag: ComputeDAG
    origin: tuple[str, Any] | None
    transform_steps: list[Step]

    def __init__(self, state_object: State, dag: ComputeDAG | None = None) -> None:
        """A copy of a state."""
        self._set(dag or state_object.compute_dag, state_object._find, state_object.origin)
        if state_object._te is not None:
            self._fresh()
            for step in state_object.transform_steps:
                self._do(step)
            self._known.update(state_object._known)

    def _set(
        self, dag: ComputeDAG, find: Callable[[], Schedule] | None, origin: tuple[str, Any] | None
    ) -> None:
        self.compute_dag, self._find, self.origin = dag, find, origin
        self.transform_steps = []
        self._te: TeSchedule | None = None
        self._order: list[TeStage] = []  # the stages, as steps number them
        self._names: dict[IterVar, str] = {}
        self._open: set[IterVar] = set()  # loops with undecided extents
        self._marks: dict[IterVar, str] = {}
        self._known: dict[Operation, int] = {}  # numbers of stages
        self._refused: list[ScheduleError] = []  # steps that can be recorded, but not applied
        self._ranges: dict[
            IterVar, Range
        ] = {}  # inferred ranges of loops of stages that are computed at others

    @staticmethod
    def begin(dag: ComputeDAG) -> State:
        """A state without steps."""
        if not dag.tensors:
            raise UnsupportedError(
                "a program without tensors cannot be scheduled by hand as a State; use tir.Schedule(dag.mod)"
            )
        made = State.found(dag, None)
        made._fresh()
        return made

    @staticmethod
    def found(
        dag: ComputeDAG, find: Callable[[], Schedule] | None, origin: tuple[str, Any] | None = None
    ) -> State:
        """A state of the search: `find` makes its schedule on demand, and `origin` is the candidate of the engine
        (its decisions, or the steps of a trace)."""
        made = object.__new__(State)
        made._set(dag, find, origin)
        return made

    @staticmethod
    def replayed(dag: ComputeDAG, steps: Iterable[Step]) -> State:
        """The state after some steps."""
        made = State.begin(dag)
        for number, step in enumerate(steps):
            try:
                made._do(step)
            except IndexError:
                raise ScheduleError(
                    f"step {number}, {step.kind} of stage {step.stage}, names a stage or a loop that the program does "
                    "not have"
                ) from None
        return made

    def _fresh(self) -> None:
        self._te = create_schedule(self.compute_dag.outputs)
        self._order = [self._te.stage_map[op] for op in self.compute_dag.ops]
        for stage in self._order:
            self._names |= {iv: iv.var.name for iv in stage.leaf_iter_vars}
        self._known |= {stage.op: i for i, stage in enumerate(self._order)}

    def copy(self) -> State:
        """An independent copy of the state."""
        return State(self)

    @property
    def state_object(self) -> State:
        """The state itself, as there is no other object behind it."""
        return self

    @property
    def candidate(self) -> tuple[str, Any]:
        """The candidate of the engine: ("decisions", …), ("trace", …) or ("program", …)."""
        if self.origin is not None:
            return self.origin
        sch = self.schedule
        try:
            return "trace", sch.trace.as_json()
        except ScheduleError:  # a step contains an expression of this program
            return "program", sch.mod

    # -- queries ---------------------------------------------------------------------------------
    @property
    def by_hand(self) -> bool:
        """Whether it can be scheduled by hand."""
        return self._te is not None

    @property
    def concrete(self) -> bool:
        """Whether all extents are decided."""
        return all(None not in _lengths(s) for s in self.transform_steps)

    @property
    def stages(self) -> list[Stage]:
        """All stages with their current loops."""
        if self._te is None:
            return _stages_of(self.schedule)
        return [self._stage(s) for s in self._order]

    @property
    def stage_ops(self) -> list[Any]:
        """The operations of the stages."""
        return [s.op for s in self.stages]

    def _stage(self, stage: TeStage) -> Stage:
        placed = _INLINED if stage.inlined else 0 if stage.attach is None else _INSIDE
        iters = [
            Iterator(
                self._names[iv],
                None if iv in self._open else self._ranges.get(iv, iv.dom),
                self.ANNOTATION_TRANS_TABLE.get(self._marks.get(iv, "none"), 0),
                int(iv.iter_type == IterVar.CommReduce),
                iv,
            )
            for iv in stage.leaf_iter_vars
        ]
        return Stage(stage.op, iters, placed)

    def __getitem__(self, key: Any) -> Stage:
        if self._te is None:
            stages = self.stages
            return stages[key if isinstance(key, int) else self._by_name(key, stages)]
        return self._stage(self._order[self._number(key)])

    def _by_name(self, key: Any, stages: list[Stage]) -> int:
        name = (
            key.op.name if isinstance(key, Tensor) else key.name if isinstance(key, Operation) else str(key)
        )
        found = [i for i, s in enumerate(stages) if s.op.name == name]
        if not found:
            raise ValueError(f"the state has no stage {name}; it has {', '.join(s.op.name for s in stages)}")
        return found[0]

    def _number(self, key: Any) -> int:
        """The number of a stage, by its tensor, operation or number."""
        te = self._editable()
        if isinstance(key, int):
            if not -len(self._order) <= key < len(self._order):
                raise ValueError(f"there is no stage {key}; there are {len(self._order)}")
            return key % len(self._order)
        op = key.op if isinstance(key, Tensor) else key
        if op in te.stage_map:
            return self._order.index(te.stage_map[op])
        if op in self._known:
            return self._known[op]
        raise ValueError(f"the state has no stage for {getattr(op, 'name', op)!r}")

    def _editable(self) -> TeSchedule:
        if self._te is None:
            raise UnsupportedError(
                "this state was found by the search and cannot be scheduled by hand; state.schedule is its "
                "tir.Schedule, which can"
            )
        return self._te

    # -- results -------------------------------------------------------------------------------------
    def applied(self) -> Any:
        """The schedule to lower and build: a new te.Schedule if it was made by hand, else a tir.Schedule."""
        if self._te is None:
            return self.schedule
        self._check_concrete()
        return self.copy()._te

    @cached_property
    def _found_schedule(self) -> Schedule:
        assert self._find is not None
        return self._find()

    @property
    def schedule(self) -> Schedule:
        """The tir.Schedule of the state."""
        if self._te is None:
            return self._found_schedule
        self._check_concrete()
        te = self._te
        te.to_prim_func(self.compute_dag.tensors)
        assert te._replayed is not None
        return te._replayed

    def bounded(self) -> State:
        """The state with inferred extents for stages that are computed at other stages."""
        made = self.copy()
        if made._te is None or not made.concrete or made._refused:
            return made
        sch = made.schedule.copy()
        blocks = {r.block.name_hint for r in sch.state.index.order}
        for stage in made._te.stages:
            if stage.attach is None or stage.op is not stage.origin_op or stage.op.name not in blocks:
                continue
            own = stage.leaf_iter_vars
            loops = sch.get_loops(sch.get_block(stage.op.name))[-len(own) :]
            made._ranges |= {
                iv: Range.from_min_extent(0, sch.loop(loop).extent)
                for iv, loop in zip(own, loops, strict=True)
            }
        return made

    def _check_concrete(self) -> None:
        if not self.concrete:
            raise ScheduleError(
                "extents of this state are undecided (a split by None); split by numbers, or let the search sample them"
            )
        if self._refused:
            raise self._refused[0]

    def with_sizes(self, rng: Any) -> State:
        """The state with random divisors of the extents for undecided split factors."""
        if self.concrete:
            return self
        made = State.begin(self.compute_dag)
        for step in self.transform_steps:
            if step.kind == "split" and None in _lengths(step):
                lengths, outward = step.more
                axis = made[step.stage].iters[step.iters[0]].axis
                step = replace(step, more=(_drawn(rng, axis.dom.extent, lengths), outward))
            made._do(step)
        made._known.update(self._known)
        return made

    # -- loops -----------------------------------------------------------------------------------
    def split(
        self, stage: Any, iterator: Iterator, lengths: Sequence[int | None], inner_to_outer: bool = True
    ) -> list[Iterator]:
        """Split a loop into `len(lengths) + 1` loops. `lengths` are the extents of the inner loops, or of the outer
        loops unless `inner_to_outer`; None is an extent that the search decides."""
        return self._call("split", stage, [iterator], tuple(lengths), bool(inner_to_outer))

    def follow_split(self, stage: Any, iterator: Iterator, src_step_id: int, n_split: int) -> list[Iterator]:
        """Split a loop like the earlier split `src_step_id`, into `n_split + 1` loops; the innermost ones are fused."""
        return self._call("follow_split", stage, [iterator], src_step_id, n_split)

    def follow_fused_split(
        self, stage: Any, iterator: Iterator, src_step_ids: Sequence[int], level: int, factor_or_nparts: bool
    ) -> list[Iterator]:
        """Split a loop by the product of the extents at one level of the earlier splits `src_step_ids`.

        The product is the factor, or the number of parts unless `factor_or_nparts`.
        """
        return self._call(
            "follow_fused_split", stage, [iterator], tuple(src_step_ids), level, bool(factor_or_nparts)
        )

    def fuse(self, stage: Any, iters: Sequence[Iterator]) -> Iterator:
        """Fuse neighbouring loops, outermost first."""
        return self._call("fuse", stage, iters)[0]

    def reorder(self, stage: Any, order: Sequence[Iterator]) -> None:
        """Reorder all loops of a stage."""
        self._call("reorder", stage, order)

    def parallel(self, stage: Any, iterator: Iterator) -> Iterator:
        """Parallelize a loop."""
        return self._call("parallel", stage, [iterator])[0]

    def vectorize(self, stage: Any, iterator: Iterator) -> Iterator:
        """Vectorize a loop."""
        return self._call("vectorize", stage, [iterator])[0]

    def unroll(self, stage: Any, iterator: Iterator, max_unroll: int | None = None) -> Iterator:
        """Unroll a loop; a loop longer than `max_unroll` is unchanged."""
        extent = None if iterator.range is None else const_value(iterator.range.extent)
        if max_unroll is not None and extent is not None and extent > max_unroll:
            return iterator
        return self._call("unroll", stage, [iterator])[0]

    def bind(self, stage: Any, iterator: Iterator, thread_name: str) -> Iterator:
        """Bind a loop to threads of a GPU, such as `threadIdx.x`, or to `vthread`."""
        if thread_name != "vthread" and not thread_name.startswith(("blockIdx.", "threadIdx.")):
            raise ValueError(f"bind takes vthread, blockIdx.x, threadIdx.x and the like, not {thread_name!r}")
        return self._call("bind", stage, [iterator], thread_name)[0]

    def tensorize(self, stage: Any, iterator: Iterator, ti_func: str) -> Iterator:
        """Tensorize a loop; `ti_func` is the name of the registered function that returns the intrinsic."""
        return self._call("tensorize", stage, [iterator], ti_func)[0]

    def pragma(self, stage: Any, iterator: Iterator, pragma_type: str) -> None:
        """Annotate a loop with a pragma, such as `auto_unroll_max_step$64`."""
        self._call("pragma", stage, [iterator], pragma_type)

    def storage_align(self, stage: Any, iterator: Iterator, factor: int, offset: int) -> None:
        """Make the stride of a dimension a multiple of `factor`, plus `offset`."""
        self._call("storage_align", stage, [iterator], factor, offset)

    # -- stages ----------------------------------------------------------------------------------
    def compute_at(self, stage: Any, target_stage: Any, target_iter: Iterator) -> None:
        """Compute a stage inside a loop of its consumer."""
        at = self._number(target_stage)
        place = self._place(at, target_iter)
        self._do(Step("compute_at", self._number(stage), (), (at, place)))

    def compute_inline(self, stage: Any) -> None:
        """Inline a stage into its consumers."""
        self._call("compute_inline", stage, [])

    def compute_root(self, stage: Any) -> None:
        """Compute a stage outside of all others, which undoes `compute_at` and `compute_inline`."""
        self._call("compute_root", stage, [])

    def cache_read(self, stage: Any, scope_name: str, reader_stages: Sequence[Any]) -> Tensor:
        """Copy the result of a stage into a memory scope for some readers. Returns the copy."""
        readers = tuple(self._number(r) for r in reader_stages)
        return self._do(Step("cache_read", self._number(stage), (), (scope_name, readers)))  # type: ignore[no-any-return]

    def cache_write(self, stage: Any, scope_name: str) -> Tensor:
        """Compute a stage in a memory scope, and copy the result back. Returns the cached tensor."""
        return self._do(Step("cache_write", self._number(stage), (), (scope_name,)))  # type: ignore[no-any-return]

    def rfactor(self, stage: Any, iterator: Iterator, factor_iter_id: int) -> Tensor:
        """Reduce each iteration of a reduction loop into its own element. Returns the tensor of partial results."""
        at = self._number(stage)
        step = Step("rfactor", at, (self._place(at, iterator),), (factor_iter_id,))
        return self._do(step)  # type: ignore[no-any-return]

    # -- steps -----------------------------------------------------------------------------------
    def _place(self, stage: int, iterator: Iterator) -> int:
        self._editable()
        leaves = self._order[stage].leaf_iter_vars
        found = [i for i, iv in enumerate(leaves) if iv is iterator.axis]
        if not found:  # a loop of the state that this one was copied from
            found = [i for i, iv in enumerate(leaves) if self._names[iv] == iterator.name]
        if not found:
            names = ", ".join(self._names[iv] for iv in leaves)
            raise ValueError(f"{iterator.name} is not a loop of the stage; its loops are {names}")
        return found[0]

    def _call(self, kind: str, stage: Any, iters: Sequence[Iterator], *more: Any) -> list[Iterator]:
        at = self._number(stage)
        places = tuple(self._place(at, it) for it in iters)
        made = self._do(Step(kind, at, places, more))
        axes = made if isinstance(made, (list, tuple)) else [made] if made is not None else []
        by_axis = {it.axis: it for it in self[at].iters}
        return [by_axis[iv] for iv in axes]

    def _do(self, step: Step) -> Any:
        """Apply a step to the te.Schedule, and record it."""
        self._editable()
        stage = self._order[step.stage]
        if not isinstance(stage.op, BaseComputeOp) and step.kind not in ("cache_read", "compute_root"):
            raise ScheduleError(f"{step.kind}: {stage.op.name} is an input, so it has no loops")
        axes = [stage.leaf_iter_vars[i] for i in step.iters]
        made = getattr(self, f"_do_{step.kind}", self._mark)(step, stage, axes)
        self.transform_steps.append(step)
        return made

    def _mark(self, step: Step, stage: TeStage, axes: list[IterVar]) -> Any:
        """Apply a step whose method of the te.Stage takes the same arguments."""
        getattr(stage, step.kind)(*axes, *step.more)
        if step.kind in self.ANNOTATION_TRANS_TABLE:
            self._marks[axes[0]] = step.kind
        return axes[0] if axes and step.kind != "reorder" else None

    def _do_split(self, step: Step, stage: TeStage, axes: list[IterVar]) -> list[IterVar]:
        lengths, from_inside = step.more
        return self._parts(stage, axes[0], lengths, from_inside)

    def _parts(
        self, stage: TeStage, axis: IterVar, lengths: Sequence[int | None], inside: bool
    ) -> list[IterVar]:
        rest, made, name = axis, [], self._names[axis]
        undecided = axis in self._open or None in lengths
        for size in reversed(lengths) if inside else lengths:
            one, two = stage.split(rest, factor=size or 1) if inside else stage.split(rest, nparts=size or 1)
            part, rest = (two, one) if inside else (one, two)
            made.append(part)
            if size is None:
                self._open.add(part)
        out = [rest, *reversed(made)] if inside else [*made, rest]
        if undecided:
            self._open.add(rest)
        self._names |= {iv: f"{name}.{i}" for i, iv in enumerate(out)}
        return out

    def _do_follow_split(self, step: Step, stage: TeStage, axes: list[IterVar]) -> list[IterVar]:
        source, count = step.more
        lengths = self._source(source)
        inner = lengths[count - 1 :]
        last = None if None in inner else math.prod(x for x in inner if x is not None)
        return self._parts(stage, axes[0], [*lengths[: count - 1], last], True)

    def _do_follow_fused_split(self, step: Step, stage: TeStage, axes: list[IterVar]) -> list[IterVar]:
        sources, level, by_factor = step.more
        sizes = [self._source(s)[level] for s in sources]
        size = None if None in sizes else math.prod(x for x in sizes if x is not None)
        return self._parts(stage, axes[0], [size], by_factor)

    def _source(self, number: int) -> tuple[int | None, ...]:
        if not 0 <= number < len(self.transform_steps) or self.transform_steps[number].kind != "split":
            raise ScheduleError(f"step {number} is not a split")
        return _lengths(self.transform_steps[number])

    def _do_fuse(self, step: Step, stage: TeStage, axes: list[IterVar]) -> IterVar:
        made = stage.fuse(*axes)
        self._names[made] = (
            "".join(f"{self._names[iv]}@" for iv in axes) if len(axes) > 1 else self._names[made]
        )
        if any(iv in self._open for iv in axes):
            self._open.add(made)
        return made

    def _do_bind(self, step: Step, stage: TeStage, axes: list[IterVar]) -> IterVar:
        stage.bind(axes[0], thread_axis(step.more[0]))
        self._marks[axes[0]] = step.more[0]
        return axes[0]

    def _do_tensorize(self, step: Step, stage: TeStage, axes: list[IterVar]) -> IterVar:
        stage.tensorize(axes[0], get_global_func(step.more[0])())
        self._marks[axes[0]] = "tensorize"
        return axes[0]

    def _do_pragma(self, step: Step, stage: TeStage, axes: list[IterVar]) -> None:
        kind, _, value = step.more[0].partition("$")
        stage.pragma(axes[0], kind, int(value) if value else None)

    def _do_storage_align(self, step: Step, stage: TeStage, axes: list[IterVar]) -> None:
        try:
            stage.storage_align(axes[0], *step.more)
        except ScheduleError as error:  # the loop is no dimension of the buffer, at least for now
            self._refused.append(error)

    def _do_compute_at(self, step: Step, stage: TeStage, axes: list[IterVar]) -> None:
        at, place = step.more
        target = self._order[at]
        stage.compute_at(target, target.leaf_iter_vars[place])

    def _do_cache_read(self, step: Step, stage: TeStage, axes: list[IterVar]) -> Tensor:
        scope, readers = step.more
        copied = self._editable().cache_read(
            _output(stage), scope, [_output(self._order[r]) for r in readers]
        )
        return self._added(copied, step.stage + 1)

    def _do_cache_write(self, step: Step, stage: TeStage, axes: list[IterVar]) -> Tensor:
        return self._added(self._editable().cache_write(_output(stage), step.more[0]), step.stage)

    def _do_rfactor(self, step: Step, stage: TeStage, axes: list[IterVar]) -> Tensor:
        return self._added(self._editable().rfactor(_output(stage), axes[0], step.more[0]), step.stage)

    def _added(self, tensor: Any, at: int) -> Tensor:
        """Register a new stage under a number, and renumber those after it."""
        te = self._editable()
        found = tensor if isinstance(tensor, Tensor) else tensor[0]
        self._order.insert(at, te.stage_map[found.op])
        self._known = {op: n + (n >= at) for op, n in self._known.items()} | {found.op: at}
        for stage in self._order:
            self._names |= {iv: iv.var.name for iv in stage.leaf_iter_vars if iv not in self._names}
        return found

    # -- comparing, text ---------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return False
        if self.by_hand and other.by_hand:
            return self.transform_steps == other.transform_steps
        return bool(structural_equal(self.schedule.mod, other.schedule.mod))

    def __hash__(self) -> int:
        return hash(self.compute_dag)

    def __str__(self) -> str:
        with contextlib.suppress(ScheduleError):  # extents are undecided, or steps conflict
            return _loops(self.schedule)
        lines = []
        for stage in self.stages:
            lines += [f"{'  ' * i}for {it!r}" for i, it in enumerate(stage.iters)]
            if stage.op_type == "compute":
                lines.append(f"{'  ' * len(stage.iters)}{stage.op.name} = ...")
        return "\n".join(lines)

    __repr__ = __str__


class UnknownState(State):
    """The steps of a record that cannot be applied, and why; by default, as the program is not registered here."""

    def __init__(self, steps: Iterable[Step], why: str = "") -> None:
        self.transform_steps = list(steps)
        self._te, self.origin = None, None
        self.why = why or (
            "the program of this record is not registered here, so its steps cannot be applied: use "
            "@auto_scheduler.register_workload before the file is read"
        )

    @property
    def by_hand(self) -> bool:
        return False

    def _unknown(self) -> Any:
        raise UnsupportedError(self.why)

    schedule = candidate = stages = property(_unknown)  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"State of {len(self.transform_steps)} steps that cannot be applied"

    __str__ = __repr__


StateObject = State
_INLINED, _INSIDE = 1, 2


def _lengths(step: Step) -> tuple[int | None, ...]:
    return step.more[0] if step.kind == "split" else ()


def _drawn(rng: Any, extent: Any, lengths: Sequence[int | None]) -> tuple[int, ...]:
    """The lengths of a split, with random divisors of the remaining extent for undecided ones."""
    whole = const_value(extent)
    left = 1 if whole is None else max(1, int(whole) // math.prod(x for x in lengths if x is not None))
    out = []
    for size in lengths:
        if size is None:
            sizes = divisors(left)
            size = sizes[int(rng.integers(len(sizes)))]
            left //= size
        out.append(int(size))
    return tuple(out)


def _output(stage: TeStage) -> Tensor:
    """The tensor that identifies a stage in a te.Schedule."""
    return stage.origin_op.output(0)


# ---------------------------------------------------------------------------- of a tir.Schedule
_KINDS = {ForKind.PARALLEL: "parallel", ForKind.VECTORIZED: "vectorize", ForKind.UNROLLED: "unroll"}


@dataclass(frozen=True)
class _Named:
    """A block in the place of an operation."""

    name: str


def _mark_of(loop: For) -> str:
    if loop.kind is ForKind.THREAD_BINDING and loop.thread_binding is not None:
        return loop.thread_binding.thread_tag
    return _KINDS.get(loop.kind, "for")


def _nest(
    n: Any, around: tuple[For | Block, ...] = ()
) -> Iterable[tuple[For | Block, tuple[For | Block, ...]]]:
    """The loops and the blocks of a program, except its root, each with those around it."""
    if isinstance(n, For):
        yield n, around
        yield from _nest(n.body, (*around, n))
    elif isinstance(n, BlockRealize):
        own = () if n.block.name_hint == "root" else (n.block,)
        for block in own:
            yield block, around
        yield from _nest(n.block.body, around + own)
    elif isinstance(n, SeqStmt):
        for part in n.seq:
            yield from _nest(part, around)


def _stages_of(sch: Schedule) -> list[Stage]:
    """The blocks of a program with the loops around them."""

    def iterator(loop: For) -> Iterator:
        mark = State.ANNOTATION_TRANS_TABLE.get(_mark_of(loop), 0)
        return Iterator(loop.loop_var.name, Range.from_min_extent(loop.min, loop.extent), mark)

    return [
        Stage(_Named(n.name_hint), [iterator(m) for m in around if isinstance(m, For)])
        for n, around in _nest(sch.state.func.body)
        if isinstance(n, Block)
    ]


def _loops(sch: Schedule) -> str:
    """The loop nest of a program.

    parallel i_0 (0,64)
      for k (0,512)
        C = ...
    """
    func = sch.state.func
    blocks = (m for m in pre_order(func.body) if isinstance(m, Block))
    written = {w.buffer for block in blocks for w in block.writes}
    lines = [f"Placeholder: {', '.join(b.name for b in func.buffer_map.values() if b not in written)}"]
    for n, around in _nest(func.body):
        if isinstance(n, For):
            text = f"{_mark_of(n)} {n.loop_var.name} ({n.min},{n.extent})"
        else:
            text = f"{n.name_hint} = ..."
        lines.append(f"{'  ' * len(around)}{text}")
    return "\n".join(lines)
