"""Measurement on devices that RPC servers have: candidates are built here, and run there as libraries.

    search ──▶ processes that build ──▶ library ──▶ session: one candidate ──▶ times
                                                    (a server of a tracker's key)

Each candidate gets a session of its own, so that searches share the servers of a key, and a crash or a hang ends that
session alone. Results are checked here. A server needs no compiler; all servers of a key count as one machine, as their
names say. `rpc` opens the sessions (see `tilewright.rpc`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen.llvm.engine import Machine
from ...codegen.llvm.linked import LinkedModule, Unit
from ...codegen.source.build import KernelModule
from ...ir.errors import BuildError
from ...runtime.device_module import DeviceModule
from ...runtime.devices import Device
from ...runtime.errors import TVMError
from ...runtime.ndarray import NDArray, array, empty
from ...target import Target
from ..errors import MachineError, TuneError
from ..workload import Task
from .artifact import Artifact, told
from .compare import compare
from .device_code import DeviceUnit
from .device_running import _before
from .machines import describe_machine, fingerprint
from .measurer import MeasureInput, MeasureOptions, Measurer, MeasureResult, Status, references
from .running import Timing, Values, _answer, mapped

Request = Callable[[float], Any]  # a session that ends after this many seconds

_SLOW = 10e6  # bytes that arrive in a second, at least
_PATIENCE = 10.0  # seconds to load a library and to answer


class Remote(Measurer):
    """Measures on the servers of a key; `request` opens a session with one of them."""

    def __init__(self, request: Request, key: str, options: MeasureOptions | None = None) -> None:
        super().__init__(options)
        self._request, self._key = request, key
        self.machine = {"rpc": key, "versions": {"tilewright": describe_machine()["versions"]["tilewright"]}}

    def at_once(self, task: Task) -> int:
        """As many as are built at once: they run one after the other."""
        return len(self._builders)

    def expect(self, task: Task) -> None:
        """Start the processes that build."""
        if not (task.target.is_cpu or task.target.is_gpu):
            raise TuneError(
                f"tuning {task.name}: programs for `{task.target}` are not libraries, which RPC servers run; measure "
                "in this process"
            )
        for worker in self._builders:
            worker.start()

    def _references(self, task: Task) -> list[MeasureInput]:
        """The reference is computed here, whatever machine the candidates are for."""
        return references(replace(task, target=Target("llvm"))) if task.target.is_cpu else references(task)

    def _result(self, inp: MeasureInput, made: dict[str, Any], answer: dict[str, Any]) -> MeasureResult:
        return replace(super()._result(inp, made, answer), machine=fingerprint(self.machine))

    # -- running ---------------------------------------------------------------------------------
    def _run(self, task: Task, request: str, value: Any, limit: float | None = None) -> dict[str, Any]:
        if request == "reference":
            return super()._run(task, request, value, limit)
        most = self.options.run_limit + _PATIENCE + 2 * task.nbytes / _SLOW
        with self._session(most) as session:
            begin = time.monotonic()
            try:
                there = _There(session, task, self._data[task.workload].values, self._folder)
                return getattr(there, request)(value)  # type: ignore[no-any-return]
            except (TVMError, OSError) as error:
                late = time.monotonic() - begin >= most
                status = Status.TIMEOUT if late else Status.RUN_ERROR if _answers(session) else Status.CRASH
                return _answer(status, told(error))

    @contextmanager
    def _session(self, most: float) -> Iterator[Any]:
        try:
            session = self._request(most)
        except (TVMError, OSError) as error:
            raise MachineError(f"no server of the key {self._key!r} measures: {error}") from None
        with closing(session):
            yield session


def _answers(session: Any) -> bool:
    try:
        session.listdir()
    except (TVMError, OSError):
        return False
    return True


class _There:
    """The data of a task, and libraries of candidates, on the other side of a session."""

    def __init__(self, session: Any, task: Task, values: Values, folder: Path) -> None:
        self.session, self.task, self.values, self.folder = session, task, values, folder
        self.device: Device = session.device(task.target.kind.name if task.target.is_gpu else "cpu")
        self.inputs: dict[str, Any] = {
            p.name: mapped(p.file, p.dtype, p.shape) if p.scalar is None else p.scalar for p in values.params
        }
        self.held = {name: self._sent(v) for name, v in self.inputs.items()}
        self.loaded = 0

    def _sent(self, value: Any) -> Any:
        return array(value, self.device) if isinstance(value, np.ndarray) else value

    # -- requests --------------------------------------------------------------------------------
    def run(self, value: tuple[str, Artifact, Timing, tuple[str, Artifact] | None]) -> dict[str, Any]:
        """Check and time a candidate, in turns with the incumbent."""
        _, artifact, timing, incumbent = value
        begin = time.perf_counter()
        mine = self._load(artifact)
        if wrong := self._check(mine):
            return _answer(Status.WRONG, wrong)
        seconds, against = list(mine.samples(timing, timing.repeats)), list[float]()
        if incumbent is not None:
            theirs = self._load(incumbent[1])
            limit = timing.hopeless * min(theirs.samples(timing, 1))
            if min(seconds) <= limit:
                turns = [
                    (mine.samples(timing, 1)[0], theirs.samples(timing, 1)[0]) for _ in range(timing.rounds)
                ]
                seconds += [a for a, _ in turns]
                against = [b for _, b in turns]
        answer = _answer(Status.OK, seconds=seconds, against=against)
        return {**answer, "run_seconds": time.perf_counter() - begin}

    def duel(self, value: tuple[tuple[str, Artifact], tuple[str, Artifact], Timing, int]) -> dict[str, Any]:
        """Check two candidates, and measure them in turns."""
        first, second, timing, rounds = value
        sides = [self._load(artifact) for _, artifact in (first, second)]
        for (token, _), side in zip((first, second), sides, strict=True):
            if wrong := self._check(side):
                return _answer(Status.WRONG, f"{token}: {wrong}")
        pairs = [[side.samples(timing, 1)[0] for side in sides] for _ in range(rounds)]
        return _answer(Status.OK, seconds=[a for a, _ in pairs], against=[b for _, b in pairs])

    # -- candidates ------------------------------------------------------------------------------
    def _load(self, artifact: Artifact) -> _Candidate:
        if not isinstance(artifact.main, (Unit, DeviceUnit)):
            raise TuneError("only libraries run on a server")
        own: dict[str, NDArray] = {}
        if artifact.before is not None:
            for a in artifact.before_arguments:
                if a.name not in self.held:
                    own[a.name] = empty(a.shape, a.dtype, self.device)
            prepare, name = self._module(artifact.before, ())
            prepare[name](*[own.get(a.name, self.held.get(a.name)) for a in artifact.before_arguments])
        module, name = self._module(artifact.main, artifact.parts)
        return _Candidate(
            module, name, self.device, [own.get(n, self.held.get(n)) for n in artifact.arguments]
        )

    def _module(self, unit: Unit | DeviceUnit, parts: Sequence[Unit]) -> tuple[Any, str]:
        """The loaded library of object files or kernels, and the name of its function."""
        self.loaded += 1
        made = _linked(unit, parts, self.task.target)
        path = _exported(made, self.folder / f"candidate{self.loaded}")
        try:
            return self.session.load_module(self.session.upload(path)), made.function_names[0]
        finally:
            path.unlink(missing_ok=True)

    def _check(self, candidate: _Candidate) -> str:
        """Run once, and compare with the reference here. Returns what is wrong; empty if nothing is."""
        outs = [p for p in self.values.params if p.reference]
        for p in outs:
            self.held[p.name].copyfrom(_before(p, self.inputs[p.name]))
        candidate.module[candidate.name](*candidate.arguments)
        for p in outs:
            want = mapped(p.reference, p.dtype, p.shape)
            if wrong := compare(self.held[p.name].numpy(), want, self.values.tolerance):
                return f"{p.name}: {wrong}"
        return ""


class _Candidate:
    """A loaded library with its arguments."""

    def __init__(self, module: Any, name: str, device: Device, arguments: Sequence[Any]) -> None:
        self.module, self.name, self.device, self.arguments = module, name, device, arguments

    def samples(self, timing: Timing, count: int) -> Sequence[float]:
        """Some samples, each the mean of as many runs as take `sample_seconds`."""
        measure = self.module.time_evaluator(
            self.name,
            self.device,
            number=1,
            repeat=count,
            min_repeat_ms=0 if timing.flush_bytes else math.ceil(timing.sample_seconds * 1e3),
            cooldown_interval_ms=math.ceil(timing.cool_seconds * 1e3),
            cache_flush_bytes=timing.flush_bytes,
        )
        return tuple(float(s) for s in measure(*self.arguments).results)


def _linked(unit: Unit | DeviceUnit, parts: Sequence[Unit], target: Target) -> Any:
    if isinstance(unit, DeviceUnit):
        return KernelModule(
            unit.description, DeviceModule(unit.kind, unit.source, unit.kernels, dict(unit.options))
        )
    settings = target.llvm
    (info,) = unit.functions
    description = {"format": 1, "functions": [info], "entry": info["name"]}
    machine = Machine(settings.triple, settings.cpu, settings.features)
    return LinkedModule([unit, *parts], machine, description, native=False, name=info["name"])


def _exported(module: Any, place: Path) -> Path:
    """A shared library; without a linker for the target, object files, which the other side links."""
    with suppress(TVMError, BuildError):
        return Path(module.export_library(str(place.with_suffix(".so"))))
    return Path(module.export_library(str(place.with_suffix(".tar"))))
