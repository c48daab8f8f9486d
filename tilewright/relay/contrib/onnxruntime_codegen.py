"""The code generator `onnxruntime`: a function as a model of ONNX, which `runtime/onnxruntime_engine.py` runs."""

from __future__ import annotations

from ...runtime.external import ExternalModule
from ...runtime.onnxruntime_engine import onnx_module
from ..expr import Function
from .to_onnx import onnx_model


def generate(fn: Function) -> ExternalModule:
    """`relay.ext.onnxruntime`."""
    name = str(fn.attrs["global_symbol"])
    return onnx_module({name: onnx_model(fn, name).SerializeToString()})
