"""Statements of a script to statements of the IR."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ir import ops
from ...ir.buffer import Buffer, BufferRegion, MatchBufferRegion
from ...ir.expr import BufferLoad, IterVar, PrimExpr, Range, StringImm, Var, const, convert
from ...ir.printer_ranges import difference
from ...ir.printer_stmt import launch_key
from ...ir.stmt import (
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
    SeqStmt,
    Stmt,
    While,
)
from ...ir.types import PrimType, Type
from ..analysis.regions import get_block_read_write_region
from .evaluate import Evaluator, load_of
from .namespace import Scalar
from .regions import region_of
from .source import Source, decorator_name
from .specs import (
    AllocateSpec,
    AllocBuffer,
    AssertSpec,
    AttrSpec,
    AxisSpec,
    BlockSpec,
    BufferSpec,
    DeclSpec,
    Directive,
    EnvThread,
    InitSpec,
    LaunchSpec,
    LetSpec,
    LoopSpec,
    MatchSpec,
    MetaVar,
    RealizeSpec,
    RemapSpec,
)

Wrap = Callable[[Stmt], Stmt]


@dataclass(slots=True)
class BlockFrame:
    """The declarations so far of the block (or function) being read."""

    name: str
    iter_vars: list[IterVar] = field(default_factory=list)
    iter_values: list[PrimExpr] = field(default_factory=list)
    reads: tuple[BufferRegion, ...] | None = None
    writes: tuple[BufferRegion, ...] | None = None
    predicate: PrimExpr | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    init: Stmt | None = None
    allocs: list[Buffer] = field(default_factory=list)
    matches: list[MatchBufferRegion] = field(default_factory=list)


class Macro:
    """A function whose body is expanded at the call."""

    def __init__(self, source: Source, outside: Mapping[str, Any], hygienic: bool) -> None:
        self.source, self.outside, self.hygienic = source, outside, hygienic

    def __call__(self, *args: Any, **kwargs: Any) -> MacroCall:
        return MacroCall(self, args, kwargs)


@dataclass(slots=True)
class MacroCall:
    macro: Macro
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def macro_of(s: ast.FunctionDef, source: Source, outside: Mapping[str, Any]) -> Macro | None:
    """The macro of a definition in a script; None if it is not decorated as one."""
    for d in s.decorator_list:
        if decorator_name(d) == "macro":
            reader = Evaluator(source, outside)
            options = {k.arg: reader.eval(k.value) for k in getattr(d, "keywords", ())}
            return Macro(source, outside, bool(options.get("hygienic", True)))
    return None


class _Suite:
    """The statements of one suite. A definition that is valid to its end wraps all later statements."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.out: list[Stmt] = []
        self.open: list[tuple[list[Stmt], Wrap, ast.stmt]] = []

    def add(self, s: Stmt) -> None:
        self.out.append(s)

    def wrap(self, make: Wrap, s: ast.stmt) -> None:
        self.open.append((self.out, make, s))
        self.out = []

    def done(self) -> Stmt:
        body = sequence(self.out)
        for before, make, s in reversed(self.open):
            with self.source.at(s):
                body = sequence([*before, make(body)])
        return body


def sequence(stmts: list[Stmt]) -> Stmt:
    """The statements as one."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.seq if isinstance(s, SeqStmt) else [s])
    if not flat:
        return Evaluate(const(0))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def type_of(annotation: Any) -> Type | None:
    """The type of an annotation, or None if it is not a type."""
    if isinstance(annotation, Scalar):
        return annotation.type
    if isinstance(annotation, Var):
        return annotation.type_annotation
    if isinstance(annotation, Type):
        return annotation
    if isinstance(annotation, str):
        return PrimType(annotation)
    if annotation in (int, float, bool):
        return PrimType({int: "int32", float: "float32", bool: "bool"}[annotation])
    return None


class StmtParser(Evaluator):
    """Reads suites of statements inside one function."""

    def __init__(self, source: Source, outside: Mapping[str, Any]) -> None:
        super().__init__(source, outside)
        self.frames: list[BlockFrame] = []
        self.loops: dict[Var, Range] = {}
        self.owners: dict[Var, Buffer] = {}
        self.symbols: dict[str, Var] = {}
        self.func_attrs: dict[str, Any] = {}
        self.buffer_map: dict[Var, Buffer] = {}
        self.params: list[Var] = []
        self.func_name = ""
        self.ret_type: Type | None = None

    # -- suites ------------------------------------------------------------------------------
    def suite(self, body: list[ast.stmt]) -> Stmt:
        """The statement that a suite stands for."""
        here = _Suite(self.source)
        with self.scope():
            for s in body:
                self.statement(s, here)
        return here.done()

    def statement(self, s: ast.stmt, here: _Suite) -> None:
        handler = getattr(self, f"stmt_{type(s).__name__}", None)
        if handler is None:
            raise self.source.error(
                s,
                f"a script has no {type(s).__name__} statements",
                "use for, while, if, with, assert, assignments and calls",
            )
        before = len(here.out)
        with self.source.at(s):
            handler(s, here)
        for made in here.out[before:]:
            if made.span is None:
                made.span = self.source.span(s)

    def stmt_Pass(self, s: ast.Pass, here: _Suite) -> None:
        pass

    def stmt_Expr(self, s: ast.Expr, here: _Suite) -> None:
        if isinstance(s.value, ast.Constant) and isinstance(s.value.value, str):
            return
        self.effect(self.eval(s.value), here, s)

    def effect(self, value: Any, here: _Suite, s: ast.stmt) -> None:
        """The statement of a value that stands alone."""
        if isinstance(value, Stmt):
            here.add(value)
        elif isinstance(value, PrimExpr):
            here.add(Evaluate(value))
        elif isinstance(value, Directive):
            self.directive(value, s)
        elif isinstance(value, MacroCall):
            here.add(self.expand(value, s))
        elif isinstance(value, (AttrSpec, LaunchSpec, AssertSpec, RealizeSpec)):
            here.wrap(self.opener(value, None, s), s)
        elif isinstance(value, (AllocateSpec, DeclSpec, LetSpec)):
            named = isinstance(value, DeclSpec) and value.buffer is not None
            here.wrap(self.opener(value, None if named else "v", s), s)
        elif isinstance(value, (list, tuple)):
            for v in value:
                self.effect(v, here, s)
        elif isinstance(value, (BlockSpec, InitSpec)):
            raise self.source.error(s, "this opens a suite", "write `with …:`")
        elif isinstance(
            value, (AllocBuffer, MatchSpec, BufferSpec, AxisSpec, RemapSpec, EnvThread, LoopSpec)
        ):
            raise self.source.error(s, "the result of this is not bound to a name", "write `name = …`")
        elif value is not None and not isinstance(value, (str, int, float)):
            raise self.source.error(s, f"{value!r} has no effect in a program")

    def stmt_Return(self, s: ast.Return, here: _Suite) -> None:
        if s.value is None:
            return
        value = load_of(self.eval(s.value))
        if not (isinstance(value, PrimExpr) and getattr(getattr(value, "op", None), "name", "") == "tir.ret"):
            value = ops.ret(value)
        here.add(Evaluate(value))

    def stmt_FunctionDef(self, s: ast.FunctionDef, here: _Suite) -> None:
        made = macro_of(s, self.source.part(s), self.outside)
        if made is None:
            raise self.source.error(
                s,
                "a script defines no functions inside a function",
                "decorate it with @T.macro, or move it out",
            )
        self.bind(s.name, made)

    # -- facts about blocks and functions ----------------------------------------------------
    def frame(self, s: ast.AST | None, what: str) -> BlockFrame:
        if len(self.frames) < 2:
            raise self.source.error(s, f"{what} is outside of any block", "put it under `with T.block(…):`")
        return self.frames[-1]

    def directive(self, d: Directive, s: ast.stmt | None) -> None:
        if d.name == "func_attr":
            self.func_attrs.update(d.args[0])
            return
        here = self.frame(s, f"T.{d.name}")
        if d.name == "block_attr":
            here.annotations.update(d.args[0])
        elif d.name == "where":
            here.predicate = convert(load_of(d.args[0]))
        else:
            args = d.args[0] if len(d.args) == 1 and isinstance(d.args[0], (list, tuple)) else d.args
            regions = tuple(region_of(a) for a in args)
            if d.name == "reads":
                here.reads = (here.reads or ()) + regions
            else:
                here.writes = (here.writes or ()) + regions

    # -- assignments -------------------------------------------------------------------------
    def stmt_Assign(self, s: ast.Assign, here: _Suite) -> None:
        value = self.eval(s.value)
        for target in s.targets:
            self.assign(target, value, here, s)

    def assign(self, target: ast.expr, value: Any, here: _Suite, s: ast.stmt) -> None:
        if isinstance(target, ast.Subscript):
            self.store(target, value, here)
        elif isinstance(target, ast.Name):
            self.bind(target.id, self.named(target.id, value, here, s))
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.assign_many(target, value, here, s)
        else:
            raise self.source.error(target, "a script assigns to names and to elements of buffers only")

    def assign_many(self, target: ast.Tuple | ast.List, value: Any, here: _Suite, s: ast.stmt) -> None:
        names = target.elts
        if isinstance(value, RemapSpec):
            value = self.remapped(value, s)
        if isinstance(value, MetaVar):
            self.unpack(target, value.value)
            return
        values = list(value) if isinstance(value, (tuple, list)) else None
        if values is None or len(values) != len(names):
            count = "one value" if values is None else f"{len(values)} values"
            raise self.source.error(target, f"{len(names)} names for {count}")
        for t, v in zip(names, values, strict=True):
            self.assign(t, v, here, s)

    def named(self, name: str, value: Any, here: _Suite, s: ast.stmt) -> Any:
        """What `name` stands for after `name = value`."""
        value = load_of(value)
        if isinstance(value, MetaVar):
            return value.value
        if isinstance(value, RemapSpec):
            made = self.remapped(value, s)
            if len(made) != 1:
                raise self.source.error(s, f"one name for {len(made)} values")
            return self.axis(name, made[0], s)
        if isinstance(value, AxisSpec):
            return self.axis(name, value, s)
        if isinstance(value, (BufferSpec, AllocBuffer, MatchSpec)):
            return self.buffer(name, value, s)
        if isinstance(value, EnvThread):
            return IterVar(None, Var(name, value.dtype), IterVar.ThreadIndex, value.tag)
        if isinstance(value, (AllocateSpec, DeclSpec, LaunchSpec, LetSpec)):
            here.wrap(self.opener(value, name, s), s)
            return self.scopes[-1][name]
        if isinstance(value, Var) and not value.name:
            return value.__class__(name, value.type_annotation)
        if isinstance(value, (Buffer, IterVar, str, StringImm)) or value is None:
            return value
        if isinstance(value, (PrimExpr, bool, int, float)):
            value = convert(value)
            var = Var(name, self._let_type(value))
            here.wrap(lambda body: LetStmt(var, value, body), s)
            return var
        if isinstance(value, (BlockSpec, InitSpec, AttrSpec, Directive, LoopSpec)):
            raise self.source.error(s, "this has no value to be bound to a name")
        return value

    @staticmethod
    def _let_type(value: PrimExpr) -> Any:
        return value.type_annotation if isinstance(value, Var) else value.dtype

    def stmt_AnnAssign(self, s: ast.AnnAssign, here: _Suite) -> None:
        if not isinstance(s.target, ast.Name):
            raise self.source.error(s, "only a name can have a type")
        kind = type_of(self.eval(s.annotation))
        if s.value is None:
            if kind is None:
                raise self.source.error(s.annotation, "this is not a type", "write T.int32, T.handle, …")
            self.bind(s.target.id, Var(s.target.id, kind))
            return
        value = load_of(self.eval(s.value))
        if kind is None or not isinstance(value, (PrimExpr, IterVar, int, float)):
            self.bind(s.target.id, self.named(s.target.id, value, here, s))
            return
        held = _as_type(value, kind)
        var = Var(s.target.id, kind)
        here.wrap(lambda body: LetStmt(var, held, body), s)
        self.bind(s.target.id, var)

    def stmt_AugAssign(self, s: ast.AugAssign, here: _Suite) -> None:
        now = ast.copy_location(ast.BinOp(_as_read(s.target), s.op, s.value), s)
        self.assign(s.target, self.eval(now), here, s)

    def store(self, target: ast.Subscript, value: Any, here: _Suite) -> None:
        owner = self.eval(target.value)
        if not isinstance(owner, Buffer):
            raise self.source.error(target, f"`{ast.unparse(target.value)}` is not a buffer: {owner!r}")
        place = load_of(self.element(owner, self.eval(target.slice), target))
        assert isinstance(place, BufferLoad)
        value = load_of(value)
        held = const(value, place.dtype) if isinstance(value, (bool, int, float)) else convert(value)
        if held.dtype is not place.dtype:
            held = ops.cast(place.dtype, held)
        here.add(BufferStore(owner, held, place.indices))

    # -- buffers and iterators ---------------------------------------------------------------
    def buffer(self, name: str, value: BufferSpec | AllocBuffer | MatchSpec, s: ast.AST | None) -> Buffer:
        spec = value if isinstance(value, BufferSpec) else value.spec
        made = spec.build(name, self.symbols)
        for text, v in self.symbols.items():
            if text not in self.scopes[0]:
                self.scopes[0][text] = v
        self.owners.setdefault(made.data, made)
        if isinstance(value, AllocBuffer):
            self.frames[-1].allocs.append(made)
        elif isinstance(value, MatchSpec):
            self.match(made, value.source, s)
        return made

    def match(self, made: Buffer, source: Any, s: ast.AST | None) -> None:
        if isinstance(source, BufferRegion):
            self.frame(s, "T.match_buffer of a region").matches.append(MatchBufferRegion(made, source))
        elif isinstance(source, Var) and source in self.params:
            self.buffer_map[source] = made
        else:
            raise self.source.error(
                s, f"T.match_buffer takes a parameter of the function or a region of a buffer, not `{source}`"
            )

    def axis(self, name: str, a: AxisSpec, s: ast.AST | None) -> Var:
        here = self.frame(s, "T.axis")
        dom = a.dom
        if isinstance(dom, (tuple, list)):
            low, high = ops.match(convert(dom[0]), convert(dom[1]))
            dom = Range.from_min_extent(low, difference(high, low))
        elif not isinstance(dom, Range):
            dom = Range(load_of(dom))
        var = Var(name, dom.extent.dtype)
        here.iter_vars.append(IterVar(dom, var, a.iter_type))
        if a.value is not None:
            value = convert(load_of(a.value))
            here.iter_values.append(value)
        return var

    def remapped(self, value: RemapSpec, s: ast.AST | None) -> list[AxisSpec]:
        out = []
        for letter, v in zip(value.kinds, value.values, strict=True):
            dom = self.loops.get(v) if isinstance(v, Var) else None
            if dom is None:
                raise self.source.error(
                    s,
                    f"T.axis.remap takes the variables of the loops around the block; `{v}` is not one",
                    "for an expression write T.axis.spatial(extent, value) or T.axis.reduce(extent, value)",
                )
            out.append(AxisSpec(dom, v, IterVar.DataPar if letter == "S" else IterVar.CommReduce))
        return out

    # -- with --------------------------------------------------------------------------------
    def stmt_With(self, s: ast.With, here: _Suite) -> None:
        made = self.with_items(s, 0)
        if made is not None:
            here.add(made)

    def with_items(self, s: ast.With, at: int) -> Stmt | None:
        """`with a, b:` is `with a: with b:`. Items that move elsewhere (`T.init`) leave no statement."""
        if at == len(s.items):
            return self.suite(s.body)
        item = s.items[at]
        value = self.eval(item.context_expr)
        if isinstance(value, BlockSpec):
            return self.block(value, s, at)
        if isinstance(value, InitSpec):
            frame = self.frame(s, "T.init")
            if frame.init is not None:
                raise self.source.error(s, "a block has one T.init")
            frame.init = self.with_body(s, at)
            return None
        name = item.optional_vars
        if name is not None and not isinstance(name, ast.Name):
            raise self.source.error(name, "only a name can stand after `as`")
        openers = (AllocateSpec, DeclSpec, LetSpec, LaunchSpec, AttrSpec, AssertSpec, RealizeSpec)
        if not isinstance(value, openers):
            raise self.source.error(
                item.context_expr,
                f"`with` does not take {value!r}",
                "with T.block(…), T.init(), T.allocate(…), T.attr(…), T.launch_thread(…), T.LetStmt(…)",
            )
        with self.scope():
            make = self.opener(value, None if name is None else name.id, s)
            body = self.with_body(s, at)
            with self.source.at(s):
                return make(body)

    def with_body(self, s: ast.With, at: int) -> Stmt:
        made = self.with_items(s, at + 1)
        return Evaluate(const(0)) if made is None else made

    def opener(self, value: Any, name: str | None, s: ast.AST | None) -> Wrap:
        """Bind the names of a definition, and return the function that wraps it around the statements that follow."""
        if isinstance(value, AllocateSpec):
            var = Var(name or "v", value.pointer())
            self.bind(var.name, var)
            if value.data is not None:
                return lambda body: AllocateConst(
                    var, value.dtype, value.extents, value.data, body, value.annotations
                )
            condition = convert(value.condition)
            return lambda body: Allocate(var, value.dtype, value.extents, condition, body, value.annotations)
        if isinstance(value, DeclSpec) and value.spec is None:
            known = value.buffer
            assert known is not None
            if name is not None:
                self.bind(name, known)
            return lambda body: DeclBuffer(known, body)
        if isinstance(value, DeclSpec):
            assert value.spec is not None
            spec = value.spec
            made = spec.build(name or "buffer", self.symbols)
            self.owners.setdefault(made.data, made)
            self.bind(made.name, made)
            if spec.data is not None:
                return lambda body: DeclBuffer(made, body)
            always = const(True, "bool")
            return lambda body: Allocate(made.data, made.dtype, made.shape, always, DeclBuffer(made, body))
        if isinstance(value, LetSpec):
            return self._let(value, name)
        if isinstance(value, LaunchSpec):
            return self._launch(value, name, s)
        if isinstance(value, AttrSpec):
            node = value.node.value if isinstance(value.node, MetaVar) else value.node
            held = convert(value.value)
            return lambda body: AttrStmt(node, value.key, held, body)
        if isinstance(value, AssertSpec):
            return lambda body: AssertStmt(convert(value.condition), convert(value.message), body)
        return _realized(value)

    def _let(self, value: LetSpec, name: str | None) -> Wrap:
        kind = None if value.annotation is None else type_of(value.annotation)
        held = convert(value.value) if kind is None else _as_type(value.value, kind)
        var = value.var if value.var is not None else Var(name or "v", kind or self._let_type(held))
        if name is not None:
            self.bind(name, var)
        return lambda body: LetStmt(var, held, body)

    def _launch(self, value: LaunchSpec, name: str | None, s: ast.AST | None) -> Wrap:
        extent = convert(value.extent)
        if isinstance(value.thread, IterVar):
            thread = value.thread
        elif isinstance(value.thread, str):
            tag = value.thread
            hint = name or tag.replace(".", "_")
            thread = IterVar(
                Range.from_min_extent(const(0, extent.dtype), extent),
                Var(hint, extent.dtype),
                IterVar.ThreadIndex,
                tag,
            )
        else:
            raise self.source.error(
                s, 'T.launch_thread takes an axis such as "threadIdx.x" or a T.env_thread'
            )
        if name is not None:
            self.bind(name, thread.var)
        return lambda body: AttrStmt(thread, launch_key(thread.thread_tag), extent, body)

    def block(self, spec: BlockSpec, s: ast.With, at: int) -> Stmt:
        self.frames.append(BlockFrame(spec.name))
        loops, self.loops = self.loops, dict(self.loops)
        body = self.with_body(s, at)
        self.loops = loops
        return self.close_block(spec, body, s)

    def close_block(self, spec: BlockSpec, body: Stmt, s: ast.With | None) -> Stmt:
        """The block whose declarations are in the innermost frame."""
        frame = self.frames.pop()
        if not spec.no_realize and len(frame.iter_values) != len(frame.iter_vars):
            raise self.source.error(s, f"block {spec.name}: an axis has no value")
        made = Block(
            frame.iter_vars,
            frame.reads or (),
            frame.writes or (),
            spec.name,
            body,
            frame.init,
            frame.allocs,
            frame.matches,
            frame.annotations,
            span=self.source.span(s),
        )
        if frame.reads is None or frame.writes is None:
            made = self.complete(made, frame)
        if spec.no_realize:
            return made
        predicate = const(True, "bool") if frame.predicate is None else frame.predicate
        return BlockRealize(frame.iter_values, predicate, made, span=self.source.span(s))

    def complete(self, b: Block, frame: BlockFrame) -> Block:
        """The block with undeclared reads and writes inferred from its body."""
        own = {x.data for x in frame.allocs} | {m.buffer.data for m in frame.matches}
        outer = {data: x for data, x in self.owners.items() if data not in own}
        reads, writes = get_block_read_write_region(b, outer)
        return b.replace(
            reads=tuple(reads) if frame.reads is None else frame.reads,
            writes=tuple(writes) if frame.writes is None else frame.writes,
        )

    # -- control -----------------------------------------------------------------------------
    def stmt_For(self, s: ast.For, here: _Suite) -> None:
        spec = self.eval(s.iter)
        if not isinstance(spec, LoopSpec):
            raise self.source.error(
                s.iter,
                f"`{ast.unparse(s.iter)}` is not a valid loop range",
                "range, T.serial, T.grid, T.parallel, T.vectorized, T.unroll and T.thread_binding are",
            )
        groups = self.loop_names(s.target, len(spec.bounds))
        with self.scope():
            loop_vars = self.open_loops(spec, [n for _, names in groups for n in names])
            rest = iter(loop_vars)
            for name, names in groups:
                found = [next(rest) for _ in names]
                self.bind(name, found[0] if names == [name] else tuple(found))
            body = self.suite(s.body)
        here.add(self.close_loops(spec, loop_vars, body, s))

    def loop_names(self, target: ast.expr, count: int) -> list[tuple[str, list[str]]]:
        """The names that a `for` binds, each with the names of its loops: one, or several for `*name` and for a single
        name in front of a grid."""
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        stars = [p for p in parts if isinstance(p, ast.Starred)]
        plain = [p.value if isinstance(p, ast.Starred) else p for p in parts]
        all_of_them = len(parts) == 1 and count > 1 and not isinstance(target, (ast.Tuple, ast.List))
        fits = len(parts) - 1 <= count if len(stars) == 1 else len(parts) == count or all_of_them
        if not fits or len(stars) > 1 or not all(isinstance(p, ast.Name) for p in plain):
            raise self.source.error(target, f"{len(parts)} loop variables for {count} extents")
        out = []
        for part, named in zip(parts, plain, strict=True):
            name = named.id  # type: ignore[attr-defined]
            several = count if all_of_them else count - len(parts) + 1 if part in stars else None
            out.append((name, [name] if several is None else [f"{name}_{i}" for i in range(several)]))
        return out

    def open_loops(self, spec: LoopSpec, names: list[str]) -> list[Var]:
        """The variables of loops, whose ranges are known from here on."""
        ranges = [self._range(start, stop) for start, stop in spec.bounds]
        loop_vars = [Var(n, r.extent.dtype) for n, r in zip(names, ranges, strict=True)]
        self.loops.update(zip(loop_vars, ranges, strict=True))
        return loop_vars

    def close_loops(self, spec: LoopSpec, loop_vars: list[Var], body: Stmt, s: ast.For | None) -> Stmt:
        """The loops around their body."""
        for v in reversed(loop_vars):
            r = self.loops.pop(v)
            binding = None
            if spec.kind is ForKind.THREAD_BINDING:
                binding = IterVar(None, Var("", v.dtype), IterVar.ThreadIndex, spec.thread or "")
            body = For(
                v, r.min, r.extent, spec.kind, body, binding, spec.annotations, span=self.source.span(s)
            )
        return body

    @staticmethod
    def _range(start: Any, stop: Any) -> Range:
        start, stop = load_of(start), load_of(stop)
        low, high = ops.match(start, stop)
        return Range.from_min_extent(low, difference(high, low))

    def stmt_While(self, s: ast.While, here: _Suite) -> None:
        here.add(While(self.expr(s.test), self.suite(s.body)))

    def stmt_If(self, s: ast.If, here: _Suite) -> None:
        test = load_of(self.eval(s.test))
        if isinstance(test, PrimExpr):
            otherwise = self.suite(s.orelse) if s.orelse else None
            here.add(IfThenElse(test, self.suite(s.body), otherwise))
            return
        # A condition with a known value selects the suite to read; its definitions are valid afterwards.
        for one in s.body if test else s.orelse:
            self.statement(one, here)

    def stmt_Assert(self, s: ast.Assert, here: _Suite) -> None:
        condition = self.expr(s.test)
        message = convert("" if s.msg is None else self.eval(s.msg))
        here.wrap(lambda body: AssertStmt(condition, message, body), s)

    # -- macros ------------------------------------------------------------------------------
    def expand(self, call: MacroCall, s: ast.stmt) -> Stmt:
        macro, definition = call.macro, call.macro.source.node
        held = self.source, self.outside, self.scopes
        self.source, self.outside = macro.source, macro.outside
        self.scopes = [{}] if macro.hygienic else [*held[2], {}]
        try:
            self.bind_arguments(definition.args, call.args, call.kwargs, definition)
            return self.suite(definition.body)
        finally:
            self.source, self.outside, self.scopes = held

    def bind_arguments(
        self, wanted: ast.arguments, args: tuple[Any, ...], kwargs: dict[str, Any], at: ast.AST
    ) -> None:
        names = [a.arg for a in (*wanted.posonlyargs, *wanted.args)]
        given = dict(zip(names, args, strict=False))
        defaults = dict(zip(names[len(names) - len(wanted.defaults) :], wanted.defaults, strict=True))
        if wanted.vararg is not None:
            given[wanted.vararg.arg] = args[len(names) :]
        elif len(args) > len(names):
            raise self.source.error(at, f"the macro takes {len(names)} arguments and was given {len(args)}")
        more: dict[str, Any] = {}
        for k, v in kwargs.items():
            known = k in names or k in [a.arg for a in wanted.kwonlyargs]
            if not known and wanted.kwarg is None:
                raise self.source.error(at, f"the macro has no argument {k!r}")
            (given if known else more)[k] = v
        if wanted.kwarg is not None:
            given[wanted.kwarg.arg] = more
        for a, d in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True):
            names.append(a.arg)
            if d is not None:
                defaults[a.arg] = d
        for n in names:
            if n not in given:
                if n not in defaults:
                    raise self.source.error(at, f"the macro needs an argument {n!r}")
                given[n] = self.eval(defaults[n])
        self.scopes[-1].update(given)


def _realized(value: RealizeSpec) -> Wrap:
    buffer, bounds, condition = value.region.buffer, value.region.region, convert(value.condition)
    if value.scope == buffer.scope():
        return lambda body: BufferRealize(buffer, bounds, condition, body)
    scope = StringImm(value.scope)
    return lambda body: AttrStmt(
        buffer, "realize_scope", scope, BufferRealize(buffer, bounds, condition, body)
    )


def _as_read(target: ast.expr) -> ast.expr:
    """The target of `x += 1` as an expression."""
    made: ast.expr
    if isinstance(target, ast.Subscript):
        made = ast.Subscript(target.value, target.slice, ast.Load())
    elif isinstance(target, ast.Name):
        made = ast.Name(target.id, ast.Load())
    else:
        return target
    return ast.copy_location(made, target)


def _as_type(value: Any, kind: Type) -> PrimExpr:
    """A value for a variable of type `kind`."""
    if isinstance(kind, PrimType) and not kind.dtype.is_handle:
        if isinstance(value, (bool, int, float)):
            return const(value, kind.dtype)
        return ops.cast(kind.dtype, convert(value))
    return convert(value)
