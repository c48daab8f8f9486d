"""Programs built by frames: `IRBuilder`, and `tir as T`, `ir as I` inside it."""

from __future__ import annotations

from . import base, ir, tir
from .base import IRBuilder, IRBuilderFrame

__all__ = ["IRBuilder", "IRBuilderFrame", "base", "ir", "tir"]
