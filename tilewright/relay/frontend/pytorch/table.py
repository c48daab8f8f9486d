"""The table of converters, and the interface of a call for converters.

    @aten("leaky_relu")
    def leaky_relu(n: Site, x: Expr, negative_slope: float) -> Expr:
        return NN.leaky_relu(x, negative_slope)

    rows({"relu6": lambda n, x: R.clip(x, 0.0, 6.0)})      # the same for a converter that is one expression

Names are those of ATen: `"max"` is every form of an operator that has no row of its own, `"max.dim"` one form. An
operator of another namespace has its whole name: `"onnx::RotaryEmbedding"`. The parameters after `n` are those of
the operator's signature that the converter wants, by name (`self` and `input` are `x`): tensors come as
expressions, lists as lists, element types by their names. An argument that a converter does not take must have its
default value. The converter returns an expression, or a list of them for several results (None for an unsupported
one). `n` has the types of the results in torch; the importer converts to them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ....ir.expr import PrimExpr
from ...expr import Expr
from ...ty import TensorType
from ..common.build import Refusal as Refusal
from .build import R, cast, dtype_name, dtype_of, full, literal, rank, torch_dtype

# Arguments about memory layout, devices or accuracy, which do not matter here.
_IRRELEVANT = frozenset(
    "layout device pin_memory memory_format non_blocking copy requires_grad stable generator implicit sparse "
    "scale_grad_by_freq compute_mask benchmark deterministic path cudnn_enabled cudnn_enable allow_tf32 "
    "validate_indices return_debug_mask momentum".split()
)


class Site:
    """A call of an operator: the types of its results, and help with numbers and element types."""

    __slots__ = ("kinds", "name")

    def __init__(self, name: str, kinds: tuple[TensorType | None, ...]) -> None:
        self.name, self.kinds = name, kinds

    @property
    def kind(self) -> TensorType:
        if not self.kinds or self.kinds[0] is None:
            raise Refusal("its result is not a tensor")
        return self.kinds[0]

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of the (first) result."""
        return self.kind.shape

    @property
    def dtype(self) -> str:
        """The element type of the (first) result."""
        return str(self.kind.dtype)

    def to(self, value: Any, dtype: str | None = None) -> Expr:
        """A tensor or a number as a tensor of an element type, by default that of the result."""
        wanted = dtype or self.dtype
        if isinstance(value, Expr):
            return cast(value, wanted)
        if isinstance(value, PrimExpr) and "int" in str(
            value.dtype
        ):  # a size, as the number of elements it counts
            return cast(R.ndarray_size(full(0, (value,), "int8"), "int64"), wanted)
        if not isinstance(value, (bool, int, float)):
            raise Refusal(f"a number that depends on sizes ({value}) is used as a value")
        return literal(value, wanted)

    def both(self, a: Any, b: Any) -> tuple[Expr, Expr]:
        """Two operands in the element type that torch computes them in."""
        wanted = common_dtype(a, b)
        return self.to(a, wanted), self.to(b, wanted)


def common_dtype(a: Any, b: Any) -> str:
    """The element type in which torch combines two tensors or numbers."""
    import torch

    def stand_in(v: Any) -> Any:
        return torch.empty((1,) * rank(v), dtype=torch_dtype(dtype_of(v))) if isinstance(v, Expr) else v

    return dtype_name(torch.result_type(stand_in(a), stand_in(b)))


class Row:
    """One converter, with the names of the arguments that it takes."""

    __slots__ = ("names", "work")

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work = work
        self.names = tuple(inspect.signature(work).parameters)[1:]

    def __call__(self, n: Site, schema: Any, given: dict[str, Any]) -> Any:
        """Convert a call whose arguments are known by the names of its signature."""
        taken: dict[str, Any] = {}
        for a in schema.arguments:
            name = "x" if a.name in ("self", "input") else a.name
            if name in self.names:
                taken[name] = given[a.name]
            elif (
                a.name not in _IRRELEVANT
                and a.has_default_value()
                and _differs(given[a.name], a.default_value)
            ):
                raise Refusal(f"{a.name}={given[a.name]!r} is not supported")
        return self.work(n, **taken)


def _differs(value: Any, default: Any) -> bool:
    return value is not default and (isinstance(value, Expr) or bool(value != default))


CONVERTERS: dict[str, Row] = {}


def aten(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a converter of operators or single overloads."""

    def take(work: Callable[..., Any]) -> Callable[..., Any]:
        row = Row(work)
        for name in names:
            if name in CONVERTERS:
                raise ValueError(f"{name} is in the table twice")
            CONVERTERS[name] = row
        return work

    return take


def rows(converters: Mapping[str, Callable[..., Any]]) -> None:
    """Register converters that are one expression each; a key has the names of all operators of its converter."""
    for names, work in converters.items():
        aten(*names.split())(work)


def find(target: Any) -> Row | None:
    """The converter of an overload of an operator."""
    space, _, packet = getattr(getattr(target, "_schema", None), "name", "").partition("::")
    if space != "aten":  # those of `torch.onnx.ops`, or that a package registers with torch.library
        return CONVERTERS.get(f"{space}::{packet}")
    return CONVERTERS.get(f"{packet}.{target._overloadname}") or CONVERTERS.get(packet)
