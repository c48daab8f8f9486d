"""Schedules without a person: sketches derived from the program, sizes picked by a model of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .auto import auto_schedule

__all__ = ["auto_schedule"]


def __getattr__(name: str) -> Any:
    """The scheduler when it is asked for: processes that run candidates do without it."""
    if name == "auto_schedule":
        from .auto import auto_schedule

        return auto_schedule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
