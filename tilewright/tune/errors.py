"""What tuning tells its users when it cannot go on."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.errors import TVMError

__all__ = ["MachineError", "RecordError", "TuneError", "causes_table"]


class TuneError(TVMError):
    """Nothing could be measured, or the machinery that measures does not work here."""


class MachineError(TuneError):
    """This machine cannot measure as it is now, whatever the task; of a fleet, another may."""


class RecordError(TVMError, ValueError):
    """A file of records that is damaged, foreign, or of other hardware."""


def causes_table(causes: Mapping[tuple[str, str], int]) -> str:
    """Why candidates failed, with counts: the most frequent cause first.

    count  status       the first line of what was said
        7  build error  LoweringError: …
    """
    rows = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    shown = [("count", "status", "cause")] + [
        (str(n), status, text.splitlines()[0][:100] if text else "") for (status, text), n in rows
    ]
    first, second = (max(len(row[i]) for row in shown) for i in (0, 1))
    return "\n".join(f"  {a.rjust(first)}  {b.ljust(second)}  {c}".rstrip() for a, b, c in shown)
