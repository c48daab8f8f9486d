"""A compiled model as a function of its inputs. It needs the runtime alone.

    model = tilewright.load("net.tar")
    scores = model(image)                 # or by name: model(image=image)

Results come as the inputs do: arrays of NumPy, tensors of PyTorch, arrays of JAX, or NDArrays. Arrays of NumPy and
PyTorch are read in place, and results share their memory with the arrays that are returned.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, ItemsView, KeysView, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .. import config
from .arguments import in_order, view
from .container import ADT
from .devices import Device, cpu, device
from .dtypes import ELEMENTS
from .errors import ArgumentTypeError, ArgumentValueError, LoadError
from .executor import Executor, ModelModule
from .model import TensorSpec
from .module import load_module
from .ndarray import NDArray, array
from .package import Package
from .profiler import ROUNDS, profile_model
from .profiling import Profile
from .timing import BenchmarkResult, time_evaluator
from .versions import RECURS
from .vm import VirtualMachine
from .words import Numbering, Words

LIBRARIES = (".so", ".dylib", ".dll")  # suffixes of shared libraries


class Form(Protocol):
    """How arguments and results of a call are made of tensors, for a model whose framework has structures of them."""

    def tensors(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors of a call's arguments, in the order of the model's inputs."""

    def result(self, tensors: list[Any]) -> Any:
        """The result of a call, made of the model's results."""


class Results(tuple[Any, ...]):
    """Several results in order, and by name: `boxes, scores = model(x)`, `model(x)["scores"]`."""

    names: tuple[str, ...]

    def __new__(cls, names: Sequence[str], values: Sequence[Any]) -> Results:
        made = super().__new__(cls, values)
        made.names = tuple(names)
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.names, tuple(self)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise KeyError(f"there is no result {key!r}; the results are {', '.join(self.names)}")
            key = self.names.index(key)
        return super().__getitem__(key)

    def as_dict(self) -> dict[str, Any]:
        return dict(zip(self.names, self, strict=True))

    def keys(self) -> KeysView[str]:
        return self.as_dict().keys()

    def items(self) -> ItemsView[str, Any]:
        return self.as_dict().items()

    def __repr__(self) -> str:
        return f"Results({', '.join(f'{n}={v!r}' for n, v in self.items())})"


class CompiledModel:
    """A compiled model, called with its inputs: `tilewright.compile` and `tilewright.load` make them.

    Calls from several threads take turns. `inputs` and `outputs` have names, types and shapes as in the model.
    """

    def __init__(
        self,
        runner: Executor | VirtualMachine,
        name: str = "model",
        target: str = "llvm",
        form: Form | None = None,
        save: Callable[[Path], None] | None = None,
        explain: Callable[[], str] | None = None,
        early: int | None = 0,
        package: Package | None = None,
        words: Words | None = None,
    ) -> None:
        self.runner, self.name, self.target = runner, name, target
        self._form, self._save, self._explain = form, save, explain
        self._early = early  # calls that may be answered before all kernels are compiled; None for any number
        self._words = words
        self._package = package  # the owner of the folder with the library
        self._turn = threading.Lock()
        self.inputs: tuple[TensorSpec, ...]
        self.outputs: tuple[TensorSpec, ...]
        if isinstance(runner, Executor):
            info = runner.info
            self.inputs, self.outputs = (
                tuple(TensorSpec(t.name, t.dtype, t.shape) for t in each)
                for each in (info.inputs, info.outputs)
            )
        else:
            self.inputs, self.outputs = runner.exe.program.interface
        self._names = [t.name for t in self.inputs]
        self._last: list[Any] = [None] * len(self._names)  # type, shape and strides of the arrays of a call

    @property
    def device(self) -> Device:
        return self.runner.device

    @property
    def is_dynamic(self) -> bool:
        """Whether the virtual machine runs the model: it has dynamic shapes, branches or loops."""
        return not isinstance(self.runner, Executor)

    # -- calls ---------------------------------------------------------------------------------
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The results for some inputs, in order or by name: one result, or `Results`.

        A model of PyTorch takes and returns what its `forward` does.
        """
        made = self.results(self._given(args, kwargs))
        if self._form is not None:
            return self._form.result(made)
        return made[0] if len(made) == 1 else Results([t.name for t in self.outputs], made)

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors of a call's arguments, in the order of the inputs."""
        if self._form is not None:
            return self._form.tensors(args, kwargs)
        if not kwargs and len(args) == len(self._names):
            return list(args)
        return in_order(self.name, self._names, args, kwargs)

    def run(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        """The results by name, for inputs by name or in order."""
        if isinstance(inputs, Mapping):
            given = in_order(self.name, self._names, (), inputs)
        else:
            given = in_order(self.name, self._names, inputs, {})
        return dict(zip([t.name for t in self.outputs], self.results(given), strict=True))

    def results(self, inputs: list[Any]) -> list[Any]:
        """The results in order, in the form of the inputs, which are in order too.

        Strings are numbered before the run and written out after it.
        """
        if self._words is None:
            return [_as_given(inputs, r) for r in self._run(inputs)]
        words = Numbering(self._words.known)
        given = [
            words.encoded(v) if t.name in self._words.inputs else v
            for t, v in zip(self.inputs, inputs, strict=True)
        ]
        made = [_as_given(given, r) for r in self._run(given)]
        return [
            words.decoded(v) if t.name in self._words.outputs else v
            for t, v in zip(self.outputs, made, strict=True)
        ]

    @property
    def strings(self) -> frozenset[str]:
        """The inputs and results that are strings; the model itself computes with numbers of them."""
        return frozenset() if self._words is None else self._words.inputs | self._words.outputs

    def _run(self, given: Sequence[Any]) -> list[NDArray]:
        runner = self.runner
        values = [
            value if self._is_as_before(i, value) else self._taken(i, value) for i, value in enumerate(given)
        ]
        with self._turn:
            if self._early is not None:
                if self._early == 0:
                    self._finish()
                self._early -= 1
            if isinstance(runner, Executor):
                return runner.compute(values)
            return _leaves(runner.call("main", values))

    def _is_as_before(self, at: int, value: Any) -> bool:
        """Whether an input is a NumPy array like the last one, so that it needs no other check."""
        if value.__class__ is not np.ndarray:
            return False
        return (value.dtype, value.shape, value.strides) == self._last[at] and value.flags.aligned

    def _taken(self, at: int, value: Any) -> Any:
        taken = _dense(self.inputs[at], value)
        if taken is value and value.__class__ is np.ndarray:
            self._last[at] = value.dtype, value.shape, value.strides
        return taken

    def wait(self) -> CompiledModel:
        """Return when nothing is compiled in the background: kernels of a model that answers before they are there, a
        version of a dynamic model for sizes that recur."""
        with self._turn:
            self._finish()
        return self

    def _finish(self) -> None:
        finish = getattr(self.runner, "finish", None)
        if finish is not None:
            finish()

    # -- figures ---------------------------------------------------------------------------------
    def benchmark(self, /, *args: Any, repeat: int = 5, number: int = 5, **kwargs: Any) -> BenchmarkResult:
        """The time of a call with these inputs: `repeat` means of `number` calls each, when nothing is compiled in the
        background any more, such as a version for sizes that recur."""
        for _ in range(RECURS if self.is_dynamic and config.versions.value else 0):
            self(*args, **kwargs)
        self.wait()
        return time_evaluator(lambda: self(*args, **kwargs), self.device, repeat=repeat, number=number)()

    def profile(self, /, *args: Any, repeat: int = ROUNDS, **kwargs: Any) -> Profile:
        """The time and the work of each kernel for these inputs, the median of `repeat` rounds.

        Its lines have GFLOP/s, GB/s, the share of what the machine can do, and the node of the model.
        """
        given = self._given(args, kwargs)
        values = [np.asarray(_on_host(_dense(s, v))) for s, v in zip(self.inputs, given, strict=True)]
        with self._turn:
            return profile_model(self.runner, dict(zip(self._names, values, strict=True)), repeat)

    def memory_report(self) -> Any:
        """The memory of the model: weights, intermediate tensors, inputs and results."""
        runner = self.runner
        return runner.module.memory_report() if isinstance(runner, Executor) else runner.memory_report()

    def explain(self) -> str:
        """The schedule of each kernel, and why it was chosen."""
        if self._explain is None:
            raise ArgumentValueError(
                f"{self.name}: a model that was loaded does not know how its schedules were chosen; explain the one "
                "that tilewright.compile made"
            )
        return self._explain()

    # -- out and in ------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, which `tilewright.load` reads: a package, for `tilewright run` too, or the
        library alone if the name ends in `.so`, `.dylib` or `.dll`, which takes a C compiler."""
        if self._save is None:
            raise ArgumentValueError(
                f"{self.name}: it was loaded from a library; copy that file instead of saving the model"
            )
        self._save(Path(path))

    def __repr__(self) -> str:
        ins, outs = (", ".join(map(str, each)) for each in (self.inputs, self.outputs))
        return f"CompiledModel({self.name}: ({ins}) -> ({outs}), {self.target})"


def load(path: str | os.PathLike[str], device: Device | None = None) -> CompiledModel:
    """The compiled model in a file: a package of `CompiledModel.save` or `tilewright compile`, or a library of
    `export_library`. The compiler is not needed, and not imported."""
    file = Path(path)
    if not file.is_file():
        raise LoadError(f"{file}: there is no such file" if not file.exists() else f"{file}: is a folder")
    if file.suffix in (".onnx", ".pt2", ".pt", ".pth", ".keras", ".h5", ".tflite"):
        raise LoadError(
            f"{file}: is a model that is not compiled yet: compile it with tilewright.compile({str(path)!r})"
        )
    if file.suffix in LIBRARIES:
        return _of_library(load_module(str(file)), file.stem, "", device)
    package = Package(file)
    name = str(package.about.get("name", file.stem))

    def save(to: Path) -> None:
        if to.resolve() != file.resolve():
            shutil.copyfile(file, to)

    runner: Executor | VirtualMachine
    if package.executor_type == "vm":
        runner = package.machine(device)
    else:
        runner = package.executor(device or device_of(package.library())).module
    words = Words.of(package.about.get("strings"))
    return CompiledModel(runner, name, package.target, save=save, package=package, words=words)


def device_of(library: Any) -> Device:
    """The device that a compiled model is for."""
    return device(library.model.device, 0) if isinstance(library, ModelModule) else cpu(0)


def _of_library(library: Any, name: str, target: str, where: Device | None) -> CompiledModel:
    if getattr(library, "type_key", "") == "vm":
        return CompiledModel(VirtualMachine(library, where), name, target)
    if not isinstance(library, ModelModule):
        raise LoadError(f"{library.name}: is a library of functions, not a model; use runtime.load_module")
    if library.weights is None and library.model.params:
        raise LoadError(f"{library.name}: was exported without its weights; load the package of the model")
    return CompiledModel(library.create(where or device_of(library)), name, target)


# ---------------------------------------------------------------------------- values
def _dense(spec: TensorSpec, value: Any) -> Any:
    """A value for an input as an array that can be read in place: of its type, and contiguous."""
    if value is None:
        raise ArgumentValueError(f"the input {spec} needs a value")
    if getattr(value, "requires_grad", False):
        value = value.detach()
    if not isinstance(value, NDArray) and not hasattr(value, "__dlpack__"):
        value = np.asarray(value, None if hasattr(value, "dtype") else ELEMENTS[spec.dtype].numpy)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    layout, address, _ = view(value)
    fits = len(layout.shape) == len(spec.shape) and all(
        d == n for d, n in zip(spec.shape, layout.shape) if isinstance(d, int)
    )
    if not fits:
        given = ", ".join(map(str, layout.shape))
        raise ArgumentValueError(f"the input {spec} does not take an array of shape [{given}]")
    if layout.dtype != spec.dtype:
        raise ArgumentTypeError(
            f"the input {spec} does not take {layout.dtype}; convert it: "
            + (
                f"{spec.name}.to(torch.{spec.dtype})"
                if _is_of("torch", value)
                else f"{spec.name}.astype({spec.dtype!r})"
            )
        )
    if layout.strides is None and not address % ELEMENTS[spec.dtype].itemsize:
        return value
    return array(value) if layout.device_type == 1 else value.contiguous()


def _on_host(value: Any) -> Any:
    """An array in host memory, which NumPy can read."""
    return value.cpu() if _is_of("torch", value) else value


def _is_of(package: str, value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in (package, f"{package}lib")


def _as_given(given: Sequence[Any], made: NDArray) -> Any:
    """A result as an array of the same package as the inputs, in the same memory."""
    if made.device.device_type == 1 and all(v.__class__ is np.ndarray for v in given):
        return np.asarray(made)
    if tensors := [v for v in given if _is_of("torch", v)]:
        if all(t.device.type == "cpu" for t in tensors) and made.device.device_type != 1:
            made = made.copyto(cpu(0))
        return sys.modules["torch"].from_dlpack(made)
    if any(_is_of("jax", v) for v in given):
        return sys.modules["jax"].numpy.from_dlpack(made)
    if any(isinstance(v, NDArray) for v in given):
        return made
    return np.asarray(made) if made.device.device_type == 1 else made.numpy()


def _leaves(value: Any) -> list[NDArray]:
    if isinstance(value, (ADT, list, tuple)):
        return [leaf for field in value for leaf in _leaves(field)]
    return [value]
