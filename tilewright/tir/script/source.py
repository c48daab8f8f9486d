"""The source text of a script, its origin, and errors with the position in it."""

from __future__ import annotations

import ast
import difflib
import linecache
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

from ...ir import Span
from ...ir.errors import ScriptError
from .reach import Reach

_parsed: dict[tuple[str, int], tuple[list[str], ast.Module]] = {}


class Source:
    """A parsed file or text, with the node of interest. `reach` is the sandbox of a text; None for the user's own
    code."""

    def __init__(self, file: str, lines: list[str], node: Any, reach: Reach | None = None) -> None:
        self.file, self.lines, self.node, self.reach = file, lines, node, reach

    def part(self, node: Any) -> Source:
        """The same text, with another node of interest."""
        return Source(self.file, self.lines, node, self.reach)

    def span(self, at: Any) -> Span:
        """The place of a Python syntax node."""
        return Span(self.file, getattr(at, "lineno", 0), column=getattr(at, "col_offset", 0))

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Add the position in the text to errors that are raised inside."""
        try:
            yield
        except ScriptError:
            raise
        except (TypeError, ValueError, RuntimeError, KeyError, ZeroDivisionError) as bad:
            raise self.error(node, str(bad)) from None

    def error(self, at: Any, reason: str, hint: str = "") -> ScriptError:
        """The error that shows the line with the place underlined, the reason, and what to do.

        model.py:12: T has no name 'gird'
          |     for i, j in T.gird(8, 8):
          |                 ^^^^^^
          hint: did you mean T.grid?
        """
        line = getattr(at, "lineno", 1)
        text = self.lines[line - 1].rstrip("\n") if 0 < line <= len(self.lines) else ""
        # Columns count bytes of UTF-8.
        raw = text.encode()
        start = len(raw[: getattr(at, "col_offset", 0)].decode(errors="ignore"))
        end = len(text)
        if getattr(at, "end_lineno", line) == line:
            end = len(raw[: getattr(at, "end_col_offset", len(raw))].decode(errors="ignore"))
        out = [f"{Path(self.file).name}:{line}: {reason}"]
        if text.strip():
            out += [f"  | {text}", f"  | {' ' * start}{'^' * max(1, end - start)}"]
        if hint:
            out.append(f"  hint: {hint}")
        return ScriptError("\n".join(out), self.span(at), reason)


def near(name: str, known: Any) -> str:
    """`did you mean …?` or nothing."""
    found = difflib.get_close_matches(name, list(known), 3, 0.7)
    return f"did you mean {' or '.join(found)}?" if found else ""


def decorator_name(d: ast.expr) -> str:
    """`prim_func` of `@T.prim_func(private=True)`."""
    called = d.func if isinstance(d, ast.Call) else d
    return called.attr if isinstance(called, ast.Attribute) else str(getattr(called, "id", ""))


def text_source(text: str, reach: Reach, file: str = "<script>") -> Source:
    """A text given by the user."""
    lines = text.splitlines(keepends=True)
    try:
        tree = _tree(text)
    except SyntaxError as bad:
        at = ast.Pass(lineno=bad.lineno or 1, col_offset=max(0, (bad.offset or 1) - 1))
        raise Source(file, lines, None).error(at, f"this is not Python: {bad.msg}") from None
    except ValueError as bad:
        raise ScriptError(f"{file}: this is not Python: {bad}") from None
    except (RecursionError, MemoryError):
        raise ScriptError(f"{file}: an expression is nested too deeply for Python's parser") from None
    return Source(file, lines, tree, reach)


def _tree(text: str) -> ast.Module:
    """The syntax tree of the text. Python's own warnings are suppressed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # of invalid escapes, before Python 3.12
        return ast.parse(text)


def _file(name: str) -> tuple[list[str], ast.Module]:
    linecache.checkcache(name)
    lines = linecache.getlines(name)
    if not lines:
        raise ScriptError(
            f"the source of {name} cannot be read, and a script is parsed from its source: "
            "put it into a file, or give the text to tilewright.script.from_source"
        )
    key = (name, hash("".join(lines)))
    found = _parsed.get(key)
    if found is None:
        if len(_parsed) > 16:
            _parsed.clear()
        found = _parsed[key] = (lines, _tree("".join(lines)))
    return found


def _first_line(node: Any) -> int:
    return min([node.lineno, *[d.lineno for d in node.decorator_list]])


def function_source(code: CodeType) -> Source:
    """The definition of a Python function."""
    lines, tree = _file(code.co_filename)
    for n in ast.walk(tree):
        if isinstance(n, ast.FunctionDef) and n.name == code.co_name:
            if code.co_firstlineno in (n.lineno, _first_line(n)):
                return Source(code.co_filename, lines, n)
    raise ScriptError(f"{code.co_filename}:{code.co_firstlineno}: no definition of {code.co_name} found here")


def class_source(cls: type, line: int, file: str) -> Source:
    """The definition of a class: that of its name nearest before `line`."""
    methods = [m.__code__.co_firstlineno for m in vars(cls).values() if hasattr(m, "__code__")]
    lines, tree = _file(file)
    best: Any = None
    for n in ast.walk(tree):
        if isinstance(n, ast.ClassDef) and n.name == cls.__name__:
            last = n.end_lineno or n.lineno
            if methods:
                inside = all(_first_line(n) <= m <= last for m in methods)
            else:
                inside = _first_line(n) <= line <= last
            if inside:
                best = n
    if best is None:
        raise ScriptError(f"{file}: no definition of class {cls.__name__} found")
    return Source(file, lines, best)
