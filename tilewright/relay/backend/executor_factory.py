"""The result of `relay.build`: a compiled model with its weights, which exports as one library."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...codegen.llvm.linked import LinkedModule, Unit
from ...ir.module import IRModule
from ...runtime.accelerator_executor import AcceleratorModelModule
from ...runtime.device_executor import DeviceModelModule
from ...runtime.device_module import DEVICES
from ...runtime.executor import ModelModule
from ...runtime.metadata import LibraryInfo
from ...runtime.model import LAUNCHES
from ...runtime.module import Module
from ...runtime.ndarray import NDArray
from ...target import Target
from .deploy import model_header, standalone_unit
from .executor import Executor


class ExecutorFactoryModule(ModelModule):
    """A compiled model that holds its weights in memory."""

    def __init__(
        self, inner: LinkedModule, weights: NDArray, ir_mod: IRModule, target: Target, executor: Executor
    ) -> None:
        super().__init__(inner, weights)
        self.ir_mod, self.target, self.executor = ir_mod, target, executor
        self.schedules: dict[str, str] = {}  # explanations of the schedules of device kernels

    @property
    def is_final(self) -> bool:
        """Whether its kernels are compiled: not at first, if it has tiers (see tiers.py)."""
        return True

    def wait(self) -> ExecutorFactoryModule:
        """Return when all kernels are compiled, and answers come from them."""
        return self

    def explain(self) -> str:
        """The device of each step, and the explanation of its schedule if it was recorded."""
        kind, lines = self.model.device, []
        for step in self.model.steps:
            why = self.model.on_host.get(step.kernel)
            what = (
                "a copy" if not step.kernel else kind if why is None else f"the host, between copies: {why}"
            )
            lines.append(f"{step.name}: {what}")
            lines += [f"  {line}" for line in self.schedules.get(step.kernel, "").splitlines()[1:]]
        return "\n".join(lines)

    def get_lib(self) -> Module:
        """The kernels and the function that runs them, which export without the weights."""
        return _Kernels(self.inner, self.weights)

    lib = property(get_lib)

    def _export(self, target: str, weights: bool = True, **linking: Any) -> str:
        """A library of kernels, weights, thread pool and the function that runs the model.

        `weights=False` omits the weights: save them with `save_param_dict(lib.get_params())`.
        """
        return _export(self, target, weights, **linking)


GraphExecutorFactoryModule = AOTExecutorFactoryModule = ExecutorFactoryModule


class DeviceFactoryModule(ExecutorFactoryModule, DeviceModelModule):
    """A compiled model of a device."""

    def get_lib(self) -> Module:
        return _DeviceKernels(self.inner, self.weights)

    lib = property(get_lib)


class AcceleratorFactoryModule(ExecutorFactoryModule, AcceleratorModelModule):
    """A compiled model of an accelerator."""

    def get_lib(self) -> Module:
        return _AcceleratorKernels(self.inner, self.weights)

    lib = property(get_lib)


class _Kernels(ModelModule):
    """The library of a model as its second part: the parameters are the third."""

    def _export(self, target: str, **linking: Any) -> str:
        return _export(self, target, False, **linking)


class _DeviceKernels(_Kernels, DeviceModelModule):
    """The same for a device."""


class _AcceleratorKernels(_Kernels, AcceleratorModelModule):
    """The same for an accelerator."""


def _export(model: ModelModule, target: str, weights: bool, **linking: Any) -> str:
    inner = model.inner
    assert isinstance(inner, LinkedModule)
    units: list[Unit] = []
    data: dict[str, Any] = {}
    about = dict(inner.description)
    if isinstance(model, DeviceModelModule):
        if LAUNCHES in about:
            about[LAUNCHES] = {**about[LAUNCHES], DEVICES: [model.device_module.described()]}
        if weights and model.weights is not None:
            data[model.model.weights_symbol] = np.asarray(model.weights)
        return inner.export_with((), target, description=about, data=data, header=lambda _: "", **linking)
    if weights and model.weights is not None:
        unit = standalone_unit(model.model, inner)
        units.append(unit)
        about["functions"] = [*about["functions"], *unit.functions]
        data[model.model.weights_symbol] = np.asarray(model.weights)

    def header(info: LibraryInfo) -> str:
        return model_header(info, model.model, bool(data))

    return inner.export_with(units, target, description=about, data=data, header=header, **linking)
