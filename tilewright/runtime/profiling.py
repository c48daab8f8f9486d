"""Profiles: the kernels of a model, each with its time."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One step of a profile; `seconds` are those of all its calls in a run."""

    name: str
    kernel: str
    seconds: float
    shapes: str
    calls: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """The times of all steps, the longest first when printed."""

    rows: tuple[Row, ...]

    @property
    def total(self) -> float:
        return sum(r.seconds for r in self.rows)

    def table(self, sort: bool = True) -> str:
        """The times as a table."""
        rows = sorted(self.rows, key=lambda r: -r.seconds) if sort else list(self.rows)
        total = self.total or 1.0
        wide = max([len(r.name) for r in rows] + [4])
        often = any(r.calls > 1 for r in rows)  # in a loop
        head = f"{'calls':>7}  " if often else ""
        lines = [f"{'name':{wide}}  {'us':>12}  {'%':>6}  {head}results"]
        for r in rows:
            calls = f"{r.calls:7}  " if often else ""
            lines.append(
                f"{r.name:{wide}}  {r.seconds * 1e6:12.2f}  {100 * r.seconds / total:6.2f}  {calls}{r.shapes}"
            )
        lines.append(f"{'total':{wide}}  {self.total * 1e6:12.2f}  {100.0:6.2f}")
        return "\n".join(lines)

    def json(self) -> str:
        """The times as JSON, in the order of the program."""
        rows = [{"name": r.name, "kernel": r.kernel, "seconds": r.seconds} for r in self.rows]
        return json.dumps({"steps": rows, "total": self.total})

    def __str__(self) -> str:
        return self.table()
