"""Operators and patterns that other code generators take: oneDNN, onnxruntime, and a C compiler as an example."""

from ...absent import attributes as _attributes
from . import ccompiler, dnnl, onnxruntime
from .register import get_pattern_table, register_pattern_table

__all__ = ["ccompiler", "dnnl", "get_pattern_table", "onnxruntime", "register_pattern_table"]

__getattr__ = _attributes(__name__)
