"""Schedules by analysis alone: `auto_schedule` derives the structure, the cost model picks the sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..forks import cached_property
from ..ir.deep import deeply
from ..ir.errors import ScheduleError
from ..ir.function import PrimFunc
from ..ir.module import IRModule
from ..ir.stmt import BlockRealize
from ..ir.transform import PassContext
from ..target import Target
from ..target.machine import CpuMachine
from ..te.create_prim_func import create_prim_func
from ..te.tensor import Tensor
from ..tir.schedule import Schedule
from ..tir.schedule.primitive import BlockRV
from ..tir.schedule.state import Index
from .explain import Explanation
from .program.facts import Facts, facts_of, is_plain
from .program.long_sums import bound_chains
from .program.patterns import reuses
from .program.stages import Stages, reason_of
from .rules.cpu.elementwise import pays_in_parallel, schedule_elementwise
from .rules.cpu.online import in_parts, wants_parts
from .rules.cpu.rows import schedule_rows, schedule_several, streams
from .rules.cpu.short_sums import is_short_sum, schedule_short_sums
from .rules.cpu.tile_sketch import apply_tile, prepare_tile
from .rules.cpu.tiles import Best, best_of, tile_spaces
from .rules.cpu.winograd import (
    FilterCost,
    Left,
    best_filter,
    filter_costs,
    pack_kernel,
    schedule_transforms,
    spread_planes,
)
from .workload import present

__all__ = [
    "Function",
    "asked",
    "auto_schedule",
    "is_unscheduled",
    "schedule_unscheduled",
    "unasked",
]


_KINDS = ("llvm", "c")  # the CPU targets with sketches
# The histories (tune/history.py) that are asked for records before anything is decided; the innermost is the last.
asked: ContextVar[tuple[Any, ...]] = ContextVar("tilewright_histories", default=())
_GPU_KINDS = ("cuda", "opencl", "rocm", "hip", "metal", "vulkan", "webgpu")


@deeply
def auto_schedule(
    func_or_tensors: Any,
    target: Any = None,
    trials: int = 0,
    constants: Collection[str] = (),
    database: Any = None,
    seed: int = 0,
    record: Any = None,
) -> Schedule:
    """A good schedule of a program: tensors, a PrimFunc or a module.

    `constants` names the parameters whose values are known at compile time. Without trials nothing is run: the same
    program and target give the same schedule, and `explain()` of the result says why it was chosen. With trials, that
    many candidates are measured and kept in `database` (a file), and the fastest correct one is taken, which is never
    slower; `seed` is that of the search. A `record` of a measured candidate, given here or found by an enclosing
    `history.History`, is applied instead.
    """
    if trials:
        from .search import tune_task

        return tune_task(func_or_tensors, target, trials, database, seed, constants=constants)
    chosen = Target.current(allow_none=True) if target is None else Target(target)
    chosen = Target("llvm") if chosen is None else present(chosen)
    if chosen.kind.name not in (*_KINDS, *_GPU_KINDS):
        raise ScheduleError(
            f"auto_schedule: there are no sketches for targets of kind {chosen.kind.name!r} yet; there are "
            f"some for {', '.join((*_KINDS, *_GPU_KINDS))}"
        )
    mod = _module(func_or_tensors)
    sch = Schedule(mod)
    notes = Explanation(str(chosen))
    for gv, func in mod.functions.items():
        if isinstance(func, PrimFunc) and not func.attrs.get("tir.is_scheduled"):
            sch.work_on(gv.name_hint)
            if not _by_record(sch, func, chosen, constants, notes, record):
                _sketches(chosen)(sch, func, chosen, notes, frozenset(constants)).run()
    sch.explanation = notes
    return sch


@contextmanager
def unasked() -> Iterator[None]:
    """A context in which no history is asked: it was asked before."""
    before = asked.set(())
    try:
        yield
    finally:
        asked.reset(before)


def _by_record(
    sch: Schedule, func: PrimFunc, target: Target, constants: Collection[str], notes: Explanation, record: Any
) -> bool:
    """Apply the record of a function. Returns whether there was one and it could be applied."""
    if record is None and not asked.get():
        return False
    from .history import scheduled_by_record

    return scheduled_by_record(sch, func, target, constants, notes, record)


def _sketches(target: Target) -> type[Function]:
    if target.kind.name in _KINDS:
        return Function
    from .gpu import GpuFunction

    return GpuFunction


def is_unscheduled(func: PrimFunc) -> bool:
    """Whether each block of a function has one loop for each iterator, as `create_prim_func` makes them."""
    root = func.body
    if func.attrs.get("tir.is_scheduled") or not isinstance(root, BlockRealize) or root.block.iter_vars:
        return False
    index = Index(func)
    blocks = index.blocks_under(root.block.body)
    return bool(blocks) and all(is_plain(r, index.loops_of(r)) for r in blocks)


def schedule_unscheduled(mod: IRModule, target: Target) -> IRModule:
    """Schedule the functions of a module that are unscheduled; the others stay as they are."""
    if target.kind.name not in _KINDS:
        return mod
    plain = {gv: f for gv, f in mod.functions.items() if isinstance(f, PrimFunc) and is_unscheduled(f)}
    if not plain:
        return mod
    made = auto_schedule(IRModule(plain), target).mod
    return IRModule({**mod.functions, **made.functions}, mod.type_definitions, mod.attrs)


def _module(given: Any) -> IRModule:
    if isinstance(given, IRModule):
        return given
    if isinstance(given, Tensor):
        given = [given]
    if isinstance(given, (list, tuple)):
        given = create_prim_func(list(given))
    if isinstance(given, PrimFunc):
        name = str(given.attrs.get("global_symbol", "main"))
        return IRModule({name: given})
    raise TypeError(f"auto_schedule takes tensors, a PrimFunc or an IRModule, not {type(given).__name__}")


class Function(Stages):
    """Schedules the blocks of one function: inlines stages, finds groups, and applies a sketch to each group."""

    @cached_property
    def machine(self) -> CpuMachine:
        return self.target.cpu

    def finish(self) -> None:
        """The last step, after all stages are scheduled."""
        self.notes.long_sums(bound_chains(self.sch))

    # -- stages ----------------------------------------------------------------------------
    # -- inlining --------------------------------------------------------------------------
    # -- groups ----------------------------------------------------------------------------
    def next_group(self, left: list[Facts]) -> None:
        for f in left:
            if f.kind == "reduction" and reuses(f):
                if is_short_sum(f, self.machine):
                    self.alone(f)
                elif not (self.reads_constants(f) or not streams(f, self.machine)):
                    self.rows(f, [f])
                else:
                    self.tile(f)
                return
        if any(f.kind == "reduction" for f in left):
            for f in reversed(left):
                if f.kind not in ("opaque", "several"):
                    group = self.row_group(f, left)
                    if any(g.kind == "reduction" for g in group):
                        self.rows(f, group)
                        return
        for f in left:
            self.alone(f)

    def alone(self, f: Facts, refused: str = "") -> None:
        """Schedule a stage on its own by a simple sketch, or leave it as it is if that is refused too. `refused` says
        why it is alone."""
        self.done.add(f.rv.key)
        if f.kind == "opaque":
            return self.notes.untouched(f)
        why = {"instead": refused} if refused else {}
        before = self.at_root()
        try:
            with self.sch.all_or_nothing():
                pays = pays_in_parallel(f, self.machine)
                if f.kind == "several":
                    note = schedule_several(self.sch, f, self.machine, pays)
                    self.notes.rows(f, [f], note | why, self.machine)
                elif f.kind == "reduction" and reuses(f) and is_short_sum(f, self.machine):
                    note = self.short_sums(f)
                    self.notes.elementwise(f, note | why, self.machine)
                elif f.kind == "reduction":
                    self.notes.rows(
                        f, [f], schedule_rows(self.sch, f, [f], self.machine, pays) | why, self.machine
                    )
                else:
                    note = schedule_elementwise(self.sch, f, self.machine)
                    self.notes.elementwise(f, note | why, self.machine)
        except ScheduleError as error:
            self.notes.untouched(f, reason_of(error))
        self.take(before)

    def short_sums(self, f: Facts) -> dict[str, object]:
        """Schedule sums of few terms with their epilogue, or without it if that is refused."""
        consumer = self.fusable_consumer(f)
        if consumer is not None:
            try:
                with self.sch.all_or_nothing():
                    return schedule_short_sums(self.sch, f, consumer, self.machine)
            except ScheduleError:
                pass
        return schedule_short_sums(self.sch, f, None, self.machine)

    def tile(self, f: Facts) -> None:
        self.done.add(f.rv.key)
        before = self.at_root()
        if self.filtered(f, before):
            return self.take(before)
        try:
            self.fused_tile(f)
        except ScheduleError as why:
            self.alone(f, reason_of(why))
        self.take(before)

    def filter_size(self, costs: Mapping[int, FilterCost]) -> int:
        """The size of Winograd tiles with the least expected time; 0 stands for the plain convolution."""
        return best_filter(costs)

    def transforms(self, f: Facts, size: int, pays: bool) -> Left:
        """Split a convolution into Winograd's transforms and products, and schedule the transforms."""
        return schedule_transforms(self.sch, f, size, self.machine, pays)

    def filtered(self, f: Facts, before: set[object]) -> bool:
        """Compute a convolution by Winograd's algorithm, if that pays and is possible. A block that copies the result
        to its place is then still unscheduled."""
        if not self.reads_constants(f):
            return False
        largest = PassContext.current().option("tilewright.winograd")
        if self.target.attrs.get("fast-math") and largest:
            largest = max(4, largest)
        pays = pays_in_parallel(f, self.machine)
        costs = filter_costs(self.sch, f, self.machine, int(largest), pays)
        size = self.filter_size(costs) if len(costs) > 1 else 0
        if not size:
            return False
        mark = self.mark()
        try:
            with self.sch.all_or_nothing():
                left = self.transforms(f, size, pays)
                self.done |= {left.product.key, left.kernel.key, left.kernel_rows.key}
                self.fused_tile(facts_of(self.sch, left.product))
                (made,) = self.sch.get_producers(left.after)
                lanes = self.machine.lanes(f.bits)
                spread_planes(self.sch, made, f.bits // 8, lanes)
                pack_kernel(self.sch, left.kernel, lanes)
        except ScheduleError:
            if self.strict:
                raise
            self.back_to(mark)
            return False
        self.notes.filtered(f, size)
        if left.copy is not None:
            before.add(left.copy.key)
        return True

    def fused_tile(self, f: Facts) -> None:
        """Apply a register tile with its epilogue, or without it if that is refused."""
        consumer, mark = self.fusable_consumer(f), self.mark()
        if consumer is not None:
            try:
                with self.sch.all_or_nothing():
                    return self.apply_tile(f, consumer)
            except ScheduleError:
                self.back_to(mark)
        with self.sch.all_or_nothing():
            self.apply_tile(f, None)

    @property
    def strict(self) -> bool:
        """Whether a refusal is an error: the decisions were made for this structure and fit no other."""
        return False

    def mark(self) -> Any:
        """The state of the decisions, to return to if a sketch is refused."""
        return None

    def back_to(self, mark: Any) -> None:
        """Forget the decisions since `mark`."""

    def apply_tile(self, f: Facts, consumer: BlockRV | None) -> None:
        if not any(len(space.vectors) for space in tile_spaces(f, self.machine, self.constants)):
            raise ScheduleError("no axis can lie in vectors")
        f, tail = prepare_tile(self.sch, f, consumer)
        best, in_threads = self.pick_tile(f)
        producers = self.own_producers(f, best)
        fused = apply_tile(self.sch, f, best, in_threads, tail, producers, self.machine)
        names = [self.sch.realize(p).block.name_hint for p in fused]
        after = None if consumer is None else self.sch.realize(consumer).block.name_hint
        self.notes.tile(f, best, in_threads, self.machine, after, names)

    def pick_tile(self, f: Facts) -> tuple[Best, bool]:
        """The best tile of a prepared block by the cost model, and whether threads share the work."""
        spaces, cores = list(tile_spaces(f, self.machine, self.constants)), self.machine.num_cores
        serial = best_of(spaces, self.machine, 1)
        threads = best_of(spaces, self.machine, cores) if cores > 1 else None
        if serial is None:
            raise ScheduleError("no axis can lie in vectors")
        best = serial if threads is None or threads.cycles >= serial.cycles else threads
        return best, best is threads

    def rows(self, last: Facts, group: list[Facts]) -> None:
        if len(group) == 1:
            return self.alone(last)
        before = self.at_root()
        pays = pays_in_parallel(_widest(group), self.machine)
        if wants_parts(group, self.machine, pays) and self.parts(last, group, pays):
            return self.take(before)
        try:
            with self.sch.all_or_nothing():
                whole, group = self.in_groups(last, group)
                self.notes.rows(
                    last, group, schedule_rows(self.sch, whole, group, self.machine, pays), self.machine
                )
        except ScheduleError as why:
            for f in group:
                self.alone(f, reason_of(why))
        self.done.update(f.rv.key for f in group)
        self.take(before)

    def parts(self, last: Facts, group: list[Facts], parallel: bool) -> bool:
        """Reduce rows in parts, if that is possible. The stages after the parts are then still unscheduled."""
        try:
            with self.sch.all_or_nothing():
                note = in_parts(self.sch, group, self.machine, parallel)
        except ScheduleError:
            return False
        self.notes.rows(last, [f for f in group if f.kind == "reduction"], note, self.machine)
        return True


def _widest(group: list[Facts]) -> Facts:
    return max(group, key=lambda f: f.points * (f.work + 1))
