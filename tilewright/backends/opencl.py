"""GPUs of any make, and processors, by OpenCL C."""

from __future__ import annotations

from typing import Any, Final

from ..target.kinds import GPU, count
from . import Backend
from ._gpu import PIPELINE, SMALL, kernels_as_source


def _dialect() -> Any:
    from ..codegen.source.opencl import OpenCL

    return OpenCL()


BACKEND: Final = Backend(
    name="opencl",
    device_type=4,
    family="gpu",
    options={
        **GPU,
        "texture_spatial_limit": count("the longest side of an image"),
        "texture_depth_limit": count("the most layers of an image"),
        "image_base_address_alignment": count("bytes that images are aligned to"),
    },
    defaults=SMALL,
    pipeline=PIPELINE,
    generate=kernels_as_source,
    dialect=_dialect,
    executor="device",
    measurable=True,
)
