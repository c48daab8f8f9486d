"""From a program and a target to a module: `lower`, `build`."""

from . import build_module
from .build import build
from .lower import lower, lower_kernels, with_planned_memory

__all__ = ["build", "build_module", "lower", "lower_kernels", "with_planned_memory"]
