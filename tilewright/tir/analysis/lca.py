"""Lowest common ancestors of buffer accesses, and the anchor block of a program."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, IterVar, Var
from ...ir.function import PrimFunc
from ...ir.functor import Visitor
from ...ir.module import IRModule
from ...ir.stmt import AttrStmt, Block, BlockRealize, BufferStore, DeclBuffer, For, Stmt
from .measure import estimate_tir_flops


class _Place:
    """A loop or block on the way from the root."""

    __slots__ = ("depth", "parent", "stmt")

    def __init__(self, stmt: Stmt | None, parent: _Place | None) -> None:
        self.stmt, self.parent = stmt, parent
        self.depth: int = 0 if parent is None else parent.depth + 1


class _Nested(Protocol):
    @property
    def depth(self) -> int: ...
    @property
    def parent(self) -> Any: ...


P = TypeVar("P", bound=_Nested)


def common_place(a: P, b: P) -> P:
    """The lowest common ancestor of two places, by parents and depths."""
    while a is not b:
        if a.depth >= b.depth:
            a = a.parent
        else:
            b = b.parent
    return a


class _AccessLCA(Visitor):
    def __init__(self, func: PrimFunc) -> None:
        self.root = self.place = _Place(None, None)
        self.found: dict[Buffer, _Place | None] = {}
        self.by_data: dict[Var, Buffer] = {}
        for b in func.buffer_map.values():
            self.know(b)

    def know(self, b: Buffer) -> None:
        self.by_data.setdefault(b.data, b)
        self.found.setdefault(b, None)

    def access(self, b: Buffer) -> None:
        held = self.found.get(b)
        self.found[b] = self.place if held is None else common_place(held, self.place)

    def _touch(self, n: BufferLoad | BufferStore) -> None:
        self.know(n.buffer)
        self.access(n.buffer)
        self.visit_children(n)

    visit_BufferLoad = visit_BufferStore = _touch

    def visit_Var(self, n: Var) -> None:
        """A pointer by itself: the whole buffer may be used there."""
        b = self.by_data.get(n)
        if b is not None:
            self.access(b)

    def inside(self, n: Stmt, then: Any) -> None:
        held = self.place
        self.place = _Place(n, held)
        then()
        self.place = held

    def visit_For(self, n: For) -> None:
        self.visit(n.min)
        self.visit(n.extent)
        self.inside(n, lambda: self.visit(n.body))

    def visit_AttrStmt(self, n: AttrStmt) -> None:
        self.visit(n.value)
        if n.attr_key == "thread_extent" and isinstance(n.node, IterVar):
            self.inside(n, lambda: self.visit(n.body))
        else:
            self.visit(n.body)

    def visit_DeclBuffer(self, n: DeclBuffer) -> None:
        self.know(n.buffer)
        self.visit(n.body)

    def visit_BlockRealize(self, n: BlockRealize) -> None:
        for v in (*n.iter_values, n.predicate):
            self.visit(v)
        self.visit(n.block)

    def visit_Block(self, n: Block) -> None:
        for b in n.alloc_buffers:
            self.know(b)
        for m in n.match_buffers:
            self.access(m.source.buffer)
            self.know(m.buffer)

        def body() -> None:
            if n.init is not None:
                self.visit(n.init)
            self.visit(n.body)

        self.inside(n, body)


def detect_buffer_access_lca(func: PrimFunc) -> dict[Buffer, Stmt | None]:
    """For each buffer that is used, the smallest loop, kernel or block around all of its uses.

    None stands for the whole function: a buffer that is used in several places at its top.
    """
    walk = _AccessLCA(func)
    walk.visit(func.body)
    return {b: p.stmt for b, p in walk.found.items() if p is not None}


def find_anchor_block(mod: IRModule | PrimFunc) -> Block | None:
    """The anchor block of a program: the reduction with the most operations, else the last block."""
    func = mod
    if isinstance(mod, IRModule):
        functions = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
        named = [f for gv, f in mod.functions.items() if gv.name_hint == "main" and isinstance(f, PrimFunc)]
        if not functions:
            return None
        func = (named or functions)[0]
    best: tuple[float, int] | None = None
    anchor: Block | None = None
    for order, (block, runs) in enumerate(_leaf_blocks(func)):
        weight = estimate_tir_flops(block.body) * runs if _reduces(block) else -1.0
        if best is None or (weight, order) >= best:
            best, anchor = (weight, order), block
    return anchor


def _reduces(block: Block) -> bool:
    return block.init is not None or any(iv.is_reduction for iv in block.iter_vars)


def _leaf_blocks(func: Any) -> list[tuple[Block, float]]:
    """The blocks without nested blocks, each with its number of runs."""
    out: list[tuple[Block, float]] = []

    def go(n: Any, runs: float) -> bool:
        if isinstance(n, For):
            size = getattr(n.extent, "value", 1)
            return go(n.body, runs * float(size))
        if isinstance(n, BlockRealize):
            if not go(n.block.body, runs):
                out.append((n.block, runs))
            return True
        found = [go(c, runs) for c in n.children() if isinstance(c, Stmt)]
        return any(found)

    go(func.body, 1.0)
    return out
