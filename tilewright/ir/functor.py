"""Walking and rewriting programs. Dispatch goes through a table keyed by the node's type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from .buffer import Buffer, BufferRegion, MatchBufferRegion
from .expr import BufferLoad, IterVar, Let, PrimExpr, Var
from .function import PrimFunc
from .stmt import (
    Allocate,
    AllocateConst,
    Block,
    BufferStore,
    DeclBuffer,
    For,
    LetStmt,
)

__all__ = [
    "Mutator",
    "Visitor",
    "buffers_accessed",
    "ir_transform",
    "post_order_visit",
    "pre_order",
    "pre_order_visit",
    "renew_defs",
    "renew_defs_in",
    "rewrite",
    "substitute",
    "undefined_vars",
    "uses_var",
    "vars_used",
]

_N = TypeVar("_N")


class Visitor:
    """Reads a program. A subclass handles a node type by a method `visit_For(self, node)`;
    other nodes are passed through to their children."""

    _table: ClassVar[dict[str, Callable[[Any, Any], Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        table = dict(cls._table)
        for name, value in cls.__dict__.items():
            if name.startswith("visit_") and name != "visit_children":
                table[name[6:]] = value
        cls._table = table

    def visit(self, n: Any) -> Any:
        handler = self._table.get(n.__class__.__name__)
        if handler is not None:
            return handler(self, n)
        for child in n.children():
            self.visit(child)
        return None

    def visit_children(self, n: Any) -> None:
        for child in n.children():
            self.visit(child)


class Mutator:
    """Rewrites a program. A subclass handles a node type by a method `visit_For(self, node)` that
    returns the new node; other nodes are rebuilt only if a child changed."""

    _table: ClassVar[dict[str, Callable[[Any, Any], Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        table = dict(cls._table)
        for name, value in cls.__dict__.items():
            if name.startswith("visit_") and name not in ("visit_children", "visit_buffer"):
                table[name[6:]] = value
        cls._table = table

    def visit(self, n: Any) -> Any:
        handler = self._table.get(n.__class__.__name__)
        if handler is not None:
            return handler(self, n)
        return n.map_children(self.visit)

    def visit_children(self, n: _N) -> _N:
        return n.map_children(self.visit)  # type: ignore[attr-defined, no-any-return]

    def run(self, func: PrimFunc) -> PrimFunc:
        """The function with its body rewritten; itself if nothing changed."""
        body = self.visit(func.body)
        return func if body is func.body else func.replace(body=body)


def pre_order(root: Any) -> Iterator[Any]:
    """Every node, parents before children, without recursion."""
    stack = [root]
    while stack:
        n = stack.pop()
        yield n
        stack.extend(reversed(n.children()))


def post_order_visit(root: Any, f: Callable[[Any], Any]) -> None:
    """Call `f` on every node, children before parents."""
    stack = [(root.body if isinstance(root, PrimFunc) else root, False)]
    while stack:
        n, done = stack.pop()
        if done:
            f(n)
        else:
            stack.append((n, True))
            stack.extend((c, False) for c in reversed(n.children()))


def pre_order_visit(root: Any, f: Callable[[Any], Any]) -> None:
    """Call `f` on every node, parents first; where it returns False the children are left out."""
    stack = [root.body if isinstance(root, PrimFunc) else root]
    while stack:
        n = stack.pop()
        if f(n) is False:
            continue
        stack.extend(reversed(n.children()))


def rewrite(root: _N, rules: Mapping[type, Callable[[Any], Any]]) -> _N:
    """Children first, then `rules[type(node)]` on each node; None from a rule keeps the node."""

    def go(n: Any) -> Any:
        n = n.map_children(go)
        rule = rules.get(n.__class__)
        if rule is None:
            return n
        made = rule(n)
        return n if made is None else made

    if isinstance(root, PrimFunc):
        body = go(root.body)
        return root if body is root.body else root.replace(body=body)  # type: ignore[return-value]
    return go(root)  # type: ignore[no-any-return]


def ir_transform(
    stmt: Any,
    preorder: Callable[[Any], Any] | None,
    postorder: Callable[[Any], Any] | None,
    only_enable: list[str] | None = None,
) -> Any:
    """Rewrite nodes whose type is in `only_enable` (all if None): a node that `preorder` replaces is
    not entered; `postorder` sees nodes after their children. None from either keeps the node."""
    names = None if only_enable is None else {n.rsplit(".", 1)[-1] for n in only_enable}

    def go(n: Any) -> Any:
        chosen = names is None or n.__class__.__name__ in names
        if chosen and preorder is not None:
            made = preorder(n)
            if made is not None:
                return made
        n = n.map_children(go)
        if chosen and postorder is not None:
            made = postorder(n)
            if made is not None:
                return made
        return n

    return go(stmt)


class _Substitute(Mutator):
    """Variables replaced by expressions, in buffers' shapes too."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        self.table = table
        self.buffers: dict[Buffer, Buffer] = {}

    def visit_Var(self, n: Var) -> PrimExpr:
        found = self.table.get(n)
        return n if found is None else found  # type: ignore[no-any-return]

    visit_SizeVar = visit_Var

    def visit_buffer(self, b: Buffer) -> Buffer:
        made = self.buffers.get(b)
        if made is None:
            made = b.map_children(self.visit)
            data = self.table.get(b.data)
            if isinstance(data, Var) and data is not b.data:
                made = made.replace(data=data)
            self.buffers[b] = made
        return made

    def _with_buffer(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        buffer = self.visit_buffer(made.buffer)
        return made if buffer is made.buffer else made.replace(buffer=buffer)

    visit_BufferLoad = visit_BufferStore = visit_BufferRegion = _with_buffer
    visit_MatchBufferRegion = visit_DeclBuffer = _with_buffer

    def visit_Block(self, n: Block) -> Block:
        made = n.map_children(self.visit)
        allocs = tuple([self.visit_buffer(b) for b in made.alloc_buffers])
        if all(a is b for a, b in zip(allocs, made.alloc_buffers, strict=True)):
            return made
        return made.replace(alloc_buffers=allocs)

    def visit_AttrStmt(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        if isinstance(n.node, Var) and n.node in self.table and isinstance(self.table[n.node], Var):
            made = made.replace(node=self.table[n.node])
        elif isinstance(n.node, Buffer):
            buffer = self.visit_buffer(n.node)
            made = made if buffer is n.node else made.replace(node=buffer)
        return made


def substitute(
    n: _N,
    table: Mapping[Any, Any] | Callable[[Var], Any],
    buffers: Mapping[Buffer, Buffer] | None = None,
) -> _N:
    """`n` with the variables in `table` replaced, and `buffers` by others; a function from a variable
    will do for a table."""
    if callable(table):
        function, found = table, {}
        for v in (m for m in pre_order(n) if isinstance(m, Var)):
            made = function(v)
            if made is not None:
                found[v] = made
        table = found
    if not table and not buffers:
        return n
    walk = _Substitute(table)
    walk.buffers.update(buffers or {})
    if isinstance(n, PrimFunc):
        body = walk.visit(n.body)
        return n if body is n.body else n.replace(body=body)  # type: ignore[return-value]
    return walk.visit(n)  # type: ignore[no-any-return]


def uses_var(n: Any, test: Var | Callable[[Var], bool]) -> bool:
    """Whether a variable (or one for which `test` holds) occurs in `n`."""
    if isinstance(test, Var):
        return any(m is test for m in pre_order(n))
    return any(isinstance(m, Var) and test(m) for m in pre_order(n))


def _buffer_vars(b: Buffer) -> Iterator[Var]:
    yield b.data
    for e in (*b.shape, *b.strides, b.elem_offset):
        for m in pre_order(e):
            if isinstance(m, Var):
                yield m


class _Undefined(Visitor):
    """Variables used and not bound, in the order they are met."""

    def __init__(self) -> None:
        self.free: dict[Var, None] = {}
        self.bound: set[Var] = set()

    def use(self, v: Var) -> None:
        if v not in self.bound:
            self.free[v] = None

    def visit_Var(self, n: Var) -> None:
        self.use(n)

    visit_SizeVar = visit_Var

    def _scoped(self, n: Any, *bound: Var) -> None:
        new = [v for v in bound if v not in self.bound]
        self.bound.update(new)
        self.visit(n)
        self.bound.difference_update(new)

    def visit_LetStmt(self, n: LetStmt | Let) -> None:
        self.visit(n.value)
        self._scoped(n.body, n.var)

    visit_Let = visit_LetStmt

    def visit_For(self, n: For) -> None:
        self.visit(n.min)
        self.visit(n.extent)
        self._scoped(n.body, n.loop_var)

    def visit_Allocate(self, n: Allocate | AllocateConst) -> None:
        for e in n.extents:
            self.visit(e)
        self._scoped(n.body, n.buffer_var)

    visit_AllocateConst = visit_Allocate

    def visit_AttrStmt(self, n: Any) -> None:
        self.visit(n.value)
        if isinstance(n.node, IterVar) and n.attr_key in ("thread_extent", "virtual_thread"):
            self._scoped(n.body, n.node.var)
        else:
            self.visit(n.body)

    def _buffer(self, n: BufferLoad | BufferStore | BufferRegion) -> None:
        for v in _buffer_vars(n.buffer):
            self.use(v)
        self.visit_children(n)

    visit_BufferLoad = visit_BufferStore = visit_BufferRegion = _buffer

    def visit_Block(self, n: Block) -> None:
        for iv in n.iter_vars:
            self.visit(iv)
        held = {iv.var for iv in n.iter_vars} | {b.data for b in n.alloc_buffers}
        for m in n.match_buffers:
            held |= set(_buffer_vars(m.buffer))
        new = held - self.bound
        self.bound |= new
        for part in (*n.reads, *n.writes, *n.match_buffers, n.init, n.body):
            if part is not None:
                self.visit(part)
        self.bound -= new

    def visit_Reduce(self, n: Any) -> None:
        new = {iv.var for iv in n.axis} - self.bound
        for iv in n.axis:
            self.visit(iv)
        self.bound |= new
        for part in (*n.source, n.condition, *n.init):
            self.visit(part)
        self.bound -= new


def undefined_vars(n: Any, defined: Any = ()) -> list[Var]:
    """The variables that `n` uses and does not bind itself, in order, less those `defined`."""
    walk = _Undefined()
    walk.bound.update(defined)
    if isinstance(n, PrimFunc):
        walk.bound.update(n.params)
        for b in n.buffer_map.values():
            walk.bound.update(_buffer_vars(b))
        n = n.body
    walk.visit(n)
    return list(walk.free)


def buffers_accessed(n: Any) -> dict[Buffer, None]:
    """The buffers that are loaded from or stored to, in order."""
    return {m.buffer: None for m in pre_order(n) if isinstance(m, (BufferLoad, BufferStore))}


class _Renew(_Substitute):
    """Every variable, buffer and block that the program defines made anew."""

    def __init__(self) -> None:
        super().__init__({})
        self.table: dict[Any, Any] = {}

    def fresh(self, v: Var) -> Var:
        self.table[v] = made = v.__class__(v.name, v.type_annotation)
        return made

    def visit_For(self, n: For) -> For:
        return n.replace(
            loop_var=self.fresh(n.loop_var),
            min=self.visit(n.min),
            extent=self.visit(n.extent),
            body=self.visit(n.body),
        )

    def visit_LetStmt(self, n: LetStmt) -> LetStmt:
        value = self.visit(n.value)
        return n.replace(value=value, var=self.fresh(n.var), body=self.visit(n.body))

    visit_Let = visit_LetStmt

    def visit_Allocate(self, n: Allocate) -> Allocate:
        extents = tuple([self.visit(e) for e in n.extents])
        var = self.fresh(n.buffer_var)
        return n.replace(buffer_var=var, extents=extents, body=self.visit(n.body))

    visit_AllocateConst = visit_Allocate

    def renew_buffer(self, b: Buffer) -> Buffer:
        if b.data not in self.table:
            self.fresh(b.data)
        for v in _buffer_vars(b):
            if v not in self.table and v is not b.data and v is b.elem_offset:
                self.fresh(v)
        made = b.map_children(self.visit).replace(data=self.table[b.data])
        self.buffers[b] = made
        return made

    def visit_DeclBuffer(self, n: DeclBuffer) -> DeclBuffer:
        made = n.buffer.map_children(self.visit)
        data = self.table.get(n.buffer.data, n.buffer.data)
        self.buffers[n.buffer] = made = made.replace(data=data)
        return n.replace(buffer=made, body=self.visit(n.body))

    def visit_Block(self, n: Block) -> Block:
        iters = tuple(
            IterVar(
                None if iv.dom is None else self.visit(iv.dom),
                self.fresh(iv.var),
                iv.iter_type,
                iv.thread_tag,
            )
            for iv in n.iter_vars
        )
        allocs = tuple(self.renew_buffer(b) for b in n.alloc_buffers)
        matches = []
        for m in n.match_buffers:
            source = self.visit(m.source)
            for v in _buffer_vars(m.buffer):
                if v not in self.table:
                    self.fresh(v)
            matches.append(MatchBufferRegion(self.renew_buffer(m.buffer), source))
        return n.replace(
            iter_vars=iters,
            alloc_buffers=allocs,
            match_buffers=tuple(matches),
            reads=tuple(self.visit(r) for r in n.reads),
            writes=tuple(self.visit(w) for w in n.writes),
            init=None if n.init is None else self.visit(n.init),
            body=self.visit(n.body),
            key=object(),
        )


def renew_defs(func: PrimFunc) -> PrimFunc:
    """The same function with every definition in it made anew, so that it shares none with `func`."""
    renew = _Renew()
    for p in func.params:
        renew.fresh(p)
    for b in func.buffer_map.values():
        for v in _buffer_vars(b):
            if v not in renew.table:
                renew.fresh(v)
        renew.renew_buffer(b)
    params = tuple(renew.table[p] for p in func.params)
    buffers = {renew.table[p]: renew.buffers[b] for p, b in func.buffer_map.items()}
    return func.replace(params=params, buffer_map=buffers, body=renew.visit(func.body))


def vars_used(n: Any) -> set[Var]:
    """The variables that occur in an expression or statement."""
    return {m for m in pre_order(n) if isinstance(m, Var)}


def renew_defs_in(stmt: _N) -> _N:
    """A statement with every definition inside it made anew; what it uses from outside stays."""
    return _Renew().visit(stmt)
