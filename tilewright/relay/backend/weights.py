"""The weights of a model: constants in the layout of the kernels, packed, and concatenated in one array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...codegen.llvm.engine import Machine
from ...codegen.llvm.linked import LinkedModule, Unit
from ...codegen.llvm.objects import VERSION
from ...runtime.executor import view_of
from ...runtime.model import ParamInfo
from ...runtime.module import Module
from ...runtime.ndarray import NDArray, zeros
from ..expr import Constant
from .kernel import Kernel
from .memory_plan import ALIGNMENT, round_up


class Packers:
    """The functions that pack constants, linked into this process at first use."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self.units = [k.before for k in kernels.values() if k.before is not None]
        self._module: Module | None = None

    def run(self, unit: Unit, arrays: Mapping[str, Any]) -> dict[str, NDArray]:
        """The packed constants, by name."""
        if self._module is None:
            self._module = _module_of(self.units)
        (about,) = unit.functions
        args, made = [], {}
        for p in about["params"]:
            found = arrays.get(p["name"])
            if found is None:
                found = made[p["name"]] = zeros(p["shape"], p["dtype"])
            args.append(found)
        self._module.get_function(about["name"])(*args)
        return made


def _module_of(units: list[Unit]) -> Module:
    from ...codegen.llvm.engine import process_triple

    functions = [f for u in units for f in u.functions]
    about = {"format": 1, "producer": VERSION, "functions": functions, "entry": None}
    return LinkedModule(units, Machine(process_triple(), "", "", 2), about, native=True, name="packing")


class Weights:
    """Collects arrays; each gets a name and an offset."""

    def __init__(self, packers: Packers, alignment: int = ALIGNMENT) -> None:
        self.packers, self.alignment = packers, alignment
        self.params: list[ParamInfo] = []
        self.size = 0
        self._arrays: list[Any] = []
        self._places: dict[Any, int] = {}
        self._packed: dict[Any, dict[str, NDArray]] = {}

    def place(self, constant: Constant) -> int:
        """The offset of an unpacked constant."""
        return self._add(constant, constant.data)

    def places(self, kernel: Kernel, constants: list[Constant]) -> list[int]:
        """The offsets of a kernel's constants."""
        given = dict(zip(kernel.constants, constants, strict=True))
        key = (kernel.symbol, *constants)
        if kernel.before is not None and key not in self._packed:
            arrays = {name: c.data for name, c in given.items()}
            self._packed[key] = self.packers.run(kernel.before, arrays)
        packed = self._packed.get(key, {})
        return [
            self._add((key, name), packed[name]) if name in packed else self.place(given[name])
            for name in kernel.labels
        ]

    def _add(self, key: Any, array: NDArray) -> int:
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = self.size
            self.params.append(ParamInfo(f"p{len(self.params)}", array.dtype, array.shape, found))
            self._arrays.append(array)
            self.size += round_up(array.nbytes, self.alignment)
        return found

    def whole(self) -> NDArray:
        """All weights in one array, for writing to files: zeros in the gaps."""
        made = zeros((max(64, self.size),), "uint8")
        for p, values in zip(self.params, self._arrays, strict=True):
            place = np.asarray(view_of(made, p.offset, p.dtype, p.shape))
            place[...] = np.asarray(values)
        return made
