"""What a target can do, by name: `target.has("tma")`. Rules and passes ask this, never for a kind or an architecture.

CPUs     their features as LLVM names them: avx2, fma, avx512vnni, dotprod, i8mm, …
CUDA     dp4a                                  sums of four products of int8
         mma.f16 mma.s8 mma.bf16 mma.tf32      products of a warp on tensor cores, by the type of the operands
         cp.async                              asynchronous copies to shared memory
         tma                                   copies of boxes of a tensor to shared memory
         cluster                               thread blocks that read each other's shared memory
         launch.early                          kernels that start before the preceding kernel has ended
         wgmma                                 products of a warpgroup on tensor cores (sm_90a alone)
         setmaxnreg                            reallocation of registers between warpgroups
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .target import Target

# The first architecture with each.
_SINCE: Final = {
    "dp4a": 61,
    "mma.f16": 75,
    "mma.s8": 75,
    "mma.bf16": 80,
    "mma.tf32": 80,
    "cp.async": 80,
    "tma": 90,
    "cluster": 90,
    "launch.early": 90,
}
# Instructions that belong to one architecture, or that only code for a very architecture (`sm_90a`) may use.
_ONLY: Final = {"wgmma": (90,), "setmaxnreg": (90, 100, 101, 103, 120, 121)}
CUDA_CAPABILITIES: Final = (*_SINCE, *_ONLY)


def arch_number(arch: str) -> int:
    """80 for `sm_80`, `sm_80a` and `compute_80`; 0 for text that is not an NVIDIA architecture."""
    digits = arch.removeprefix("sm_").removeprefix("compute_").rstrip("af")
    return int(digits) if digits.isdigit() else 0


@cache
def cuda_capabilities(arch: str) -> frozenset[str]:
    """The capabilities of an NVIDIA architecture."""
    number, own = arch_number(arch), arch[-1:] in ("a", "f")
    found = {name for name, since in _SINCE.items() if number >= since}
    return frozenset(found | {name for name, archs in _ONLY.items() if own and number in archs})


def capabilities_of(target: Target) -> frozenset[str]:
    """All capabilities of a target."""
    if target.is_cpu:
        return frozenset(target.features)
    return cuda_capabilities(target.gpu.arch) if target.is_gpu else frozenset()
