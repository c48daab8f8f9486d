"""Compiled functions that take the tensors of other packages, without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime.ndarray import from_dlpack


def convert_func(
    tvm_func: Callable[..., Any], tensor_type: type, to_dlpack_func: Callable[[Any], Any]
) -> Callable[..., Any]:
    """A function that takes tensors of a type, which `to_dlpack_func` makes capsules of, and works in their memory."""

    def wrapped(*args: Any) -> Any:
        return tvm_func(*(from_dlpack(to_dlpack_func(a)) if isinstance(a, tensor_type) else a for a in args))

    return wrapped


def to_pytorch_func(tvm_func: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes tensors of PyTorch."""
    import torch

    return convert_func(tvm_func, torch.Tensor, lambda tensor: tensor.__dlpack__())
