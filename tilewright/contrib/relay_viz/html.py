"""Graphs as a page for a browser: the operands and users of a node are shown when it is clicked."""

from __future__ import annotations

import html

from .interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode

HtmlVizParser = DefaultVizParser
_WIDTH, _HEIGHT, _GAP = 190, 54, 26

_PAGE = """<!doctype html>
<meta charset="utf-8"><title>graph</title>
<style>
body {{ font: 13px sans-serif; margin: 1em }} svg {{ border: 1px solid #ccc }}
rect {{ fill: #eef; stroke: #88a }} .Var rect {{ fill: #efe }} .Const rect {{ fill: #eee }}
line {{ stroke: #aaa }} .near rect {{ fill: #fd8 }} .near line, line.near {{ stroke: #d60; stroke-width: 2 }}
g {{ cursor: pointer }} pre {{ background: #f6f6f6; padding: .5em }}
</style>
{body}
<script>
for (const svg of document.querySelectorAll("svg")) {{
  const text = svg.nextElementSibling;
  svg.addEventListener("click", (event) => {{
    const node = event.target.closest("g");
    for (const e of svg.querySelectorAll(".near")) e.classList.remove("near");
    if (!node) return;
    node.classList.add("near");
    text.textContent = node.dataset.text;
    for (const l of svg.querySelectorAll("line"))
      if (l.dataset.from === node.id || l.dataset.to === node.id) {{
        l.classList.add("near");
        for (const id of [l.dataset.from, l.dataset.to]) document.getElementById(id)?.classList.add("near");
      }}
  }});
}}
</script>
"""


class HtmlGraph(VizGraph):
    """A function as a drawing in rows: each node is below its operands."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: dict[str, VizNode] = {}
        self._edges: list[VizEdge] = []

    def node(self, viz_node: VizNode) -> None:
        self._nodes[viz_node.identity] = viz_node

    def edge(self, viz_edge: VizEdge) -> None:
        self._edges.append(viz_edge)

    def render(self) -> str:
        """The drawing."""
        edges = [e for e in self._edges if e.start in self._nodes and e.end in self._nodes]
        operands: dict[str, list[str]] = {}
        for e in edges:
            operands.setdefault(e.end, []).append(e.start)
        row: dict[str, int] = {}
        for at in self._nodes:  # operands come first
            row[at] = 1 + max((row.get(b, -1) for b in operands.get(at, ())), default=-1)
        place: dict[str, tuple[int, int]] = {}
        filled: dict[int, int] = {}
        for at, r in row.items():
            filled[r] = filled.get(r, -1) + 1
            place[at] = (filled[r] * (_WIDTH + _GAP) + _GAP, r * (_HEIGHT + _GAP) + _GAP)
        width = (max(filled.values(), default=0) + 1) * (_WIDTH + _GAP) + _GAP
        height = (max(filled, default=0) + 1) * (_HEIGHT + _GAP) + _GAP
        lines = [self._line(place, e) for e in edges]
        boxes = [self._box(place[at], node) for at, node in self._nodes.items()]
        head = f'<svg width="{width}" height="{height}">'
        title = f"<h3>@{html.escape(self._name)}</h3>"
        return "\n".join([title, head, *lines, *boxes, "</svg>", "<pre>click a node</pre>"])

    def _line(self, place: dict[str, tuple[int, int]], e: VizEdge) -> str:
        (x1, y1), (x2, y2) = place[e.start], place[e.end]
        half = _WIDTH // 2
        return (
            f'<line x1="{x1 + half}" y1="{y1 + _HEIGHT}" x2="{x2 + half}" y2="{y2}" '
            f'data-from="n{e.start}" data-to="n{e.end}"/>'
        )

    def _box(self, at: tuple[int, int], node: VizNode) -> str:
        x, y = at
        kind = "Var" if "Var" in node.type_name else "Const" if node.type_name == "Const" else "op"
        text = html.escape(f"{node.type_name}\n{node.detail}".rstrip(), quote=True)
        rows = [node.type_name, *node.detail.split("\n")][:3]
        shown = "".join(
            f'<text x="{x + 6}" y="{y + 16 + 15 * i}">{html.escape(r[:28])}</text>'
            for i, r in enumerate(rows)
        )
        return (
            f'<g id="n{html.escape(node.identity, quote=True)}" class="{kind}" data-text="{text}">'
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>{shown}</g>'
        )


class HtmlPlotter(Plotter):
    """Writes one page with the drawings of all functions; it needs nothing but a browser."""

    def __init__(self) -> None:
        self._name_to_graph: dict[str, HtmlGraph] = {}

    def create_graph(self, name: str) -> HtmlGraph:
        self._name_to_graph[name] = HtmlGraph(name)
        return self._name_to_graph[name]

    def render(self, filename: str | None = None) -> None:
        wanted = "graph.html" if filename is None else filename
        with open(wanted, "w", encoding="utf-8") as file:
            file.write(_PAGE.format(body="\n".join(g.render() for g in self._name_to_graph.values())))
