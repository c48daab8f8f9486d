"""Tensor intrinsics: the computation of a hardware instruction, and its call.

Those of x86, ARM and NVIDIA's GPUs (`x86`, `arm_cpu`, `dot_product_common`, `cuda`) are there from the start.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...absent import attributes
from .intrin import BUILT_IN, TensorIntrin

__all__ = ["TensorIntrin"]

_absent = attributes(__name__)


def __getattr__(name: str) -> Any:
    """The names of the intrinsics, which are in the modules of their targets."""
    if name.endswith("_INTRIN"):
        for module in BUILT_IN:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    return _absent(name)
