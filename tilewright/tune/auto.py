"""Schedules by analysis alone: `auto_schedule` derives the structure, the cost model picks the sizes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..backends import kinds_with
from ..forks import cached_property
from ..ir.deep import deeply
from ..ir.errors import ScheduleError
from ..ir.expr import BufferLoad, Var, const_value
from ..ir.function import PrimFunc
from ..ir.functor import pre_order, statements
from ..ir.module import IRModule
from ..ir.stmt import Block, BlockRealize, BufferStore, Stmt
from ..ir.transform import PassContext
from ..target import Target
from ..target.machine import CpuMachine
from ..te.create_prim_func import create_prim_func
from ..te.tensor import Tensor
from ..tir.schedule import Schedule
from ..tir.schedule.blocks import consumers_of
from ..tir.schedule.inline import MANY, short_first
from ..tir.schedule.primitive import BlockRV, Refusal
from ..tir.schedule.state import Index
from .elementwise import pays_in_parallel, schedule_elementwise
from .explain import Explanation
from .facts import Facts, divided, divisions, facts_of, is_plain
from .links import Links
from .long_sums import bound_chains
from .online import in_parts, wants_parts
from .rows import schedule_rows, schedule_several, streams
from .short_sums import is_short_sum, schedule_short_sums
from .tile_sketch import apply_tile, prepare_tile
from .tiles import Best, best_of, tile_spaces
from .winograd import (
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
    "reason_of",
    "reuses",
    "schedule_unscheduled",
    "unasked",
]


_LONG = 256  # the largest expression that may be repeated in a consumer: all copies together, in additions
# The histories (tune/history.py) that are asked for records before anything is decided; the innermost is the last.
asked: ContextVar[tuple[Any, ...]] = ContextVar("tilewright_histories", default=())


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
    if not (chosen.is_cpu or chosen.is_gpu):
        able = ", ".join(kinds_with(lambda b: b.family in ("cpu", "gpu")))
        raise ScheduleError(
            f"auto_schedule: there are no sketches for targets of kind {chosen.kind.name!r}; there are some for {able}"
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
    if target.is_cpu:
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
    if not target.is_cpu:
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


class Function:
    """Schedules the blocks of one function: inlines stages, finds groups, and applies a sketch to each group."""

    def __init__(
        self,
        sch: Schedule,
        func: PrimFunc,
        target: Target,
        notes: Explanation,
        constants: frozenset[str],
    ) -> None:
        self.sch, self.target, self.notes = sch, target, notes
        params = {v.name: func.buffer_map[v] for v in func.params if v in func.buffer_map}
        by_name = {b.name: b for b in params.values()}
        unknown = sorted(c for c in constants if c not in params and c not in by_name)
        if unknown:
            raise ScheduleError(
                f"auto_schedule: {unknown[0]!r} is no parameter; there are {', '.join(sorted(by_name))}"
            )
        self.constants = frozenset(params.get(c) or by_name[c] for c in constants)
        self.outputs = set(params.values())
        self.done: set[object] = set()  # blocks, by their keys
        self.seen: set[Stmt] = set()  # statements at the root whose blocks `take` has visited
        self.keyed: tuple[list[Facts], dict[object, Facts]] | None = None
        self.made_links: Links | None = None
        self.empty = _is_empty(func)

    @cached_property
    def machine(self) -> CpuMachine:
        return self.target.cpu

    def run(self) -> None:
        try:
            self.root = self.sch.get_block("root")
        except ScheduleError:  # loops without blocks
            return self.notes.left(self.sch.func_working_on.name_hint, "its loops are in no block named root")
        if self.empty:
            return self.notes.left(
                self.sch.func_working_on.name_hint, "a size is 0: there is nothing to compute"
            )
        self.inline()
        while left := self.stages():
            self.next_group(left)
        self.finish()

    def finish(self) -> None:
        """The last step, after all stages are scheduled."""
        self.notes.long_sums(bound_chains(self.sch))

    # -- stages ----------------------------------------------------------------------------
    def stages(self) -> list[Facts]:
        """The blocks at the root that are not done, in order."""
        return [
            facts_of(self.sch, rv) for rv in self.sch.get_child_blocks(self.root) if rv.key not in self.done
        ]

    @property
    def links(self) -> Links:
        """The blocks at the root of the program as it is now."""
        body = self.sch.realize(self.root).block.body
        if self.made_links is None or self.made_links.body is not body:
            self.made_links = Links(body, self.made_links)
        return self.made_links

    def is_output(self, f: Facts) -> bool:
        return any(r.buffer in self.outputs for r in f.block.writes)

    # -- inlining --------------------------------------------------------------------------
    def inline(self) -> None:
        """Inline injective stages into their consumers where that repeats hardly any work."""
        for rv in self._in_order_of_inlining():
            f = facts_of(self.sch, rv)
            if f.kind != "injective" or self.is_output(f):
                continue
            consumers = [facts_of(self.sch, c) for c in self.sch.get_consumers(rv)]
            if consumers and self.wants_inline(f, consumers):
                try:
                    self.sch.compute_inline(rv)
                except ScheduleError:
                    continue
                self.notes.inlined(f.name, [c.name for c in consumers])

    def _in_order_of_inlining(self) -> list[BlockRV]:
        """The stages in program order. If there are long chains, their links come first: these can be inlined in any
        order."""
        stages = self.stages()
        known = {f.rv.key: f for f in stages}
        links = [f.rv for f in stages if self._is_link(f, known)] if len(stages) >= MANY else []
        if len(links) < MANY:
            return [f.rv for f in stages]
        chosen = set(links)
        return [*short_first(links), *(f.rv for f in stages if f.rv not in chosen)]

    def _is_link(self, f: Facts, known: Mapping[object, Facts]) -> bool:
        """Whether its only reader is an injective stage with as many points, which reads it once."""
        readers = consumers_of(self.sch, self.sch.realize(f.rv))
        if f.kind != "injective" or self.is_output(f) or len(readers) != 1:
            return False
        reader = known.get(readers[0].block.key)
        loads = [m for m in pre_order(readers[0].block.body) if isinstance(m, BufferLoad)]
        once = sum(m.buffer is w.buffer for w in f.block.writes for m in loads) == 1
        return once and reader is not None and reader.kind == "injective" and reader.points == f.points

    def wants_inline(self, f: Facts, consumers: list[Facts]) -> bool:
        if any(c.kind in ("opaque", "several") for c in consumers):
            return False
        movement = _is_movement(f)
        for c in consumers:
            if c.kind == "reduction" and reuses(c):
                if not movement or f.guarded or not _linear(f):
                    return False
            elif c.kind == "reduction" and f.work > 4 and len(consumers) > 1:
                return False
        if (
            f.work > 1
            and max(c.points for c in consumers) > 2 * f.points
            and not self.beside_more(f, consumers)
        ):
            return False  # it would be computed again for each of the elements that share it
        cheap = f.work <= 4
        if len(consumers) > 1 and not cheap:
            return False
        if any(_grows(f, c, cheap) for c in consumers):
            return False
        (first, *_) = consumers
        near = f.points * 2 > first.points or self.beside_more(f, consumers)
        return cheap or first.kind == "reduction" or near

    def beside_more(self, f: Facts, consumers: list[Facts]) -> bool:
        """Whether its only reader also takes the results of long sums, beside which the work of `f` is negligible."""
        if len(consumers) != 1:
            return False
        makers = [facts_of(self.sch, p) for p in self.sch.get_producers(consumers[0].rv)]
        sums = [p for p in makers if p.kind == "reduction" and reuses(p) and p.points >= consumers[0].points]
        return any(math.prod(a.extent for a in p.reduce) >= 8 * f.work for p in sums)

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

    def reads_constants(self, f: Facts) -> bool:
        return any(r.buffer in self.constants for r in f.reads)

    def at_root(self) -> set[object]:
        """The keys of the outermost blocks."""
        return self.links.keys()

    def take(self, before: set[object]) -> None:
        """Mark the blocks that a sketch made or moved as done. `before` are the keys of the outermost blocks before
        it: those that still have their plain loops are left to be scheduled."""
        index, links = self.sch.state.index, self.links
        for part in [p for p in links.parts if p not in self.seen]:
            self.seen.add(part)
            for r in links.blocks_in(part):
                if r.block.key not in before or not is_plain(r, index.loops_of(r)):
                    self.done.add(r.block.key)

    def fusable_consumer(self, f: Facts) -> BlockRV | None:
        """The stage that takes the results element by element and can be an epilogue, if it is the only consumer."""
        if self.is_output(f):
            return None
        consumers = self.sch.get_consumers(f.rv)
        if len(consumers) != 1:
            return None
        c = facts_of(self.sch, consumers[0])
        assert f.write is not None
        if c.kind != "injective" or len(c.spatial) != len(f.spatial):
            return None
        reads = [r for r in c.reads if r.buffer is f.write.buffer]
        spatial = [a.var for a in c.spatial]
        if len(reads) != 1 or len(reads[0].indices) != len(spatial):
            return None
        if any(i is not v for i, v in zip(reads[0].indices, spatial, strict=True)):
            return None
        if [a.extent for a in c.spatial] != [_extent(f, i) for i in f.write.indices]:
            return None
        return consumers[0]

    def own_producers(self, f: Facts, best: Best) -> list[BlockRV]:
        """The injective stages that only this block reads, without those that are packed into panels anyway."""
        out = []
        packed = best.space.packed
        for rv in self.sch.get_producers(f.rv):
            p = facts_of(self.sch, rv)
            if p.kind != "injective" or rv.key in self.done or self.is_output(p):
                continue
            if self.ends_rows(rv):
                continue
            copied = packed is not None and p.write is not None and p.write.buffer is packed.buffer
            if copied or len(self.sch.get_consumers(rv)) != 1:
                continue
            out.append(rv)
        return out

    def ends_rows(self, rv: BlockRV) -> bool:
        """Whether a stage depends on a reduction that is not scheduled yet: a chain of rows stays together."""
        before, seen = self.sch.get_producers(rv), set()
        while before:
            b = before.pop()
            if b.key in seen or b.key in self.done:
                continue
            seen.add(b.key)
            if self.sch.realize(b).block.init is not None:
                return True
            before += self.sch.get_producers(b)
        return False

    def row_group(self, last: Facts, left: list[Facts]) -> list[Facts]:
        """`last` and the stages before it that only stages of the group read: reductions without reuse, all of them
        over the same rows, and the stages between them."""
        links, known = self.links, self.by_key(left)
        group, grown = {last.rv.key: last}, True
        rows = _results(last) if last.kind == "reduction" else None
        while grown:
            grown = False
            for g in list(group.values()):
                for key in links.producers(g.rv.key):
                    p = known.get(key)
                    if p is None or key in group or p.kind in ("opaque", "several") or self.is_output(p):
                        continue
                    if p.kind == "reduction" and (reuses(p) or rows not in (None, _results(p))):
                        continue
                    if all(c in group for c in links.consumers(key)):
                        group[key] = p
                        grown = True
                        if p.kind == "reduction":
                            rows = _results(p)
        return [f for f in left if f.rv.key in group] if len(group) > 1 else [last]

    def by_key(self, left: list[Facts]) -> dict[object, Facts]:
        """The stages by their keys, kept since many groups are looked for among the same stages."""
        if self.keyed is None or self.keyed[0] is not left:
            self.keyed = left, {f.rv.key: f for f in left}
        return self.keyed[1]

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

    def in_groups(self, last: Facts, group: list[Facts]) -> tuple[Facts, list[Facts]]:
        """The last stage of a chain, and the chain. If the last stage reads one value for each group of an axis
        (`mean[n, c // 8]`), the groups become an axis of their own."""
        made = {f.write.buffer for f in group if f.write is not None}
        parts = divisions(last, made.__contains__)
        if max(parts, default=1) == 1:
            return last, group
        self.sch.transform_block_layout(last.rv, divided(parts))
        whole = facts_of(self.sch, last.rv)
        return whole, [whole if f is last else f for f in group]

    def parts(self, last: Facts, group: list[Facts], parallel: bool) -> bool:
        """Reduce rows in parts, if that is possible. The stages after the parts are then still unscheduled."""
        try:
            with self.sch.all_or_nothing():
                note = in_parts(self.sch, group, self.machine, parallel)
        except ScheduleError:
            return False
        self.notes.rows(last, [f for f in group if f.kind == "reduction"], note, self.machine)
        return True


def reason_of(error: ScheduleError) -> str:
    """A refusal in one line."""
    reason = error.reason if isinstance(error, Refusal) else str(error)
    return reason.splitlines()[0]


def _is_empty(func: PrimFunc) -> bool:
    """Whether some block has no points."""
    domains = [iv.dom for m in statements(func.body) if isinstance(m, Block) for iv in m.iter_vars]
    return any(const_value(d.extent) == 0 for d in domains)


def _results(f: Facts) -> int:
    return math.prod(a.extent for a in f.spatial)


def _widest(group: list[Facts]) -> Facts:
    return max(group, key=lambda f: f.points * (f.work + 1))


def _extent(f: Facts, index: Any) -> int | None:
    axis = f.axis(index) if isinstance(index, Var) else None
    return None if axis is None else axis.extent


def reuses(f: Facts) -> bool:
    """Whether an element that is read serves several results: only then do register tiles pay."""
    wide = [a for a in f.spatial if a.extent > 1]
    if any(not r.moves(a) for r in f.reads for a in wide):
        return True
    # windows that overlap
    return any(
        r.moves(a)
        and r.moves(k)
        and abs(r.stride(a) or 0) < k.extent * abs(r.stride(k) or 0)
        and abs(r.stride(k) or 0) <= abs(r.stride(a) or 0)
        for r in f.reads
        for a in wide
        for k in f.reduce
        if k.extent > 1
    )


def _grows(f: Facts, reader: Facts, cheap: bool) -> bool:
    """Whether a reader would compute a costly stage at several places, or repeat a long expression."""
    assert f.write is not None
    buffer = f.write.buffer
    places = sum(r.buffer is buffer for r in reader.reads)
    loads = sum(isinstance(m, BufferLoad) and m.buffer is buffer for m in pre_order(reader.block.body))
    return (places > 1 and not cheap) or (loads > 1 and loads * f.work > _LONG)


def _is_movement(f: Facts) -> bool:
    """Whether a stage only moves elements, without arithmetic."""
    body = f.block.body
    assert isinstance(body, BufferStore)
    return isinstance(body.value, BufferLoad)


def _linear(f: Facts) -> bool:
    return all(s is not None for r in f.reads for s in r.strides.values())
