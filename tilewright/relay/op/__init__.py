"""The operators of the graph IR, by family. `registry.py` says how to add one.

A family is a file here. Its constructors stand in `relay` as well, or in `relay.nn`, `relay.image`, … where the
operators' names begin so.
"""

# ruff: noqa: F403
import sys as _sys

from ...absent import attributes as _attributes
from . import annotation, checks, dyn, image, nn, random, recurrent, registry, strategy, vision
from . import op as op
from .annotation import device_copy as device_copy
from .attributes import Attrs
from .broadcast import *
from .creation import *
from .elementwise import *
from .index import *
from .op import *
from .product import einsum as einsum
from .rearrange import *
from .reduce import *
from .signal import *
from .sorting import *
from .sparse import *
from .trees import *

# The classic files, whose constructors are all here.
for _name in ("algorithm", "tensor", "transform"):
    _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _sys.modules[__name__]

__getattr__ = _attributes(__name__)
