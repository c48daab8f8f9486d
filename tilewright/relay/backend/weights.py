"""The weights of a model: constants in the layout of the kernels, packed, and concatenated in one array."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...codegen.llvm.engine import Machine
from ...codegen.llvm.linked import LinkedModule, Unit
from ...codegen.llvm.objects import VERSION
from ...ir.errors import BuildError
from ...runtime.cache import digest
from ...runtime.executor import view_of
from ...runtime.model import ParamInfo
from ...runtime.module import Module
from ...runtime.ndarray import NDArray, numpyasarray, zeros
from ..expr import Constant
from .kernel import Kernel
from .memory_plan import ALIGNMENT, round_up

_LARGE = 1 << 22  # bytes that are worth threads
_MOST_THREADS = 4  # memory is no faster with more


class Packers:
    """The functions that pack constants, linked into this process at first use."""

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self.units = [k.before for k in kernels.values() if k.before is not None]
        self._module: Module | None = None

    def run(
        self, unit: Unit, arrays: Mapping[str, Any], places: Mapping[str, NDArray] | None = None
    ) -> dict[str, NDArray]:
        """The packed constants, by name: in `places` if they have one there, else in new memory."""
        (about,) = unit.functions
        args, made = [], dict(places or {})
        for p in about["params"]:
            found = arrays.get(p["name"])
            if found is None:
                found = made.get(p["name"])
            if found is None:
                found = made[p["name"]] = zeros(p["shape"], p["dtype"])
            args.append(found)
        self.link().get_function(about["name"])(*args)
        return made

    def link(self) -> Module:
        """The functions as a module, each ready to be called."""
        if self._module is None:
            self._module = _module_of(self.units)
            for name in self._module.function_names:
                self._module.get_function(name)
        return self._module


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

    @property
    def room(self) -> int:
        """The bytes of the array that holds them."""
        return max(64, self.size)

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
        made = zeros((self.room,), "uint8")

        def at(number: int) -> NDArray:
            p = self.params[number]
            return view_of(made, p.offset, p.dtype, p.shape)

        def copy(number: int, values: Any) -> None:
            np.asarray(at(number))[...] = np.asarray(values)

        def pack(each: _Packing) -> None:
            places = {name: at(number) for name, number in each.results.items()}
            self.packers.run(each.unit, each.arrays, places)

        work: list[Callable[[], None]] = [partial(copy, *item) for item in self._arrays.items()]
        work += [partial(pack, each) for each in self._packings.values()]
        threads = min(_MOST_THREADS, os.cpu_count() or 1, len(work))
        if threads < 2 or self.size < _LARGE:
            for each in work:
                each()
            return made
        self.packers.link()
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(each) for each in work]:
                done.result()
        return made


class StoreFull(BuildError):
    """There is no room for further weights in a store."""


class WeightStore:
    """Memory for the weights of several models: equal arrays have one place. Child processes share it."""

    def __init__(self, size: int, alignment: int = ALIGNMENT) -> None:
        self.size, self.used, self.alignment = round_up(size, mmap.PAGESIZE), 0, alignment
        self.places: dict[str, int] = {}  # by digest
        self.process = os.getpid()
        self._memory = mmap.mmap(-1, self.size)  # pages that nobody has written to take no memory

    def place(self, array: NDArray) -> int:
        """The offset of an array's values."""
        values = np.ascontiguousarray(np.asarray(array)).reshape(-1).view(np.uint8)
        key = digest(values.data.tobytes())
        found = self.places.get(key)
        if found is None:
            if self.used + values.size > self.size:
                raise StoreFull(f"the weights need more than {self.size} bytes")
            found = self.places[key] = self.used
            np.frombuffer(self._memory, np.uint8)[found : found + values.size] = values
            self.used = round_up(found + values.size, self.alignment)
        return found

    def array(self) -> NDArray:
        """All of it, in place."""
        return numpyasarray(np.frombuffer(self._memory, np.uint8))


class SharedWeights(Weights):
    """Weights in a store, packed at once."""

    def __init__(self, packers: Packers, store: WeightStore) -> None:
        super().__init__(packers)
        self.store, self.size = store, store.used
        self._packed: dict[Any, dict[str, NDArray]] = {}

    @property
    def room(self) -> int:
        return self.store.size

    def place(self, constant: Constant) -> int:
        return self._kept(constant, constant.data)

    def places(self, kernel: Kernel, constants: list[Constant]) -> list[int]:
        given = dict(zip(kernel.constants, constants, strict=True))
        if kernel.before is None:
            return [self.place(given[name]) for name in kernel.labels]
        key = (kernel.symbol, *constants)
        if key not in self._packed:
            arrays = {name: c.data for name, c in given.items()}
            made = self.packers.run(kernel.before, arrays)
            self._packed[key] = made
        packed = self._packed[key]
        return [
            self._kept((key, name), packed[name]) if name in packed else self.place(given[name])
            for name in kernel.labels
        ]

    def _kept(self, key: Any, array: NDArray) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.params)
            at = self.store.place(array)
            self.params.append(ParamInfo(f"p{found}", array.dtype, tuple(array.shape), at))
            self.size = self.store.used
        return self.params[found].offset

    def whole(self) -> NDArray:
        return self.store.array()
