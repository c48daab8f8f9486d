"""The steps that rules for GPUs share: fusing, binding to thread blocks and threads, prefetching."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....ir.expr import BufferLoad, Call, PrimExpr, const_value
from ....ir.op import Op
from ....ir.stmt import BufferStore
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.transform.fetch_early import FETCH_EARLY
from ...program.facts import Facts, extent_of
from ...program.stages import Stage

__all__ = ["Kernel", "power"]


def power(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(0, (n - 1).bit_length())


class Kernel:
    """A stage that is becoming a kernel. `threads` and `widest` are the threads of a block and the width of
    vectors, if these are decided (else 0)."""

    def __init__(self, stage: Stage, threads: int = 0, widest: int = 0) -> None:
        self.program, self.sch, self.target = stage.program, stage.program.sch, stage.program.target
        self.gpu, self.root, self.outputs = self.target.gpu, stage.program.root, stage.program.outputs
        self.threads, self.widest = threads, widest
        self.finished: list[object] = []  # the keys of other blocks that the rule has scheduled

    @property
    def limit(self) -> int:
        """The greatest number of threads of a block."""
        return min(1024, int(self.target.max_num_threads))

    @property
    def most(self) -> int:
        """The threads of a block."""
        return min(self.threads or self.gpu.elementwise.plain_threads, int(self.target.max_num_threads))

    # -- other stages --------------------------------------------------------------------------------
    def is_done(self, rv: BlockRV) -> bool:
        return rv.key in self.program.done or rv.key in self.finished

    def is_output(self, f: Facts) -> bool:
        return self.program.is_output(f)

    def fusable_consumer(self, f: Facts) -> BlockRV | None:
        """The stage that can be the epilogue of a stage."""
        return self.program.fusable_consumer(f)

    def inlines(self, rv: BlockRV) -> bool:
        """Inline a stage, if that is possible; whether it was."""
        return self.sch.attempt(partial(self.sch.compute_inline, rv)) is None

    # -- steps ---------------------------------------------------------------------------------------
    def fused(self, loops: Sequence[LoopRV], rv: BlockRV) -> LoopRV:
        if not loops:
            inside = self.sch.get_loops(rv)
            return self.sch.add_unit_loop(inside[0] if inside else rv)
        return self.sch.fuse(*loops) if len(loops) > 1 else loops[0]

    def spread(
        self, loop: LoopRV, threads: int, wide: int = 1, tag: str = "blockIdx.x", several: int = 1
    ) -> None:
        """Bind a loop to blocks and threads; each thread has `several` vectors of `wide` neighbours."""
        sch, size = self.sch, extent_of(self.sch, loop)
        if size is not None:
            threads = min(threads, power(-(-size // wide)))
        if several > 1:
            loop, times, rest = sch.split(loop, [None, several, threads * wide])
            thread, *inner = sch.split(rest, [threads, wide]) if wide > 1 else (rest,)
            sch.reorder(loop, thread, times, *inner)
            sch.unroll(times)
        else:
            loop, thread, *inner = sch.split(loop, [None, threads, wide] if wide > 1 else [None, threads])
        sch.bind(loop, tag)
        sch.bind(thread, "threadIdx.x")
        for x in inner:
            sch.vectorize(x)

    def fetch_early(self, at: BlockRV | LoopRV, threads: int) -> None:
        """Prefetch the first operands of a kernel while the kernel before it ends: those of the thread blocks, of
        `threads` threads, that the SMs have room for at once."""
        gpu = self.gpu
        if self.target.has("launch.early"):
            self.sch.annotate(at, FETCH_EARLY, gpu.multiprocessors * (gpu.limits.threads // threads))

    def inline_padding(self, f: Facts) -> None:
        """Inline the stages that only pad the operands of a block."""
        for producer in self.sch.get_producers(f.rv):
            body = self.sch.get(producer).body
            alone = len(self.sch.get_consumers(producer)) == 1 and not self.is_done(producer)
            if alone and isinstance(body, BufferStore) and _pads(body.value):
                self.sch.compute_inline(producer)


def _pads(e: PrimExpr) -> bool:
    """Whether a value is padding: an element inside some bounds, and a constant outside."""
    if not isinstance(e, Call) or not isinstance(e.op, Op) or e.op.short_name != "if_then_else":
        return False
    return isinstance(e.args[1], BufferLoad) and const_value(e.args[2]) is not None
