"""Programs as text: the script form, valid Python in the dialect of `T` and `I` that parses back."""

from __future__ import annotations

import sys
from typing import Any

from .buffer import Buffer
from .deep import deep_programs
from .equal import structural_equal
from .expr import Var
from .expr_text import quoted
from .function import PrimFunc
from .functor import pre_order
from .module import GlobalVar, IRModule
from .node import Node
from .printer_expr import MARK_END, MARK_START, ScriptExpr
from .printer_names import function_names
from .printer_stmt import MARK_LINE, ScriptStmt, block_is_implicit_root, needs_root
from .sharing import check_written_out, too_shared
from .stmt import Stmt
from .types import PointerType, PrimType, TupleType

# Options of the classic printer that change nothing here.
_WITHOUT_EFFECT = {
    "verbose_expr",
    "show_object_address",
    "show_all_struct_info",
    "num_context_lines",
    "module_alias",
    "binding_names",
    "black_format",
}
_PACKAGE = __package__.split(".")[0] if __package__ else "tilewright"


def expr_text(expr: Any) -> str:
    """An expression in one line, as short as it can be said."""
    reason = too_shared(expr) if isinstance(expr, Node) else ""
    if reason:
        return f"<{reason}>"
    with deep_programs():
        return ScriptExpr().expr(expr)


class _ScriptFunc(ScriptStmt):
    """Prints functions, modules and all other nodes."""

    declares = False  # whether the free variables of an expression are declared before it

    def any(self, obj: Any, name: str | None) -> None:
        if isinstance(obj, IRModule):
            self.module(obj, name or "Module")
        elif isinstance(obj, PrimFunc):
            self.functions = {}
            self.function(obj, str(obj.attrs.get("global_symbol", "main")) if name is None else name)
        elif isinstance(obj, Stmt):
            self.prepare(obj)
            self.declare_free(obj)
            self.body(obj)
        elif isinstance(obj, Buffer):
            args = ", ".join(self.buffer_args(obj, always_dtype=True))
            self.emit(f"{self.t}.Buffer({args})", obj)
        elif isinstance(obj, GlobalVar):
            self.emit(f"{self.i}.GlobalVar({quoted(obj.name_hint)})", obj)
        else:
            self.taken_out = None
            if self.declares:
                self.prepare(obj)
                self.declare_free(obj)
            self.emit(self.expr(obj), obj)

    def module(self, mod: IRModule, name: str) -> None:
        self.module_name = name
        self.names.taken.add(name)
        self.functions = function_names([gv.name_hint for gv in mod.functions], self.t, self.i)
        self.emit(f"@{self.i}.ir_module")
        self.emit(f"class {name}:")
        self.depth += 1
        if mod.attrs:
            held, self.taken_out = self.taken_out, None
            self.emit(f"{self.i}.module_attrs({self.value(mod.attrs)})")
            self.taken_out = held
        first = not mod.attrs
        for gv, func in sorted(mod.functions.items(), key=lambda item: item[0].name_hint):
            if not first:
                self.lines.append("")
            first = False
            if isinstance(func, PrimFunc):
                self.function(func, gv.name_hint)
            else:
                self.emit(f"# {quoted(gv.name_hint)}: a function of type {type(func).__name__}")
        if not mod.functions and not mod.attrs:
            self.emit("pass")
        self.depth -= 1

    def function(self, func: PrimFunc, name: str) -> None:
        own = (self.functions or {}).get(name) or function_names([name], self.t, self.i)[name]
        self.emit(f"@{self.t}.prim_func{self._options(func, name, own)}", func)
        with self.names.scope():
            inline = self._inline_buffers(func)
            params = ", ".join(self._param(func, p, inline) for p in func.params)
            result = "" if func.ret_type == TupleType() else f" -> {self.type_text(func.ret_type)}"
            with self.inner(f"def {own}({params}){result}:", func):
                start, self.top, self.suites = len(self.lines), self.depth, []
                self._function_body(func, name, inline)
                self.lines[start:start] = [line for suite in self.suites for line in suite]
                self.suites = None

    def _options(self, func: PrimFunc, name: str, own: str) -> str:
        """The arguments of the decorator that the definition cannot express."""
        args = []
        if func.attrs.get("global_symbol") is None:
            args.append("private=True")
        if own != name:
            args.append(f"name={quoted(name)}")
        if needs_root(func.body) and not block_is_implicit_root(func.body):
            args.append("root=False")
        return f"({', '.join(args)})" if args else ""

    def _inline_buffers(self, func: PrimFunc) -> set[Buffer]:
        """The buffers that a signature can declare: contiguous, of constant shape, with memory of their own."""
        params = set(func.params)
        handles_used = {n for n in pre_order(func.body) if isinstance(n, Var) and n in params}
        seen: set[Var] = set()
        out: set[Buffer] = set()
        for p in func.params:
            b = func.buffer_map.get(p)
            if b is None:
                continue
            if _is_simple(b) and p not in handles_used and b.data not in seen and b.data not in params:
                if p.type_annotation == PointerType(PrimType("void")) and b not in out:
                    out.add(b)
            seen.add(b.data)
        return out

    def _param(self, func: PrimFunc, p: Var, inline: set[Buffer]) -> str:
        b = func.buffer_map.get(p)
        if b is not None and b in inline:
            text = f"{self.t}.Buffer({', '.join(self.buffer_args(b, always_dtype=True))})"
            self.names.alias(p, f"{b.name}_handle")
            return f"{self.define_buffer(b)}: {text}"
        hint = f"var_{b.name}" if b is not None and p.name == b.name else p.name
        name = self.names.define(p, hint)
        return f"{self.marked(p, name)}: {self.type_text(p.type_annotation)}"

    def _function_body(self, func: PrimFunc, name: str, inline: set[Buffer]) -> None:
        attrs = {k: v for k, v in func.attrs.items() if k != "global_symbol" or v != name}
        if attrs:
            self.emit(f"{self.t}.func_attr({self.value(attrs)})")
        self.prepare(func.body, func.buffer_map.values())
        for p in func.params:
            b = func.buffer_map.get(p)
            if b is not None and b not in inline:
                self.declare_buffer(b, "match_buffer", self.name_of(p))
        self.declare_free(func)
        if self.sugar and block_is_implicit_root(func.body):
            root: Any = func.body
            self.emit(f'# with {self.t}.block("root"):', root, root.block)
            self.allocations(root.block)
            self.body(root.block.body)
        else:
            self.body(func.body)


def _is_simple(b: Buffer) -> bool:
    """Whether shape, dtype and name describe a buffer completely."""
    from .expr import IntImm

    return (
        all(isinstance(d, IntImm) for d in b.shape)
        and not b.strides
        and structural_equal(b.elem_offset, IntImm(b.shape[0].dtype if b.shape else "int32", 0))
        and b.data_alignment == 64
        and b.offset_factor == 1
        and not b.axis_separators
        and b.data.type_annotation == PointerType(PrimType(b.dtype), "global")
    )


def _render(
    obj: Any,
    *,
    target: Any = None,
    name: str | None = None,
    show_meta: bool = False,
    syntax_sugar: bool = True,
    tir_prefix: str = "T",
    ir_prefix: str = "I",
    indent_spaces: int = 4,
    print_line_numbers: bool = False,
    declare_free: bool = False,
    **others: Any,
) -> list[str]:
    unknown = sorted(set(others) - _WITHOUT_EFFECT)
    if unknown:
        raise TypeError(f"script has no option {unknown[0]!r}")
    printer = _ScriptFunc(tir_prefix, target, indent_spaces, syntax_sugar)
    printer.i = ir_prefix
    printer.declares = declare_free
    head_t = f"# from {_PACKAGE}.script import tir as {tir_prefix}"
    head: list[str] = []
    if isinstance(obj, IRModule):
        head = [f"# from {_PACKAGE}.script import ir as {ir_prefix}", head_t, ""]
    elif isinstance(obj, PrimFunc):
        head = [head_t, ""]
    for part in obj.functions.values() if isinstance(obj, IRModule) else (obj,):
        if isinstance(part, Node):
            check_written_out(part, "this program cannot be printed")
    with deep_programs():
        printer.any(obj, name)
    if isinstance(obj, PrimFunc) and any(f"{ir_prefix}.GlobalVar(" in line for line in printer.lines):
        head.insert(0, f"# from {_PACKAGE}.script import ir as {ir_prefix}")
    lines = head + printer.lines
    if print_line_numbers:
        width = len(str(len(lines)))
        lines = [f"{i:>{width}} {line}".rstrip() for i, line in enumerate(lines, 1)]
    return lines


def script(obj: Any, **options: Any) -> str:
    """A module, function, statement, expression or buffer in the script form.

    Options: `name` for the function or class, `tir_prefix`, `ir_prefix`, `indent_spaces`,
    `print_line_numbers`, `syntax_sugar=False` to write every loop, axis and root block in full, and
    `declare_free=True` to declare the free variables of an expression before it.
    """
    return "\n".join(_render(obj, **options))


def script_marked(root: Any, node: Any) -> str:
    """The program with `node` underlined; if it does not occur in the text, `node` itself follows."""
    out: list[str] = []
    found = False
    for line in _render(root, target=node):
        plain, under = _split_marks(line)
        out.append(plain)
        if under:
            found = True
            out.append(under)
    if not found:
        out += ["in which this was looked for:", _short(node)]
    return "\n".join(out)


def script_lines(root: Any, node: Any) -> tuple[list[str], int | None]:
    """The lines of a program, and the first one that `node` is on (None if it does not occur)."""
    pairs = [_split_marks(line) for line in _render(root, target=node)]
    return [plain for plain, _ in pairs], next((i for i, (_, under) in enumerate(pairs) if under), None)


def _split_marks(line: str) -> tuple[str, str]:
    """A line without its marks, and the line of ^^^^ below it."""
    if MARK_LINE in line:
        line = line.replace(MARK_LINE, "").replace(MARK_START, "").replace(MARK_END, "")
        indent = len(line) - len(line.lstrip())
        return line, " " * indent + "^" * (len(line) - indent)
    if MARK_START not in line:
        return line, ""
    plain: list[str] = []
    under: list[str] = []
    depth = 0
    for c in line:
        if c == MARK_START:
            depth += 1
        elif c == MARK_END:
            depth -= 1
        else:
            plain.append(c)
            under.append("^" if depth else " ")
    return "".join(plain), "".join(under).rstrip()


def _short(node: Any) -> str:
    try:
        return script(node)
    except TypeError:
        return repr(node)


def show(obj: Any, style: str | None = None, black_format: bool = False, **options: Any) -> None:
    """Print the script, coloured on a terminal."""
    text = script(obj, **options)
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    theme = {None: "ansi_dark", "light": "ansi_light", "dark": "ansi_dark"}.get(style, style or "ansi_dark")
    Console(soft_wrap=True).print(Syntax(text, "python", theme=theme, background_color="default"))
