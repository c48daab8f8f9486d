"""`tir.Schedule`: a program and the steps that reshape it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...absent import absent, text_of
from ...ir.buffer import Buffer
from ...ir.errors import ScheduleError
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...ir.stmt import Block, BlockRealize, For
from . import (
    block_iters,
    cache,
    inline,
    layout,
    loops,
    marks,
    padding,
    partition,
    reduction,
    rolling,
    rounding,
    sampling,
)
from . import compute_at as moving
from . import reindex as staging
from . import tensorize as hardware
from .blocks import consumers_of, producers_of
from .buffers import position_among
from .index_map import IndexMap
from .library import dot_bits as dotting
from .library import rebase as rebasing
from .library import scales as scaling
from .library import split_attention as splitting
from .library import stream as streaming
from .library import winograd as filtering
from .library import words as packing
from .primitive import PRIMITIVES, BlockRV, LoopRV, primitive, refuse
from .state import ScheduleState
from .trace import Trace
from .verify import Report, verify

T = TypeVar("T")


class Position(NamedTuple):
    """A position of a schedule: the program, the removed handles with the reasons, and the steps so far."""

    mod: IRModule
    gone: Mapping[object, str]
    steps: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class StmtSRef:
    """A block or a loop of a schedule."""

    stmt: Any


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
        verify: str = "",
    ) -> None:
        if isinstance(mod, PrimFunc):
            mod = IRModule({"main": mod})
        if not isinstance(mod, IRModule):
            raise TypeError(f"a schedule is made from a PrimFunc or an IRModule, not {type(mod).__name__}")
        if debug_mask not in ("all", "none") and not isinstance(debug_mask, int):
            raise ValueError(f"debug_mask={debug_mask!r}: it is 'all', 'none' or bits of ScheduleDebugMask")
        if error_render_level not in ("detail", "fast", "none"):
            raise ValueError(f"error_render_level={error_render_level!r}: it is 'detail', 'fast' or 'none'")
        names = [gv.name_hint for gv, f in mod.functions.items() if isinstance(f, PrimFunc)]
        if not names:
            raise ValueError("the module has no PrimFunc to schedule")
        self.state = ScheduleState(mod, "main" if "main" in names else names[0])
        self.origin = mod  # the program before the first step
        self.trace = Trace()
        self.busy = False  # whether a primitive is under way
        self.trusting = True  # whether what steps assume is believed; of a trace from a file it is proved
        self._gone: dict[object, str] = {}
        self._seed = seed
        self._rng: Any = None
        self.decision: Any = None  # what the step under way has drawn
        if verify not in ("", "each"):
            raise ValueError(f"verify={verify!r}: it is 'each', to verify after every step, or nothing")
        self.verify_each = verify == "each"
        self.explanation: Any = None  # of the automatic scheduler

    @property
    def primitives(self) -> frozenset[str]:
        """The names of all steps: the primitives that are methods."""
        return frozenset(name for name in PRIMITIVES if hasattr(Schedule, name))

    # -- the program ---------------------------------------------------------------------------
    @property
    def mod(self) -> IRModule:
        """The program as it is now."""
        return self.state.mod

    @property
    def func_working_on(self) -> Any:
        return self.state.working_on

    @primitive
    def work_on(self, func_name: str) -> None:
        """Go on with another function of the module."""
        found = self.mod.get_global_var(func_name)
        if not isinstance(self.mod[found], PrimFunc):
            raise TypeError(f"{func_name} is not a PrimFunc, so it has no loops to schedule")
        self.state.working_on = found

    def copy(self) -> Schedule:
        """An independent copy of the schedule."""
        seed = None if self._seed is None else self.fork_seed()
        made = Schedule(self.mod, seed=seed, verify="each" if self.verify_each else "")
        made.origin = self.origin
        made.state.working_on = self.state.working_on
        made.trace.insts = list(self.trace.insts)
        made._gone = dict(self._gone)
        made.explanation = self.explanation
        return made

    def seed(self, seed: int) -> None:
        """Reset the random number generator of the schedule."""
        self._seed, self._rng = seed, None

    def fork_seed(self) -> int:
        """A random number from this schedule, to seed another one."""
        return int(self.rng.getrandbits(31))

    @property
    def rng(self) -> Any:
        """The random number generator of the schedule."""
        if self._rng is None:
            import random

            self._rng = random.Random(self._seed)
        return self._rng

    def verify(self, seed: int = 0, arrays: Sequence[Any] | None = None) -> Report:
        return verify(self, seed, arrays)

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Print the program, coloured on a terminal."""
        self.mod.show(*args, **kwargs)

    def diff(self, step: int | None = None) -> None:
        """Print the program before and after side by side, for all steps or for one step of the trace."""
        from .report import print_diff

        print_diff(self, step)

    def explain(self, as_json: bool = False) -> str:
        """Print the decisions of the automatic scheduler with their reasons, as text or JSON; the text is returned."""
        if self.explanation is None:
            text = "this schedule was written by hand: its steps are in `sch.trace`"
        else:
            text = self.explanation.to_json() if as_json else str(self.explanation)
        print(text)
        return text

    def to_html(self, path: str | Path) -> None:
        """Write a page that plays the schedule step by step: the loops, what changed, what they touch."""
        from .report import write_html

        write_html(self, path)

    def get(self, rand_var_or_sref: Any) -> Any:
        """The statement that a handle, or a reference from `get_sref`, stands for."""
        if isinstance(rand_var_or_sref, LoopRV):
            return self.loop(rand_var_or_sref)
        if isinstance(rand_var_or_sref, BlockRV):
            return self.realize(rand_var_or_sref).block
        if isinstance(rand_var_or_sref, StmtSRef):
            return rand_var_or_sref.stmt
        return rand_var_or_sref

    def get_sref(self, rand_var: Any) -> StmtSRef:
        """The statement that a handle stands for, as `sref.stmt`."""
        return StmtSRef(self.get(rand_var))

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
            reason = f"it was removed by {why}" if why else "it is not in this program"
            refuse(f"loop `{handle.name}` no longer exists: {reason}")
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
            reason = f"it was removed by {why}" if why else "it is not in this program"
            refuse(f"block {handle.name} no longer exists: {reason}")
        return found

    def forget(self, key: object, step: str) -> None:
        """Record which step removed the loop of a variable, or the block of a key."""
        self._gone[key] = step

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Group several steps: if one of them fails, all are rolled back."""
        back = self.way_back()
        try:
            yield
        except BaseException:
            back()
            raise

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Try some steps: all of them are rolled back at the end."""
        back = self.way_back()
        try:
            yield
        finally:
            back()

    def way_back(self) -> Callable[[], None]:
        """A function that returns to the current position after further steps. Nothing is copied: handles are forgotten
        in order, and `go_to` leaves the old record of them as it is."""
        mod, steps, gone, count = self.state.mod, len(self.trace), self._gone, len(self._gone)

        def back() -> None:
            self.state.mod, self._gone = mod, gone
            del self.trace.insts[steps:]
            while len(gone) > count:
                gone.popitem()

        return back

    def attempt(self, steps: Callable[[], T]) -> T | ScheduleError:
        """Take some steps that may be refused. Returns their result; the refusal if there is one, and the schedule is
        then unchanged.

        Whether a step is possible is what its primitive finds out while it checks and rewrites the program. Schedulers
        that have another way to go on therefore ask for the answer here, and catch nothing.
        """
        try:
            with self.all_or_nothing():
                return steps()
        except ScheduleError as refusal:
            return refusal

    def position(self) -> Position:
        """The current position, for `go_to`."""
        return Position(self.state.mod, dict(self._gone), tuple(self.trace.insts))

    def go_to(self, there: Position) -> None:
        """Return to a position of a schedule of the same module, with the same handles."""
        self.state.mod, self._gone = there.mod, dict(there.gone)
        self.trace.insts[:] = there.steps

    def remove_rv(self, handle: Any) -> None:
        """Release a handle; it does nothing, since handles hold no resources."""

    def siblings(self, realize: BlockRealize) -> list[BlockRealize]:
        """The blocks in the same scope, this one included."""
        for up in self.state.index.ancestors(realize):
            if isinstance(up, Block):
                return self.state.index.blocks_under(up.body)
        return self.state.index.blocks_under(self.state.func.body)

    # -- getting around ------------------------------------------------------------------------
    @primitive
    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block of that name."""
        if func_name is not None and func_name != self.state.working_on.name_hint:
            self.mod.get_global_var(func_name)  # says which functions there are
            refuse(
                f"the schedule works on {self.state.working_on.name_hint}, not on {func_name}",
                hint=f"call work_on({func_name!r}) first",
            )
        found = self.state.index.named(name) or self._updates_of(name)
        if not found:
            known = ", ".join(
                r.block.name_hint for r in self.state.index.order if r.block.name_hint != "root"
            )
            refuse(f"there is no block named {name!r}", hint=f"the blocks are: {known}")
        if len(found) > 1:
            refuse(
                f"{len(found)} blocks are named {name!r}", at=found[1], hint="give them names of their own"
            )
        return BlockRV(found[0].block.key, name)

    def _updates_of(self, name: str) -> list[BlockRealize]:
        """The block C for the name `C_update`, which the classic decompose_reduction gives it beside `C_init`; and
        `C_o`, the block that blockize makes around it, for `C_update_o`."""
        own, mark, around = name.rpartition("_update")
        if not mark or around not in ("", "_o") or not self.state.index.named(f"{own}_init"):
            return []
        return self.state.index.named(f"{own}{around}")

    @primitive
    def get_loops(self, block: BlockRV | str) -> list[LoopRV]:
        """The loops around a block, outermost first."""
        return [LoopRV(x.loop_var) for x in self.state.index.loops_of(self.realize(block))]

    @primitive
    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV | str) -> list[BlockRV]:
        """The outermost blocks inside a block or loop."""
        if isinstance(block_or_loop, LoopRV):
            inside = self.state.index.blocks_under(self.loop(block_or_loop))
        else:
            inside = self.state.index.blocks_under(self.realize(block_or_loop).block.body)
        return [BlockRV(r.block.key, r.block.name_hint) for r in inside]

    @primitive
    def get_producers(self, block: BlockRV | str) -> list[BlockRV]:
        """The blocks that write a buffer that this block reads."""
        return [BlockRV(r.block.key, r.block.name_hint) for r in producers_of(self, self.realize(block))]

    @primitive
    def get_consumers(self, block: BlockRV | str) -> list[BlockRV]:
        """The blocks that read a buffer that this block writes."""
        return [BlockRV(r.block.key, r.block.name_hint) for r in consumers_of(self, self.realize(block))]

    @primitive
    def get_output_blocks(self, scope_block: BlockRV | str) -> list[BlockRV]:
        """The blocks inside a block that write what others see after it: an output of the function, or memory of
        an outer block."""
        scope = self.realize(scope_block).block
        own = set(scope.alloc_buffers)
        return [
            BlockRV(r.block.key, r.block.name_hint)
            for r in self.state.index.blocks_under(scope.body)
            if any(w.buffer not in own for w in r.block.writes)
        ]

    def _block(self, block: BlockRV | str) -> BlockRV:
        return self.get_block(block) if isinstance(block, str) else block

    # -- loops ---------------------------------------------------------------------------------
    split = loops.split
    fuse = loops.fuse
    reorder = loops.reorder
    tile = loops.tile
    add_unit_loop = loops.add_unit_loop

    # -- marks ---------------------------------------------------------------------------------
    parallel = marks.parallel
    vectorize = marks.vectorize
    unroll = marks.unroll
    bind = marks.bind
    launch_around = marks.launch_around
    annotate = marks.annotate
    unannotate = marks.unannotate

    # -- moving --------------------------------------------------------------------------------
    compute_at = moving.compute_at
    reverse_compute_at = moving.reverse_compute_at
    compute_inline = inline.compute_inline
    reverse_compute_inline = inline.reverse_compute_inline
    decompose_reduction = reduction.decompose_reduction
    merge_reduction = reduction.merge_reduction
    rfactor = reduction.rfactor
    cascade_reduction = reduction.cascade_reduction
    rebase = rebasing.rebase
    stream = streaming.stream
    split_attention = splitting.split_attention
    winograd = filtering.winograd
    pack_words = packing.pack_words
    split_scales = scaling.split_scales
    pack_bits = scaling.pack_bits
    pack_dot_bits = dotting.pack_dot_bits

    # -- decisions -----------------------------------------------------------------------------
    sample_perfect_tile = sampling.sample_perfect_tile
    sample_partitioned_tile = sampling.sample_partitioned_tile
    sample_categorical = sampling.sample_categorical
    sample_compute_location = sampling.sample_compute_location

    # -- data ----------------------------------------------------------------------------------
    def cache_read(
        self,
        block: BlockRV | str,
        read_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:
        readers = None if consumer_blocks is None else [self._block(b) for b in consumer_blocks]
        me = self._block(block)
        which = position_among("reads")(self, me, read_buffer_index)
        return cache.cache_read(self, me, which, storage_scope, readers)

    def cache_write(
        self,
        block: BlockRV | str,
        write_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:
        readers = None if consumer_blocks is None else [self._block(b) for b in consumer_blocks]
        me = self._block(block)
        which = position_among("writes")(self, me, write_buffer_index)
        return cache.cache_write(self, me, which, storage_scope, readers)

    set_scope = cache.set_scope
    storage_align = cache.storage_align

    def transform_layout(
        self,
        block: BlockRV | str,
        buffer: tuple[str, int] | str | int | Buffer,
        index_map: IndexMap | Callable[..., Any],
        pad_value: Any = None,
        *,
        assume_injective_transform: bool = False,
    ) -> None:
        found = self._block(block)
        layout.relayout(self, found, buffer, index_map, pad_value, assume_injective_transform)

    set_axis_separator = layout.set_axis_separator
    unsafe_set_dtype = layout.unsafe_set_dtype

    # -- hardware ------------------------------------------------------------------------------
    blockize = hardware.blockize
    tensorize = hardware.tensorize
    reindex = staging.reindex
    reindex_cache_read = staging.reindex_cache_read
    reindex_cache_write = staging.reindex_cache_write
    cache_inplace = staging.cache_inplace
    loop_partition = partition.loop_partition
    merge = partition.merge
    reorder_block_iter_var = block_iters.reorder_block_iter_var
    transform_block_layout = block_iters.transform_block_layout
    decompose_padding = padding.decompose_padding
    can_decompose_padding = padding.can_decompose_padding
    pad_einsum = padding.pad_einsum
    round_up = rounding.round_up
    rolling_buffer = rolling.rolling_buffer

    def __getattr__(self, name: str) -> Any:
        if text_of(f"tir.Schedule.{name}") is not None:
            return absent(f"tir.Schedule.{name}")
        raise AttributeError(f"Schedule has no attribute {name!r}")
