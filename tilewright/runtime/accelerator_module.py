"""Modules for accelerators: functions that take arrays in the memory of a device and run on its engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_whole
from .accelerator import Argument
from .devices import Device
from .errors import ArgumentTypeError, ArgumentValueError, TVMError
from .module import Module
from .ndarray import NDArray, array, empty
from .registry import PackedFunc
from .timing import BenchmarkResult

Runner = Callable[[str, list[NDArray]], float]


class AcceleratorModule(Module):
    """Functions for the engines of an accelerator.

    `functions` has the arguments of each. `run(name, arrays)` runs one on arrays in the memory of the device, and
    returns the seconds that the chip took. The tuner sends a module to another process, with pickle: `run` is a
    function of a module there, or a subclass defines `__reduce__`. `files`, where there are some, returns the program
    as C by file name.
    """

    type_key = "accelerator"

    def __init__(
        self,
        name: str,
        functions: Mapping[str, Sequence[Argument]],
        run: Runner,
        device: Device,
        files: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.name, self.functions, self.device = name, dict(functions), device
        self._run, self._files = run, files
        self._imports, self._functions = [], {}

    def __reduce__(self) -> Any:
        # Another process runs it: `run` is found there by its name.
        return type(self), (self.name, self.functions, self._run, self.device)

    def _declared(self) -> Mapping[str, Any]:
        return self.functions

    def _marked_entry(self) -> str | None:
        return None

    def _launcher(self, name: str) -> PackedFunc:
        return PackedFunc(lambda *args: self.call(name, args) and None, name)

    def call(self, name: str, args: Sequence[Any]) -> float:
        """Run a function; returns the seconds that the chip took.

        Arrays elsewhere, NumPy's too, are copied to the device before and back after.
        """
        wanted = self.functions[name]
        if len(args) != len(wanted):
            names = ", ".join(a.name for a in wanted)
            raise ArgumentTypeError(f"{name} takes {len(wanted)} arguments ({names}), not {len(args)}")
        arrays = [
            self._on_device(name, i, a, given)
            for i, (a, given) in enumerate(zip(wanted, args, strict=True), 1)
        ]
        seconds = self._run(name, arrays)
        for a, given, there in zip(wanted, args, arrays, strict=True):
            if a.direction != "in" and there is not given:
                if isinstance(given, np.ndarray):
                    given[...] = there.numpy()
                else:
                    given.copyfrom(there)
        return seconds

    def _on_device(self, name: str, number: int, a: Argument, given: Any) -> NDArray:
        """An argument in the memory of the device."""
        if not isinstance(given, (NDArray, np.ndarray)):
            raise ArgumentTypeError(
                f"{name}: argument {number} (`{a.name}`) must be an array {a.dtype}{list(a.shape)}, not "
                f"{type(given).__name__}"
            )
        if tuple(given.shape) != a.shape or str(given.dtype) != a.dtype:
            raise ArgumentValueError(
                f"{name}: argument {number} (`{a.name}`) must be {a.dtype}{list(a.shape)}, not "
                f"{given.dtype}{list(given.shape)}"
            )
        if isinstance(given, NDArray) and given.device == self.device:
            return given
        if a.direction == "out":
            return empty(a.shape, a.dtype, self.device)
        return array(given if isinstance(given, np.ndarray) else given.numpy(), self.device)

    def time_evaluator(self, func_name: str, dev: Device | None = None, *args: Any, **kwargs: Any) -> Any:
        """A function that runs one of this module's once and returns the time of the chip, which is exact."""

        def evaluate(*given: Any) -> BenchmarkResult:
            return BenchmarkResult([self.call(func_name, given)])

        return evaluate

    def encoded(self) -> bytes:
        """The program as data, from which `DeviceApi.program` makes a module again."""
        raise TVMError(f"module {self.name!r} ({self.type_key}) cannot be serialized")

    def __repr__(self) -> str:
        functions = ", ".join(f"{n}({', '.join(a.name for a in args)})" for n, args in self.functions.items())
        return f"Module({self.type_key}, {self.name}: {functions})"

    def get_source(self, fmt: str = "") -> str:
        """The program as C (`c`), or the header of the driver that it calls (`h`)."""
        wanted = {"": "_program.c", "c": "_program.c", "h": "_driver.h"}.get(fmt)
        if wanted is None or self._files is None:
            able = "'c' and 'h'" if self._files is not None else "none"
            raise TVMError(
                f"module {self.name!r} ({self.type_key}) has no source in format {fmt!r}; its formats: {able}"
            )
        return next(text for name, text in self._files().items() if name.endswith(wanted))

    def export_c(self, folder: str | os.PathLike[str]) -> list[str]:
        """Write the program as C: its functions, the header of the driver, and a driver of function pointers.

        Returns the names of the files.
        """
        if self._files is None:
            raise TVMError(
                f"module {self.name!r} was loaded from a file, which has only its instructions; build it to get C"
            )
        Path(folder).mkdir(parents=True, exist_ok=True)
        files = self._files()
        for name, text in files.items():
            write_whole(Path(folder, name), text)
        return list(files)
