"""Facts about a whole function that its translation needs: aliases of memory, and the types of its accesses."""

from __future__ import annotations

from typing import Any

from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.expr import BufferLoad, Call, IterVar, Let, PrimExpr, Var
from ...ir.function import PrimFunc
from ...ir.functor import pre_order
from ...ir.op import Op
from ...ir.stmt import (
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRealize,
    BufferStore,
    For,
    ForKind,
    LetStmt,
)

_ADDRESS, _ALLREDUCE = Op.get("tir.address_of"), Op.get("tir.tvm_thread_allreduce")
_COLLECTIVE = {
    "tir.tvm_storage_sync",
    "tir.tvm_thread_allreduce",
    "tir.tvm_warp_shuffle",
    "tir.tvm_warp_shuffle_up",
    "tir.tvm_warp_shuffle_down",
}


class Facts:
    """The memories of a function. Pointers that may alias have the same `root`.

    `kinds` are the types that a memory is accessed as; `unit` is the smallest of their sizes in bytes, the granularity
    in which accesses are recorded; `tracked` are the roots that the function allocates itself; `shared` those that it
    allocates for several threads.
    """

    def __init__(self, func: PrimFunc) -> None:
        self._parent: dict[Var, Var] = {}
        self.kinds: dict[Var, dict[DataType, None]] = {}
        self.windows: set[Var] = set()  # pointers into the middle of a memory
        self.blocks = False  # whether the function is in block form
        self._allocated: dict[Var, str] = {}
        for b in func.buffer_map.values():
            self._see(b)
        for n in pre_order(func.body):
            self._visit(n)
        self._units: dict[Var, int] = {}
        for var, kinds in self.kinds.items():
            root = self.root(var)
            for kind in kinds:
                size = kind.element.nbytes
                self._units[root] = min(size, self._units.get(root, size))
        self.tracked = {self.root(v) for v in self._allocated}
        self.shared = {self.root(v) for v, scope in self._allocated.items() if several_threads(scope)}

    # -- gathering ---------------------------------------------------------------------------
    def _visit(self, n: Any) -> None:
        if isinstance(n, (BufferLoad, BufferStore)):
            self._see(n.buffer)
        elif isinstance(n, Allocate):
            self.kinds.setdefault(n.buffer_var, {})[n.dtype] = None
            self._allocated[n.buffer_var] = pointer_scope(n.buffer_var)
        elif isinstance(n, Block):
            for b in n.alloc_buffers:
                self._see(b)
                self._allocated[b.data] = b.scope_name
            for m in n.match_buffers:
                self._see(m.buffer)
                self._see(m.source.buffer)
                self._join(m.buffer.data, m.source.buffer.data)
        elif isinstance(n, BlockRealize):
            self.blocks = True
        elif isinstance(n, BufferRealize):
            self._see(n.buffer)
            self._allocated[n.buffer.data] = n.buffer.scope_name
        elif isinstance(n, (LetStmt, Let)) and n.var.dtype.is_handle:
            self.windows.add(n.var)
            for v in pointers(n.value):
                self._join(n.var, v)
        elif isinstance(n, Call) and isinstance(n.op, Op) and n.op.name == "tir.atomic_add":
            for v in pointers(n.args[0]):
                self.kinds.setdefault(v, {})[n.args[1].dtype] = None

    def _see(self, b: Buffer) -> None:
        self.kinds.setdefault(b.data, {})[b.dtype] = None

    def _join(self, a: Var, b: Var) -> None:
        x, y = self.root(a), self.root(b)
        if x is not y:
            self._parent[x] = y

    # -- answers -----------------------------------------------------------------------------
    def root(self, v: Var) -> Var:
        """The representative of the pointers that may alias."""
        while v in self._parent:
            v = self._parent[v]
        return v

    def kinds_of(self, v: Var) -> list[DataType]:
        """The types that the memory of `v` is accessed as, through any pointer."""
        root = self.root(v)
        found = {k.element: None for w, kinds in self.kinds.items() if self.root(w) is root for k in kinds}
        return list(found)

    def unit(self, v: Var) -> int:
        """Bytes of a cell of the memory that `v` points to."""
        return self._units.get(self.root(v), 1)

    def stored_in(self, s: Any) -> set[Var]:
        """The roots of memory that the statement stores to."""
        return {self.root(n.buffer.data) for n in pre_order(s) if isinstance(n, BufferStore)}

    def written_in(self, s: Any) -> set[Var]:
        """The roots of memory that the statement may write, including through pointers that escape."""
        out = self.stored_in(s)
        for n in pre_order(s):
            if isinstance(n, Call):
                for a in n.args:
                    if a.dtype.is_handle or (isinstance(a, BufferLoad) and n.op in (_ADDRESS, _ALLREDUCE)):
                        out.update(self.root(v) for v in pointers(a))
        return out


def pointers(e: PrimExpr) -> list[Var]:
    """The handle variables and the buffers' pointers in an expression."""
    out: list[Var] = []
    for n in pre_order(e):
        if isinstance(n, BufferLoad):
            out.append(n.buffer.data)
        elif isinstance(n, Var) and n.dtype.is_handle:
            out.append(n)
    return out


def pointer_scope(v: Var) -> str:
    """The memory that a pointer variable points into, by its type."""
    return getattr(v.type_annotation, "storage_scope", "") or "global"


def several_threads(scope: str) -> bool:
    """Whether the threads of a block share an allocation in that memory scope."""
    return scope.startswith("shared") or scope == "warp"


def virtual(tag: str) -> bool:
    """Whether a thread axis is virtual: vthread, and any axis that is not a GPU's."""
    return not tag.startswith(("blockIdx", "clusterCtaIdx", "threadIdx"))


def thread_axis(n: Any) -> tuple[str, Any] | None:
    """The tag and the extent of the thread axis that a statement opens, if it does."""
    if isinstance(n, AttrStmt) and isinstance(n.node, IterVar):
        if n.attr_key == "virtual_thread":
            return n.node.thread_tag or "vthread", n.value
        if n.attr_key == "thread_extent":
            return n.node.thread_tag or n.node.var.name, n.value
    if isinstance(n, For) and n.kind is ForKind.THREAD_BINDING and n.thread_binding is not None:
        return n.thread_binding.thread_tag or n.thread_binding.var.name, n.extent
    return None


def thread_axes(s: Any) -> dict[str, list[Any]]:
    """The extents that the hardware thread axes have in a statement, by tag."""
    out: dict[str, list[Any]] = {}
    for n in pre_order(s):
        found = thread_axis(n)
        if found is not None and not virtual(found[0]):
            out.setdefault(found[0], []).append(found[1])
    return out


def has_barrier(s: Any) -> bool:
    """Whether a statement contains a barrier."""
    return any(
        isinstance(n, Call) and isinstance(n.op, Op) and n.op.name in _COLLECTIVE for n in pre_order(s)
    )
