"""Versions of a dynamic model for input sizes that recur, compiled in the background.

    main(x: (n, 3, h, w)) is called with (1, 3, 480, 640) for the third time
       -> a worker process compiles it for these sizes as `relay.build` does; the disk cache has or gets its kernels
       -> a thread links the code; from then on, calls with these sizes run it

A model has at most `config.versions` of them. Sizes that recur more often take the place of those that recur least.
Equal weights of versions are in memory once, in a store that only grows. When it is full, a new one takes its place,
and the versions of the store before the last are given up: so weights of versions that were displaced are freed. Where
an earlier process made a version, this one starts with the first call. A model that cannot be compiled for known sizes
(it branches on values) stays as it is.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ... import config
from ...codegen.llvm.linked import LinkedModule, Unit
from ...codegen.llvm.objects import cache_of_this_build
from ...forks import new_in_child
from ...ir.deep import deep_programs
from ...ir.errors import BuildError
from ...ir.module import IRModule
from ...runtime.cache import digest
from ...runtime.device_module import DeviceModule
from ...runtime.devices import Device
from ...runtime.executor import ModelModule
from ...runtime.ndarray import NDArray
from ...runtime.versions import RECURS, Shapes, Version
from ...target import Target
from .. import op as R
from ..analysis import post_order
from ..expr import Constant, Function
from ..interface import is_tensors, shaped
from ..sizes import retyped, size_values
from ..transform.rewriting import is_call
from ..ty import TensorType, is_dynamic
from .assemble import assemble, machine_of
from .background import Background, running
from .memory_plan import alignment_of
from .program import plan_scratch
from .te_compiler import Workers, can_fork, compiled, from_cache, kept
from .weights import Packers, SharedWeights, StoreFull, WeightStore

_REMEMBERED = 256  # shapes whose calls are counted
_FAILURES = 2  # versions that could not be compiled, after which no other is tried
_LARGER = 2  # the memory for weights of versions, to that of the model's constants: layouts differ with sizes
_SLACK = 1 << 20  # bytes, for alignment


def versions_of(
    mod: IRModule, target: Target, settings: Callable[[], AbstractContextManager[Any]], keys: Sequence[str]
) -> Recurring | None:
    """What compiles versions of a module, whose kernels have `keys`; None if it has no dynamic inputs, or if its
    arguments are more than tensors that it reads."""
    main = mod["main"]
    kinds = [p.checked_type for p in main.params]
    tensors = all(isinstance(k, TensorType) for k in kinds) and is_tensors(main.checked_type.ret_type)
    if (
        not tensors
        or not any(map(is_dynamic, kinds))
        or any(is_call(e, R.nn.cache_update) for e in post_order(main))
    ):
        return None
    return Recurring(mod, target, settings, digest("model", *sorted(keys)))


@dataclass(frozen=True, slots=True)
class _Request:
    """A version to be compiled."""

    shapes: Shapes
    outputs: tuple[tuple[int, ...], ...]  # the shapes of the results of the dynamic model
    label: str
    device: Device | None  # of the results


class Recurring:
    """The versions of one model."""

    def __init__(
        self,
        mod: IRModule,
        target: Target,
        settings: Callable[[], AbstractContextManager[Any]],
        identity: str,
    ) -> None:
        self.mod, self.target, self.settings, self.identity = mod, target, settings, identity
        self.calls: dict[Shapes, int] = {}
        self.ready: dict[Shapes, Version] = {}
        self.failed: dict[Shapes, BaseException] = {}
        self._compiling: _Version | None = None
        self._store: WeightStore | None = None
        self._uploads: Any = None  # of the store to devices
        self._stores: dict[Shapes, WeightStore] = {}  # of the versions that are ready
        self._starting = new_in_child(threading.Lock())
        self._result = mod["main"].checked_type.ret_type

    # -- calls -------------------------------------------------------------------------------------
    def found(self, shapes: Shapes) -> Version | None:
        version = self.ready.get(shapes)
        if version is None or not config.versions.value:
            return None
        self.calls[shapes] = self.calls.get(shapes, 0) + 1
        return version

    def ran(self, shapes: Shapes, result: Any) -> None:
        limit = config.versions.value
        if not limit:
            return
        if shapes not in self.calls and self._was_made(shapes):
            self.calls[shapes] = RECURS - 1
        count = self.calls[shapes] = self.calls.pop(shapes, 0) + 1  # the most recent ones last
        if len(self.calls) > _REMEMBERED:
            self._forget()
        known = shapes in self.failed or shapes in self.ready  # it may have been made during this call
        if count >= RECURS and not known and len(self.failed) < _FAILURES:
            if self._starting.acquire(blocking=False):
                try:
                    self._maybe_start(shapes, result, limit)
                finally:
                    self._starting.release()

    def wait(self) -> None:
        compiling = self._compiling
        if compiling is not None and os.getpid() == compiling.process:
            compiling.over.wait()

    def _forget(self) -> None:
        """Halve all counts, so that old calls count less than recent ones, and drop shapes that are rare."""
        self.calls = {s: n // 2 for s, n in self.calls.items() if n > 1 or s in self.ready}
        for s in list(self.calls)[: max(0, len(self.calls) - _REMEMBERED)]:
            if s not in self.ready:
                del self.calls[s]

    def _least(self) -> Shapes:
        """The shapes with a version that recur least."""
        return min(self.ready, key=lambda s: self.calls.get(s, 0))

    # -- versions ----------------------------------------------------------------------------------
    def _maybe_start(self, shapes: Shapes, result: Any, limit: int) -> None:
        """Compile a version, unless one is being compiled or those there are recur as often."""
        if len(self.ready) >= limit and self.calls[shapes] <= 2 * self.calls.get(self._least(), 0):
            return
        if not can_fork() or running(_Version):  # one at a time in a process
            return
        if self._store is None or self._store.process != os.getpid():
            size = _LARGER * _constant_bytes(self.mod) + _SLACK
            self._store = WeightStore(size, alignment_of(self.target))
            self._uploads = None
        results = _leaves(result)
        outputs = tuple(r.shape for r in results)
        label = f"a version for {', '.join(map(str, shapes))}"
        request = _Request(shapes, outputs, label, results[0].device if results else None)
        self._compiling = _Version(self, request, self._store, limit)
        self._compiling.start()

    def full(self, store: WeightStore, shapes: Shapes, error: BaseException) -> None:
        """Note that a version found no room: the next one gets a new store, unless this one had nothing else in it."""
        if not store.used:
            self.failed[shapes] = error
            return
        if self._store is store:
            self._store = None
        self.ready = {s: v for s, v in self.ready.items() if self._stores[s] is store}

    def add(self, shapes: Shapes, module: ModelModule, store: WeightStore, limit: int) -> None:
        """Take a version into use; called in the thread that linked it."""
        ready = dict(self.ready)
        while len(ready) >= limit:
            del ready[min(ready, key=lambda s: self.calls.get(s, 0))]
        ready[shapes] = Version(module, lambda outs: shaped(self._result, outs))
        self._stores = {**{s: self._stores[s] for s in ready if s != shapes}, shapes: store}
        self.ready = ready  # one assignment: calls go on meanwhile

    def linked(self, code: _Code, store: WeightStore, device: Device | None) -> ModelModule:
        """The module of a version, ready: nothing of it is left to be compiled by the call that needs it."""
        units = [Unit.of(json.loads(head), data) for head, data in code.units]
        about: Mapping[str, Any] = json.loads(code.about)
        host = self.target if self.target.is_cpu else Target("llvm")
        linked = LinkedModule(units, machine_of(host), about, native=True, name="version")
        if self.target.is_cpu or device is None:
            made = ModelModule(linked, store.array())
            made.get_function(made.model.entry)
            return made
        from ...runtime.device_executor import DeviceModelModule, Uploads

        for each in code.kernels:
            linked.import_module(DeviceModule(*each))
        there = DeviceModelModule(linked, store.array())
        if self._uploads is None:
            self._uploads = Uploads(store.array())
        self._uploads.used = store.used
        there.uploads = self._uploads
        there.device_module.launcher(device.device_id)
        return there

    def _mark(self, shapes: Shapes) -> str:
        return digest("version", self.identity, repr(shapes))

    def _was_made(self, shapes: Shapes) -> bool:
        """Whether an earlier process has made this version: its kernels are in the cache."""
        cache = cache_of_this_build()
        return cache is not None and cache.get(self._mark(shapes)) is not None

    # -- in the worker -------------------------------------------------------------------------------
    def compiled(self, request: _Request, store: WeightStore) -> _Code:
        """The code of a version."""
        with self.settings(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were given for the dynamic model
            made = _code_of(with_shapes(self.mod, request.shapes), self.target, request.outputs, store)
        cache = cache_of_this_build()
        if cache is not None:
            cache.put(self._mark(request.shapes), b"made")
        return made


class _Version(Background[None]):
    """A version that is being compiled."""

    def __init__(self, versions: Recurring, request: _Request, store: WeightStore, limit: int) -> None:
        self.versions, self.request, self.store, self.limit = versions, request, store, limit
        _ = (
            versions.target if versions.target.is_cpu else Target("llvm")
        ).cpu  # detected once, before the fork
        workers = Workers([request], lambda r: versions.compiled(r, store), background=True)
        super().__init__(workers, "tilewright-version")

    def made(self) -> None:
        try:
            for _, code in self.workers.results():
                self.store.places, self.store.used = code.places, code.used
                module = self.versions.linked(code, self.store, self.request.device)
                self.versions.add(self.request.shapes, module, self.store, self.limit)
        except StoreFull as error:
            self.versions.full(self.store, self.request.shapes, error)
        except BaseException as error:
            # The dynamic model goes on: whatever it was must not disturb it.
            self.versions.failed[self.request.shapes] = error


@dataclass(frozen=True, slots=True)
class _Code:
    """A compiled version, as it comes from the worker; its weights are in the store."""

    about: str
    units: list[tuple[str, bytes]]
    kernels: list[tuple[Any, ...]]  # modules of kernels for a device
    places: dict[str, int]
    used: int


def _code_of(
    mod: IRModule, target: Target, outputs: tuple[tuple[int, ...], ...], store: WeightStore
) -> _Code:
    from ..build_module import to_compile

    with deep_programs(), target:
        program, jobs = to_compile(mod, target, None)
    if external := [j.label for j in jobs.values() if j.external]:
        raise BuildError(f"{external[0]} is code of another generator")
    if (found := tuple(v.shape for v in program.outputs)) != outputs:
        raise BuildError(f"its results have the shapes {found}, and those of the dynamic model {outputs}")
    made, missing = from_cache(list(jobs.values()))
    made.update((job.key, kept(job, compiled(job, target))) for job in missing)
    by_step = {i: made[job.key] for i, job in jobs.items()}
    plan_scratch(program, {i: [size for _, size in k.scratch] for i, k in by_step.items()})
    weights = SharedWeights(Packers({k.symbol: k for k in by_step.values()}), store)
    linked, _ = assemble(program, by_step, target, "version", weights)
    units = [(json.dumps(u.head()), u.code) for u in linked.units]
    kernels: list[tuple[Any, ...]] = [
        (m.type_key, m.source, m.kernels, m.options)
        for m in linked.imported_modules
        if isinstance(m, DeviceModule)
    ]
    return _Code(json.dumps(linked.description), units, kernels, store.places, store.used)


def with_shapes(mod: IRModule, shapes: Shapes) -> IRModule:
    """The module for arguments of these shapes."""
    main: Function = mod["main"]
    kinds = [TensorType(s, p.checked_type.dtype) for s, p in zip(shapes, main.params, strict=True)]
    made = mod.clone()
    made["main"] = retyped(main, kinds, size_values(main, shapes))
    return made


def _constant_bytes(mod: IRModule) -> int:
    held = {
        id(e.data): e.data.nbytes
        for f in mod.functions.values()
        if isinstance(f, Function)
        for e in post_order(f)
        if isinstance(e, Constant)
    }
    return sum(held.values())


def _leaves(result: Any) -> list[NDArray]:
    return [leaf for field in result for leaf in _leaves(field)] if hasattr(result, "tag") else [result]
