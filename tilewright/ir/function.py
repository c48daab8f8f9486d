"""Functions over buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from .buffer import Buffer
from .expr import PrimExpr, SizeVar, Var, convert
from .node import Node, node
from .stmt import Stmt
from .types import TupleType, Type


class CallingConv(IntEnum):
    """The ways in which a function is called: the value of its attribute `calling_conv`."""

    DEFAULT = 0
    C_PACKED_FUNC = 1
    DEVICE_KERNEL_LAUNCH = 2


class BaseFunc(Node):
    """A function of a module, with attributes."""

    __slots__ = ()
    attrs: dict[str, Any]

    def with_attr(self, key_or_map: str | Mapping[str, Any], value: Any = None) -> Any:
        """A copy that has one more attribute, or several."""
        more = {key_or_map: value} if isinstance(key_or_map, str) else dict(key_or_map)
        return self.replace(attrs={**self.attrs, **more})

    def without_attr(self, key: str) -> Any:
        """A copy without the attribute."""
        if key not in self.attrs:
            return self
        return self.replace(attrs={k: v for k, v in self.attrs.items() if k != key})

    def script(self, **options: Any) -> str:
        """The function as a script that parses back."""
        from .printer import script

        return script(self, **options)

    def __repr__(self) -> str:
        return self.script()

    __str__ = __repr__

    @property
    def __name__(self) -> str:
        """The symbol of the function, as Python's functions have a name; "main" if it has none."""
        return str(self.attrs.get("global_symbol", "main"))


_VARIABLES = {Var, SizeVar}


class _Buffers(dict[Var, Buffer]):
    """The buffers of a function's handles. Immutable, so that copies of the function with another body, of which a
    schedule makes one at each step, share them."""

    __slots__ = ()


@node
class PrimFunc(BaseFunc):
    """A function over scalars and buffers. `buffer_map` maps handles among `params` to buffers."""

    params: tuple[Var, ...]
    body: Stmt
    ret_type: Type
    buffer_map: dict[Var, Buffer]
    attrs: dict[str, Any]

    def __init__(
        self,
        params: Iterable[Any],
        body: Any,
        ret_type: Type | None = None,
        buffer_map: Mapping[Var, Buffer] | None = None,
        attrs: Mapping[str, Any] | None = None,
        span: Any = None,
    ) -> None:
        given = tuple(params)
        if isinstance(buffer_map, _Buffers) and set(map(type, given)) <= _VARIABLES:
            buffers = buffer_map
        else:
            buffers = _Buffers(buffer_map or {})
            given = tuple([_parameter(p, buffers) for p in given])
        self.params, self.ret_type = given, ret_type or TupleType()
        self.body = body if isinstance(body, Stmt) else _evaluate(body)
        self.buffer_map, self.attrs, self.span = buffers, dict(attrs or {}), span

    def children(self) -> list[Any]:
        return [self.body]

    def map_children(self, f: Any) -> PrimFunc:
        return self.updated(body=f(self.body))

    def with_body(self, new_body: Stmt, span: Any = None) -> PrimFunc:
        """The function with another body."""
        return self.replace(body=new_body)

    def buffer_params(self) -> list[Buffer]:
        """The buffers among the parameters, in order."""
        return [self.buffer_map[p] for p in self.params if p in self.buffer_map]

    def specialize(self, param_map: Mapping[Var, Any]) -> PrimFunc:
        """The function with some of its parameters specialized."""
        from .specialize import specialize

        return specialize(self, param_map)


def _parameter(p: Any, buffers: dict[Var, Buffer]) -> Var:
    if isinstance(p, Buffer):
        handle = Var(p.name, "handle")
        buffers[handle] = p
        return handle
    p = convert(p)
    if not isinstance(p, Var):
        raise TypeError(f"a parameter must be a variable or a buffer, not `{p}`")
    return p


def _evaluate(body: Any) -> Stmt:
    from .stmt import Evaluate

    if isinstance(body, PrimExpr):
        return Evaluate(body)
    raise TypeError(f"the body of a function must be a statement, not {type(body).__name__}")
