"""Running a compiled model: a module that creates executors, and the executor with its inputs, results and memory."""

from __future__ import annotations

import ctypes
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .devices import Device, cpu
from .errors import ArgumentTypeError, ArgumentValueError, TVMError
from .json_reader import as_table
from .launcher import NativeFunction
from .model import (
    LINE,
    MODEL,
    PROGRAMS_OF_CHIP,
    ModelInfo,
    PlaceInfo,
    StepInfo,
    TensorInfo,
    graph_json,
    parse_model,
)
from .module import Module
from .ndarray import NDArray, array, empty, fresh, numpyasarray, refuse_masked, zeros
from .params import load_param_dict
from .profiling import KernelProfile, Profile, arithmetic_type, text_of
from .registry import PackedFunc
from .threads import num_threads
from .timing import BenchmarkResult, time_evaluator
from .turns import Turns


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The bytes of memory that a model uses while it runs.

    The arena holds intermediate tensors and the workspaces of kernels; `threads` is the most that the threads of a
    kernel allocate in addition. `peak` is the sum.
    """

    weights: int
    arena: int
    inputs: int
    outputs: int
    threads: int = 0

    @property
    def peak(self) -> int:
        return self.weights + self.arena + self.inputs + self.outputs + self.threads

    def __str__(self) -> str:
        names = ("weights", "arena", "inputs", "outputs", "threads", "peak")
        rows = [(name, getattr(self, name)) for name in names]
        return "\n".join(f"{name:8} {size:>14,} bytes" for name, size in rows)


class ModelModule(Module):
    """A compiled model. `model["default"](device)` makes an executor of it.

    It can be taken apart as in the classic API: `graph_json, lib, params = model`.
    """

    type_key = "model"

    def __init__(self, inner: Module, weights: NDArray | None = None) -> None:
        super().__init__(inner._library, inner.name)
        self.inner = inner
        self.externals = inner.externals
        self._imports += dict.fromkeys(e.module for e in inner.externals)
        data = inner._library.metadata()
        data = as_table(data, inner._library.name)
        self.model: ModelInfo = parse_model(data[MODEL], inner._library.name)
        self.weights = self._inside() if weights is None else weights

    def _inside(self) -> NDArray | None:
        """The weights in the library itself, if it has them."""
        address = self._library.address(self.model.weights_symbol)
        if not address:
            return None
        memory = (ctypes.c_uint8 * self.model.weights).from_address(address)
        values: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8)  # type: ignore[call-overload]
        values.flags.writeable = False
        made = numpyasarray(values)
        made._owner = self._library  # the owner of the memory
        return made

    # -- the classic factory -------------------------------------------------------------------
    @property
    def module(self) -> ModelModule:
        return self

    @property
    def libmod_name(self) -> str:
        return self.model.name

    def get_lib(self) -> Module:
        """The kernels."""
        return self

    def get_graph_json(self) -> str:
        """The model as the JSON of the classic graph executor."""
        return graph_json(self.model)

    graph_json = property(get_graph_json)

    def get_executor_config(self) -> str:
        return self.get_graph_json()

    def get_params(self) -> dict[str, NDArray]:
        """The parameters by name, in the layout of the kernels; they share the memory of the weights."""
        if self.weights is None:
            return {}
        return {p.name: view_of(self.weights, p.offset, p.dtype, p.shape) for p in self.model.params}

    params = property(get_params)

    def memory_report(self) -> MemoryReport:
        """The memory use of the model."""
        m = self.model
        return MemoryReport(
            m.weights,
            m.arena,
            sum(t.nbytes for t in m.inputs),
            sum(t.nbytes for t in m.outputs),
            m.inside * num_threads(),
        )

    def __iter__(self) -> Iterator[Any]:
        return iter((self.get_graph_json(), self.get_lib(), self.get_params()))

    def create(self, device: Device | None = None, *others: Device) -> Executor:
        """An executor with memory of its own; of several devices the first is used."""
        return Executor(self, device or cpu(0))

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        if name in (self.model.name, "default") and name not in self.info.functions:
            return PackedFunc(self.create, name)
        if name == "get_graph_json":
            return PackedFunc(self.get_graph_json, name)
        if name == "debug_create":  # (name of the model, device): for GraphModuleDebug
            return PackedFunc(lambda _, *devices: self.create(*devices), name)
        return super().get_function(name, query_imports)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        return name in (self.model.name, "default") or super().implements_function(name, query_imports)

    # -- out ---------------------------------------------------------------------------------------
    def _export(self, target: str, **linking: Any) -> str:
        return self.inner._export(target, **linking)

    def get_source(self, fmt: str = "") -> str:
        return self.inner.get_source(fmt)

    def save(self, file_name: Any, fmt: str = "") -> None:
        self.inner.save(file_name, fmt)

    def __repr__(self) -> str:
        ins = ", ".join(f"{t.name}: {t.text}" for t in self.model.inputs)
        outs = ", ".join(t.text for t in self.model.outputs)
        return f"Model({self.model.name}: ({ins}) -> ({outs}), {len(self.model.steps)} steps)"


def view_of(memory: NDArray, offset: int, dtype: str, shape: tuple[int, ...]) -> NDArray:
    """A tensor at an offset in memory."""
    from .dtypes import ELEMENTS

    kind = ELEMENTS[dtype]
    host = np.asarray(memory)
    count = int(np.prod(shape, dtype=np.int64))
    values = host[offset : offset + count * kind.itemsize].view(kind.numpy).reshape(shape)
    made = numpyasarray(values)
    made._owner = memory._owner
    return made


def model_or(module: Module) -> Module:
    """The module as a model or a program of the virtual machine, if its library contains one."""
    data = module._library.metadata()
    data = as_table(data, module._library.name)
    if MODEL in data and PROGRAMS_OF_CHIP in data:
        from .accelerator_executor import AcceleratorModelModule

        return AcceleratorModelModule(module)
    if MODEL in data and "device" in data[MODEL]:
        from .device_executor import DeviceModelModule

        return DeviceModelModule(module)
    if MODEL in data:
        return ModelModule(module)
    from .vm import VM, machine_or

    return (machine_or(module, data) if VM in data else None) or module


class Executor(Turns):
    """A model with its own memory: set inputs, run, get results, in one thread at a time."""

    def __init__(self, module: ModelModule, device: Device) -> None:
        super().__init__()
        if device.device_type != 1:
            raise TVMError(f"{module.name} was compiled for the CPU and cannot run on {device}")
        self.device = device
        self._attach(module)

    def _attach(self, module: ModelModule) -> None:
        """Connect to the code of a model, and allocate its memory."""
        self.module, self.info = module, module.model
        self._function: NativeFunction = module.get_function(self.info.entry)  # type: ignore[assignment]
        self._arena = empty((self.info.arena,), "uint8")
        self._inputs: list[NDArray] = [zeros(t.shape, t.dtype) for t in self.info.inputs]
        self._outputs: list[NDArray] = [empty(t.shape, t.dtype) for t in self.info.outputs]
        self._fresh = [fresh(t.shape, t.dtype) for t in self.info.outputs]
        self._own_weights = False
        self._missing: set[str] = set()
        if module.weights is None:
            self._weights = empty((self.info.weights,), "uint8")
            self._own_weights = True
            self._missing = {p.name for p in self.info.params}
        else:
            self._weights = module.weights
        self._index = {t.name: i for i, t in enumerate(self.info.inputs)}
        self._param_index = {p.name: p for p in self.info.params}

    # -- inputs ------------------------------------------------------------------------------------
    def set_input(self, /, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Copy a value to an input, by its name or number; any number of them by name."""
        self._change()
        if key is not None:
            self._set(key, value)
        for name, given in params.items():
            self._set(name, given)

    def _set(self, key: int | str, value: Any) -> None:
        param = self._param_index.get(key) if isinstance(key, str) else None
        if param is not None:
            self._set_param(param.name, value)
            return
        i = self._input(key)
        values = _checked(self.info.inputs[i], value)
        target = self._inputs[i]._host
        assert target is not None  # it is on the CPU
        if not target.flags.writeable:
            self._inputs[i] = zeros(self.info.inputs[i].shape, self.info.inputs[i].dtype)
            self._made, target = None, np.asarray(self._inputs[i])
        target[...] = values
        self._was_set(i)

    def _input(self, key: int | str) -> int:
        """The number of an input."""
        if isinstance(key, str):
            found = self._index.get(key)
            if found is None:
                raise ArgumentValueError(f"the model has no input {key!r}; {self._listed()}")
            return found
        index = int(key)
        if not 0 <= index < len(self._inputs):
            raise ArgumentValueError(f"the model has no input number {index}; {self._listed()}")
        return index

    def _listed(self) -> str:
        names = ", ".join(f"{t.name}: {t.text}" for t in self.info.inputs) or "none"
        more = (
            f", and {len(self.info.params)} parameters, such as {self.info.params[0].name}"
            if self.info.params
            else ""
        )
        return f"its inputs are {names}{more}"

    def _set_param(self, name: str, value: Any) -> None:
        param = self._param_index[name]
        values = _checked(TensorInfo(param.name, param.dtype, param.shape), value)
        place = view_of(self._weights, param.offset, param.dtype, param.shape)
        if not self._own_weights:
            if np.shares_memory(np.asarray(place), values) or np.array_equal(np.asarray(place), values):
                return  # the library's own memory
            self._weights = array(np.asarray(self._weights))
            self._own_weights, self._made = True, None
            place = view_of(self._weights, param.offset, param.dtype, param.shape)
        np.asarray(place)[...] = values
        self._missing.discard(name)

    def set_input_zero_copy(self, /, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Bind an array as an input, without a copy."""
        self._change()
        given: dict[Any, Any] = dict(params)
        if key is not None:
            given[key] = value
        for name, each in given.items():
            i = self._input(name)
            taken = each if isinstance(each, NDArray) else numpyasarray(np.asarray(each))
            _checked(self.info.inputs[i], taken)
            if not taken.is_contiguous():
                raise ArgumentValueError(
                    f"input {self.info.inputs[i].name!r} must be dense to be read without a copy"
                )
            self._inputs[i], self._made = taken, None
            self._was_set(i)

    def set_output_zero_copy(self, key: int | str, value: NDArray) -> None:
        """Bind an array as an output, without a copy."""
        index = self._output(key)
        _checked(self.info.outputs[index], value)
        self._change()
        self._outputs[index], self._made = value, None

    def load_params(self, params_bytes: bytes | bytearray | Mapping[str, Any]) -> None:
        """Set parameters from the output of `save_param_dict`.

        A name that the model does not have is left out with a warning: the parameters of a model before its
        constants were folded are more than those after.
        """
        self._change()
        given = params_bytes if isinstance(params_bytes, Mapping) else load_param_dict(params_bytes)
        unknown = [n for n in given if n not in self._param_index and n not in self._index]
        if unknown:
            names = ", ".join(map(repr, unknown))
            warnings.warn(f"load_params: the model has no {names}; {self._listed()}", stacklevel=3)
        for name, value in given.items():
            if name not in unknown:
                self._set(name, value)

    def share_params(self, other: Executor, params_bytes: Any = None) -> None:
        """Use the parameters of another executor of the same model, in the same memory."""
        if other.info.params != self.info.params:
            raise ArgumentValueError("share_params: the other executor runs another model")
        self._change()
        self._weights, self._own_weights, self._made = other._weights, False, None
        self._missing = set(other._missing)

    # -- run -----------------------------------------------------------------------------------------
    def run(self, /, **inputs: Any) -> None:
        """Run the model; inputs may be given here by name."""
        if inputs:
            self.set_input(**inputs)
        call = self._call
        if call is None:
            call = self._ready()
        self._call = None  # the fast path of `alone`
        try:
            call()
        finally:
            self._call = call

    def compute(self, values: Sequence[Any]) -> list[NDArray]:
        """The results for contiguous arrays of the right types in order, which are read in place, as new arrays."""
        outputs = [make() for make in self._fresh]
        call = self._call  # `alone`, without the time of a context manager
        if call is None:
            call = self._ready()
        self._call = None
        try:
            self._function(*values, *outputs, self._weights, self._arena)
        finally:
            self._call = call
        return outputs

    def _refuse_missing(self) -> None:
        if self._missing:
            names = ", ".join(sorted(self._missing)[:5])
            raise TVMError(
                f"{len(self._missing)} parameters have no value ({names}, …): the library was exported without its "
                "weights; give them with load_params or set_input(**params)"
            )

    def _bound(self) -> Callable[[], Any]:
        self._refuse_missing()
        return self._function.bind(*self._inputs, *self._outputs, self._weights, self._arena)

    def steps(self) -> Iterator[tuple[StepInfo, Callable[[], Any], list[NDArray]]]:
        """The steps one by one: description, function to run it, and results."""
        self._refuse_missing()
        for step in self.info.steps:
            arrays = [self.tensor(a) for a in step.args]
            outs = [arrays[i] for i in step.outputs]
            if not step.kernel:
                source, target = (np.asarray(a) for a in arrays)
                yield step, partial(np.copyto, target, source.reshape(target.shape)), outs
            else:
                function: NativeFunction = self.module.get_function(step.kernel)  # type: ignore[assignment]
                ahead: list[Any] = []
                if step.ahead:
                    at, stride = step.ahead
                    ahead = [view_of(self._weights, at, "uint8", (LINE,)), stride]
                yield step, function.bind(*arrays, *ahead), outs

    _part = staticmethod(view_of)  # a tensor at an offset in the memory of an executor

    def tensor(self, place: PlaceInfo) -> NDArray:
        """The tensor of a place."""
        if place.space in ("input", "output"):
            held = (self._inputs if place.space == "input" else self._outputs)[place.at]
            return held if held.shape == place.shape else held.reshape(place.shape)
        memory = self._weights if place.space == "weights" else self._arena
        return self._part(memory, place.at, place.dtype, place.shape)

    # -- results -----------------------------------------------------------------------------------
    def _output(self, key: int | str) -> int:
        """The number of a result."""
        if isinstance(key, str):
            found = self.get_output_index(key)
            if found < 0:
                names = ", ".join(f"{t.name}: {t.text}" for t in self.info.outputs)
                raise ArgumentValueError(f"the model has no result {key!r}; its results are {names}")
            return found
        if not 0 <= int(key) < len(self._outputs):
            raise ArgumentValueError(
                f"the model has {len(self._outputs)} results, and index {key} is out of range"
            )
        return int(key)

    def get_output(self, index: int | str, out: Any = None) -> NDArray:
        """A result by its number or name, which the next run overwrites. With `out` it is copied there."""
        found = self._outputs[self._output(index)]
        return found if out is None else out.copyfrom(found)  # type: ignore[no-any-return]

    def get_input(self, key: int | str, out: Any = None) -> NDArray:
        """An input, or a parameter by its name."""
        param = self._param_index.get(key) if isinstance(key, str) else None
        if param is not None:
            found = self._part(self._weights, param.offset, param.dtype, param.shape)
        else:
            found = self._inputs[self._input(key)]
        return found if out is None else out.copyfrom(found)  # type: ignore[no-any-return]

    def get_num_outputs(self) -> int:
        return len(self._outputs)

    def get_num_inputs(self) -> int:
        return len(self._inputs)

    def get_input_index(self, name: str) -> int:
        return self._index.get(name, -1)

    def get_output_index(self, name: str) -> int:
        return next((i for i, t in enumerate(self.info.outputs) if t.name == name), -1)

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """The shapes and the types of the inputs by name."""
        return {t.name: t.shape for t in self.info.inputs}, {t.name: t.dtype for t in self.info.inputs}

    # -- time ------------------------------------------------------------------------------------------
    def benchmark(self, **options: Any) -> BenchmarkResult:
        """The time of `run` with the current inputs."""
        with self.alone() as call:
            return time_evaluator(_Bound(call), self.device, **options)()

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, number: int = 10, repeat: int = 1, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """A function that measures one of the executor's, such as `run`: see `timing.time_evaluator`."""
        device = self.device if dev is None else dev
        return time_evaluator(self[func_name], device, number=number, repeat=repeat, **options)

    def profile(self, repeat: int = 5, number: int = 1) -> Profile:
        """The time and the work of each step with the current inputs: the median of `repeat` rounds through all steps,
        each of which runs `number` times."""
        self.run()  # caches warm
        whole = self.benchmark(number=max(1, number), repeat=max(1, repeat)).median
        steps = list(self.steps())
        with self.alone():
            rounds = [
                [self.seconds_of(call, max(1, number)) for _, call, _ in steps] for _ in range(max(1, repeat))
            ]
        times = [statistics.median(each) for each in zip(*rounds, strict=True)]
        kernels = tuple(self.profile_of(s, t) for (s, _, _), t in zip(steps, times, strict=True))
        return self.profile_from(kernels, whole)

    def profile_from(self, kernels: tuple[KernelProfile, ...], whole: float | None = None) -> Profile:
        """A profile of this executor."""
        threads = num_threads() if self.info.device == "cpu" else 1
        return Profile(kernels, self.info.name, str(self.info.device), threads, self.info.roof, whole)

    def profile_of(self, step: StepInfo, seconds: float) -> KernelProfile:
        """The line of a step in a profile."""
        outs = [step.args[i] for i in step.outputs]
        ins = [a for i, a in enumerate(step.args) if i not in step.outputs and a.space != "scratch"]
        roof, nbytes = self.info.roof, step.accessed
        if nbytes is None:
            nbytes = sum(a.nbytes for a in (*ins, *outs))
        dtype = arithmetic_type([(a.dtype, a.nbytes) for a in (ins or outs)])
        threads = num_threads() if self.info.device == "cpu" else 1
        return KernelProfile(
            step.name,
            step.kernel,
            seconds,
            text_of([(a.dtype, a.shape) for a in outs]),
            nodes=step.nodes,
            inputs=text_of([(a.dtype, a.shape) for a in ins]),
            dtype=dtype,
            flops=step.flops,
            nbytes=nbytes,
            roof_seconds=None if roof is None else roof.seconds(step.flops or 0, nbytes, dtype, threads),
        )

    def seconds_of(self, call: Callable[[], Any], number: int = 1) -> float:
        """The time of a step, the mean of `number` runs."""
        start = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - start) / number

    def __getitem__(self, name: str) -> Any:
        method = getattr(self, name, None)
        if name.startswith("_") or not callable(method):
            raise AttributeError(f"an executor has no function {name!r}")
        return method


class _Bound:
    """A bound call, for timing."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def bind(self) -> Any:
        return self._call

    def __call__(self) -> Any:
        return self._call()


def _checked(info: TensorInfo, value: Any) -> np.ndarray[Any, Any]:
    """The values for a tensor, checked against its type and shape."""
    if value is None:
        raise ArgumentValueError(f"input {info.name!r} needs a value, {info.text}")
    held = value if isinstance(value, NDArray) else None
    try:
        refuse_masked(value)
    except ValueError as error:
        raise ArgumentValueError(f"input {info.name!r} cannot be used: {error}") from None
    values = (
        np.asarray(value) if held is not None or not hasattr(value, "detach") else np.asarray(value.detach())
    )
    if tuple(values.shape) != info.shape:
        raise ArgumentValueError(
            f"input {info.name!r} must have shape {info.shape}, and an array of shape {tuple(values.shape)} was given"
        )
    name = held.dtype if held is not None else values.dtype.name
    if name != info.dtype:
        if held is None and not isinstance(value, np.ndarray) and not hasattr(value, "dtype"):
            return values.astype(np.asarray(empty((0,), info.dtype)).dtype)  # plain Python numbers
        if held is None and isinstance(value, np.ndarray) and _can_convert(values, info.dtype):
            return values.astype(info.dtype)
        raise ArgumentTypeError(f"input {info.name!r} must be of type {info.dtype}, and {name} was given")
    return values


def _can_convert(values: np.ndarray[Any, Any], dtype: str) -> bool:
    """Whether an array of NumPy becomes one of another type: a wider one, one of integers that holds all values, or,
    since NumPy computes with float64, one of narrower floats, if no value is too great for it."""
    element = np.asarray(empty((0,), dtype)).dtype
    if element.kind not in "iuf" or values.dtype.kind not in "iuf":
        return False
    if values.dtype.kind in "iu" and element.kind in "iu" and values.size:
        limits = np.iinfo(element)
        return bool(values.min() >= limits.min and values.max() <= limits.max)
    if values.dtype.kind in "iu" and element.kind == "f":
        exact = 2 ** (np.finfo(element).nmant + 1)
        return not values.size or bool(values.min() >= -exact and values.max() <= exact)
    if values.dtype.kind == element.kind == "f" and values.dtype.itemsize > element.itemsize:
        finite = values[np.isfinite(values)]
        return bool((np.abs(finite) <= np.finfo(element).max).all())
    return bool(np.can_cast(values.dtype, element, "safe"))


def __getattr__(name: str) -> Any:
    """`AotModule`, the classic name of a model that was compiled ahead of time: all are."""
    if name == "AotModule":
        from .graph_module import GraphModule

        return GraphModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
