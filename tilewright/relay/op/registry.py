"""The operators of the graph IR: one description of each, in the file of its family.

To add an operator, write into the file of its family (and a test; nothing else):

    def _dense_rel(types, attrs):                         # types: one for each argument, checked already
        data, weight = types
        if differ(data.shape[-1], weight.shape[1]):
            raise refuse(f"has {weight.shape[1]} columns and data {data.shape[-1]}", "weight")
        return TensorType((*data.shape[:-1], weight.shape[0]), attrs.out_dtype or data.dtype)

    _dense = register(
        "nn.dense",
        inputs=("data", "weight"),                        # "bias?" may be left out; "*data" is a tuple of tensors
        attrs={"units": integer(None), "out_dtype": dtype(None)},        # a kind with its default
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,           # how it may be fused
        rel=_dense_rel,                                   # the type of the result
        compute=lambda attrs, ins, out: [topi.nn.dense(ins[0], ins[1], None, out.dtype)],
    )

    def dense(data, weight, units=None, out_dtype=None):
        \"\"\"`data @ weight.T`.\"\"\"
        return _dense(data, weight, units=units, out_dtype=out_dtype)

`compute(attrs, inputs, out_type)` gets one te.Tensor for each tensor among the arguments (tuples laid out flat) and
returns a list of them, one for each tensor of the result. A relation sees sizes that are integers, expressions or
`Any`: `shapes.py` has the arithmetic that knows all three. Operators of shape data take it as an attribute here;
where it is a tensor, it is another operator (`dyn.reshape`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ...ir.dtype import DataType
from ...ir.equal import structural_equal
from ...ir.errors import DiagnosticError, near_matches
from ...ir.expr import FloatImm, IntImm, PrimExpr
from ...ir.op import CallEffectKind, Op, graph_operators
from ...ir.span import Span, user_span
from ..expr import Call, as_expr
from ..ty import TensorType, TupleType, Type

__all__ = [
    "REQUIRED",
    "Attr",
    "Attrs",
    "OpPattern",
    "Place",
    "RelayOp",
    "RelayTypeError",
    "anything",
    "dtype",
    "flag",
    "get",
    "integer",
    "ints",
    "list_names",
    "named",
    "number",
    "refuse",
    "register",
    "register_compute",
    "register_op_attr",
    "register_pattern",
    "text",
]


class OpPattern(IntEnum):
    """How an operator reads its inputs: what fusion asks. A greater number is less regular."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


class RelayTypeError(DiagnosticError, TypeError):
    """A call whose arguments have no meaning for its operator."""

    def __init__(self, reason: str, argument: str = "") -> None:
        super().__init__(f"{argument}: {reason}" if argument else reason)
        self.reason, self.argument = reason, argument


def refuse(reason: str, argument: str = "") -> RelayTypeError:
    """The error for a relation to raise; inference adds the operator, the call as text and its place."""
    return RelayTypeError(reason, argument)


# ---------------------------------------------------------------------------- attributes
REQUIRED: Final = object()


class Attr:
    """A kind of attribute: how a value is brought to its one form, and the default."""

    __slots__ = ("convert", "default", "kind")

    def __init__(self, kind: str, convert: Callable[[Any], Any], default: Any = REQUIRED) -> None:
        self.kind, self.convert, self.default = kind, convert, default


def _to_int(value: Any) -> Any:
    if isinstance(value, IntImm):
        return int(value.value)
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        if isinstance(value, float) and value.is_integer():
            return int(value)
        raise TypeError(f"{value!r} is no integer")
    return value.__index__()


def _to_ints(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_to_ints(v) if isinstance(v, (tuple, list)) else _to_int(v) for v in value)
    return (_to_int(value),)


def _to_float(value: Any) -> float:
    return float(value.value if isinstance(value, (FloatImm, IntImm)) else value)


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return str(value)


def _to_dtype(value: Any) -> DataType | None:
    if value == "":
        return None
    return value if isinstance(value, DataType) else DataType(str(value))


def _to_anything(value: Any) -> Any:
    if isinstance(value, IntImm):
        return int(value.value)
    if isinstance(value, (list, tuple)):
        return tuple(_to_anything(v) for v in value)
    return value.item() if hasattr(value, "item") and not hasattr(value, "asnumpy") else value


def integer(default: Any = REQUIRED) -> Attr:
    """One integer."""
    return Attr("integer", _to_int, default)


def ints(default: Any = REQUIRED) -> Attr:
    """Several integers, nested where the operator wants it; one alone becomes a tuple of one."""
    return Attr("integers", _to_ints, default)


def number(default: Any = REQUIRED) -> Attr:
    """A float."""
    return Attr("number", _to_float, default)


def text(default: Any = REQUIRED) -> Attr:
    """A string."""
    return Attr("text", _to_text, default)


def flag(default: Any = REQUIRED) -> Attr:
    """True or False."""
    return Attr("flag", bool, default)


def dtype(default: Any = REQUIRED) -> Attr:
    """A type of elements; "" is None."""
    return Attr("dtype", _to_dtype, _to_dtype(default) if isinstance(default, str) else default)


def anything(default: Any = REQUIRED) -> Attr:
    """Numbers, text, tuples of them, or an object of the operator's own."""
    return Attr("value", _to_anything, default)


class Attrs:
    """The attributes of a call: `attrs.strides`, `attrs["strides"]`, `attrs.keys()`. Equal where their values are."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", dict(values))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(
                f"there is no attribute {name!r}{near_matches(name, self._values)}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"attributes are not changed: use attrs.replace({name}=…)")

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"there is no attribute {name!r}{near_matches(name, self._values)}")
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> list[str]:
        return list(self._values)

    def values(self) -> list[Any]:
        return list(self._values.values())

    def items(self) -> list[tuple[str, Any]]:
        return list(self._values.items())

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def get_int(self, name: str) -> int:
        return int(self[name])

    def get_str(self, name: str) -> str:
        return str(self[name])

    def get_int_tuple(self, name: str) -> tuple[int, ...]:
        return tuple(int(v) for v in self[name])

    def replace(self, **changes: Any) -> Attrs:
        """A copy with some attributes changed; a call checks them anew."""
        return Attrs({**self._values, **changes})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attrs) or self._values.keys() != other._values.keys():
            return False
        return all(_same_value(v, other._values[k]) for k, v in self._values.items())

    def __hash__(self) -> int:
        return hash(tuple(sorted((k, str(v)) for k, v in self._values.items())))

    def __repr__(self) -> str:
        return f"Attrs({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


def _same_value(a: Any, b: Any) -> bool:
    """Whether two values of attributes are the same; of expressions `==` would build another."""
    if isinstance(a, PrimExpr) or isinstance(b, PrimExpr):
        return isinstance(a, PrimExpr) and isinstance(b, PrimExpr) and structural_equal(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_value, a, b))
    return bool(a == b)


class Place(NamedTuple):
    """Data of an operator that say where it reads or writes, or by what it divides.

    `kind` says what is legal along a dimension of n elements: "index" -n to n - 1, "position" 0 to n - 1, "length"
    0 to n; "divisor" all but 0. The dimensions are `dims` of the argument `source`; with several, the first dimension
    of the data counts them. `sizes` are given instead where they are no dimensions.
    """

    argument: int
    kind: str
    source: int = 0
    dims: tuple[int, ...] = ()
    sizes: tuple[Any, ...] = ()
    ignored: int | None = None  # legal besides
    columns: tuple[
        int, ...
    ] = ()  # places of the last dimension to which the sizes belong; no other is an index
    field: int | None = None  # of an argument that is a tuple, of which `source` is then another field


Relation = Callable[[list[Any], Any], Type]
Places = Callable[[list[Any], Any], Sequence[Place]]
Compute = Callable[[Any, list[Any], Any], list[Any]]


class RelayOp(Op):
    """An operator over tensors. Calling it builds a `Call`, with the attributes by name."""

    __slots__ = ("compute", "description", "inputs", "pattern", "places", "rel", "spec")

    def __init__(self, name: str) -> None:
        super().__init__(name, CallEffectKind.Pure, False)
        self.inputs: tuple[str, ...] | None = None
        self.spec: dict[str, Attr] = {}
        self.pattern = OpPattern.OPAQUE
        self.rel: Relation | None = None
        self.compute: Compute | None = None
        self.places: Places | None = None
        self.description = ""

    @property
    def num_inputs(self) -> int:
        return -1 if self.inputs is None else len(self.inputs)

    def __call__(self, *args: Any, **attrs: Any) -> Call:
        made = [as_expr(a) for a in args]
        if self.inputs is not None and len(made) > len(self.inputs):
            raise TypeError(f"{self.name} takes {', '.join(self.inputs)}, not {len(made)} arguments")
        return Call(self, made, attrs, span=_span())

    def check_attrs(self, given: Any) -> Attrs:
        """The attributes in their one form, with the defaults filled in."""
        if (
            given.__class__ is Attrs
            and given._values.keys() == self.spec.keys()
            and _formed(given, self.spec)
        ):
            return given  # type: ignore[no-any-return]
        given = dict(given.items()) if given is not None else {}
        unknown = [name for name in given if name not in self.spec]
        if unknown:
            raise TypeError(
                f"{self.name} has no attribute {unknown[0]!r}{near_matches(unknown[0], self.spec)}"
            )
        out: dict[str, Any] = {}
        for name, kind in self.spec.items():
            if name not in given:
                if kind.default is REQUIRED:
                    raise TypeError(f"{self.name}: attribute {name!r} ({kind.kind}) is missing")
                out[name] = kind.default
                continue
            value = given[name]
            if value is None and kind.default is None:
                out[name] = None
                continue
            try:
                out[name] = kind.convert(value)
            except (TypeError, ValueError) as error:
                raise TypeError(f"{self.name}: attribute {name!r} must be {_a(kind.kind)}: {error}") from None
        return Attrs(out)

    def infer(self, types: Sequence[Any], attrs: Any) -> Type:
        """The type of a call with arguments of these types."""
        if self.rel is None:
            raise refuse(f"the operator {self.name} has no type relation")
        self._check_arguments(types)
        return self.rel(list(types), attrs)

    def _check_arguments(self, types: Sequence[Any]) -> None:
        if self.inputs is None:
            return
        least = len([i for i in self.inputs if not i.endswith("?")])
        if not least <= len(types) <= len(self.inputs):
            raise refuse(
                f"takes {len(self.inputs)} arguments ({', '.join(self.inputs)}) and got {len(types)}"
            )
        for name, kind in zip(self.inputs, types, strict=False):
            if name.startswith("*"):
                if not isinstance(kind, TupleType) or not all(isinstance(f, TensorType) for f in kind.fields):
                    raise refuse(f"must be a tuple of tensors and is {kind}", name[1:])
            elif not isinstance(kind, TensorType):
                raise refuse(f"must be a tensor and is {kind}", name.rstrip("?"))

    def get_attr(self, name: str) -> Any:
        if name == "TOpPattern":
            return int(self.pattern)
        if name == "FTVMCompute":
            return self.compute
        return super().get_attr(name)

    def set_attr(self, name: str, value: Any, level: int = 10) -> None:
        if name == "TOpPattern":
            self.pattern = OpPattern(value)
        elif name == "FTVMCompute":
            self.compute = value
        else:
            super().set_attr(name, value, level)

    def reset_attr(self, name: str) -> None:
        self.attrs.pop(name, None)

    def has_attr(self, name: str) -> bool:
        return self.get_attr(name) is not None

    def __repr__(self) -> str:
        return f"Op({self.name})"


def _formed(attrs: Attrs, spec: Mapping[str, Attr]) -> bool:
    """Whether the values have their one form already, as those of another call of the operator have."""
    plain = (int, float, str, bool, tuple, DataType)
    return all(v is None or v.__class__ in plain for v in attrs._values.values()) and all(
        k.kind != "integers" or v is None or v.__class__ is tuple
        for k, v in zip(spec.values(), attrs._values.values())
    )


def _a(kind: str) -> str:
    return kind if kind == "integers" else f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _span() -> Span | None:
    return user_span()


def named(build: Callable[..., Any], name: str, module: str, doc: str) -> Callable[..., Any]:
    """A constructor that a family makes for one of its operators, under its own name."""
    build.__name__ = build.__qualname__ = name
    build.__module__, build.__doc__ = module, doc
    return build


# ---------------------------------------------------------------------------- the registry
def register(
    name: str,
    *,
    inputs: Sequence[str] | None,
    rel: Relation,
    compute: Compute | None = None,
    attrs: Mapping[str, Attr] | None = None,
    pattern: OpPattern = OpPattern.OPAQUE,
    effect: CallEffectKind = CallEffectKind.Pure,
    description: str = "",
    places: Places | None = None,
) -> RelayOp:
    """Make an operator known. `inputs=None` takes any number of arguments of any type.

    `places(types, attrs)` tells which of its data are indices or divisors, and what is legal for them.
    """
    found = graph_operators.get(name)
    op = found if isinstance(found, RelayOp) else RelayOp(name)
    if op.rel is not None:
        raise ValueError(f"operator {name!r} is described twice")
    op.inputs = None if inputs is None else tuple(inputs)
    op.spec, op.rel, op.compute = dict(attrs or {}), rel, compute
    op.pattern, op.effect, op.description, op.places = pattern, effect, description, places
    graph_operators[name] = op
    return op


def get(op_name: str) -> RelayOp:
    """The operator of that name."""
    found = graph_operators.get(op_name)
    if not isinstance(found, RelayOp):
        raise ValueError(f"no graph operator is named {op_name!r}{near_matches(op_name, graph_operators)}")
    return found


def list_names() -> list[str]:
    """The names of all operators."""
    return sorted(graph_operators)


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Give an operator a property; without a value, as a decorator of the function that is the value."""

    def take(given: Any) -> Any:
        get(op_name).set_attr(attr_key, given, level)
        return given

    return take if value is None else take(value)


def register_pattern(op_name: str, pattern: int, level: int = 10) -> Any:
    """Say how an operator may be fused."""
    return register_op_attr(op_name, "TOpPattern", pattern, level)


def register_compute(op_name: str, compute: Any = None, level: int = 10) -> Any:
    """Say what an operator computes, `compute(attrs, inputs, out_type)`; also as a decorator."""
    return register_op_attr(op_name, "FTVMCompute", compute, level)
