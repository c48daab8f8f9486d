"""The layout of an array: everything that a call needs besides the address (type, shape, strides, device, writability).

Layouts are interned: two arrays with the same layout usually have the same object, so a launcher recognizes arguments
that it has already checked by a single lookup.
"""

from __future__ import annotations

from .dtypes import ELEMENTS

_LIMIT = 4096  # most interned layouts; beyond this the table is cleared
_known: dict[tuple[object, ...], Layout] = {}


class Layout:
    """The layout of an array; `strides` counts elements and is None when the array is dense row-major."""

    __slots__ = ("device_id", "device_type", "dtype", "high", "low", "shape", "size", "strides", "writeable")

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        device_type: int,
        device_id: int,
        writeable: bool,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = None if strides is None or _is_dense(shape, strides) else strides
        self.device_type = device_type
        self.device_id = device_id
        self.writeable = writeable
        self.size = 1
        for extent in shape:
            self.size *= extent
        self.low, self.high = self._span()

    def _span(self) -> tuple[int, int]:
        """The byte range from the lowest to the highest element, relative to the address."""
        size = ELEMENTS[self.dtype].itemsize if self.dtype in ELEMENTS else 8
        if self.strides is None:
            return 0, self.size * size
        reach = [stride * (extent - 1) for stride, extent in zip(self.strides, self.shape)]
        return sum(r for r in reach if r < 0) * size, (sum(r for r in reach if r > 0) + 1) * size

    def all_strides(self) -> tuple[int, ...]:
        """The strides, also of a dense array."""
        return dense_strides(self.shape) if self.strides is None else self.strides


def layout_of(
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    device_type: int = 1,
    device_id: int = 0,
    writeable: bool = True,
) -> Layout:
    """The shared layout of these parts."""
    key = (dtype, shape, strides, device_type, device_id, writeable)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _LIMIT:
            _known.clear()
        found = _known[key] = Layout(*key)
    return found


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements: `(4, 5) -> (5, 1)`."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides are row-major without gaps; the stride of a dimension of size 1 does not matter."""
    if 0 in shape:
        return True
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1:
            if stride != expected:
                return False
            expected *= extent
    return True
