"""Pictures of graphs: as a tree of text, in the DOT language, or as a page for a browser.

    relay_viz.RelayVisualizer(mod).render()                                            # the terminal
    relay_viz.RelayVisualizer(mod, params, DotPlotter(), DotVizParser()).render("net")   # net.pdf, by graphviz
    relay_viz.RelayVisualizer(mod, params, HtmlPlotter(), HtmlVizParser()).render("net.html")

A parser makes nodes and edges of expressions, and a plotter draws them: both are yours to replace (`interface.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.module import IRModule
from ...relay.analysis import post_order
from .dot import DotGraph, DotPlotter, DotVizParser
from .html import HtmlGraph, HtmlPlotter, HtmlVizParser
from .interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode, VizParser
from .terminal import TermGraph, TermNode, TermPlotter, TermVizParser

__all__ = [
    "DefaultVizParser",
    "DotGraph",
    "DotPlotter",
    "DotVizParser",
    "HtmlGraph",
    "HtmlPlotter",
    "HtmlVizParser",
    "Plotter",
    "RelayVisualizer",
    "TermGraph",
    "TermNode",
    "TermPlotter",
    "TermVizParser",
    "VizEdge",
    "VizGraph",
    "VizNode",
    "VizParser",
]


class RelayVisualizer:
    """The functions of a module, each as a graph of a plotter: `main` first."""

    def __init__(
        self,
        relay_mod: IRModule,
        relay_param: Mapping[str, Any] | None = None,
        plotter: Plotter | None = None,
        parser: VizParser | None = None,
    ) -> None:
        self._plotter = plotter if plotter is not None else TermPlotter()
        parser = parser if parser is not None else TermVizParser()
        params = dict(relay_param or {})
        first = 0
        for gv in sorted(relay_mod.get_global_vars(), key=lambda v: v.name_hint != "main"):
            order = post_order(relay_mod[gv])
            ids = {e: str(first + i) for i, e in enumerate(order)}
            first += len(ids)
            graph = self._plotter.create_graph(gv.name_hint)
            for e in order:
                node, edges = parser.get_node_edges(e, params, ids)
                if node is not None:
                    graph.node(node)
                for edge in edges:
                    graph.edge(edge)

    def render(self, filename: str | None = None) -> None:
        """Draw all graphs, into a file or as the plotter does without one."""
        self._plotter.render(filename)
