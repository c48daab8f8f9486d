"""Putting it together: `lower`, `build`, and the command line."""

from . import build_module
from .build import build
from .lower import lower

__all__ = ["build", "build_module", "lower"]
