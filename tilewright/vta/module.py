"""Compiled programs for the chip: modules whose functions run in the simulator, and their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.accelerator_module import AcceleratorModule
from ..runtime.devices import Device
from ..runtime.ndarray import NDArray
from .binary import Program
from .config import Config, current_config
from .device import dram
from .simulator import Report, Simulator, Statistics

_EXT_DEV = 12


class Runs:
    """The statistics of the runs since they were cleared, the last report, and whether runs compute anything."""

    def __init__(self) -> None:
        self.total = Statistics()
        self.last: Report | None = None
        self.executes = True

    def clear(self) -> None:
        """Forget the runs so far."""
        self.total, self.last = Statistics(), None


RUNS = Runs()


class ChipModule(AcceleratorModule):
    """A program for the chip. Calling a function runs it in the simulator."""

    type_key = "vta"

    def __init__(
        self,
        program: Program,
        name: str = "vta",
        files: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.program = program
        functions = {n: f.arguments for n, f in program.functions.items()}
        super().__init__(name, functions, self._simulate, Device(_EXT_DEV, 0), files)
        self._simulator: Simulator | None = None

    def _simulate(self, name: str, arrays: list[NDArray]) -> float:
        if self._simulator is None:
            self._simulator = Simulator(self.program.config, dram())
        report = self._simulator.run(
            self.program.functions[name].code, [a.data_ptr for a in arrays], execute=RUNS.executes
        )
        RUNS.total, RUNS.last = RUNS.total + report.statistics, report
        return report.cycles / (self.program.config.clock_mhz * 1e6)

    def encoded(self) -> bytes:
        return self.program.encode()

    def __reduce__(self) -> Any:
        return _received, (self.encoded(), self.program.config, self.name)

    @property
    def format(self) -> str:
        return "vta"

    def get_source(self, fmt: str = "") -> str:
        """The program in assembly (`asm`), as C (`c`), or the header of the driver that the C calls (`h`)."""
        return self.program.text() if fmt in ("", "asm", "vta") else super().get_source(fmt)

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the program to a file, under any name: `load_module` knows it by its first bytes."""
        self.program.save(file_name)

    def _export(self, target: str, **linking: Any) -> str:
        self.program.save(target)
        return target


def _received(data: bytes, config: Config, name: str) -> ChipModule:
    return ChipModule(Program.decode(data, config, name), name)


def load_program(path: str, config: Config | None = None) -> ChipModule:
    """The module in a file of a program."""
    return ChipModule(Program.load(path, config or current_config()), os.path.basename(path))
