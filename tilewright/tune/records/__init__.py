"""Measurements kept in databases and files, and schedules that come from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...homes import lazily

if TYPE_CHECKING:
    from .database import Database, Record
    from .history import History

__all__ = ["Database", "History", "Record"]

__getattr__ = lazily(__name__, {"database": "Database Record", "history": "History"})
