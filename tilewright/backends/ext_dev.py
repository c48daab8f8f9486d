"""The example accelerator, VTA: a chip of engines, whose room is `tilewright.vta`."""

from __future__ import annotations

from typing import Any, Final

from ..homes import home_of
from ..ir.module import IRModule
from ..target import Target
from ..target.accelerator import Accelerator
from ..target.kinds import Option
from . import Backend
from ._accelerator import PIPELINE


def _chip(target: Target) -> Accelerator:
    chip: Accelerator = home_of("vta").chip_of_target(target)
    return chip


def _present(target: Target) -> Target:
    said: Target = home_of("vta").configured(target)
    return said


def _generate(mod: IRModule, same: IRModule, target: Target) -> Any:
    return home_of("vta").build_module(mod, target)


BACKEND: Final = Backend(
    name="ext_dev",
    device_type=12,
    family="accelerator",
    options={
        "system-lib": Option("bool"),
        "machine": Option("text", "keys of the configuration, as DRAM_LATENCY:40,LOG_INP_BUFF_SIZE:16"),
    },
    pipeline=PIPELINE,
    generate=_generate,
    chip=_chip,
    executor="device",
    measurable=True,
    present=_present,
)
