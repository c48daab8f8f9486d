"""Programs for the chip: `vta.lower`, `vta.build`, and the functions that the target calls."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ..backends._accelerator import arguments_of, commands_of
from ..backends._accelerator_c import c_program
from ..compiler.build import build as build_program
from ..compiler.lower import lower as lower_program
from ..ir.errors import TargetError
from ..ir.function import PrimFunc
from ..ir.module import IRModule
from ..ir.say_once import say_once
from ..ir.transform import PassContext
from ..target import Target
from ..target.accelerator import Accelerator
from .binary import Function, Program
from .chip import chip, encode
from .config import SHAPE, TIMING, Config, current_config
from .driver import encode_commands
from .environment import Environment, get_env
from .module import ChipModule

_DEBUG_FLAG: Final = "vta.debug_flag"


def config_of_target(target: Target) -> Config:
    """The configuration of a target: that of its option `-machine`, else that of the current environment."""
    said = target.attrs.get("machine")
    if said is None:
        config = get_env().config
        config.check_target()
        return config
    keys = dict(pair.partition(":")[::2] for pair in said.split(",") if pair)
    wrong = next((name for name, value in keys.items() if not value.isdigit()), None)
    if wrong is not None:
        raise TargetError(
            f"target {target}: -machine has keys of a configuration with whole numbers, as DRAM_LATENCY:40, and "
            f"{wrong}:{keys[wrong]} is not one"
        )
    blocks = ("LOG_BLOCK_IN", "LOG_BLOCK_OUT") if "LOG_BLOCK" in keys else ()
    classic = {name: key.default for name, key in SHAPE.items() if name not in blocks}
    texts = {"TARGET": Config.target, "HW_VER": Config.version}
    return Config.of({**texts, **classic, **{n: int(value) for n, value in keys.items()}}, f"target {target}")


def configured(target: Target) -> Target:
    """A target with its configuration as text, unless every process with the same variables has the same one."""
    config = config_of_target(target)
    mine, usual, there = (c.keys() for c in (config, Config(), current_config()))
    own = [name for name in (*SHAPE, *TIMING) if not mine[name] == usual[name] == there[name]]
    if "machine" in target.attrs or mine == there or not own:
        return target
    return target.with_attr("machine", ",".join(f"{name}:{mine[name]}" for name in own))


def chip_of_target(target: Target) -> Accelerator:
    """The chip of a target."""
    return chip(config_of_target(target))


def build_module(mod: IRModule, target: Target) -> ChipModule:
    """The module of a lowered program."""
    config = config_of_target(target)
    program = Program(config)
    described = chip(config)
    for gv, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            code = encode_commands(
                commands_of(func, described, partial(encode, acc_dtype=config.acc_dtype)), config
            )
            name = str(func.attrs.get("global_symbol", gv.name_hint))
            program.add(Function(name, tuple(arguments_of(func, described)), code))
    flags = int(PassContext.current().config.get(_DEBUG_FLAG, 0))
    shown = {
        "instructions": flags & Environment.DEBUG_DUMP_INSN,
        "micro_ops": flags & Environment.DEBUG_DUMP_UOP,
    }
    if any(shown.values()):
        print(program.text(**{what: bool(flag) for what, flag in shown.items()}), end="")
    return ChipModule(program, files=lambda: c_program(mod, described).files())


def build_config(debug_flag: int = 0, **kwargs: Any) -> PassContext:
    """The pass context for programs of the chip.

    With `Environment.DEBUG_DUMP_INSN` in `debug_flag`, building a program prints its instructions, with
    `DEBUG_DUMP_UOP` its micro-ops. Other arguments are those of `PassContext`.
    """
    if debug_flag & (Environment.DEBUG_SKIP_READ_BARRIER | Environment.DEBUG_SKIP_WRITE_BARRIER):
        say_once(
            "DEBUG_SKIP_READ_BARRIER and DEBUG_SKIP_WRITE_BARRIER do nothing here: the simulated chip reads and writes "
            "the memory of the host, and there are no caches to flush"
        )
    config = {_DEBUG_FLAG: debug_flag, **(kwargs.pop("config", None) or {})}
    return PassContext(config=config, **kwargs)


def lower(*args: Any, **kwargs: Any) -> IRModule:
    """As `tvm.lower`, for the chip: the result has the commands of its engines and the tokens between them."""
    with Target("ext_dev"):
        return lower_program(*args, **kwargs)


def build(*args: Any, **kwargs: Any) -> Any:
    """As `tvm.build`, for the chip."""
    return build_program(*args, **kwargs)
