"""The windows that the attributes of a node describe, with the automatic forms of their padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..common.windows import Windows
from .context import Node, Refusal

_MOST = 1 << 31


def _numbers(n: Node, name: str, default: Sequence[int], least: int) -> tuple[int, ...]:
    found = tuple(int(v) for v in n.attr(name, default))
    if len(found) != len(default):
        raise Refusal(f"{name} {list(found)} must have {len(default)} numbers")
    if any(v < least or v >= _MOST for v in found):
        raise Refusal(f"{name} {list(found)} must lie between {least} and 2^31")
    return found


def windows_of(n: Node, kernel: Sequence[int], sizes: Sequence[Any]) -> Windows:
    """The windows that the attributes of a node describe; `sizes` are the spatial ones of its data."""
    dims = len(kernel)
    kernel = tuple(int(k) for k in kernel)
    if any(k < 1 or k >= _MOST for k in kernel):
        raise Refusal(f"kernel_shape {list(kernel)} must be positive")
    strides = _numbers(n, "strides", [1] * dims, 1)
    dilations = _numbers(n, "dilations", [1] * dims, 1)
    pads = tuple(int(v) for v in n.attr("pads", [0] * 2 * dims))
    if len(pads) != 2 * dims or any(abs(p) >= _MOST for p in pads):
        raise Refusal(f"pads {list(pads)} must be {2 * dims} numbers of reasonable size")
    before, after = list(pads[:dims]), list(pads[dims:])
    auto = n.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        for d in range(dims):
            if not isinstance(sizes[d], int):
                if strides[d] != 1:
                    raise Refusal(f"auto_pad={auto} needs sizes that are known at import; give shape=")
                total = dilations[d] * (kernel[d] - 1)
            else:
                count = -(-sizes[d] // strides[d])
                total = max((count - 1) * strides[d] + dilations[d] * (kernel[d] - 1) + 1 - sizes[d], 0)
            small, big = total // 2, total - total // 2
            before[d], after[d] = (small, big) if auto == "SAME_UPPER" else (big, small)
    elif auto == "VALID":
        before, after = [0] * dims, [0] * dims
    elif auto != "NOTSET":
        raise Refusal(f"auto_pad {auto!r} is unknown")
    if any(p < 0 for p in (*before, *after)):
        raise Refusal(f"pads {list(pads)} must not be negative")
    return Windows(kernel, strides, dilations, tuple(before), tuple(after), n.flag("ceil_mode", 0))
