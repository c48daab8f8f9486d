"""Double buffering: the data of the next iteration is loaded while that of the current one is used."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...ir.buffer import Buffer
from ...ir.expr import BufferLoad, Call, IntImm, PrimExpr, Var, const
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order, rewrite, statements
from ...ir.op import Op
from ...ir.ops import add, floormod, greater, less, mul, product, sub
from ...ir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Stmt,
    seq,
)
from ..renew import renewed

_ACCESS_PTR = Op.get("tir.tvm_access_ptr")
_KEY = "double_buffer_scope"


def inject_double_buffer(func: PrimFunc, *, split_loop: int = 1) -> PrimFunc:
    """Load one iteration ahead into the other half of a buffer.

        for k in range(n):                        s = allocate(128)
            s = allocate(64)                      s[0:64] = A[0:64]
            # attr [s] double_buffer_scope        for k in range(n):
            s[0:64] = A[k*64:...]        ->           if k + 1 < n:
            use(s[0:64])                                  # attr [s] double_buffer_write
                                                          s[(k+1) % 2 * 64 : ...] = A[(k+1)*64 : ...]
                                                      use(s[k % 2 * 64 : ...])

    A buffer that is used outside of the loop, written outside of the marked statement, or filled from memory that the
    loop writes, stays single.

    With `split_loop`, a loop of constant extent is unrolled by that factor; the half that each copy uses is a constant
    if the factor is even.
    Needs: flat buffers. Gives: no `double_buffer_scope`.
    """
    if not any(isinstance(m, AttrStmt) and m.attr_key == _KEY for m in statements(func.body)):
        return func
    return rewrite(
        _Inject(func, split_loop).run(func), {AttrStmt: lambda n: n.body if n.attr_key == _KEY else None}
    )


def _mentions(n: Any) -> Counter[Var]:
    """How often each pointer is used."""
    out: Counter[Var] = Counter()
    for m in pre_order(n):
        if isinstance(m, (BufferLoad, BufferStore)):
            out[m.buffer.data] += 1
        elif isinstance(m, Var) and m.dtype.is_handle:
            out[m] += 1
    return out


def _stored(n: Any) -> Counter[Var]:
    """The number of stores through each pointer."""
    return Counter(m.buffer.data for m in pre_order(n) if isinstance(m, BufferStore))


class _Inject(Mutator):
    """Inner loops first. `sizes` maps each doubled pointer to the size of a half."""

    def __init__(self, func: PrimFunc, turns: int) -> None:
        self.turns = turns  # unroll factor
        self.total = _mentions(func.body)
        self.sizes: dict[Var, PrimExpr] = {}
        self.known: dict[Var, Allocate] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def visit_Allocate(self, n: Allocate) -> Stmt:
        self.known[n.buffer_var] = n
        body = self.visit(n.body)
        size = self.sizes.get(n.buffer_var)
        if size is not None:
            return n.replace(extents=(mul(size, const(2, size.dtype)),), body=body)
        return n.updated(body=body)

    def visit_DeclBuffer(self, n: DeclBuffer) -> DeclBuffer:
        body = self.visit(n.body)
        buffer = self.buffers.get(n.buffer, n.buffer)
        return n.updated(buffer=buffer, body=body)

    @staticmethod
    def pointer(n: AttrStmt) -> Any:
        return n.node.data if isinstance(n.node, Buffer) else n.node

    def visit_For(self, n: For) -> Stmt:
        loop = n.updated(body=self.visit(n.body))
        before: list[Stmt] = []
        held: list[Allocate] = []
        for mark in _marks(loop.body):
            var = self.pointer(mark)
            if loop.kind is ForKind.SERIAL and self.allowed(loop, mark, var):
                loop, first, own = self.split(loop, mark, var)
                before.append(first)
                held += own
            else:
                loop = loop.replace(body=_swap(loop.body, mark, mark.body))
        out = loop if not before else seq(*before, _in_turns(loop, self.turns))
        for a in reversed(held):
            size = self.sizes.pop(a.buffer_var)
            out = a.replace(extents=(mul(size, const(2, size.dtype)),), body=out)
        return out

    def allowed(self, loop: For, mark: AttrStmt, var: Var) -> bool:
        if var not in self.known or var in self.sizes:
            return False
        inside, producer = _mentions(loop), _mentions(mark)
        if inside[var] != self.total[var]:
            return False
        stores = [m for m in pre_order(loop.body) if isinstance(m, BufferStore)]
        own = {id(m) for m in pre_order(mark.body) if isinstance(m, BufferStore)}
        if any(
            (m.buffer.data is var) != (id(m) in own) for m in stores if m.buffer.data is var or id(m) in own
        ):
            return False
        written = {m.buffer.data for m in stores if id(m) not in own}
        return not any(v in written for v in producer)

    def split(self, loop: For, mark: AttrStmt, var: Var) -> tuple[For, Stmt, list[Allocate]]:
        """The loop that loads ahead, the prologue, and the allocation if it was inside the loop."""
        k, one = loop.loop_var, const(1, loop.loop_var.dtype)
        size = product(self.known[var].extents)
        self.sizes[var] = size
        turn = sub(k, loop.min)
        following = add(k, one)
        end = add(loop.min, loop.extent)
        first = renewed(self.moved(mark.body, var, const(0, k.dtype)), {k: loop.min})
        if not isinstance(loop.extent, IntImm):
            first = IfThenElse(greater(loop.extent, const(0, k.dtype)), first)
        ahead = self.moved(mark.body, var, _half(turn, size))
        ahead = renewed(ahead, {k: following})
        fetch = IfThenElse(less(following, end), AttrStmt(mark.node, "double_buffer_write", const(1), ahead))
        marker = AttrStmt(mark.node, _KEY, mark.value, mark.body)
        body = _swap(loop.body, mark, marker)
        body = self.moved(body, var, _half(turn, size), marker)
        body = _swap(body, marker, fetch)
        own: list[Allocate] = []
        body = _without(body, var, own)
        return loop.replace(body=body), first, own

    def moved(self, n: Stmt, var: Var, shift: PrimExpr, leave: Stmt | None = None) -> Stmt:
        """The statement with its accesses to `var` in the half that starts at `shift`."""
        return _Move(self, var, shift, leave).visit(n)  # type: ignore[no-any-return]

    def doubled(self, b: Buffer) -> Buffer:
        if b not in self.buffers:
            size = product(b.shape)
            self.buffers[b] = b.replace(shape=(mul(size, const(2, size.dtype)),))
        return self.buffers[b]


def _in_turns(loop: For, turns: int) -> Stmt:
    """A loop of constant extent unrolled by `turns`, and its tail."""
    if turns < 2 or not isinstance(loop.extent, IntImm) or loop.extent.value < turns:
        return loop
    k = loop.loop_var
    whole, left = divmod(loop.extent.value, turns)
    outer, inner = Var(f"{k.name}_0", k.dtype), Var(f"{k.name}_1", k.dtype)
    at = add(loop.min, add(mul(outer, const(turns, k.dtype)), inner))
    body = For(inner, const(0, k.dtype), const(turns, k.dtype), ForKind.UNROLLED, renewed(loop.body, {k: at}))
    parts: list[Stmt] = [
        loop.replace(loop_var=outer, min=const(0, k.dtype), extent=const(whole, k.dtype), body=body)
    ]
    if left:
        begin = add(loop.min, const(whole * turns, k.dtype))
        parts.append(loop.replace(min=begin, extent=const(left, k.dtype)))
    return seq(*parts)


def _half(turn: PrimExpr, size: PrimExpr) -> PrimExpr:
    return mul(floormod(turn, const(2, turn.dtype)), size)


class _Move(Mutator):
    def __init__(self, owner: _Inject, var: Var, shift: PrimExpr, leave: Stmt | None) -> None:
        self.owner, self.var, self.shift, self.leave = owner, var, shift, leave

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        return n if n is self.leave else self.visit_children(n)

    def _access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        if n.buffer.data is not self.var:
            return made
        return made.replace(buffer=self.owner.doubled(n.buffer), indices=(add(made.indices[-1], self.shift),))

    visit_BufferLoad = visit_BufferStore = _access

    def visit_DeclBuffer(self, n: DeclBuffer) -> DeclBuffer:
        body = self.visit(n.body)
        buffer = self.owner.doubled(n.buffer) if n.buffer.data is self.var else n.buffer
        return n.updated(buffer=buffer, body=body)

    def visit_Call(self, n: Call) -> PrimExpr:
        made = n.map_children(self.visit)
        if n.op is _ACCESS_PTR and n.args[1] is self.var:
            kind, data, offset, *rest = made.args
            return made.replace(args=(kind, data, add(offset, self.shift), *rest))
        return made


def _marks(body: Stmt) -> list[AttrStmt]:
    """The marked statements that run once in every iteration."""
    if isinstance(body, AttrStmt) and body.attr_key == _KEY:
        return [body]
    if isinstance(body, SeqStmt):
        return [m for s in body.seq for m in _marks(s)]
    if isinstance(body, (Allocate, DeclBuffer, AttrStmt)):
        return _marks(body.body)
    return []


def _swap(n: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """`n` with the statement `old` in it replaced."""
    if n is old:
        return new
    if isinstance(n, SeqStmt):
        made = [_swap(s, old, new) for s in n.seq]
        return n if all(a is b for a, b in zip(made, n.seq, strict=True)) else seq(*made)
    if isinstance(n, (Allocate, DeclBuffer, AttrStmt)):
        return n.updated(body=_swap(n.body, old, new))
    return n


def _without(n: Stmt, var: Var, taken: list[Allocate]) -> Stmt:
    """`n` without the allocation of `var`, which is appended to `taken`."""
    if isinstance(n, Allocate) and n.buffer_var is var:
        taken.append(n)
        return n.body
    if isinstance(n, SeqStmt):
        return seq(*[_without(s, var, taken) for s in n.seq])
    if isinstance(n, (Allocate, DeclBuffer, AttrStmt)):
        return n.replace(body=_without(n.body, var, taken))
    return n
