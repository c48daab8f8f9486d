"""The operator inventory: the compute of every operator as tensor expressions.

    conv = topi.nn.conv2d(x, w, strides=1, padding=1, dilation=1)
    out = topi.nn.relu(topi.add(conv, bias))

No operator has a schedule of its own: `tilewright.auto_schedule` finds one from the program.
"""

# ruff: noqa: F403
from ..homes import lazily as _lazily
from . import tag, utils
from .broadcast import *
from .creation import *
from .elsewhere import CPUS as _CPUS
from .elsewhere import GPUS as _GPUS
from .indexing import *
from .math import *
from .matmul import *
from .reduction import *
from .scatter import *
from .signal import *
from .slicing import *
from .sort import *
from .sparse_rows import *
from .transform import *
from .trees import *

from . import checks, generic, image, nn, random, sparse, vision  # isort: skip  (they use the operators above)

# The packages of targets are made when they are used, and what tests ask for is loaded then.
__getattr__ = _lazily(__name__, {}, " ".join(("cuda", "testing", *_CPUS, *_GPUS)))
