"""Index arithmetic in as few bits as its values need."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.errors import LoweringError
from ...ir.expr import (
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    IntImm,
    IterVar,
    Let,
    PrimExpr,
    Ramp,
    Range,
    Select,
    Var,
    const,
)
from ...ir.function import PrimFunc
from ...ir.functor import buffers_accessed, pre_order
from ...ir.op import Op
from ...ir.ops import cast, sub
from ...ir.stmt import Allocate, AttrStmt, BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt
from ..renew import folded
from .retype import Retyper

_IF_THEN_ELSE, _LIKELY = Op.get("tir.if_then_else"), Op.get("tir.likely")


def narrow_data_type(func: PrimFunc, target_bits: int = 32) -> PrimFunc:
    """Compute indices of more than `target_bits` bits in `target_bits`, where their bounds fit.

        for i in range(int64(128)):                for i in range(128):
            A[i * int64(4)] = 0           ->           A[i * 4] = 0

    Where such an index meets a wider value, it is widened again. Stored values and arguments of calls keep their type.

    Needs: nothing. Gives: no loop of wider type whose bounds fit into `target_bits`.
    """
    if not any(_is_wider(m, target_bits) for m in pre_order(func.body)):
        return func
    return _Narrower(target_bits).run(func)


def force_narrow_index_to_int32(func: PrimFunc) -> PrimFunc:
    """Make every index, loop and size an int32, whether or not it provably fits.

        def f(A: (n,)), n: int64                   def f(A: (n,)), n: int32
            for i in range(n): A[i] = 0     ->         for i in range(n): A[i] = 0

    Needs: no buffer of int64 elements. Gives: no int64.
    """
    for b in (*func.buffer_map.values(), *buffers_accessed(func.body)):
        if b.dtype.element == "int64":
            raise LoweringError(
                f"force_narrow_index_to_int32: buffer {b.name} holds int64 values, which would be truncated; "
                "use narrow_data_type, which narrows only what fits"
            )
    narrow = _Forced(32, always=True)
    names = {p: Var(p.name, "int32") for p in func.params if p.dtype == "int64"}
    for b in func.buffer_map.values():
        for e in b.children():
            if isinstance(e, Var) and e.dtype == "int64" and e not in names:
                names[e] = e.__class__(e.name, "int32")
    narrow.table.update(names)
    buffers = {p: narrow.buffer(b) for p, b in func.buffer_map.items()}
    body = narrow.visit(func.body)
    if body is func.body and not names and all(b is func.buffer_map[p] for p, b in buffers.items()):
        return func
    params = tuple(names.get(p, p) for p in func.params)
    return func.replace(params=params, buffer_map=buffers, body=body)


def _is_wider(m: Any, bits: int) -> bool:
    return isinstance(m, PrimExpr) and m.dtype.is_int and m.dtype.bits > bits


class _Narrower(Retyper):
    """Rewrites bottom up: an integer expression comes back in the narrow type if its value and those of all
    its parts fit there, else as it was."""

    def __init__(self, bits: int, always: bool = False) -> None:
        super().__init__()
        self.bits = bits
        self.narrow = DataType(f"int{bits}")
        self.always = always
        self.ana = Analyzer()

    # -- types -----------------------------------------------------------------------------
    def is_wide(self, dtype: DataType) -> bool:
        return dtype.is_int and dtype.bits > self.bits

    def is_narrow(self, e: PrimExpr) -> bool:
        return e.dtype.element is self.narrow

    def fits(self, e: PrimExpr) -> bool:
        if self.always:
            return True
        if e.dtype.is_vector:
            return isinstance(e, Broadcast) and self.fits(e.value)
        bound = self.ana.const_int_bound(e)
        return bool(bound.min_value >= self.narrow.low and bound.max_value <= self.narrow.high)

    def widened(self, new: PrimExpr, old: PrimExpr) -> PrimExpr:
        """The rewritten expression in the type that the original has."""
        if new.dtype is old.dtype:
            return new
        return old if isinstance(old, IntImm) else cast(old.dtype, new)

    def same(self, e: PrimExpr) -> PrimExpr:
        return self.widened(self.visit(e), e)

    # -- expressions -----------------------------------------------------------------------
    def visit_IntImm(self, n: IntImm) -> IntImm:
        if self.is_wide(n.dtype) and self.narrow.low <= n.value <= self.narrow.high:
            return IntImm(self.narrow, n.value)
        return n

    def binary(self, n: Any) -> PrimExpr:
        a, b = self.visit(n.a), self.visit(n.b)
        if self.is_wide(n.dtype) and self.is_narrow(a) and self.is_narrow(b) and self.fits(n):
            return folded(n.__class__(a, b))  # type: ignore[no-any-return]
        return self.same_operands(n, a, b)

    def compared(self, n: Any) -> PrimExpr:
        a, b = self.visit(n.a), self.visit(n.b)
        if a.dtype is b.dtype:
            return n if a is n.a and b is n.b else n.__class__(a, b)  # type: ignore[no-any-return]
        return self.same_operands(n, a, b)

    def same_operands(self, n: Any, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        a, b = self.widened(a, n.a), self.widened(b, n.b)
        return n if a is n.a and b is n.b else n.__class__(a, b)  # type: ignore[no-any-return]

    def visit_Select(self, n: Select) -> PrimExpr:
        condition, a, b = self.visit(n.condition), self.visit(n.true_value), self.visit(n.false_value)
        if a.dtype is not b.dtype:
            a, b = self.widened(a, n.true_value), self.widened(b, n.false_value)
        if condition is n.condition and a is n.true_value and b is n.false_value:
            return n
        return Select(condition, a, b)

    def visit_Cast(self, n: Cast) -> PrimExpr:
        value = self.visit(n.value)
        if self.is_wide(n.dtype) and self.is_narrow(value):
            return value  # type: ignore[no-any-return]
        if value is n.value:
            return n
        return cast(n.dtype, value)

    def visit_Ramp(self, n: Ramp) -> PrimExpr:
        base, stride = self.visit(n.base), self.visit(n.stride)
        more = cast(n.stride.dtype, sub(n.lanes, 1))
        last = n.base + n.stride * more if n.base.dtype.lanes == 1 else n.base
        if self.is_wide(n.base.dtype) and self.is_narrow(base) and self.is_narrow(stride) and self.fits(last):
            return Ramp(base, stride, n.lanes)
        base, stride = self.widened(base, n.base), self.widened(stride, n.stride)
        return n if base is n.base and stride is n.stride else Ramp(base, stride, n.lanes)

    def visit_Broadcast(self, n: Broadcast) -> PrimExpr:
        value = self.visit(n.value)
        return n if value is n.value else Broadcast(value, n.lanes)

    def visit_Call(self, n: Call) -> PrimExpr:
        if n.op is _IF_THEN_ELSE:
            condition, a, b = (self.visit(x) for x in n.args)
            if a.dtype is not b.dtype:
                a, b = self.widened(a, n.args[1]), self.widened(b, n.args[2])
            if condition is n.args[0] and a is n.args[1] and b is n.args[2]:
                return n
            return Call(a.dtype, n.op, (condition, a, b))
        return n.map_children(self.same)

    def visit_BufferLoad(self, n: BufferLoad) -> BufferLoad:
        made = n.map_children(self.visit)
        buffer = self.buffer(n.buffer)
        return made if buffer is n.buffer else made.replace(buffer=buffer)

    # -- definitions -----------------------------------------------------------------------
    def bound(self, n: Let | LetStmt) -> tuple[PrimExpr, Var]:
        value = self.visit(n.value)
        if n.value.dtype.is_int and n.value.dtype.lanes == 1:
            self.ana.bind(n.var, n.value)
        if not self.is_narrow(value):
            value = self.widened(value, n.value)
        return value, self.define(n.var, value.dtype)

    def visit_For(self, n: For) -> For:
        low, extent = self.visit(n.min), self.visit(n.extent)
        self.ana.bind_loop(n.loop_var, n.min, n.extent)
        var = n.loop_var
        small = self.is_narrow(low) and self.is_narrow(extent)
        if self.is_wide(var.dtype) and small and self.fits(n.min + n.extent):
            var = self.define(var, self.narrow)
        else:
            low, extent, var = (
                self.widened(low, n.min),
                self.widened(extent, n.extent),
                self.define(var, var.dtype),
            )
        body = self.visit(n.body)
        return n.updated(loop_var=var, min=low, extent=extent, body=body)

    def visit_AttrStmt(self, n: AttrStmt) -> AttrStmt:
        node, value = n.node, self.visit(n.value)
        if isinstance(node, IterVar):
            self.ana.bind_loop(node.var, const(0, node.var.dtype), n.value)
            if self.is_wide(node.var.dtype) and self.is_narrow(value):
                var = self.define(node.var, self.narrow)
                dom = None if node.dom is None else Range.from_min_extent(const(0, self.narrow), value)
                node = IterVar(dom, var, node.iter_type, node.thread_tag)
            else:
                value = self.widened(value, n.value)
        elif n.value.dtype is not value.dtype:
            value = self.widened(value, n.value)
        body = self.visit(n.body)
        return n.updated(node=node, value=value, body=body)

    # -- other statements ------------------------------------------------------------------
    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        buffer = self.buffer(n.buffer)
        value, where = self.same(n.value), [self.visit(i) for i in n.indices]
        return n.updated(buffer=buffer, value=value, indices=tuple(where))

    def visit_Evaluate(self, n: Evaluate) -> Stmt:
        return n.map_children(self.same)

    def visit_Allocate(self, n: Allocate) -> Stmt:
        return n.map_children(self.visit)

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        condition = self.visit(n.condition)
        with self.ana.constraint_scope(n.condition):
            then_case = self.visit(n.then_case)
        else_case = None if n.else_case is None else self.visit(n.else_case)
        return n.updated(condition=condition, then_case=then_case, else_case=else_case)


class _Forced(_Narrower):
    """Buffers' shapes become narrow too."""

    def __init__(self, bits: int, always: bool) -> None:
        super().__init__(bits, always)
        self.made: dict[Buffer, Buffer] = {}

    def buffer(self, b: Buffer) -> Buffer:
        if b not in self.made:
            self.made[b] = b.map_children(self.visit)
        return self.made[b]
