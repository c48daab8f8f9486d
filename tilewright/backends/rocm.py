"""AMD GPUs: kernels as HIP source, for another compiler."""

from __future__ import annotations

from typing import Any, Final

from ..target.kinds import GPU, Option
from . import Backend
from ._gpu import PIPELINE, SMALL, kernels_as_source


def _dialect() -> Any:
    from ..codegen.source.hip import Hip

    return Hip()


BACKEND: Final = Backend(
    name="rocm",
    device_type=10,
    family="gpu",
    options={**GPU, "mcpu": Option("text"), "mtriple": Option("text"), "mattr": Option("list")},
    defaults={**SMALL, "max_shared_memory_per_block": 65536, "thread_warp_size": 64},
    pipeline=PIPELINE,
    generate=kernels_as_source,
    dialect=_dialect,
)
