"""Tensor expressions: what to compute, element by element, and the loop programs that compute it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..homes import lazily
from ..ir import ops as _ops
from ..ir.expr import const
from ..ir.ops import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    clz,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    if_then_else,
    infinity,
    isfinite,
    isinf,
    isnan,
    likely,
    log,
    log1p,
    log2,
    log10,
    max_value,
    min_value,
    nearbyint,
    popcount,
    reinterpret,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trace,
    trunc,
)
from . import serialize, tensor
from .create_prim_func import PrimFuncBuilder, build_prim_func, create_prim_func
from .gradient import gradient
from .operation import (
    TagScope,
    compute,
    extern,
    extern_primfunc,
    placeholder,
    reduce_axis,
    scan,
    size_var,
    tag_scope,
    thread_axis,
    var,
)
from .reducer import all, any, comm_reducer, max, min, prod, sum
from .tensor import (
    ComputeOp,
    ExternOp,
    HybridOp,
    Operation,
    PlaceholderOp,
    ScanOp,
    Tensor,
    TensorComputeOp,
    TensorSlice,
    elementwise,
)
from .tensor_intrin import TensorIntrin, decl_tensor_intrin

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "AXIS_SEPARATOR",
    "build_prim_func",
    "ceil",
    "ceildiv",
    "clz",
    "comm_reducer",
    "compute",
    "ComputeOp",
    "const",
    "copysign",
    "cos",
    "cosh",
    "create_prim_func",
    "decl_tensor_intrin",
    "div",
    "erf",
    "exp",
    "exp10",
    "exp2",
    "extern",
    "extern_primfunc",
    "ExternOp",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "gradient",
    "hybrid",
    "HybridOp",
    "hypot",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "likely",
    "log",
    "log10",
    "log1p",
    "log2",
    "max",
    "max_value",
    "min",
    "min_value",
    "multiply",
    "nearbyint",
    "nextafter",
    "Operation",
    "placeholder",
    "PlaceholderOp",
    "popcount",
    "power",
    "PrimFuncBuilder",
    "prod",
    "reduce_axis",
    "reinterpret",
    "round",
    "rsqrt",
    "scan",
    "ScanOp",
    "sigmoid",
    "sin",
    "sinh",
    "size_var",
    "sqrt",
    "subtract",
    "sum",
    "tag_scope",
    "TagScope",
    "tan",
    "tanh",
    "tensor",
    "Tensor",
    "TensorComputeOp",
    "TensorIntrin",
    "TensorSlice",
    "thread_axis",
    "trace",
    "trunc",
    "truncdiv",
    "truncmod",
    "var",
]

# Between two groups of axes in a layout that is stored as more than one dimension.
AXIS_SEPARATOR = "axis_separator"


def _lifted(f: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`f` of scalars, which takes whole tensors too, element by element."""

    def lifted(a: Any, b: Any, span: Any = None) -> Any:
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return elementwise(f, a, b, name=f"T_{name}")
        return f(a, b)

    lifted.__name__ = lifted.__qualname__ = name
    lifted.__doc__ = f.__doc__
    return lifted


add = _lifted(_ops.add, "add")
subtract = _lifted(_ops.sub, "subtract")
multiply = _lifted(_ops.mul, "multiply")
div = _lifted(_ops.div, "divide")
truncdiv = _lifted(_ops.truncdiv, "trunc_divide")
truncmod = _lifted(_ops.truncmod, "trunc_mod")
floordiv = _lifted(_ops.floordiv, "floor_divide")
floormod = _lifted(_ops.floormod, "floor_mod")
indexdiv = _lifted(_ops.indexdiv, "index_divide")
indexmod = _lifted(_ops.indexmod, "index_mod")
ceildiv = _lifted(_ops.ceildiv, "ceil_divide")
power = _lifted(_ops.power, "power")
fmod = _lifted(_ops.fmod, "fmod")
atan2 = _lifted(_ops.atan2, "atan2")
hypot = _lifted(_ops.hypot, "hypot")
copysign = _lifted(_ops.copysign, "copysign")
nextafter = _lifted(_ops.nextafter, "nextafter")
ldexp = _lifted(_ops.ldexp, "ldexp")

__getattr__ = lazily(__name__, {"schedule": "Schedule Stage create_schedule"}, "hybrid schedule")
