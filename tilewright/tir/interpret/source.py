"""The Python source that a program is translated to: nested functions, and the statement of each line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Code(NamedTuple):
    """An expression as Python source, with the range of an integer (None: not an integer)."""

    text: str
    lo: int | None = None
    hi: int | None = None
    depth: int = 0

    @property
    def atom(self) -> bool:
        """Whether it can be duplicated at no cost."""
        return self.text.isidentifier() or self.text.isdigit()


class Frame:
    """A Python function under construction. `defs` are nested functions, which see its variables."""

    def __init__(self, name: str, params: Sequence[str], kind: str) -> None:
        self.name, self.params = name, list(params)
        self.kind = (
            kind  # main, part (of another, for depth), kernel (a thread's program), value (of an expression)
        )
        self.generator = kind == "kernel"
        self.lines: list[tuple[int, str, Any]] = []
        self.defs: list[Frame] = []
        self.lets: list[str] = []  # variables bound inside expressions
        self.outer_lets: list[str] = []  # nonlocal variables that this one binds
        self.indent = 1
        self.loops = 0  # loops open in this function: Python allows twenty

    def emit(self, text: str, record: Any) -> None:
        self.lines.append((self.indent, text, record))


def render(frame: Frame, depth: int, lines: list[str], records: list[Any]) -> None:
    """Append the source of a function, and for each line the record of the statement it belongs to."""

    def put(indent: int, text: str, record: Any = None) -> None:
        lines.append(" " * indent + text)
        records.append(record)

    put(depth, f"def {frame.name}({', '.join(frame.params)}):")
    if frame.outer_lets:
        put(depth + 1, f"nonlocal {', '.join(frame.outer_lets)}")
    if frame.lets:
        put(depth + 1, f"{' = '.join(frame.lets)} = None")
    for inner in frame.defs:
        render(inner, depth + 1, lines, records)
    if frame.generator:
        put(depth + 1, "if False: yield")
    for indent, text, record in frame.lines:
        put(depth + indent, text, record)
    put(depth + 1, "pass")


def times(a: int | str, b: int | str) -> int | str:
    """The product of two numbers or sources of numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 0 or b == 0:
        return 0
    return b if a == 1 else a if b == 1 else f"{a} * {b}"


def plus(a: int | str, b: int | str) -> int | str:
    """The sum of two numbers or sources of numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return b if a == 0 else a if b == 0 else f"{a} + {b}"
