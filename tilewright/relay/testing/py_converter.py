"""Values of expressions for tests, with Python's objects for data and references."""

from __future__ import annotations

from typing import Any

from ...absent import attributes
from ...ir.module import IRModule
from ..build_module import create_executor


def run_as_python(expr: Any, mod: IRModule | None = None, target: Any = "llvm") -> Any:
    """The value of an expression: an array, an ADT, a ConstructorValue or a RefValue."""
    return create_executor("debug", mod=IRModule() if mod is None else mod, target=target).evaluate(expr)


__getattr__ = attributes(__name__)
