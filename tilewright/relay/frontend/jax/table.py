"""The table of converters, and the interface of an equation for converters.

    @primitive("squeeze")
    def squeeze(n: Site, x: Expr, *, dimensions: Sequence[int]) -> Expr:
        return R.squeeze(x, list(dimensions))

    rows({"neg": lambda n, x: R.negative(x)})      # the same for a converter that is one expression

Names are those of JAX's primitives. The parameters after `n` are the operands; keyword parameters are those of the
equation's parameters that the converter wants. A parameter that a converter does not take must be None or False, or be
one of those that do not change the result. The converter returns an expression, a `Value`, or a list for several
results; `n` has their types in JAX. Operands of a converter that is registered as `compact` may lack dimensions of size
1 that JAX has repeated: its operators broadcast.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ty import TensorType
from ..common.build import Refusal as Refusal
from .values import Value, compacted

# Parameters about devices, accuracy, differentiation or compilation, which do not matter here.
_IRRELEVANT = frozenset(
    "sharding out_sharding precision accuracy indices_are_sorted unique_indices is_stable weak_type unroll "
    "_split_transpose name".split()
)


class Site:
    """An equation: its operands, and the types of its results."""

    __slots__ = ("kinds", "name", "values")

    def __init__(self, name: str, values: Sequence[Value], kinds: Sequence[TensorType]) -> None:
        self.name, self.values, self.kinds = name, list(values), list(kinds)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of the (first) result."""
        return self.kinds[0].shape

    @property
    def dtype(self) -> str:
        """The element type of the (first) result."""
        return str(self.kinds[0].dtype)

    def known(self, index: int) -> Any:
        """The array of an operand whose elements are known at import; otherwise None."""
        return self.values[index].known


class Row:
    """One converter, with the names of the parameters that it takes."""

    __slots__ = ("compact", "names", "work")

    def __init__(self, work: Callable[..., Any], compact: bool) -> None:
        self.work, self.compact = work, compact
        given = inspect.signature(work).parameters.values()
        self.names = tuple(p.name for p in given if p.kind is p.KEYWORD_ONLY)

    def __call__(self, n: Site, params: Mapping[str, Any]) -> Any:
        for name, value in params.items():
            if (
                name not in self.names
                and name not in _IRRELEVANT
                and value is not None
                and value is not False
            ):
                raise Refusal(f"{name}={value!r} is not supported")
        taken = {name: params[name] for name in self.names if name in params}
        operands = compacted(n.values, n.shape) if self.compact else [v.expr for v in n.values]
        return self.work(n, *operands, **taken)


CONVERTERS: dict[str, Row] = {}


def primitive(*names: str, compact: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a converter of primitives."""

    def take(work: Callable[..., Any]) -> Callable[..., Any]:
        row = Row(work, compact)
        for name in names:
            if name in CONVERTERS:
                raise ValueError(f"{name} is in the table twice")
            CONVERTERS[name] = row
        return work

    return take


def rows(converters: Mapping[str, Callable[..., Any]], compact: bool = False) -> None:
    """Register converters that are one expression each; a key has the names of all primitives of its converter."""
    for names, work in converters.items():
        primitive(*names.split(), compact=compact)(work)
