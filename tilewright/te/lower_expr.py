"""Expressions over tensors become expressions over buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ir import ops
from ..ir.buffer import Buffer
from ..ir.dtype import DataType
from ..ir.expr import (
    Add,
    BufferLoad,
    CmpOp,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    ProducerLoad,
    Select,
    Sub,
    Var,
    const,
)
from ..ir.functor import Mutator
from .tensor import Tensor

_INDEX_OPS = (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)


class LowerExpr(Mutator):
    """Loads from tensors become loads from their buffers, iterators become those of a block.

    With `index_type`, indices, sizes and iterators are of that type: `table` then holds variables of it, and
    where the program uses one as a value it is converted to the type that the program gave it.
    """

    def __init__(
        self,
        table: Mapping[Var, Var],
        buffer_of: Callable[[Tensor], Buffer],
        index_type: DataType | None = None,
    ) -> None:
        self.table, self.buffer_of, self.index_type = table, buffer_of, index_type
        self.memo: dict[int, Any] = {}
        self.kept: list[Any] = []  # nodes whose ids are keys of the memo must stay alive

    def visit(self, n: Any) -> Any:
        found = self.memo.get(id(n))
        if found is None:
            found = self.memo[id(n)] = super().visit(n)
            self.kept.append(n)
        return found

    def visit_Var(self, n: Var) -> PrimExpr:
        found = self.table.get(n, n)
        return found if found.dtype is n.dtype else ops.cast(n.dtype, found)

    def visit_ProducerLoad(self, n: ProducerLoad) -> PrimExpr:
        return BufferLoad(self.buffer_of(n.producer), tuple([self.index(i) for i in n.indices]))

    def _compare(self, n: CmpOp) -> PrimExpr:
        if self.index_type is not None and self._of_indices(n.a) and self._of_indices(n.b):
            return n.__class__(self.index(n.a), self.index(n.b))  # type: ignore[call-arg]
        return n.map_children(self.visit)

    visit_EQ = visit_NE = visit_LT = visit_LE = visit_GT = visit_GE = _compare

    def _of_indices(self, e: PrimExpr) -> bool:
        """Whether an expression is made of iterators, sizes and constants only."""
        if isinstance(e, _INDEX_OPS):
            return self._of_indices(e.a) and self._of_indices(e.b)
        return e in self.table if isinstance(e, Var) else isinstance(e, IntImm) and e.dtype.is_integral

    def index(self, e: PrimExpr) -> PrimExpr:
        """An index or a size."""
        kind = self.index_type
        if kind is None:
            return self.visit(e)  # type: ignore[no-any-return]
        if isinstance(e, IntImm):
            return const(e.value, kind)
        if isinstance(e, Var):
            return ops.cast(kind, self.table.get(e, e))
        if isinstance(e, _INDEX_OPS):
            return ops.BINARY[e.__class__](self.index(e.a), self.index(e.b))
        if isinstance(e, Select):
            return ops.select(self.visit(e.condition), self.index(e.true_value), self.index(e.false_value))
        return ops.cast(kind, self.visit(e))
