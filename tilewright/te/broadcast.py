"""NumPy's rule for operands of different shapes."""

from __future__ import annotations

from collections.abc import Sequence

from ..arith import Analyzer
from ..ir.equal import structural_equal
from ..ir.expr import IntImm, PrimExpr, Var, const
from .errors import refuse, shape_text


def same_size(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two dimensions are known to be equal."""
    if a is b:
        return True
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    if structural_equal(a, b):
        return True
    return bool(Analyzer().can_prove_equal(a, b))


def _is_one(dim: PrimExpr) -> bool:
    return isinstance(dim, IntImm) and dim.value == 1


def broadcast_shape(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The common shape: dimensions are matched from the last one on, and 1 stretches to any size."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    extra = len(longer) - len(shorter)
    out = list(longer[:extra])
    for x, y in zip(longer[extra:], shorter, strict=True):
        if _is_one(x) or same_size(x, y):
            out.append(y if _is_one(x) else x)
        elif _is_one(y):
            out.append(x)
        else:
            raise refuse(
                f"shapes {shape_text(a)} and {shape_text(b)} do not broadcast: "
                f"{x} and {y} are not known to be equal",
                "dimensions that differ must be 1 in one of the operands",
            )
    return tuple(out)


def broadcast_indices(
    shape: Sequence[PrimExpr], result: Sequence[PrimExpr], axis: Sequence[Var]
) -> list[PrimExpr]:
    """Where an operand of `shape` is read for the point `axis` of the result."""
    extra = len(result) - len(shape)
    return [
        const(0, var.dtype) if _is_one(dim) and not _is_one(full) else var
        for dim, full, var in zip(shape, result[extra:], axis[extra:], strict=True)
    ]
