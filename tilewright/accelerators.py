"""A chip of one's own: all names that the description of an accelerator with engines takes.

    chip = Accelerator(name="dsp", scopes=…, engines=…, tokens=…, transfers=…, vector_units=…)
    register(Backend(name="dsp", family="accelerator", chip=lambda target: chip, pipeline=PIPELINE, …))

Its field `generate` calls `build_engines(mod, target, encode, run)`: `encode` gives the name and the fields of a
command, and `run` executes the commands of a function on arrays, on a board or by `simulate`.
`examples/vector_dsp.py` is a whole chip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .backends import Backend, register
from .backends._accelerator import PIPELINE, Issued, Place, arguments_of, commands_of
from .backends._accelerator_c import CProgram, c_program
from .ir.function import PrimFunc
from .ir.module import IRModule
from .runtime.accelerator import Address, Argument, Command
from .runtime.accelerator_module import AcceleratorModule
from .runtime.command_module import CommandFunction, CommandModule, SimulatedMemory
from .runtime.devices import Device, DeviceApi, register_device_api
from .runtime.engines import EngineModel, Trace, Work, simulate
from .runtime.ndarray import NDArray
from .target import Target
from .target.accelerator import (
    DRAM,
    Accelerator,
    DramPort,
    Engine,
    MatrixUnit,
    Scope,
    Transfer,
    VectorUnit,
)
from .tir.transform.dma_commands import command

__all__ = [
    "DRAM",
    "PIPELINE",
    "Accelerator",
    "AcceleratorModule",
    "Address",
    "Argument",
    "Backend",
    "CProgram",
    "Command",
    "CommandModule",
    "DeviceApi",
    "DramPort",
    "Engine",
    "EngineModel",
    "Issued",
    "MatrixUnit",
    "Place",
    "Scope",
    "SimulatedMemory",
    "Trace",
    "Transfer",
    "VectorUnit",
    "Work",
    "build_engines",
    "c_program",
    "command",
    "register",
    "register_device_api",
    "simulate",
]


def build_engines(
    mod: IRModule,
    target: Target,
    encode: Callable[[Issued], tuple[str, dict[str, Any]]],
    run: Callable[[list[Command], list[NDArray]], float],
) -> CommandModule:
    """The module of a lowered program: each function is a list of commands, which a call runs on arrays.

    `run` returns the seconds that the chip took.
    """
    chip = target.accelerator
    program: dict[str, CommandFunction] = {}
    for gv, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            name = str(func.attrs.get("global_symbol", gv.name_hint))
            program[name] = CommandFunction(arguments_of(func, chip), commands_of(func, chip, encode))
    device = Device(target.kind.device_type, 0)
    return CommandModule(chip.name, program, run, device, lambda: c_program(mod, chip).files())
