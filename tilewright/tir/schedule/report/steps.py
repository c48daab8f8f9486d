"""The steps of a schedule as a reader follows them: the program after each, what changed, the call."""

from __future__ import annotations

import ast
import difflib
import linecache
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....ir.deep import deep_programs
from ....ir.function import PrimFunc
from ....ir.module import IRModule
from ....ir.printer import _ScriptFunc
from ....ir.span import Span

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..trace import Instruction

_SOURCE_LINES = 8  # a longer call is cut


class _Places(_ScriptFunc):
    """Prints a program and remembers the line of each statement."""

    def __init__(self) -> None:
        super().__init__()
        self.place: dict[Any, int] = {}

    def emit(self, text: str, *nodes: Any) -> None:
        for n in nodes:
            self.place.setdefault(n, len(self.lines))
        super().emit(text, *nodes)


class Program:
    """A module as lines of script, and the line on which each of its statements is."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        functions = {gv.name_hint: f for gv, f in mod.functions.items() if isinstance(f, PrimFunc)}
        printer = _Places()
        with deep_programs():
            for name, func in sorted(functions.items()):
                if printer.lines:
                    printer.lines.append("")
                printer.function(func, name)
        self.lines, self.place = printer.lines, printer.place
        self.functions = functions


@dataclass(frozen=True, slots=True)
class Call:
    """A call as Python, where in the user's file it stands, and what stands there."""

    text: str
    place: str = ""
    source: str = ""


@dataclass(slots=True)
class Step:
    """One step that changed the program, with the calls since the one before."""

    title: str
    calls: list[Call]
    program: Program
    numbers: list[int] = field(default_factory=list)  # of the calls in the trace


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the new text beside the line of the old one that it takes the place of.

    `sign` is " " where they are the same, "~" changed, "+" added, "-" removed; `marks` are the parts of
    the new line that differ.
    """

    sign: str
    old: str | None
    new: str | None
    marks: tuple[tuple[int, int], ...] = ()
    old_marks: tuple[tuple[int, int], ...] = ()


def steps_of(sch: Schedule) -> list[Step]:
    """The program as given, then each step that changed it; calls that change nothing go with the next."""
    program = Program(sch.origin)
    steps = [Step("start", [], program)]
    calls: list[Call] = []
    numbers: list[int] = []
    for number, (inst, text) in enumerate(zip(sch.trace.insts, sch.trace.as_python(), strict=True)):
        calls.append(_call(inst, text))
        numbers.append(number)
        if inst.after is None or inst.after is program.mod:
            continue
        after = Program(inst.after)
        if after.lines != program.lines:
            program = after
            steps.append(Step(inst.kind, calls, program, numbers))
            calls, numbers = [], []
    steps[-1].calls.extend(calls)
    steps[-1].numbers.extend(numbers)
    return steps


def _call(inst: Instruction, text: str) -> Call:
    if inst.span is None:
        return Call(text)
    return Call(text, str(inst.span), _source(inst.span))


def _source(span: Span) -> str:
    """The statement that a place is in, as it stands in the file; nothing if it cannot be read."""
    line = linecache.getline(span.source_name, span.line)
    if not line.strip():
        return ""
    try:
        tree = ast.parse("".join(linecache.getlines(span.source_name)))
    except (SyntaxError, ValueError):
        return line.strip()
    around = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.stmt) and n.lineno <= span.line <= (n.end_lineno or n.lineno)
    ]
    if not around:
        return line.strip()
    inner = max(around, key=lambda n: (n.lineno, n.col_offset))
    if hasattr(inner, "body"):
        return line.strip()
    first, last = inner.lineno, inner.end_lineno or inner.lineno
    lines = linecache.getlines(span.source_name)[first - 1 : last]
    cut = [*lines[:_SOURCE_LINES], "…\n"] if len(lines) > _SOURCE_LINES + 1 else lines
    return textwrap.dedent("".join(cut)).rstrip()


_WORDS = re.compile(r"\w+|\s+|.")


def changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Two programs side by side, line by line. A line that only moved further in or out is the same."""
    out: list[Change] = []
    bare = [[line.strip() for line in text] for text in (old, new)]
    matcher = difflib.SequenceMatcher(None, bare[0], bare[1], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            out += [Change(" ", x, y) for x, y in zip(old[a:b], new[c:d])]
        else:
            out += _replaced(old[a:b], new[c:d])
    return out


def _replaced(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Lines that took the place of others: each new line beside the old one that is most like it."""
    out: list[Change] = []
    at = 0
    for line in new:
        near = [difflib.SequenceMatcher(None, x.strip(), line.strip()).ratio() for x in old[at:]]
        best = max(range(len(near)), key=lambda i: (near[i], -i)) if near else -1
        if best < 0 or near[best] < 0.6:
            out.append(Change("+", None, line))
            continue
        out += [Change("-", x, None) for x in old[at : at + best]]
        before = old[at + best]
        at += best + 1
        out.append(Change("~", before, line, *_marks(before, line)))
    return out + [Change("-", x, None) for x in old[at:]]


def _marks(old: str, new: str) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """The parts of two lines that differ, word by word, as (start, end) in the new and in the old one."""
    a, b = _WORDS.findall(old.lstrip()), _WORDS.findall(new.lstrip())
    pads = len(new) - len(new.lstrip()), len(old) - len(old.lstrip())
    fresh: list[tuple[int, int]] = []
    gone: list[tuple[int, int]] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for words, start, end, pad, marks in ((b, k, m, pads[0], fresh), (a, i, j, pads[1], gone)):
            if end > start:
                at = pad + len("".join(words[:start]))
                marks.append((at, at + len("".join(words[start:end]))))
    return tuple(fresh), tuple(gone)
