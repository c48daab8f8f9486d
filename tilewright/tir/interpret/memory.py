"""Memory: bytes with a mask of written cells and a log of accesses; pointers into it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtype import DataType
from .report import InterpreterError
from .scalars import numpy_type
from .threads import AccessLog, Clock


class Memory:
    """One allocation or one argument.

    `mask` has one byte for each `unit` bytes of memory, set once they are written; None if all of it counts as written.
    `shape` is the declared shape, for reports.
    """

    __slots__ = ("kind", "log", "mask", "name", "raw", "scope", "shape", "unit")

    def __init__(
        self,
        name: str,
        kind: DataType,
        shape: tuple[int, ...],
        raw: np.ndarray[Any, Any],
        unit: int,
        scope: str = "global",
        tracked: bool = False,
    ) -> None:
        self.name, self.kind, self.shape, self.scope = name, kind, shape, scope
        self.raw = raw
        self.unit = unit
        self.mask: bytearray | None = bytearray(-(-self.nbytes // unit)) if tracked else None
        self.log: AccessLog | None = None

    @property
    def nbytes(self) -> int:
        return int(self.raw.nbytes)

    def mark_written(self) -> None:
        """Mark all of it as written, before a call that the interpreter cannot follow."""
        if self.mask is not None:
            self.mask[:] = b"\1" * len(self.mask)


class Pointer:
    """An address: the value of a handle variable."""

    __slots__ = ("memory", "offset")

    def __init__(self, memory: Memory, offset: int = 0) -> None:
        self.memory, self.offset = memory, offset

    def view(self, kind: DataType) -> Any:
        """The memory from here on as a flat sequence of `kind`'s lanes, without a copy.

        Integers, bool and float64 come as a memoryview, which gives and takes Python numbers.
        """
        held = numpy_type(kind)
        raw = self.memory.raw
        if raw.dtype.hasobject or held.hasobject:
            if raw.dtype != held:
                raise InterpreterError("unsupported", f"{self.memory.name}: handles seen as {kind}")
            return raw[self.offset // 8 :]
        if not 0 <= self.offset <= raw.nbytes:
            raise InterpreterError(
                "out-of-bounds",
                f"a pointer to byte {self.offset} of {self.memory.name}, which has {raw.nbytes} bytes",
            )
        if (raw.ctypes.data + self.offset) % held.alignment:
            raise InterpreterError(
                "unsupported", f"{self.memory.name} is seen as {kind} at a misaligned byte, {self.offset}"
            )
        rest = raw[self.offset :]
        flat = rest[: rest.nbytes // held.itemsize * held.itemsize].view(held)
        return memoryview(flat) if held.kind in "iub" or held == np.float64 else flat  # type: ignore[arg-type]

    def written(self) -> Any:
        """The mask from here on."""
        mask = self.memory.mask
        if mask is None:
            return bytearray(b"\1" * (len(self.memory.raw) // self.memory.unit + 1))
        return memoryview(mask)[self.offset // self.memory.unit :] if self.offset else mask

    def log(self, clock: Clock) -> AccessLog:
        """The memory's log of accesses."""
        held = self.memory.log
        if held is None or held.clock is not clock:
            held = self.memory.log = clock.log_type(clock, self.memory)
        return held

    @property
    def cell(self) -> int:
        """The index of this address in the mask and the log."""
        return self.offset // self.memory.unit

    def moved(self, count: int, kind: DataType) -> Pointer:
        """The pointer `count` values of `kind` further on."""
        return Pointer(self.memory, self.offset + count * kind.nbytes)

    def array(
        self, kind: DataType, shape: tuple[int, ...], strides: tuple[int, ...] | None = None
    ) -> np.ndarray[Any, Any]:
        """The memory from here on as a NumPy array, for functions that the interpreter calls."""
        self.memory.mark_written()
        one = numpy_type(kind)
        if kind.lanes > 1:
            shape = (*shape, kind.lanes)
            strides = None if strides is None else (*(s * kind.lanes for s in strides), 1)
        rest = self.memory.raw[self.offset :]
        flat = rest[: rest.nbytes // one.itemsize * one.itemsize].view(one)
        if strides is None:
            size = int(np.prod(shape, dtype=np.int64))
            if size > flat.size:
                raise InterpreterError(
                    "out-of-bounds",
                    f"an array of {size} elements of {kind} in {self.memory.name}, which has room for {flat.size}",
                )
            return flat[:size].reshape(shape)
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if last >= flat.size:
            raise InterpreterError(
                "out-of-bounds",
                f"an array that ends at element {last} of {self.memory.name}, which has {flat.size}",
            )
        return np.lib.stride_tricks.as_strided(flat, shape, [s * one.itemsize for s in strides])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pointer) and self.memory is other.memory and self.offset == other.offset

    def __hash__(self) -> int:
        return hash((id(self.memory), self.offset))

    def __repr__(self) -> str:
        return f"<pointer to byte {self.offset} of {self.memory.name}>"


def element_name(memory: Memory, cell: int) -> str:
    """`S[2, 3]`: the element that a cell of the mask belongs to, with indices in the declared shape."""
    size = memory.kind.nbytes
    flat = cell * memory.unit // size
    count = 1
    for n in memory.shape:
        count *= n
    if not memory.shape or count * size != memory.nbytes:
        return f"{memory.name}[{flat}]"
    out: list[int] = []
    for n in reversed(memory.shape):
        out.append(flat % n)
        flat //= n
    return f"{memory.name}[{', '.join(map(str, reversed(out)))}]"
