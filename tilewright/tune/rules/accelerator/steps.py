"""The steps of schedules for accelerators: tiles of an output, and the stages that engines compute for a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.buffer import Buffer
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.transform.version_buffers import VERSIONS

__all__ = ["DMA", "PRAGMAS", "VECTOR", "Steps"]

DMA, VECTOR = "pragma_dma_copy", "pragma_vector_unit"
PRAGMAS = (DMA, VECTOR, VERSIONS)  # all marks of stages


class Steps:
    """Stages around the tiles of an output, for the decisions `values` of a row. `keys` are the blocks that are
    scheduled.

    for thread in vthread(2):
        for tiles of the output:           tile
            a = A[tile]                    load: a transfer, with its versions
            c = f(a)                       compute: an engine
            C[tile] = c                    the output: a transfer
    """

    def __init__(self, sch: Schedule, values: Mapping[str, int], arguments: set[Buffer]) -> None:
        self.sch, self.values, self.arguments = sch, values, arguments
        self.keys: list[object] = []

    def tile(self, out: BlockRV, count: int, order: Sequence[int] | None = None) -> list[LoopRV]:
        """Transfer an output in tiles of its first `count` axes. Returns the loops over tiles: virtual threads, then
        the axes in `order`."""
        sch = self.sch
        loops = sch.get_loops(out)
        outer, inner = [], []
        for i, loop in enumerate(loops[:count]):
            a, b = sch.split(loop, [None, self.values[f"tile{i}"]])
            outer.append(a)
            inner.append(b)
        threads: list[LoopRV] = []
        if self.values["threads"] == 2:
            n = self.values["axis"]
            outer[n], thread = sch.split(outer[n], [None, 2])
            threads = [thread]
        ordered = [outer[i] for i in order or range(count)]
        sch.reorder(*threads, *ordered, *inner, *loops[count:])
        for t in threads:
            sch.bind(t, "cthread")
        around = [*threads, *ordered]
        self.mark(out, around[-1], DMA)
        self.keys.append(out.key)
        return around

    def place(self, block: BlockRV, at: LoopRV, scope: str, pragma: str, versions: int) -> None:
        """Compute a stage under a loop, in a memory of the chip, by an engine. If it has several versions of its
        buffer, they are used in turns."""
        self.sch.compute_at(block, at, preserve_unit_loops=True)
        self.sch.set_scope(block, 0, scope)
        self.mark(block, at, pragma)
        if versions > 1:
            self.mark(block, at, VERSIONS, versions)
        self.keys.append(block.key)

    def load_arguments(self, reader: BlockRV, at: LoopRV, scope: str, versions: int) -> None:
        """Transfer the arguments that a stage reads itself."""
        for i in range(len(self.sch.realize(reader).block.reads)):
            if self.sch.realize(reader).block.reads[i].buffer in self.arguments:
                self.place(self.sch.cache_read(reader, i, scope), at, scope, DMA, versions)

    def mark(self, block: BlockRV, below: LoopRV, pragma: str, value: int = 1) -> None:
        """Mark a stage at its outermost loop below a loop."""
        self.sch.annotate(self.first_loop(block, below), pragma, value)

    def first_loop(self, block: BlockRV, below: LoopRV) -> LoopRV:
        """The outermost loop of a stage below a loop."""
        around = self.sch.state.index.loops_of(self.sch.realize(block))
        depth = next(i for i, n in enumerate(around) if n.loop_var is self.sch.loop(below).loop_var)
        return self.sch.get_loops(block)[depth + 1]
