"""KV caches that a program takes, extends and returns, as caches that it writes in place."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...ir.errors import BuildError
from ...ir.expr import SizeVar
from ...ir.expr import Var as TirVar
from .. import op as R
from ..analysis import post_order, use_counts
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

    `order` has the dimensions of the input as they are in memory: that of the rows is the first. `rows` is the number
    of rows of a cache that is written at positions, and None where the cache grows.
    """

    name: str
    result: str
    dtype: str
    row: tuple[int, ...]
    step: int
    order: tuple[int, ...]
    rows: int | None = None


class _Write(NamedTuple):
    """New rows, with dimensions in the order of memory, for a parameter: behind its rows, or at positions."""

    past: Var
    rows: Any
    order: tuple[int, ...]
    positions: Any = None


def caches_in_place(func: Function) -> tuple[Function, list[Cache]]:
    """Let a program write new rows into its caches, in place of joining and returning them.

        fn (%past: Tensor[(1, 12, n, 64)], …) {           fn (%past: Tensor[(t, 1, 12, 64)], …) {
          %k = concatenate((%past, %new), axis=2);   ->     %0 = nn.cache_update(%past, transpose(%new, …));
          (…, %k)                                           %k = transpose(%0, …);  (…)

    A cache is a parameter that is joined with new rows along a dynamic dimension, where the result is also a result of
    the function. The parameter gets room for the new rows, t = n + 1 rows in all, and the function writes them there.
    A parameter of fixed size, into which rows are written at positions (`index_copy`, `index_put`, ScatterND,
    ScatterElements), is a cache too; the positions are the third argument of `nn.cache_update`.
    Its rows are contiguous, so that the first rows of a larger array can be passed.
    Needs: types. Gives: types.
    """
    results: list[Any] = list(func.body.fields) if isinstance(func.body, Tuple) else [func.body]
    names = output_names(func, len(results))
    found = _writes(func, results)
    if not found:
        return func, []
    sizes: dict[TirVar, Any] = {}
    for e in found.values():
        size, more = e.past.checked_type.shape[e.order[0]], e.rows.checked_type.shape[e.order[0]]
        if e.positions is None and sizes.setdefault(size, more) != more:
            raise BuildError(f"caches of {size} rows grow by {sizes[size]} and by {more} rows")
    # Caches that grow by as many rows have as many, even where the model gives their lengths different names.
    totals: dict[Any, SizeVar] = {}
    whole = {n: totals.setdefault(m, SizeVar(f"{n.name}_{m}", n.dtype)) for n, m in sizes.items()}
    caches = [_cache(e, names[i]) for i, e in found.items()]
    work = _InPlace({results[i]: e for i, e in found.items()}, caches, whole)
    body = work.visit(Tuple([e for i, e in enumerate(results) if i not in found]))
    left = {*post_order(body)}
    for e in found.values():
        if e.past in left:
            raise BuildError(
                f"%{e.past.name_hint}: a cache may only be joined with new rows, and is also used otherwise"
            )
        if work.params[e.past] not in left:
            raise BuildError(f"%{e.past.name_hint}: the extended cache is returned and never read")
    if len(body.fields) == 1:
        (body,) = body.fields
    params = [work.params.get(p, p) for p in func.params]
    made = Function(params, body, None, func.type_params, func.attrs, func.span)
    made = with_output_names(made, [n for i, n in enumerate(names) if i not in found])
    return with_sizes(infer_type(made), {n: sub(whole[n], m) for n, m in sizes.items()}), caches


def _cache(e: _Write, result: str) -> Cache:
    kind = e.past.checked_type
    count, *row = (kind.shape[d] for d in e.order)
    if not all(isinstance(d, int) for d in row):
        raise BuildError(
            f"%{e.past.name_hint}: only the number of rows of a cache may be dynamic, not {tuple(row)}"
        )
    step = e.rows.checked_type.shape[e.order[0]]
    rows = None if e.positions is None else count
    return Cache(e.past.name_hint, result, str(kind.dtype), tuple(row), step, e.order, rows)


# ---------------------------------------------------------------------------- what is recognised
def _writes(func: Function, results: list[Any]) -> dict[int, _Write]:
    """The results that are a parameter with new rows, by their numbers."""
    uses = use_counts(func.body)
    found = {}
    for i, e in enumerate(results):
        write = _extended(e) or _replaced(e)
        if write is None or not any(write.past is p for p in func.params):
            continue
        # Written at positions, a parameter with other uses is a state like any other.
        if write.positions is None or (uses[write.past] == 1 and uses[e] > 1):
            found[i] = write
    return found


def _extended(e: Any) -> _Write | None:
    """A tensor that is joined with new rows along a dynamic dimension."""
    if not is_call(e, R.concatenate) or not isinstance(e.args[0], Tuple) or len(e.args[0].fields) != 2:
        return None
    past, new = e.args[0].fields
    at = axis_of(e.attrs.axis, len(e.checked_type.shape))
    grown = past.checked_type.shape[at], new.checked_type.shape[at]
    if not isinstance(past, Var) or not isinstance(grown[0], TirVar) or not isinstance(grown[1], int):
        return None
    return _Write(past, new, _rows_first(at, len(e.checked_type.shape)))


def _rows_first(at: int, ndim: int) -> tuple[int, ...]:
    return (at, *(d for d in range(ndim) if d != at))


def _replaced(e: Any) -> _Write | None:
    """A tensor of fixed size whose slices along a dimension are replaced at a vector of positions.

    transpose(scatter_nd(transpose(%past, axes=[2, 0, 1, 3]), %index, %new), axes=[1, 2, 0, 3])   %index: (1, k)
    scatter_elements(%past, broadcast_to(%index), %new, axis=2)                                   %index: (1, 1, k, 1)
    """
    if is_call(e, R.scatter_elements):
        return _replaced_elements(e)
    ndim = len(e.checked_type.shape) if isinstance(e.checked_type, TensorType) else 0
    back, inner = _transposed(e, ndim)
    if not is_call(inner, R.scatter_nd) or inner.attrs.mode != "update":
        return None
    data, index, updates = inner.args
    order, past = _transposed(data, ndim)
    kind = index.checked_type.shape
    if not isinstance(past, Var) or len(kind) != 2 or kind[0] != 1 or not _is_fixed(past, kind[1]):
        return None
    if [order[d] for d in back] != list(range(ndim)):
        return None
    new = R.transpose(updates, [order.index(d) for d in range(ndim)])  # as the parameter has its dimensions
    return _Write(past, infer_type(new), tuple(order), R.reshape(index, (kind[1],)))


def _replaced_elements(e: Any) -> _Write | None:
    past, index, updates = e.args
    if is_call(index, R.broadcast_to):
        index = index.args[0]
    ndim = len(past.checked_type.shape)
    at = axis_of(e.attrs.axis, ndim)
    have, new = index.checked_type.shape, updates.checked_type.shape
    count = new[at] if ndim else None
    line = tuple(count if d == at else 1 for d in range(ndim))
    others = all(new[d] == past.checked_type.shape[d] for d in range(ndim) if d != at)
    if e.attrs.reduction != "update" or not isinstance(past, Var) or tuple(have) != line or not others:
        return None
    if not _is_fixed(past, count):
        return None
    return _Write(past, updates, _rows_first(at, ndim), R.reshape(index, (count,)))


def _is_fixed(past: Var, count: Any) -> bool:
    """Whether a parameter has known sizes and takes a known number of rows."""
    return isinstance(count, int) and all(isinstance(d, int) for d in past.checked_type.shape)


def _transposed(e: Any, ndim: int) -> tuple[list[int], Any]:
    """The order of dimensions of a transposed tensor, and that tensor; others are in their own order."""
    if is_call(e, R.transpose):
        axes = e.attrs.axes
        order = [int(a) % ndim for a in axes] if axes else list(range(ndim))[::-1]
        return order, e.args[0]
    return list(range(ndim)), e


class _InPlace(ExprMutator):
    def __init__(self, writes: dict[Any, _Write], caches: list[Cache], whole: dict[Any, Any]) -> None:
        super().__init__()
        self.writes = writes
        self.params: dict[Any, Var] = {}
        for e, cache in zip(writes.values(), caches, strict=True):
            size = e.past.checked_type.shape[cache.order[0]]
            shape = (whole.get(size, size), *cache.row)
            self.params[e.past] = Var(cache.name, TensorType(shape, cache.dtype), span=e.past.span)

    def visit_call(self, call: Call) -> Any:
        write = self.writes.get(call)
        if write is None:
            return super().visit_call(call)
        rows = R.transpose(self.visit(write.rows), write.order)
        positions = None if write.positions is None else self.visit(write.positions)
        back = [write.order.index(d) for d in range(len(write.order))]
        return R.transpose(R.nn.cache_update(self.params[write.past], rows, positions), back)
