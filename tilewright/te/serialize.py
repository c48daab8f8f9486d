"""Tensors and operations as JSON: `ir.save_json(tensor)` writes all that it is computed from."""

from __future__ import annotations

from typing import Any

from ..ir.serialize import register_record
from .tensor import ComputeOp, ExternOp, HybridOp, Operation, PlaceholderOp, ScanOp, Tensor


def _placeholder(name: Any, shape: Any, dtype: Any) -> PlaceholderOp:
    return PlaceholderOp(name, tuple(shape), dtype)


def _output(op: Any, index: int) -> Tensor:
    if not isinstance(op, Operation):
        raise TypeError(f"a tensor is the output of an operation, not of {op!r:.80}")
    return op.output(index)


_COMMON = ("name", "tag", "attrs")
_EXTERN = (*_COMMON, "inputs", "input_placeholders", "output_placeholders", "body", "_shapes")

register_record(Tensor, "te.Tensor", ("op", "value_index"), _output)
register_record(PlaceholderOp, "te.PlaceholderOp", ("name", "shape", "dtype"), _placeholder)
register_record(ComputeOp, "te.ComputeOp", (*_COMMON, "_axis", "body"))
register_record(ExternOp, "te.ExternOp", _EXTERN)
register_record(HybridOp, "te.HybridOp", _EXTERN)
register_record(ScanOp, "te.ScanOp", (*_COMMON, "scan_axis", "init", "update", "state_placeholder", "inputs"))
