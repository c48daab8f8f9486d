"""The weights of a model: constants in the layout of the kernels, packed, and concatenated in one array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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

    def run(
        self, unit: Unit, arrays: Mapping[str, Any], places: Mapping[str, NDArray] | None = None
    ) -> dict[str, NDArray]:
        """The packed constants, by name: in `places` if they have one there, else in new memory."""
        if self._module is None:
            self._module = _module_of(self.units)
        (about,) = unit.functions
        args, made = [], dict(places or {})
        for p in about["params"]:
            found = arrays.get(p["name"])
            if found is None:
                found = made.get(p["name"])
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


class _Packing(NamedTuple):
    """Constants to be packed, and the numbers of the arrays that result, by name."""

    unit: Unit
    arrays: dict[str, NDArray]
    results: dict[str, int]


class Weights:
    """Collects arrays; each gets a name and an offset. They are packed directly into their places."""

    def __init__(self, packers: Packers, alignment: int = ALIGNMENT) -> None:
        self.packers, self.alignment = packers, alignment
        self.params: list[ParamInfo] = []
        self.size = 0
        self._arrays: dict[int, Any] = {}  # those that are not packed, by number
        self._numbers: dict[Any, int] = {}
        self._packings: dict[Any, _Packing] = {}

    def place(self, constant: Constant) -> int:
        """The offset of an unpacked constant."""
        number = self._add(constant, constant.data.dtype, constant.data.shape)
        self._arrays[number] = constant.data
        return self.params[number].offset

    def places(self, kernel: Kernel, constants: list[Constant]) -> list[int]:
        """The offsets of a kernel's constants."""
        given = dict(zip(kernel.constants, constants, strict=True))
        if kernel.before is None:
            return [self.place(given[name]) for name in kernel.labels]
        key = (kernel.symbol, *constants)
        if key not in self._packings:
            arrays = {name: c.data for name, c in given.items()}
            self._packings[key] = _Packing(kernel.before, arrays, {})
        results = self._packings[key].results
        (about,) = kernel.before.functions
        made = {p["name"]: p for p in about["params"] if p["name"] not in given}
        offsets = []
        for name in kernel.labels:
            if name in made:
                kind = made[name]
                results[name] = self._add((key, name), str(kind["dtype"]), tuple(kind["shape"]))
                offsets.append(self.params[results[name]].offset)
            else:
                offsets.append(self.place(given[name]))
        return offsets

    def _add(self, key: Any, dtype: str, shape: tuple[int, ...]) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.params)
            self.params.append(ParamInfo(f"p{found}", dtype, shape, self.size))
            self.size += round_up(self.params[-1].nbytes, self.alignment)
        return found

    def whole(self) -> NDArray:
        """All weights in one array, for writing to files: zeros in the gaps."""
        made = zeros((max(64, self.size),), "uint8")

        def at(number: int) -> NDArray:
            p = self.params[number]
            return view_of(made, p.offset, p.dtype, p.shape)

        for number, values in self._arrays.items():
            np.asarray(at(number))[...] = np.asarray(values)
        for each in self._packings.values():
            places = {name: at(number) for name, number in each.results.items()}
            self.packers.run(each.unit, each.arrays, places)
        return made
