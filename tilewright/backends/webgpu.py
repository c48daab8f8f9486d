"""GPUs in a browser: programs can be scheduled and lowered for them; nothing generates WGSL."""

from __future__ import annotations

from typing import Final

from ..target.kinds import GPU
from . import Backend
from ._gpu import PIPELINE, limits

BACKEND: Final = Backend(
    name="webgpu",
    device_type=15,
    family="gpu",
    default_keys=("webgpu", "gpu"),
    options=GPU,
    defaults={
        "max_num_threads": 256,
        "max_threads_per_block": 256,
        "max_shared_memory_per_block": 16384,
        "thread_warp_size": 1,
    },
    pipeline=PIPELINE,
    limits=limits,
)
