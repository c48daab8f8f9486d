"""The interface of a node for converters, and the table of converters.

    @converter("Flatten")
    def flatten(n: Node) -> Expr:
        return reshape(n[0], …)

    rows({"Mish": lambda n: R.multiply(n[0], R.tanh(softplus_of(n[0])))})      # a converter that is one expression

`n[0]` is an input as an expression, `n.get(2)` one that may be left out, `n.known(1)` its value where the importer
knows it and `n.need(1)` the same where the converter cannot do without. A converter returns one expression, or
several in the order of the outputs (None for one that must not be read).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....ir.errors import FrontendError
from ...expr import Expr
from ..common.build import Refusal as Refusal
from .build import as_list, cast, constant, dtype_of, shape_of, static_shape, typed

if TYPE_CHECKING:
    from .importer import Importer


class NeedsValue(FrontendError):
    """A node needs the values of a tensor that are not known before the program runs."""

    tensor: str = ""


class Misfit(FrontendError):
    """A node with invalid inputs for its operator."""


class Value:
    """A tensor in the importer: its expression, its values if they are known, or its items.

    `known` may hold expressions over symbolic sizes (an object array): enough for shapes. `items` makes it a
    sequence. `elem` is the number ONNX has for an element type that is stored as another one (float8, int4).
    """

    __slots__ = ("_expr", "_later", "elem", "items", "kind", "known")

    def __init__(
        self,
        expr: Expr | None = None,
        known: Any = None,
        later: Callable[[], Expr] | None = None,
        items: list[Value] | None = None,
        elem: int = 0,
    ) -> None:
        self._expr, self._later, self.known, self.items, self.elem = expr, later, known, items, elem
        self.kind = "int64"  # the element type of symbols

    @property
    def expr(self) -> Expr:
        """The expression, made when it is first read."""
        if self._expr is None:
            if self._later is not None:
                self._expr = typed(self._later())
            elif self.items is not None:
                raise Refusal("a sequence is given where a tensor is needed")
            else:
                self._expr = constant(self.known)
        return self._expr

    @property
    def symbolic(self) -> bool:
        return self.known is not None and self.known.dtype == object

    @property
    def shape(self) -> tuple[Any, ...]:
        if self.known is not None and self._expr is None:
            return tuple(self.known.shape)
        return shape_of(self.expr)

    @property
    def dtype(self) -> str:
        if self.known is not None:
            return self.kind if self.symbolic else str(self.known.dtype.name)
        return dtype_of(self.expr)


class Node:
    """One node of the model, with its inputs resolved."""

    __slots__ = ("attrs", "domain", "importer", "inputs", "name", "op_type", "opset", "outputs", "proto")

    def __init__(self, importer: Importer, proto: Any, inputs: Sequence[Value | None], opset: int) -> None:
        self.importer, self.proto, self.inputs, self.opset = importer, proto, list(inputs), opset
        self.op_type, self.domain, self.name = proto.op_type, proto.domain, proto.name
        self.outputs: list[str] = list(proto.output)
        self.attrs: dict[str, Any] = importer.attributes(proto)

    # -- inputs ------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        return self.value(index).expr

    def value(self, index: int) -> Value:
        """An input that must be there."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise Refusal(f"input {index} is missing")
        return found

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def get(self, index: int) -> Any:
        """An input as an expression, or None where it is left out."""
        return self.value(index).expr if self.has(index) else None

    def all(self) -> list[Any]:
        return [self[i] for i in range(len(self.inputs))]

    def shape(self, index: int) -> tuple[Any, ...]:
        return self.value(index).shape

    def static(self, index: int) -> tuple[int, ...]:
        return static_shape(self[index], f"input {self.proto.input[index]!r}")

    def rank(self, index: int) -> int:
        return len(self.shape(index))

    def dtype(self, index: int) -> str:
        return self.value(index).dtype

    def known(self, index: int) -> Any:
        """The values of an input as an array without symbols, or None."""
        if not self.has(index):
            return None
        value = self.value(index)
        return None if value.symbolic else value.known

    def need(self, index: int, symbols: bool = False) -> Any:
        """The values of an input, which must be known at import (with `symbols`: but for sizes)."""
        value = self.value(index)
        if value.known is None or (value.symbolic and not symbols):
            name = self.proto.input[index]
            error = NeedsValue(
                f"input {index} ({name!r}) must be known at import, since shapes depend on it. Make it an "
                "initialiser or a Constant"
            )
            error.tensor = name
            raise error
        return value.known

    def ints(self, index: int, symbols: bool = False) -> list[Any]:
        """The values of an integer input as a list."""
        return as_list(self.need(index, symbols))

    def sizes(self, index: int) -> list[Any] | Expr:
        """The values of an integer input as a list, or the tensor that has them when the program runs.

        How many there are must be known: it is the number of dimensions of a result."""
        value = self.value(index)
        if value.known is None and all(isinstance(d, int) for d in value.shape):
            return cast(value.expr, "int64")
        return self.ints(index, symbols=True)

    # -- attributes --------------------------------------------------------------------------
    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    def flag(self, name: str, default: int) -> bool:
        """An attribute that is 0 or 1; other values are undefined."""
        found = self.attr(name, default)
        if found not in (0, 1):
            raise Refusal(f"the attribute {name} is {found!r}, and can only be 0 or 1")
        return bool(found)

    def axis(self, default: int, index: int = 0, extra: int = 0, name: str = "axis") -> int:
        """The attribute `axis` counted from the front of input `index`."""
        return self.front(int(self.attr(name, default)), self.rank(index) + extra)

    def front(self, axis: int, ndim: int) -> int:
        if not -ndim <= axis < max(ndim, 1):
            raise Refusal(f"axis {axis} does not exist in a tensor of {ndim} dimensions")
        return axis % ndim if ndim else 0

    def fronts(self, axes: Sequence[int], ndim: int) -> list[int]:
        found = [self.front(int(a), ndim) for a in axes]
        if len(set(found)) != len(found):
            raise Refusal(f"axes {list(axes)} name a dimension twice")
        return found

    def refuse(self, reason: str) -> Refusal:
        return Refusal(reason)


Converter = Callable[[Node], Any]
# (domain, op type) -> [(since opset, converter)], greatest first.
CONVERTERS: dict[tuple[str, str], list[tuple[int, Converter]]] = {}


def converter(*op_types: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Register a converter of operators, from an opset on."""

    def take(f: Converter) -> Converter:
        for op_type in op_types:
            rows = CONVERTERS.setdefault((domain, op_type), [])
            rows.append((since, f))
            rows.sort(key=lambda row: -row[0])
        return f

    return take


def rows(converters: Mapping[str, Converter], domain: str = "") -> None:
    """Register converters that are one expression each."""
    for op_type, work in converters.items():
        converter(op_type, domain=domain)(work)


def of_inputs(build: Callable[..., Any]) -> Converter:
    """The converter of an operator whose inputs are the arguments of a constructor."""
    return lambda n: build(*n.all())


def find_converter(domain: str, op_type: str, opset: int) -> Converter | None:
    """The converter of an operator in an opset."""
    for since, found in CONVERTERS.get((domain, op_type), ()):
        if since <= opset:
            return found
    return None
