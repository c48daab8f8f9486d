"""The code generator `ccompiler`: elementwise operators as C source, compiled by the system's compiler.

It is the shortest example of a code generator whose code is linked into the model.
"""

from __future__ import annotations

from typing import Any, Final

from ..engines import register_engine
from ..ty import TensorType

# operator -> C expression of its operands
EXPRESSIONS: Final = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "maximum": "{0} > {1} ? {0} : {1}",
    "minimum": "{0} < {1} ? {0} : {1}",
    "negative": "-{0}",
    "nn.relu": "{0} > 0 ? {0} : 0",
}
C_TYPES: Final = {
    "float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t",
}  # fmt: skip


def takes(call: Any) -> bool:
    """Whether the generated C can compute a call: known sizes, and a type that C has."""
    kinds = [a.checked_type for a in call.args]
    return all(
        isinstance(k, TensorType) and str(k.dtype) in C_TYPES and all(isinstance(d, int) for d in k.shape)
        for k in kinds
    )


register_engine("ccompiler", f"{__name__}_codegen", list(EXPRESSIONS), takes, "")
