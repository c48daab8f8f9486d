"""Statements in the script form."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from .buffer import Buffer, BufferRegion
from .equal import structural_equal
from .expr import BufferLoad, Call, IntImm, IterVar, Let, PrimExpr, Reduce, StringImm, Var
from .expr_text import float_text, quoted
from .functor import _buffer_vars, pre_order, statements, undefined_vars, uses_var
from .node import methods_of_nodes
from .ops import is_zero
from .printer_expr import ScriptExpr
from .stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Prefetch,
    SeqStmt,
    Stmt,
    While,
)
from .types import PointerType, PrimType

MARK_LINE = "\x03"
_LEVELS = 90  # levels of indentation; Python allows a hundred
_KINDS = {
    ForKind.SERIAL: "serial",
    ForKind.PARALLEL: "parallel",
    ForKind.VECTORIZED: "vectorized",
    ForKind.UNROLLED: "unroll",
    ForKind.THREAD_BINDING: "thread_binding",
}
# Statements that define something for one statement that follows.
_DEFINITIONS = (Allocate, AllocateConst, AssertStmt, AttrStmt, BufferRealize, DeclBuffer, LetStmt)
_AXES = {IterVar.DataPar: "spatial", IterVar.CommReduce: "reduce", IterVar.Ordered: "scan"}


def launch_key(thread_tag: str) -> str:
    """The attribute of `T.launch_thread`: virtual threads have their own."""
    return "virtual_thread" if thread_tag.startswith("vthread") else "thread_extent"


def block_is_implicit_root(body: Stmt) -> bool:
    """Whether `body` is a root block that can be omitted, since the parser adds it again."""
    if not isinstance(body, BlockRealize) or body.iter_values or not _holds(body.predicate):
        return False
    root = body.block
    if root.name_hint != "root" or root.annotations or root.match_buffers or root.reads or root.writes:
        return False
    if root.init is not None or root.iter_vars:
        return False
    return bool(root.alloc_buffers) or needs_root(root.body)


def needs_root(body: Stmt) -> bool:
    """Whether the parser adds a root block around the body of a function.

    It does if the body has blocks, unless one of them is the root: a block without iterators that is the whole body,
    or one named "root" after definitions only.
    """
    if isinstance(body, BlockRealize):
        return bool(body.block.iter_vars)
    inner: Any = body
    while isinstance(inner, _DEFINITIONS):
        inner = inner.body
    if isinstance(inner, BlockRealize) and inner.block.name_hint == "root" and not inner.block.iter_vars:
        return False
    return any(isinstance(n, BlockRealize) for n in statements(body))


def _holds(condition: PrimExpr) -> bool:
    return condition.__class__ is IntImm and bool(condition.value)  # type: ignore[attr-defined]


class ScriptStmt(ScriptExpr):
    """Prints statements line by line."""

    def __init__(
        self, prefix: str = "T", target: Any = None, indent_spaces: int = 4, sugar: bool = True
    ) -> None:
        super().__init__(prefix, target)
        self.lines: list[str] = []
        self.depth = self.top = 0  # levels of indentation, now and of the body of the function
        self.step = " " * indent_spaces
        self.taken_out = []
        # suites that were taken out of the function being written; None: all stays where it is
        self.suites: list[list[str]] | None = None
        self.sugar = sugar
        self.views: list[tuple[Buffer, list[Var]]] = []
        self.loops: dict[Var, For] = {}

    # -- lines -------------------------------------------------------------------------------
    def emit(self, text: str, *nodes: Any) -> None:
        """Write one line; `nodes` are the statements that begin there. Extracted subexpressions come first."""
        if self.taken_out:
            for name, part in self.taken_out:
                self.lines.append(f"{self.step * self.depth}{name} = {self.t}.meta_var({part})")
            self.taken_out.clear()
        self._nested = self._chained = 0
        mark = MARK_LINE if self.target is not None and any(n is self.target for n in nodes) else ""
        self.lines.append(f"{self.step * self.depth}{mark}{text}")

    @contextmanager
    def inner(self, header: str | None = None, *nodes: Any) -> Iterator[None]:
        """An indented suite under `header`."""
        if header is not None:
            self.emit(header, *nodes)
        self.depth += 1
        with self.names.scope():
            yield
        self.depth -= 1

    # -- definitions -------------------------------------------------------------------------
    def prepare(self, root: Any, declared: Any = ()) -> None:
        """Find the buffers that no statement declares: views that the text must declare."""
        threads: dict[Var, list[IterVar]] = {}
        for n in pre_order(root):
            if n.__class__ is AttrStmt and isinstance(n.node, IterVar):
                if n.attr_key == launch_key(n.node.thread_tag):
                    threads.setdefault(n.node.var, []).append(n.node)
        self.views = [(b, list(_buffer_vars(b))) for b in _undeclared(root, declared)]
        self.shared_threads = {v: ivs[0] for v, ivs in threads.items() if len(ivs) > 1}

    def declare_var(self, v: Var) -> None:
        """`n = T.int32()`, if it has no name yet."""
        if v not in self.names:
            text = self.var_declaration(v)
            name = self.names.define(v, v.name)
            self.emit(f"{self.marked(v, name)} = {text}", v)

    def marked(self, thing: Any, name: str) -> str:
        return self.name_of(thing) if thing is self.target else name

    def declare_free(self, root: Any) -> None:
        """Declare the free variables of a bare statement, and threads that are launched several times."""
        for v, iv in self.shared_threads.items():
            name = self.names.define(v, v.name)
            self.emit(f"{name} = {self.t}.env_thread({quoted(iv.thread_tag)})")
        owned = {b.data for b, _ in self.views}
        free = [v for v in undefined_vars(root) if v not in self.names]
        for v in free:
            if v not in owned:
                self.declare_var(v)
        self.flush_views()
        for b, _ in self.views:
            if b.data in free and b not in self.names:
                self.declare_buffer(b, "Buffer")
                self.flush_views()

    def flush_views(self) -> None:
        """Declare the views whose memory and sizes are all known by now."""
        for b, needs in self.views:
            if b not in self.names and all(v in self.names for v in needs):
                self.declare_buffer(b, "Buffer")

    def declare_buffer(self, b: Buffer, how: str, *first: str) -> None:
        """`A = T.how(first, shape, dtype, …)`."""
        text = self.buffer_text(b, how, *first)
        name = self.define_buffer(b)
        self.emit(f"{name} = {text}", b)

    def buffer_text(self, b: Buffer, how: str, *first: str) -> str:
        usual = PointerType(PrimType(b.dtype), b.scope_name)
        if b.data not in self.names and b.data.type_annotation != usual:
            self.declare_var(b.data)
        for v in _buffer_vars(b):
            if v is not b.data:
                self.declare_var(v)
        return f"{self.t}.{how}({', '.join([*first, *self.buffer_args(b)])})"

    def define_buffer(self, b: Buffer) -> str:
        name = self.names.define(b, b.name)
        if b.data not in self.names:
            self.names.alias(b.data, f"{name}.data")
        return self.marked(b, name)

    # -- statements --------------------------------------------------------------------------
    def stmt(self, s: Any, last: bool = True) -> None:
        """One statement. If it is the `last` of its suite, a definition is valid to the end and needs no `with`."""
        handler = _STMTS.get(s.__class__.__name__)
        if handler is None:
            raise TypeError(f"no script form for a statement of type {type(s).__name__}")
        handler(self, s, last)

    def body(self, s: Stmt) -> None:
        self.flush_views()
        if self.depth > _LEVELS and self.suites is not None:
            self._take_out_suite(s)
        else:
            self.stmt(s)

    def _take_out_suite(self, s: Stmt) -> None:
        """A call of a macro for a suite that is indented too far; the macro is defined first in the function.

        @T.macro(hygienic=False)
        def suite_1():
            A[i] = …
        """
        assert self.suites is not None
        lines: list[str] = []
        self.suites.append(lines)
        name = self.names.reserve(f"suite_{len(self.suites)}")
        outer, depth = self.lines, self.depth
        self.lines, self.depth = lines, self.top
        self.emit(f"@{self.t}.macro(hygienic=False)")
        with self.inner(f"def {name}():"):
            self.stmt(s)
        self.lines, self.depth = outer, depth
        self.emit(f"{name}()")

    def before(self, *exprs: Any) -> None:
        """Declare the variables that expressions of the next line bind or use."""
        for e in exprs:
            if e is None:
                continue
            for n in pre_order(e):
                if n.__class__ is Let:
                    self.declare_var(n.var)
                elif n.__class__ is Reduce:
                    for iv in n.axis:
                        self.declare_var(iv.var)

    def scoped(self, s: Stmt, last: bool, flat: str, header: str) -> None:
        """A definition that is valid to the end of the suite if it is the last, else a `with`.

        x: T.int32 = v                  with T.LetStmt(v) as x:
        body                    or          body
        """
        inner = s.body  # type: ignore[attr-defined]
        if last:
            self.emit(flat, s)
            self.body(inner)
        else:
            with self.inner(header, s):
                self.body(inner)

    def stmt_SeqStmt(self, s: SeqStmt, last: bool) -> None:
        for i, one in enumerate(s.seq):
            self.stmt(one, last and i == len(s.seq) - 1)

    def stmt_Evaluate(self, s: Evaluate, last: bool) -> None:
        self.before(s.value)
        text = self.expr(s.value)
        self.emit(text if s.value.__class__ is Call else f"{self.t}.evaluate({text})", s)

    def stmt_BufferStore(self, s: BufferStore, last: bool) -> None:
        self.before(s.value, *s.indices)
        if s.predicate is not None:
            self.before(s.predicate)
            where, value = ", ".join([self.expr(i) for i in s.indices]), self.expr(s.value)
            mask = self.expr(s.predicate)
            self.emit(f"{self.name_of(s.buffer)}.vstore([{where}], {value}, predicate={mask})", s)
            return
        self.emit(f"{self.name_of(s.buffer)}[{self.indices(s.indices)}] = {self.expr(s.value)}", s)

    def stmt_LetStmt(self, s: LetStmt, last: bool) -> None:
        self.before(s.value)
        value, kind = self.expr(s.value), self.type_text(s.var.type_annotation)
        known = s.var in self.names
        plain = s.var.type_annotation == PrimType(s.value.dtype)
        with_args = value if plain else f"{value}, {kind}"
        if known:
            header = f"with {self.t}.LetStmt({with_args}, var={self.name_of(s.var)}):"
            self.scoped(s, False, header, header)
            return
        if last:
            name = self.names.define(s.var, s.var.name)
            self.emit(f"{self.marked(s.var, name)}: {kind} = {value}", s)
            self.body(s.body)
            return
        with self.names.scope():
            name = self.names.define(s.var, s.var.name)
            with self.inner(f"with {self.t}.LetStmt({with_args}) as {self.marked(s.var, name)}:", s):
                self.body(s.body)

    def stmt_AssertStmt(self, s: AssertStmt, last: bool) -> None:
        self.before(s.condition, s.message)
        condition, message = self.expr(s.condition), self.expr(s.message)
        self.scoped(
            s, last, f"assert {condition}, {message}", f"with {self.t}.Assert({condition}, {message}):"
        )

    def stmt_AttrStmt(self, s: AttrStmt, last: bool) -> None:
        self.before(s.value)
        node, value = s.node, self.expr(s.value)
        if isinstance(node, IterVar) and s.attr_key == launch_key(node.thread_tag):
            self._launch(s, last, value)
            return
        if isinstance(node, IterVar):
            self.declare_var(node.var)
        elif isinstance(node, Var):
            self.declare_var(node)
        elif isinstance(node, Buffer):
            realized = _realized_in(s)
            if realized is not None:
                self._realize(realized, last, value, s)
                return
        for buffer in node if isinstance(node, (tuple, list)) else (node,):
            if isinstance(buffer, Buffer) and buffer not in self.names:
                self.declare_buffer(buffer, "Buffer")
        text = f"{self.t}.attr({self.value(node)}, {quoted(s.attr_key)}, {value})"
        self.scoped(s, last, text, f"with {text}:")

    def _launch(self, s: AttrStmt, last: bool, value: str) -> None:
        var = s.node.var
        if var in self.names:
            text = f"{self.t}.launch_thread({self.name_of(var)}, {value})"
            self.scoped(s, last, text, f"with {text}:")
            return
        text = f"{self.t}.launch_thread({quoted(s.node.thread_tag)}, {value})"
        with self.names.scope() if not last else _nothing():
            name = self.marked(var, self.names.define(var, var.name))
            self.scoped(s, last, f"{name} = {text}", f"with {text} as {name}:")

    def stmt_Allocate(self, s: Allocate, last: bool) -> None:
        if self.sugar and self._declares_its_own(s):
            self._declare_allocated(s, last)
            return
        kind = s.buffer_var.type_annotation
        scope = kind.storage_scope if isinstance(kind, PointerType) else ""
        args = [f"[{self.listed(s.extents)}]", quoted(s.dtype), quoted(scope)]
        if not _holds(s.condition):
            args.append(f"condition={self.expr(s.condition)}")
        if s.annotations:
            args.append(f"annotations={self.value(s.annotations)}")
        self._defined(s, last, f"{self.t}.allocate({', '.join(args)})")

    def _declares_its_own(self, s: Allocate) -> bool:
        """Whether memory is allocated for one plain buffer: `A = T.decl_buffer(…)` does both."""
        if not isinstance(s.body, DeclBuffer) or s.annotations or not _holds(s.condition):
            return False
        b = s.body.buffer
        return (
            b.data is s.buffer_var
            and all(b is not view for view, _ in self.views)
            and b.dtype is s.dtype
            and b.data.type_annotation == PointerType(PrimType(b.dtype), b.scope_name)
            and structural_equal(b.shape, s.extents)
        )

    def _declare_allocated(self, s: Any, last: bool) -> None:
        text = self.buffer_text(s.body.buffer, "decl_buffer")
        if last:
            self.emit(f"{self.define_buffer(s.body.buffer)} = {text}", s, s.body)
            self.body(s.body.body)
            return
        with self.names.scope():
            name = self.define_buffer(s.body.buffer)
            with self.inner(f"with {text} as {name}:", s, s.body):
                self.body(s.body.body)

    def stmt_AllocateConst(self, s: AllocateConst, last: bool) -> None:
        data = s.data.numpy() if hasattr(s.data, "numpy") else s.data
        flat = data.reshape(-1).tolist() if hasattr(data, "reshape") else list(data)
        items = ", ".join(_number_text(x) for x in flat)
        args = [f"[{items}]", quoted(s.dtype), f"[{self.listed(s.extents)}]"]
        if s.annotations:
            args.append(f"annotations={self.value(s.annotations)}")
        self._defined(s, last, f"{self.t}.allocate_const({', '.join(args)})")

    def _defined(self, s: Any, last: bool, text: str) -> None:
        """A statement that defines its `buffer_var`."""
        with self.names.scope() if not last else _nothing():
            name = self.marked(s.buffer_var, self.names.define(s.buffer_var, s.buffer_var.name))
            self.scoped(s, last, f"{name} = {text}", f"with {text} as {name}:")

    def stmt_DeclBuffer(self, s: DeclBuffer, last: bool) -> None:
        if any(s.buffer is view for view, _ in self.views) and s.buffer in self.names:
            text = f"{self.t}.decl_buffer({self.name_of(s.buffer)})"
            self.scoped(s, last, text, f"with {text}:")
            return
        text = self.buffer_text(s.buffer, "decl_buffer")
        with self.names.scope() if not last else _nothing():
            name = self.define_buffer(s.buffer)
            self.scoped(s, last, f"{name} = {text}", f"with {text} as {name}:")

    def stmt_BufferRealize(self, s: BufferRealize, last: bool) -> None:
        self._realize(s, last, quoted(s.buffer.scope_name), s)

    def _realize(self, s: BufferRealize, last: bool, scope: str, whole: Any) -> None:
        """`T.realize(A[0:8], "local")`; `whole` is the statement with the attribute that gives the scope."""
        if s.buffer not in self.names:
            self.declare_buffer(s.buffer, "Buffer")
        region = f"{self.name_of(s.buffer)}[{self.region(s.bounds)}]"
        args = [region, scope]
        if not _holds(s.condition):
            args.append(self.expr(s.condition))
        text = f"{self.t}.realize({', '.join(args)})"
        self.scoped(s, last, text, f"with {text}:")

    def stmt_Prefetch(self, s: Prefetch, last: bool) -> None:
        self.emit(f"{self.t}.prefetch({self.name_of(s.buffer)}, [{self.listed(s.bounds)}])", s)

    def stmt_IfThenElse(self, s: IfThenElse, last: bool) -> None:
        self.before(s.condition)
        with self.inner(f"if {self.expr(s.condition)}:", s):
            self.body(s.then_case)
        if s.else_case is not None:
            with self.inner("else:"):
                self.body(s.else_case)

    def stmt_While(self, s: While, last: bool) -> None:
        self.before(s.condition)
        with self.inner(f"while {self.expr(s.condition)}:", s):
            self.body(s.body)

    # -- loops -------------------------------------------------------------------------------
    def stmt_For(self, s: For, last: bool) -> None:
        nest = self._grid(s)
        with self.names.scope():
            if len(nest) > 1:
                extents = self.listed([f.extent for f in nest])
                names = [self._loop_name(f) for f in nest]
                header = f"for {', '.join(names)} in {self.t}.grid({extents}):"
            else:
                self.before(s.min, s.extent)
                text = self._loop_range(s)
                header = f"for {self._loop_name(s)} in {text}:"
            with self.inner(header, *nest):
                self.body(nest[-1].body)
        for f in nest:
            self.loops.pop(f.loop_var, None)

    def _loop_name(self, s: For) -> str:
        self.loops[s.loop_var] = s
        return self.marked(s.loop_var, self.names.define(s.loop_var, s.loop_var.name))

    def _loop_range(self, s: For) -> str:
        extra = []
        if s.kind is ForKind.THREAD_BINDING and s.thread_binding is not None:
            extra.append(f"thread={quoted(s.thread_binding.thread_tag)}")
        if s.annotations:
            extra.append(f"annotations={self.value(s.annotations)}")
        bounds = [self.expr(s.extent)] if is_zero(s.min) else [self.expr(s.min), self.stop_of(s)]
        if s.kind is ForKind.SERIAL and len(bounds) == 1 and not extra and self.sugar:
            return f"range({bounds[0]})"
        return f"{self.t}.{_KINDS[s.kind]}({', '.join(bounds + extra)})"

    def _grid(self, s: For) -> list[For]:
        """The perfect nest of plain loops that starts at `s`."""
        nest: list[For] = [s]
        if not self.sugar or not _plain(s):
            return nest
        while True:
            inner = nest[-1].body
            if not isinstance(inner, For) or not _plain(inner):
                return nest
            if any(uses_var(inner.extent, f.loop_var) for f in nest):
                return nest
            nest.append(inner)

    # -- blocks ------------------------------------------------------------------------------
    def stmt_BlockRealize(self, s: BlockRealize, last: bool) -> None:
        self._block(s.block, s, s.iter_values, s.predicate)

    def stmt_Block(self, s: Block, last: bool) -> None:
        self._block(s, s, None, None)

    def _block(self, b: Block, owner: Stmt, values: Any, predicate: PrimExpr | None) -> None:
        extra = "" if values is not None else ", no_realize=True"
        with self.inner(f"with {self.t}.block({quoted(b.name_hint)}{extra}):", owner, b):
            self._axes(b, values)
            if predicate is not None and not _holds(predicate):
                self.before(predicate)
                self.emit(f"{self.t}.where({self.expr(predicate)})")
            outer, self.loops = self.loops, {}
            self._contents(b)
            self.loops = outer

    def _axes(self, b: Block, values: Any) -> None:
        group: list[int] = []

        def flush() -> None:
            if len(group) == 1:
                self._axis(b.iter_vars[group[0]], values[group[0]])
            elif group:
                kinds = "".join("S" if b.iter_vars[i].iter_type == 0 else "R" for i in group)
                sources = self.listed([values[i] for i in group])
                names = [self._axis_name(b.iter_vars[i]) for i in group]
                self.emit(
                    f"{', '.join(names)} = {self.t}.axis.remap({quoted(kinds)}, [{sources}])",
                    *[b.iter_vars[i] for i in group],
                )
            group.clear()

        for i, iv in enumerate(b.iter_vars):
            if values is not None and self.sugar and self._remaps(iv, values[i]):
                group.append(i)
            else:
                flush()
                self._axis(iv, None if values is None else values[i])
        flush()

    def _axis_name(self, iv: IterVar) -> str:
        return self.marked(iv.var, self.names.define(iv.var, iv.var.name))

    def _axis(self, iv: IterVar, value: Any) -> None:
        dom = self.expr(iv.dom.extent)
        if not is_zero(iv.dom.min):
            dom = f"({self.expr(iv.dom.min)}, {self.stop_of(iv.dom)})"
        args = dom if value is None else f"{dom}, {self.expr(value)}"
        kind = _AXES.get(iv.iter_type, "opaque")
        name = self._axis_name(iv)
        self.emit(f"{name} = {self.t}.axis.{kind}({args})", iv)

    def _remaps(self, iv: IterVar, value: Any) -> bool:
        loop = self.loops.get(value) if isinstance(value, Var) else None
        return (
            loop is not None
            and iv.iter_type in (IterVar.DataPar, IterVar.CommReduce)
            and is_zero(iv.dom.min)
            and is_zero(loop.min)
            and iv.var.dtype is loop.loop_var.dtype
            and structural_equal(iv.dom.extent, loop.extent)
        )

    def _contents(self, b: Block) -> None:
        self.emit(f"{self.t}.reads({self.listed(b.reads)})", *b.reads)
        self.emit(f"{self.t}.writes({self.listed(b.writes)})", *b.writes)
        if b.annotations:
            self.emit(f"{self.t}.block_attr({self.value(b.annotations)})")
        self.allocations(b)
        for m in b.match_buffers:
            self.declare_buffer(m.buffer, "match_buffer", self.expr(m.source))
        if b.init is not None:
            with self.inner(f"with {self.t}.init():"):
                self.body(b.init)
        self.body(b.body)

    def allocations(self, b: Block) -> None:
        for buffer in b.alloc_buffers:
            self.declare_buffer(buffer, "alloc_buffer")


def _undeclared(root: Any, declared: Any) -> list[Buffer]:
    """The buffers that are used without an enclosing declaration."""
    around = dict.fromkeys(declared, 1)
    found: dict[Buffer, None] = {}
    stack: list[Any] = [root]
    while stack:
        n = stack.pop()
        cls = n.__class__
        if cls is list:  # the end of what declares these
            for b in n:
                around[b] -= 1
            continue
        if cls in (BufferLoad, BufferStore, BufferRegion, BufferRealize, Prefetch):
            if not around.get(n.buffer):
                found[n.buffer] = None
        elif cls is AttrStmt:
            for b in n.node if isinstance(n.node, (tuple, list)) else (n.node,):
                if isinstance(b, Buffer) and not around.get(b):
                    found[b] = None
        elif cls is DeclBuffer or cls is Block:
            new = (
                [n.buffer] if cls is DeclBuffer else [*n.alloc_buffers, *(m.buffer for m in n.match_buffers)]
            )
            for b in new:
                around[b] = around.get(b, 0) + 1
            stack.append(new)
        stack.extend(reversed(n.children()))
    return list(found)


def _realized_in(s: AttrStmt) -> BufferRealize | None:
    """The statement under an attribute if `T.realize(A[…], scope)` says both."""
    body, scope = s.body, s.value
    if s.attr_key != "realize_scope" or not isinstance(body, BufferRealize) or body.buffer is not s.node:
        return None
    return body if isinstance(scope, StringImm) and scope.value != body.buffer.scope() else None


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _plain(s: For) -> bool:
    return s.kind is ForKind.SERIAL and is_zero(s.min) and not s.annotations and s.thread_binding is None


def _number_text(x: Any) -> str:
    if not isinstance(x, float):
        return str(x)
    return f"float({float_text(x)})" if not math.isfinite(x) else repr(x)


_STMTS: Final = methods_of_nodes(ScriptStmt, "stmt_")
