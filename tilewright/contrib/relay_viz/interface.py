"""The parts of a picture: nodes and edges, what makes them of expressions, and what draws them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...ir.op import Op
from ...relay.expr import Call, Constant, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from ...relay.ty import TensorType

UNKNOWN_TYPE: Final = "unknown"


@dataclass(frozen=True)
class VizNode:
    """A node: a name that no other has, what it is, and further text."""

    identity: str
    type_name: str
    detail: str = ""


@dataclass(frozen=True)
class VizEdge:
    """An edge from a node to one that uses it."""

    start: str
    end: str


Parsed = tuple[VizNode | None, list[VizEdge]]


class VizParser(ABC):
    """Makes nodes and edges of expressions."""

    @abstractmethod
    def get_node_edges(
        self, node: Any, relay_param: Mapping[str, Any], node_to_id: Mapping[Any, str]
    ) -> Parsed:
        """The node of an expression, or None if it has none, and the edges to it. `node_to_id` has all names."""


class VizGraph(ABC):
    """The picture of a function."""

    @abstractmethod
    def node(self, viz_node: VizNode) -> None:
        """Add a node; operands come before their users."""

    @abstractmethod
    def edge(self, viz_edge: VizEdge) -> None:
        """Add an edge."""


class Plotter(ABC):
    """Draws the pictures of all functions."""

    @abstractmethod
    def create_graph(self, name: str) -> VizGraph:
        """A new picture."""

    @abstractmethod
    def render(self, filename: str | None) -> None:
        """Draw all pictures."""


class DefaultVizParser(VizParser):
    """Operators with their attributes as nodes, and values as edges; names of operators and functions are no nodes."""

    def get_node_edges(
        self, node: Any, relay_param: Mapping[str, Any], node_to_id: Mapping[Any, str]
    ) -> Parsed:
        if isinstance(node, (GlobalVar, Op)):
            return None, []
        if isinstance(node, Function):
            kind, lines, below = (
                f"Func {node.attrs.get('Composite', '')}".rstrip(),
                _attrs(node.attrs),
                [node.body],
            )
        elif isinstance(node, Call):
            (kind, lines), below = _called(node), [*node.args]
            if isinstance(node.op, (Call, Var, If)):  # a closure
                below.append(node.op)
        elif isinstance(node, Var):
            kind, lines, below = _var(node, relay_param)
        elif isinstance(node, Constant):
            kind, lines, below = "Const", [f"shape: {node.data.shape}, dtype: {node.data.dtype}"], []
        elif isinstance(node, TupleGetItem):
            kind, lines, below = "TupleGetItem", [f"idx: {node.index}"], [node.tuple_value]
        elif isinstance(node, (Tuple, If, Let)):
            kind, lines, below = type(node).__name__, [], list(node.children())
        else:
            kind, lines, below = UNKNOWN_TYPE, [f"don't know how to draw {type(node).__name__}"], []
        own = node_to_id[node]
        return VizNode(own, kind, "\n".join(lines)), [VizEdge(node_to_id[b], own) for b in below]


def _attrs(attrs: Any) -> list[str]:
    return [f"{k}: {v}" for k, v in (attrs.items() if attrs else ())]


def _called(call: Call) -> tuple[str, list[str]]:
    if isinstance(call.op, Op):
        return f"Call {call.op.name}", _attrs(call.attrs)
    if isinstance(call.op, Function):
        name = call.op.attrs.get("Composite", "Anonymous Func")
        return f"Call {name}", _attrs(call.op.attrs)
    if isinstance(call.op, GlobalVar):
        return "Call GlobalVar", [f"GlobalVar.name_hint: {call.op.name_hint}"]
    return f"Call {type(call.op).__name__}", []


def _var(var: Var, params: Mapping[str, Any]) -> tuple[str, list[str], list[Any]]:
    lines = [f"name_hint: {var.name_hint}"]
    kind = var.type_annotation
    if isinstance(kind, TensorType):
        sizes = ", ".join(map(str, kind.shape))
        lines += [f"shape: ({sizes}{',' if len(kind.shape) == 1 else ''})", f"dtype: {kind.dtype}"]
    elif kind is not None:
        lines.append(f"type_annotation: {kind}")
    return "Var(Param)" if var.name_hint in params else "Var(Input)", lines, []
