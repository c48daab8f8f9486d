"""onnxruntime: the operators that it takes, and `partition_for_onnxruntime`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...ir.module import IRModule
from ..engines import installed, register_engine
from ..ty import TensorType, TupleType, tensor_fields
from .partition import partition_for
from .register import register_pattern_table

# the operators that become one or a few of ONNX: backend/contrib/to_onnx.py
OPERATORS: Final = (
    "nn.conv2d", "nn.dense", "nn.batch_matmul", "nn.bias_add", "add", "subtract", "multiply", "divide", "maximum",
    "minimum", "power", "nn.relu", "nn.leaky_relu", "sigmoid", "tanh", "exp", "log", "sqrt", "erf", "negative", "abs",
    "clip", "nn.softmax", "nn.log_softmax", "nn.max_pool2d", "nn.avg_pool2d", "nn.global_avg_pool2d",
    "nn.batch_flatten", "reshape", "transpose", "concatenate", "squeeze", "expand_dims", "mean", "sum", "max", "min",
    "cast",
)  # fmt: skip
_TYPES: Final = ("float32", "float64", "int32", "int64", "bool")


def _known(kind: Any) -> bool:
    if not isinstance(kind, (TensorType, TupleType)):
        return False
    return all(
        str(t.dtype) in _TYPES and all(isinstance(d, int) for d in t.shape) for t in tensor_fields(kind)
    )


def takes(call: Any) -> bool:
    """Whether onnxruntime computes a call: known sizes, types that its CPU kernels have, channels first."""
    if not all(_known(a.checked_type) for a in call.args) or not _known(call.checked_type):
        return False
    name, attrs = call.op.name, call.attrs
    if name == "nn.conv2d":
        return attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and not attrs.out_layout
    if "pool2d" in name:
        return attrs.layout == "NCHW"
    floats = str(tensor_fields(call.checked_type)[0].dtype) == "float32"
    if name in ("mean", "sum", "max", "min"):
        return floats and not attrs.exclude
    free = (
        "add",
        "subtract",
        "multiply",
        "reshape",
        "transpose",
        "concatenate",
        "squeeze",
        "expand_dims",
        "cast",
    )
    return floats or name in free


@register_pattern_table("onnxruntime")
def pattern_table() -> list[Any]:
    """None: onnxruntime fuses operators by itself."""
    return []


def partition_for_onnxruntime(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """Give all that onnxruntime takes to it, in as few functions as possible."""
    return partition_for("onnxruntime", mod, params)


register_engine(
    "onnxruntime",
    f"{__name__}_codegen",
    OPERATORS,
    takes,
    "" if installed("onnxruntime") and installed("onnx") else "pip install onnx onnxruntime",
)
