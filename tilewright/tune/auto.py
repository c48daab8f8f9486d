"""Schedules by analysis alone: `auto_schedule` derives the structure, the cost model picks the sizes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..ir.buffer import Buffer
from ..ir.errors import ScheduleError
from ..ir.expr import BufferLoad, Call, Var
from ..ir.function import PrimFunc
from ..ir.functor import pre_order
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.stmt import BufferStore
from ..target import Target
from ..target.machine import CpuMachine
from ..te.create_prim_func import create_prim_func
from ..te.tensor import Tensor
from ..tir.schedule import Schedule
from ..tir.schedule.primitive import BlockRV
from .elementwise import pays_in_parallel, schedule_elementwise
from .explain import Explanation
from .facts import Facts, facts_of
from .rows import schedule_rows, streams
from .tile_sketch import apply_tile, prepare_tile
from .tiles import Best, best_tile

__all__ = ["auto_schedule"]


def auto_schedule(
    func_or_tensors: Any, target: Any = None, trials: int = 0, constants: Collection[str] = ()
) -> Schedule:
    """A good schedule of a program, found without running it.

    Takes what `build` takes before it is scheduled: tensors, a PrimFunc or a module. `constants` names the
    parameters whose values are known when it is compiled. The same program and target give the same schedule;
    `explain()` of the result says why it is what it is.
    """
    if trials:
        raise ScheduleError(
            f"auto_schedule(trials={trials}): measuring candidates is the tuner's work, which is not there yet; "
            "trials=0 schedules by analysis alone"
        )
    chosen = Target.current(allow_none=True) if target is None else Target(target)
    chosen = Target("llvm") if chosen is None else chosen
    if chosen.kind.name not in ("llvm", "c"):
        raise ScheduleError(f"auto_schedule: there are no sketches for targets of kind {chosen.kind.name!r} yet")
    mod = _module(func_or_tensors)
    sch = Schedule(mod)
    notes = Explanation(str(chosen), chosen.cpu)
    for gv, func in mod.functions.items():
        if isinstance(func, PrimFunc) and not func.attrs.get("tir.is_scheduled"):
            sch.work_on(gv.name_hint)
            _Function(sch, func, chosen.cpu, notes, frozenset(constants)).run()
    sch.explanation = notes
    return sch


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


class _Function:
    """Schedules the blocks of one function: inlines, finds groups, gives each group its sketch."""

    def __init__(
        self, sch: Schedule, func: PrimFunc, machine: CpuMachine, notes: Explanation, constants: frozenset[str]
    ) -> None:
        self.sch, self.machine, self.notes = sch, machine, notes
        params = {v.name: func.buffer_map[v] for v in func.params if v in func.buffer_map}
        by_name = {b.name: b for b in params.values()}
        unknown = [c for c in constants if c not in params and c not in by_name]
        if unknown:
            raise ScheduleError(
                f"auto_schedule: {unknown[0]!r} is no parameter; there are {', '.join(sorted(by_name))}"
            )
        self.constants = frozenset(params.get(c) or by_name[c] for c in constants)
        self.outputs = set(params.values())
        self.done: set[str] = set()

    def run(self) -> None:
        self.inline()
        while True:
            stages = self.stages()
            left = [f for f in stages if f.name not in self.done]
            if not left:
                return
            self.next_group(left, stages)

    # -- what there is ---------------------------------------------------------------------
    def stages(self) -> list[Facts]:
        root = self.sch.get_block("root")
        found = self.sch.get_child_blocks(root)
        return [facts_of(self.sch, rv) for rv in found if self.sch.realize(rv).block.name_hint not in self.done]

    def is_output(self, f: Facts) -> bool:
        return any(r.buffer in self.outputs for r in f.block.writes)

    # -- inlining --------------------------------------------------------------------------
    def inline(self) -> None:
        """Injective stages go into their consumers where nothing is computed more often for it."""
        for name in [f.name for f in self.stages()]:
            rv = self.sch.get_block(name)
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

    def wants_inline(self, f: Facts, consumers: list[Facts]) -> bool:
        if any(c.kind == "opaque" for c in consumers):
            return False
        movement = _is_movement(f)
        for c in consumers:
            if c.kind == "reduction" and _reuses(c):
                if not movement or f.guarded or not _linear(f):
                    return False
            elif c.kind == "reduction" and f.work > 4 and len(consumers) > 1:
                return False
        cheap = f.work <= 4
        if len(consumers) > 1 and not cheap:
            return False
        (first, *_) = consumers
        return cheap or first.kind == "reduction" or f.points * 2 > first.points

    # -- groups ----------------------------------------------------------------------------
    def next_group(self, left: list[Facts], stages: list[Facts]) -> None:
        for f in left:
            if f.kind == "reduction" and _reuses(f):
                if not (self.reads_constants(f) or not streams(f, self.machine)):
                    self.rows(f, [f])
                else:
                    self.tile(f)
                return
        for f in reversed(left):
            if f.kind != "opaque":
                group = self.row_group(f, left)
                if any(g.kind == "reduction" for g in group):
                    self.rows(f, group)
                    return
        for f in left:
            if f.kind == "injective":
                self.notes.elementwise(f, schedule_elementwise(self.sch, f, self.machine), self.machine)
            else:
                self.notes.untouched(f)
            self.done.add(f.name)

    def tile(self, f: Facts) -> None:
        self.done.add(f.name)
        before = self.at_root()
        consumer = self.fusable_consumer(f)
        if best_tile(f, self.machine, 1, self.constants) is None:
            self.notes.untouched(f)
            return
        f, tail = prepare_tile(self.sch, f, consumer)
        serial = best_tile(f, self.machine, 1, self.constants)
        cores = self.machine.num_cores
        threads = best_tile(f, self.machine, cores, self.constants) if cores > 1 else None
        assert serial is not None
        best = serial if threads is None or threads.cycles >= serial.cycles else threads
        apply_tile(self.sch, f, best, best is threads, tail, self.own_producers(f, best), self.machine)
        self.notes.tile(f, best, best is threads, self.machine)
        self.take(before)

    def reads_constants(self, f: Facts) -> bool:
        return any(r.buffer in self.constants for r in f.reads)

    def at_root(self) -> set[str]:
        """The names of the blocks that stand on their own."""
        found = self.sch.get_child_blocks(self.sch.get_block("root"))
        return {self.sch.realize(b).block.name_hint for b in found}

    def take(self, before: set[str]) -> None:
        """All blocks that a sketch made or moved are done; those that still stand at the root and were there
        before, and are not fused, are not."""
        sch = self.sch
        for block in sch.get_child_blocks(sch.get_block("root")):
            name = sch.realize(block).block.name_hint
            if name not in before or _has_schedule(sch, block):
                self.done.add(name)

    def fusable_consumer(self, f: Facts) -> BlockRV | None:
        """The stage that takes the results element by element, if it is the only one."""
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
        """Stages that only this block reads, and that are not copied into panels anyway."""
        out = []
        packed = best.space.packed
        for rv in self.sch.get_producers(f.rv):
            p = facts_of(self.sch, rv)
            if p.kind != "injective" or p.name in self.done or self.is_output(p):
                continue
            if len(self.sch.get_consumers(rv)) != 1 or (packed is not None and p.write.buffer is packed.buffer):  # type: ignore[union-attr]
                continue
            out.append(rv)
        return out

    def row_group(self, last: Facts, left: list[Facts]) -> list[Facts]:
        """The stages before `last` that only stages of the group read, reductions without reuse among them."""
        names = {f.name: f for f in left}
        group, grown = {last.name: last}, True
        while grown:
            grown = False
            for g in list(group.values()):
                for rv in self.sch.get_producers(g.rv):
                    name = self.sch.realize(rv).block.name_hint
                    p = names.get(name)
                    if p is None or name in group or p.kind == "opaque" or self.is_output(p):
                        continue
                    if p.kind == "reduction" and _reuses(p):
                        continue
                    users = {self.sch.realize(c).block.name_hint for c in self.sch.get_consumers(rv)}
                    if users <= set(group):
                        group[name] = p
                        grown = True
        return [f for f in left if f.name in group]

    def rows(self, last: Facts, group: list[Facts]) -> None:
        before = self.at_root()
        note = schedule_rows(self.sch, last, group, self.machine, pays_in_parallel(_widest(group), self.machine))
        self.notes.rows(last, group, note, self.machine)
        self.done.update(f.name for f in group)
        self.take(before)


def _widest(group: list[Facts]) -> Facts:
    return max(group, key=lambda f: f.points * (f.work + 1))


def _has_schedule(sch: Schedule, block: BlockRV) -> bool:
    return bool(sch.get_loops(block)) and len(sch.get_loops(block)) != len(sch.realize(block).block.iter_vars)


def _extent(f: Facts, index: Any) -> int | None:
    axis = f.axis(index) if isinstance(index, Var) else None
    return None if axis is None else axis.extent


def _reuses(f: Facts) -> bool:
    """Whether an element that is read serves several results: only then do tiles in registers pay."""
    wide = [a for a in f.spatial if a.extent > 1]
    if any(not r.moves(a) for r in f.reads for a in wide):
        return True
    # windows that overlap
    return any(
        r.moves(a) and r.moves(k) and abs(r.stride(a) or 0) < k.extent * abs(r.stride(k) or 0)
        and abs(r.stride(k) or 0) <= abs(r.stride(a) or 0)
        for r in f.reads
        for a in wide
        for k in f.reduce
        if k.extent > 1
    )


def _is_movement(f: Facts) -> bool:
    """Whether it only places elements elsewhere."""
    body = f.block.body
    assert isinstance(body, BufferStore)
    return isinstance(body.value, BufferLoad)


def _linear(f: Facts) -> bool:
    return all(s is not None for r in f.reads for s in r.strides.values())
