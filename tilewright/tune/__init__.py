"""Automatic schedules: sketches derived from the program, sizes chosen by an analytical model of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .auto import auto_schedule

__all__ = ["auto_schedule"]


def __getattr__(name: str) -> Any:
    """Import the scheduler on first use: processes that run candidates do not need it."""
    if name == "auto_schedule":
        from .auto import auto_schedule

        return auto_schedule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
