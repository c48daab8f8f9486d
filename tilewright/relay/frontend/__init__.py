"""Importers: a model of another framework as a module of graph functions and its parameters.

    mod, params = relay.frontend.from_onnx("net.onnx", shape={"x": (1, 3, 224, 224)})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...ir.module import IRModule

__all__ = ["from_onnx"]


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[Any]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of an ONNX model (a ModelProto, its bytes or a path) as `main` of a module, and its parameters.

    With `freeze_params` the initialisers are constants of the graph and there are no parameters.
    """
    from .onnx import from_onnx as work

    return work(model, shape, dtype, opset, freeze_params, convert_config)
