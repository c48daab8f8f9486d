"""The IR of programs: types, expressions, statements, buffers, functions, modules, and walks over them."""

from __future__ import annotations

from ..homes import lazily
from . import ops
from .buffer import Buffer, BufferRegion, MatchBufferRegion, decl_buffer
from .dtype import DataType
from .equal import assert_structural_equal, structural_equal, structural_hash
from .errors import (
    BuildError,
    DiagnosticError,
    InternalError,
    LoweringError,
    ScheduleError,
    ScriptError,
    TargetError,
    TensorExpressionError,
    TVMError,
    UnsupportedError,
)
from .expr import PrimExpr, Range
from .function import BaseFunc, PrimFunc
from .module import GlobalVar, IRModule
from .node import Node, node
from .op import CallEffectKind, Op, register_op
from .serialize import load_json, save_json
from .span import Span
from .types import FuncType, PointerType, PrimType, TupleType, Type

__all__ = [
    "BaseFunc",
    "Buffer",
    "BufferRegion",
    "BuildError",
    "CallEffectKind",
    "DataType",
    "DiagnosticError",
    "FuncType",
    "GlobalVar",
    "IRModule",
    "InternalError",
    "LoweringError",
    "MatchBufferRegion",
    "Node",
    "Op",
    "PointerType",
    "PrimExpr",
    "PrimFunc",
    "PrimType",
    "Range",
    "ScheduleError",
    "ScriptError",
    "Span",
    "TVMError",
    "TargetError",
    "TensorExpressionError",
    "TupleType",
    "Type",
    "UnsupportedError",
    "assert_structural_equal",
    "decl_buffer",
    "load_json",
    "node",
    "ops",
    "register_op",
    "save_json",
    "structural_equal",
    "structural_hash",
]

# Loaded on first use: it brings in the registry of functions, and NumPy with that.
__getattr__ = lazily(
    __name__,
    {
        "affine_type": "TensorAffineType TupleAffineType",
        "base": "EnvFunc get_first_structural_mismatch make_node register_op_attr",
    },
    "affine_type base",
)
