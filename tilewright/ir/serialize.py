"""Programs as JSON and back: every node once, so that what is shared stays shared."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from . import buffer, expr, function, stmt, types
from .deep import deep_programs
from .dtype import DataType
from .errors import TVMError
from .module import GlobalVar, GraphNode, IRModule
from .node import Node
from .op import Op

__all__ = ["load_json", "node_classes", "register_graph_reader", "save_json"]

FORMAT = "tilewright-ir-1"
_CLASSES: dict[str, Any] = {
    name: value
    for room in (expr, stmt, buffer, function)
    for name, value in vars(room).items()
    if isinstance(value, type) and issubclass(value, Node) and value._fields
}
_TYPES = {name: getattr(types, name) for name in ("PrimType", "PointerType", "TupleType", "FuncType")}


_graph_readers: list[Callable[[str, dict[str, GlobalVar]], Any]] = []


def register_graph_reader(read: Callable[[str, dict[str, GlobalVar]], Any]) -> None:
    """Give the reader of graph expressions, which are kept in their text form."""
    _graph_readers.append(read)


def node_classes() -> dict[str, Any]:
    """The classes of nodes by their names."""
    return dict(_CLASSES)


def save_json(node: Any) -> str:
    """A node, function or module as JSON text that `load_json` reads back."""
    with deep_programs():
        writer = _Writer()
        root = writer.value(node)
    return json.dumps({"format": FORMAT, "nodes": writer.nodes, "root": root})


def load_json(json_str: str) -> Any:
    """What `save_json` wrote."""
    try:
        data = json.loads(json_str)
    except json.JSONDecodeError as error:
        raise TVMError(f"this is no JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise TVMError(f"this is no program in JSON: its format must be {FORMAT!r}")
    try:
        reader = _Reader()
        for record in data["nodes"]:
            reader.nodes.append(reader.node(record))
        return reader.value(data["root"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise TVMError(f"the program in JSON is damaged: {error}") from error


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # what `seen` names by its address must live on

    def value(self, v: Any) -> Any:
        if v is None or (isinstance(v, (bool, str)) and not isinstance(v, DataType)):
            return v
        if isinstance(v, DataType):
            return {"dtype": str(v)}
        if isinstance(v, int):
            return int(v)
        if isinstance(v, float):
            return v if math.isfinite(v) else {"float": str(v)}
        if isinstance(v, GraphNode):
            return {"graph": v.astext()}
        if isinstance(v, Node):
            return {"node": self.node(v)}
        if isinstance(v, (tuple, list)):
            return [self.value(x) for x in v]
        if isinstance(v, Mapping):
            return {"map": [[self.value(k), self.value(x)] for k, x in v.items()]}
        if isinstance(v, types.Type):
            parts = [self.value(getattr(v, f)) for f in v.__dataclass_fields__]  # type: ignore[attr-defined]
            return {"type": v.__class__.__name__, "parts": parts}
        if isinstance(v, Op):
            return {"op": v.name}
        if isinstance(v, GlobalVar):
            return {"global": v.name_hint}
        if isinstance(v, IRModule):
            functions = {gv.name_hint: self.value(f) for gv, f in v.functions.items()}
            return {"module": functions, "attrs": self.value(v.attrs)}
        if hasattr(v, "tobytes") and hasattr(v, "dtype"):
            raw = base64.b64encode(v.tobytes()).decode()
            return {"array": raw, "dtype": str(v.dtype), "shape": list(v.shape)}
        raise TVMError(f"{v!r} ({type(v).__name__}) cannot be written as JSON")

    def node(self, n: Node) -> int:
        found = self.seen.get(id(n))
        if found is None:
            if n.__class__.__name__ not in _CLASSES:
                raise TVMError(f"a {n.__class__.__name__} cannot be written as JSON")
            fields = [None if f == "key" else self.value(getattr(n, f)) for f in n._fields]
            found = self.seen[id(n)] = len(self.nodes)
            self.kept.append(n)
            self.nodes.append([n.__class__.__name__, *fields])
        return found


class _Reader:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.globals: dict[str, GlobalVar] = {}  # calls name functions by the GlobalVar that the module has

    def global_var(self, name: str) -> GlobalVar:
        return self.globals.setdefault(name, GlobalVar(name))

    def node(self, record: list[Any]) -> Any:
        name, *fields = record
        cls = _CLASSES.get(name)
        if cls is None:
            raise ValueError(f"there is no node of kind {name!r}")
        values = [self.value(f) for f in fields]
        if cls is expr.Range:
            return expr.Range.from_min_extent(*values)
        return cls(*values)

    def value(self, v: Any) -> Any:
        if isinstance(v, list):
            return tuple(self.value(x) for x in v)
        if not isinstance(v, dict):
            return v
        if "node" in v:
            return self.nodes[v["node"]]
        if "map" in v:
            return {self.value(k): self.value(x) for k, x in v["map"]}
        if "type" in v:
            return _TYPES[v["type"]](*[self.value(p) for p in v["parts"]])
        if "op" in v:
            return Op.get(v["op"])
        if "global" in v:
            return self.global_var(v["global"])
        if "graph" in v:
            if not _graph_readers:
                raise ValueError("it holds graph expressions: import tilewright.relay before it is read")
            return _graph_readers[-1](v["graph"], self.globals)
        if "float" in v:
            return float(v["float"])
        if "array" in v:
            import numpy as np

            raw = np.frombuffer(base64.b64decode(v["array"]), dtype=v["dtype"])
            return raw.reshape(v["shape"]).copy()
        if "module" in v:
            functions = {self.global_var(name): self.value(f) for name, f in v["module"].items()}
            return IRModule(functions, attrs=self.value(v["attrs"]))
        if "dtype" in v:
            return DataType(v["dtype"])
        raise ValueError(f"{v!r} is nothing known")
