"""The tensor instructions of known machines. They are not there yet: using a name of it says so."""

from .._later import announce

__getattr__ = announce(
    __name__,
    "tensor instructions are not there yet; vectorize and unroll the loops instead",
    ["arm_cpu", "cuda", "hexagon", "rocm", "x86"],
)
