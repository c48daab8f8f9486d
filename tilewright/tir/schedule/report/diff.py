"""`sch.diff()`: before and after, side by side in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .steps import Change, Program, changes

if TYPE_CHECKING:
    from rich.console import Console

    from ..schedule import Schedule

_STYLES = {" ": ("dim", "dim"), "~": ("red", "green"), "-": ("red", ""), "+": ("", "green")}


def print_diff(sch: Schedule, step: int | None = None, console: Console | None = None) -> None:
    """Print the first program beside the present one, or the program before a step beside the one after.

    Lines that changed are coloured on a terminal, and marked ~ changed, - gone, + added everywhere.
    """
    from rich.console import Console

    heading, rows = _rows(sch, step)
    if console is None:
        console = Console(file=sys.stdout)
    left = max((len(c.old or "") for c in rows), default=0)
    same = all(c.sign == " " for c in rows)
    if console.is_terminal:
        _print(console, heading, rows, left)
    else:
        lines = [f"{c.old or '':<{left}} {c.sign} {c.new or ''}".rstrip() for c in rows]
        print(heading, "", *lines, sep="\n", file=console.file)
    if same:
        print("nothing changed", file=console.file)


def _rows(sch: Schedule, step: int | None) -> tuple[str, list[Change]]:
    insts = sch.trace.insts
    if step is None:
        heading = f"the program as given, and after {len(insts)} steps"
        return heading, changes(Program(sch.origin).lines, Program(sch.mod).lines)
    if not -len(insts) <= step < len(insts):
        raise IndexError(f"diff(step={step}): the trace has {len(insts)} steps, numbered from 0")
    step %= len(insts)
    inst = insts[step]
    heading = f"step {step}: {sch.trace.as_python()[step]}"
    if inst.span is not None:
        heading += f"    # {inst.span}"
    befores = [x.after for x in insts[:step] if x.after is not None]
    before = befores[-1] if befores else sch.origin
    return heading, changes(Program(before).lines, Program(inst.after or before).lines)


def _print(console: Console, heading: str, rows: list[Change], left: int) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    half = (console.width - 5) // 2
    table.add_column(
        min_width=min(left, half), max_width=max(half, console.width - 5 - half), overflow="fold"
    )
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for c in rows:
        cells = []
        for line, marks, style in zip((c.old, c.new), (c.old_marks, c.marks), _STYLES[c.sign]):
            text = Text(line or "", style=style)
            for start, end in marks:
                text.stylize("bold reverse", start, end)
            cells.append(text)
        sign = Text(c.sign, style="bold")
        table.add_row(cells[0], sign, cells[1])
    console.print(Text(heading, style="bold"), soft_wrap=True)
    console.print()
    console.print(table)
