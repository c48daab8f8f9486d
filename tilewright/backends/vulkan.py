"""GPUs by Vulkan: programs can be scheduled and lowered for them; nothing generates SPIR-V."""

from __future__ import annotations

from typing import Final

from ..target.kinds import GPU, Option
from . import Backend
from ._gpu import PIPELINE, SMALL

_SUPPORTS: Final = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64", "8bit_buffer", "16bit_buffer"),
    *("storage_buffer_storage_class", "push_descriptor", "dedicated_allocation"),
    *("integer_dot_product", "cooperative_matrix"),
)

BACKEND: Final = Backend(
    name="vulkan",
    device_type=7,
    family="gpu",
    options={
        **GPU,
        **{f"supports_{what}": Option("bool") for what in _SUPPORTS},
        "mattr": Option("list"),
        "device_name": Option("text", "the name that the driver gives the device"),
        "device_type": Option("text", "discrete, integrated, virtual or cpu"),
        "driver_name": Option("text", "the name of the driver"),
        "driver_version": Option("int", "the version of the driver", low=0),
        "supported_subgroup_operations": Option("int", "as flags", low=0),
        "vulkan_api_version": Option("int", "as Vulkan packs it", low=0),
        "max_spirv_version": Option("int", "as SPIR-V packs it", low=0),
    },
    defaults=SMALL,
    pipeline=PIPELINE,
)
