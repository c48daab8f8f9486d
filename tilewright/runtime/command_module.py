"""Modules whose functions are lists of commands for a board or a simulator, and the memory of a simulated chip."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .accelerator import Address, Argument, Command
from .accelerator_module import AcceleratorModule
from .devices import Device, DeviceApi, device
from .errors import LoadError
from .ndarray import NDArray

Run = Callable[[list[Command], list[NDArray]], float]


class CommandFunction(NamedTuple):
    """A function of a program: its arguments and its commands."""

    arguments: Sequence[Argument]
    commands: list[Command]


class CommandModule(AcceleratorModule):
    """A program as commands. `run(commands, arrays)` runs those of a function and returns the seconds of the chip."""

    def __init__(
        self,
        name: str,
        program: Mapping[str, CommandFunction],
        run: Run,
        device: Device,
        files: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.program, self.run = dict(program), run
        functions = {n: f.arguments for n, f in self.program.items()}
        super().__init__(
            name, functions, lambda n, arrays: run(self.program[n].commands, arrays), device, files
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).decode, (self.encoded(), self.run, self.device)

    def encoded(self) -> bytes:
        described = {
            name: {
                "arguments": [[a.name, a.dtype, list(a.shape), a.direction] for a in f.arguments],
                "commands": [
                    [c.engine, c.name, {k: _plain(v) for k, v in c.fields.items()}, c.pops, c.pushes]
                    for c in f.commands
                ],
            }
            for name, f in self.program.items()
        }
        return json.dumps({"chip": self.name, "functions": described}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, run: Run, on: Device) -> CommandModule:
        """The module that `encoded` wrote."""
        try:
            held = json.loads(data)
            program = {
                str(name): CommandFunction(
                    [Argument(n, t, tuple(shape), way) for n, t, shape, way in f["arguments"]],
                    [
                        Command(
                            int(e),
                            str(n),
                            {k: _value(v) for k, v in fields.items()},
                            tuple(pops),
                            tuple(pushes),
                        )
                        for e, n, fields, pops, pushes in f["commands"]
                    ],
                )
                for name, f in held["functions"].items()
            }
            return cls(str(held["chip"]), program, run, on)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LoadError(
                f"a program for {on.kind} is damaged ({error}); build and export it again"
            ) from error


def _plain(x: Any) -> Any:
    """A field as JSON has it."""
    if isinstance(x, Address):
        return {"argument": x.argument, "offset": x.offset}
    return [_plain(v) for v in x] if isinstance(x, (tuple, list)) else x


def _value(x: Any) -> Any:
    if isinstance(x, dict):
        return Address(int(x["argument"]), int(x["offset"]))
    return tuple(_value(v) for v in x) if isinstance(x, list) else x


class SimulatedMemory(DeviceApi):
    """The DRAM of a simulated chip: memory of this process, whose addresses are the device's.

    `register_device_api("dsp", SimulatedMemory("dsp", run), number=64)` allows arrays on `tvm.device("dsp")` and models
    for the chip.
    """

    def __init__(self, kind: str, run: Run) -> None:
        self.kind, self._run = kind, run
        self._held: dict[int, Any] = {}

    def count(self) -> int:
        return 1

    def allocate(self, index: int, nbytes: int) -> int:
        memory = (ctypes.c_char * max(nbytes, 1))()
        self._held[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def release(self, index: int, address: int) -> None:
        del self._held[address]

    def upload(self, index: int, address: int, source: int, nbytes: int) -> None:
        ctypes.memmove(address, source, nbytes)

    def download(self, index: int, address: int, target: int, nbytes: int) -> None:
        ctypes.memmove(target, address, nbytes)

    def copy(self, index: int, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def sync(self, index: int) -> None:
        return None

    def program(self, index: int, data: bytes) -> CommandModule:
        return CommandModule.decode(data, self._run, device(self.kind, index))
