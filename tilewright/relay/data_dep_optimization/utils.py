"""A pass over one function, with its types."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ..transform import infer_module


def typed(func: Any) -> Any:
    """The function with types."""
    return infer_module(IRModule.from_expr(func))["main"]


def _run_opt_pass(expr: Any, opt_pass: Any) -> Any:
    """What a pass makes of a function."""
    return opt_pass(IRModule.from_expr(expr))["main"]
