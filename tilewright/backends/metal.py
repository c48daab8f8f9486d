"""Apple GPUs: kernels in the Metal shading language, for another compiler."""

from __future__ import annotations

from typing import Any, Final

from ..target.kinds import GPU, Option
from . import Backend
from ._gpu import PIPELINE, SMALL, kernels_as_source


def _dialect() -> Any:
    from ..codegen.source.metal import Metal

    return Metal()


BACKEND: Final = Backend(
    name="metal",
    device_type=8,
    family="gpu",
    options={**GPU, "mtriple": Option("text")},
    defaults={**SMALL, "max_shared_memory_per_block": 32768, "thread_warp_size": 16, "max_function_args": 31},
    pipeline=PIPELINE,
    generate=kernels_as_source,
    dialect=_dialect,
)
