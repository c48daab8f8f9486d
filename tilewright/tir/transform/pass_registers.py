"""Copies that pass registers: their loads and their stores as two statements."""

from __future__ import annotations

from ...ir.buffer import Buffer, decl_buffer
from ...ir.expr import BufferLoad, PrimExpr, const, const_value
from ...ir.functor import Mutator
from ...ir.ops import add, mul, sub
from ...ir.stmt import BufferStore, For, Stmt

__all__ = ["through_registers"]


def through_registers(n: Stmt) -> tuple[Stmt, Stmt, Buffer] | str:
    """A copy as loads to registers, stores of these, and the registers; or what it must be for that.

    for i in unroll(4):           ->      for i in unroll(4):             for i in unroll(4):
        S[i*32 + tx] = A[i*n + tx]            R[i] = A[i*n + tx]              S[i*32 + tx] = R[i]
    """
    sizes = _Sizes()
    sizes.visit(n)
    if not sizes.fits or len(sizes.kinds) != 1:
        return "loops of constant extents around stores of one type"
    (kind,) = sizes.kinds
    held = decl_buffer([sizes.count], kind, f"{sizes.name}_registers", scope="local")
    return _Half(held, True).visit(n), _Half(held, False).visit(n), held


class _Walk(Mutator):
    """Visits stores with the loops around them, and the number of registers that the stores before need."""

    def __init__(self) -> None:
        self.loops: list[For] = []
        self.count = 0
        self.fits = True

    def visit_For(self, n: For) -> Stmt:
        self.fits &= const_value(n.extent) is not None and n.thread_binding is None
        self.loops.append(n)
        made = n.map_children(self.visit)
        self.loops.pop()
        return made

    def next(self) -> PrimExpr:
        """The register of this store in this iteration."""
        at: PrimExpr = const(0)
        size = 1
        for x in reversed(self.loops):
            at = add(at, mul(sub(x.loop_var, x.min), const(size, x.loop_var.dtype)))
            size *= int(const_value(x.extent) or 1)
        at, self.count = add(at, const(self.count)), self.count + size
        return at


class _Sizes(_Walk):
    def __init__(self) -> None:
        super().__init__()
        self.kinds: set[str] = set()
        self.name = ""

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        self.kinds.add(str(n.buffer.dtype))
        self.name = n.buffer.name
        self.fits &= not n.value.dtype.is_vector
        self.next()
        return n


class _Half(_Walk):
    """The statement with the loads, or the one with the stores."""

    def __init__(self, held: Buffer, loads: bool) -> None:
        super().__init__()
        self.held, self.loads = held, loads

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        at = self.next()
        if self.loads:
            return BufferStore(self.held, n.value, (at,))
        return n.replace(value=BufferLoad(self.held, (at,)))
