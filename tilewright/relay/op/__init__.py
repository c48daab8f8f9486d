"""The operators of the graph IR, by family. `registry.py` says how to add one."""

# ruff: noqa: F403
from . import registry
from .registry import (
    Attrs,
    OpPattern,
    RelayOp,
    RelayTypeError,
    get,
    register,
    register_compute,
    register_op_attr,
    register_pattern,
)
from .tensor import *
