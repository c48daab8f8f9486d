"""Programs from text."""

from __future__ import annotations

from ..tir.script.function import from_source

parse = from_source

__all__ = ["from_source", "parse"]
