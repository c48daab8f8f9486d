"""Programs as JSON and back: every node once, so that sharing is preserved."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from ..runtime.json_reader import read_json
from . import buffer, expr, function, stmt, types
from .deep import deep_programs
from .dtype import DataType
from .errors import TVMError
from .module import GlobalVar, GraphNode, IRModule
from .node import Node
from .op import OF_ONE_TYPE, Op

__all__ = [
    "check_kinds",
    "load_json",
    "node_classes",
    "read_json",
    "register_graph_reader",
    "register_record",
    "save_json",
]

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
    """Register the reader of graph expressions, which are stored in their text form."""
    _graph_readers.append(read)


class _Record(NamedTuple):
    """How objects of a class that is no node are written: the attributes that make one."""

    name: str
    fields: tuple[str, ...]
    make: Callable[..., Any]


_records: dict[type, _Record] = {}


def register_record(
    cls: type, name: str, fields: Sequence[str], make: Callable[..., Any] | None = None
) -> None:
    """Register a class whose objects are written by attributes, of which `make` (the class itself) makes one again."""
    _records[cls] = _Record(name, tuple(fields), make or cls)


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
    """Read the output of `save_json`. Nodes with fields of the wrong type are refused."""
    data = read_json(json_str, "the program in JSON", TVMError)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise TVMError(f"this is not a program in JSON: its format must be {FORMAT!r}")
    record: Any = None
    try:
        reader = _Reader()
        for record in data["nodes"]:
            reader.nodes.append(reader.node(record))
        record = None
        return reader.value(data["root"])
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        place = f" (node {len(reader.nodes)}, {_kind_of(record)})" if record is not None else ""
        raise TVMError(f"the program in JSON is damaged{place}: {error}") from error


def _kind_of(record: Any) -> Any:
    return (
        record[0] if isinstance(record, list) and record and isinstance(record[0], str) else "nothing known"
    )


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # keeps objects alive that `seen` refers to by id

    def value(self, v: Any) -> Any:
        if v is None or (isinstance(v, (bool, str)) and not isinstance(v, DataType)):
            return v
        if isinstance(v, DataType):
            return {"dtype": str(v)}
        if isinstance(v, int):
            return int(v)
        if isinstance(v, float):
            return v if math.isfinite(v) else {"float": str(v)}
        if v.__class__ in _records:
            return {"node": self.record(v)}
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

    def record(self, v: Any) -> int:
        found = self.seen.get(id(v))
        if found is None:
            form = _records[v.__class__]
            fields = [self.value(getattr(v, f)) for f in form.fields]
            found = self._add(v, [form.name, *fields])
        return found

    def _add(self, v: Any, written: list[Any]) -> int:
        self.seen[id(v)] = len(self.nodes)
        self.kept.append(v)
        self.nodes.append(written)
        return len(self.nodes) - 1

    def node(self, n: Node) -> int:
        found = self.seen.get(id(n))
        if found is None:
            if n.__class__.__name__ not in _CLASSES:
                raise TVMError(f"a {n.__class__.__name__} cannot be written as JSON")
            fields = [None if f == "key" else self.value(getattr(n, f)) for f in n._fields]
            found = self._add(n, [n.__class__.__name__, *fields])
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
            form = next((r for r in _records.values() if r.name == name), None)
            if form is not None and len(fields) == len(form.fields):
                return form.make(*[self.value(f) for f in fields])
            room, dot, _ = str(name).partition(".")
            hint = f"; import tilewright.{room} before reading it" if dot and form is None else ""
            raise ValueError(f"there is no node of kind {name!r} with {len(fields)} fields{hint}")
        if len(fields) > len(cls._fields):
            raise ValueError(f"it has {len(fields)} fields, and a {name} has {len(cls._fields)}")
        values = [self.value(f) for f in fields]
        for field, value in zip(_fields_of(cls), values, strict=False):
            field.check(value)  # before the constructor, which converts values
        made = expr.Range.from_min_extent(*values) if cls is expr.Range else cls(*values)
        check_kinds(made, values)
        return made

    def value(self, v: Any) -> Any:
        if isinstance(v, list):
            return tuple(self.value(x) for x in v)
        if not isinstance(v, dict):
            return v
        if "node" in v:
            if not 0 <= v["node"] < len(self.nodes):
                raise ValueError(f"it refers to node {v['node']}, which is not an earlier one")
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
                raise ValueError("it contains graph expressions: import tilewright.relay before reading it")
            return _graph_readers[-1](v["graph"], self.globals)
        if "float" in v:
            return float(v["float"])
        if "array" in v:
            import numpy as np

            raw = np.frombuffer(base64.b64decode(v["array"]), dtype=v["dtype"])
            return raw.reshape(v["shape"]).copy()
        if "module" in v:
            functions = {self.global_var(name): self.value(f) for name, f in v["module"].items()}
            for gv, f in functions.items():
                if not isinstance(f, (function.BaseFunc, GraphNode)):
                    raise TypeError(f"`{gv.name_hint}` of the module is not a function")
            return IRModule(functions, attrs=self.value(v["attrs"]))
        if "dtype" in v:
            return DataType(v["dtype"])
        raise ValueError(f"{v!r} is nothing known")


# ---------------------------------------------------------------------------- kinds
_KINDS: dict[str, type | tuple[type, ...]] = {
    **_CLASSES,
    "PrimExpr": expr.PrimExpr,
    "Stmt": stmt.Stmt,
    "Type": types.Type,
    "DataType": DataType,
    "ForKind": int,
    "str": str,
    "int": int,
    "float": (int, float),
    "None": type(None),
}


def _fields(**names: str) -> frozenset[tuple[str, str]]:
    return frozenset((kind, name) for kind, several in names.items() for name in several.split())


_OF_ONE_TYPE = frozenset(OF_ONE_TYPE)
_CONDITIONS = ("condition", "predicate")
_TRUTHS = _fields(And="a b", Or="a b", Not="a")
# Fields that are indices or sizes, and must be integers.
_WHOLE = _fields(
    Range="min extent",
    IterVar="var",
    For="loop_var min extent",
    Buffer="shape strides elem_offset",
    BufferLoad="indices",
    BufferStore="indices",
    Allocate="extents",
    Ramp="base stride",
    BlockRealize="iter_values",
    Mod="a b",
    FloorDiv="a b",
    FloorMod="a b",
)
# Fields that say `Any`, as far as a file may fill them.
_NARROWER: dict[tuple[str, str], tuple[type, ...]] = {
    ("Call", "op"): (Op, GlobalVar),
    ("IterVar", "dom"): (expr.Range, type(None)),
}


@cache
def _wanted(written: str) -> tuple[bool, type | tuple[type, ...] | None]:
    """The type of a field by its annotation: whether it is a tuple, and the element type; None for any."""
    if written in ("Any", "object"):
        return False, None
    if written.startswith("dict["):
        return False, dict
    if written.startswith("tuple["):
        return True, _wanted(written[len("tuple[") : -len(", ...]")])[1]
    if written.startswith("Def["):
        return _wanted(written[len("Def[") : -1])
    kinds: list[type] = []
    for name in written.split(" | "):
        found = _KINDS[name]
        kinds += found if isinstance(found, tuple) else (found,)
    return False, tuple(kinds)


class _Field(NamedTuple):
    """The type of a field of a class."""

    name: str
    written: str  # its type, for messages
    many: bool
    kind: type | tuple[type, ...] | None  # None is anything
    truth: bool  # a condition
    whole: bool

    def check(self, value: Any) -> None:
        """Refuse a value of another type."""
        if self.kind is None:
            return
        if not self.many:
            fits = isinstance(value, self.kind)
        else:
            fits = isinstance(value, tuple) and all(isinstance(x, self.kind) for x in value)
        if self.written.startswith("dict[str,"):
            fits = fits and all(isinstance(key, str) for key in value)
        if not fits:
            raise TypeError(f"the field `{self.name}` must be {self.written}, not {value!r:.80}")
        if self.truth and value is not None and not value.dtype.is_bool:
            raise TypeError(f"the field `{self.name}` must be bool, not {value.dtype}: `{value!s:.80}`")
        for e in () if not self.whole else value if self.many else (value,):
            if e.dtype.is_handle or not (e.dtype.is_int or e.dtype.is_uint):
                raise TypeError(f"the field `{self.name}` must be whole numbers, not {e.dtype}: `{e!s:.80}`")


@cache
def _fields_of(cls: Any) -> tuple[_Field, ...]:
    out = []
    for name, written in zip(cls._fields, cls._written, strict=True):
        key = (cls.__name__, name)
        many, kind = _wanted(written)
        if key in _NARROWER:
            kind = _NARROWER[key]
            written = " or ".join(k.__name__ for k in _NARROWER[key]).replace("NoneType", "None")
        truth = name in _CONDITIONS or key in _TRUTHS
        out.append(_Field(name, written, many, kind, truth, key in _WHOLE))
    return tuple(out)


def check_kinds(made: Node, checked: Sequence[Any] = ()) -> None:
    """Refuse a node whose fields do not have their declared types, or are inconsistent.

    Fields in `checked` are known to be valid.
    """
    cls: Any = made.__class__
    for i, field in enumerate(_fields_of(cls)):
        value = getattr(made, field.name)
        if i >= len(checked) or value is not checked[i]:
            field.check(value)
    together = _TOGETHER.get(cls)
    if together is not None:
        together(made)


def _check_realize(n: stmt.BlockRealize) -> None:
    if len(n.iter_values) != len(n.block.iter_vars):
        raise ValueError(
            f"block {n.block.name_hint} has {len(n.block.iter_vars)} iterators and {len(n.iter_values)} values"
        )


def _check_block(n: stmt.Block) -> None:
    for iv in n.iter_vars:
        if iv.dom is None:
            raise ValueError(f"the iterator `{iv.var.name}` of block {n.name_hint} has no domain")


def _check_loop(n: stmt.For) -> None:
    if n.kind is stmt.ForKind.THREAD_BINDING and n.thread_binding is None:
        raise ValueError(f"loop `{n.loop_var.name}` is bound to no thread")


def _check_region(n: buffer.BufferRegion) -> None:
    if len(n.region) != len(n.buffer.shape):
        raise ValueError(
            f"buffer {n.buffer.name} has {len(n.buffer.shape)} dimensions, and the region {len(n.region)}"
        )


def _check_buffer(n: buffer.Buffer) -> None:
    if n.strides and len(n.strides) != len(n.shape):
        raise ValueError(f"buffer {n.name} has {len(n.shape)} dimensions and {len(n.strides)} strides")
    if not n.data.dtype.is_handle:
        raise TypeError(f"the data of buffer {n.name} is a pointer, not {n.data.dtype}")


def _check_lanes(n: expr.Ramp | expr.Broadcast) -> None:
    if not 1 <= abs(n.dtype.lanes) <= 1 << 16:
        raise ValueError(f"a vector has from 1 to 65536 lanes, not {n.lanes}")


def _check_call(n: expr.Call) -> None:
    if isinstance(n.op, Op) and n.op.short_name in _OF_ONE_TYPE:
        for e in n.args:
            if e.dtype is not n.dtype:
                raise TypeError(
                    f"{n.op.short_name} of type {n.dtype} has an argument of {e.dtype}: `{e!s:.80}`"
                )


def _check_function(func: function.PrimFunc) -> None:
    for v, b in func.buffer_map.items():
        if not isinstance(v, expr.Var) or not isinstance(b, buffer.Buffer):
            raise TypeError("the buffer map of a function takes variables to buffers")
        if v not in func.params:
            raise ValueError(f"the buffer map names `{v.name}`, which is not a parameter")


_TOGETHER: dict[type, Callable[[Any], None]] = {
    stmt.BlockRealize: _check_realize,
    stmt.Block: _check_block,
    stmt.For: _check_loop,
    buffer.BufferRegion: _check_region,
    buffer.Buffer: _check_buffer,
    expr.Ramp: _check_lanes,
    expr.Broadcast: _check_lanes,
    expr.Call: _check_call,
    function.PrimFunc: _check_function,
}
