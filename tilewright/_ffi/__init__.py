"""The classic home of what crosses the border to compiled code."""

from ..absent import attributes
from ..runtime.registry import get_global_func, list_global_func_names, register_func, remove_global_func
from . import base, runtime_ctypes

__all__ = [
    "base",
    "get_global_func",
    "list_global_func_names",
    "register_func",
    "remove_global_func",
    "runtime_ctypes",
]

__getattr__ = attributes(__name__)
