"""Products over contracted dimensions: dot_general as one product of (stacks of) matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...expr import Expr
from ...op.shapes import product
from ..common.build import R, converted, dtype_of, permute, rank, reshape, shape_of
from ..common.matrices import SHORT
from .table import Site, primitive


@primitive("dot_general")
def dot_general(
    n: Site, a: Expr, b: Expr, *, dimension_numbers: Any, preferred_element_type: Any = None
) -> Expr:
    """The result has the batch dimensions, then those of `a` that are left, then those of `b`."""
    (of_a, of_b), (batch_a, batch_b) = dimension_numbers
    kind = dtype_of(a)
    if dtype_of(b) != kind or kind == "bool":
        kind = n.dtype
        a, b = converted(a, kind), converted(b, kind)
    wide = "float32" if kind in SHORT else "" if kind == n.dtype else n.dtype
    left = _Matrices(a, batch_a, of_a)
    right = _Matrices(b, batch_b, of_b)
    if not of_a:
        return converted(_outer(left, right, n.shape), n.dtype)
    x, of_x = left.laid()
    y, of_y = right.laid()
    batch = [shape_of(a)[d] for d in batch_a]
    # `laid` puts the contracted dimension last or first of the two: the products take both.
    if not batch:
        made = R.nn.matmul(x, y, out_dtype=wide, transpose_a=not of_x, transpose_b=of_y)
    else:
        made = R.nn.batch_matmul(x, y, out_dtype=wide, transpose_a=not of_x, transpose_b=of_y)
    return converted(reshape(made, n.shape), n.dtype)


class _Matrices:
    """An operand: its batch dimensions, those that are left, and those that are contracted."""

    def __init__(self, e: Expr, batch: Sequence[int], contracted: Sequence[int]) -> None:
        self.e, self.batch, self.contracted = e, list(batch), list(contracted)
        self.left = [d for d in range(rank(e)) if d not in self.batch and d not in self.contracted]

    def laid(self) -> tuple[Expr, bool]:
        """The operand as (a stack of) matrices, and whether the contracted dimension is the last one."""
        shape = shape_of(self.e)
        sizes = [product([shape[d] for d in part]) for part in (self.batch, self.left, self.contracted)]
        last = [*self.batch, *self.left, *self.contracted]
        first = [*self.batch, *self.contracted, *self.left]
        is_last = last == sorted(last) or first != sorted(first)
        moved = permute(self.e, last if is_last else first)
        rows = [sizes[1], sizes[2]] if is_last else [sizes[2], sizes[1]]
        return reshape(moved, [sizes[0], *rows] if self.batch else rows), is_last


def _outer(a: _Matrices, b: _Matrices, shape: Sequence[Any]) -> Expr:
    """A product without contracted dimensions."""
    x, y = (permute(m.e, [*m.batch, *m.left]) for m in (a, b))
    batch = len(a.batch)
    x = reshape(x, [*shape_of(x), *[1] * len(b.left)])
    y = reshape(y, [*shape_of(y)[:batch], *[1] * len(a.left), *shape_of(y)[batch:]])
    return R.multiply(x, y)
