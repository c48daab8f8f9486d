"""GPUs in a browser: programs can be scheduled and lowered for them; nothing generates WGSL."""

from __future__ import annotations

from typing import Final

from ..target.kinds import GPU
from . import Backend
from ._gpu import PIPELINE, SMALL

BACKEND: Final = Backend(
    name="webgpu",
    device_type=15,
    family="gpu",
    options=GPU,
    defaults=SMALL,
    pipeline=PIPELINE,
)
