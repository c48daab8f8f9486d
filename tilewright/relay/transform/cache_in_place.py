"""KV caches that a program takes, extends and returns, as caches that it writes in place."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...ir.errors import BuildError
from ...ir.expr import SizeVar
from ...ir.expr import Var as TirVar
from .. import op as R
from ..analysis import post_order
from ..expr import Call, Function, Tuple, Var
from ..interface import output_names, with_output_names
from ..op.shapes import axis_of, sub
from ..sizes import with_sizes
from ..ty import TensorType
from ..visitor import ExprMutator
from .infer_type import infer_type
from .rewriting import is_call


class Cache(NamedTuple):
    """A cache of a program: its names as input and as result, its element type, the shape of a row, new rows in a call.

    `order` has the dimensions of the input as they are in memory: that along which the cache grows is the first.
    """

    name: str
    result: str
    dtype: str
    row: tuple[int, ...]
    step: int
    order: tuple[int, ...]


def caches_in_place(func: Function) -> tuple[Function, list[Cache]]:
    """Let a program write new rows into its caches, in place of joining and returning them.

        fn (%past: Tensor[(1, 12, n, 64)], …) {           fn (%past: Tensor[(t, 1, 12, 64)], …) {
          %k = concatenate((%past, %new), axis=2);   ->     %0 = nn.cache_update(%past, transpose(%new, …));
          (…, %k)                                           %k = transpose(%0, …);  (…)

    A cache is a parameter that is joined with new rows along a dynamic dimension, where the result is also a result of
    the function. The parameter gets room for the new rows, t = n + 1 rows in all, and the function writes them there.
    Its rows are contiguous, so that the first rows of a larger array can be passed.
    Needs: types. Gives: types.
    """
    results: list[Any] = list(func.body.fields) if isinstance(func.body, Tuple) else [func.body]
    names = output_names(func, len(results))
    found = {i: e for i, e in enumerate(results) if _is_extended(e, func.params)}
    if not found:
        return func, []
    sizes: dict[TirVar, Any] = {}
    for e in found.values():
        past, new = e.args[0].fields
        at = axis_of(e.attrs.axis, len(past.checked_type.shape))
        size, more = past.checked_type.shape[at], new.checked_type.shape[at]
        if sizes.setdefault(size, more) != more:
            raise BuildError(f"caches of {size} rows grow by {sizes[size]} and by {more} rows")
    # Caches that grow by as many rows have as many, even where the model gives their lengths different names.
    totals: dict[Any, SizeVar] = {}
    whole = {n: totals.setdefault(m, SizeVar(f"{n.name}_{m}", n.dtype)) for n, m in sizes.items()}
    caches = []
    for i, e in found.items():
        past, at = e.args[0].fields[0], axis_of(e.attrs.axis, len(e.checked_type.shape))
        order = (at, *(d for d in range(len(e.checked_type.shape)) if d != at))
        row = tuple(past.checked_type.shape[d] for d in order[1:])
        if not all(isinstance(d, int) for d in row):
            raise BuildError(
                f"%{past.name_hint}: only the number of rows of a cache may be dynamic, not {row}"
            )
        caches.append(
            Cache(
                past.name_hint,
                names[i],
                str(past.checked_type.dtype),
                row,
                sizes[past.checked_type.shape[at]],
                order,
            )
        )
    work = _InPlace({e: (c, whole) for e, c in zip(found.values(), caches, strict=True)})
    body = work.visit(Tuple([e for i, e in enumerate(results) if i not in found]))
    left = {*post_order(body)}
    for e in found.values():
        past = e.args[0].fields[0]
        if past in left:
            raise BuildError(
                f"%{past.name_hint}: a cache may only be joined with new rows, and is also used otherwise"
            )
        if work.params[past] not in left:
            raise BuildError(f"%{past.name_hint}: the extended cache is returned and never read")
    if len(body.fields) == 1:
        (body,) = body.fields
    params = [work.params.get(p, p) for p in func.params]
    made = Function(params, body, None, func.type_params, func.attrs, func.span)
    made = with_output_names(made, [n for i, n in enumerate(names) if i not in found])
    return with_sizes(infer_type(made), {n: sub(whole[n], m) for n, m in sizes.items()}), caches


def _is_extended(e: Any, params: Any) -> bool:
    """Whether a parameter is joined with new rows along a dynamic dimension."""
    if not is_call(e, R.concatenate) or not isinstance(e.args[0], Tuple) or len(e.args[0].fields) != 2:
        return False
    past, new = e.args[0].fields
    if not any(past is p for p in params):
        return False
    at = axis_of(e.attrs.axis, len(e.checked_type.shape))
    grown = past.checked_type.shape[at], new.checked_type.shape[at]
    return isinstance(grown[0], TirVar) and isinstance(grown[1], int)


class _InPlace(ExprMutator):
    def __init__(self, caches: dict[Any, tuple[Cache, Any]]) -> None:
        super().__init__()
        self.caches = caches
        self.params: dict[Any, Var] = {}
        for e, (cache, whole) in caches.items():
            past = e.args[0].fields[0]
            size = whole[past.checked_type.shape[cache.order[0]]]
            self.params[past] = Var(cache.name, TensorType((size, *cache.row), cache.dtype), span=past.span)

    def visit_call(self, call: Call) -> Any:
        if call not in self.caches:
            return super().visit_call(call)
        cache, _ = self.caches[call]
        joined: Any = call.args[0]
        past, new = joined.fields
        rows = R.transpose(self.visit(new), cache.order)
        back = [cache.order.index(d) for d in range(len(cache.order))]
        return R.transpose(R.nn.cache_update(self.params[past], rows), back)
