"""The operators of the graph IR: one declaration of each, in the file of its family.

To add an operator, write into the file of its family (and a test; nothing else):

    def _dense_rel(types, attrs):                         # types: one for each argument, checked already
        data, weight = types
        if differ(data.shape[-1], weight.shape[1]):
            raise refuse(f"has {weight.shape[1]} columns and data {data.shape[-1]}", "weight")
        return TensorType((*data.shape[:-1], weight.shape[0]), attrs.out_dtype or data.dtype)

    @operator(
        "nn.dense",
        rel=_dense_rel,                                   # the type of the result
        compute="nn.dense",                               # topi's function, or one of (attrs, inputs, type)
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,           # how it may be fused
        traits=Traits(product=True, precision=SMALL),     # what passes know of it: see traits.py
    )
    def dense(data: Tensor, weight: Tensor, units: int | None = None, out_dtype: Dtype = "") -> Call:
        \"\"\"`data @ weight.T`: each row of the weight makes one output.\"\"\"

The signature is the declaration of inputs and attributes, with their kinds and defaults; the constructor needs no body.
A function of topi gets the inputs in order, attributes by the names of its parameters, and the type of the result as
`out_dtype`. Another `compute(attrs, inputs, out_type)` gets one te.Tensor for each tensor among the arguments (tuples
laid out flat) and returns a list of them, one for each tensor of the result. A relation sees sizes that are integers,
expressions or `Any`: `shapes.py` has the arithmetic that knows all three. Operators of shape data take it as an
attribute here; where it is a tensor, it is another operator (`dyn.reshape`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cache, reduce, wraps
from inspect import signature, unwrap
from types import FunctionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from ...ir.dtype import DataType
from ...ir.errors import DiagnosticError, OperandValueError, near_matches
from ...ir.op import CallEffectKind, Op, graph_operators
from ...ir.span import user_span
from ...runtime.shape_functions import SHAPE_FUNCTIONS, Shape, ShapeError, ShapeFunction
from ..expr import Call, TupleWrapper, as_expr
from ..ty import TensorType, TupleType, Type
from .arguments import float32, int32, is_computed, numbers, tensors
from .attributes import (
    REQUIRED,
    Attr,
    Attrs,
    anything,
    dtype,
    flag,
    integer,
    ints,
    number,
    padding,
    sizes,
    text,
    window,
)
from .computes import in_layout, topi
from .traits import NONE, Traits


class OpPattern(IntEnum):
    """The access pattern of an operator, for fusion. A greater number is less regular."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE, FUSABLE, _, OPAQUE = OpPattern


class RelayTypeError(DiagnosticError, TypeError):
    """A call with invalid arguments for its operator."""

    def __init__(self, reason: str, argument: str = "") -> None:
        super().__init__(f"{argument}: {reason}" if argument else reason)
        self.reason, self.argument = reason, argument


def refuse(reason: str, argument: str = "") -> RelayTypeError:
    """The error for a relation to raise; inference adds the operator, the call as text and its location."""
    return RelayTypeError(reason, argument)


class Place(NamedTuple):
    """An operand of an operator that contains indices or divisors.

    `kind` defines the legal values for a dimension of n elements: "index" -n to n - 1, "position" 0 to n - 1, "length"
    0 to n; "divisor" all but 0. The dimensions are `dims` of the argument `source`; with several, they correspond to
    the first dimension of the data. `sizes` are given instead if they are not dimensions.
    """

    argument: int
    kind: str
    source: int = 0
    dims: tuple[int, ...] = ()
    sizes: tuple[Any, ...] = ()
    ignored: int | None = None  # legal besides
    # Places of the last dimension to which the sizes belong; no other is an index.
    columns: tuple[int, ...] = ()
    field: int | None = None  # of an argument that is a tuple, of which `source` is then another field


Relation = Callable[[list[Any], Any], Type]
Places = Callable[[list[Any], Any], Sequence[Place]]
Compute = Callable[[Any, list[Any], Any], list[Any]]
Constructor = TypeVar("Constructor", bound=Callable[..., Any])


class RelayOp(Op):
    """An operator over tensors. Calling it builds a `Call`, with the attributes by name."""

    __slots__ = (
        "arguments", "compute", "description", "inputs", "levels", "open_attrs", "pattern", "places", "rel",
        "spec", "support_level", "traits",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        super().__init__(name, CallEffectKind.Pure, False)
        self.inputs: tuple[str, ...] | None = None
        self.spec: dict[str, Attr] = {}
        self.pattern = OpPattern.OPAQUE
        self.rel: Relation | None = None
        self.compute: Compute | None = None
        self.places: Places | None = None
        self.traits = NONE
        self.description = ""
        self.arguments: list[str] = []  # of a classic registration
        self.open_attrs = False  # attributes of any name, as they are given
        self.support_level = 10
        self.levels: dict[str, int] = {}  # of the properties that were set

    @property
    def num_inputs(self) -> int:
        return -1 if self.inputs is None else len(self.inputs)

    def __call__(self, *args: Any, **attrs: Any) -> Call:
        made = [as_expr(a) for a in args]
        if self.inputs is not None and len(made) > len(self.inputs):
            raise TypeError(f"{self.name} takes {', '.join(self.inputs)}, not {len(made)} arguments")
        return Call(self, made, attrs, span=user_span())

    def check_attrs(self, given: Any) -> Attrs:
        """The normalized attributes, with defaults."""
        if self.open_attrs:
            return given if given.__class__ is Attrs else Attrs(dict(given.items()) if given else {})
        if (
            given.__class__ is Attrs
            and given._values.keys() == self.spec.keys()
            and _formed(given, self.spec)
        ):
            return given
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
                text = f"{self.name}: attribute {name!r} must be {_a(kind.kind)}: {error}"
                raise type(error)(text) from None
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

    # -- properties, by the classic names of those that a declaration has ------------------------
    def get_attr(self, name: str) -> Any:
        """A property of the operator; None if it has none of that name."""
        declared = _DECLARED.get(name)
        return super().get_attr(name) if declared is None else declared[0](self)

    def set_attr(self, name: str, value: Any, plevel: int = 10) -> None:
        """Set a property, unless it was set with a higher level before."""
        if plevel < self.levels.get(name, plevel):
            return
        self.levels[name] = plevel
        declared = _DECLARED.get(name)
        if declared is None:
            super().set_attr(name, value, plevel)
        else:
            declared[1](self, value)

    def reset_attr(self, name: str) -> None:
        """Remove a property."""
        self.levels.pop(name, None)
        declared = _DECLARED.get(name)
        if declared is None:
            self.attrs.pop(name, None)
        else:
            declared[1](self, OpPattern.OPAQUE if name == "TOpPattern" else None)

    def has_attr(self, name: str) -> bool:
        return self.get_attr(name) is not None

    # -- classic registration, step by step ------------------------------------------------------
    def set_num_inputs(self, n: int) -> None:
        """Set the number of arguments; `add_argument` names them."""
        self.inputs = (
            tuple(self.arguments) if len(self.arguments) == n else tuple(f"data_{i}" for i in range(n))
        )

    def add_argument(self, name: str, type: str, description: str) -> None:
        """Name the next argument; its type is "Tensor", or "Tuple" for a tuple of tensors."""
        self.arguments.append(f"*{name}" if "tuple" in type.lower() else name)
        known = () if self.inputs is None else self.inputs
        self.inputs = (*self.arguments, *known[len(self.arguments) :])

    def set_support_level(self, level: int) -> None:
        """Note how common the operator is, from 1 on; no pass reads it."""
        self.support_level = int(level)

    def set_attrs_type_key(self, key: str) -> None:
        """Accept attributes of any name: those of an operator that is registered so have no declaration."""
        self.open_attrs = True

    def add_type_rel(self, rel_name: str, type_rel_func: Relation | None = None) -> None:
        """Set the type relation: a function (types of the arguments, attrs) -> type, or a common one by name."""
        from .relations import by_name

        self.rel = by_name(rel_name) if type_rel_func is None else type_rel_func

    def __repr__(self) -> str:
        return f"Op({self.name})"


def _set_effect(op: RelayOp, stateful: Any) -> None:
    op.effect = CallEffectKind.Opaque if stateful else CallEffectKind.Pure


def _set_pattern(op: RelayOp, value: Any) -> None:
    op.pattern = OpPattern(value)


# The properties that a declaration has, by their classic names: how each is read and set.
_DECLARED: Final[dict[str, tuple[Callable[[RelayOp], Any], Callable[[RelayOp, Any], None]]]] = {
    "TOpPattern": (lambda op: int(op.pattern), _set_pattern),
    "FTVMCompute": (lambda op: op.compute, lambda op, value: setattr(op, "compute", value)),
    "FPrimalGradient": (
        lambda op: op.traits.gradient,
        lambda op, value: setattr(op, "traits", replace(op.traits, gradient=value)),
    ),
    "TOpIsStateful": (lambda op: op.effect > CallEffectKind.Pure, _set_effect),
}


def _formed(attrs: Attrs, spec: Mapping[str, Attr]) -> bool:
    """Whether the values are normalized already, as those of another call of the operator."""
    plain = (int, float, str, bool, tuple, DataType)
    return all(v is None or v.__class__ in plain for v in attrs._values.values()) and all(
        k.kind != "integers" or v is None or v.__class__ is tuple
        for k, v in zip(spec.values(), attrs._values.values())
    )


def _a(kind: str) -> str:
    return kind if kind == "integers" else f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def named(build: Callable[..., Any], name: str, module: str, doc: str) -> Callable[..., Any]:
    """A constructor that a family makes for one of its operators, under its own name."""
    build.__name__ = build.__qualname__ = name.rpartition(".")[2]
    build.__module__, build.__doc__ = module, doc
    return build


def alike(build: Constructor, name: str, doc: str, rank: int = 2) -> Constructor:
    """The declaration of another operator with the parameters of one over two spatial dimensions.

    conv2d(strides=(1, 1), data_layout="NCHW", …)   ->   conv1d(strides=(1,), data_layout="NCW", …)      rank 1
    """
    body = unwrap(build)
    space = "DHW"[3 - rank :]

    def fitted(default: Any) -> Any:
        if isinstance(default, tuple):
            return default[:1] * rank
        return default.replace("HW", space) if isinstance(default, str) else default

    made = FunctionType(body.__code__, body.__globals__, name, tuple(map(fitted, body.__defaults__ or ())))
    made.__kwdefaults__, made.__annotations__ = body.__kwdefaults__, body.__annotations__
    return cast(Constructor, named(made, name, body.__module__, doc))


# ---------------------------------------------------------------------------- what a constructor's annotations say
Tensor: TypeAlias = Annotated[Any, "Tensor"]  # an input: an expression, or what becomes a constant
Tensors: TypeAlias = Annotated[Any, "Tensors"]  # an input that is a tuple of tensors, or a list of them
Float32: TypeAlias = Annotated[Any, "Float32"]  # an input; a number becomes a float32 constant
Int32: TypeAlias = Annotated[Any, "Int32"]  # an input; a number becomes an int32 constant
Numbers: TypeAlias = Annotated[Any, "Numbers"]  # an input; a list of numbers becomes a constant
Ints: TypeAlias = Annotated[Any, "Ints"]  # an attribute of integers: one, several, or a constant of the graph
Pair: TypeAlias = Annotated[Any, "Pair"]  # a number for both spatial dimensions, or one for each
Sides: TypeAlias = Annotated[Any, "Sides"]  # padding of two spatial dimensions: one, two or four numbers
Sizes: TypeAlias = Annotated[Any, "Sizes"]  # sizes, known or symbolic
Dtype: TypeAlias = Annotated[Any, "Dtype"]  # a type of elements
Value: TypeAlias = Annotated[Any, "Value"]  # numbers, text, or tuples of them

_INPUTS: Final[dict[str, Callable[[Any], Any]]] = {
    "Tensor": as_expr,
    "Tensor | None": as_expr,
    "Tensors": tensors,
    "Float32": float32,
    "Int32": int32,
    "Numbers": numbers,
}
_KINDS: Final[dict[str, Callable[[], Attr]]] = {
    "int": integer,
    "float": number,
    "bool": flag,
    "str": text,
    "Ints": ints,
    "Pair": lambda: window(2),
    "Sides": lambda: padding(2),
    "Dtype": dtype,
    "Sizes": sizes,
    "Value": anything,
}


# ---------------------------------------------------------------------------- the registry
def register(
    op_name: str,
    describe: str = "",
    *,
    inputs: Sequence[str] | None = None,
    rel: Relation | None = None,
    compute: Compute | str | None = None,
    attrs: Mapping[str, Attr] | None = None,
    pattern: OpPattern = OpPattern.OPAQUE,
    effect: CallEffectKind = CallEffectKind.Pure,
    places: Places | None = None,
    traits: Traits = NONE,
) -> RelayOp:
    """Register an operator. `inputs=None` takes any number of arguments of any type.

    Without a relation it is an empty operator that takes any attributes, to be completed step by step with
    `get(op_name).set_num_inputs`, `add_argument`, `add_type_rel`, `register_compute`, …

    `compute` is a function, or the name of one in topi that takes the inputs and then attributes by their names
    (`stride` is the attribute `strides`); "vision.roi_pool_{layout}" is one for each value of an attribute, in lower
    case. If it takes no `out_layout` and the operator does, its result is brought from the layout of the data to that.
    `places(types, attrs)` returns its operands that are indices or divisors, with their legal values.
    """
    name = op_name
    found = graph_operators.get(name)
    op = found if isinstance(found, RelayOp) else RelayOp(name)
    if op.rel is not None or (found is not None and rel is None):
        raise OperandValueError(f"operator {name!r} is declared twice: give one of them another name")
    op.open_attrs = rel is None
    op.inputs = None if inputs is None else tuple(inputs)
    op.spec, op.rel = dict(attrs or {}), rel
    op.compute = _from_topi(compute) if isinstance(compute, str) else compute
    op.pattern, op.effect, op.description, op.places = pattern, effect, describe, places
    op.traits = traits
    if name in SHAPE_FUNCTIONS:
        op.attrs["FShapeFunc"] = _shape_function(SHAPE_FUNCTIONS[name])
    graph_operators[name] = op
    return op


def _from_topi(name: str) -> Compute:
    """The compute of an operator that topi has too: its parameters are the inputs, attributes, and `out_dtype`."""

    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        chosen = name.format_map({n: str(v).lower() for n, v in attrs.items()}) if "{" in name else name
        work: Any = reduce(getattr, chosen.split("."), topi)
        options: dict[str, Any] = {}
        for n in _parameters(work)[len(ins) :]:
            own = "strides" if n == "stride" and n not in attrs else n
            if n == "out_dtype" or own in attrs:
                options[n] = out.dtype if n == "out_dtype" else attrs[own]
        made = work(*ins, **options)
        if "out_layout" in attrs and "out_layout" not in options:
            return in_layout(made, attrs["data_layout"], attrs["out_layout"])
        return list(made) if isinstance(made, (tuple, list)) else [made]

    return compute


@cache
def _parameters(work: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(signature(work).parameters)


def _shape_function(work: ShapeFunction) -> ShapeFunction:
    """The sizes of a result that depend on values, with a refusal as the type relations have it.

    What it does is in `runtime/shape_functions.py`: a saved program needs it where there is no compiler.
    """

    def shapes(attrs: Any, values: list[Any]) -> list[Shape]:
        try:
            return work(attrs, values)
        except ShapeError as error:
            raise RelayTypeError(error.reason, error.argument) from None

    return shapes


def operator(
    name: str,
    *,
    rel: Relation,
    compute: Compute | str | None = None,
    attrs: Mapping[str, Attr] | None = None,
    inputs: Sequence[str] | None = None,
    pattern: OpPattern = OpPattern.OPAQUE,
    places: Places | None = None,
    traits: Traits = NONE,
    results: int | Callable[[Call], int] = 0,
    dynamic: Callable[..., Any] | None = None,
) -> Callable[[Constructor], Constructor]:
    """Declare an operator by the signature of its constructor, which needs no body.

    Each parameter is an input or an attribute, as its annotation says (`Tensor`, `Ints`, `int`, …: see above), with the
    default it has. `attrs` are attributes that the constructor does not take, and those of another kind or default.
    `results` is how many tensors a call gives as a tuple, 0 where it gives one. `dynamic` is the constructor to call
    where an attribute is computed by the program.

    A body may check the arguments, return a call of another operator, or return `given(axis=…)`: the arguments with
    some of them changed. A parameter that is neither input nor attribute by itself is annotated `Any`.
    """

    def declare(body: Constructor) -> Constructor:
        form = _form_of(body, attrs or {})
        op = register(
            name,
            inputs=form.names() if inputs is None else inputs,
            attrs=form.spec,
            rel=rel,
            compute=compute,
            pattern=pattern,
            describe=body.__doc__ or "",
            places=places,
            traits=traits,
        )
        wanted = [n.strip("*?") for n in op.inputs or ()]
        # Tensors only: they can be passed unchanged.
        plain = not (op.spec or form.defaults or results) and set(form.inputs.values()) == {as_expr}

        @wraps(body)
        def build(*args: Any, **options: Any) -> Any:
            made = body(*args, **options)
            if plain and made is None and not options:
                return op(*args)
            if made is not None and made.__class__ is not dict:
                return made
            values = {
                **form.defaults,
                **dict(zip(form.parameters, args, strict=False)),
                **options,
                **(made or {}),
            }
            named = {n: values[n] for n in op.spec if n in values}
            if dynamic is not None and any(map(is_computed, named.values())):
                return dynamic(*args, **options)
            there = [n for n in wanted if values[n] is not None or n not in form.optional]
            call = op(*(form.inputs.get(n, as_expr)(values[n]) for n in there), **named)
            count = results(call) if callable(results) else results
            return TupleWrapper(call, count) if count else call

        build.op = op  # type: ignore[attr-defined]
        return cast(Constructor, build)

    return declare


def given(**changes: Any) -> Any:
    """The return value of a constructor's body: the declared call with these arguments changed."""
    return changes


class _Form(NamedTuple):
    """The declaration in the signature of a constructor."""

    parameters: tuple[str, ...]
    defaults: dict[str, Any]
    inputs: dict[str, Callable[[Any], Any]]
    optional: frozenset[str]
    spec: dict[str, Attr]

    def names(self) -> tuple[str, ...]:
        """The inputs as `register` takes them."""
        return tuple(
            f"*{n}" if take is tensors else f"{n}?" if n in self.optional else n
            for n, take in self.inputs.items()
        )


def _form_of(body: Callable[..., Any], attrs: Mapping[str, Attr]) -> _Form:
    code = body.__code__
    count = code.co_argcount
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    last = body.__defaults__ or ()
    defaults = {
        **dict(zip(names[count - len(last) : count], last, strict=True)),
        **(body.__kwdefaults__ or {}),
    }
    kinds = {n: _kind(body.__annotations__.get(n, Any)) for n in names}
    inputs = {n: _INPUTS[k] for n, k in kinds.items() if k in _INPUTS}
    spec: dict[str, Attr] = {}
    for n, kind in kinds.items():
        plain = kind.removesuffix(" | None")
        if n in attrs or plain in _KINDS:
            spec[n] = _with_default(attrs[n] if n in attrs else _KINDS[plain](), defaults.get(n, REQUIRED))
        elif n not in inputs and kind != "Any":
            raise TypeError(
                f"{body.__name__}: parameter {n!r} is annotated {kind}, which says neither an input nor an attribute; "
                "Any leaves it to the body"
            )
    spec.update({n: a for n, a in attrs.items() if n not in spec})
    optional = frozenset(n for n, k in kinds.items() if k == "Tensor | None")
    return _Form(names[:count], defaults, inputs, optional, spec)


def _kind(annotation: Any) -> str:
    """The last word of an annotation, be it text or an object: `Tensor`, `int | None`."""
    if not isinstance(annotation, str):
        annotation = getattr(annotation, "__metadata__", (getattr(annotation, "__name__", str(annotation)),))[
            0
        ]
    return str(annotation.rpartition(".")[2])


def _with_default(kind: Attr, default: Any) -> Attr:
    """The kind with the default of the parameter, unless it has one of its own."""
    if kind.default is not REQUIRED or default is REQUIRED:
        return kind
    return Attr(kind.kind, kind.convert, None if default is None else kind.convert(default), kind.printed)


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
