"""Producers and consumers of blocks, for programs with thousands of blocks."""

from __future__ import annotations

from ...forks import cached_property
from ...ir.buffer import Buffer
from ...ir.stmt import BlockRealize, SeqStmt, Stmt
from ...tir.schedule.state import outermost_blocks

__all__ = ["Links"]


class Links:
    """The outermost blocks in the body of a block, by their keys, with their producers and consumers.

    A step of a schedule changes few of the statements of a body. What is known of the others is taken over from the
    links `before` the step.
    """

    def __init__(self, body: Stmt, before: Links | None = None) -> None:
        self.body = body
        self.parts = body.seq if isinstance(body, SeqStmt) else (body,)
        self.inside: dict[Stmt, list[BlockRealize]] = {} if before is None else before.inside
        self.met: set[object] = set() if before is None else before.met

    def blocks_in(self, part: Stmt) -> list[BlockRealize]:
        """The outermost blocks of a statement of the body, in order."""
        found = self.inside.get(part)
        if found is None:
            found = self.inside[part] = outermost_blocks(part)
            self.met.update(r.block.key for r in found)
        return found

    def keys(self) -> set[object]:
        """The keys of all blocks, including those that no longer exist."""
        for part in [p for p in self.parts if p not in self.inside]:
            self.blocks_in(part)
        return self.met.copy()

    def producers(self, key: object) -> list[object]:
        """The blocks that write the buffers that a block reads, in program order."""
        reads, _ = self.touched[key]
        return self._others(key, reads, self.writers)

    def consumers(self, key: object) -> list[object]:
        """The blocks that read the buffers that a block writes, in program order."""
        _, writes = self.touched[key]
        return self._others(key, writes, self.readers)

    def _others(self, key: object, buffers: set[Buffer], by: dict[Buffer, list[int]]) -> list[object]:
        places = sorted({at for b in buffers for at in by.get(b, ())})
        return [self.order[at] for at in places if self.order[at] is not key]

    @cached_property
    def order(self) -> list[object]:
        return [r.block.key for part in self.parts for r in self.blocks_in(part)]

    @cached_property
    def touched(self) -> dict[object, tuple[set[Buffer], set[Buffer]]]:
        """The buffers that each block reads and writes."""
        blocks = [r.block for part in self.parts for r in self.blocks_in(part)]
        return {b.key: ({r.buffer for r in b.reads}, {w.buffer for w in b.writes}) for b in blocks}

    @cached_property
    def readers(self) -> dict[Buffer, list[int]]:
        return self._by_buffer(0)

    @cached_property
    def writers(self) -> dict[Buffer, list[int]]:
        return self._by_buffer(1)

    def _by_buffer(self, side: int) -> dict[Buffer, list[int]]:
        out: dict[Buffer, list[int]] = {}
        for at, key in enumerate(self.order):
            for buffer in self.touched[key][side]:
                out.setdefault(buffer, []).append(at)
        return out
