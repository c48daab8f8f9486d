"""The position of allocations."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, PrimExpr, Range, Var
from ...ir.function import PrimFunc
from ...ir.functor import Mutator
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt
from ..analysis.carried import reads_are_covered, uses_under
from ..analysis.threads import is_shared_by_warp


def plan_buffer_allocation(func: PrimFunc) -> PrimFunc:
    """Allocate each buffer at the innermost loop or block around all of its accesses.

        with block("root"):                       with block("root"):
            B = alloc_buffer((8, 8))                  for i in range(8):
            for i in range(8):             ->             with block(""):
                …B[i, :] = …                                  B = alloc_buffer((8, 8))
                …= B[i, :]                                    …B[i, :] = …; … = B[i, :]

    A buffer with a loop-carried dependence stays outside of that loop.
    Needs: block form. Gives: allocations that `compact_buffer_allocation` can shrink.
    """
    return _Place(access_sites(func)).run(func)


def access_sites(func: PrimFunc) -> dict[Buffer, Stmt | None]:
    """For each allocated buffer the innermost `For` or `Block` that can contain its allocation: all its accesses are
    inside, and no iteration of an enclosing loop reads elements that another one wrote."""
    paths: dict[Buffer, list[Stmt]] = {}
    owners: dict[Buffer, Block] = {}

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

    def go(n: Any, path: list[Stmt], outside: list[Stmt]) -> None:
        if isinstance(n, For):
            path = [*path, n]
        elif isinstance(n, BlockRealize):
            owners.update(dict.fromkeys(n.block.alloc_buffers, n.block))
            # A buffer is used by a block as a whole, so its site is around the block.
            for region in (*n.block.reads, *n.block.writes):
                touch(region.buffer, path)
            for match in n.block.match_buffers:
                touch(match.source.buffer, path)
            outside, path, n = path, [*path, n.block], n.block
        elif isinstance(n, (BufferLoad, BufferStore)):
            touch(n.buffer, outside)  # the block may not declare it
        for child in n.children():
            if isinstance(child, (Stmt, PrimExpr)):
                go(child, path, outside)

    go(func.body, [], [])
    uses: dict[For, dict[Buffer, Any]] = {}
    sites: dict[Buffer, Stmt | None] = {}
    for buffer, path in paths.items():
        if buffer in owners:
            held = _deepest(path, owners[buffer], buffer, uses)
            sites[buffer] = held[-1] if held else None
    return sites


def _deepest(
    path: list[Stmt], owner: Block, buffer: Buffer, uses: dict[For, dict[Buffer, Any]]
) -> list[Stmt]:
    """The longest prefix of the path along which the allocation can move inwards: each iteration may have its own."""
    ana = Analyzer()
    below = False
    together: dict[Var, Range] = {}  # threads that share the buffer
    for i, n in enumerate(path):
        if isinstance(n, For):
            shared = _is_shared(buffer.scope(), n)
            if below and (shared or not _independent(n)):
                if n not in uses:
                    uses[n] = uses_under(n)
                found = uses[n].get(buffer)
            if shared:
                together[n.loop_var] = n.dom
                if below and found and any(u.continues_reduction() for u in found):
                    return path[:i]  # a reduction across threads
            elif below and not _independent(n):
                if not found or not reads_are_covered(n, [u.widened(together) for u in found], ana):
                    return path[:i]
            ana.bind_loop(n.loop_var, n.min, n.extent)
        below = below or n is owner
    return path


def _independent(n: For) -> bool:
    """Whether the iterations of a loop run concurrently without dependences: of a buffer that is used only inside, each
    reads only elements that it wrote."""
    if n.thread_binding is not None:
        return n.thread_binding.thread_tag.startswith(("blockIdx", "clusterCtaIdx"))
    return n.kind is ForKind.PARALLEL


def _is_shared(scope: str, n: For) -> bool:
    """Whether the iterations of a loop are threads that share the memory: those of a block, or of a warp."""
    tag = "" if n.thread_binding is None else n.thread_binding.thread_tag
    if scope == "shared.cluster" and tag.startswith("clusterCtaIdx"):
        return True
    return (
        tag.startswith("threadIdx")
        if scope.startswith("shared")
        else tag == "threadIdx.x" and is_shared_by_warp(scope)
    )


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
        return n.updated(body=body)

    def visit_Block(self, n: Block) -> Block:
        made = n.map_children(self.visit)
        allocs = tuple(b for b in n.alloc_buffers if b not in self.placed) + tuple(self.at.get(n, ()))
        if len(allocs) == len(n.alloc_buffers) and all(
            a is b for a, b in zip(allocs, n.alloc_buffers, strict=True)
        ):
            return made
        return made.replace(alloc_buffers=allocs)
