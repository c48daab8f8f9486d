"""Tensor intrinsics: what an instruction of the hardware computes, and the call that does it.

Those of x86, ARM and NVIDIA's GPUs (`x86`, `arm_cpu`, `dot_product_common`, `cuda`) are there from the start.
"""

from __future__ import annotations

from ..._later import announce
from .intrin import TensorIntrin

__all__ = ["TensorIntrin"]

announce(
    __name__,
    "its tensor instructions are not there yet; register your own with tir.TensorIntrin.register",
    ["hexagon", "rocm"],
)
