"""LLVM's intrinsics that work on each lane of a vector alone, by name."""

from __future__ import annotations

import re
from typing import Final

# The number of their operands that have the type of the result; others, such as the flag of ctlz, are scalars.
_OPERANDS: Final = {
    name: count
    for count, names in (
        (
            1,
            "sqrt sin cos tan asin acos atan sinh cosh tanh exp exp2 exp10 log log2 log10 fabs floor ceil trunc",
        ),
        (1, "rint nearbyint round roundeven canonicalize ctpop ctlz cttz bswap bitreverse abs powi"),
        (2, "pow atan2 copysign minnum maxnum minimum maximum smin smax umin umax"),
        (2, "sadd.sat uadd.sat ssub.sat usub.sat sshl.sat ushl.sat"),
        (3, "fma fmuladd fshl fshr"),
    )
    for name in names.split()
}
_TYPE: Final = re.compile(r"\.(?:(?:nx)?v\d+)?(?:f|bf|i)\d+$")


def elementwise(name: str) -> tuple[str, int] | None:
    """The name without types, and the number of operands that are vectors if the result is one; None for other
    intrinsics.

    elementwise("llvm.fma.v4f32")  ->  ("llvm.fma", 3)
    """
    plain = _TYPE.sub("", name)
    count = _OPERANDS.get(plain.removeprefix("llvm.")) if plain.startswith("llvm.") else None
    return None if count is None else (plain, count)
