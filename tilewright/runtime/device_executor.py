"""Running a model on a GPU: its memory is on the device, its steps are launches in order, captured as a graph on CUDA.

    inputs, results │ weights: uploaded once for a device │ arena: one piece, each tensor a part of it

Steps without a device kernel run on the host, between copies; the launches before and after them are captured
separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .arguments import share_elements
from .device_module import PROGRAMS, DeviceModule, launches_of
from .devices import Device, device_api
from .errors import TVMError
from .executor import Executor, ModelModule, _checked, view_of
from .json_reader import as_table
from .launcher import BoundCall, NativeFunction
from .metadata import overlap_text
from .model import LAUNCHES, PlaceInfo, StepInfo, TensorInfo
from .module import Module
from .ndarray import NDArray, array, empty, from_dlpack, part_of
from .reports import Report, within
from .timing import BenchmarkResult, time_evaluator
from .turns import Turns

Work = Callable[[], Any]


class DeviceModelModule(ModelModule):
    """A compiled model whose kernels run on a device."""

    def __init__(self, inner: Module, weights: NDArray | None = None) -> None:
        super().__init__(inner, weights)
        data = inner._library.metadata()
        data = as_table(data, inner._library.name)
        self.launches = launches_of(inner, data.get(LAUNCHES), f"a model for {self.model.device}")
        for module in self.launches.imported_modules:
            self.import_module(module)
        self.uploads = None if self.weights is None else Uploads(self.weights)

    @property
    def device_module(self) -> DeviceModule:
        """The kernels."""
        return self.launches.imported_modules[0]  # type: ignore[return-value]

    def uploaded(self, device: Device) -> NDArray | None:
        """The weights on a device: all executors there share them."""
        return None if self.uploads is None else self.uploads.on(device)

    def create(self, device: Device | None = None, *others: Device) -> Executor:
        """An executor on a device, the first of its kind by default."""
        return DeviceExecutor(self, device or Device(Device.STR2MASK[self.model.device], 0))

    def step_function(self, kernel: str) -> NativeFunction:
        """The function that launches the kernels of a step, or runs it on the host."""
        module: Module = self.launches if kernel in self.launches.info.functions else self
        return module.get_function(kernel)  # type: ignore[return-value]

    def checks(self, kernel: str) -> bool:
        """Whether kernels of a step check indices or divisors in their data."""
        return bool(self.launches.description[PROGRAMS].get(kernel, {}).get("checks"))

    def new_report(self, device: Device) -> Report | None:
        """The report block for the kernels of an executor that check their data; None if none do."""
        if not any(self.checks(step.kernel) for step in self.model.steps):
            return None
        return Report(device_api(device), device.device_id)

    def get_source(self, fmt: str = "") -> str:
        """The kernels; `h` and `json` are those of the host's part."""
        return self.inner.get_source(fmt) if fmt in ("h", "json") else self.device_module.get_source(fmt)


class Uploads:
    """Weights on devices, uploaded once for each. Several models may share them: what was added since is uploaded when
    the next one asks."""

    def __init__(self, weights: NDArray) -> None:
        self.weights, self.used = weights, weights.nbytes
        self._there: dict[Device, tuple[NDArray, int]] = {}

    def on(self, device: Device) -> NDArray:
        """The weights on a device."""
        found, done = self._there.get(device) or (empty(self.weights.shape, "uint8", device), 0)
        if not done and self.used == self.weights.nbytes:
            found.copyfrom(self.weights)
        elif done < self.used:
            fresh = np.asarray(self.weights)[done : self.used]
            part_of(found, done, "uint8", fresh.shape).copyfrom(fresh)
        self._there[device] = found, self.used
        return found


class DeviceExecutor(Executor):
    """A model with memory of its own on a device. `run` does not wait for the device; reading a result does, and raises
    the errors that kernels reported about indices or divisors in the data."""

    def __init__(self, module: DeviceModelModule, device: Device) -> None:
        kind = module.model.device
        if device.kind != kind:
            raise TVMError(
                f"{module.name} was compiled for {kind} and cannot run on {device}; give tvm.{kind}(0), or compile it "
                "for another target"
            )
        device_api(device)  # raises if there is none
        Turns.__init__(self)
        self.module: DeviceModelModule = module  # type: ignore[mutable-override]
        self.device, self.info = device, module.model
        self._arena = empty((self.info.arena,), "uint8", device)
        self._inputs = [self._zeros(t) for t in self.info.inputs]
        self._outputs = [empty(t.shape, t.dtype, device) for t in self.info.outputs]
        self._own_weights = module.weights is None
        self._missing = {p.name for p in self.info.params} if self._own_weights else set()
        there = module.uploaded(device)
        self._weights = empty((self.info.weights,), "uint8", device) if there is None else there
        self._host_weights = empty((self.info.weights,), "uint8") if there is None else module.weights
        self._index = {t.name: i for i, t in enumerate(self.info.inputs)}
        self._param_index = {p.name: p for p in self.info.params}
        self._parts: dict[PlaceInfo, NDArray] = {}
        self._work: list[tuple[bool, list[Work]]] | None = None  # (whether they run on the host, the steps)
        self._graphs: list[Work] | None = None
        self._report = module.new_report(device)  # for kernels that check their data
        self.records = device_api(
            device
        ).captures_graphs  # whether launches are recorded when they are done for the second time

    def _zeros(self, info: TensorInfo) -> NDArray:
        made = empty(info.shape, info.dtype, self.device)
        return made.copyfrom(np.zeros(info.shape, np.asarray(empty((0,), info.dtype)).dtype))

    def _changed(self) -> None:
        """A buffer has moved: bound calls and captured graphs are stale."""
        self._work = self._graphs = self._made = None

    # -- inputs ------------------------------------------------------------------------------------
    def _set(self, key: int | str, value: Any) -> None:
        if isinstance(key, str) and key in self._param_index:
            self._set_param(key, value)
            return
        i = self._input(key)
        info = self.info.inputs[i]
        there = self._on_device(info, value)
        if not self._inputs[i]._tw_layout.writeable:
            self._inputs[i] = empty(info.shape, info.dtype, self.device)
            self._changed()
        self._inputs[i].copyfrom(_checked(info, value) if there is None else there)
        self._was_set(i)

    def _on_device(self, info: TensorInfo, value: Any) -> NDArray | None:
        """The value as an array on this device, ours or another package's; None if it is not one."""
        if not isinstance(value, NDArray):
            asked = getattr(value, "__dlpack_device__", None)
            if asked is None or int(asked()[0]) != self.device.device_type:
                return None
            value = from_dlpack(value.detach() if hasattr(value, "detach") else value)
        if value.device != self.device:
            return None
        if value.shape != info.shape or value.dtype != info.dtype:
            raise ValueError(
                f"input {info.name!r} must be {info.text}, and {value.dtype}[{', '.join(map(str, value.shape))}] was "
                "given"
            )
        return value

    def _set_param(self, name: str, value: Any) -> None:
        param = self._param_index[name]
        values = _checked(TensorInfo(param.name, param.dtype, param.shape), value)
        assert self._host_weights is not None
        place = np.asarray(view_of(self._host_weights, param.offset, param.dtype, param.shape))
        if not self._own_weights:
            if np.shares_memory(place, values) or np.array_equal(place, values):
                return  # the library's own memory
            self._host_weights = array(np.asarray(self._host_weights))
            self._weights = self._host_weights.copyto(self.device)
            self._own_weights = True
            self._parts = {p: a for p, a in self._parts.items() if p.space != "weights"}
            self._changed()
            place = np.asarray(view_of(self._host_weights, param.offset, param.dtype, param.shape))
        place[...] = values
        part_of(self._weights, param.offset, param.dtype, param.shape).copyfrom(values)
        self._missing.discard(name)

    def set_input_zero_copy(self, /, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Bind an array on the device as an input, without a copy."""
        self._change()
        given: dict[Any, Any] = dict(params) if key is None else {key: value, **params}
        for name, each in given.items():
            i = self._input(name)
            self._inputs[i] = self._own(self.info.inputs[i], each)
            self._was_set(i)
        self._changed()

    def set_output_zero_copy(self, key: int | str, value: Any) -> None:
        """Bind an array on the device as an output, without a copy."""
        self._change()
        index = self._output(key)
        self._outputs[index] = self._own(self.info.outputs[index], value)
        self._changed()

    def _own(self, info: TensorInfo, value: Any) -> NDArray:
        taken = self._on_device(info, value)
        if taken is None:
            raise ValueError(
                f"{info.name!r} must be an array on {self.device} to be used without a copy; copy it there first: "
                f"tvm.nd.array(x, tvm.{self.device.kind}({self.device.device_id})), or use set_input"
            )
        if not taken.is_contiguous():
            raise ValueError(f"{info.name!r} must be dense to be used without a copy")
        return taken

    def share_params(self, other: Executor, params_bytes: Any = None) -> None:
        """Use the parameters of another executor of the same model, in the same memory."""
        if not isinstance(other, DeviceExecutor) or other.info.params != self.info.params:
            raise ValueError("share_params: the other executor runs another model")
        if other.device != self.device:
            raise ValueError(
                f"share_params: the other executor is on {other.device}, this one on {self.device}"
            )
        self._weights, self._host_weights = other._weights, other._host_weights
        self._own_weights, self._missing, self._parts = False, set(other._missing), {}
        self._changed()

    # -- run -----------------------------------------------------------------------------------------
    def compute(self, values: Sequence[Any]) -> list[NDArray]:
        """The results for arrays in order, as new arrays on the device."""
        for i, value in enumerate(values):
            self.set_input(i, value)
        self.run()
        return [self.get_output(i).copyto(self.device) for i in range(len(self.info.outputs))]

    def _bound(self) -> Work:
        self._refuse_overlaps()
        return self._do_steps

    def _refuse_overlaps(self) -> None:
        """Refuse outputs that overlap other arrays: launches would overwrite memory that others read."""
        names = [t.name for t in (*self.info.inputs, *self.info.outputs)]
        arrays = [*self._inputs, *self._outputs]
        for w in range(len(self._inputs), len(arrays)):
            for other in range(w):
                a, b = arrays[w], arrays[other]
                if share_elements(a._tw_layout, a._tw_ptr, b._tw_layout, b._tw_ptr):
                    raise ValueError(f"{self.info.name}: {overlap_text(names, w, other, False)}")

    def _do_steps(self) -> None:
        if self._report is not None:
            self._report.check_visible()  # of a run whose results were not read
        if self._graphs is None and self._work is not None and self.records:
            self._graphs = self._recorded(self._work)  # everything has run once
        if self._graphs is not None:
            for work in self._graphs:
                work()
            return
        if self._work is None:
            self._work = self._bound_steps()
        for _, steps in self._work:
            for step in steps:
                step()

    def _recorded(self, work: list[tuple[bool, list[Work]]]) -> list[Work]:
        """The steps as captured graphs, with the host's steps between them."""
        from .cuda_driver import capture_graph

        out: list[Work] = []
        for on_host, steps in work:
            if on_host:
                out += steps
                continue
            with capture_graph(self.device) as graph:
                for step in steps:
                    step()
            out.append(graph)
        return out

    def _bound_steps(self) -> list[tuple[bool, list[Work]]]:
        self._refuse_missing()
        out: list[tuple[bool, list[Work]]] = []
        for step in self.info.steps:
            on_host = step.kernel in self.info.on_host
            if not out or out[-1][0] != on_host:
                out.append((on_host, []))
            out[-1][1].append(self._bound_step(step))
        return out

    def _bound_step(self, step: StepInfo) -> Work:
        if step.kernel in self.info.on_host:
            return self._on_host(step)
        arrays = [self.tensor(a) for a in step.args]
        if not step.kernel:
            source, target = arrays
            if not source.nbytes:
                return lambda: None
            api, index = device_api(self.device), self.device.device_id
            copy = partial(api.copy, index, target._tw_ptr, source._tw_ptr, source.nbytes)
            return _Kept(copy, arrays)
        call: Work = self.module.step_function(step.kernel).bind(*arrays)
        return (
            call
            if self._report is None or not self.module.checks(step.kernel)
            else within(self._report, call)
        )

    def _on_host(self, step: StepInfo) -> Work:
        """A step on the host: its inputs are downloaded, its results uploaded."""
        here: list[NDArray] = []
        fetched: list[tuple[NDArray, NDArray]] = []
        sent: list[tuple[NDArray, NDArray]] = []
        for i, place in enumerate(step.args):
            if place.space == "weights":
                assert self._host_weights is not None
                here.append(view_of(self._host_weights, place.at, place.dtype, place.shape))
                continue
            here.append(empty(place.shape, place.dtype))
            (sent if i in step.outputs else fetched).append((here[-1], self.tensor(place)))
        call: BoundCall = self.module.step_function(step.kernel).bind(*here)

        def work() -> None:
            for ours, theirs in fetched:
                ours.copyfrom(theirs)
            call()
            for ours, theirs in sent:
                theirs.copyfrom(ours)

        return work

    def steps(self) -> Iterator[tuple[StepInfo, Work, list[NDArray]]]:
        """The steps one by one: description, function to run it, and results."""
        self._refuse_missing()
        for step in self.info.steps:
            yield step, self._bound_step(step), [self.tensor(step.args[i]) for i in step.outputs]

    _part = staticmethod(part_of)

    def tensor(self, place: PlaceInfo) -> NDArray:
        """The tensor of a place."""
        if place.space in ("input", "output"):
            return super().tensor(place)
        if place not in self._parts:
            self._parts[place] = super().tensor(place)
        return self._parts[place]

    def get_output(self, index: int | str, out: Any = None) -> NDArray:
        """A result by its number or name, which the next run overwrites. With `out` it is copied there."""
        if self._report is not None:
            self._report.expect()  # another thread may have run it
        return super().get_output(index, out)

    # -- time ------------------------------------------------------------------------------------------
    def benchmark(self, **options: Any) -> BenchmarkResult:
        """The time of `run` on the device with the current inputs."""
        with self.alone() as call:
            call()
            return time_evaluator(call, self.device, **options)()

    def seconds_of(self, call: Work, number: int = 1) -> float:
        """The time of a step on the device, the mean of `number` runs."""
        return float(time_evaluator(call, self.device, number=number)().mean)


class _Kept:
    """A call that holds the arrays it works on."""

    def __init__(self, call: Work, held: object) -> None:
        self._call, self._held = call, held

    def __call__(self) -> None:
        self._call()
