"""Graphs as models of ONNX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...ir.errors import TVMError
from ...ir.module import IRModule
from ...relay.binding import bind_params_in_module
from ...relay.contrib.to_onnx import OPSET, onnx_model
from ...relay.expr import Function
from ...relay.transform.infer_type import infer_module

__all__ = ["to_onnx"]


def to_onnx(
    relay_ir: Any,
    params: Mapping[str, Any] | None,
    name: str,
    opset_version: int = OPSET,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """The model of ONNX of a graph, with its parameters inside; also written to a file if there is a `path`.

    Inputs and results are named `input0`, `output0`, … An operator that ONNX has no equal of here is an error.
    """
    if opset_version != OPSET:
        raise TVMError(
            f"to_onnx: models are written for version {OPSET} of the operator set, not for {opset_version}"
        )
    mod = relay_ir if isinstance(relay_ir, IRModule) else IRModule.from_expr(relay_ir)
    main = infer_module(bind_params_in_module(mod, params))["main"]
    if not isinstance(main, Function):
        raise TVMError("to_onnx takes a graph function, or a module that has one as main")
    made = onnx_model(main, name)
    if path is not None:
        with open(path, "wb") as file:
            file.write(made.SerializeToString())
    return made
