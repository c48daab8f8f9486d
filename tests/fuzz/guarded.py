"""Memory between pages that nobody may touch: a read or write outside of it, or after it was given back, is a signal."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

import numpy as np

from tilewright.runtime.ndarray import ALIGNMENT, NDArray, numpyasarray
from tilewright.runtime.pool import Pool, Storage

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PAGE = mmap.PAGESIZE
_FILL = 0xA5


class GuardedPool(Pool):
    """Every block has pages of its own; what alignment leaves behind its end must stay as it was."""

    def take(self, nbytes: int) -> Storage:
        inside = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        if inside >= 1 << 46:
            raise MemoryError(f"{nbytes:,} bytes")
        length = -(-inside // _PAGE) * _PAGE + 2 * _PAGE
        start = _libc.mmap(None, length, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if start in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"{nbytes:,} bytes")
        if _libc.mprotect(start + _PAGE, length - 2 * _PAGE, mmap.PROT_READ | mmap.PROT_WRITE):
            _libc.munmap(start, length)
            raise MemoryError(f"{nbytes:,} bytes")
        address = start + length - _PAGE - inside
        ctypes.memset(address + nbytes, _FILL, inside - nbytes)

        def give_back() -> None:
            rest = ctypes.string_at(address + nbytes, inside - nbytes)
            if rest.strip(bytes([_FILL])):
                ctypes.string_at(1)  # a write behind the end: as loud as one that meets a guarded page
            _libc.munmap(start, length)

        made = Storage((address, None))
        weakref.finalize(made, give_back).atexit = False
        return made


def guarded(values: np.ndarray[Any, Any]) -> NDArray:
    """A copy of an array in guarded memory."""
    block = GuardedPool().take(values.nbytes)
    lease: Any = (ctypes.c_uint8 * values.nbytes).from_address(block.address)
    lease.owner = block
    made = np.ndarray(values.shape, values.dtype, lease)
    made[...] = values
    return numpyasarray(made)
