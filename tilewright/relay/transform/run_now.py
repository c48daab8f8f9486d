"""Calls of operators run at compile time: each is compiled as a kernel of its own, once for each kind of call."""

from __future__ import annotations

import threading
from typing import Any, Final

from ...runtime.ndarray import NDArray, array, empty
from ..expr import Call, Function, Var
from ..op.registry import RelayOp
from ..ty import Type, is_dynamic, tensor_fields
from .infer_type import infer_type

__all__ = ["can_run", "run_call"]

_kernels: Final[dict[Any, Any]] = {}
_lock: Final = threading.Lock()


def can_run(op: Any, result: Type) -> bool:
    """Whether a call of the operator with that result can be compiled on its own and run now."""
    return isinstance(op, RelayOp) and op.compute is not None and not is_dynamic(result)


def run_call(op: RelayOp, attrs: Any, types: list[Type], args: list[Any], result: Type) -> list[NDArray]:
    """The tensors that a call gives for arrays, tuples laid out flat on both sides."""
    outs = tensor_fields(result)
    key = (op, attrs, tuple(types), result)
    with _lock:
        kernel = _kernels.get(key)
        if kernel is None:
            kernel = _kernels[key] = _compile(op, attrs, types)
    given = [a if isinstance(a, NDArray) else array(a) for a in args]
    made = [empty(t.shape, str(t.dtype)) for t in outs]
    kernel(*given, *made)
    return made


def _compile(op: RelayOp, attrs: Any, types: list[Type]) -> Any:
    from ..backend.single import kernel_of  # the compiler, which is loaded when it is first used

    params = [Var(f"p{i}", kind) for i, kind in enumerate(types)]
    return kernel_of(infer_type(Function(params, Call(op, params, attrs), attrs={"Primitive": 1})))
