"""Random numbers that are the same for the same generator, on every target."""

from . import kernel
from .kernel import (
    multinomial,
    normal,
    threefry_generate,
    threefry_split,
    threefry_test_wrapping,
    uniform,
)

__all__ = [
    "kernel",
    "multinomial",
    "normal",
    "threefry_generate",
    "threefry_split",
    "threefry_test_wrapping",
    "uniform",
]
