"""The IR of programs: types, expressions, statements, buffers, functions, modules, and walks over them."""

from __future__ import annotations

from typing import Any

from ..homes import home_of, lazily
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
from .function import BaseFunc, CallingConv, PrimFunc
from .module import GlobalVar, IRModule
from .node import BaseExpr, Node, node
from .op import CallEffectKind, Op, register_op
from .serialize import load_json, save_json
from .span import SourceName, Span
from .types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    PointerType,
    PrimType,
    RefType,
    TupleType,
    Type,
    TypeCall,
    TypeConstraint,
    TypeKind,
    TypeRelation,
    TypeVar,
)

__all__ = [
    "BaseExpr",
    "BaseFunc",
    "Buffer",
    "BufferRegion",
    "BuildError",
    "CallEffectKind",
    "CallingConv",
    "DataType",
    "DiagnosticError",
    "FuncType",
    "GlobalTypeVar",
    "GlobalVar",
    "IRModule",
    "IncompleteType",
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
    "RefType",
    "ScheduleError",
    "ScriptError",
    "SourceName",
    "Span",
    "TVMError",
    "TargetError",
    "TensorExpressionError",
    "TupleType",
    "Type",
    "TypeCall",
    "TypeConstraint",
    "TypeKind",
    "TypeRelation",
    "TypeVar",
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

RelayRefType = RefType


# Names of which this is a classic home, and where they live.
_ELSEWHERE = {"Array": "containers", "Map": "containers", "RelayExpr": "graphs"}


def _of_others(name: str) -> Any:
    if name == "container":
        return home_of("containers")
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(home_of(_ELSEWHERE[name]), name)


# Loaded on first use: it brings in the registry of functions, and NumPy with that.
__getattr__ = lazily(
    __name__,
    {
        "affine_type": "TensorAffineType TupleAffineType",
        "base": "EnvFunc get_first_structural_mismatch make_node register_intrin_lowering register_op_attr",
        "tensor_type": "TensorType",
    },
    "affine_type base diagnostics tensor_type",
    _of_others,
)
