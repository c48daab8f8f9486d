"""Functions and modules from their source: the decorators and `from_source`."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, SimpleNamespace
from typing import Any

from ...homes import home_of
from ...ir import GlobalVar, IRModule, PrimFunc, Span
from ...ir.buffer import Buffer
from ...ir.deep import deep_programs
from ...ir.diagnostics import report
from ...ir.errors import ScriptError
from ...ir.expr import Var, const
from ...ir.functor import pre_order_visit
from ...ir.printer_stmt import needs_root
from ...ir.serialize import check_kinds
from ...ir.stmt import Block, BlockRealize, Stmt
from ...ir.types import TupleType, Type
from .evaluate import Evaluator
from .namespace import lookup, parsing
from .parser import BlockFrame, Macro, StmtParser, macro_of, type_of
from .reach import Namespace, Reach
from .source import Source, class_source, decorator_name, function_source, text_source
from .specs import BufferSpec


# -------------------------------------------------------------------------------- functions
@dataclass(frozen=True, slots=True)
class Options:
    """The options of `@T.prim_func(…)`: no symbol, a name other than the definition's, no added root block."""

    private: bool = False
    name: str | None = None
    root: bool = True


def parse_function(source: Source, outside: Mapping[str, Any], options: Options | None = None) -> PrimFunc:
    """The PrimFunc that a Python function definition describes."""
    options = options or Options()
    definition: ast.FunctionDef = source.node
    parser = StmtParser(source, outside)
    root = BlockFrame("root")
    parser.frames.append(root)
    with deep_programs(), parsing():
        params = _params(definition, parser)
        ret_type = _return_type(definition, parser)
        body = parser.suite(definition.body)
    if options.root or root.allocs:
        body = with_root(body, root.allocs)
    attrs = dict(parser.func_attrs)
    if options.private and "global_symbol" in attrs:
        raise source.error(
            definition,
            f"function {definition.name} is private and has the global_symbol {str(attrs['global_symbol'])!r}",
            "leave out private=True, or the attribute",
        )
    if not options.private:
        symbol = definition.name if options.name is None else options.name
        attrs = {"global_symbol": symbol, **attrs}
    made = PrimFunc(params, body, ret_type, parser.buffer_map, attrs, span=source.span(definition))
    if source.reach is not None:
        _check_kinds(made, source)
    return made


def _check_kinds(func: PrimFunc, source: Source) -> None:
    """Refuse a program with fields of the wrong type: a function in place of a name, bytes in place of text."""
    place = SimpleNamespace(lineno=source.node.lineno)

    def check(n: Any) -> None:
        if isinstance(n, Stmt) and n.span is not None:
            place.lineno = n.span.line
        try:
            check_kinds(n)
            for b in (*getattr(n, "alloc_buffers", ()), getattr(n, "buffer", None)):
                if b is not None:
                    check_kinds(b)
        except (TypeError, ValueError) as bad:
            raise source.error(place, str(bad)) from None

    for b in func.buffer_map.values():
        check(b)
    pre_order_visit(func.body, check)


def _params(definition: ast.FunctionDef, parser: StmtParser) -> list[Var]:
    args = definition.args
    extra = args.vararg or args.kwarg or (args.kwonlyargs[0] if args.kwonlyargs else None)
    if extra is not None or args.defaults:
        raise parser.source.error(extra or args.defaults[0], "a script's function has plain parameters only")
    for a in (*args.posonlyargs, *args.args):
        if a.annotation is None:
            raise parser.source.error(
                a, f"parameter {a.arg} has no type", f'write {a.arg}: T.Buffer((8,), "float32") or T.int32'
            )
        with parser.source.at(a):
            _param(a, parser.eval(a.annotation), parser)
    return parser.params


def _param(a: ast.arg, value: Any, parser: StmtParser) -> None:
    assert a.annotation is not None
    if isinstance(value, Buffer):  # made outside of the script
        value = BufferSpec.of(value)
    if isinstance(value, BufferSpec):
        handle = Var(f"{a.arg}_handle", "handle")
        parser.params.append(handle)
        made = parser.buffer(a.arg, value, a)
        parser.buffer_map[handle] = made
        parser.scopes[0][a.arg] = made
        return
    kind = type_of(value)
    if kind is None:
        raise parser.source.error(
            a.annotation,
            f"`{ast.unparse(a.annotation)}` is not a type of a parameter",
            'T.Buffer((8,), "float32"), T.handle, T.int32 and the like are',
        )
    cls = value.__class__ if isinstance(value, Var) else Var
    var = cls(a.arg, kind)
    parser.params.append(var)
    parser.scopes[0][a.arg] = var


def _return_type(definition: ast.FunctionDef, parser: Evaluator) -> Type | None:
    if definition.returns is None:
        return None
    with parser.source.at(definition.returns):
        value = parser.eval(definition.returns)
        return TupleType() if value is None else type_of(value)


def with_root(body: Stmt, allocs: list[Buffer]) -> Stmt:
    """The body under a root block, if it has blocks or buffers that need one."""
    if not allocs and not needs_root(body):
        return body
    return BlockRealize((), const(True, "bool"), Block((), (), (), "root", body, alloc_buffers=allocs))


# -------------------------------------------------------------------------------- modules
def _module_names(module: str, functions: Mapping[str, Any]) -> Namespace:
    """The meaning of the class's own name inside it: `Module.f` is the function `f` of the module."""

    def find(name: str) -> Any:
        if name in functions:
            return functions[name]
        raise AttributeError(f"module {module} has no function {name!r}; it has: {', '.join(functions)}")

    return Namespace(module, find)


def parse_class(source: Source, outside: Mapping[str, Any]) -> IRModule:
    """The IRModule that a class definition describes."""
    definition: ast.ClassDef = source.node
    names: dict[str, GlobalVar] = {}
    options: dict[str, Options] = {}
    reader = Evaluator(source, outside)
    for s in definition.body:
        if isinstance(s, ast.FunctionDef):
            said = options[s.name] = _options(s, source, outside)
            name = s.name if said.name is None else said.name
            if s.name in names or name in [gv.name_hint for gv in names.values()]:
                raise source.error(s, f"the module defines {name} twice")
            names[s.name] = GlobalVar(name, _return_type(s, reader))
    inside = {
        **outside,
        definition.name: _module_names(definition.name, names),
        "cls": _module_names("cls", names),
    }
    attrs: dict[str, Any] = {}
    made: dict[GlobalVar, Any] = {}
    for s in definition.body:
        if isinstance(s, ast.FunctionDef):
            part = source.part(s)
            made[names[s.name]] = parse_function(part, inside, options[s.name])
        elif isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            value = reader.eval(s.value)
            if isinstance(value, ModuleAttrs):
                attrs.update(value.attrs)
        elif not isinstance(s, (ast.Pass, ast.Expr)):
            raise source.error(
                s, f"a module has no {type(s).__name__} statements", "only functions are allowed"
            )
    return IRModule(made, attrs=attrs)


class ModuleAttrs:
    """`I.module_attrs({...})`."""

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs = dict(attrs)


def _options(s: ast.FunctionDef, source: Source, outside: Mapping[str, Any]) -> Options:
    """The options of the decorator, which must be one of this package."""
    for d in s.decorator_list:
        if decorator_name(d) != "prim_func":
            continue
        given = d.keywords if isinstance(d, ast.Call) else []
        reader = Evaluator(source, outside)
        said = {k.arg: reader.eval(k.value) for k in given if k.arg in ("private", "name", "root")}
        return Options(**said)
    raise source.error(s, f"function {s.name} of a module is not a prim_func", "put @T.prim_func above it")


# -------------------------------------------------------------------------------- surroundings
def _surroundings(frame: FrameType | None, function: Any = None) -> dict[str, Any]:
    """The names that a script sees around it: globals, the locals where it is defined, its closure."""
    out: dict[str, Any] = {}
    if frame is not None:
        out.update(frame.f_globals)
        outer: list[FrameType] = []
        at: FrameType | None = frame
        while at is not None and at.f_code is not None and _is_class_body(at):
            outer.append(at)
            at = at.f_back
        if at is not None and at.f_globals is frame.f_globals:
            outer.append(at)
        for f in reversed(outer):
            out.update(f.f_locals)
    if function is not None:
        out.update(function.__globals__)
        if frame is not None:
            out.update(frame.f_locals)
        out.update(_closure(function))
    return out


def _closure(function: Any) -> dict[str, Any]:
    """The closure variables of a function; those that are not set yet (its own class) are skipped."""
    out: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            out[name] = cell.cell_contents
        except ValueError:
            continue
    return out


def _is_class_body(frame: FrameType) -> bool:
    return "__qualname__" in frame.f_locals and "__module__" in frame.f_locals


def _in_module_class(frame: FrameType | None) -> bool:
    """Whether the frame is the body of a class that is decorated with `@I.ir_module`."""
    if frame is None or not _is_class_body(frame):
        return False
    line = frame.f_code.co_firstlineno
    while True:
        text = linecache.getline(frame.f_code.co_filename, line).strip()
        if not text.startswith("@"):
            return False
        if text.split("(")[0].endswith("ir_module"):
            return True
        line += 1


# -------------------------------------------------------------------------------- decorators
@contextmanager
def _reported() -> Iterator[None]:
    """Tell a renderer of diagnostics, if one was chosen, of the error that ends the reading of a script."""
    try:
        yield
    except ScriptError as bad:
        report(bad.span or Span("<script>", 1), bad.reason)
        raise


def prim_func(
    func: Callable[..., Any] | None = None,
    private: bool = False,
    check_well_formed: bool = True,
    *,
    name: str | None = None,
    root: bool = True,
) -> Any:
    """`@T.prim_func`: parse a Python function into a PrimFunc.

    `name` is its name if that is not a Python identifier; `root=False` adds no root block.
    """
    options = Options(private, name, root)
    if func is None:
        frame = sys._getframe(1)
        return lambda f: _decorate(f, frame, options)
    return _decorate(func, sys._getframe(1), options)


def _decorate(func: Callable[..., Any], frame: FrameType, options: Options) -> Any:
    if not inspect.isfunction(func):
        raise TypeError(f"T.prim_func takes a Python function, not {func!r}")
    if _in_module_class(frame):
        return func
    with _reported():
        return parse_function(function_source(func.__code__), _surroundings(frame, func), options)


def ir_module(cls: type | None = None, check_well_formed: bool = True) -> Any:
    """`@I.ir_module`: the module that the functions of the class make up."""
    frame = sys._getframe(1)
    if cls is None:
        return lambda c: _decorate_class(c, frame)
    return _decorate_class(cls, frame)


def _decorate_class(cls: type, frame: FrameType) -> IRModule:
    if not inspect.isclass(cls):
        raise TypeError(f"I.ir_module takes a class, not {cls!r}")
    outside = _surroundings(frame)
    for m in vars(cls).values():
        if inspect.isfunction(m):
            outside.update(_closure(m))
    with _reported():
        return parse_class(class_source(cls, frame.f_lineno, frame.f_code.co_filename), outside)


def macro(func: Callable[..., Any] | None = None, hygienic: bool = True) -> Any:
    """`@T.macro`: a function whose body is expanded at each call."""
    if func is not None and not inspect.isfunction(func):
        raise ValueError(f"T.macro takes a function, not {func!r}; write @T.macro(hygienic={func!r})")
    frame = sys._getframe(1)

    def make(f: Callable[..., Any]) -> Macro:
        return Macro(function_source(f.__code__), _surroundings(frame, f), hygienic)

    return make if func is None else make(func)


def from_source(
    program: Any, extra_vars: Mapping[str, Any] | None = None, check_well_formed: bool = True
) -> Any:
    """The function or module that a text (or a Python function or class) describes.

    A text sees the names of `T` and `I`, a few functions of Python's own such as `len`, and `extra_vars`.
    """
    frame = sys._getframe(1)
    if inspect.isfunction(program):
        outside = {**_surroundings(frame, program), **(extra_vars or {})}
        return parse_function(function_source(program.__code__), outside)
    if inspect.isclass(program):
        outside = {**_surroundings(frame), **(extra_vars or {})}
        return parse_class(class_source(program, frame.f_lineno, frame.f_code.co_filename), outside)
    text = str(program)
    try:
        with _reported():
            return _read(text_source(text, Reach(extra_vars or {}, len(text))), extra_vars or {})
    except (RecursionError, MemoryError) as bad:
        raise ScriptError(f"<script>: the program is too large to be read ({type(bad).__name__})") from None


def _read(source: Source, extra_vars: Mapping[str, Any]) -> Any:
    """The function or module of a text."""
    names = {**_script_names(), **extra_vars}
    made: list[Any] = []
    for s in source.node.body:
        part = source.part(s)
        if isinstance(s, ast.FunctionDef):
            made_macro = macro_of(s, part, names)
            if made_macro is not None:
                names[s.name] = made_macro
            else:
                made.append(parse_function(part, names, _options(s, part, names)))
        elif isinstance(s, ast.ClassDef):
            made.append(parse_class(part, names))
        elif isinstance(s, (ast.Import, ast.ImportFrom)):
            _import(s, names, source)
        elif isinstance(s, ast.Assign):
            value = Evaluator(source, names).eval(s.value)
            for t in s.targets:
                if isinstance(t, ast.Name):
                    names[t.id] = value
    if len(made) != 1:
        raise ScriptError(f"the text holds {len(made)} functions or modules; one is expected")
    return made[0]


def _script_names() -> dict[str, Any]:
    """The names that are defined in every text."""
    package = __name__.split(".")[0]
    module = home_of("script")
    fixed = {n: getattr(module, n) for n in module.__all__ if n not in ("macro", "prim_func")}
    t = Namespace("T", lambda name: fixed[name] if name in fixed else lookup(name))
    i = Namespace("I", {"GlobalVar": GlobalVar, "module_attrs": ModuleAttrs})
    top = Namespace("tvm", {"script": Namespace("tvm.script", {"tir": t, "ir": i}), "tir": t, "ir": i})
    return {"T": t, "I": i, "tir": t, "tvm": top, package: top}


def _import(s: ast.Import | ast.ImportFrom, names: dict[str, Any], source: Source) -> None:
    """`from tvm.script import tir as T` and its like: names of this package only."""
    for alias in s.names:
        if (
            isinstance(s, ast.ImportFrom)
            and (s.module or "").endswith("script")
            and alias.name in ("tir", "ir")
        ):
            names[alias.asname or alias.name] = names["T" if alias.name == "tir" else "I"]
        elif isinstance(s, ast.Import) and alias.name.split(".")[0] in ("tvm", "tilewright"):
            names[alias.asname or alias.name.split(".")[0]] = names["tvm"]
        elif (s.module if isinstance(s, ast.ImportFrom) else alias.name) != "__future__":
            raise source.error(
                s, "a script text imports only tir and ir of tilewright.script", "pass others as extra_vars"
            )
