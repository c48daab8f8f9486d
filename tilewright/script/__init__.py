"""The text form of programs as Python: `tir as T`, `ir as I`, `from_source`."""

from __future__ import annotations

from ..homes import lazily
from . import ir, tir
from .ir import ir_module
from .parse import from_source, parse

__all__ = ["from_source", "ir", "ir_builder", "ir_module", "parse", "tir"]

__getattr__ = lazily(__name__, {}, "ir_builder parser")
