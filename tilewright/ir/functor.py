"""Walking and rewriting programs. Dispatch goes through a table keyed by the node's type."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from .buffer import Buffer, BufferRegion, MatchBufferRegion
from .deep import deeply
from .expr import BufferLoad, IterVar, Let, PrimExpr, Var, const, convert
from .function import PrimFunc
from .stmt import (
    Allocate,
    AllocateConst,
    Block,
    BufferRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    LetStmt,
    Stmt,
)

_N = TypeVar("_N")
_LEAVES = (BufferStore, Evaluate)  # statements without statements


def _dispatch_table(cls: type) -> dict[str, Callable[[Any, Any], Any]]:
    """The handlers `visit_For`, … by the name of the node, those of derived classes over those of bases.

    A size is a variable: a class that handles Var alone handles SizeVar too.
    """
    table: dict[str, Callable[[Any, Any], Any]] = {}
    for base in reversed(cls.__mro__):
        own = {n[6:]: f for n, f in base.__dict__.items() if n.startswith("visit_")}
        own.pop("children", None)
        own.pop("buffer", None)
        if "Var" in own:
            own.setdefault("SizeVar", own["Var"])
        table.update(own)
    return table


class _Dispatching:
    """Finds the handlers of a class when the class is made."""

    _table: ClassVar[dict[str, Callable[[Any, Any], Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._table = _dispatch_table(cls)


class Visitor(_Dispatching):
    """Reads a program. A subclass handles a node type by a method `visit_For(self, node)`;
    other nodes are passed through to their children."""

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


class Mutator(_Dispatching):
    """Rewrites a program. A subclass handles a node type by a method `visit_For(self, node)` that
    returns the new node; other nodes are rebuilt only if a child changed."""

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


class LeafKeeper(Mutator):
    """Rewrites the statements around stores and calls, which it does not enter."""

    def visit_leaf(self, n: Any) -> Any:
        return n

    visit_BufferStore = visit_Evaluate = visit_leaf


def pre_order(root: Any) -> Iterator[Any]:
    """Every node, parents before children, without recursion."""
    stack = [root]
    pop, extend = stack.pop, stack.extend
    while stack:
        n = pop()
        yield n
        below = n.children()
        if below:
            below.reverse()
            extend(below)


def contains(root: Any, kinds: Container[type]) -> bool:
    """Whether there is a node of one of some classes."""
    stack = [root]
    while stack:
        n = stack.pop()
        if n.__class__ in kinds:
            return True
        stack += n.children()
    return False


def statements(root: Stmt) -> Iterator[Stmt]:
    """Every statement, parents before children; expressions are not entered."""
    stack = [root]
    while stack:
        n = stack.pop()
        yield n
        if n.__class__ not in _LEAVES:
            stack.extend([m for m in reversed(n.children()) if isinstance(m, Stmt)])


def distinct(root: Any) -> Iterator[Any]:
    """Every node, parents before children; in large programs shared subtrees are visited once."""
    stack, seen = [root], set[int]()
    few = 2000  # in smaller programs sharing does not matter
    while stack and few:
        few -= 1
        n = stack.pop()
        yield n
        stack.extend(reversed(n.children()))
    while stack:
        n = stack.pop()
        yield n
        below = n.children()
        if below and id(n) not in seen:
            seen.add(id(n))
            stack.extend(reversed(below))


def post_order_visit(root: Any, f: Callable[[Any], Any]) -> None:
    """Call `f` once on every node, children before parents."""
    stack = [(root.body if isinstance(root, PrimFunc) else root, False)]
    seen = set[int]()
    while stack:
        n, done = stack.pop()
        if done:
            f(n)
        elif id(n) not in seen:
            seen.add(id(n))
            stack.append((n, True))
            stack.extend((c, False) for c in reversed(n.children()))


def pre_order_visit(root: Any, f: Callable[[Any], Any]) -> None:
    """Call `f` once on every node, parents first; if it returns False the children are skipped."""
    stack = [root.body if isinstance(root, PrimFunc) else root]
    seen = set[int]()
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if f(n) is not False:
            stack.extend(reversed(n.children()))


def rewrite(root: _N, rules: Mapping[type, Callable[[Any], Any]]) -> _N:
    """Children first, then `rules[type(node)]` on each node; None from a rule keeps the node."""

    done: dict[int, Any] = {}

    def go(n: Any) -> Any:
        made = done.get(id(n))
        if made is None:
            made = n.map_children(go)
            rule = rules.get(made.__class__)
            if rule is not None:
                ruled = rule(made)
                made = made if ruled is None else ruled
            done[id(n)] = made
        return made

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

    done: dict[int, Any] = {}

    def go(n: Any) -> Any:
        if id(n) in done:
            return done[id(n)]
        made = work(n)
        if isinstance(n, PrimExpr):  # statements are not shared
            done[id(n)] = made
        return made

    def work(n: Any) -> Any:
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


class Substitution(Mutator):
    """Variables replaced by expressions, in buffers' shapes too."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        self.table: Any = table
        self.buffers: dict[Buffer, Buffer] = {}

    def visit_Var(self, n: Var) -> PrimExpr:
        found = self.table.get(n)
        return n if found is None else found  # type: ignore[no-any-return]

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
    visit_BufferRealize = visit_Prefetch = _with_buffer

    def visit_Block(self, n: Block) -> Block:
        made = n.map_children(self.visit)
        allocs = tuple([self.visit_buffer(b) for b in made.alloc_buffers])
        return made.updated(alloc_buffers=allocs)

    def visit_AttrStmt(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        if isinstance(n.node, Var):
            found = self.table.get(n.node)
            made = made.replace(node=found) if isinstance(found, Var) else made
        elif isinstance(n.node, Buffer):
            buffer = self.visit_buffer(n.node)
            made = made if buffer is n.node else made.replace(node=buffer)
        return made


class _SubstituteOnce(Substitution):
    """The same, with a memo: each shared node is rewritten once."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        super().__init__(table)
        self.done: dict[int, Any] = {}  # by id: originals are kept alive meanwhile

    def visit(self, n: Any) -> Any:
        handler = self._table.get(n.__class__.__name__)
        if handler is not None:
            return handler(self, n)
        found = self.done.get(id(n))
        if found is None:
            found = self.done[id(n)] = n.map_children(self.visit)
        return found


@deeply
def substitute(
    n: _N,
    table: Mapping[Any, Any] | Callable[[Var], Any],
    buffers: Mapping[Buffer, Buffer] | None = None,
) -> _N:
    """`n` with the variables in `table` and the buffers in `buffers` substituted; `table` may be a function of a
    variable."""
    found: Mapping[Any, Any]
    if callable(table):
        found = _Asked(table)
    else:
        found = {_var_of(v): _replacement(_var_of(v), e) for v, e in table.items()}
        if not found and not buffers:
            return n
    walk = _SubstituteOnce(found)
    walk.buffers.update(buffers or {})
    if isinstance(n, PrimFunc):
        # The buffers of the parameters are those of the body: they change together.
        held = {p: walk.visit_buffer(b) for p, b in n.buffer_map.items()}
        body = walk.visit(n.body)
        if body is n.body and all(held[p] is b for p, b in n.buffer_map.items()):
            return n
        return n.replace(body=body, buffer_map=held)  # type: ignore[return-value]
    return walk.visit(n)  # type: ignore[no-any-return]


def _var_of(key: Any) -> Any:
    return key.var if isinstance(key, IterVar) else key


def _replacement(v: Any, value: Any) -> Any:
    """The replacement of a variable, in its type if it is a Python number."""
    if isinstance(value, PrimExpr) or not isinstance(v, Var):
        return value
    return const(value, v.dtype) if isinstance(value, (int, float)) else convert(value)


class _Asked(dict[Any, Any]):
    """A table that calls a function once for each variable."""

    def __init__(self, function: Callable[[Var], Any]) -> None:
        super().__init__()
        self.function = function

    def get(self, v: Any, default: Any = None) -> Any:
        if v not in self:
            made = self.function(v)
            self[v] = None if made is None else _replacement(v, made)
        return self[v]


def uses_var(n: Any, test: Var | Callable[[Var], bool]) -> bool:
    """Whether a variable (or one for which `test` holds) occurs in `n`; a load or store uses its pointer."""
    chosen: Callable[[Var], bool] = (lambda v: v is test) if isinstance(test, Var) else test
    for m in distinct(n):
        if isinstance(m, Var):
            if chosen(m):
                return True
        elif isinstance(m, (BufferLoad, BufferStore)) and chosen(m.buffer.data):
            return True
    return False


def _buffer_vars(b: Buffer) -> Iterator[Var]:
    yield b.data
    for e in (*b.shape, *b.strides, b.elem_offset):
        for m in distinct(e):
            if isinstance(m, Var):
                yield m


class _Undefined(Visitor):
    """Variables used and not bound, in order of appearance."""

    def __init__(self) -> None:
        self.free: dict[Var, None] = {}
        self.bound: set[Var] = set()
        self.seen: set[int] = set()  # expressions that add nothing under the current bindings
        self.behind: dict[Buffer, tuple[Var, ...]] = {}  # the variables of buffers

    def visit(self, n: Any) -> None:
        handler = self._table.get(n.__class__.__name__)
        if handler is not None:
            handler(self, n)
        elif id(n) not in self.seen:
            for child in n.children():
                self.visit(child)
            self.seen.add(id(n))

    def unbind(self, variables: Iterable[Var]) -> None:
        self.bound.difference_update(variables)
        self.seen.clear()

    def use(self, v: Var) -> None:
        if v not in self.bound:
            self.free[v] = None

    def visit_Var(self, n: Var) -> None:
        self.use(n)

    def _scoped(self, n: Any, *bound: Var) -> None:
        new = [v for v in bound if v not in self.bound]
        self.bound.update(new)
        self.visit(n)
        self.unbind(new)

    def visit_LetStmt(self, n: LetStmt | Let) -> None:
        self.visit(n.value)
        self._scoped(n.body, n.var)

    visit_Let = visit_LetStmt

    def visit_For(self, n: For) -> None:
        self.visit(n.min)
        self.visit(n.extent)
        self._scoped(n.body, n.loop_var)

    def visit_Allocate(self, n: Allocate | AllocateConst) -> None:
        for e in n.children():
            if e is not n.body:
                self.visit(e)
        self._scoped(n.body, n.buffer_var)

    visit_AllocateConst = visit_Allocate

    def visit_BufferRealize(self, n: BufferRealize) -> None:
        for e in (*n.bounds, n.condition):
            self.visit(e)
        self._scoped(n.body, n.buffer.data)

    def visit_AttrStmt(self, n: Any) -> None:
        self.visit(n.value)
        if isinstance(n.node, IterVar) and n.attr_key in ("thread_extent", "virtual_thread"):
            self._scoped(n.body, n.node.var)
        else:
            self.visit(n.body)

    def _buffer(self, n: BufferLoad | BufferStore | BufferRegion) -> None:
        held = self.behind.get(n.buffer)
        if held is None:
            held = self.behind[n.buffer] = tuple(_buffer_vars(n.buffer))
        for v in held:
            self.use(v)
        self.visit_children(n)

    visit_BufferLoad = visit_BufferStore = visit_BufferRegion = _buffer

    def visit_Block(self, n: Block) -> None:
        for iv in n.iter_vars:
            self.visit(iv)
        for b in n.alloc_buffers:
            for e in b.children():
                self.visit(e)
        held = {iv.var for iv in n.iter_vars} | {b.data for b in n.alloc_buffers}
        for m in n.match_buffers:
            held |= set(_buffer_vars(m.buffer))
        new = held - self.bound
        self.bound |= new
        for part in (*n.reads, *n.writes, *n.match_buffers, n.init, n.body):
            if part is not None:
                self.visit(part)
        self.unbind(new)

    def visit_Reduce(self, n: Any) -> None:
        new = {iv.var for iv in n.axis} - self.bound
        for iv in n.axis:
            self.visit(iv)
        self.bound |= new
        for part in (*n.source, n.condition, *n.init):
            self.visit(part)
        self.unbind(new)


@deeply
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
    return {m.buffer: None for m in distinct(n) if isinstance(m, (BufferLoad, BufferStore))}


class Renaming(Substitution):
    """A substitution that adds a new variable for each definition to its table."""

    def fresh(self, v: Var) -> Var:
        self.table[v] = made = v.__class__(v.name, v.type_annotation)
        return made

    def visit_LetStmt(self, n: Any) -> Any:
        value = self.visit(n.value)
        return n.replace(value=value, var=self.fresh(n.var), body=self.visit(n.body))

    visit_Let = visit_LetStmt


class _Renew(Renaming):
    """Replaces every variable, buffer and block that the program defines by a new one."""

    def fresh_iter(self, iv: IterVar) -> IterVar:
        dom = None if iv.dom is None else self.visit(iv.dom)
        return IterVar(dom, self.fresh(iv.var), iv.iter_type, iv.thread_tag, iv.span)

    def visit_For(self, n: For) -> For:
        low, extent = self.visit(n.min), self.visit(n.extent)
        return n.replace(
            loop_var=self.fresh(n.loop_var),
            min=low,
            extent=extent,
            thread_binding=None if n.thread_binding is None else self.fresh_iter(n.thread_binding),
            body=self.visit(n.body),
        )

    def visit_AttrStmt(self, n: Any) -> Any:
        if isinstance(n.node, IterVar) and n.attr_key in ("thread_extent", "virtual_thread"):
            # A thread index that is launched several times stays the same variable.
            if n.node.var not in self.table:
                self.fresh(n.node.var)
            dom = None if n.node.dom is None else self.visit(n.node.dom)
            node = n.node.replace(dom=dom, var=self.table[n.node.var])
            value = self.visit(n.value)
            return n.replace(node=node, value=value, body=self.visit(n.body))
        return super().visit_AttrStmt(n)

    def visit_BufferRealize(self, n: BufferRealize) -> BufferRealize:
        buffer = self.renew_buffer(n.buffer)
        return n.map_children(self.visit).replace(buffer=buffer)

    def visit_Allocate(self, n: Allocate) -> Allocate:
        self.fresh(n.buffer_var)
        return n.map_children(self.visit).replace(buffer_var=self.table[n.buffer_var])

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
        iters = tuple([self.fresh_iter(iv) for iv in n.iter_vars])
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
    """The same function with new variables for all definitions, so that it shares none with `func`."""
    renew = _Renew({})
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


def written_out(e: PrimExpr, lets: Mapping[Var, PrimExpr]) -> PrimExpr:
    """An expression with the variables of `lets` replaced by their values, and those in the values too."""
    for _ in range(len(lets)):
        used = {v: lets[v] for v in pre_order(e) if isinstance(v, Var) and v in lets}
        if not used:
            break
        e = substitute(e, used)
    return e


def vars_used(n: Any) -> set[Var]:
    """The variables that occur in an expression or statement."""
    out: set[Var] = set()
    stack, few = [n], 2000
    while stack and few:
        few -= 1
        m = stack.pop()
        if isinstance(m, Var):
            out.add(m)
        else:
            stack += m.children()
    # in large programs shared nodes must be visited once
    return {m for m in distinct(n) if isinstance(m, Var)} if stack else out


def renew_defs_in(stmt: _N) -> _N:
    """A statement with new variables for all definitions inside it; free variables are unchanged."""
    return _Renew({}).visit(stmt)
