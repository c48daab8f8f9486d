"""The families of converters: importing one fills the table."""

from __future__ import annotations

from . import (
    activation,
    arrange,
    convolve,
    elementwise,
    index,
    interpolate,
    norm,
    pool,
    product,
    recurrent,
    reduction,
)

__all__ = [
    "activation",
    "arrange",
    "convolve",
    "elementwise",
    "index",
    "interpolate",
    "norm",
    "pool",
    "product",
    "recurrent",
    "reduction",
]
