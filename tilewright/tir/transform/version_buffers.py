"""Versions of a buffer that iterations use in turns, so that one can be filled while another one is used."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.expr import Call, PrimExpr, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, statements
from ...ir.op import Op
from ...ir.ops import add, floormod, mul, product, sub
from ...ir.stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, For, Stmt, stmt_list
from .inject_software_pipeline import STAGE, opened, pipeline_steps, versions_of

VERSIONS = "pragma_buffer_versions"
_ACCESS_PTR = Op.get("tir.tvm_access_ptr")


def version_buffers(func: PrimFunc) -> PrimFunc:
    """Give a buffer several versions, which the iterations of the loops around its allocation use in turns.

        for k in range(8):                               for k in range(8):
            A = allocate(64)                                 A = allocate(128)
            # pragma_buffer_versions = 2            ->       A[k % 2 * 64 : k % 2 * 64 + 64] = X[k*64 : k*64 + 64]
            A[0:64] = X[k*64 : k*64 + 64]                    use(A[k % 2 * 64 : k % 2 * 64 + 64])
            use(A[0:64])

    Statements keep their order: the engines of an accelerator are decoupled, so the one that fills the buffer runs
    ahead by itself as soon as there is another version to fill. The pragma marks a statement that fills the buffer. A
    loop with `software_pipeline_stage`, which `double_buffer()` sets, has as many versions of a buffer as there are
    stages in which it is live.

    Needs: flat buffers. Gives: no `pragma_buffer_versions` and no `software_pipeline_stage`.
    """
    wanted: dict[Var, int] = {}
    marked = False
    for s in statements(func.body):
        if isinstance(s, AttrStmt) and s.attr_key == VERSIONS:
            count = int(const_value(s.value) or 1)
            wanted |= {n.buffer.data: count for n in pre_order(s.body) if isinstance(n, BufferStore)}
        elif isinstance(s, For) and STAGE in s.annotations:
            marked = True
            wanted |= _staged(s)
    return _Version(wanted).run(func) if wanted or marked else func


def _staged(loop: For) -> dict[Var, int]:
    """The buffers of a pipelined loop, and the number of stages in which each is live."""
    allocations: list[Allocate] = []
    views: list[Buffer] = []
    body = opened(loop.body, allocations, views)
    steps = pipeline_steps(loop, stmt_list(body), {STAGE: loop.annotations[STAGE]})
    return {a.buffer_var: versions_of(a.buffer_var, steps) for a in allocations}


class _Version(Mutator):
    def __init__(self, wanted: dict[Var, int]) -> None:
        self.wanted, self.ana = wanted, Analyzer()
        self.loops: list[For] = []
        self.shifts: dict[Var, PrimExpr] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def visit_For(self, n: For) -> Stmt:
        self.ana.bind_loop(n.loop_var, n.min, n.extent)
        self.loops.append(n)
        made: For = self.visit_children(n)
        self.loops.pop()
        if STAGE not in n.annotations:
            return made
        keep = {k: v for k, v in n.annotations.items() if not k.startswith("software_pipeline")}
        return made.replace(annotations=keep)

    def visit_Allocate(self, n: Allocate) -> Stmt:
        count = self.wanted.get(n.buffer_var, 1)
        if count == 1 or not self.loops:
            return self.visit_children(n)  # type: ignore[no-any-return]
        size = product(n.extents)
        turn: PrimExpr = const(0)
        for x in self.loops:
            turn = add(mul(turn, x.extent), sub(x.loop_var, x.min))
        self.shifts[n.buffer_var] = self.ana.simplify(mul(floormod(turn, const(count)), size))
        return n.replace(extents=(mul(size, const(count)),), body=self.visit(n.body))  # type: ignore[no-any-return]

    def visit_DeclBuffer(self, n: DeclBuffer) -> Stmt:
        return n.replace(buffer=self.widened(n.buffer), body=self.visit(n.body))  # type: ignore[no-any-return]

    def widened(self, b: Buffer) -> Buffer:
        if b.data not in self.shifts:
            return b
        if b not in self.buffers:
            self.buffers[b] = b.replace(shape=(mul(product(b.shape), const(self.wanted[b.data])),))
        return self.buffers[b]

    def _access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        shift = self.shifts.get(n.buffer.data)
        if shift is None:
            return made
        return made.replace(buffer=self.widened(n.buffer), indices=(add(made.indices[0], shift),))

    visit_BufferLoad = visit_BufferStore = _access

    def visit_Call(self, n: Call) -> PrimExpr:
        made = n.map_children(self.visit)
        if n.op is _ACCESS_PTR and isinstance(n.args[1], Var) and n.args[1] in self.shifts:
            kind, data, offset, *rest = made.args
            return made.replace(args=(kind, data, add(offset, self.shifts[n.args[1]]), *rest))  # type: ignore[no-any-return]
        return made  # type: ignore[no-any-return]

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        return self.visit(n.body) if n.attr_key == VERSIONS else self.visit_children(n)  # type: ignore[no-any-return]
