"""Blocks without iterators."""

from __future__ import annotations

from ...ir.errors import LoweringError
from ...ir.function import PrimFunc
from ...ir.functor import Substitution
from ...ir.stmt import Block, BlockRealize


def convert_blocks_to_opaque(func: PrimFunc) -> PrimFunc:
    """Replace block iterators by the values that they are bound to.

        for i in range(8):                      for i in range(8):
            with block("B"):                        with block("B"):
                vi = axis.spatial(8, i)    ->           B[i] = A[i]
                B[vi] = A[vi]

    Needs: no `init`. Gives: blocks with no iterators.
    """
    return func.updated(body=_Opaque({}).visit(func.body))


class _Opaque(Substitution):
    def visit_BlockRealize(self, n: BlockRealize) -> BlockRealize:
        block = n.block
        if block.init is not None:
            raise LoweringError(
                f"block `{block.name_hint}` still has an init, which runs at the start of its reduction: "
                "without iterators that step is not known; run tir.transform.LowerInitBlock() before"
            )
        for iv, value in n.bindings:
            self.table[iv.var] = self.visit(value)
        predicate = self.visit(n.predicate)
        made: Block = self.visit_Block(block)
        if not block.iter_vars and made is block and predicate is n.predicate:
            return n
        return BlockRealize([], predicate, made.replace(iter_vars=()), span=n.span)
