"""Each variable defined once."""

from __future__ import annotations

from typing import Any

from ...ir.buffer import Buffer
from ...ir.expr import IterVar, Let, PrimExpr, Var
from ...ir.function import PrimFunc
from ...ir.functor import Mutator
from ...ir.stmt import Allocate, AllocateConst, AttrStmt, DeclBuffer, For, LetStmt, Stmt


def convert_ssa(func: PrimFunc) -> PrimFunc:
    """Give every definition a variable of its own.

        for i in range(4): A[i] = 0            for i in range(4): A[i] = 0
        for i in range(4): B[i] = 1     ->     for i_1 in range(4): B[i_1] = 1

    The first definition keeps its variable. A hardware axis may be mentioned again under the same
    variable: it is the same axis.

    Needs: nothing. Gives: `verify_ssa`.
    """
    return _Convert(func).run(func)


class _Convert(Mutator):
    """`names` maps a variable or buffer that was defined before to its name in the current scope."""

    def __init__(self, func: PrimFunc) -> None:
        self.seen: set[Var] = set(func.params)
        self.declared: set[Buffer] = set(func.buffer_map.values())
        for b in func.buffer_map.values():
            self.seen.add(b.data)
        self.names: dict[Any, Any] = {}
        self.rebuilt: dict[Buffer, Buffer] = {}

    def define(self, v: Var) -> tuple[Var, Any]:
        """The variable to define instead of `v`, and the state that `undo` restores at the end of its scope."""
        held = self.names.get(v)
        if v not in self.seen:
            self.seen.add(v)
            made = v
            self.names.pop(v, None)
        else:
            made = v.__class__(v.name, v.type_annotation)
            self.seen.add(made)
            self.names[v] = made
        if held is not None or made is not v:
            self.rebuilt = {}
        return made, (v, held)

    def undo(self, mark: tuple[Any, Any]) -> None:
        v, held = mark
        if self.names.get(v) is not held:
            self.rebuilt = {}
        if held is None:
            self.names.pop(v, None)
        else:
            self.names[v] = held

    # -- uses ------------------------------------------------------------------------------
    def visit_Var(self, n: Var) -> PrimExpr:
        return self.names.get(n, n)  # type: ignore[no-any-return]

    def visit_buffer(self, b: Buffer) -> Buffer:
        if not self.names:
            return b
        made = self.names.get(b)
        if made is not None:
            return made  # type: ignore[no-any-return]
        made = self.rebuilt.get(b)
        if made is None:
            made = b.map_children(self.visit)
            data = self.names.get(b.data)
            if data is not None:
                made = made.replace(data=data)
            self.rebuilt[b] = made
        return made

    def _with_buffer(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        buffer = self.visit_buffer(made.buffer)
        return made if buffer is made.buffer else made.replace(buffer=buffer)

    visit_BufferLoad = visit_BufferStore = visit_BufferRegion = _with_buffer

    # -- definitions -----------------------------------------------------------------------
    def visit_For(self, n: For) -> For:
        low, extent = self.visit(n.min), self.visit(n.extent)
        var, mark = self.define(n.loop_var)
        body = self.visit(n.body)
        self.undo(mark)
        return n.updated(loop_var=var, min=low, extent=extent, body=body)

    def visit_LetStmt(self, n: LetStmt | Let) -> LetStmt | Let:
        value = self.visit(n.value)
        var, mark = self.define(n.var)
        body = self.visit(n.body)
        self.undo(mark)
        return n.updated(var=var, value=value, body=body)

    visit_Let = visit_LetStmt

    def visit_Allocate(self, n: Allocate | AllocateConst) -> Allocate | AllocateConst:
        extents = tuple([self.visit(e) for e in n.extents])
        var, mark = self.define(n.buffer_var)
        body = self.visit(n.body)
        self.undo(mark)
        return n.updated(buffer_var=var, extents=extents, body=body)

    visit_AllocateConst = visit_Allocate

    def visit_DeclBuffer(self, n: DeclBuffer) -> DeclBuffer:
        made, held = self.visit_buffer(n.buffer), self.names.get(n.buffer)
        if made is n.buffer and made in self.declared:
            made = made.replace()
        self.declared.add(made)
        if made is not n.buffer:
            self.names[n.buffer] = made
        body = self.visit(n.body)
        self.undo((n.buffer, held))
        return n if made is n.buffer and body is n.body else n.replace(buffer=made, body=body)

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        value = self.visit(n.value)
        node = n.node
        if isinstance(node, Var):
            node = self.visit(node)
        elif isinstance(node, Buffer):
            node = self.visit_buffer(node)
        elif isinstance(node, IterVar) and n.attr_key == "virtual_thread":
            var, mark = self.define(node.var)
            body = self.visit(n.body)
            self.undo(mark)
            if var is not node.var:
                node = IterVar(node.dom, var, node.iter_type, node.thread_tag)
            return self._rebuilt_attr(n, node, value, body)
        return self._rebuilt_attr(n, node, value, self.visit(n.body))

    @staticmethod
    def _rebuilt_attr(n: AttrStmt, node: Any, value: PrimExpr, body: Stmt) -> AttrStmt:
        return n.updated(node=node, value=value, body=body)
