"""Running a package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...contrib.debugger.debug_executor import GraphModuleDebug
from ...contrib.graph_executor import GraphModule
from ...runtime.devices import Device
from ...runtime.devices import device as device_of
from ...runtime.dtypes import ELEMENTS
from ...runtime.model import TensorInfo
from .model import TVMCException, TVMCPackage, TVMCResult

__all__ = ["FILL_MODES", "generate_tensor_data", "load_inputs", "run_module"]

Array = np.ndarray[Any, Any]
FILL_MODES = ("random", "zeros", "ones")


def run_module(
    tvmc_package: TVMCPackage,
    device: str | Device = "cpu",
    hostname: str | None = None,
    port: int | str = 9090,
    rpc_key: str | None = None,
    inputs: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    fill_mode: str = "random",
    benchmark: bool = False,
    repeat: int = 10,
    number: int = 10,
    profile: bool = False,
    end_to_end: bool = False,
) -> TVMCResult:
    """Run a package on inputs (arrays by name, or an .npz file); those not given are filled, from a fixed seed.

    `benchmark` takes `repeat` times the mean of `number` runs; `profile` gives the time of every step.
    """
    if not isinstance(tvmc_package, TVMCPackage):
        raise TVMCException(f"tvmc.run takes what tvmc.compile returned, not {type(tvmc_package).__name__}")
    if hostname is not None or rpc_key is not None:
        raise TVMCException(
            "tvmc.run: running on other machines is not there yet; copy the package there and run it there"
        )
    if repeat < 1 or number < 1:
        raise TVMCException(f"repeat={repeat}, number={number}: both must be at least 1")
    made = tvmc_package.executor(_device(device))
    infos = made.module.info.inputs
    given = load_inputs(inputs) if isinstance(inputs, (str, os.PathLike)) else dict(inputs or {})
    _check_names(given, infos)
    filled = tuple(t.name for t in infos if t.name not in given)
    for t in infos:
        value = given[t.name] if t.name in given else generate_tensor_data(t.shape, t.dtype, fill_mode)
        try:
            made.module.set_input(t.name, value)
        except (TypeError, ValueError) as error:  # another shape or type
            raise TVMCException(f"{tvmc_package.package_path}: {error}") from None
    made.run()
    outputs = {f"output_{i}": made.get_output(i).numpy() for i in range(made.get_num_outputs())}
    times = None
    if benchmark:
        times = made.benchmark(_device(device), repeat=repeat, number=number, end_to_end=end_to_end)
    report = _profiled(made, number) if profile else None
    return TVMCResult(outputs, times, report, filled)


def _profiled(made: GraphModule, number: int) -> Any:
    return GraphModuleDebug(made.module).profile(number=number)


def _device(device: str | Device) -> Device:
    try:
        name, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
        found = device if isinstance(device, Device) else device_of(name, int(number or 0))
    except ValueError as error:
        raise TVMCException(f"device={device!r}: {error}") from None
    if found.device_type != 1:
        raise TVMCException(f"device={str(device)!r}: packages are compiled for the CPU; use device='cpu'")
    return found


def _check_names(given: Mapping[str, Any], infos: tuple[TensorInfo, ...]) -> None:
    known = {t.name for t in infos}
    unknown = [n for n in given if n not in known]
    if unknown:
        has = ", ".join(f"{t.name}: {t.text}" for t in infos) or "none"
        raise TVMCException(f"the model has no input {unknown[0]!r}; its inputs are {has}")


def load_inputs(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of an .npz file, by name."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise TVMCException(
                f"{path}: holds one array without a name; save it with np.savez(path, name=…)"
            )
        with loaded as file:
            return {name: file[name] for name in file.files}
    except TVMCException:
        raise
    except OSError as error:
        raise TVMCException(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # zipfile, header and value errors of every kind
        raise TVMCException(f"{path}: is no .npz file of plain arrays: {error}") from None


def generate_tensor_data(shape: tuple[int, ...], dtype: str, fill_mode: str = "random") -> Array:
    """An array to run a model on: zeros, ones, or the same random values every time.

    Random integers are 0 or 1: what they are for is not known, and those are indices of nearly everything.
    """
    if fill_mode not in FILL_MODES:
        raise TVMCException(f"fill_mode={fill_mode!r}: it must be one of {', '.join(FILL_MODES)}")
    kind = ELEMENTS[dtype].numpy
    if fill_mode != "random":
        return np.full(shape, 0 if fill_mode == "zeros" else 1, kind)
    rng = np.random.default_rng(0)
    if np.issubdtype(kind, np.integer) or kind == np.bool_:
        return rng.integers(0, 2, shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)
