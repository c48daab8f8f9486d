"""The operator inventory: what every operator computes, as tensor expressions.

    conv = topi.nn.conv2d(x, w, strides=1, padding=1, dilation=1)
    out = topi.nn.relu(topi.add(conv, bias))

No operator has a schedule of its own: `tilewright.auto_schedule` finds one from the program.
"""

# ruff: noqa: F403
from .._later import announce as _announce
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

from . import checks, cuda, generic, image, nn, sparse, testing, vision  # isort: skip  (they use the operators above)

# The classic had a package of kernels and schedules for each of these targets.
_announce(
    __name__,
    "operators are not written for one target here and this one is not there yet; "
    "take the operator of topi or topi.nn and let tilewright schedule it",
    [
        "arm_cpu",
        "arm_cpu.dense_alter_op",
        "arm_cpu.matmul",
        "bifrost",
        "mali",
        "x86",
        "x86.conv2d_avx_common",
        "x86.dense_alter_op",
    ],
)
for _name in ("arm_cpu", "bifrost", "mali", "x86"):
    _package = globals()[_name]
    _package.__getattr__ = _operator_or(_package.__getattr__)
