"""The search: candidates that a model proposes are measured, and the model learns from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...homes import lazily

if TYPE_CHECKING:
    from .search import SearchOptions, Tuner, tune_task

__all__ = ["SearchOptions", "Tuner", "tune_task"]

__getattr__ = lazily(__name__, {"search": "SearchOptions Tuner tune_task"})
