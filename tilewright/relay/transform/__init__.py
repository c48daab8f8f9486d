"""Passes over graph functions, one file each.

A pass is a function `(func, mod, ctx) -> func` made known by `function_pass`, or `(mod, ctx) -> mod` by
`module_pass`. What it returns need not have types: run `InferType` after, or use `infer_type` inside. A plain
function `Function -> Function` gets its factory from `as_function_pass`. Each pass is imported here, so that a
`PassContext` knows its name.
"""

from __future__ import annotations

from typing import Any

from ..._later import announce
from ...ir.transform import FunctionPass, ModulePass, Pass, PassContext, PassInfo, Sequential, module_pass
from .defuse_ops import DefuseOps
from .function_pass import as_function_pass, function_pass
from .fuse_ops import FuseOps
from .infer_type import InferType, InferTypeLocal, infer_module, infer_type

__all__ = [
    "DefuseOps",
    "FuseOps",
    "FunctionPass",
    "InferType",
    "InferTypeLocal",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "Sequential",
    "as_function_pass",
    "function_pass",
    "infer_module",
    "infer_type",
    "module_pass",
]

_later: Any = announce(__name__, "this pass over graphs is not there yet; leave it out of the sequence")


def __getattr__(name: str) -> Any:
    return _later(name)
