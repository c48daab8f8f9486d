"""Structural equality and hashing: equality up to the names of defined variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .buffer import Buffer, MatchBufferRegion
from .deep import deeply
from .expr import Call, FloatImm, IntImm, IterVar, PrimExpr, Reduce, Var
from .function import PrimFunc
from .module import GlobalVar, GraphNode, IRModule
from .node import Node, field_kinds
from .op import Op
from .stmt import Block, BufferRealize, DeclBuffer, For
from .types import FuncType, GlobalTypeVar, Type, TypeVar, type_parts

# How expressions over whole tensors are compared and hashed: (their class, comparison, hash).
_graph: list[tuple[type, Callable[..., None], Callable[..., int]]] = []


def register_graph(kind: type, compare: Callable[..., None], hash_of: Callable[..., int]) -> None:
    """Give the graph IR's own comparison and hash, which walk without recursion."""
    _graph[:] = [(kind, compare, hash_of)]


# The path from the root as a linked list, so that extending it costs the same at any depth. A step is text, or the
# kind and the value of a step of `runtime.ObjectPath`: ("key", variable), ("no index", 3), ("no key", None).
Step = str | tuple[str, Any]
Path = tuple[()] | tuple["Path", Step]


class Mismatch(Exception):
    """The first difference of two programs: the path from the root, and the two values there.

    `ends` are the last steps on the two sides, where one side has an entry that the other side lacks.
    """

    def __init__(
        self, path: Path, lhs: Any, rhs: Any, reason: str = "", ends: tuple[Step, Step] | None = None
    ) -> None:
        super().__init__(path, lhs, rhs, reason)
        steps: list[Step] = []
        while path:
            path, step = path
            steps.append(step)
        common = tuple(reversed(steps))
        self.lhs_steps, self.rhs_steps = (common, common) if ends is None else ((*common, e) for e in ends)
        self.lhs, self.rhs, self.reason = lhs, rhs, reason
        # The innermost enclosing nodes, which a printed program can show.
        self.nodes: tuple[Any, Any] = (lhs, rhs)

    @property
    def path_text(self) -> str:
        return _text_of(self.lhs_steps)

    @property
    def rhs_path_text(self) -> str:
        return _text_of(self.rhs_steps)


def _text_of(steps: Iterable[Step]) -> str:
    return "<root>" + "".join(s if isinstance(s, str) else _step_text(*s) for s in steps)


def _step_text(kind: str, value: Any) -> str:
    if kind == "key":
        return f'[I.GlobalVar("{value.name_hint}")]' if isinstance(value, GlobalVar) else f"[{value.name!r}]"
    return f"[<missing element #{value}>]" if kind == "no index" else "[<missing entry>]"


# Fields that do not matter for equality: names.
_NAMES = {"name", "name_hint", "span", "key"}
# Bindings of a node must be compared before their uses, in any order of the fields.
_FIRST: dict[type, tuple[str, ...]] = {
    For: ("loop_var",),
    Block: ("iter_vars", "alloc_buffers", "match_buffers"),
    Reduce: ("axis",),
}
_order_cache: dict[type, tuple[tuple[str, str], ...]] = {}


def _ordered_fields(cls: type) -> tuple[tuple[str, str], ...]:
    found = _order_cache.get(cls)
    if found is None:
        kinds = dict(field_kinds(cls))
        first = [n for n in _FIRST.get(cls, ()) if n in kinds]
        order = first + [n for n, k in kinds.items() if k in ("def", "defs") and n not in first]
        order += [n for n in kinds if n not in order]
        found = _order_cache[cls] = tuple((n, kinds[n]) for n in order)
    return found


class Comparer:
    """One comparison: the correspondence of variables, and the pairs that are known to be equal."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free = map_free_vars
        self.left: dict[Any, Any] = {}
        self.right: dict[Any, Any] = {}
        self.around: list[tuple[Any, Any]] = []
        self.same: set[tuple[int, int]] = set()  # pairs of equal expressions

    def fail(
        self, path: Path, a: Any, b: Any, reason: str = "", ends: tuple[Step, Step] | None = None
    ) -> None:
        found = Mismatch(path, a, b, reason, ends)
        if self.around and not (isinstance(a, Node) and isinstance(b, Node)):
            found.nodes = self.around[-1]
        raise found

    def bind(self, a: Any, b: Any) -> None:
        self.left[a], self.right[b] = b, a

    def define(self, a: Any, b: Any, path: Path) -> None:
        """Let two defined variables correspond."""
        if a.__class__ is not b.__class__ and not (isinstance(a, Var) and isinstance(b, Var)):
            self.fail(path, a, b)
        if a.dtype is not b.dtype or a.type_annotation != b.type_annotation:
            where = path if a.dtype is b.dtype else (path, ".dtype")
            self.fail(where, a, b, f"type {a.type_annotation} is not {b.type_annotation}")
        self.bind(a, b)

    def var(self, a: Var, b: Var, path: Path) -> None:
        if a in self.left or b in self.right:
            if self.left.get(a) is not b or self.right.get(b) is not a:
                self.fail(path, a, b)
        elif a is b:
            # It corresponds to itself, and to no other variable.
            if self.map_free:
                self.bind(a, b)
        elif self.map_free and a.dtype is b.dtype and a.type_annotation == b.type_annotation:
            self.bind(a, b)
        else:
            self.fail(path, a, b, "two different free variables")

    def buffer(self, a: Buffer, b: Buffer, path: Path, define: bool = False) -> None:
        known = self.left.get(a)
        if known is not None or b in self.right:
            if known is b and self.right.get(b) is a:
                return
            if not define and not self._moved(a, b):
                self.fail(path, a, b, "two different buffers")
        if a is b and not define:
            if self.map_free:
                self.bind(a, b)
                self.var(a.data, b.data, (path, ".data"))
            return
        if not define and not self.map_free:
            # A view of memory that is bound already, declared where it is used.
            if a.data not in self.left and a.data is not b.data:
                self.fail(path, a, b, "two different buffers")
        if define and a.data not in self.left and b.data not in self.right:
            self.define(a.data, b.data, (path, ".data"))
        for name, _ in field_kinds(Buffer):
            if name in _NAMES:
                continue
            x, y = getattr(a, name), getattr(b, name)
            for v, w in zip(_vars_in(x), _vars_in(y), strict=False):
                if define and v not in self.left and w not in self.right and v.dtype is w.dtype:
                    self.bind(v, w)
            self.go(x, y, (path, f".{name}"))
        self.bind(a, b)

    def _moved(self, a: Buffer, b: Buffer) -> bool:
        """Whether both are views of newly corresponding allocations, so that the views correspond too."""
        if self.left.get(a.data) is not b.data:
            return False
        known, other = self.left.get(a), self.right.get(b)
        return (known is None or known.data is not b.data) and (other is None or other.data is not a.data)

    def go(self, a: Any, b: Any, path: Path) -> None:
        if a is b and not isinstance(a, (Node, tuple, list, dict, IRModule)):
            return
        if isinstance(a, GraphNode):
            _graph[0][1](self, a, b, path)
            return
        if isinstance(a, Var):
            if not isinstance(b, Var):
                self.fail(path, a, b)
            self.var(a, b, path)
            return
        if isinstance(a, Buffer) and isinstance(b, Buffer):
            self.buffer(a, b, path)
            return
        if a.__class__ is not b.__class__ and not (
            isinstance(a, (tuple, list)) and isinstance(b, (tuple, list))
        ):
            if isinstance(a, (int, IntImm)) and isinstance(b, (int, IntImm)) and int(a) == int(b):
                return
            if isinstance(a, str) and isinstance(b, str) and str(a) == str(b):
                return
            self.fail(path, a, b)
        if isinstance(a, IRModule):
            self.module(a, b, path)
        elif isinstance(a, PrimFunc):
            self.function(a, b, path)
        elif isinstance(a, FloatImm):
            if a.dtype is not b.dtype or not _same_float(a.value, b.value):
                self.fail(path, a, b)
        elif isinstance(a, Node):
            if (id(a), id(b)) in self.same:
                return
            self.around.append((a, b))
            self.fields(a, b, path)
            self.around.pop()
            if isinstance(a, PrimExpr):
                self.same.add((id(a), id(b)))
        elif isinstance(a, (tuple, list)):
            for i, (x, y) in enumerate(zip(a, b, strict=False)):
                self.go(x, y, (path, f"[{i}]"))
            self.same_length(a, b, path)
        elif isinstance(a, Mapping):
            if sorted(map(str, a)) != sorted(map(str, b)):
                self.fail(path, a, b, f"keys {sorted(map(str, a))} against {sorted(map(str, b))}")
            for k in a:
                self.go(a[k], b[k], (path, f"[{k!r}]"))
        elif isinstance(a, GlobalVar):
            if a.name_hint != b.name_hint:
                self.fail(path, a, b)
        elif isinstance(a, float):
            if not _same_float(a, b):
                self.fail(path, a, b)
        elif hasattr(a, "numpy"):
            self.go(a.numpy(), b.numpy(), path)
        elif hasattr(a, "tobytes"):
            if a.shape != b.shape or str(a.dtype) != str(b.dtype) or a.tobytes() != b.tobytes():
                self.fail(path, a, b)
        elif isinstance(a, Type):
            if not self.same_type(a, b):
                self.fail(path, a, b, f"type {a} is not {b}")
        elif isinstance(a, (str, int, bool, bytes, Op)) or a is None:
            if a != b:
                self.fail(path, a, b)
        elif a is not b and (a != b) is not False:
            # A value whose == does not return a bool (a tensor) is compared by identity.
            self.fail(path, a, b)

    def same_type(self, a: Any, b: Any) -> bool:
        """Whether two types agree, with the variables in them as they were bound."""
        if isinstance(a, TypeVar) and isinstance(b, TypeVar):
            if a.kind != b.kind or (a not in self.left and b not in self.right and not self.map_free):
                return a is b
            if a not in self.left and b not in self.right:
                self.bind(a, b)
            return self.left.get(a) is b and self.right.get(b) is a
        if isinstance(a, GlobalTypeVar) and isinstance(b, GlobalTypeVar):
            return a.name_hint == b.name_hint and a.kind == b.kind
        if a.__class__ is not b.__class__:
            return False
        own = getattr(a, "same_definition", None)
        if own is not None:
            return bool(own(b, self))
        if isinstance(a, FuncType) and isinstance(b, FuncType):
            if len(a.type_params) != len(b.type_params) or len(a.type_constraints) != len(b.type_constraints):
                return False
            for p, q in zip(a.type_params, b.type_params, strict=True):
                self.bind(p, q)
            if not all(map(self.same_type, a.type_constraints, b.type_constraints)):
                return False
        left, right = type_parts(a), type_parts(b)
        if left or right:
            return len(left) == len(right) and all(map(self.same_type, left, right))
        shape, other = getattr(a, "shape", None), getattr(b, "shape", None)
        if shape is not None and other is not None and a != b and len(shape) == len(other):
            try:
                self.go(shape, other, ())
            except Mismatch:
                return False
            return bool(a.dtype == b.dtype)
        return bool(a == b)

    def fields(self, a: Node, b: Node, path: Path) -> None:
        cls = a.__class__
        shadowed: list[tuple[Any, Any, Any, Any]] = []
        for name, kind in _ordered_fields(cls):
            if name in _NAMES:
                continue
            x, y = getattr(a, name), getattr(b, name)
            where = (path, f".{name}")
            if kind == "def":
                was, also = self.left.get(x), self.right.get(y)
                if (was is not None and was is not y) or (also is not None and also is not x):
                    shadowed.append((x, was, y, also))
                    self.same.clear()
                self.define(x, y, where)
            elif kind == "defs":
                if len(x) != len(y):
                    self.fail(where, x, y)
                for i, (v, w) in enumerate(zip(x, y, strict=True)):
                    self.define(v, w, (where, f"[{i}]"))
            elif _defines_buffers(cls, name):
                xs, ys = ((x,), (y,)) if name == "buffer" else (x, y)
                if len(xs) != len(ys):
                    self.fail(where, x, y, f"{len(xs)} buffers against {len(ys)}")
                for i, (v, w) in enumerate(zip(xs, ys, strict=True)):
                    inner = where if name == "buffer" else (where, f"[{i}]")
                    self.buffer(v, w, inner, define=True)
            elif name == "node" and isinstance(x, IterVar) and isinstance(y, IterVar):
                if x.var not in self.left and y.var not in self.right:
                    self.define(x.var, y.var, where)
                if x.thread_tag != y.thread_tag or x.iter_type != y.iter_type:
                    self.fail(where, x, y)
            elif name == "thread_binding" and isinstance(x, IterVar) and isinstance(y, IterVar):
                if x.thread_tag != y.thread_tag:
                    self.fail(where, x, y)
            else:
                self.go(x, y, where)
        for v, was, w, also in shadowed:  # restore the previous correspondence
            self.same.clear()
            for table, key, old in ((self.left, v, was), (self.right, w, also)):
                if old is None:
                    table.pop(key, None)
                else:
                    table[key] = old

    def same_length(self, a: Sequence[Any], b: Sequence[Any], path: Path) -> None:
        """Refuse lists of which one goes on where the other ends."""
        if len(a) != len(b):
            end = min(len(a), len(b))
            have, lack = f"[{end}]", ("no index", end)
            ends: tuple[Step, Step] = (have, lack) if len(a) > len(b) else (lack, have)
            self.fail(path, a, b, f"{len(a)} entries against {len(b)}", ends)

    def other_buffers(self, a: PrimFunc, b: PrimFunc, path: Path) -> None:
        """Compare the entries of buffer maps whose variables are no parameters."""
        left = {v: x for v, x in a.buffer_map.items() if v not in a.params}
        right = {v: x for v, x in b.buffer_map.items() if v not in b.params}
        for v in (*left, *right):
            if v not in left:
                self.fail(path, a, b, f"{v.name} has a buffer on one side", (("no key", None), ("key", v)))
            if v not in right:
                self.fail(path, a, b, f"{v.name} has a buffer on one side", (("key", v), ("no key", None)))
        for v, x in left.items():
            self.buffer(x, right[v], (path, ("key", v)), define=True)

    def function(self, a: PrimFunc, b: PrimFunc, path: Path) -> None:
        for i, (v, w) in enumerate(zip(a.params, b.params, strict=False)):
            self.define(v, w, (path, f".params[{i}]"))
        self.same_length(a.params, b.params, (path, ".params"))
        self.other_buffers(a, b, (path, ".buffer_map"))
        for v, w in zip(a.params, b.params, strict=True):
            where: Path = ((path, ".buffer_map"), ("key", v))
            x, y = a.buffer_map.get(v), b.buffer_map.get(w)
            if x is None or y is None:
                if x is not y:
                    self.fail(where, x or v, y or w)
                continue
            self.buffer(x, y, where, define=True)
        if a.ret_type != b.ret_type:
            self.fail((path, ".ret_type"), a.ret_type, b.ret_type)
        self.go(a.attrs, b.attrs, (path, ".attrs"))
        self.go(a.body, b.body, (path, ".body"))

    def module(self, a: IRModule, b: IRModule, path: Path) -> None:
        left = {gv.name_hint: f for gv, f in a.functions.items()}
        names = {gv.name_hint: gv for gv in a.functions}
        right = {gv.name_hint: f for gv, f in b.functions.items()}
        if sorted(left) != sorted(right):
            self.fail((path, ".functions"), a, b, f"functions {sorted(left)} against {sorted(right)}")
        self.go(a.attrs, b.attrs, (path, ".attrs"))
        types = [{t.name_hint: d for t, d in m.type_definitions.items()} for m in (a, b)]
        self.go(types[0], types[1], (path, ".type_definitions"))
        for name in left:
            self.go(left[name], right[name], ((path, ".functions"), ("key", names[name])))


def _defines_buffers(cls: type, field: str) -> bool:
    """Whether the node defines the buffers in this field."""
    return field == "alloc_buffers" or (
        field == "buffer" and cls in (BufferRealize, DeclBuffer, MatchBufferRegion)
    )


def _same_float(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


def _vars_in(value: Any) -> Iterator[Var]:
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from _vars_in(v)
    elif isinstance(value, Var):
        yield value
    elif isinstance(value, Node):
        for c in value.children():
            yield from _vars_in(c)


def first_mismatch(lhs: Any, rhs: Any, map_free_vars: bool = False) -> Mismatch | None:
    """The first difference of two programs, or None."""
    try:
        _compare(lhs, rhs, map_free_vars)
    except Mismatch as found:
        return found
    return None


@deeply
def _compare(lhs: Any, rhs: Any, map_free_vars: bool) -> None:
    Comparer(map_free_vars).go(lhs, rhs, ())


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two programs are equal up to the names of defined variables.

    Free variables must be identical, unless `map_free_vars` lets them correspond one to one.
    """
    return lhs is rhs or first_mismatch(lhs, rhs, map_free_vars) is None


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise ValueError naming the first difference, shown in both printed programs."""
    found = first_mismatch(lhs, rhs, map_free_vars)
    if found is None:
        return
    script_marked: Any = _graph_text
    if not _holds_graph(lhs):
        from .printer import script_marked

    lines = [f"StructuralEqual check failed, caused by lhs at {found.path_text}:"]
    lines.append(script_marked(lhs, found.nodes[0]))
    lines.append(f"and rhs at {found.rhs_path_text}:")
    lines.append(script_marked(rhs, found.nodes[1]))
    if found.reason:
        lines.append(f"because: {found.reason}")
    raise ValueError("\n".join(lines))


def _holds_graph(a: Any) -> bool:
    if isinstance(a, IRModule):
        return any(isinstance(f, GraphNode) for f in a.functions.values())
    return isinstance(a, GraphNode)


def _graph_text(root: Any, part: Any) -> str:
    """The program, and the part of it that differs."""
    shown = f"\n  # where it differs:\n{part}" if isinstance(part, GraphNode) and part is not root else ""
    return f"{root}{shown}"


class Hasher:
    """A hash that agrees with equality: bound variables count by the order in which they are met."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free = map_free_vars
        self.seen: dict[Any, int] = {}
        self.known: dict[int, int] = {}  # cached hashes of expressions

    def number(self, v: Any) -> int:
        return self.seen.setdefault(v, len(self.seen))

    def define(self, b: Buffer) -> None:
        """Define a buffer, and the new variables of its shape."""
        for v in _vars_in((b.data, b.shape, b.strides, b.elem_offset)):
            self.number(v)

    def go(self, a: Any) -> int:
        if not isinstance(a, PrimExpr):
            return self.work(a)
        found = self.known.get(id(a))
        if found is None:
            before = len(self.seen)
            found = self.work(a)
            if len(self.seen) == before:
                self.known[id(a)] = found
        return found

    def work(self, a: Any) -> int:
        if isinstance(a, GraphNode):
            return _graph[0][2](self, a)
        if isinstance(a, Var):
            if a in self.seen or self.map_free:
                return hash(("var", self.number(a), str(a.dtype)))
            return hash(("free", id(a)))
        if isinstance(a, Buffer):
            if a not in self.seen:
                self.number(a)
                return hash(
                    ("buffer", str(a.dtype), a.data_alignment, a.offset_factor, len(a.shape), a.scope_name)
                )
            return hash(("buffer", self.seen[a]))
        if isinstance(a, IRModule):
            parts = sorted((gv.name_hint, Hasher(self.map_free).go(f)) for gv, f in a.functions.items())
            return hash(("module", tuple(parts)))
        if isinstance(a, PrimFunc):
            for p in a.params:
                self.number(p)
            shapes = []
            for p in a.params:
                b = a.buffer_map.get(p)
                if b is not None:
                    self.define(b)
                    shapes.append(self.go(b))
                    shapes.append(self.go(b.shape))
            return hash(("func", tuple(shapes), self.go(a.attrs), self.go(a.body)))
        if isinstance(a, IntImm):
            return hash(a.value)  # a Python integer beside it is equal to it
        if isinstance(a, FloatImm):
            return hash(("FloatImm", str(a.dtype), self.go(a.value)))
        if isinstance(a, Call):
            op = a.op.name if isinstance(a.op, (Op, GlobalVar)) else str(a.op)
            return hash(("call", op, str(a.dtype), *[self.go(x) for x in a.args]))
        if isinstance(a, Node):
            parts_list: list[int] = []
            for name, kind in _ordered_fields(a.__class__):
                if name in _NAMES:
                    continue
                x = getattr(a, name)
                if kind == "def":
                    self.number(x)
                elif kind == "defs":
                    for v in x:
                        self.number(v)
                elif name == "thread_binding" and isinstance(x, IterVar):
                    x = x.thread_tag
                elif name == "node" and isinstance(x, IterVar):
                    self.number(x.var)
                    x = (x.thread_tag, x.iter_type)
                elif _defines_buffers(a.__class__, name):
                    for b in (x,) if isinstance(x, Buffer) else x:
                        self.define(b)
                parts_list.append(self.go(x))
            return hash((a.__class__.__name__, *parts_list))
        if isinstance(a, Mapping):
            return hash(tuple(sorted((str(k), self.go(v)) for k, v in a.items())))
        if isinstance(a, Sequence) and not isinstance(a, (str, bytes)):
            return hash((len(a), *[self.go(x) for x in a]))
        if hasattr(a, "numpy"):
            return self.go(a.numpy())
        if hasattr(a, "tobytes"):
            return hash((a.shape, a.tobytes()))
        if isinstance(a, GlobalVar):
            return hash(a.name_hint)
        if isinstance(a, float) and math.isnan(a):
            return hash("nan")
        if isinstance(a, Type):
            return self.type(a)
        return hash(a) if isinstance(a, (str, int, float, bool, bytes)) or a is None else hash(str(a))

    def type(self, a: Any) -> int:
        if isinstance(a, FuncType):
            for v in a.type_params:
                self.number(v)
        if isinstance(a, TypeVar):
            known = a in self.seen or self.map_free
            return hash(("type", self.number(a) if known else id(a), int(a.kind)))
        if isinstance(a, GlobalTypeVar):
            return hash(("data", a.name_hint))
        parts = type_parts(a)
        if parts:
            return hash((type(a).__name__, *map(self.type, parts)))
        shape = getattr(a, "shape", None)
        return hash(a) if shape is None else hash((len(shape), str(a.dtype)))


@deeply
def structural_hash(n: Any, map_free_vars: bool = False) -> int:
    """A number that is the same for structurally equal programs (within one process)."""
    return Hasher(map_free_vars).go(n) & ((1 << 64) - 1)
