"""SlicesOfSplits: splits as slices, which can be fused into their consumers."""

from __future__ import annotations

from typing import Any

from ...target import Target
from .. import op as R
from ..expr import Function, TupleGetItem
from .rewriting import Mutator, is_call, static_shape, typed_pass


def slices_of_splits(func: Function) -> Function:
    """For a GPU, let each part of a split be a slice.

        %0 = split(%x, indices_or_sections=2, axis=1);         %0 = strided_slice(%x, begin=[0], end=[8], axes=[1]);
        sigmoid(%0.0) * tanh(%0.1)                        ->   %1 = strided_slice(%x, begin=[8], end=[16], axes=[1]);
                                                               sigmoid(%0) * tanh(%1)

    On a GPU a split is one kernel per part, which is not fused; slices are fused into their consumers. Other targets
    are unchanged.
    """
    target = Target.current(allow_none=True)
    if target is None or not target.is_gpu:
        return func
    return _Slices().visit(func)


class _Slices(Mutator):
    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        made: Any = super().visit_tuple_getitem(op)
        whole: Any = op.tuple_value
        given = static_shape(whole.args[0]) if is_call(whole, R.split) else None
        if given is None or not is_call(made.tuple_value, R.split):
            return made
        axis, places = whole.attrs.axis % len(given), whole.attrs.indices_or_sections
        size = given[axis]
        inner = range(0, size, size // places)[1:] if isinstance(places, int) else places
        edges = [0, *(int(p) for p in inner), size]
        begin, end = edges[op.index], edges[op.index + 1]
        return R.strided_slice(made.tuple_value.args[0], begin=[begin], end=[end], axes=[axis])


SlicesOfSplits = typed_pass(slices_of_splits, name="SlicesOfSplits", opt_level=2)
