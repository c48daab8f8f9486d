"""Graphs in the DOT language, drawn by graphviz."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode

DotVizParser = DefaultVizParser
_Attributes = Mapping[str, str] | None


def _listed(attrs: Mapping[str, str]) -> str:
    made = ", ".join(f"{k}={json.dumps(str(v), ensure_ascii=False)}" for k, v in attrs.items())
    return f" [{made}]" if made else ""


def _shape_of(node: VizNode) -> dict[str, str]:
    return {"shape": "ellipse" if "Var" in node.type_name else "box"}


class DotGraph(VizGraph):
    """A function as a cluster of a DOT graph."""

    def __init__(
        self,
        name: str,
        graph_attr: _Attributes = None,
        node_attr: _Attributes = None,
        edge_attr: _Attributes = None,
        get_node_attr: Callable[[VizNode], Mapping[str, str]] | None = None,
    ) -> None:
        self._name, self._node_attr = name, get_node_attr or _shape_of
        self._lines = [f"subgraph {json.dumps('cluster_' + name)} {{", f"  label={json.dumps(name)}"]
        for kind, attrs in (("graph", graph_attr), ("node", node_attr), ("edge", edge_attr)):
            if attrs:
                self._lines.append(f"  {kind}{_listed(attrs)}")

    def node(self, viz_node: VizNode) -> None:
        label = f"{viz_node.type_name}\n{viz_node.detail}".rstrip()
        attrs = {"label": label, **self._node_attr(viz_node)}
        self._lines.append(f"  {json.dumps(viz_node.identity)}{_listed(attrs)}")

    def edge(self, viz_edge: VizEdge) -> None:
        self._lines.append(f"  {json.dumps(viz_edge.start)} -> {json.dumps(viz_edge.end)}")

    @property
    def source(self) -> str:
        """The cluster as DOT."""
        return "\n".join([*self._lines, "}"])

    @property
    def digraph(self) -> Any:
        """The function alone as an object of the package graphviz."""
        return _graphviz().Source(_whole([self.source]))


class DotPlotter(Plotter):
    """Draws with graphviz: the package of Python, and the program `dot`.

    The attributes are those of https://graphviz.org/doc/info/attrs.html; `get_node_attr(node)` gives those of a node.
    `render_kwargs` are given to `graphviz.Source.render`: format, view, cleanup, … `source` is the DOT text.
    """

    def __init__(
        self,
        graph_attr: _Attributes = None,
        node_attr: _Attributes = None,
        edge_attr: _Attributes = None,
        get_node_attr: Callable[[VizNode], Mapping[str, str]] | None = None,
        render_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._attributes = (graph_attr, node_attr, edge_attr, get_node_attr)
        self._render_kwargs = dict(render_kwargs or {})
        self._name_to_graph: dict[str, DotGraph] = {}

    def create_graph(self, name: str) -> DotGraph:
        self._name_to_graph[name] = DotGraph(name, *self._attributes)
        return self._name_to_graph[name]

    @property
    def source(self) -> str:
        """All graphs as DOT, for a program that reads it."""
        return _whole([g.source for g in self._name_to_graph.values()])

    def render(self, filename: str | None = None) -> None:
        given = {"cleanup": True, **self._render_kwargs}
        if filename is not None:
            given["filename"] = filename
        _graphviz().Source(self.source).render(**given)


def _whole(clusters: list[str]) -> str:
    return "\n".join(["digraph {", *clusters, "}", ""])


def _graphviz() -> Any:
    try:
        import graphviz
    except ImportError:
        raise ImportError(
            "relay_viz draws DOT graphs with the package graphviz, which is not installed: pip install graphviz (and "
            "the program dot), or take the text `DotPlotter.source` to another program, or use HtmlPlotter"
        ) from None
    return graphviz
