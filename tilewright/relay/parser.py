"""The parser of the text form of graph programs.

mod   = relay.parse(mod.astext())
expr  = relay.parse_expr("free_var %x: Tensor[(3,), float32]; nn.relu(%x)")
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ..ir import ops
from ..ir.deep import deep_programs
from ..ir.dtype import DataType
from ..ir.errors import DiagnosticError, ScriptError, TVMError, near_matches
from ..ir.expr import SizeVar
from ..ir.module import GlobalVar, IRModule
from ..ir.op import graph_operators
from ..ir.serialize import read_json, register_graph_reader
from ..ir.span import Span
from .adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
    pattern_vars,
)
from .expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from .ty import Any as AnySize
from .ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)


class ParseError(ScriptError, DiagnosticError):
    """A text that is not a graph program."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKENS = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*|\#\[version[^\]]*\])
  | (?P<metadata>\#\[metadata\])
  | (?P<temp>%\d+)
  | (?P<var>%[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|%"(?:[^"\\]|\\.)*")
  | (?P<global>@[A-Za-z_][\w.]*)
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:(?:f|i|u)\d*)?(?![\w]))
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
  | (?P<sign>->|=>|==|!=|<=|>=|[-+*/<>=(){}\[\],;:.?%])
    """,
    re.VERBOSE | re.DOTALL,
)
_LEVELS: tuple[dict[str, str], ...] = (
    {"==": "equal", "!=": "not_equal"},
    {"<": "less", ">": "greater", "<=": "less_equal", ">=": "greater_equal"},
    {"+": "add", "-": "subtract"},
    {"*": "multiply", "/": "divide"},
)

_CELLS: dict[str, Callable[..., Any]] = {"ref": RefCreate, "ref_read": RefRead, "ref_write": RefWrite}

_SIZE_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": ops.floordiv,
    "floormod": ops.floormod,
    "min": ops.min_of,
    "max": ops.max_of,
}


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: Any = None,
    init_meta_table: Any = None,
    overwrite: bool = True,
) -> IRModule:
    """Parse a module. Without `overwrite`, what `init_module` has already is kept, and is no error."""
    reader = _Reader(source, source_name, init_meta_table)
    reader.overwrite = overwrite
    return reader.guarded(lambda: reader.module(init_module))


def parse_expr(source: str) -> Any:
    """Parse an expression."""
    reader = _Reader(source, "from_string", None)
    return reader.guarded(reader.whole_expr)


def fromtext(data: str, source_name: str | None = None) -> Any:
    """A module, or the expression if the text has no `def`."""
    name = source_name or "from_string"
    reader = _Reader(data, name, None)
    if reader.peek().text in ("def", "type", "extern"):
        return reader.guarded(lambda: reader.module(None))
    return reader.guarded(reader.whole_expr)


def _from_json(text: str, globals_: dict[str, GlobalVar]) -> Any:
    """An expression that was stored as text in JSON; its global names are those of the enclosing module."""
    reader = _Reader(text, "json", None)
    reader.globals = globals_
    return reader.guarded(reader.whole_expr)


register_graph_reader(_from_json)


class _Reader:
    def __init__(self, source: str, source_name: str, meta: Any) -> None:
        self.source, self.source_name = source, source_name
        self.tokens: list[_Token] = []
        self.pos = 0
        self.meta: dict[str, Any] = dict(meta or {})
        self.arrays: dict[int, Constant] = {}
        self.vars: list[dict[str, Any]] = [{}]
        self.temps: dict[str, Any] = {}
        self.globals: dict[str, GlobalVar] = {}
        self.sizes: dict[str, SizeVar] = {}
        self.generic: dict[str, TypeVar] = {}
        self.data: dict[str, GlobalTypeVar] = {}
        self.constructors: dict[str, Constructor] = {}
        self.overwrite = True
        self.scan()

    # -- tokens ------------------------------------------------------------------------------
    def scan(self) -> None:
        at = 0
        while at < len(self.source):
            if self.source.startswith("/*", at):
                at = self.after_comment(at)
                continue
            found = _TOKENS.match(self.source, at)
            if found is None:
                raise self.error(f"{self.source[at]!r} begins nothing known", at)
            kind = str(found.lastgroup)
            if kind == "metadata":
                try:
                    self.meta = read_json(self.source[found.end() :], "the metadata", ValueError)
                except ValueError as error:
                    raise self.error(str(error), at) from None
                break
            if kind != "skip":
                self.tokens.append(_Token(kind, found.group(), at))
            at = found.end()
        self.tokens.append(_Token("end", "the end of the text", len(self.source)))

    def after_comment(self, at: int) -> int:
        """The end of a comment, which may have others in it."""
        depth = 0
        for found in re.finditer(r"/\*|\*/", self.source[at:]):
            depth += 1 if found.group() == "/*" else -1
            if depth == 0:
                return at + found.end()
        raise self.error("a comment has no end: */", at)

    def error(self, reason: str, at: int | None = None) -> ParseError:
        at = self.tokens[min(self.pos, len(self.tokens) - 1)].at if at is None else at
        row = self.source.count("\n", 0, at)
        line = self.source.splitlines()[row] if self.source.splitlines()[row:] else ""
        column = at - (self.source.rfind("\n", 0, at) + 1)
        where = f"{self.source_name}:{row + 1}:{column + 1}"
        return ParseError(f"{reason}\n  at {where}\n  | {line[:200]}\n  | {' ' * min(column, 200)}^")

    def guarded(self, work: Callable[[], Any]) -> Any:
        try:
            with deep_programs():
                return work()
        except RecursionError:
            raise self.error("the text is nested too deep; give inner expressions numbers: %0 = …;") from None
        except ParseError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, TVMError) as error:
            raise self.error(f"{error}") from error

    def peek(self, ahead: int = 0) -> _Token:
        return self.tokens[min(self.pos + ahead, len(self.tokens) - 1)]

    def next(self) -> _Token:
        found = self.peek()
        self.pos += 1
        return found

    def accept(self, text: str) -> bool:
        found = self.peek()
        if found.text == text and found.kind in ("sign", "name"):
            self.pos += 1
            return True
        return False

    def expect(self, *texts: str) -> None:
        for text in texts:
            if not self.accept(text):
                raise self.error(f"{text!r} was expected before {self.peek().text!r}")

    def listed(self, end: str, one: Callable[[], Any]) -> list[Any]:
        """`a, b, c` up to the sign that ends it; a comma may stand before that."""
        out = []
        while not self.accept(end):
            out.append(one())
            if not self.accept(","):
                self.expect(end)
                break
        return out

    # -- programs ----------------------------------------------------------------------------
    def module(self, init: Any) -> IRModule:
        mod = IRModule() if init is None else init.clone()
        self.globals = {gv.name_hint: gv for gv in mod.functions}
        self.data = {t.name_hint: t for t in mod.type_definitions}
        for data in mod.type_definitions.values():
            self.constructors.update((c.name_hint, c) for c in data.constructors)
        for before, token in zip(self.tokens, self.tokens[1:], strict=False):  # a type may name a later one
            if before.text == "type" and token.kind == "name":
                self.data.setdefault(token.text, GlobalTypeVar(token.text))
        while self.peek().text in ("type", "extern"):
            self.definition(mod)
        while self.accept("def"):
            token = self.next()
            if token.kind != "global":
                raise self.error("the name of a function was expected: @main", token.at)
            self.temps, self.vars = {}, [{}]
            name = token.text[1:]
            known = name in mod
            if known and self.overwrite:
                raise self.error(f"there are two functions {token.text}", token.at)
            gv = self.globals.setdefault(name, GlobalVar(name))
            made = self.function(token.at)
            if not known:
                mod[gv] = made
        if self.peek().kind != "end":
            raise self.error(f"`def` was expected, not {self.peek().text!r}")
        for name, gv in self.globals.items():
            if gv not in mod:
                raise self.error(f"@{name} is called and not defined{near_matches(name, self.names(mod))}", 0)
        return mod

    def definition(self, mod: IRModule) -> None:
        """A data type: `type List[A] { Cons(A, List[A]), Nil }`, or `extern type T`, which has no constructors."""
        extern = self.accept("extern")
        self.expect("type")
        token = self.next()
        header = self.data[token.text]
        known = header in mod
        if known and self.overwrite:
            raise self.error(f"there are two types {token.text}", token.at)
        if known:  # it is read over, and what the module has stays
            self.constructors = {n: c for n, c in self.constructors.items() if c.belong_to is not header}
        kept, made = dict(self.generic), []
        generic = self.type_params()
        if not extern:
            self.expect("{")
            made = self.listed("}", lambda: self.constructor(header))
        self.accept(";")
        self.generic = kept
        if known:
            self.constructors.update((c.name_hint, c) for c in mod[header].constructors)
        else:
            mod[header] = TypeData(header, generic, made)

    def constructor(self, header: GlobalTypeVar) -> Constructor:
        token = self.next()
        if token.kind != "name" or token.text in self.constructors:
            known = "is defined twice" if token.kind == "name" else "is not the name of a constructor"
            raise self.error(f"{token.text!r} {known}", token.at)
        inputs = self.listed(")", self.type) if self.accept("(") else []
        made = self.constructors[token.text] = Constructor(token.text, inputs, header)
        return made

    @staticmethod
    def names(mod: IRModule) -> list[str]:
        return [gv.name_hint for gv in mod.functions]

    def whole_expr(self) -> Any:
        while self.accept("free_var"):
            self.bind(self.declared())
            self.accept(";")
        made = self.block("")
        if self.peek().kind != "end":
            raise self.error(f"nothing was expected after the expression, not {self.peek().text!r}")
        return made

    def function(self, at: int) -> Function:
        """What stands after `fn` or the name: <T>(%x: type, attr=1) -> type { … }."""
        kept = dict(self.generic)
        params: list[Var] = []
        attrs: dict[str, Any] = {}
        generic = self.type_params()
        self.expect("(")
        self.vars.append({})

        def one() -> None:
            if self.peek().kind == "var":
                params.append(self.declared())
                self.bind(params[-1])
            else:
                attrs.update([self.attr_pair("=")])

        self.listed(")", one)
        result = self.type() if self.accept("->") else None
        self.expect("{")
        body = self.block("}")
        self.vars.pop()
        self.generic = kept
        return Function(params, body, result, generic, attrs, self.span(at))

    def span(self, at: int) -> Span:
        return Span(self.source_name, self.source.count("\n", 0, at) + 1 if len(self.source) < 10_000 else 0)

    def type_params(self) -> list[TypeVar]:
        """`[A, B]` before the parameters of a function."""
        if self.accept("["):
            return self.listed("]", self.type_param)
        return self.listed(">", self.type_param) if self.accept("<") else []

    def type_param(self) -> TypeVar:
        name = self.next().text
        made = self.generic[name] = TypeVar(name)
        return made

    def declared(self) -> Var:
        token = self.next()
        if token.kind != "var":
            raise self.error("a variable was expected: %x", token.at)
        kind = self.type() if self.accept(":") else None
        return Var(_var_name(token.text), kind)

    def bind(self, v: Var) -> None:
        self.vars[-1][v.name_hint] = v

    def block(self, end: str) -> Any:
        """Numbered lines and lets, and the value at the end."""
        lets: list[tuple[Var, Any]] = []
        self.vars.append({})
        while True:
            token = self.peek()
            if token.kind == "temp" and self.peek(1).text == "=" and self.peek(1).kind == "sign":
                self.pos += 2
                self.temps[token.text] = self.expr()
                self.expect(";")
            elif token.kind == "name" and token.text == "let":
                self.pos += 1
                v = self.declared()
                self.expect("=")
                named_function = self.peek().text == "fn"
                if named_function:
                    self.bind(v)  # it may call itself
                value = self.expr()
                self.bind(v)
                self.expect(";")
                lets.append((v, value))
            else:
                value = self.expr()
                if self.peek().text != ";" or self.peek(1).text == end or self.peek(1).kind == "end":
                    made = value
                    break
                self.pos += 1  # a value that is computed for its effect
                lets.append((Var("_"), value))
        if end:
            self.accept(";")
            self.expect(end)
        self.vars.pop()
        for v, value in reversed(lets):
            made = Let(v, value, made)
        return made

    # -- expressions -------------------------------------------------------------------------
    def expr(self, level: int = 0) -> Any:
        if level == len(_LEVELS):
            return self.postfix()
        made = self.expr(level + 1)
        while self.peek().kind == "sign" and self.peek().text in _LEVELS[level]:
            name = _LEVELS[level][self.next().text]
            made = Call(graph_operators[name], [made, self.expr(level + 1)])
        return made

    def postfix(self) -> Any:
        made = self.primary()
        while True:
            if self.accept("("):
                made = self.call(made)
            elif self.peek().text == "." and self.peek(1).kind == "number":
                self.pos += 1
                for part in self.next().text.split("."):  # %0.1.0 reads as 1.0
                    made = TupleGetItem(made, int(part))
            else:
                return made

    def call(self, op: Any) -> Call:
        at = self.peek().at
        args: list[Any] = []
        attrs: dict[str, Any] = {}

        def one() -> None:
            if self.peek().kind in ("name", "string") and self.peek(1).text == "=":
                attrs.update([self.attr_pair("=")])
            else:
                args.append(self.expr())

        self.listed(")", one)
        return Call(op, args, attrs or None, None, self.span(at))

    def primary(self) -> Any:
        token = self.next()
        if token.kind == "temp":
            if token.text not in self.temps:
                raise self.error(f"{token.text} is not defined here", token.at)
            return self.temps[token.text]
        if token.kind == "var":
            return self.lookup(token)
        if token.kind == "global":
            name = token.text[1:]
            return self.globals.setdefault(name, GlobalVar(name))
        if token.kind == "number":
            return _number(token.text, 1)
        if token.kind == "sign":
            return self.bracketed(token)
        if token.kind == "name":
            return self.named(token)
        raise self.error(f"an expression was expected, not {token.text!r}", token.at)

    def lookup(self, token: _Token) -> Any:
        name = _var_name(token.text)
        for table in reversed(self.vars):
            if name in table:
                return table[name]
        known = [n for table in self.vars for n in table]
        raise self.error(f"variable {token.text} is not defined{near_matches(name, known)}", token.at)

    def bracketed(self, token: _Token) -> Any:
        if token.text == "(":
            if self.accept(")"):
                return Tuple([])
            if self.peek().text == "let" or (self.peek().kind == "temp" and self.peek(1).text == "="):
                return self.block(")")
            first = self.expr()
            if self.accept(")"):
                return first
            self.expect(",")
            return Tuple([first, *self.listed(")", self.expr)])
        if token.text == "{":
            return self.block("}")
        if token.text == "-":
            if self.peek().kind == "number":
                return _number(self.next().text, -1)
            inner = self.postfix()
            if isinstance(inner, Constant) and inner.is_scalar:
                return const(-inner.numpy(), inner.data.dtype)
            return Call(graph_operators["negative"], [inner])
        raise self.error(f"an expression was expected, not {token.text!r}", token.at)

    def named(self, token: _Token) -> Any:
        if token.text in ("True", "False"):
            return const(token.text == "True", "bool")
        if token.text == "fn":
            return self.function(token.at)
        if token.text == "if":
            self.expect("(")
            cond = self.expr()
            self.expect(")", "{")
            yes = self.block("}")
            self.expect("else", "{")
            return If(cond, yes, self.block("}"))
        if token.text == "match":
            return self.match()
        if token.text in _CELLS and self.accept("("):
            return _CELLS[token.text](*self.listed(")", self.expr), span=self.span(token.at))
        if token.text in self.constructors:
            made = self.constructors[token.text]
            if made.inputs:
                return made
            if self.accept("("):
                self.expect(")")
            return Call(made, [], None, None, self.span(token.at))
        if token.text == "meta" and self.peek().text == "[":
            return self.array()
        op = graph_operators.get(token.text)
        if op is None:
            raise self.error(
                f"no operator is named {token.text!r}{near_matches(token.text, graph_operators)[:300]}",
                token.at,
            )
        return op

    def match(self) -> Match:
        """What stands after `match`: `(data) { pattern => value, … }`; `match?` need not be complete."""
        complete = not self.accept("?")
        self.expect("(")
        data = self.expr()
        self.expect(")", "{")
        return Match(data, self.listed("}", self.clause), complete)

    def clause(self) -> Clause:
        lhs = self.pattern()
        self.expect("=>")
        self.vars.append({v.name_hint: v for v in pattern_vars(lhs)})
        rhs = self.expr()
        self.vars.pop()
        return Clause(lhs, rhs)

    def pattern(self) -> Pattern:
        token = self.peek()
        if token.kind == "var":
            return PatternVar(self.declared())
        self.pos += 1
        if token.text == "_":
            return PatternWildcard()
        if token.text == "(":
            return PatternTuple(self.listed(")", self.pattern))
        if token.text not in self.constructors:
            raise self.error(
                f"no constructor is named {token.text!r}{near_matches(token.text, self.constructors)}",
                token.at,
            )
        inner = self.listed(")", self.pattern) if self.accept("(") else []
        return PatternConstructor(self.constructors[token.text], inner)

    def array(self) -> Constant:
        self.expect("[")
        kind = self.next().text
        self.expect("]", "[")
        number = int(self.next().text)
        self.expect("]")
        rows = self.meta.get(kind)
        if rows is None or number >= len(rows):
            raise self.error(
                f"the text has no metadata for meta[{kind}][{number}]: print it with show_meta_data"
            )
        if number not in self.arrays:
            self.arrays[number] = _constant(rows[number])
        return self.arrays[number]

    # -- attributes --------------------------------------------------------------------------
    def attr_name(self) -> str:
        token = self.next()
        if token.kind not in ("name", "string"):
            raise self.error(f"the name of an attribute was expected, not {token.text!r}", token.at)
        return json.loads(token.text) if token.kind == "string" else token.text

    def attr_value(self) -> Any:
        token = self.next()
        if token.kind == "string":
            return json.loads(token.text)
        if token.kind == "number" or token.text == "-":
            if token.text == "-" and self.peek().kind == "name":
                return -self.attr_value()
            text = token.text if token.kind == "number" else self.next().text
            value, sign = _plain_number(text), -1 if token.text == "-" else 1
            return value * sign
        if re.fullmatch(r"(inf|nan)(f\d*)?", token.text):
            return float(token.text[:3])
        if token.text in ("True", "False", "None"):
            return {"True": True, "False": False, "None": None}[token.text]
        if token.text == "[":
            return tuple(self.listed("]", self.attr_value))
        if token.text == "(":
            return tuple(self.listed(")", self.attr_value))
        if token.text == "{":
            return dict(self.listed("}", self.attr_pair))
        if token.text == "?":
            return AnySize()
        if token.kind == "name":
            self.pos -= 1
            return self.size()
        raise self.error(f"the value of an attribute was expected, not {token.text!r}", token.at)

    def attr_pair(self, sign: str = ":") -> tuple[str, Any]:
        name = self.attr_name()
        self.expect(sign)
        return name, self.attr_value()

    # -- types -------------------------------------------------------------------------------
    def type(self) -> Type:
        token = self.next()
        if token.text == "(":
            return TupleType(tuple(self.listed(")", self.type)))
        if token.text == "fn":
            kept = dict(self.generic)
            generic = self.type_params()
            self.expect("(")
            args = self.listed(")", self.type)
            self.expect("->")
            made = FuncType(tuple(args), self.type(), tuple(generic))
            self.generic = kept
            return made
        if token.text == "Tensor":
            self.expect("[", "(")
            shape = self.listed(")", self.size)
            self.expect(",")
            kind = self.dtype()
            self.expect("]")
            return TensorType(shape, kind)
        if token.text == "ref":
            self.expect("(")
            inner = self.type()
            self.expect(")")
            return RefType(inner)
        if token.text in ("_", "?"):
            return IncompleteType()
        if token.text in self.generic or token.text in self.data:
            named: Any = self.generic.get(token.text) or self.data[token.text]
            if self.accept("["):
                return TypeCall(named, tuple(self.listed("]", self.type)))
            return TypeCall(named) if isinstance(named, GlobalTypeVar) else named
        if token.kind == "name":
            self.pos -= 1
            return TensorType((), self.dtype())
        raise self.error(f"a type was expected, not {token.text!r}", token.at)

    def dtype(self) -> DataType:
        token = self.next()
        try:
            return DataType(token.text)
        except (TypeError, ValueError):
            raise self.error(f"{token.text!r} is not a type of elements", token.at) from None

    def size(self, level: int = 0) -> Any:
        """A size: an integer, `?`, or an expression over names."""
        if level == 2:
            return self.size_atom()
        made = self.size(level + 1)
        signs = ("+", "-") if level == 0 else ("*",)
        while self.peek().text in signs:
            work = {"+": ops.add, "-": ops.sub, "*": ops.mul}[self.next().text]
            made = work(made, self.size(level + 1))
        return made

    def size_atom(self) -> Any:
        token = self.next()
        if token.text == "?":
            return AnySize()
        if token.kind == "number":
            return int(token.text)
        if token.text == "-" and self.peek().kind == "number":
            return -int(self.next().text)
        if token.text == "(":
            made = self.size()
            self.expect(")")
            return made
        if token.text in _SIZE_FUNCTIONS and self.accept("("):
            a, b = self.listed(")", self.size)
            return _SIZE_FUNCTIONS[token.text](a, b)
        if token.text == "cast" and self.accept("("):
            made = self.size()
            self.expect(",")
            kind = self.dtype()
            self.expect(")")
            return ops.cast(kind, made)
        if token.kind == "name":
            kind = self.dtype() if self.accept(":") else DataType("int32")
            if token.text not in self.sizes:
                self.sizes[token.text] = SizeVar(token.text, kind)
            return self.sizes[token.text]
        raise self.error(f"a size was expected, not {token.text!r}", token.at)


def _var_name(text: str) -> str:
    return json.loads(text[1:]) if text[1] == '"' else text[1:]


def _split_number(text: str) -> tuple[str, str]:
    found = re.match(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)((?:f|i|u)?\d*)\Z", text)
    if found is None:
        raise ValueError(f"{text!r} is not a number")
    return found.group(1), found.group(2)


def _plain_number(text: str) -> int | float:
    digits, suffix = _split_number(text)
    if suffix.startswith("f") or "." in digits or "e" in digits.lower():
        return float(digits)
    return int(digits)


def _number(text: str, sign: int) -> Constant:
    digits, suffix = _split_number(text)
    value = _plain_number(text) * sign
    if not suffix:
        wide = isinstance(value, int) and not -(1 << 31) <= value < 1 << 31
        return const(value, "float32" if isinstance(value, float) else "int64" if wide else "int32")
    code = {"f": "float", "i": "int", "u": "uint"}[suffix[0]]
    if code == "float" and sign < 0:
        value = -float(digits)
    kind = f"{code}{suffix[1:] or 32}"
    made = const(value, kind)
    largest = {"float16": 65504.0, "float32": 3.4028234663852886e38}.get(kind, math.inf)
    if code == "float" and abs(value) > largest:
        raise ValueError(f"{text} is larger than the largest {kind}")
    return made


def _constant(row: Any) -> Constant:
    """An array from the metadata."""
    if isinstance(row, Constant):
        return row
    if not isinstance(row, dict):
        return const(row)
    import numpy as np

    from ..runtime.dtypes import element

    values = np.frombuffer(base64.b64decode(row["data"]), dtype=element(row["dtype"]).numpy)
    return const(values.reshape(row["shape"]).copy(), row["dtype"])
