"""The classic home of what crosses the border to compiled code."""

from ..runtime.registry import get_global_func, register_func
from . import base, runtime_ctypes

__all__ = ["base", "get_global_func", "register_func", "runtime_ctypes"]
