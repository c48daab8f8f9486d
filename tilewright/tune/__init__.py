"""Automatic schedules: rules propose, a cost model of the machine compares, and a search measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..homes import lazily

if TYPE_CHECKING:
    from .auto import auto_schedule

__all__ = ["auto_schedule"]

# Loaded on first use: a process that runs candidates does not need the scheduler.
__getattr__ = lazily(__name__, {"auto": "auto_schedule"})
