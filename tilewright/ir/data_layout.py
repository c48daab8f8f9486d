"""Layouts of tensors as text: NCHW, NHWC, NCHW16c."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)
def layout_axes(text: str) -> tuple[tuple[str, int], ...] | None:
    """The letter of each dimension and, of an inner part, its size (0 if it is not written); None for other texts.

    An upper-case letter is an axis, a number with a lower-case one an inner part of it:

    "NCHW16c"  ->  (("N", 0), ("C", 0), ("H", 0), ("W", 0), ("c", 16))
    """
    found = re.findall(r"(\d*)([A-Za-z])", text)
    outer = [v for _, v in found if v.isupper()]
    whole = bool(found) and "".join(size + v for size, v in found) == text and len(set(outer)) == len(outer)
    if not whole or any(v.upper() not in outer or (size and v.isupper()) for size, v in found):
        return None
    return tuple((v, int(size or 0)) for size, v in found)
