"""contrib.relay_viz: graphs as text, DOT and HTML."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import relay_viz
from tilewright.contrib.relay_viz.interface import VizNode, VizParser


def example() -> Any:
    x = relay.var("x", shape=(2, 3))
    r = relay.nn.relu(x)
    return tvm.IRModule.from_expr(relay.Function([x], relay.exp(r) + r))


def test_terminal(capsys):
    relay_viz.RelayVisualizer(example()).render()
    assert (
        capsys.readouterr().out
        == """\
@main(%x)
`--Call
   |--add
   |--Call
   |  |--exp
   |  `--Call #1
   |     |--nn.relu
   |     `--Var(Input) name_hint: x, shape: (2, 3), dtype: float32
   `--#1
"""
    )


def test_main_is_first_and_parameters_are_told_apart(tmp_path):
    w, x = relay.var("w", shape=(4,)), relay.var("x", shape=(4,))
    f = relay.GlobalVar("f")
    mod = tvm.IRModule(
        {f: relay.Function([w], relay.exp(w)), relay.GlobalVar("main"): relay.Function([x], f(x))}
    )
    path = tmp_path / "net.txt"
    relay_viz.RelayVisualizer(mod, {"w": 1}).render(str(path))
    text = path.read_text()
    assert text.index("@main") < text.index("@f")
    assert "Var(Param) name_hint: w, shape: (4,), dtype: float32" in text and "GlobalVar f" in text


def test_a_parser_of_ones_own(capsys):
    class Mine(VizParser):
        def get_node_edges(self, node: Any, relay_param: Any, node_to_id: Any) -> Any:
            if isinstance(node, relay.Var):
                return VizNode(node_to_id[node], "Mine", node.name_hint), []
            return relay_viz.TermVizParser().get_node_edges(node, relay_param, node_to_id)

    relay_viz.RelayVisualizer(example(), {}, relay_viz.TermPlotter(), Mine()).render()
    assert "Mine x" in capsys.readouterr().out


def test_dot_text():
    plotter = relay_viz.DotPlotter({"color": "red"}, get_node_attr=lambda node: {"shape": "oval"})
    relay_viz.RelayVisualizer(example(), {}, plotter, relay_viz.DotVizParser())
    text = plotter.source
    assert 'subgraph "cluster_main" {' in text and 'graph [color="red"]' in text
    assert '[label="Call nn.relu", shape="oval"]' in text and text.count("->") == 5


def test_dot_is_drawn_by_graphviz(monkeypatch):
    calls: list[Any] = []
    fake: Any = ModuleType("graphviz")
    fake.Source = lambda text: type("S", (), {"render": lambda self, **given: calls.append((text, given))})()
    monkeypatch.setitem(sys.modules, "graphviz", fake)
    plotter = relay_viz.DotPlotter(render_kwargs={"format": "svg"})
    relay_viz.RelayVisualizer(example(), {}, plotter, relay_viz.DotVizParser()).render("net")
    assert calls == [(plotter.source, {"cleanup": True, "format": "svg", "filename": "net"})]


def test_dot_without_graphviz(monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(ImportError, match="which is not installed: pip install graphviz"):
        relay_viz.DotPlotter().render("net")


def test_page(tmp_path: Path):
    path = tmp_path / "net.html"
    plotter = relay_viz.HtmlPlotter()
    relay_viz.RelayVisualizer(example(), {}, plotter, relay_viz.HtmlVizParser()).render(str(path))
    text = path.read_text()
    assert text.count("<g ") == 5 and text.count("<line ") == 5 and "Call nn.relu" in text


def test_deep_graphs_are_drawn():
    y = relay.var("x", shape=(1,))
    for _ in range(3000):
        y = relay.exp(y)
    plotter = relay_viz.TermPlotter()
    relay_viz.RelayVisualizer(
        tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y)), {}, plotter
    )
    assert len(plotter._name_to_graph["main"].render().splitlines()) == 6002
