"""Models that answer at once: evaluated by NumPy first, by compiled kernels as soon as other processes have made them.

    relay.build          passes, fusion, memory plan; kernels that the cache has not go to background workers
    run                  first tier: each fused function evaluated by NumPy (te/evaluate.py)
       … all kernels are there: weights are packed, the model is linked, in a thread
    run                  final tier: the compiled model, as without tiers

The tiers agree up to the rounding of sums and of functions such as exp. `wait()` returns when the final tier has taken
over; everything that only a compiled model has (its code, its parameters, exports, times) waits for it by itself.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from ...forks import new_in_child
from ...ir.module import IRModule
from ...runtime.devices import Device, cpu
from ...runtime.errors import TVMError
from ...runtime.executor import Executor
from ...runtime.model import ModelInfo, TensorInfo
from ...runtime.ndarray import NDArray, array, empty, from_dlpack, zeros
from ...runtime.registry import PackedFunc
from ...runtime.turns import Turns
from ...target import Target
from ...te.evaluate import Evaluation, NotEvaluated
from ..op.registry import OpPattern
from .background import Background
from .executor import Executor as ExecutorKind
from .executor_factory import ExecutorFactoryModule
from .kernel import Job, Kernel, operators
from .lower import te_of
from .program import Program, Step, Storage, Value
from .te_compiler import Workers, can_fork, from_cache, kept, kernel_workers, warned


def tiered(
    program: Program,
    jobs: Mapping[int, Job],
    target: Target,
    settings: Callable[[], AbstractContextManager[Any]],
    finish: Callable[[dict[str, Kernel]], ExecutorFactoryModule],
    about: tuple[str, IRModule, ExecutorKind],
) -> ExecutorFactoryModule | None:
    """A model with a first tier, whose kernels `finish` makes the final model of, under `settings`; None if there is
    nothing to wait for, no way to compile meanwhile, or a product that NumPy cannot compute."""
    made, missing = from_cache(list(jobs.values()))
    if not missing or not can_fork():
        return None
    try:
        first = FirstTier(program, jobs)
    except NotEvaluated:
        return None
    # Before NumPy computes: workers must be forked while no thread of its BLAS runs.
    compilation = _Compilation(kernel_workers(missing, target, background=True), made, settings, finish)
    compilation.start()
    return TieredModule(first, compilation, about, target)


class FirstTier:
    """A model evaluated by NumPy, a step at a time. Functions that NumPy has no counterpart for are compiled as plain
    loops, unless they are products or reductions, which would take long."""

    def __init__(self, program: Program, jobs: Mapping[int, Job]) -> None:
        self.steps, self.outputs, self.names = program.steps, program.outputs, program.output_names
        self.inputs = program.inputs
        found: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        for job in jobs.values():
            if job.key not in found and job.key not in plain:
                try:
                    found[job.key] = Evaluation(*te_of(job.fn))
                except NotEvaluated:
                    if any(op.pattern > OpPattern.INJECTIVE for op in operators(job.fn)):
                        raise
                    plain[job.key] = job.fn
        if plain:
            from .single import kernels_of

            made = kernels_of(list(plain.values()))
            found |= {key: _Loops(made[fn]) for key, fn in plain.items()}
        self._functions = {i: found[job.key] for i, job in jobs.items()}

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The results for the inputs, as arrays of NumPy."""
        values: dict[Storage, Any] = {v.storage: a for (_, v), a in zip(self.inputs, arrays, strict=True)}
        with _one_thread():
            for i, step in enumerate(self.steps):
                given = [_array(v, values) for v in step.inputs]
                made = given if step.fn is None else self._call(i, step, given)
                for v, array in zip(step.outputs, made, strict=True):
                    values[v.storage] = array
                for v in step.inputs:
                    if v.storage.kind == "arena" and v.storage.last <= i:
                        values.pop(v.storage, None)
        return [_array(v, values) for v in self.outputs]

    def _call(self, i: int, step: Step, given: list[Any]) -> list[Any]:
        function = self._functions[i]
        return function.run(given, step) if isinstance(function, _Loops) else function(given)


def _array(value: Value, values: Mapping[Storage, Any]) -> Any:
    storage = value.storage
    held = np.asarray(storage.constant.data) if storage.constant is not None else values[storage]
    return held.reshape(value.shape)


class _Loops:
    """A fused function compiled as plain loops."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def run(self, given: Sequence[Any], step: Step) -> list[Any]:
        from ...runtime.ndarray import numpyasarray

        arrays = []
        for v, a in zip(step.inputs, given, strict=True):
            if v.storage.constant is not None:
                arrays.append(v.storage.constant.data.reshape(v.shape))
            else:
                arrays.append(numpyasarray(np.ascontiguousarray(a)))
        made = [empty(v.shape, v.dtype) for v in step.outputs]
        self.kernel(*arrays, *made)
        return [np.asarray(a) for a in made]


@lru_cache(maxsize=1)
def _blas() -> tuple[Any, Any] | None:
    """The functions that get and set the number of threads of NumPy's BLAS, if it is one that has them."""
    try:
        # the extension that NumPy links with its BLAS
        library = ctypes.CDLL(str(import_module("numpy._core._multiarray_umath").__file__))
    except (OSError, ImportError):
        return None
    for name in ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads64_",
                 "openblas_{}_num_threads"):  # fmt: skip
        try:
            return getattr(library, name.format("get")), getattr(library, name.format("set"))
        except AttributeError:
            continue
    return None


_computing: list[int] = []  # for each first tier that runs now, the number of threads before it
_lock = new_in_child(threading.Lock())


@contextmanager
def _one_thread() -> Iterator[None]:
    """NumPy's BLAS on one thread: the other cores compile, and its threads would spin for them."""
    found = _blas()
    if found is None:
        yield
        return
    count, use = found
    with _lock:
        _computing.append(int(count()))
        use(1)
    try:
        yield
    finally:
        with _lock:
            if len(_computing) == 1:
                use(_computing[0])
                _computing.clear()
            else:
                _computing.pop()


class _Compilation(Background[ExecutorFactoryModule]):
    """The compilation of a model in the background, and its result."""

    def __init__(
        self,
        workers: Workers,
        made: dict[str, Kernel],
        settings: Callable[[], AbstractContextManager[Any]],
        finish: Callable[[dict[str, Kernel]], ExecutorFactoryModule],
    ) -> None:
        super().__init__(workers, "tilewright-tiers")
        self.kernels, self.settings, self.finish = made, settings, finish

    def made(self) -> ExecutorFactoryModule:
        with self.settings():
            for job, result in self.workers.results():
                self.kernels[job.key] = kept(job, result)
            return self.finish(self.kernels)


class TieredModule(ExecutorFactoryModule):
    """A compiled model that answers before it is compiled."""

    def __init__(
        self,
        first: FirstTier,
        compilation: _Compilation,
        about: tuple[str, IRModule, ExecutorKind],
        target: Target,
    ) -> None:
        # What a compiled model has is missing until `wait` has it: see `__getattr__`.
        self._first: FirstTier | None = first
        self._compilation: _Compilation | None = compilation
        self._name, self.ir_mod, self.executor = about
        self.target = target
        self._turn = threading.Lock()

    @property
    def is_final(self) -> bool:
        """Whether the compiled model has taken over, or could not be compiled: `wait` then says why."""
        return self._compilation is None or self._compilation.over.is_set()

    def wait(self) -> TieredModule:
        """Return when all kernels are compiled, and answers come from them."""
        compilation = self._compilation
        if compilation is not None:
            made = compilation.wait()
            with self._turn:
                if self._compilation is not None:
                    self.__dict__.update(made.__dict__)
                    self._first = self._compilation = None
                    warned(compilation.kernels)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__dict__.get("_compilation") is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.wait(), name)

    def create(self, device: Device | None = None, *others: Device) -> Executor:
        first = self._first
        if self.is_final or first is None:
            return super().create(device, *others)
        return TieredExecutor(self, first, device or cpu(0))

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc:
        if name in (self._name, "default"):
            return PackedFunc(self.create, name)
        return super().get_function(name, query_imports)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        return name in (self._name, "default") or super().implements_function(name, query_imports)

    def __repr__(self) -> str:
        return super().__repr__() if self.is_final else f"Model({self._name}, being compiled)"


class TieredExecutor(Executor):
    """An executor that changes to the compiled model between two runs, with the same inputs and results."""

    module: TieredModule

    def __init__(self, module: TieredModule, first: FirstTier, device: Device) -> None:
        Turns.__init__(self)
        if device.device_type != 1:
            raise TVMError(f"the model is compiled for the CPU and cannot run on {device}")
        self.module, self.device = module, device
        inputs = tuple(TensorInfo(n, v.dtype, v.shape) for n, v in first.inputs)
        outputs = tuple(
            TensorInfo(n, v.dtype, v.shape) for n, v in zip(first.names, first.outputs, strict=True)
        )
        self.info = ModelInfo(module._name, "", inputs, outputs, (), 0, 0, ())
        self._first: FirstTier | None = first
        self._inputs = [zeros(t.shape, t.dtype) for t in inputs]
        self._outputs = [empty(t.shape, t.dtype) for t in outputs]
        self._index = {t.name: i for i, t in enumerate(inputs)}
        self._param_index = {}
        self._own_weights, self._missing = False, set()

    def finish(self) -> None:
        """Change to the compiled model, when it is there."""
        if self._first is not None:
            self.module.wait()
            self._change()
            self._take_over()

    def _take_over(self) -> None:
        inputs, outputs = self._inputs, self._outputs
        self._attach(self.module.wait())
        self._inputs, self._outputs = inputs, outputs
        self._first = self._made = None

    def run(self, **inputs: Any) -> None:
        if self._first is not None and self.module.is_final:
            self.finish()
        super().run(**inputs)
        if self._first is None and self._made is None:
            self._change()  # the run itself changed to the compiled model

    def _bound(self) -> Callable[[], Any]:
        return super()._bound() if self._first is None else self._answer

    def _answer(self) -> None:
        """Run the first tier."""
        first = self._first
        assert first is not None
        try:
            found = first.run([np.asarray(a) for a in self._inputs])
        except NotEvaluated:  # too much memory
            self._take_over()
            super()._bound()()
            return
        for place, value in zip(self._outputs, found, strict=True):
            np.asarray(place)[...] = value

    def compute(self, values: Sequence[Any]) -> list[NDArray]:
        """The results for arrays in order, as new arrays: of the first tier as long as there is no other."""
        if self._first is not None and self.module.is_final:
            self.finish()
        if self._first is not None:
            try:
                return [array(v) for v in self._first.run([np.asarray(from_dlpack(v)) for v in values])]
            except NotEvaluated:  # too much memory
                self.finish()
        return super().compute(values)

    # -- what only a compiled model has ----------------------------------------------------------------
    def _set(self, key: int | str, value: Any) -> None:
        if isinstance(key, str) and key not in self._index:
            self.finish()  # a parameter, in the layout of the kernels
        super()._set(key, value)

    def get_input(self, key: int | str, out: Any = None) -> NDArray:
        if isinstance(key, str) and key not in self._index:
            self.finish()
        return super().get_input(key, out)

    def load_params(self, params_bytes: Any) -> None:
        self.finish()
        super().load_params(params_bytes)

    def share_params(self, other: Executor, params_bytes: Any = None) -> None:
        self.finish()
        if isinstance(other, TieredExecutor):
            other.finish()
        super().share_params(other, params_bytes)

    def steps(self) -> Iterator[Any]:
        self.finish()
        return super().steps()

    def alone(self) -> AbstractContextManager[Callable[[], Any]]:  # type: ignore[override]
        self.finish()
        return super().alone()
