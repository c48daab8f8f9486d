"""A chip that is described outside of the package: the example accelerator with slower memory, under another name.

Its modules are plain `AcceleratorModule`s, whose `run` another process finds by its name.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.backends import Backend, register
from tilewright.backends._accelerator import PIPELINE, arguments_of, commands_of
from tilewright.ir.function import PrimFunc
from tilewright.ir.module import IRModule
from tilewright.runtime.accelerator_module import AcceleratorModule
from tilewright.runtime.devices import Device
from tilewright.target import Target
from tilewright.vta.binary import Code
from tilewright.vta.chip import chip, encode
from tilewright.vta.config import Config
from tilewright.vta.device import dram
from tilewright.vta.driver import encode_commands
from tilewright.vta.simulator import Simulator

CONFIG = Config(dram_latency=80)


def run(code: Code, name: str, arrays: list[Any]) -> float:
    """Simulate a function; returns its seconds."""
    report = Simulator(CONFIG, dram()).run(code, [a.data_ptr for a in arrays])
    return report.cycles / (CONFIG.clock_mhz * 1e6)


def generate(mod: IRModule, same: IRModule, target: Target) -> AcceleratorModule:
    ((gv, func),) = mod.functions.items()
    assert isinstance(func, PrimFunc)
    code = encode_commands(commands_of(func, chip(CONFIG), encode), CONFIG)
    arguments = {gv.name_hint: arguments_of(func, chip(CONFIG))}
    return AcceleratorModule("outside", arguments, partial(run, code), Device(12, 0))


register(
    Backend(
        name="outside_chip",
        device_type=12,
        family="accelerator",
        pipeline=PIPELINE,
        generate=generate,
        chip=lambda target: chip(CONFIG),
        measurable=True,
    )
)
