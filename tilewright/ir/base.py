"""Nodes by name, and other classic names of `ir` and `ir.base` that few programs need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..runtime.object_path import ObjectPath
from ..runtime.registry import get_global_func
from .equal import Step, assert_structural_equal, first_mismatch, structural_equal, structural_hash
from .errors import TVMError, near_matches
from .node import Node
from .op import LOWERING, Op, graph_operators, register_op
from .serialize import load_json, node_classes, save_json
from .span import Span

__all__ = [
    "EnvFunc",
    "Node",
    "Span",
    "assert_structural_equal",
    "get_first_structural_mismatch",
    "load_json",
    "make_node",
    "register_op_attr",
    "save_json",
    "structural_equal",
    "structural_hash",
]


def make_node(type_key: str, **kwargs: Any) -> Any:
    """A node by the name of its class and the names of its fields: `make_node("tir.Add", a=x, b=1)`."""
    name = type_key.rpartition(".")[2]
    if name == "DictAttrs":
        return dict(kwargs)
    cls = node_classes().get(name)
    if cls is None:
        raise TVMError(f"make_node({type_key!r}): there is no such node{near_matches(name, node_classes())}")
    fields = getattr(cls, "_fields", ())
    unknown = [k for k in kwargs if fields and k not in (*fields, "span")]
    if unknown:
        raise TypeError(
            f"make_node({type_key!r}): {name} has no field {unknown[0]!r}; its fields are {', '.join(fields)}"
        )
    try:
        return cls(**kwargs)
    except TypeError as error:
        raise TypeError(f"make_node({type_key!r}): {error}") from None


def get_first_structural_mismatch(
    lhs: Any, rhs: Any, map_free_vars: bool = False
) -> tuple[ObjectPath, ObjectPath] | None:
    """The paths in both programs to the first difference, or None."""
    found = first_mismatch(lhs, rhs, map_free_vars)
    if found is None:
        return None
    return _path_of(found.lhs_steps), _path_of(found.rhs_steps)


def _path_of(steps: Iterable[Step]) -> ObjectPath:
    each = [ObjectPath.parse(s).steps if isinstance(s, str) else (s,) for s in steps]
    return ObjectPath([step for some in each for step in some])


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Give an operator an attribute; without a value, as a decorator of the function that is the value.

    A name that both kinds of operators have, such as `exp`, is the graph's; `tir.exp` is that of scalars.
    """

    def register(given: Any) -> Any:
        try:
            # a scalar operator of that name is `tir.exp`
            op = graph_operators.get(op_name) or Op.get(op_name)
        except ValueError:
            op = register_op(op_name)
        op.set_attr(attr_key, given, level)
        return given

    return register(value) if value is not None else register


def register_intrin_lowering(op_name: str, target: str, *, f: Any = None, level: int = 10) -> Any:
    """Register the rule that replaces calls of an operator for a kind of target; "default" is for all kinds.

    register_intrin_lowering("tir.exp", target="cuda", f=lambda call: tir.call_pure_extern("float32", "__expf", …))

    The rule gets the call and returns an expression; the call itself means that the rule does not apply. Of several
    rules that of the highest level acts. Without `f` it is a decorator.
    """

    def register(rule: Any) -> Any:
        register_op_attr(op_name, f"{target}{LOWERING}", rule, level)
        return rule

    return register if f is None else register(f)


class EnvFunc:
    """A global function of this process by name; only the name is serialized."""

    __slots__ = ("_function", "name")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self._function = name, function

    @staticmethod
    def get(name: str) -> EnvFunc:
        """The function registered under a name."""
        found = get_global_func(name, allow_missing=True)
        if found is None:
            raise TVMError(f"EnvFunc.get({name!r}): no function is registered under this name")
        return EnvFunc(name, found)

    @property
    def func(self) -> Callable[..., Any]:
        return self._function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnvFunc) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"EnvFunc({self.name!r})"
