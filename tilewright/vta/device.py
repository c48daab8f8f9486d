"""The DRAM of the simulated chip, as a device: `tvm.nd.array(x, tvm.ext_dev(0))` is in it.

     0      4096                                                     size
    ┌──────┬─────────┬───────────────┬────────┬──────────────────────┐
    │ none │ array A │ array B       │ (free) │ array C  …           │    all allocations begin at a multiple of 4096
    └──────┴─────────┴───────────────┴────────┴──────────────────────┘

An address counts bytes from the start of the arena. Address 0 belongs to no allocation, so that an address that nobody
has set is found out. Memory is committed by the operating system when it is first touched.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from bisect import bisect_right, insort
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ..runtime.devices import DeviceApi, register_device_api

if TYPE_CHECKING:
    import numpy as np

ALIGNMENT: Final = 4096
SIZE: Final = 1 << 30


class Dram:
    """One arena of memory with aligned allocations; the lowest gap that is large enough is used first."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self._starts: list[int] = []  # sorted
        self._sizes: dict[int, int] = {}
        self._lock = threading.RLock()  # a finalizer may release memory while memory is allocated

    @cached_property
    def bytes(self) -> np.ndarray[Any, Any]:
        """The bytes of the arena."""
        import numpy as np

        return np.frombuffer(mmap.mmap(-1, self.size), np.uint8)

    @cached_property
    def address(self) -> int:
        """The address of the arena in the memory of this process."""
        return int(self.bytes.ctypes.data)

    @property
    def allocated(self) -> int:
        """The number of bytes that are allocated."""
        return sum(self._sizes.values())

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` bytes; their contents are undefined."""
        nbytes = max(nbytes, 1)  # two allocations never have the same address
        with self._lock:
            at = ALIGNMENT
            for start in self._starts:
                if start - at >= nbytes:
                    break
                at = _aligned(start + self._sizes[start])
            if at + nbytes > self.size:
                raise MemoryError(
                    f"the DRAM of the simulated chip has {self.size:,} bytes, {self.allocated:,} are allocated, and "
                    f"there is no gap of {nbytes:,}; delete arrays that are no longer used"
                )
            insort(self._starts, at)
            self._sizes[at] = nbytes
            return at

    def release(self, address: int) -> None:
        """Free an allocation."""
        with self._lock:
            if address not in self._sizes:
                raise ValueError(
                    f"address {address:#x} is not the start of an allocation in the simulated DRAM"
                )
            del self._sizes[address]
            self._starts.remove(address)

    def holds(self, address: int, nbytes: int) -> bool:
        """Whether bytes lie within one allocation."""
        at = bisect_right(self._starts, address) - 1
        return at >= 0 and address + nbytes <= self._starts[at] + self._sizes[self._starts[at]]

    def describe(self) -> str:
        """The allocations as text, for errors."""
        ranges = [f"{s:#x} to {s + self._sizes[s]:#x}" for s in self._starts]
        shown = ranges if len(ranges) <= 8 else [*ranges[:8], f"and {len(ranges) - 8} more"]
        return ", ".join(shown) or "none"


class DramApi(DeviceApi):
    """The simulated DRAM as the memory of `ext_dev(0)`."""

    def __init__(self, dram: Dram) -> None:
        self.dram = dram

    def count(self) -> int:
        return 1

    def allocate(self, index: int, nbytes: int) -> int:
        return self.dram.allocate(nbytes)

    def release(self, index: int, address: int) -> None:
        self.dram.release(address)

    def upload(self, index: int, address: int, source: int, nbytes: int) -> None:
        ctypes.memmove(self._place(address, nbytes), source, nbytes)

    def download(self, index: int, address: int, target: int, nbytes: int) -> None:
        ctypes.memmove(target, self._place(address, nbytes), nbytes)

    def copy(self, index: int, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(self._place(target, nbytes), self._place(source, nbytes), nbytes)

    def program(self, index: int, data: bytes) -> Any:
        from .binary import Program  # the compiler's part of the room is loaded when there is a program
        from .environment import get_env
        from .module import ChipModule

        return ChipModule(Program.decode(data, get_env().config))

    def sync(self, index: int) -> None:
        return None

    def attribute(self, index: int, name: str) -> Any:
        return {
            "device_name": "the simulated chip",
            "total_global_memory": self.dram.size,
            "available_global_memory": self.dram.size - self.dram.allocated,
        }.get(name)

    def _place(self, address: int, nbytes: int) -> int:
        if not self.dram.holds(address, nbytes):
            raise ValueError(
                f"{nbytes} bytes at {address:#x} do not lie within one allocation of the simulated DRAM; allocated "
                f"are: {self.dram.describe()}"
            )
        return self.dram.address + address


_api: DramApi | None = None


def dram() -> Dram:
    """The DRAM of this process, which is made and registered as `ext_dev(0)` by the first call."""
    global _api
    if _api is None:
        _api = DramApi(Dram())
        register_device_api("ext_dev", _api)
    return _api.dram


def _aligned(address: int) -> int:
    return -(-address // ALIGNMENT) * ALIGNMENT
