"""Operators that ONNX defines by function bodies, which are used if there is no converter."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Node


@cache
def _schema(domain: str, op_type: str, opset: int) -> Any:
    import onnx

    try:
        return onnx.defs.get_schema(op_type, min(opset, 2**31 - 1), domain)
    except onnx.defs.SchemaError:
        return None


def has_body(domain: str, op_type: str, opset: int) -> bool:
    """Whether ONNX defines the operator by others."""
    found = _schema(domain, op_type, opset)
    return found is not None and (found.has_function or found.has_context_dependent_function)


def body_of(n: Node) -> Any:
    """The FunctionProto of an operator, for the types of its inputs if it depends on them."""
    import onnx

    domain = "" if n.domain == "ai.onnx" else n.domain
    found = _schema(domain, n.op_type, n.opset)
    if found is None:
        return None
    if found.has_function:
        return found.function_body
    if not found.has_context_dependent_function:
        return None
    types = []
    for v in n.inputs:
        kind = onnx.TypeProto()
        if v is not None:
            kind.tensor_type.elem_type = v.elem or ELEMS[v.dtype]
            for d in v.shape:
                dim = kind.tensor_type.shape.dim.add()
                if isinstance(d, int):
                    dim.dim_value = d
        types.append(kind.SerializeToString())
    made = onnx.FunctionProto()
    text = found.get_context_dependent_function_with_opset_version(
        n.opset, n.proto.SerializeToString(), types
    )
    if not text:
        text = found.get_context_dependent_function(n.proto.SerializeToString(), types)
    made.ParseFromString(text)
    return made


def defaults_of(n: Node) -> list[Any]:
    """The default attributes of an operator."""
    found = _schema("" if n.domain == "ai.onnx" else n.domain, n.op_type, n.opset)
    rows = [] if found is None else found.attributes.values()
    return [a.default_value for a in rows if a.default_value.name]


ELEMS = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip
