"""The operators of the graph IR, by family. `registry.py` says how to add one.

A family is a file here. Its constructors stand in `relay` as well, or in `relay.nn`, `relay.image`, … where the
operators' names begin so: such a family is imported here and not starred.
"""

# ruff: noqa: F403
from ...absent import attributes as _attributes
from . import (
    algorithm,
    annotation,
    checks,
    dyn,
    image,
    indexing,
    nn,
    nn_recurrent,
    reduce,
    registry,
    shape_funcs,
    tensor,
    transform,
    vision,
)
from . import registry as op
from .algorithm import *
from .indexing import *
from .reduce import *
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
from .transform import *

# What `relay` itself takes over.
__all__: list[str] = []
__all__ += tensor.__all__
__all__ += transform.__all__
__all__ += reduce.__all__
__all__ += indexing.__all__
__all__ += algorithm.__all__

__getattr__ = _attributes(__name__)
