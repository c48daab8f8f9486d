"""Tensor intrinsics: the computation of a hardware instruction, and its call.

Those of x86, ARM and NVIDIA's GPUs (`x86`, `arm_cpu`, `dot_product_common`, `cuda`) are there from the start.
"""

from __future__ import annotations

from ...absent import attributes
from .intrin import TensorIntrin

__all__ = ["TensorIntrin"]

__getattr__ = attributes(__name__)
