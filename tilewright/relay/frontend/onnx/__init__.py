"""The importer of ONNX models: `importer.py` walks the graph, the other files convert one family of operators each."""

from __future__ import annotations

from .context import NeedsValue
from .importer import from_onnx

__all__ = ["NeedsValue", "from_onnx"]
