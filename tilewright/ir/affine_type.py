"""The types of quantized values: x = (q - zero_point) · scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TensorAffineType:
    """Integers of a tensor, with one scale and zero point or some along an axis."""

    scale: Any
    zero_point: Any
    dtype: str
    axis: int = -1


@dataclass(frozen=True, slots=True)
class TupleAffineType:
    """The types of the fields of a tuple."""

    types: tuple[TensorAffineType, ...]
