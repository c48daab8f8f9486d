"""Accesses that are provably out of bounds."""

from __future__ import annotations

from typing import Any

from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad
from ...ir.function import PrimFunc
from ...ir.stmt import BufferStore
from ...ir.transform import as_pass
from .analyzed import AnalyzedMutator


class _Check(AnalyzedMutator):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def _access(self, n: BufferLoad | BufferStore) -> Any:
        for i, (index, dim) in enumerate(zip(n.indices, n.buffer.shape, strict=True)):
            if index.dtype.is_vector:
                continue
            if self.ana.can_prove(index < 0) or self.ana.can_prove(index >= dim):
                self.found.append(f"{n.buffer.name}: index `{index}` of dimension {i} is not in 0 … {dim}")
        return self.visit_children(n)

    visit_BufferLoad = visit_BufferStore = _access


def check_bounds(func: PrimFunc) -> PrimFunc:
    """Raise LoweringError if an access is out of bounds whenever it is reached.

        for i in range(4): A[i + 8] = 0        # A has 8 elements: refused

    Needs: nothing. Gives: the function as it is.
    """
    walk = _Check()
    walk.visit(func.body)
    if walk.found:
        name = func.attrs.get("global_symbol", "the function")
        raise LoweringError(f"{name} reads or writes out of bounds:\n  " + "\n  ".join(walk.found))
    return func


OOBChecker = as_pass(check_bounds, name="tir.analysis.OOBChecker")
