"""Virtual threads interleaved in one hardware thread, statement by statement."""

from __future__ import annotations

from typing import Any

from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, IterVar, Let, PrimExpr, Var, const, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, Visitor, pre_order
from ...ir.op import CallEffectKind, Op
from ...ir.ops import add, mul, product
from ...ir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from ..analysis.effects import has_effect
from ..renew import renewed

_ACCESS_PTR = Op.get("tir.tvm_access_ptr")
_MOST_COPIES = 16


def inject_virtual_thread(func: PrimFunc) -> PrimFunc:
    """Run the body of each virtual thread axis for all its threads, interleaved at the innermost statement.

        # attr [vt] virtual_thread = 2           t = allocate(2)
        t = allocate(1)                          s = allocate(1)
        s = allocate(1)                          for k in range(n):
        for k in range(n):             ->            s[0] = B[k]
            s[0] = B[k]                              t[0] = t[0] + A[k] * s[0]
            t[0] = t[0] + A[vt*n+k] * s[0]           t[1] = t[1] + A[n+k] * s[0]

    A statement that depends on the virtual thread is repeated for each of them, by copies if it contains no loop, else
    by a loop; other statements run once. Memory allocated inside whose contents depend on the virtual thread gets a
    copy for each of them. A command of an engine (`coproc_scope`) is one statement.

    Needs: flat buffers; a constant number of threads. Gives: no `virtual_thread`.
    """
    return _Inject().run(func)


class _Inject(Mutator):
    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        made = self.visit_children(n)
        if n.attr_key != "virtual_thread" or not isinstance(n.node, IterVar):
            return made
        count = const_value(made.value)
        if count is None:
            raise LoweringError(
                f"virtual thread {n.node.var.name}: its extent is `{made.value}`; give it a constant one"
            )
        var = n.node.var
        touched = _Touched(var)
        while touched.grow(made.body):
            pass
        return _Interleave(var, int(count), touched).visit(made.body)  # type: ignore[no-any-return]


class _Touched(Visitor):
    """The variables and pointers whose contents depend on the virtual thread, by a fixed point."""

    def __init__(self, var: Var) -> None:
        self.names: set[Var] = {var}
        self.changed = False
        self.control = 0

    def grow(self, body: Stmt) -> bool:
        """One more walk of the fixed point; returns whether it found more."""
        self.changed = False
        self.visit(body)
        return self.changed

    def mark(self, v: Var) -> None:
        if v not in self.names:
            self.names.add(v)
            self.changed = True

    def depends(self, *exprs: Any) -> bool:
        for e in exprs:
            for m in pre_order(e):
                if isinstance(m, Var) and m in self.names:
                    return True
                if isinstance(m, (BufferLoad, BufferStore)) and m.buffer.data in self.names:
                    return True
        return False

    def visit_LetStmt(self, n: LetStmt | Let) -> None:
        if self.depends(n.value):
            self.mark(n.var)
        self.visit_children(n)

    visit_Let = visit_LetStmt

    def visit_BufferStore(self, n: BufferStore) -> None:
        if self.control or self.depends(n.value, *n.indices):
            self.mark(n.buffer.data)
        self.visit_children(n)

    def visit_Call(self, n: Call) -> None:
        """A call that is not pure may write to every buffer that it takes."""
        if isinstance(n.op, Op) and n.op.effect > CallEffectKind.ReadState:
            if self.control or self.depends(*n.args):
                for v in _pointers(n):
                    self.mark(v)
        self.visit_children(n)

    def _under(self, dependent: bool, n: Any) -> None:
        self.control += dependent
        self.visit_children(n)
        self.control -= dependent

    def visit_For(self, n: For) -> None:
        dependent = self.depends(n.min, n.extent)
        if dependent:
            self.mark(n.loop_var)
        self._under(dependent, n)

    def visit_IfThenElse(self, n: IfThenElse | While) -> None:
        self._under(self.depends(n.condition), n)

    visit_While = visit_IfThenElse


def _pointers(call: Call) -> list[Var]:
    """The pointers that a call takes, except those that it only reads through."""
    out: list[Var] = []
    stack: list[Any] = list(call.args)
    while stack:
        e = stack.pop()
        if e.__class__ is Call and e.op is _ACCESS_PTR:
            mask = const_value(e.args[4])
            if mask is None or int(mask) & 2:
                out.extend(v for v in e.args[1:2] if isinstance(v, Var))
            continue
        if isinstance(e, Var) and e.dtype.is_handle:
            out.append(e)
        elif isinstance(e, BufferLoad):
            out.append(e.buffer.data)
        stack.extend(e.children())
    return out


class _Interleave(Mutator):
    """Puts copies or a loop over the virtual threads around the smallest statements that need them."""

    def __init__(self, var: Var, count: int, touched: _Touched) -> None:
        self.var, self.count, self.touched = var, count, touched
        self.strides: dict[Var, PrimExpr] = {}
        self.buffers: dict[Any, Any] = {}
        self.loops = 0  # depth of the loops in what was visited last
        self.injected = False

    def needs(self, *exprs: Any) -> bool:
        return not self.injected and self.touched.depends(*exprs)

    def inject(self, n: Stmt) -> Stmt:
        """`n` for each virtual thread."""
        self.injected, self.loops = True, 0
        body = self.visit(n)
        self.injected = False
        if self.loops == 0 and self.count < _MOST_COPIES:
            copies = [renewed(body, {self.var: const(i, self.var.dtype)}) for i in range(self.count)]
            return seq(*copies)
        index = Var(f"{self.var.name}_s", self.var.dtype)
        self.loops += 1
        return For(index, 0, self.count, ForKind.SERIAL, renewed(body, {self.var: index}))

    # -- memory ----------------------------------------------------------------------------
    def visit_Allocate(self, n: Allocate) -> Stmt:
        if self.needs(*n.extents):
            return self.inject(n)
        if self.injected or n.buffer_var not in self.touched.names:
            return self.visit_children(n)
        kind = n.extents[0].dtype if n.extents else self.var.dtype
        size = product(n.extents) if n.extents else const(1, kind)
        self.strides[n.buffer_var] = size
        body = self.visit(n.body)
        return n.replace(extents=(mul(size, const(self.count, size.dtype)),), body=body)

    def visit_DeclBuffer(self, n: DeclBuffer) -> DeclBuffer:
        return n.replace(buffer=self.widened(n.buffer), body=self.visit(n.body))

    def widened(self, b: Any) -> Any:
        if b.data not in self.strides:
            return b
        if b not in self.buffers:
            dims = (mul(product(b.shape), const(self.count, b.shape[0].dtype)),)
            self.buffers[b] = b.replace(shape=dims)
        return self.buffers[b]

    def _access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        stride = self.strides.get(n.buffer.data)
        if stride is None:
            return made
        index = made.indices[-1]
        shift = mul(stride, self.var)
        if stride.dtype is not index.dtype.element:
            shift = shift.astype(index.dtype.element)
        return made.replace(buffer=self.widened(n.buffer), indices=(add(index, shift),))

    visit_BufferLoad = _access

    def visit_Call(self, n: Call) -> PrimExpr:
        made = n.map_children(self.visit)
        if n.op is _ACCESS_PTR:
            kind, data, offset, *rest = n.args
            stride = self.strides.get(data) if isinstance(data, Var) else None
            if stride is not None:
                return made.replace(args=(kind, data, add(mul(stride, self.var), self.visit(offset)), *rest))
        return made

    def visit_Var(self, n: Var) -> Var:
        return n

    # -- statements ------------------------------------------------------------------------
    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        if not self.injected and (n.buffer.data in self.strides or self.needs(n.value, *n.indices)):
            return self.inject(n)
        return self._access(n)  # type: ignore[no-any-return]

    def visit_Evaluate(self, n: Evaluate) -> Stmt:
        if has_effect(n.value) and self.needs(n.value):
            return self.inject(n)
        return self.visit_children(n)

    def visit_LetStmt(self, n: LetStmt) -> Stmt:
        return self.inject(n) if self.needs(n.value) else self.visit_children(n)

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        whole = n.attr_key == "coproc_scope"  # a command of an engine is not taken apart
        return self.inject(n) if self.needs(n if whole else n.value) else self.visit_children(n)

    def visit_IfThenElse(self, n: IfThenElse | AssertStmt | While) -> Stmt:
        return self.inject(n) if self.needs(n.condition) else self.visit_children(n)

    visit_AssertStmt = visit_While = visit_IfThenElse

    def visit_For(self, n: For) -> Stmt:
        if self.needs(n.min, n.extent):
            return self.inject(n)
        made = self.visit_children(n)
        self.loops += 1
        return made

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        most, out = 0, []
        for s in n.seq:
            self.loops = 0
            out.append(self.visit(s))
            most = max(most, self.loops)
        self.loops = most
        return n if all(a is b for a, b in zip(out, n.seq, strict=True)) else seq(*out)
