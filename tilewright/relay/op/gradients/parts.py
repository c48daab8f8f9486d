"""Parts of gradients: sums that reverse broadcasting, shapes, constants, and rules made of other rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....ir.errors import TVMError
from ...expr import Call, Expr, Tuple, TupleGetItem, Var, const, type_so_far
from ...visitor import ExprMutator
from ..computes import R
from ..traits import GradientRule
from .reverse import as_adjoint, pulled_back


def shape(expr: Any) -> tuple[Any, ...]:
    """The sizes of a tensor."""
    return expr.checked_type.shape  # type: ignore[no-any-return]


def ndim(expr: Any) -> int:
    return len(expr.checked_type.shape)


def is_static(expr: Any) -> bool:
    return all(isinstance(d, int) for d in shape(expr))


def sizes(call: Call, at: int = 0) -> tuple[int, ...]:
    """The sizes of an argument, which must be known."""
    if not is_static(call.args[at]):
        raise TVMError(
            f"gradient of {call.op.name}: the sizes of {call.args[at].checked_type} must be known; "
            "bind the dynamic sizes first"
        )
    return shape(call.args[at])


def fields_of(expr: Any) -> list[Any]:
    """The fields of a tuple."""
    if isinstance(expr, Tuple):
        return list(expr.fields)
    return [TupleGetItem(expr, i) for i in range(len(expr.checked_type.fields))]


def number(value: float, like: Any) -> Expr:
    """A constant of the element type of another expression."""
    return const(value, str(like.checked_type.dtype))


def shaped_as(grad: Any, data: Any) -> Any:
    """A gradient in the shape of the data, of the same elements."""
    return R.reshape(grad, shape(data)) if is_static(data) else R.reshape_like(grad, data)


def summed_to(grad: Any, call: Any, data: Any) -> Any:
    """The gradient of data that was broadcast to the shape of `call`."""
    if is_static(data) and is_static(call):
        return grad if shape(data) == shape(call) else R.collapse_sum_to(grad, shape(data))
    return R.collapse_sum_like(grad, data)


def summed_but(grad: Any, axis: int, rank: int) -> Any:
    """The sum over all dimensions but one."""
    others = [d for d in range(rank) if d != axis % rank]
    return R.sum(grad, axis=others) if others else grad


def unchanged(call: Call, grad: Any) -> list[Any]:
    """The rule of an identity."""
    return [grad]


def constant(call: Call, grad: Any) -> list[Any]:
    """The rule of an operator whose result is constant, or changes in steps."""
    return [None] * len(call.args)


def reshaped(call: Call, grad: Any) -> list[Any]:
    """The rule of an operator that gives its first argument another shape."""
    return [shaped_as(grad, call.args[0]), *[None] * (len(call.args) - 1)]


class _Over(ExprMutator):
    def __init__(self, values: dict[Var, Any]) -> None:
        super().__init__()
        self.memo_map.update(values)


def through(expand: Callable[[Call], Any]) -> GradientRule:
    """The rule of an operator that equals an expression of others: the gradient of that expression.

    `expand` gets the call over variables, and returns the expression.
    """

    def rule(call: Call, grad: Any) -> list[Any]:
        places = [Var(f"a{i}", a.checked_type) for i, a in enumerate(call.args)]
        result = Var("grad", call.checked_type)
        over = call.over(places)
        type_so_far(over)
        body = expand(over)
        type_so_far(body)
        found = pulled_back(body, as_adjoint(result, call.checked_type), places)
        values: dict[Var, Any] = dict(zip(places, call.args, strict=True))
        put = _Over({**values, result: grad})
        return [_put(found[p], put) for p in places]

    return rule


def _put(adjoint: Any, put: ExprMutator) -> Any:
    if isinstance(adjoint, list):
        return [_put(a, put) for a in adjoint]
    return None if adjoint is None else put.visit(adjoint)


def moved(**attrs: Any) -> GradientRule:
    """The rule of an operator that moves the elements of its first argument, and fills gaps with zeros.

    The operator applied to positions tells where each element of the result is from:

        y = f(x)      from = f([1, 2, …, n])      grad of x = segment_sum(grad of y, from)[1:]

    `attrs` are changes to its attributes that make the gaps zeros.
    """

    def rule(call: Call, grad: Any) -> list[Any]:
        dims = sizes(call)
        count = math.prod(dims)
        places = R.reshape(R.arange(1, count + 1, 1, "int32"), dims)
        source = call.over([places, *call.args[1:]], call.attrs.replace(**attrs))
        total = R.segment_sum(R.reshape(grad, (-1,)), R.reshape(source, (-1,)), count + 1)
        back = R.reshape(R.strided_slice(total, [1], [count + 1]), dims)
        return [back, *[None] * (len(call.args) - 1)]

    return rule
