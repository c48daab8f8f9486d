"""Row kernels whose result is also needed in another type: one kernel writes both."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import op as R
from ..expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from ..op.registry import OpPattern, RelayOp
from ..op.traits import traits_of
from ..ty import TensorType, is_dynamic
from ..visitor import in_order


def join_results(func: Function, keeps_rows: Callable[[Function], bool]) -> Function:
    """Add elementwise functions of the result of a row kernel as further results of the kernel.

        %1 = %norm(%x);                     %0 = fn (%p) { let n = norm(%p); (n, cast(n)) }(%x);
        %2 = %cast(%1);              ->     %1 = %0.0; %2 = %0.1;
        f(%1, %2)                           f(%1, %2)

    The elements are in registers there; a separate kernel would load them again. `keeps_rows(kernel)` is whether a
    kernel holds and returns whole rows. Needs: fused functions, types. Gives: new expressions without types.
    """
    order = _order(func.body)
    copies: dict[Any, list[Call]] = {}
    for e in order:
        if _is_kernel(e) and len(e.args) == 1 and _is_kernel(e.args[0]) and _is_elementwise(e.op):
            copies.setdefault(e.args[0], []).append(e)
    wanted = {p: found for p, found in copies.items() if keeps_rows(p.op)}
    if not wanted:
        return func
    new: dict[Any, Any] = {}
    for e in order:
        if e in new:
            continue
        new[e] = made = e.map_children(lambda c: new.get(c, c))
        if e in wanted:
            joined = Call(_joined(e.op, [c.op for c in wanted[e]]), made.args, span=e.span)
            for i, each in enumerate((e, *wanted[e])):
                new[each] = _shown(TupleGetItem(joined, i), e.checked_type.shape, each.checked_type)
    return func.updated(body=new[func.body])


def _joined(fn: Function, others: list[Function]) -> Function:
    """A kernel that returns its own result, and elementwise functions of it."""
    fields = [fn.body]
    for other in others:
        inner: dict[Any, Any] = {other.params[0]: fn.body}
        for e in _order(other.body):
            if e not in inner and _is_view(e):
                inner[e] = inner[e.args[0]]
            elif e not in inner:
                inner[e] = e.map_children(lambda c, known=inner: known.get(c, c))
        fields.append(inner[other.body])
    return Function(fn.params, Tuple(fields), None, None, fn.attrs)


def _shown(made: TupleGetItem, shape: Any, wanted: TensorType) -> Any:
    """A result in the required shape: a kernel that is only a view, at no cost."""
    if wanted.shape == shape:
        return made
    v = Var("p0", TensorType(shape, wanted.dtype))
    body = R.reshape(v, newshape=list(wanted.shape))
    return Call(Function([v], body, wanted, None, {"Primitive": 1}), [made])


def _is_view(e: Any) -> bool:
    return traits_of(e).view and len(e.args) == 1


def _is_kernel(e: Any) -> bool:
    return (
        isinstance(e, Call)
        and isinstance(e.op, Function)
        and bool(e.op.attrs.get("Primitive"))
        and isinstance(e._checked_type, TensorType)
    )


def _is_elementwise(fn: Function) -> bool:
    """Whether a kernel is an elementwise function of its one parameter and constants, up to reshapes."""
    kind = fn.params[0].checked_type
    if not isinstance(kind, TensorType) or is_dynamic(kind):
        return False
    steps = [e for e in _order(fn.body) if e is not fn.params[0]]
    size = math.prod(kind.shape)
    works = [e for e in steps if not _is_view(e) and not (isinstance(e, Constant) and e.is_scalar)]
    return bool(works) and all(
        isinstance(e, Call)
        and isinstance(e.op, RelayOp)
        and e.op.pattern <= OpPattern.BROADCAST
        and isinstance(e.checked_type, TensorType)
        and math.prod(e.checked_type.shape) == size
        for e in works
    )


def _order(root: Any) -> list[Any]:
    """Every expression once, in post-order; kernels and operators are not entered."""
    return in_order(root, lambda e: [b for b in e.children() if not isinstance(b, (RelayOp, Function))])
