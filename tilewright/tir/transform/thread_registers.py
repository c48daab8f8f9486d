"""Memory of a warp distributed over the registers of its threads."""

from __future__ import annotations

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.expr import IterVar, PrimExpr, Var, const
from ...ir.functor import Mutator
from ...ir.stmt import Allocate, AttrStmt, DeclBuffer, For, Stmt
from ...ir.types import PointerType, PrimType


class ThreadRegisters(Mutator):
    """The base of the passes that distribute an allocation over threads: new pointers, buffers over them, loops with
    known ranges, and the variable of threadIdx.x."""

    def __init__(self) -> None:
        self.ana = Analyzer()
        self.pointers: dict[Var, Var] = {}
        self.counts: dict[Var, int] = {}  # registers of a thread
        self.buffers: dict[Buffer, Buffer] = {}
        self.thread: Var | None = None

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key == "thread_extent" and isinstance(n.node, IterVar):
            self.ana.bind_loop(n.node.var, const(0, n.node.var.dtype), n.value)
            if n.node.thread_tag == "threadIdx.x":
                self.thread = n.node.var
        return n.map_children(self.visit)

    def visit_For(self, n: For) -> Stmt:
        self.ana.bind_loop(n.loop_var, n.min, n.extent)
        if n.thread_binding is not None and n.thread_binding.thread_tag == "threadIdx.x":
            self.thread = n.loop_var
        return n.map_children(self.visit)

    def in_registers(self, n: Allocate, kind: DataType, count: int) -> Allocate:
        """The allocation of a thread's own registers."""
        var = Var(n.buffer_var.name, PointerType(PrimType(kind), "local"))
        self.pointers[n.buffer_var], self.counts[n.buffer_var] = var, count
        return Allocate(var, kind, (const(count),), n.condition, self.visit(n.body), n.annotations)

    def visit_Var(self, n: Var) -> PrimExpr:
        return self.pointers.get(n, n)

    def visit_DeclBuffer(self, n: DeclBuffer) -> Stmt:
        if n.buffer.data not in self.pointers:
            return n.map_children(self.visit)
        return DeclBuffer(self.registers(n.buffer), self.visit(n.body))

    def registers(self, b: Buffer) -> Buffer:
        """The buffer over a thread's own registers."""
        made = self.buffers.get(b)
        if made is None:
            var = self.pointers[b.data]
            held = var.type_annotation
            assert isinstance(held, PointerType) and isinstance(held.element_type, PrimType)
            size = const(self.counts[b.data])
            made = Buffer(
                var, held.element_type.dtype, (size,), (), const(0), b.name, b.data_alignment, 1, ()
            )
            self.buffers[b] = made
        return made
