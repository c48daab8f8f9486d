"""Execution of packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..contrib.graph_executor import GraphModule
from ..rpc.base import RPCError
from ..rpc.client import connect, request_remote
from ..runtime.devices import Device, device_api
from ..runtime.devices import device as device_of
from ..runtime.dtypes import ELEMENTS
from ..runtime.profiler import profile_model
from .errors import TVMCException
from .model import TVMCPackage, TVMCResult

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
    shape_dict: Mapping[str, Any] | None = None,
) -> TVMCResult:
    """Run a package on inputs (arrays by name, or an .npz file); missing inputs are filled by `fill_mode`.

    `fill_mode` is "random" (from a fixed seed), "zeros" or "ones". `benchmark` measures `repeat` times the mean of
    `number` runs, `end_to_end` including copies of inputs and results; `profile` measures every step. `shape_dict` has
    the shapes of missing inputs with dynamic sizes. With `hostname` and `port`, the package runs on that RPC server;
    with `rpc_key`, on a server of the key from the tracker there.
    """
    if not isinstance(tvmc_package, TVMCPackage):
        raise TVMCException(
            f"tvmc.run takes the TVMCPackage of tvmc.compile, not {type(tvmc_package).__name__}"
        )
    if repeat < 1 or number < 1:
        raise TVMCException(f"repeat={repeat}, number={number}: both must be at least 1")
    request = _Request(inputs, fill_mode, shape_dict)
    timing = _Timing(benchmark, repeat, number, end_to_end, profile)
    if hostname is not None or rpc_key is not None:
        return _run_remote(tvmc_package, device, request, timing, (hostname, int(port), rpc_key))
    run = _run_machine if tvmc_package.executor_type == "vm" else _run_graph
    return run(tvmc_package, _device(device, tvmc_package.target), request, timing)


@dataclass(frozen=True, slots=True)
class _Timing:
    benchmark: bool
    repeat: int
    number: int
    end_to_end: bool
    profile: bool

    def options(self) -> dict[str, Any]:
        return {"repeat": self.repeat, "number": self.number, "end_to_end": self.end_to_end}


@dataclass(frozen=True, slots=True)
class _Input:
    """An input of a model; a size of None is dynamic."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"


class _Request:
    """The given inputs, and how to fill the others."""

    def __init__(self, inputs: Any, fill_mode: str, shapes: Mapping[str, Any] | None) -> None:
        self.given = load_inputs(inputs) if isinstance(inputs, (str, os.PathLike)) else dict(inputs or {})
        self.fill_mode = fill_mode
        # The command line allows the type of an input too, which the package has.
        self.shapes = {
            n: s[0] if len(s) == 2 and isinstance(s[1], str) else s for n, s in (shapes or {}).items()
        }

    def values(self, wanted: list[_Input]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """All inputs by name, in order, and the names of those that were filled."""
        known = {t.name for t in wanted}
        for name in (*self.given, *self.shapes):
            if name not in known:
                has = ", ".join(map(str, wanted)) or "none"
                raise TVMCException(f"the model has no input {name!r}; its inputs are {has}")
        filled = tuple(t.name for t in wanted if t.name not in self.given)
        return {t.name: self.given[t.name] if t.name in self.given else self.fill(t) for t in wanted}, filled

    def fill(self, t: _Input) -> Array:
        shape = tuple(self.shapes.get(t.name, t.shape))
        if len(shape) != len(t.shape) or any(d is not None and s != d for s, d in zip(shape, t.shape)):
            raise TVMCException(f"the input {t} cannot have the shape {list(shape)}")
        if not all(isinstance(s, int) for s in shape):
            form = ",".join("8" if d is None else str(d) for d in t.shape)
            raise TVMCException(
                f"the input {t} has dynamic sizes, so it cannot be filled: give it in inputs (--inputs), or give its "
                f'sizes with shape_dict={{{t.name!r}: [{form}]}} (--shapes "{t.name}:[{form}]" on the command line)'
            )
        return generate_tensor_data(shape, t.dtype, self.fill_mode)


def _run_graph(package: TVMCPackage, device: Device, request: _Request, timing: _Timing) -> TVMCResult:
    made = package.executor(device)
    infos = [_Input(t.name, t.dtype, tuple(t.shape)) for t in made.module.info.inputs]
    values, filled = request.values(infos)
    for name, value in values.items():
        try:
            made.module.set_input(name, value)
        except (TypeError, ValueError) as error:  # another shape or type
            raise TVMCException(f"{package.package_path}: {error}") from None
    made.run()
    outputs = {t.name: made.get_output(i).numpy() for i, t in enumerate(made.module.info.outputs)}
    times = made.benchmark(device, **timing.options()) if timing.benchmark else None
    report = profile_model(made, number=timing.number) if timing.profile else None
    return TVMCResult(outputs, times, report, filled)


def _run_remote(
    package: TVMCPackage,
    device: Any,
    request: _Request,
    timing: _Timing,
    place: tuple[str | None, int, str | None],
) -> TVMCResult:
    """Run a package on an RPC server."""
    host, port, key = place
    if package.executor_type == "vm" or timing.profile:
        what = "programs of the virtual machine" if package.executor_type == "vm" else "profiles"
        raise TVMCException(f"tvmc.run: {what} are not supported on remote machines; run the package there")
    name, _, number = str(device).partition(":")
    infos = [
        _Input(t["name"], t["dtype"], tuple(d if isinstance(d, int) else None for d in t["shape"]))
        for t in package.about["inputs"]
    ]
    values, filled = request.values(infos)
    try:
        session = request_remote(key, host, port) if key else connect(host or "127.0.0.1", port)
        session.upload(package.lib_path)
        there = session.device(name, int(number or 0))
        made = GraphModule(session.load_module(package.lib_name)["default"](there))
        if package.params is not None and not package.about.get("link_params"):
            made.load_params(package.params)
        for given, value in values.items():
            made.set_input(given, value)
        made.run()
        names = [t["name"] for t in package.about["outputs"]]
        outputs = {name: made.get_output(i).numpy() for i, name in enumerate(names)}
        times = made.benchmark(there, **timing.options()) if timing.benchmark else None
        session.close()
    except (RPCError, ValueError) as error:
        raise TVMCException(f"{package.package_path}: {error}") from None
    return TVMCResult(outputs, times, None, filled)


def _run_machine(package: TVMCPackage, device: Device, request: _Request, timing: _Timing) -> TVMCResult:
    machine = package.machine(device)
    infos = [
        _Input(name, kind[1], tuple(kind[2])) if kind[0] == "tensor" else _Input(name, kind[0], ())
        for name, _, kind in machine.exe.program.named("main").params
    ]
    values, filled = request.values(infos)
    try:
        result = machine.invoke("main", **values)
    except (TypeError, ValueError) as error:  # another shape or type
        raise TVMCException(f"{package.package_path}: {error}") from None
    names = [t["name"] for t in package.about["outputs"]]
    outputs = {name: a.numpy() for name, a in zip(names, _leaves(result), strict=True)}
    times = machine.benchmark(device, **timing.options(), **values) if timing.benchmark else None
    report = None
    if timing.profile:
        report = profile_model(machine, values, timing.number)
    return TVMCResult(outputs, times, report, filled)


def _leaves(value: Any) -> list[Any]:
    return [value] if hasattr(value, "numpy") else [leaf for field in value for leaf in _leaves(field)]


def _device(device: str | Device, target: str) -> Device:
    """The device to run a package on, of the kind that it was compiled for."""
    try:
        name, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
        found = device if isinstance(device, Device) else device_of(name, int(number or 0))
    except ValueError as error:
        raise TVMCException(f"device={device!r}: {error}") from None
    kind = next(iter(target.split()), "llvm")
    wanted = Device.MASK2STR[Device.STR2MASK.get(kind, 1)]
    if found.kind != wanted:
        told = "the CPU" if wanted == "cpu" else kind
        raise TVMCException(
            f"device={str(device)!r}: the package is compiled for {told}; use device={wanted!r}, or compile it for "
            "another target"
        )
    if not found.exist:
        try:
            device_api(found)
        except ValueError as error:
            raise TVMCException(f"device={str(device)!r}: {error}") from None
    return found


def load_inputs(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of an .npz file, by name."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise TVMCException(
                f"{path}: it has one array without a name; save it with np.savez(path, name=…)"
            )
        with loaded as file:
            return {name: file[name] for name in file.files}
    except TVMCException:
        raise
    except OSError as error:
        raise TVMCException(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # zipfile, header and value errors of every kind
        raise TVMCException(f"{path}: it is not an .npz file of plain arrays: {error}") from None


def generate_tensor_data(shape: tuple[int, ...], dtype: str, fill_mode: str = "random") -> Array:
    """An array for an input: zeros, ones, or random values from a fixed seed.

    Random integers are 0 or 1, which are valid indices almost everywhere.
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
