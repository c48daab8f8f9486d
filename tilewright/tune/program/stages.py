"""The stages of a function: their facts and links, which of them are inlined, and which belong together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...ir.buffer import Buffer
from ...ir.errors import ScheduleError
from ...ir.expr import BufferLoad, Var, const_value
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, statements
from ...ir.stmt import Block, BufferStore, Stmt
from ...target import Target
from ...tir.schedule import Schedule
from ...tir.schedule.blocks import consumers_of, producers_of
from ...tir.schedule.inline import MANY, short_first
from ...tir.schedule.primitive import BlockRV, Refusal
from ..explain import Explanation
from .facts import Access, Facts, divided, divisions, facts_of, is_plain, with_split_axes
from .links import Links
from .patterns import WordView, is_contiguous, is_pooling, reuses, word_view

__all__ = ["Policy", "Stage", "Stages", "facts_in_groups", "reason_of"]

_LONG = 256  # the largest expression that may be repeated in a consumer: all copies together, in additions


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that rules are asked about: a block and, if it ends a chain of rows, the stages of the chain in order."""

    program: Stages
    facts: Facts
    chain: tuple[Facts, ...]

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def single(self) -> bool:
        """Whether it is a block alone, and not a chain."""
        return len(self.chain) == 1

    @property
    def heavy(self) -> Facts:
        """The stage of the chain with the most work."""
        return max(self.chain, key=lambda f: f.points * (f.work + 1))


@dataclass(frozen=True, slots=True)
class Policy:
    """The differences between families of machines before rules are asked."""

    leaves_opaque: bool = True  # stages that no rule takes keep their loops, which the host runs
    bounds_sums: bool = True  # one thread adds up long sums, in blocks
    alone_in_order: bool = (
        False  # a reduction that is not a chain is scheduled in program order with other stages
    )
    windows_first: bool = (
        False  # windows that are not rows are scheduled like reductions whose operands are reused
    )
    light_work: int = -1  # a stage of inputs with this work at most, in additions, is computed again …
    light_times: int = 0  # … by an elementwise stage with at least this many times its elements
    inlines: bool = True  # stages are inlined; on an accelerator each one is an instruction
    whole_groups: bool = False  # all stages that an output depends on are scheduled together


def policy_of(target: Target) -> Policy:
    if target.is_accelerator:
        return Policy(leaves_opaque=False, bounds_sums=False, inlines=False, whole_groups=True)
    if not target.is_gpu:
        return Policy()
    w = target.gpu.elementwise
    return Policy(False, False, True, True, w.light_work, w.light_times)


class Stages:
    """The blocks of one function while they are scheduled: those that are left, and what is known of them."""

    def __init__(
        self,
        sch: Schedule,
        func: PrimFunc,
        target: Target,
        notes: Explanation,
        constants: frozenset[str],
    ) -> None:
        self.sch, self.target, self.notes, self.policy = sch, target, notes, policy_of(target)
        params = {v.name: func.buffer_map[v] for v in func.params if v in func.buffer_map}
        by_name = {b.name: b for b in params.values()}
        unknown = sorted(c for c in constants if c not in params and c not in by_name)
        if unknown:
            raise ScheduleError(
                f"auto_schedule: {unknown[0]!r} is not a parameter; there are {', '.join(sorted(by_name))}"
            )
        self.constants = frozenset(params.get(c) or by_name[c] for c in constants)
        self.outputs = set(params.values())
        self.done: set[object] = set()  # blocks, by their keys
        self.undecided: set[object] = set()  # blocks that get their cheapest row without a decision
        self.seen: set[Stmt] = set()  # statements at the root whose blocks `take` has visited
        self.keyed: tuple[list[Facts], dict[object, Facts]] | None = None
        self.made_links: Links | None = None
        self.empty = _is_empty(func)

    def begin(self, early: Callable[[], None] | None = None) -> bool:
        """Inline the stages that are worth inlining, after `early`. Returns whether there is anything to schedule."""
        name = self.sch.func_working_on.name_hint
        if not any(r.block.name_hint == "root" for r in self.sch.state.index.order):  # loops without blocks
            self.notes.left(name, "its loops are in no block named root")
            return False
        self.root = self.sch.get_block("root")
        if self.empty:
            self.notes.left(name, "a size is 0: there is nothing to compute")
            return False
        if early is not None:
            early()
        self.constants |= self._computed_from_constants()
        if self.policy.inlines:
            self.inline()
        else:
            self.inline_numbers()
        return True

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

    def _computed_from_constants(self) -> set[Buffer]:
        """What the stages compute from constants alone, as `split_constants` will do at compile time."""
        known = set(self.constants)
        for f in self.stages() if known else ():
            if f.write is not None and f.reads and all(r.buffer in known for r in f.reads):
                known.add(f.write.buffer)
        return known - self.outputs

    # -- inlining --------------------------------------------------------------------------
    def inline(self) -> None:
        """Inline injective stages into their consumers where that repeats hardly any work."""
        for rv in self._in_order_of_inlining():
            f = facts_of(self.sch, rv)
            if f.kind != "injective" or self.is_output(f):
                continue
            consumers = [facts_of(self.sch, c) for c in self.consumers(rv)]
            if any(word_view(c) is not None for c in consumers):
                continue  # words can be loaded from this stage
            if consumers and (self.wants_inline(f, consumers) or self._is_light(f, consumers)):
                refused = self.sch.attempt(partial(self.sch.compute_inline, rv))
                if refused is None:
                    self.notes.inlined(f.name, [c.name for c in consumers])

    def inline_numbers(self) -> None:
        """Inline constants without dimensions: they are operands of instructions."""
        for f in self.stages():
            if f.kind == "injective" and not f.axes and not f.reads and not self.is_output(f):
                self.sch.compute_inline(f.rv)

    def word_views(self, rv: BlockRV) -> list[tuple[BlockRV, WordView]]:
        """The stages that a block reads which only view other tensors as words."""
        stages = [facts_of(self.sch, p) for p in self.producers(rv) if p.key not in self.done]
        found = [(f.rv, word_view(f)) for f in stages if not self.is_output(f)]
        return [(stage, view) for stage, view in found if view is not None]

    def load_words(self, rv: BlockRV, packed: Access | None = None) -> None:
        """Let a block load what other stages only view as words, instead of reading copies; not what is `packed`."""
        for stage, view in self.word_views(rv):
            if packed is None or view.buffer is not packed.buffer:
                self.sch.attempt(partial(self.sch.compute_inline, stage))

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

    def _is_light(self, f: Facts, consumers: list[Facts]) -> bool:
        """Whether a stage that reads only inputs, as `1 / sqrt(variance)` of some channels, takes less time if each
        element that needs it computes it than as a kernel of its own."""
        if f.work > self.policy.light_work or f.guarded or len(consumers) != 1:
            return False
        (c,) = consumers
        large = c.kind == "injective" and c.points >= self.policy.light_times * f.points
        return large and not self.producers(f.rv)

    def beside_more(self, f: Facts, consumers: list[Facts]) -> bool:
        """Whether its only reader also takes the results of long sums, beside which the work of `f` is negligible."""
        if len(consumers) != 1:
            return False
        makers = [facts_of(self.sch, p) for p in self.producers(consumers[0].rv)]
        sums = [p for p in makers if p.kind == "reduction" and reuses(p) and p.points >= consumers[0].points]
        return any(math.prod(a.extent for a in p.reduce) >= 8 * f.work for p in sums)

    # -- neighbours ------------------------------------------------------------------------
    def reads_constants(self, f: Facts) -> bool:
        return any(r.buffer in self.constants for r in f.reads)

    def at_root(self) -> set[object]:
        """The keys of the outermost blocks."""
        return self.links.keys()

    def is_left(self, rv: BlockRV) -> bool:
        """Whether a block still has its plain loops: it was not scheduled with another one, as an epilogue is."""
        index = self.sch.state.index
        return any(
            r.block.key is rv.key and is_plain(r, index.loops_of(r))
            for part in self.links.parts
            for r in self.links.blocks_in(part)
        )

    def take(self, before: set[object]) -> None:
        """Mark the blocks that a sketch made or moved as done. `before` are the keys of the outermost blocks before
        it: those that still have their plain loops are left to be scheduled."""
        index, links = self.sch.state.index, self.links
        for part in [p for p in links.parts if p not in self.seen]:
            self.seen.add(part)
            for r in links.blocks_in(part):
                if r.block.key not in before or not is_plain(r, index.loops_of(r)):
                    self.done.add(r.block.key)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Group several steps: if one of them fails, the blocks that they marked as done are left to be scheduled."""
        done, seen = set(self.done), set(self.seen)
        try:
            yield
        except BaseException:
            self.done, self.seen = done, seen
            raise

    def producers(self, rv: BlockRV) -> list[BlockRV]:
        """The blocks that write what a block reads. Unlike `Schedule.get_producers`, this adds nothing to the trace."""
        return [BlockRV(r.block.key, r.block.name_hint) for r in producers_of(self.sch, self.sch.realize(rv))]

    def consumers(self, rv: BlockRV) -> list[BlockRV]:
        """The blocks that read what a block writes. Unlike `Schedule.get_consumers`, this adds nothing to the trace."""
        return [BlockRV(r.block.key, r.block.name_hint) for r in consumers_of(self.sch, self.sch.realize(rv))]

    def loop_count(self, rv: BlockRV) -> int:
        """The number of loops around a block. Unlike `Schedule.get_loops`, this adds nothing to the trace."""
        return len(self.sch.state.index.loops_of(self.sch.realize(rv)))

    def fusable_consumer(self, f: Facts) -> BlockRV | None:
        """The stage that takes the results element by element and can be an epilogue, if it is the only consumer."""
        if self.is_output(f):
            return None
        consumers = self.consumers(f.rv)
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

    def own_producers(self, f: Facts, packed: Access | None) -> list[BlockRV]:
        """The injective stages that only this block reads, without the one that is `packed` into panels anyway, and
        without those of constants, which take no time."""
        out = []
        for rv in self.producers(f.rv):
            p = facts_of(self.sch, rv)
            if p.kind != "injective" or rv.key in self.done or self.is_output(p):
                continue
            if self.ends_rows(rv):
                continue
            copied = packed is not None and p.write is not None and p.write.buffer is packed.buffer
            known = p.write is not None and p.write.buffer in self.constants
            if copied or known or len(self.consumers(rv)) != 1:
                continue
            out.append(rv)
        return out

    def ends_rows(self, rv: BlockRV) -> bool:
        """Whether a stage depends on a reduction that is not scheduled yet: a chain of rows stays together."""
        before, seen = self.producers(rv), set()
        while before:
            b = before.pop()
            if b.key in seen or b.key in self.done:
                continue
            seen.add(b.key)
            if self.sch.realize(b).block.init is not None:
                return True
            before += self.producers(b)
        return False

    # -- chains of rows --------------------------------------------------------------------
    def next_stages(self, left: list[Facts]) -> list[Stage]:
        """The stages to schedule next: the first reduction whose operands are reused; else the last chain of rows;
        else all that are left, one by one."""
        windows = self.policy.windows_first
        for f in left:
            if self.policy.whole_groups and is_pooling(f):
                continue
            if f.kind == "reduction" and (reuses(f) or (windows and is_pooling(f) and not is_contiguous(f))):
                return [Stage(self, f, (f,))]
        if self.policy.whole_groups:
            last = next((f for f in reversed(left) if self.is_output(f)), left[-1])
            return [Stage(self, last, tuple(self.behind(last, left)))]
        least = 2 if self.policy.alone_in_order else 1
        if any(f.kind == "reduction" for f in left):
            for f in reversed(left):
                if f.kind not in ("opaque", "several"):
                    group = self.row_group(f, left)
                    if len(group) >= least and any(g.kind == "reduction" for g in group):
                        return [Stage(self, f, tuple(group))]
        return [Stage(self, f, (f,)) for f in left]

    def behind(self, last: Facts, left: list[Facts]) -> list[Facts]:
        """`last` and all stages that it depends on, in order."""
        known, wanted, stack = self.by_key(left), {last.rv.key}, [last.rv.key]
        while stack:
            for key in self.links.producers(stack.pop()):
                if key in known and key not in wanted:
                    wanted.add(key)
                    stack.append(key)
        return [f for f in left if f.rv.key in wanted]

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

    def in_groups(self, last: Facts, group: list[Facts]) -> tuple[Facts, list[Facts]]:
        """The last stage of a chain, and the chain. If the last stage reads one value for each group of an axis
        (`mean[n, c // 8]`), the groups become an axis of their own."""
        parts = _group_sizes(last, group)
        if max(parts, default=1) == 1:
            return last, group
        self.sch.transform_block_layout(last.rv, divided(parts))
        whole = facts_of(self.sch, last.rv)
        return whole, [whole if f is last else f for f in group]


def facts_in_groups(last: Facts, group: list[Facts]) -> tuple[Facts, list[Facts]]:
    """The facts that `Stages.in_groups` will lead to; nothing is scheduled."""
    parts = _group_sizes(last, group)
    if max(parts, default=1) == 1:
        return last, group
    whole = with_split_axes(last, parts)
    return whole, [whole if f is last else f for f in group]


def _group_sizes(last: Facts, group: list[Facts]) -> list[int]:
    """For each axis of the last stage of a chain, the constant by which it divides the axis to read results of the
    chain."""
    made = {f.write.buffer for f in group if f.write is not None}
    return divisions(last, made.__contains__)


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


def _extent(f: Facts, index: Any) -> int | None:
    axis = f.axis(index) if isinstance(index, Var) else None
    return None if axis is None else axis.extent


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
