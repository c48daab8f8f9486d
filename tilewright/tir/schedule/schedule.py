"""`tir.Schedule`: a program and the steps that reshape it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...ir.buffer import Buffer
from ...ir.errors import UnsupportedError
from ...ir.expr import PrimExpr, Var
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...ir.stmt import Block, BlockRealize, For
from . import cache, inline, loops, marks, reduction
from . import compute_at as moving
from .primitive import BlockRV, LoopRV, primitive, refuse
from .state import ScheduleState
from .trace import Trace

__all__ = ["Schedule"]

_LATER = (
    "blockize cache_inplace can_decompose_padding decompose_padding enter_postproc loop_partition merge "
    "pad_einsum read_at reindex reindex_cache_read reindex_cache_write reorder_block_iter_var rolling_buffer "
    "sample_categorical sample_compute_location sample_partitioned_tile sample_perfect_tile "
    "set_axis_separator tensorize transform_block_layout transform_layout unsafe_hide_buffer_access "
    "unsafe_set_dtype write_at"
).split()


@primitive
def work_on(sch: Schedule, func_name: str) -> None:
    """Go on with another function of the module."""
    found = sch.mod.get_global_var(func_name)
    if not isinstance(sch.mod[found], PrimFunc):
        raise TypeError(f"{func_name} is not a PrimFunc, so it has no loops to schedule")
    sch.state.working_on = found


@primitive
def get_block(sch: Schedule, name: str, func_name: str | None = None) -> BlockRV:
    """The block of that name."""
    if func_name is not None and func_name != sch.state.working_on.name_hint:
        sch.mod.get_global_var(func_name)  # says which functions there are
        refuse(
            f"the schedule works on {sch.state.working_on.name_hint}, not on {func_name}",
            hint=f"call work_on({func_name!r}) first",
        )
    found = [r for r in sch.state.index.order if r.block.name_hint == name]
    if not found:
        known = ", ".join(r.block.name_hint for r in sch.state.index.order if r.block.name_hint != "root")
        refuse(f"there is no block named {name!r}", hint=f"the blocks are: {known}")
    if len(found) > 1:
        refuse(f"{len(found)} blocks are named {name!r}", at=found[1], hint="give them names of their own")
    return BlockRV(found[0].block.key, name)


@primitive
def get_loops(sch: Schedule, block: BlockRV) -> list[LoopRV]:
    """The loops around a block, outermost first."""
    return [LoopRV(x.loop_var) for x in sch.state.index.loops_of(sch.realize(block))]


@primitive
def get_child_blocks(sch: Schedule, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
    """The outermost blocks inside a block or loop."""
    if isinstance(block_or_loop, LoopRV):
        inside = sch.state.index.blocks_under(sch.loop(block_or_loop))
    else:
        inside = sch.state.index.blocks_under(sch.realize(block_or_loop).block.body)
    return [BlockRV(r.block.key, r.block.name_hint) for r in inside]


@primitive
def get_producers(sch: Schedule, block: BlockRV) -> list[BlockRV]:
    """The blocks that write what this one reads."""
    me = sch.realize(block)
    read = {r.buffer for r in me.block.reads}
    return [
        BlockRV(r.block.key, r.block.name_hint)
        for r in sch.siblings(me)
        if r is not me and any(w.buffer in read for w in r.block.writes)
    ]


@primitive
def get_consumers(sch: Schedule, block: BlockRV) -> list[BlockRV]:
    """The blocks that read what this one writes."""
    me = sch.realize(block)
    written = {w.buffer for w in me.block.writes}
    return [
        BlockRV(r.block.key, r.block.name_hint)
        for r in sch.siblings(me)
        if r is not me and any(x.buffer in written for x in r.block.reads)
    ]


class Schedule:
    """A program under scheduling. Each primitive checks before it rewrites, and is recorded in `trace`."""

    def __init__(
        self,
        mod: PrimFunc | IRModule,
        *,
        seed: int | None = None,
        debug_mask: Any = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> None:
        if isinstance(mod, PrimFunc):
            mod = IRModule({"main": mod})
        if not isinstance(mod, IRModule):
            raise TypeError(f"a schedule is made from a PrimFunc or an IRModule, not {type(mod).__name__}")
        names = [gv.name_hint for gv, f in mod.functions.items() if isinstance(f, PrimFunc)]
        if not names:
            raise ValueError("the module has no PrimFunc to schedule")
        self.state = ScheduleState(mod, "main" if "main" in names else names[0])
        self.origin = mod  # the program before the first step
        self.trace = Trace()
        self.busy = False  # whether a primitive is under way
        self._gone: dict[object, str] = {}
        self._seed = seed

    @property
    def primitives(self) -> frozenset[str]:
        """The names of all steps that there are."""
        return _PRIMITIVES

    # -- the program ---------------------------------------------------------------------------
    @property
    def mod(self) -> IRModule:
        """The program as it is now."""
        return self.state.mod

    @property
    def func_working_on(self) -> Any:
        return self.state.working_on

    def work_on(self, func_name: str) -> None:
        """Go on with another function of the module."""
        work_on(self, func_name)

    def copy(self) -> Schedule:
        """A schedule that goes its own way from here."""
        made = Schedule(self.mod, seed=self._seed)
        made.origin = self.origin
        made.state.working_on = self.state.working_on
        made.trace.insts = list(self.trace.insts)
        made._gone = dict(self._gone)
        return made

    def seed(self, seed: int) -> None:
        self._seed = seed

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Print the program, coloured on a terminal."""
        self.mod.show(*args, **kwargs)

    def get(self, rand_var_or_sref: Any) -> Any:
        """The statement that a handle stands for."""
        if isinstance(rand_var_or_sref, LoopRV):
            return self.loop(rand_var_or_sref)
        if isinstance(rand_var_or_sref, BlockRV):
            return self.realize(rand_var_or_sref).block
        return rand_var_or_sref

    def get_sref(self, rand_var: Any) -> Any:
        return self.get(rand_var)

    def __repr__(self) -> str:
        return self.mod.script()

    # -- handles -------------------------------------------------------------------------------
    def loop(self, handle: LoopRV) -> For:
        """The loop that a handle stands for, if it is still there."""
        if not isinstance(handle, LoopRV):
            raise TypeError(f"a loop is given by what get_loops or split returned, not by {handle!r}")
        found = self.state.index.loops.get(handle.var)
        if found is None:
            why = self._gone.get(handle.var)
            reason = f"it went with {why}" if why else "it is not in this program"
            refuse(f"loop `{handle.name}` does not exist any more: {reason}")
        assert found is not None
        return found

    def realize(self, handle: BlockRV | str) -> BlockRealize:
        """The block that a handle or a name stands for, with its bindings."""
        if isinstance(handle, str):
            handle = self.get_block(handle)
        if not isinstance(handle, BlockRV):
            raise TypeError(f"a block is given by its name or by what get_block returned, not by {handle!r}")
        found = self.state.index.blocks.get(handle.key)
        if found is None:
            why = self._gone.get(handle.key)
            reason = f"it went with {why}" if why else "it is not in this program"
            refuse(f"block {handle.name} does not exist any more: {reason}")
        assert found is not None
        return found

    def forget(self, handle: LoopRV | BlockRV, step: str) -> None:
        """Remember which step took a loop or block away."""
        self._gone[handle.var if isinstance(handle, LoopRV) else handle.key] = step

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Several steps as one: if one of them fails, none was done."""
        mod, gone, steps = self.state.mod, dict(self._gone), len(self.trace)
        try:
            yield
        except BaseException:
            self.state.mod, self._gone = mod, gone
            del self.trace.insts[steps:]
            raise

    def remove_rv(self, handle: Any) -> None:
        """Give a handle up (nothing holds on to it)."""

    def siblings(self, realize: BlockRealize) -> list[BlockRealize]:
        """The blocks in the same scope, this one included."""
        for up in self.state.index.ancestors(realize):
            if isinstance(up, Block):
                return self.state.index.blocks_under(up.body)
        return self.state.index.blocks_under(self.state.func.body)

    # -- getting around ------------------------------------------------------------------------
    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        return get_block(self, name, func_name)

    def get_loops(self, block: BlockRV | str) -> list[LoopRV]:
        return get_loops(self, self._block(block))

    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
        return get_child_blocks(self, block_or_loop)

    def get_producers(self, block: BlockRV | str) -> list[BlockRV]:
        return get_producers(self, self._block(block))

    def get_consumers(self, block: BlockRV | str) -> list[BlockRV]:
        return get_consumers(self, self._block(block))

    def _block(self, block: BlockRV | str) -> BlockRV:
        return self.get_block(block) if isinstance(block, str) else block

    # -- loops ---------------------------------------------------------------------------------
    def split(
        self,
        loop: LoopRV,
        factors: Sequence[int | PrimExpr | Var | None],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
        names: Sequence[str] | None = None,
    ) -> list[LoopRV]:
        return loops.split(self, loop, factors, preserve_unit_iters, disable_predication, names)

    def fuse(self, *loop: LoopRV, preserve_unit_iters: bool = True, name: str | None = None) -> LoopRV:
        return loops.fuse(self, *loop, preserve_unit_iters=preserve_unit_iters, name=name)

    def reorder(self, *ordered_loops: LoopRV) -> None:
        loops.reorder(self, *ordered_loops)

    def tile(
        self, x: LoopRV, y: LoopRV, x_factor: Any, y_factor: Any
    ) -> tuple[LoopRV, LoopRV, LoopRV, LoopRV]:
        return loops.tile(self, x, y, x_factor, y_factor)

    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV) -> LoopRV:
        return loops.add_unit_loop(self, block_or_loop)

    # -- marks ---------------------------------------------------------------------------------
    def parallel(self, loop: LoopRV) -> None:
        marks.parallel(self, loop)

    def vectorize(self, loop: LoopRV) -> None:
        marks.vectorize(self, loop)

    def unroll(self, loop: LoopRV) -> None:
        marks.unroll(self, loop)

    def bind(self, loop: LoopRV, thread_axis: Any) -> None:
        marks.bind(self, loop, thread_axis)

    def annotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: Any) -> None:
        marks.annotate(self, block_or_loop, ann_key, ann_val)

    def unannotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
        marks.unannotate(self, block_or_loop, ann_key)

    # -- moving --------------------------------------------------------------------------------
    def compute_at(
        self, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        moving.compute_at(self, self._block(block), loop, preserve_unit_loops, index)

    def reverse_compute_at(
        self, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        moving.reverse_compute_at(self, self._block(block), loop, preserve_unit_loops, index)

    def compute_inline(self, block: BlockRV | str) -> None:
        inline.compute_inline(self, self._block(block))

    def reverse_compute_inline(self, block: BlockRV | str) -> None:
        inline.reverse_compute_inline(self, self._block(block))

    def decompose_reduction(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        return reduction.decompose_reduction(self, self._block(block), loop)

    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        return reduction.rfactor(self, loop, factor_axis)

    # -- data ----------------------------------------------------------------------------------
    def cache_read(
        self,
        block: BlockRV | str,
        read_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:
        readers = None if consumer_blocks is None else [self._block(b) for b in consumer_blocks]
        return cache.cache_read(self, self._block(block), read_buffer_index, storage_scope, readers)

    def cache_write(
        self,
        block: BlockRV | str,
        write_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:
        readers = None if consumer_blocks is None else [self._block(b) for b in consumer_blocks]
        return cache.cache_write(self, self._block(block), write_buffer_index, storage_scope, readers)

    def set_scope(
        self, block: BlockRV | str, buffer_index: int | str | Buffer, storage_scope: str
    ) -> None:
        cache.set_scope(self, self._block(block), buffer_index, storage_scope)

    def storage_align(
        self, block: BlockRV | str, buffer_index: int, axis: int, factor: int, offset: int
    ) -> None:
        cache.storage_align(self, self._block(block), buffer_index, axis, factor, offset)

    def __getattr__(self, name: str) -> Any:
        if name in _LATER:

            def later(*args: Any, **kwargs: Any) -> Any:
                raise UnsupportedError(
                    f"tir.Schedule.{name} is not there yet; there are: {', '.join(sorted(self.primitives))}"
                )

            return later
        raise AttributeError(f"Schedule has no attribute {name!r}")


_PRIMITIVES = frozenset(
    name
    for room in (cache, inline, loops, marks, moving, reduction)
    for name, value in vars(room).items()
    if getattr(value, "is_primitive", False)
) | {"work_on", "get_block", "get_loops", "get_child_blocks", "get_producers", "get_consumers"}
