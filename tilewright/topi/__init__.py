"""The operator inventory: the compute of every operator as tensor expressions.

    conv = topi.nn.conv2d(x, w, strides=1, padding=1, dilation=1)
    out = topi.nn.relu(topi.add(conv, bias))

No operator has a schedule of its own: `tilewright.auto_schedule` finds one from the program.
"""

# ruff: noqa: F403
from importlib import import_module as _import_module

from ..homes import lazily as _lazily
from . import tag, utils
from .broadcast import *
from .creation import *
from .elsewhere import operator_or as _operator_or
from .indexing import *
from .math import *
from .matmul import *
from .reduction import *
from .scatter import *
from .slicing import *
from .sort import *
from .transform import *

from . import checks, generic, image, nn, sparse, vision  # isort: skip  (they use the operators above)

# The classic had a package of kernels and schedules for each of these targets.
for _name in ("arm_cpu", "bifrost", "mali", "x86"):
    _package = _import_module(f".{_name}", __name__)
    _package.__dict__["__getattr__"] = _operator_or(_package.__getattr__)

__getattr__ = _lazily(__name__, {}, "cuda testing")  # schedules by hand for GPUs, and what asks for them
