"""Graph expressions over whole tensors.

    x = relay.var("x", shape=(1, 3, 224, 224), dtype="float32")
    f = relay.Function([x], relay.nn.relu(x) + relay.const(1.0))

Nodes are immutable and compared by identity; a shared value is one node with several users. `InferType` infers the type
of an expression, and stores it in the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..absent import attributes
from ..ir.errors import TVMError
from ..ir.function import BaseFunc
from ..ir.module import GlobalVar as GlobalVar
from ..ir.module import GraphNode
from ..ir.node import node
from ..ir.op import Op
from ..ir.span import Span
from ..runtime.ndarray import NDArray, array
from .ty import IncompleteType, TensorType, Type

if TYPE_CHECKING:
    import numpy as np


def _operator(name: str, reflected: bool = False) -> Callable[[Any, Any], Expr]:
    """The method of Python's operator for a binary one of graphs, where a number takes the element type of what stands
    beside it."""

    def method(self: Expr, other: Any) -> Expr:
        if not isinstance(other, Expr):
            other = const_like(other, self)
        made = _tensor_op(name)(other, self) if reflected else _tensor_op(name)(self, other)
        return made

    return method


class Expr(GraphNode):
    """The base of graph expressions. `a + b`, `a < b` and their like build calls."""

    __slots__ = ("_checked_type",)
    _tail = "self._checked_type = None"
    _checked_type: Type | None

    @property
    def checked_type(self) -> Any:
        """The type that `InferType` found."""
        found = self._checked_type
        if found is None:
            raise ValueError(
                f"the type of this {type(self).__name__} is not known yet: run relay.transform.InferType() on "
                "the module, or relay.transform.InferTypeLocal(expr)"
            )
        return found

    @property
    def checked_type_(self) -> Any:
        """The type that `InferType` found, or None."""
        return self._checked_type

    # -- what a module asks ------------------------------------------------------------------
    def call_of(self, op: GlobalVar, args: Any) -> Call:
        return Call(op, args)

    def as_function(self) -> Function:
        from .analysis import free_vars

        return Function(free_vars(self), self)

    # -- text --------------------------------------------------------------------------------
    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        """The text form; `show_meta_data` adds the arrays, so that it can be parsed back."""
        from .text import expr_text

        return expr_text(self, show_meta_data, annotate)

    def __repr__(self) -> str:
        return self.astext(show_meta_data=False)

    __str__ = __repr__

    # -- operators ---------------------------------------------------------------------------
    def astype(self, dtype: str) -> Expr:
        """The elements converted to another type."""
        return _tensor_op("cast")(self, dtype)

    def __neg__(self) -> Expr:
        return _tensor_op("negative")(self)

    __add__ = _operator("add")
    __radd__ = _operator("add", reflected=True)
    __sub__ = _operator("subtract")
    __rsub__ = _operator("subtract", reflected=True)
    __mul__ = _operator("multiply")
    __rmul__ = _operator("multiply", reflected=True)
    __truediv__ = _operator("divide")
    __rtruediv__ = _operator("divide", reflected=True)
    __floordiv__ = _operator("floor_divide")
    __mod__ = _operator("mod")
    __pow__ = _operator("power")
    __lt__ = _operator("less")
    __le__ = _operator("less_equal")
    __gt__ = _operator("greater")
    __ge__ = _operator("greater_equal")

    def __call__(self, *args: Any) -> Call:
        return Call(self, [as_expr(a) for a in args])


RelayExpr = ExprWithOp = Expr


def set_checked_type(expr: Expr, kind: Type | None) -> None:
    """Store the type of a node in it; only for `InferType`."""
    object.__setattr__(expr, "_checked_type", kind)


def _tensor_op(name: str) -> Any:
    from .op import elementwise

    return getattr(elementwise, name)


def const_like(value: Any, beside: Expr) -> Expr:
    """A constant of the element type of `beside`, where that is known."""
    if isinstance(value, (int, float)):
        kind = type_so_far(beside)
        if isinstance(kind, TensorType) and not (isinstance(value, float) and not kind.dtype.is_float):
            return const(value, str(kind.dtype))
    return as_expr(value)


def type_so_far(expr: Expr) -> Type | None:
    """The type of an expression under construction, or None if unknown."""
    if expr._checked_type is None:
        from .transform.infer_type import InferTypeLocal

        try:
            return InferTypeLocal(expr)
        except TVMError:
            return None  # a type is missing or wrong: inference of the module reports it
    return expr._checked_type


def as_expr(value: Any) -> Any:
    """An expression from a number, an array, or a list of expressions."""
    if isinstance(value, (Expr, GlobalVar, Op)):
        return value
    if isinstance(value, TupleWrapper):
        return value.astuple()
    if isinstance(value, (tuple, list)):
        return Tuple([as_expr(v) for v in value])
    if isinstance(value, (bool, int, float, NDArray)):
        return const(value)
    if hasattr(value, "__array__"):
        return Constant(array(value))
    raise TypeError(f"{value!r} ({type(value).__name__}) is neither an expression nor a constant")


@node
class Var(Expr):
    """A variable: a parameter, or bound by `let`. Two variables of the same name are different."""

    name_hint: str
    type_annotation: Any = None

    def __init__(self, name_hint: str, type_annotation: Type | None = None, span: Span | None = None) -> None:
        self.name_hint, self.span = name_hint, span
        self.type_annotation = None if isinstance(type_annotation, IncompleteType) else type_annotation
        self._checked_type = self.type_annotation

    @property
    def name(self) -> str:
        return self.name_hint

    @property
    def vid(self) -> Var:
        return self


@node
class Constant(Expr):
    """An array that is part of the program."""

    data: Any

    def __init__(self, data: Any, span: Span | None = None) -> None:
        self.data = data if isinstance(data, NDArray) else array(data)
        self.span = span
        self._checked_type = TensorType(self.data.shape, self.data.dtype)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values, as an array that shares their memory where it can."""
        import numpy as np

        return np.asarray(self.data)

    @property
    def is_scalar(self) -> bool:
        """Whether it is one number, which kernels have in their code; one of a type of the user's is bits."""
        return not self.data.shape and not self.data.dtype.startswith("custom[")


@node
class Call(Expr):
    """An operator or a function applied to arguments.

    `type_args` are the types for the type parameters of a generic function, and those of the arguments of an operator;
    inference finds both.
    """

    op: Any
    args: tuple[Expr, ...]
    attrs: Any = None
    type_args: tuple[Type, ...] = ()

    def __init__(
        self,
        op: Any,
        args: Iterable[Any],
        attrs: Any = None,
        type_args: Iterable[Type] | None = None,
        span: Span | None = None,
    ) -> None:
        self.op, self.attrs, self.span = op, attrs, span
        self.args = tuple(args)
        self.type_args = tuple(type_args) if type_args and not isinstance(op, Op) else ()
        self._checked_type = None
        finish = getattr(op, "check_attrs", None)
        if finish is not None:
            self.attrs = finish(attrs)

    def children(self) -> list[Any]:
        return [self.op, *self.args] if isinstance(self.op, Expr) else list(self.args)

    def map_children(self, f: Callable[[Any], Any]) -> Call:
        op = f(self.op) if isinstance(self.op, Expr) else self.op
        return self.over([f(a) for a in self.args], op=op)

    def over(self, args: Sequence[Any], attrs: Any = None, op: Any = None) -> Call:
        """The call over other arguments (with other attributes, of another function); itself if all are the same."""
        attrs = self.attrs if attrs is None else attrs
        return self.updated(op=self.op if op is None else op, args=tuple(args), attrs=attrs)


@node
class Tuple(Expr):
    """Several values as one."""

    fields: tuple[Expr, ...]

    def __init__(self, fields: Iterable[Any], span: Span | None = None) -> None:
        self.fields, self.span, self._checked_type = tuple(fields), span, None

    def __getitem__(self, index: int) -> Expr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)


@node
class TupleGetItem(Expr):
    """One of the values of a tuple."""

    tuple_value: Expr
    index: int

    def __init__(self, tuple_value: Any, index: int, span: Span | None = None) -> None:
        self.tuple_value, self.index = as_expr(tuple_value), int(index)
        self.span, self._checked_type = span, None


@node
class Let(Expr):
    """A value under a name for the expression that follows."""

    var: Var
    value: Expr
    body: Expr

    def __init__(self, variable: Var, value: Any, body: Any, span: Span | None = None) -> None:
        self.var, self.value, self.body = variable, as_expr(value), as_expr(body)
        self.span, self._checked_type = span, None

    def children(self) -> list[Any]:
        return [self.var, self.value, self.body]

    def map_children(self, f: Callable[[Any], Any]) -> Let:
        return self.updated(var=f(self.var), value=f(self.value), body=f(self.body))


@node
class If(Expr):
    """One of two values; only the one that is chosen is computed."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr

    def __init__(self, cond: Any, true_branch: Any, false_branch: Any, span: Span | None = None) -> None:
        self.cond, self.true_branch = as_expr(cond), as_expr(true_branch)
        self.false_branch, self.span, self._checked_type = as_expr(false_branch), span, None


@node
class Function(BaseFunc, Expr):
    """A function of tensors; as an expression, a closure."""

    params: tuple[Var, ...]
    body: Expr
    ret_type: Any
    type_params: tuple[Type, ...]
    attrs: dict[str, Any]

    def __init__(
        self,
        params: Iterable[Var],
        body: Any,
        ret_type: Type | None = None,
        type_params: Iterable[Type] | None = None,
        attrs: Mapping[str, Any] | None = None,
        span: Span | None = None,
    ) -> None:
        self.params, self.body = tuple(params), as_expr(body)
        for p in self.params:
            if not isinstance(p, Var):
                raise TypeError(f"a parameter of a function is a relay.Var, not {type(p).__name__}")
        self.ret_type = None if isinstance(ret_type, IncompleteType) else ret_type
        self.type_params = tuple(type_params) if type_params else ()
        self.attrs, self.span, self._checked_type = dict(attrs or {}), span, None

    def children(self) -> list[Any]:
        return [*self.params, self.body]

    def map_children(self, f: Callable[[Any], Any]) -> Function:
        params, body = [f(p) for p in self.params], f(self.body)
        if body is self.body and all(x is y for x, y in zip(params, self.params, strict=True)):
            return self
        kept = self.ret_type if body is self.body else None
        return Function(params, body, kept, self.type_params, self.attrs, self.span)

    def with_body(self, body: Expr) -> Function:
        """The function with another body, without a type."""
        if body is self.body:
            return self
        return Function(self.params, body, None, self.type_params, self.attrs, self.span)

    def script(self, **options: Any) -> str:
        return self.astext(show_meta_data=False)

    __repr__ = __str__ = Expr.__repr__


@node
class RefCreate(Expr):
    """A new cell that holds a value."""

    value: Expr

    def __init__(self, value: Any, span: Span | None = None) -> None:
        self.value, self.span, self._checked_type = as_expr(value), span, None


@node
class RefRead(Expr):
    """The value in a cell."""

    ref: Expr

    def __init__(self, ref: Any, span: Span | None = None) -> None:
        self.ref, self.span, self._checked_type = as_expr(ref), span, None


@node
class RefWrite(Expr):
    """A write into a cell; its own value is the empty tuple."""

    ref: Expr
    value: Expr

    def __init__(self, ref: Any, value: Any, span: Span | None = None) -> None:
        self.ref, self.value, self.span, self._checked_type = as_expr(ref), as_expr(value), span, None


class TupleWrapper:
    """A call that gives a tuple of a known number of values, as a Python sequence of them."""

    def __init__(self, tuple_value: Expr, size: int) -> None:
        self.tuple_value, self.size = tuple_value, size

    def astuple(self) -> Expr:
        """The tuple of all of them, as one expression."""
        return self.tuple_value

    def astext(self, show_meta_data: bool = True) -> str:
        return self.tuple_value.astext(show_meta_data)

    def __getitem__(self, index: int) -> TupleGetItem:
        if not -self.size <= index < self.size:
            raise IndexError(f"there are {self.size} results, and index {index} is out of range")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[TupleGetItem]:
        return (self[i] for i in range(self.size))

    def __repr__(self) -> str:
        return f"TupleWrapper({self.tuple_value}, {self.size})"


def var(
    name_hint: str,
    type_annotation: Any = None,
    shape: Sequence[Any] | None = None,
    dtype: str = "float32",
    span: Span | None = None,
) -> Var:
    """A variable of a type, or of the tensor type that `shape` and `dtype` make."""
    if type_annotation is not None and shape is not None:
        raise ValueError(f"relay.var({name_hint!r}): give a type or a shape, not both")
    if shape is not None:
        type_annotation = TensorType(shape, dtype)
    elif isinstance(type_annotation, str):
        type_annotation = TensorType((), type_annotation)
    elif type_annotation is not None and not isinstance(type_annotation, Type):
        raise TypeError(f"relay.var({name_hint!r}): a type was expected, not {type_annotation!r}; shape=… ?")
    return Var(str(name_hint), type_annotation, span=span)


def const(value: Any, dtype: str | None = None, span: Span | None = None) -> Constant:
    """A constant.

    Without a `dtype`, integers are int32 and floats float32: those of Python, and the int64 and float64 of NumPy,
    which are the types that NumPy chooses where none was asked for. An NDArray keeps its type, and so do integers that
    need 64 bits.
    """
    import numpy as np

    if isinstance(value, NDArray):
        if dtype is None or value.dtype == dtype:
            return Constant(value, span)
        value = value.numpy()
    from ..runtime.dtypes import element

    if isinstance(dtype, TensorType):
        dtype = str(dtype.dtype)
    wanted = None if dtype is None else element(str(dtype)).numpy
    made = np.asarray(value) if wanted is None else np.asarray(value, dtype=wanted)
    if dtype is None:
        small = {"int64": "int32", "float64": "float32"}.get(made.dtype.name)
        if small == "int32" and made.size and (made.max() >= 1 << 31 or made.min() < -(1 << 31)):
            small = None
        made = made if small is None else made.astype(small)
    if made.dtype == object:
        raise ValueError(f"relay.const: {value!r} is not an array of numbers")
    return Constant(array(made), span)


def bind(expr: Expr, binds: Mapping[Any, Any]) -> Expr:
    """The expression with values in place of variables (or of the parameters of that name).

    A function loses the parameters that are bound.
    """
    from .binding import bind as work

    return work(expr, binds)


__getattr__ = attributes(__name__)
