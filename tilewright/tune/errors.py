"""The errors of tuning."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.errors import TVMError

__all__ = ["MachineError", "RecordError", "TuneError", "causes_table"]


class TuneError(TVMError):
    """Nothing could be measured, or measurement does not work here."""


class MachineError(TuneError):
    """This machine cannot measure any task in its present state; another one of a fleet may."""


class RecordError(TVMError, ValueError):
    """A file of records that is damaged, of another format, or of other hardware."""


def causes_table(causes: Mapping[tuple[str, str], int]) -> str:
    """Why candidates failed, with counts: the most frequent cause first.

    count  status       the first line of the error
        7  build error  LoweringError: …
    """
    rows = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    shown = [("count", "status", "cause")] + [
        (str(n), status, text.splitlines()[0][:100] if text else "") for (status, text), n in rows
    ]
    first, second = (max(len(row[i]) for row in shown) for i in (0, 1))
    return "\n".join(f"  {a.rjust(first)}  {b.ljust(second)}  {c}".rstrip() for a, b, c in shown)
