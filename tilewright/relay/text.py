"""Graph programs as text, in the classic form, which `parser.py` reads back.

    def @main(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {
      %0 = nn.relu(%x) /* ty=Tensor[(2, 3), float32] */;
      add(%0, 1f) /* ty=Tensor[(2, 3), float32] */
    }

Each call has a line and a number; shared expressions are written once. Arrays are in the metadata, as
`meta[relay.Constant][0]`. An expression is written in the innermost scope that contains all its uses.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..ir.deep import deep_programs
from ..ir.dtype import DataType
from ..ir.errors import TVMError
from ..ir.expr import Add, Cast, FloorDiv, FloorMod, IntImm, Max, Min, Mul, PrimExpr, Sub
from ..ir.expr import Var as SizeVar
from ..ir.module import GlobalVar, IRModule
from ..ir.op import Op
from ..ir.printer_names import free_name
from ..ir.span import SourceName
from .adt import Constructor, Match, PatternConstructor, PatternTuple, PatternVar, TypeData, pattern_vars
from .analysis import free_vars
from .expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from .ty import FuncType, RefType, TensorType, TupleType, TypeCall
from .visitor import ScopeTree, below, in_order

VERSION = "0.0.5"
_PLAIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_INFIX: dict[type, str] = {Add: " + ", Sub: " - ", Mul: " * "}
_NAMED: dict[type, str] = {FloorDiv: "floordiv", FloorMod: "floormod", Min: "min", Max: "max"}


def module_text(mod: IRModule, show_meta_data: bool = False, annotate: Any = None) -> str:
    """The module as text."""
    return _guarded(lambda: _module_text(mod, show_meta_data, annotate))


def _guarded(work: Callable[[], str]) -> str:
    """A text, with a higher recursion limit for nested scopes."""
    try:
        with deep_programs():
            return work()
    except RecursionError:
        raise TVMError("the program's scopes or types are nested more deeply than can be printed") from None


def _module_text(mod: IRModule, show_meta_data: bool, annotate: Any) -> str:
    p = _Printer(annotate)
    parts = [f'#[version = "{VERSION}"]'] if show_meta_data else []
    parts += [p.definition(data) for data in mod.type_definitions.values()]
    for gv, f in mod.functions.items():
        if isinstance(f, Function):
            parts.append("\n".join(p.function(f, f"def @{gv.name_hint}", 0)) + "\n")
        else:
            parts.append(f"/* @{gv.name_hint} is not a graph function:\n{f}\n*/\n")
    return "\n".join(parts) + (p.meta_text() if show_meta_data else "")


def expr_text(expr: Expr, show_meta_data: bool = False, annotate: Any = None) -> str:
    """An expression as text, with the variables that are free in it declared on top."""
    return _guarded(lambda: _expr_text(expr, show_meta_data, annotate))


def _expr_text(expr: Expr, show_meta_data: bool, annotate: Any) -> str:
    p = _Printer(annotate)
    lines = [f"free_var {p.typed(v)};" for v in free_vars(expr)]
    if isinstance(expr, Function):
        lines += p.function(expr, "fn ", 0)
    else:
        lines += p.block(expr, 0)
    text = "\n".join([f'#[version = "{VERSION}"]', *lines] if show_meta_data else lines)
    return text + ("\n" + p.meta_text() if show_meta_data and p.arrays else "")


def attrs_text(attrs: Any, spec: Mapping[str, Any] | None = None) -> list[str]:
    """Attributes as `name=value`, without most defaults."""
    if attrs is None:
        return []
    out = []
    for name, value in attrs.items():
        known = None if spec is None else spec.get(name)
        if known is not None and not known.printed and _equal_default(known.default, value):
            continue
        out.append(f"{name}={value_text(value)}")
    return out


def _equal_default(default: Any, value: Any) -> bool:
    if default is None or value is None:
        return default is value
    return str(default) == str(value)


def value_text(value: Any) -> str:
    """The value of an attribute."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, IntImm):
        return str(value.value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return f"{value!r}f64" if value == value and abs(value) != float("inf") else repr(value)
    if isinstance(value, str):
        return json.dumps(str(value))
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {value_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, PrimExpr):
        return _Printer().size(value)
    return json.dumps(str(value))


def _operands_first(at: Any) -> list[Any]:
    """The expressions below, in the order in which their lines are written: arguments before the function."""
    return [*at.args, at.op] if isinstance(at, Call) else below(at)


class _Scopes(ScopeTree):
    """The scope of each expression: the innermost one that contains all its uses."""

    def __init__(self, root: Expr) -> None:
        super().__init__()
        self.of: dict[Any, int] = {root: 0}
        self.inner: dict[tuple[Any, str], int] = {}  # the scopes that a node opens
        self.uses: dict[Any, int] = {root: 1}
        self.tail: set[Any] = {root}  # results of blocks, unless they have other uses
        order = in_order(root, _operands_first)
        for at in reversed(order):
            self.place_below(at)
        self.members: dict[int, list[Any]] = {}
        for at in order:
            self.members.setdefault(self.of[at], []).append(at)

    def use(self, at: Any, scope: int) -> None:
        known = self.of.get(at)
        self.of[at] = scope if known is None else self.common(known, scope)
        self.uses[at] = self.uses.get(at, 0) + 1

    def opened(self, at: Any, part: str, child: Any, parent: int) -> int:
        scope = self.inner[at, part] = self.new(parent)
        self.tail.add(child)
        self.use(child, scope)
        return scope

    def place_below(self, at: Any) -> None:
        scope = self.of[at]
        if isinstance(at, Function):
            for v in at.params:
                self.use(v, scope)
            self.opened(at, "body", at.body, scope)
        elif isinstance(at, If):
            self.use(at.cond, scope)
            self.opened(at, "true", at.true_branch, scope)
            self.opened(at, "false", at.false_branch, scope)
        elif isinstance(at, Match):
            self.use(at.data, scope)
            for i, clause in enumerate(at.clauses):
                inner = self.opened(at, f"clause {i}", clause.rhs, scope)
                for v in pattern_vars(clause.lhs):
                    self.use(v, inner)
        elif isinstance(at, Let):
            if not self.ends_block(at):  # a block of its own
                scope = self.inner[at, "let"] = self.new(scope)
            self.use(at.var, scope)
            self.tail.add(at.value)
            self.use(at.value, scope)
            self.opened(at, "body", at.body, scope)
        elif isinstance(at, Expr):
            for b in at.children():
                self.use(b, scope)
            if isinstance(at, Call) and not isinstance(at.op, Expr):
                self.use(at.op, scope)

    def ends_block(self, at: Any) -> bool:
        return at in self.tail and self.uses[at] == 1

    def has_line(self, at: Any) -> bool:
        """Whether the expression is written on a line of its own, under a number."""
        if isinstance(at, (Var, Constant, Constructor)) or not isinstance(at, Expr) or self.ends_block(at):
            return False
        return self.uses[at] > 1 or isinstance(at, (Call, If, Function, Let, Match, *_CELLS))


_CELLS: dict[type, str] = {RefCreate: "ref", RefRead: "ref_read", RefWrite: "ref_write"}


class _Printer:
    def __init__(self, annotate: Any = None) -> None:
        self.annotate = annotate
        self.names: dict[Var, str] = {}
        self.taken: set[str] = set()
        self.sizes: dict[SizeVar, str] = {}
        self.numbers: dict[Any, int] = {}
        self.arrays: dict[int, int] = {}
        self.kept: list[Constant] = []
        self.scopes: _Scopes

    # -- names and types ---------------------------------------------------------------------
    def name(self, v: Var) -> str:
        found = self.names.get(v)
        if found is None:
            base = v.name_hint or "v"
            found, i = base, 0
            while found in self.taken or found.isdigit():
                i += 1
                found = f"{base}_{i}" if not base.isdigit() else f"v{base}" + ("_" * (i - 1))
            self.taken.add(found)
            self.names[v] = found
        return f"%{found}" if _PLAIN.match(found) else f"%{json.dumps(found)}"

    def typed(self, v: Var) -> str:
        kind = v._checked_type if v.type_annotation is None else v.type_annotation
        return self.name(v) if kind is None else f"{self.name(v)}: {self.type(kind)}"

    def type(self, kind: Any) -> str:
        if isinstance(kind, TensorType):
            if not kind.shape:
                return str(kind.dtype)
            return f"Tensor[({', '.join(map(self.size, kind.shape))}), {kind.dtype}]"
        if isinstance(kind, TupleType):
            return f"({', '.join(map(self.type, kind.fields))}{',' if len(kind.fields) == 1 else ''})"
        if isinstance(kind, FuncType):
            params = f"[{', '.join(map(str, kind.type_params))}]" if kind.type_params else ""
            return f"fn {params}({', '.join(map(self.type, kind.arg_types))}) -> {self.type(kind.ret_type)}"
        if isinstance(kind, RefType):
            return f"ref({self.type(kind.value)})"
        if isinstance(kind, TypeCall):
            return f"{self.type(kind.func)}[{', '.join(map(self.type, kind.args))}]"
        return str(kind)

    def definition(self, data: TypeData) -> str:
        """The definition of a data type."""
        params = f"[{', '.join(map(str, data.type_vars))}]" if data.type_vars else ""
        rows = [
            f"  {c.name_hint}" + (f"({', '.join(map(self.type, c.inputs))})" if c.inputs else "") + ","
            for c in data.constructors
        ]
        return "\n".join([f"type {data.header.name_hint}{params} {{", *rows, "}\n"])

    def size(self, d: Any, inner: bool = False) -> str:
        if isinstance(d, SizeVar):
            return self.size_name(d)
        if isinstance(d, IntImm):
            return str(d.value)
        sign = _INFIX.get(d.__class__)
        if sign is not None:
            text = f"{self.size(d.a, True)}{sign}{self.size(d.b, True)}"
            return f"({text})" if inner else text
        named = _NAMED.get(d.__class__)
        if named is not None:
            return f"{named}({self.size(d.a)}, {self.size(d.b)})"
        if isinstance(d, Cast):
            return f"cast({self.size(d.value)}, {d.dtype})"
        return str(d)

    def size_name(self, v: SizeVar) -> str:
        found = self.sizes.get(v)
        if found is None:
            base = v.name if _PLAIN.match(v.name) and "." not in v.name else "n"
            found = self.sizes[v] = free_name(base, self.sizes.values())
        return found if str(v.dtype) == "int32" else f"{found}:{v.dtype}"

    # -- programs ----------------------------------------------------------------------------
    def function(self, f: Function, head: str, indent: int) -> list[str]:
        """A top-level function."""
        self.scopes = _Scopes(f)
        self.numbers = {}
        return self.function_lines(f, head, indent)

    def function_lines(self, f: Function, head: str, indent: int) -> list[str]:
        generic = f"[{', '.join(map(str, f.type_params))}]" if f.type_params else ""
        params = ", ".join([*map(self.typed, f.params), *attrs_text(f.attrs)])
        result = f" -> {self.type(f.ret_type)}" if f.ret_type is not None else ""
        lines = [f"{head}{generic}({params}){result} {{"]
        lines += self.scope(self.scopes.inner[f, "body"], f.body, indent + 1)
        lines.append("  " * indent + "}")
        return lines

    def block(self, root: Expr, indent: int) -> list[str]:
        """The lines of a top-level expression."""
        self.scopes = _Scopes(root)
        return self.scope(0, root, indent)

    def scope(self, scope: int, root: Any, indent: int) -> list[str]:
        """The lines of a block: numbered expressions, lets, and the value at its end."""
        out: list[str] = []
        pad = "  " * indent
        while True:
            for at in self.scopes.members.get(scope, ()):
                if self.scopes.has_line(at):
                    lines = self.whole(at, indent)
                    number = self.numbers[at] = len(self.numbers)
                    lines[0] = f"{pad}%{number} = {lines[0]}"
                    lines[-1] += ";"
                    out += lines
            if not (isinstance(root, Let) and self.scopes.ends_block(root)):
                break
            lines = self.ending(root.value, indent)
            out += [f"{pad}let {self.typed(root.var)} = {lines[0]}", *lines[1:]]
            out[-1] += ";"
            scope, root = self.scopes.inner[root, "body"], root.body
        lines = self.ending(root, indent)
        return [*out, pad + lines[0], *lines[1:]]

    def ending(self, at: Any, indent: int) -> list[str]:
        """The result of a block: inline if it has no other uses."""
        return self.whole(at, indent) if self.scopes.ends_block(at) else [self.atom(at)]

    def whole(self, at: Any, indent: int) -> list[str]:
        """An expression in terms of the numbers of its operands; lines after the first are indented."""
        if isinstance(at, Call):
            return [self.call(at) + self.comment(at)]
        if isinstance(at, Function):
            lines = self.function_lines(at, "fn ", indent)
            lines[-1] += self.comment(at)
            return lines
        if isinstance(at, If):
            lines = [f"if ({self.atom(at.cond)}) {{"]
            lines += self.scope(self.scopes.inner[at, "true"], at.true_branch, indent + 1)
            lines.append("  " * indent + "} else {")
            lines += self.scope(self.scopes.inner[at, "false"], at.false_branch, indent + 1)
            return [*lines, "  " * indent + "}" + self.comment(at)]
        if isinstance(at, Match):
            lines = [f"match{'' if at.complete else '?'} ({self.atom(at.data)}) {{"]
            for i, clause in enumerate(at.clauses):
                lines.append("  " * (indent + 1) + f"{self.pattern(clause.lhs)} => {{")
                lines += self.scope(self.scopes.inner[at, f"clause {i}"], clause.rhs, indent + 2)
                lines.append("  " * (indent + 1) + "},")
            return [*lines, "  " * indent + "}" + self.comment(at)]
        if at.__class__ in _CELLS:
            cell: Any = at
            inner = ", ".join(map(self.atom, cell.children()))
            return [f"{_CELLS[at.__class__]}({inner})" + self.comment(cell)]
        if isinstance(at, Let):
            self.scopes.tail.add(at)
            uses, self.scopes.uses[at] = self.scopes.uses[at], 1  # inside its braces it ends the block
            lines = ["(", *self.scope(self.scopes.inner[at, "let"], at, indent + 1), "  " * indent + ")"]
            self.scopes.uses[at] = uses
            return lines
        return [self.atom(at, written=True)]

    def pattern(self, at: Any) -> str:
        if isinstance(at, PatternVar):
            return self.typed(at.var)
        inner = ", ".join(map(self.pattern, getattr(at, "patterns", ())))
        if isinstance(at, PatternConstructor):
            return at.constructor.name_hint + (f"({inner})" if inner else "")
        return f"({inner})" if isinstance(at, PatternTuple) else "_"

    def call(self, at: Call) -> str:
        if isinstance(at.op, Constructor) and not at.op.inputs:
            return at.op.name_hint
        spec = getattr(at.op, "spec", None)
        known = at._checked_type is not None
        args = [
            f"{self.constant(a)} /* ty={self.type(a.checked_type)} */"
            if known and isinstance(a, Constant) and a.is_scalar
            else self.atom(a)
            for a in at.args
        ]
        op = at.op.name if isinstance(at.op, Op) else self.atom(at.op)
        return f"{op}({', '.join([*args, *attrs_text(at.attrs, spec)])})"

    def comment(self, at: Expr) -> str:
        if self.annotate is not None:
            return f" /* {self.annotate(at)} */"
        said = [] if at._checked_type is None else [f"ty={self.type(at._checked_type)}"]
        if at.span is not None and isinstance(at.span.source_name, SourceName):
            said.append(f"span={at.span.source_name}:{at.span.line}:{at.span.column}")
        return f" /* {' '.join(said)} */" if said else ""

    def atom(self, at: Any, written: bool = False) -> str:
        """An expression in the middle of a line."""
        if isinstance(at, Var):
            return self.name(at)
        if isinstance(at, Constant):
            return self.constant(at)
        if isinstance(at, GlobalVar):
            return f"@{at.name_hint}"
        if isinstance(at, (Op, Constructor)):
            return at.name
        if at in self.numbers and not written:
            return f"%{self.numbers[at]}"
        if isinstance(at, Tuple):
            return f"({', '.join(map(self.atom, at.fields))}{',' if len(at.fields) == 1 else ''})"
        if isinstance(at, TupleGetItem):
            return f"{self.atom(at.tuple_value)}.{at.index}"
        raise AssertionError(f"{type(at).__name__} in the middle of a line")

    # -- constants ---------------------------------------------------------------------------
    def constant(self, at: Constant) -> str:
        if at.is_scalar:
            text = _scalar_text(at)
            if text is not None:
                return text
        number = self.arrays.get(id(at))
        if number is None:
            number = self.arrays[id(at)] = len(self.kept)
            self.kept.append(at)
        comment = f" /* ty={self.type(at.checked_type)} */"
        return f"meta[relay.Constant][{number}]{comment}"

    def meta_text(self) -> str:
        if not self.kept:
            return ""
        rows = []
        for at in self.kept:
            values = at.data.numpy()
            raw = base64.b64encode(values.tobytes()).decode()
            rows.append({"dtype": str(at.data.dtype), "shape": list(values.shape), "data": raw})
        return "\n#[metadata]\n" + json.dumps({"relay.Constant": rows}) + "\n"


def _scalar_text(at: Constant) -> str | None:
    """A scalar constant as a literal, or None."""
    kind = DataType(str(at.data.dtype))
    value = at.data.numpy().item()
    if kind.is_bool:
        return str(bool(value))
    if str(kind) in ("float16", "float32", "float64"):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        text = str(at.data.numpy()[()]).removesuffix(".0")
        return f"{text}f" if kind.bits == 32 else f"{text}f{kind.bits}"
    if kind.is_int:
        return str(value) if kind.bits == 32 else f"{value}i{kind.bits}"
    return f"{value}u{kind.bits}" if kind.is_uint else None
