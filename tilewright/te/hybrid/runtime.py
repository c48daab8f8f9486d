"""The names of hybrid script as Python runs it: loops that only count, arrays of NumPy, functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...homes import home_of


def allocate(shape: Sequence[int], dtype: str = "float32", scope: str = "global") -> np.ndarray[Any, Any]:
    """Memory: an array of zeros. The scope says where compiled code keeps it."""
    return np.zeros(shape, dtype)


def bind(tag: str, extent: int) -> range:
    """The loop over the threads of an axis."""
    return range(extent)


def max_num_threads(allow_none: bool = True) -> int:
    """How many threads a thread block may have on the current target."""
    target = home_of("targets").Target.current(allow_none)
    return 1024 if target is None else int(target.max_num_threads)


HYBRID_GLOBALS: Final[dict[str, Any]] = {
    **dict.fromkeys(("serial", "unroll", "vectorize", "parallel", "const_range"), range),
    "bind": bind,
    "allocate": allocate,
    "output_tensor": allocate,
    "max_num_threads": max_num_threads,
    **{name: getattr(np, name) for name in "ceil exp floor log power round sqrt tanh".split()},
    **{name: getattr(np, name) for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()},
    **{name: getattr(np, name) for name in "float16 float32 float64".split()},
    "likely": lambda condition: condition,
    "popcount": lambda x: int(x).bit_count(),
    "ceildiv": lambda a, b: -(-a // b),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
