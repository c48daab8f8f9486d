"""Drawings of a te.Schedule in Graphviz's language: its stages, their axes, and how data flows between them.

    tedd.viz_dataflow_graph(s, dot_file_path="dataflow.dot")
    text = tedd.viz_itervar_relationship_graph(s, output_dot_string=True)

`show_svg` draws in a notebook, for which the packages graphviz and IPython must be installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.expr import IterVarType
from ..te.schedule import Schedule, Stage
from ..te.tensor import PlaceholderOp

_COLORS = {
    0: "#FFFFFF",
    1: "#2980B9",
    2: "#FAD7A0",
    3: "#D6EAF8",
    5: "#D5F5E3",
    6: "#A9DFBF",
    7: "#F5B7B1",
    8: "#D7BDE2",
}  # by kind of axis


def viz_schedule_tree(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> Any:
    """Where each stage is computed: at the root, inlined, or inside a loop of another one, with its loops in order."""
    return _given(_Tree(sch).text(), show_svg, dot_file_path, output_dot_string)


def viz_itervar_relationship_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> Any:
    """How the loops of each stage came from its axes, by splits and fusions."""
    return _given(_Axes(sch).text(), show_svg, dot_file_path, output_dot_string)


def viz_dataflow_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> Any:
    """Which stage reads which tensor of another one."""
    return _given(_Flow(sch).text(), show_svg, dot_file_path, output_dot_string)


def _given(text: str, show_svg: bool, path: str, wanted: bool) -> Any:
    """The drawing where it was asked for: in a notebook, in a file, as text."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    if show_svg:
        try:
            from graphviz import Source  # type: ignore[import-untyped, import-not-found, unused-ignore]
            from IPython.display import SVG, display  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ImportError(
                f"tedd: drawing needs the package {error.name}; pip install graphviz ipython, or pass dot_file_path="
            ) from None
        display(SVG(Source(text).pipe(format="svg")))
    return text if wanted else None


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Drawing:
    """The parts that the drawings share: nodes by number, and lines of text."""

    def __init__(self, sch: Schedule) -> None:
        self.sch = sch
        self.lines: list[str] = []
        self.names = {stage: f"Stage_{i}" for i, stage in enumerate(sch.stages)}

    def node(self, name: str, label: str, color: str = "", shape: str = "box") -> None:
        fill = f', style=filled, fillcolor="{color}"' if color else ""
        self.lines.append(f"  {name} [label={_quoted(label)}, shape={shape}{fill}];")

    def edge(self, a: str, b: str, label: str = "") -> None:
        self.lines.append(f"  {a} -> {b}" + (f" [label={_quoted(label)}];" if label else ";"))

    def axis(self, stage: Stage, axis: Any) -> str:
        """The node of an axis, with its range and what it is marked with."""
        name = f"{self.names[stage]}_{_place(axis, stage.all_iter_vars)}"
        attr = stage.iter_var_attrs.get(axis)
        kind = attr.iter_type if attr is not None and attr.iter_type else axis.iter_type
        bound = "" if attr is None or attr.bind_thread is None else f"\n{attr.bind_thread.thread_tag}"
        color = _COLORS[1] if bound else _COLORS.get(kind, "")
        self.node(name, f"{axis.var.name}({axis.dom})\n{IterVarType(kind).name}{bound}", color)
        return name

    def draw(self) -> None:
        raise NotImplementedError

    def text(self) -> str:
        self.draw()
        return "\n".join(["digraph {", *self.lines, "}", ""])


def _place(axis: Any, among: Iterable[Any]) -> int:
    return next(i for i, other in enumerate(among) if other is axis)


class _Flow(_Drawing):
    def draw(self) -> None:
        for stage, name in self.names.items():
            kind = "input" if isinstance(stage.op, PlaceholderOp) else stage.scope or "global"
            self.node(name, f"{stage.op.name}\n{kind}", "" if stage.is_output else _COLORS[3], "ellipse")
        for stage, name in self.names.items():
            for tensor in stage.op.input_tensors:
                maker = self.sch.stage_map.get(tensor.op)
                if maker is not None:
                    shape = ", ".join(map(str, tensor.shape))
                    self.edge(self.names[maker], name, f"{tensor.name}[{shape}] {tensor.dtype}")


class _Axes(_Drawing):
    def draw(self) -> None:
        for stage, name in self.names.items():
            self.lines.append(f"  subgraph cluster_{name} {{ label={_quoted(stage.op.name)};")
            found = {axis: self.axis(stage, axis) for axis in stage.all_iter_vars}
            for i, step in enumerate(stage.relations):
                label = f"{name}_{step.kind}_{i}"
                self.node(label, step.kind.capitalize(), _COLORS[2], "ellipse")
                for axis in step.axes:
                    self.edge(found[axis], label)
                for axis in step.outputs:
                    self.edge(label, found[axis])
            self.lines.append("  }")


class _Tree(_Drawing):
    def draw(self) -> None:
        self.node("ROOT", "ROOT")
        loops: dict[tuple[Stage, Any], str] = {}
        for stage, name in self.names.items():
            how = "\ninlined" if stage.inlined else ""
            self.node(name, f"{stage.op.name}\nscope: {stage.scope or 'global'}{how}", _COLORS[3], "ellipse")
            before = name
            for axis in stage.leaf_iter_vars:
                made = loops[stage, axis] = self.axis(stage, axis)
                self.edge(before, made)
                before = made
        for stage, name in self.names.items():
            at = stage.attached()
            self.edge(name if at is None else loops[at], "ROOT" if at is None else name)
