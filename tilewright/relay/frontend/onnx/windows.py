"""What convolutions and pools have in common: sliding windows, their padding and its automatic forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .context import Node, Refusal

__all__ = ["Windows", "window_index", "windows_of"]

_MOST = 1 << 31


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a node, one number for each spatial dimension."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    ceil: bool = False

    @property
    def padding(self) -> tuple[int, ...]:
        """As the operators take it: all begins, then all ends."""
        return (*self.before, *self.after)

    def counts(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """How many windows fit along each dimension."""
        out = []
        for d, size in enumerate(sizes):
            room = size + self.before[d] + self.after[d] - self.dilations[d] * (self.kernel[d] - 1) - 1
            count = -(-room // self.strides[d]) + 1 if self.ceil else room // self.strides[d] + 1
            if self.ceil and (count - 1) * self.strides[d] >= size + self.before[d]:
                count -= 1
            out.append(count)
        return tuple(out)


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
        raise Refusal(f"pads {list(pads)} must be {2 * dims} numbers within reason")
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


def window_index(w: Windows, sizes: Sequence[int]) -> tuple[Any, Any, tuple[int, ...]]:
    """For each window and each place in it the flat index into the data, whether it lies inside, and the counts."""
    counts = w.counts(sizes)
    flat: Any = np.zeros((1, 1), np.int64)
    inside: Any = np.ones((1, 1), bool)
    for d, size in enumerate(sizes):
        at = (
            np.arange(counts[d])[:, None] * w.strides[d]
            - w.before[d]
            + np.arange(w.kernel[d])[None] * w.dilations[d]
        )
        good = (at >= 0) & (at < size)
        at = np.clip(at, 0, max(size - 1, 0))
        flat = (flat[:, None, :, None] * size + at[None, :, None, :]).reshape(flat.shape[0] * counts[d], -1)
        inside = (inside[:, None, :, None] & good[None, :, None, :]).reshape(flat.shape)
    return flat, inside, counts
