"""Graphs as trees of text, the result first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.op import Op
from ...relay.expr import Call, Function, GlobalVar, If, Let
from .interface import DefaultVizParser, Parsed, Plotter, VizEdge, VizGraph, VizNode, VizParser


class TermVizParser(VizParser):
    """Calls with their operator as the first operand, as a compiler dumps its syntax tree."""

    def __init__(self) -> None:
        self._default = DefaultVizParser()

    def get_node_edges(
        self, node: Any, relay_param: Mapping[str, Any], node_to_id: Mapping[Any, str]
    ) -> Parsed:
        below: list[Any] = []
        if isinstance(node, Call):
            kind, detail, below = "Call", "", [node.op, *node.args]
        elif isinstance(node, Let):
            kind, detail, below = "Let", "(var, val, body)", node.children()
        elif isinstance(node, If):
            kind, detail, below = "If", "(cond, true, false)", node.children()
        elif isinstance(node, GlobalVar):
            kind, detail = "GlobalVar", node.name_hint
        elif isinstance(node, Op):
            kind, detail = node.name, ""
        elif isinstance(node, Function):
            names = ", ".join(f"%{p.name_hint}" for p in node.params)
            kind, detail, below = "Func", names, [node.body]
        else:
            return self._default.get_node_edges(node, relay_param, node_to_id)
        own = node_to_id[node]
        return VizNode(own, kind, detail), [VizEdge(node_to_id[b], own) for b in below]


class TermNode:
    """A node as one line."""

    def __init__(self, viz_node: VizNode) -> None:
        self.type = viz_node.type_name
        self.other_info = viz_node.detail.replace("\n", ", ")

    def __str__(self) -> str:
        return f"{self.type} {self.other_info}".rstrip()


class TermGraph(VizGraph):
    """A function as a tree: users above their operands. What is used twice is drawn once and named by a number.

    @main(%x)
    `--Call
       |--add
       |--Call #1
       |  |--nn.relu
       |  `--Var(Input) name_hint: x
       `--#1
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: dict[str, TermNode] = {}
        self._below: dict[str, list[str]] = {}
        self._root = ""

    def node(self, viz_node: VizNode) -> None:
        self._nodes[viz_node.identity] = TermNode(viz_node)
        self._root = viz_node.identity

    def edge(self, viz_edge: VizEdge) -> None:
        self._below.setdefault(viz_edge.end, []).append(viz_edge.start)

    def render(self) -> str:
        """The text."""
        uses: dict[str, int] = {}
        for below in self._below.values():
            for b in below:
                uses[b] = uses.get(b, 0) + 1
        numbers: dict[str, int] = {}
        root = self._nodes.get(self._root)
        lines = [f"@{self._name}({root.other_info if root is not None else ''})"]
        stack = self._children(self._root, "")
        while stack:
            at, indent, last = stack.pop()
            mark = f"{indent}{'`--' if last else '|--'}"
            if at in numbers:
                lines.append(f"{mark}#{numbers[at]}")
                continue
            text = str(self._nodes[at]) if at in self._nodes else "?"
            if uses[at] > 1 and self._below.get(at):
                numbers[at] = len(numbers) + 1
                text += f" #{numbers[at]}"
            lines.append(mark + text)
            stack += self._children(at, indent + ("   " if last else "|  "))
        return "\n".join(lines)

    def _children(self, at: str, indent: str) -> list[tuple[str, str, bool]]:
        """The operands of a node, the first on top of the stack."""
        below = self._below.get(at, [])
        return [(b, indent, i == len(below) - 1) for i, b in enumerate(below)][::-1]


class TermPlotter(Plotter):
    """Prints trees, or writes them to a file."""

    def __init__(self) -> None:
        self._name_to_graph: dict[str, TermGraph] = {}

    def create_graph(self, name: str) -> TermGraph:
        self._name_to_graph[name] = TermGraph(name)
        return self._name_to_graph[name]

    def render(self, filename: str | None = None) -> None:
        text = "\n".join(graph.render() for graph in self._name_to_graph.values())
        if filename is None:
            print(text)
            return
        with open(filename, "w", encoding="utf-8") as file:
            file.write(text)
