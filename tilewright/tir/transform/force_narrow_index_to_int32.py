"""Index arithmetic in 32 bits, on the user's word that it fits."""

from __future__ import annotations

from ...ir.buffer import Buffer
from ...ir.errors import LoweringError
from ...ir.expr import Var
from ...ir.function import PrimFunc
from ...ir.functor import buffers_accessed
from .narrow_data_type import Narrower

__all__ = ["force_narrow_index_to_int32"]


def force_narrow_index_to_int32(func: PrimFunc) -> PrimFunc:
    """Make every index, loop and size an int32, whether or not it can be shown to fit.

        def f(A: (n,)), n: int64                   def f(A: (n,)), n: int32
            for i in range(n): A[i] = 0     ->         for i in range(n): A[i] = 0

    Needs: no buffer of int64 elements. Gives: no int64.
    """
    for b in (*func.buffer_map.values(), *buffers_accessed(func.body)):
        if b.dtype.element == "int64":
            raise LoweringError(
                f"force_narrow_index_to_int32: buffer {b.name} holds int64 values, which would be cut; "
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


class _Forced(Narrower):
    """Buffers' shapes become narrow too."""

    def __init__(self, bits: int, always: bool) -> None:
        super().__init__(bits, always)
        self.made: dict[Buffer, Buffer] = {}

    def buffer(self, b: Buffer) -> Buffer:
        if b not in self.made:
            self.made[b] = b.map_children(self.visit)
        return self.made[b]
