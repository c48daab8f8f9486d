"""Where buffers are allocated."""

from __future__ import annotations

from ...ir.buffer import Buffer
from ...ir.function import PrimFunc
from ...ir.functor import Mutator
from ...ir.stmt import Block, BlockRealize, For, Stmt

__all__ = ["access_sites", "plan_buffer_allocation"]


def plan_buffer_allocation(func: PrimFunc) -> PrimFunc:
    """Allocate each buffer at the innermost loop or block around all of its accesses.

        with block("root"):                       with block("root"):
            B = alloc_buffer((8, 8))                  for i in range(8):
            for i in range(8):             ->             with block(""):
                …B[i, :] = …                                  B = alloc_buffer((8, 8))
                …= B[i, :]                                    …B[i, :] = …; … = B[i, :]

    Needs: block form. Gives: allocations that `compact_buffer_allocation` can shrink.
    """
    return _Place(access_sites(func)).run(func)


def access_sites(func: PrimFunc) -> dict[Buffer, Stmt | None]:
    """For each allocated buffer the innermost `For` or `Block` that holds all of its accesses."""
    paths: dict[Buffer, list[Stmt]] = {}
    allocated: set[Buffer] = set()

    def touch(buffer: Buffer, path: list[Stmt]) -> None:
        known = paths.get(buffer)
        if known is None:
            paths[buffer] = list(path)
            return
        keep = 0
        for a, b in zip(known, path, strict=False):
            if a is not b:
                break
            keep += 1
        del known[keep:]

    def go(n: Stmt, path: list[Stmt]) -> None:
        if isinstance(n, For):
            path = [*path, n]
        elif isinstance(n, BlockRealize):
            allocated.update(n.block.alloc_buffers)
            # A buffer is used by a block as a whole, so its site is around the block.
            for region in (*n.block.reads, *n.block.writes):
                touch(region.buffer, path)
            for match in n.block.match_buffers:
                touch(match.source.buffer, path)
            path = [*path, n.block]
            n = n.block
        for child in n.children():
            if isinstance(child, Stmt):
                go(child, path)

    go(func.body, [])
    return {b: (p[-1] if p else None) for b, p in paths.items() if b in allocated}


class _Place(Mutator):
    def __init__(self, sites: dict[Buffer, Stmt | None]) -> None:
        self.at: dict[Stmt, list[Buffer]] = {}
        for buffer, site in sites.items():
            if site is not None:
                self.at.setdefault(site, []).append(buffer)
        self.placed = {b for buffers in self.at.values() for b in buffers}

    def visit_For(self, n: For) -> Stmt:
        body = self.visit(n.body)
        here = self.at.get(n)
        if here:
            body = BlockRealize([], True, Block([], [], [], "", body, alloc_buffers=here))
        return n if body is n.body else n.replace(body=body)

    def visit_Block(self, n: Block) -> Block:
        made = n.map_children(self.visit)
        allocs = tuple(b for b in n.alloc_buffers if b not in self.placed) + tuple(self.at.get(n, ()))
        if len(allocs) == len(n.alloc_buffers) and all(
            a is b for a, b in zip(allocs, n.alloc_buffers, strict=True)
        ):
            return made
        return made.replace(alloc_buffers=allocs)
