"""A memory pool: blocks of a few size classes, reused without calls of the system.

take(1000)  ->  a block of 1024 bytes, one that was freed if there is one      1 · 1.125 · 1.25 · … · 2 · 2.25 · …
the last reference to it goes  ->  back to the list of its size
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from .ndarray import ALIGNMENT

_LEAST = 64
_KEPT = 64 << 20  # bytes of free blocks that are always kept
_UPWARD = 4  # larger size classes to search before allocating: at most 1.5 times the size

Block = tuple[int, Any]  # the address, and the owner of the memory


class Storage:
    """A block in use. It returns to its pool with the last reference to it."""

    __slots__ = ("__weakref__", "_block", "address")

    def __init__(self, block: Block) -> None:
        self._block, self.address = block, block[0]


class _Used(weakref.ref[Storage]):
    """The return of a block: the callback is a method of the free list, which is C code.

    A method `__del__` would be Python, and a Ctrl-C that Python handles in it is lost.
    """

    __slots__ = ("block",)
    block: Block


@dataclass(frozen=True, slots=True)
class PoolReport:
    """The bytes that a pool has allocated, those in use, and the number of blocks."""

    total: int
    used: int
    blocks: int

    @property
    def free(self) -> int:
        return self.total - self.used

    def __str__(self) -> str:
        rows = [(name, getattr(self, name)) for name in ("total", "used", "free")]
        return "\n".join(
            [*(f"{name:8} {size:>14,} bytes" for name, size in rows), f"blocks   {self.blocks:>14,}"]
        )


def size_class(nbytes: int) -> int:
    """The size class of a request: at most an eighth larger."""
    if nbytes <= _LEAST:
        return _LEAST
    step = (nbytes - 1).bit_length() - 4
    return (((nbytes - 1) >> step) + 1) << step


class Pool:
    """Blocks of memory on the CPU, by size."""

    def __init__(self) -> None:
        self._free: dict[int, list[_Used]] = {}
        self._used: dict[int, _Used] = {}  # by address, free blocks included
        self._total = 0
        self._blocks = 0

    def take(self, nbytes: int) -> Storage:
        """Uninitialized memory of `size` bytes, aligned to a cache line."""
        size = size_class(nbytes)
        free = self._free.get(size)
        if free is None:
            free = self._free[size] = []
        try:
            block = free.pop().block
        except IndexError:
            return self._more(size)
        made = Storage(block)  # as `_take` does it: this is called for each tensor
        used = self._used[block[0]] = _Used(made, free.append)
        used.block = block
        return made

    def _more(self, size: int) -> Storage:
        larger = size
        for _ in range(_UPWARD):
            larger = size_class(larger + 1)
            found = self._free.get(larger)
            if found:
                try:
                    return self._take(found.pop().block, found)
                except IndexError:  # taken by another thread
                    continue
        free = self._unused()
        if free > _KEPT and free > self._total - free:
            self.trim()
        block = self.allocated(size)
        self._total += size
        self._blocks += 1
        return self._take(block, self._free[size])

    def allocated(self, size: int) -> Block:
        """A new block."""
        try:
            raw = np.empty(size + ALIGNMENT, np.uint8)
        except (ValueError, OverflowError):  # larger than the address space
            raise MemoryError(f"a tensor of {size:,} bytes does not fit into memory") from None
        start = raw.ctypes.data
        return start + -start % ALIGNMENT, raw

    def _take(self, block: Block, free: list[_Used]) -> Storage:
        made = Storage(block)
        used = self._used[block[0]] = _Used(made, free.append)
        used.block = block
        return made

    def _unused(self) -> int:
        return sum(size * len(blocks) for size, blocks in list(self._free.items()))

    def trim(self) -> None:
        """Free the unused blocks."""
        for size, blocks in list(self._free.items()):
            count = len(blocks)
            for one in blocks[:count]:
                del self._used[one.block[0]]
            del blocks[:count]
            self._total -= size * count
            self._blocks -= count

    def report(self) -> PoolReport:
        """The current memory use."""
        return PoolReport(self._total, self._total - self._unused(), self._blocks)
