"""`I`: what a module is written with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import GlobalVar
from ..tir.script.function import ModuleAttrs, ir_module

__all__ = ["GlobalVar", "ir_module", "module_attrs"]


def module_attrs(attrs: Mapping[str, Any]) -> ModuleAttrs:
    """Attributes of the module."""
    return ModuleAttrs(attrs)
