"""Measurement of candidates: built in parallel, run one at a time, each in a process that may die.

    with Measurer() as measurer:
        results = measurer.measure([MeasureInput.of(task, decisions), …], incumbent)

Whatever a candidate does (a crash, a hang, a wrong result) becomes the status of its result; the pool goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import math
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...cpus import affinity, usable_cpus
from ...ir.expr import BufferLoad, Call
from ...ir.function import PrimFunc
from ...ir.functor import pre_order
from ...ir.module import IRModule
from ...ir.serialize import save_json
from ...ir.stmt import Block, BufferStore
from ...runtime.devices import Device
from ...target import Target
from ...target.kinds import module_of_kind
from ..errors import MachineError, TuneError
from ..program.facts import number as size_of
from ..workload import Task, stable_key
from .artifact import Artifact
from .building import DEFAULT_BUILD, TASKS
from .checking import make_inputs, tolerance_of
from .pool import Died, Overdue, Worker, first_ready
from .reproduce import write_reproducer
from .running import Timing, Value, Values, mapped


class Status(StrEnum):
    """The outcome of building and running a candidate."""

    OK = "ok"
    REFUSED = "refused"  # a primitive refused a step
    BUILD_ERROR = "build error"
    BUILD_TIMEOUT = "build timeout"
    BUILD_CRASH = "build crash"
    BUILD_MEMORY = "build memory"
    RUN_ERROR = "run error"  # the compiled function reported an error
    CRASH = "crash"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    WRONG = "wrong"


@dataclass(frozen=True)
class MeasureInput:
    """A candidate of a task: `kind` is "decisions" (of the sketches), "trace" (steps, as JSON), "program" (a scheduled
    IRModule) or "plain" (the program as it is written)."""

    task: Task
    kind: str
    what: Any

    @staticmethod
    def of(task: Task, what: Any = None) -> MeasureInput:
        """A candidate from its decisions, trace or program; None stands for the zero-trial schedule."""
        if isinstance(what, IRModule):
            return MeasureInput(task, "program", what)
        if isinstance(what, dict) and "steps" in what:
            return MeasureInput(task, "trace", what)
        return MeasureInput(task, "decisions", what)

    @property
    def token(self) -> str:
        """A name that is the same for the same candidate."""
        what = stable_key(self.what) if self.kind == "program" else json.dumps(self.what, sort_keys=True)
        name = f"{self.task.workload} {self.task.target} {self.kind} {what}"
        return hashlib.sha256(name.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class MeasureResult:
    """The measurement of a candidate.

    `seconds` are all samples, each the mean of some runs. `ratio` is its time divided by that of the incumbent,
    measured in turns, if they were about equally fast. `trace` is the trace of its schedule. `machine` is the
    fingerprint of the machine that measured, if it is not this one.
    """

    status: Status
    seconds: tuple[float, ...] = ()
    error: str = ""
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    ratio: float | None = None
    trace: Any = None
    reproducer: str = ""
    machine: str = ""

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def time(self) -> float:
        """The time that counts: the median of the faster half of the samples; infinite if the candidate failed."""
        if not self.ok or not self.seconds:
            return math.inf
        ranked = sorted(self.seconds)
        return statistics.median(ranked[: (len(ranked) + 1) // 2])

    def score(self, against: float | None) -> float:
        """The time by which the candidate is ranked: the time of the incumbent, `against`, times their ratio if they
        were measured in turns."""
        if self.ratio is None or against is None:
            return self.time
        # not below the fastest sample, or lucky ratios would accumulate from one incumbent to the next
        return max(self.ratio * against, min(self.seconds))

    @property
    def noise(self) -> float:
        """The spread of the samples: their interquartile range, as a fraction of the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, high = np.percentile(self.seconds, (25, 75))
        return float((high - low) / statistics.median(self.seconds))


@dataclass(frozen=True)
class Duel:
    """Two candidates measured in turns: `ratio` below 1 says that the first is faster."""

    first: MeasureResult
    second: MeasureResult
    ratio: float


@dataclass(frozen=True)
class MeasureOptions:
    """The options of a measurement. Limits are seconds of work; `memory` is in MiB, beyond the memory of the process.

    `build` names the function (module:function) that compiles a module for a target. `cores` are those that
    candidates run on (by default as many as the target says). `reproducers` is the folder for scripts that reproduce
    wrong results.
    """

    builders: int | None = None
    cores: tuple[int, ...] | None = None
    build_limit: float = 30.0
    run_limit: float = 10.0
    memory: int = 4096
    timing: Timing = field(default_factory=Timing)
    seed: int = 0
    build: str = DEFAULT_BUILD
    reproducers: str | None = None


_REFERENCE_SECONDS = 300.0  # the time limit of the reference: plain loops may take long
_CRASHES = 3
_LITTLE = 1 << 20  # bytes that the code of a candidate and its messages need
_LONG = 1 << 24  # points of a block above which plain loops take too long
_PATIENCE = 60.0  # seconds to wait for another tuner on this machine
_HOPELESS = 100.0  # a run may take at most this many times as long as the fastest

Each = Callable[[int, MeasureInput, MeasureResult], None]


class Measures(Protocol):
    """The interface of measurers: the local pool, or a fleet."""

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Each | None = None
    ) -> list[MeasureResult]: ...

    def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Duel: ...

    def close(self) -> None: ...


@dataclass
class _Data:
    """The files of a task, and the time of its fastest run."""

    values: Values
    fastest: float = math.inf  # seconds of the fastest run


class Measurer:
    """The local pool: some processes that build, and one that runs."""

    def __init__(self, options: MeasureOptions | None = None) -> None:
        self.options = options or MeasureOptions()
        count = self.options.builders or len(self.options.cores or ()) or usable_cpus()
        memory = [str(self.options.memory)]
        self._builders = [Worker("build", memory) for _ in range(max(1, count))]
        self._runner: Worker | None = None
        self._device: tuple[str, Worker] | None = (
            None  # the kind of GPU or chip, and the process that runs on it
        )
        self._cores: tuple[int, ...] = ()
        self._room = 0  # the memory limit of the process that runs, in MiB
        self._folder = _folder()
        self._data: dict[str, _Data] = {}
        self._artifacts: dict[str, Artifact] = {}  # of the last incumbents
        self._lock_file: Any = None
        self._crashes = 0  # in a row

    # -- life ------------------------------------------------------------------------------------
    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes and remove the files."""
        others = (*([self._runner] if self._runner else []), *([self._device[1]] if self._device else []))
        for worker in (*self._builders, *others):
            worker.kill()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    # -- the interface -----------------------------------------------------------------------------
    def at_once(self, task: Task) -> int:
        """How many candidates to measure at once: compilers for GPUs take long, and run in parallel."""
        return 2 * len(self._builders) if task.target.is_gpu else 1

    def expect(self, task: Task) -> None:
        """Start all processes at once, since each takes a while until it is ready."""
        why = not_here(task.target)
        if why is not None:
            raise TuneError(
                f"tuning {task.name}: code for `{task.target}` does not run in a process of this machine{why}, so it "
                "cannot be measured here"
            )
        for worker in (*self._builders, self._runner_for(task)):
            worker.start()

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Each | None = None
    ) -> list[MeasureResult]:
        """Build all candidates, then run them one after the other with nothing else running. `each` is called with
        every result as soon as it is known."""
        results: list[MeasureResult | None] = [None] * len(inputs)

        def done(i: int, result: MeasureResult) -> None:
            results[i] = result
            if each is not None:
                each(i, inputs[i], result)

        for task in {inp.task.workload: inp.task for inp in inputs}.values():
            self._prepare(task)
        built = self._build(inputs, done)
        if incumbent is not None and is_exact(incumbent.task.target):
            incumbent = None  # nothing is to be gained by turns
        champion = None if incumbent is None or not built else self._artifact(incumbent)
        for i in sorted(built):
            inp, made = inputs[i], built[i]
            fits = (
                champion is not None
                and incumbent is not None
                and incumbent.task.workload == inp.task.workload
            )
            against = (incumbent.token, champion) if fits and incumbent is not None else None
            if self._crashes >= _CRASHES:
                against = None  # perhaps the incumbent is what crashes
            value = (inp.token, made["artifact"], self.options.timing, against)
            answer = self._run(inp.task, "run", value)
            broke = answer["status"] in (Status.CRASH, Status.TIMEOUT)
            self._crashes = self._crashes + 1 if broke else 0
            result = self._result(inp, made, answer)
            if result.ok:
                self._remember(inp.token, made["artifact"])
            done(i, result)
        return [r for r in results if r is not None]

    def build(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """Build candidates without running them. Returns the outcome of each."""
        results = [MeasureResult(Status.OK) for _ in inputs]
        built = self._build(inputs, lambda i, result: results.__setitem__(i, result))
        for i, made in built.items():
            results[i] = MeasureResult(Status.OK, build_seconds=made["build_seconds"])
        return results

    def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Duel:
        """Measure two candidates of a task against each other, in turns."""
        self._prepare(first.task)
        sides: list[Artifact] = []
        for inp in (first, second):
            failures: list[MeasureResult] = []
            made = self._artifact(inp, failures)
            if made is None:
                other = MeasureResult(Status.OK)
                pair = (failures[0], other) if inp is first else (other, failures[0])
                return Duel(*pair, ratio=math.nan)
            sides.append(made)
        value = ((first.token, sides[0]), (second.token, sides[1]), self.options.timing, rounds)
        answer = self._run(first.task, "duel", value)
        one = self._result(first, {}, answer)
        two = self._result(second, {}, {**answer, "seconds": answer.get("against", [])})
        return Duel(one, two, float(answer["ratio"]) if one.ok else math.nan)

    # -- building --------------------------------------------------------------------------------
    def _build(
        self, inputs: Sequence[MeasureInput], failed: Callable[[int, MeasureResult], None]
    ) -> dict[int, dict[str, Any]]:
        """The answers of the builders for the candidates that could be built; `failed` is called with the others."""
        todo = list(range(len(inputs)))[::-1]
        busy: dict[Worker, int] = {}
        built: dict[int, dict[str, Any]] = {}
        idle = self._builders[: max(1, min(len(self._builders), len(inputs)))]
        for worker in idle:
            worker.start()  # all at once: starting takes a while
        while todo or busy:
            while todo and idle:
                worker, i = idle.pop(), todo.pop()
                try:
                    self._give(worker, inputs[i])
                except (Died, Overdue) as why:
                    failed(i, MeasureResult(Status.BUILD_CRASH, error=str(why)))
                    idle.append(worker)
                    continue
                busy[worker] = i
            for worker in first_ready(busy, 0.25):
                i = busy.pop(worker)
                answer = self._answer(worker, Status.BUILD_CRASH, Status.BUILD_TIMEOUT)
                idle.append(worker)
                if answer["status"] == "ok":
                    built[i] = answer
                else:
                    failed(i, self._result(inputs[i], answer, answer))
        return built

    def _give(self, worker: Worker, inp: MeasureInput) -> None:
        limit, task = self.options.build_limit, inp.task
        worker.start()
        worker.greet()
        key = f"{task.workload} {task.target}"
        if len(worker.known) > TASKS:  # it has forgotten the first of them
            worker.known = {"ready"}
        if key not in worker.known:
            worker.ask(("task", (key, task, self.options.build)), limit)
            worker.known.add(key)
        what = save_json(inp.what) if inp.kind == "program" else inp.what
        worker.send(("build", (key, inp.kind, what)), limit)

    def _answer(self, worker: Worker, crash: Status, late: Status) -> dict[str, Any]:
        """The answer of a process, or how it failed."""
        try:
            answer = worker.receive()
        except Died as why:
            return {"status": crash, "error": str(why)}
        except Overdue as why:
            return {"status": late, "error": str(why)}
        if not isinstance(answer, dict) or "status" not in answer:
            worker.kill()
            return {"status": crash, "error": "the process answered nonsense"}
        if answer.get("spoiled"):  # it wrote out of bounds, perhaps elsewhere too, or lost its device
            worker.kill()
        return answer

    def _artifact(self, inp: MeasureInput, failures: list[MeasureResult] | None = None) -> Artifact | None:
        """The built candidate, built again if it is no longer kept."""
        if inp.token not in self._artifacts:
            gone = failures if failures is not None else []
            built = self._build([inp], lambda i, result: gone.append(result))
            if built:
                self._remember(inp.token, built[0]["artifact"])
        return self._artifacts.get(inp.token)

    def _remember(self, token: str, artifact: Artifact) -> None:
        self._artifacts.pop(token, None)
        self._artifacts[token] = artifact
        while len(self._artifacts) > 64:
            del self._artifacts[next(iter(self._artifacts))]

    # -- running ---------------------------------------------------------------------------------
    def _run(self, task: Task, request: str, value: Any, limit: float | None = None) -> dict[str, Any]:
        """Send one request to the process that runs, with no other run at the same time on this machine."""
        worker = self._runner_for(task)
        data = self._data[task.workload]
        # drivers may compile, or start anew, and simulators take longer than the chip would
        least = 1.0 if task.target.is_cpu else self.options.run_limit
        limit = limit or min(self.options.run_limit, max(least, _HOPELESS * data.fastest))
        with self._alone():
            try:
                worker.start()
                worker.greet()
                if task.workload not in worker.known:
                    worker.ask(("task", (task.workload, data.values)), self.options.run_limit)
                    worker.known = {"ready", task.workload}
                worker.send((request, value), limit)
            except (Died, Overdue) as why:
                return {"status": Status.CRASH, "error": str(why)}
            answer = self._answer(worker, Status.CRASH, Status.TIMEOUT)
        if answer["status"] == "ok" and request == "run":
            data.fastest = min(data.fastest, *answer["seconds"])
        return answer

    def _runner_for(self, task: Task) -> Worker:
        """The process that runs, with as many cores as the target of the task and enough memory for its data."""
        there = affinity()
        if not task.target.is_cpu:
            return self._device_runner(task.target.kind.name, self.options.cores or tuple(there))
        cores = self.options.cores or tuple(there[-task.target.num_cores :])
        room = self.options.memory + (4 * task.nbytes >> 20)
        if self._runner is None or cores != self._cores or room > self._room:
            if self._runner is not None:
                self._runner.kill()
            settings = [str(room), ",".join(map(str, cores))]
            environment = {"TILEWRIGHT_NUM_THREADS": str(len(cores))}
            self._runner, self._cores, self._room = Worker("run", settings, environment), cores, room
        return self._runner

    def _device_runner(self, kind: str, cores: tuple[int, ...]) -> Worker:
        """The process that runs on a GPU or a chip, without a limit of memory: drivers reserve a large address
        space."""
        if self._device is None or self._device[0] != kind:
            if self._device is not None:
                self._device[1].kill()
            settings = ["0", ",".join(map(str, cores)), kind, module_of_kind(kind)]
            self._device = (kind, Worker("run", settings))
        return self._device[1]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that keeps two candidates from running at once on this machine, even those of two tuners."""
        try:
            import fcntl
        except ImportError:
            yield
            return
        if self._lock_file is None:
            path = Path(tempfile.gettempdir()) / f"tilewright-measure-{os.getuid()}.lock"
            with _room_for(None, path):
                # All users share the folder: a link that another user put there is not followed.
                opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                self._lock_file = os.fdopen(opened, "r+b", 0)
        give_up = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._lock_file.truncate(0)
                self._lock_file.seek(0)
                self._lock_file.write(str(os.getpid()).encode())  # who holds it
                break
            except OSError:
                self._lock_file.seek(0)
                if time.monotonic() > give_up or _stopped(self._lock_file.read(20)):
                    break
                time.sleep(0.005)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    # -- data ------------------------------------------------------------------------------------
    def _prepare(self, task: Task) -> None:
        """Make the inputs and the reference of a task, once."""
        if task.workload in self._data:
            return
        self.expect(task)
        inputs = make_inputs(task, self.options.seed)
        with _room_for(task, self._folder):
            params = self._written(task, inputs)
        names = [p.name for p in params]
        if len(set(names)) != len(names):
            raise TuneError(f"tuning {task.name}: two parameters have the same name, of {', '.join(names)}")
        self._data[task.workload] = _Data(Values(tuple(params), tolerance_of(task.func, task.target)))
        try:
            self._reference(task, inputs)
        except BaseException:
            del self._data[task.workload]
            raise

    def _written(self, task: Task, inputs: list[Any]) -> list[Value]:
        """The parameters of a task, with their values in files."""
        folder = self._folder / task.workload
        folder.mkdir(exist_ok=True)
        written, read = _accesses(task)
        params: list[Value] = []
        for number, (v, array) in enumerate(zip(task.func.params, inputs, strict=True)):
            buffer = task.func.buffer_map.get(v)
            if buffer is None:
                params.append(Value(v.name, str(v.dtype), (), scalar=array))
                continue
            file, out = folder / f"{number}.in", buffer.data in written
            array.tofile(file)
            reference = str(folder / f"{number}.out") if out else ""
            reads = buffer.data in read or not out
            params.append(
                Value(buffer.name, str(buffer.dtype), array.shape, str(file), None, reference, reads)
            )
        return params

    def _reference(self, task: Task, inputs: list[Any]) -> None:
        """Compute the reference: by the task's own function, or by running the program as it is written."""
        values = self._data[task.workload].values
        outs = [p for p in values.params if p.reference]
        if not outs:
            raise TuneError(
                f"tuning {task.name}: it writes none of its parameters, so nothing can be checked"
            )
        if task.reference is not None:
            given = {p.name: a for p, a in zip(values.params, inputs, strict=True)}
            results = task.reference(**given)
            results = results if isinstance(results, (tuple, list)) else [results]
            for p, result in zip(outs, results, strict=True):
                kind = mapped(p.file, p.dtype, p.shape).dtype
                right = np.ascontiguousarray(np.broadcast_to(np.asarray(result), p.shape), kind)
                with _room_for(task, self._folder):
                    right.tofile(p.reference)
            return
        failures: list[MeasureResult] = []
        built: dict[int, dict[str, Any]] = {}
        for plain in self._references(task):
            built = self._build([plain], lambda i, result: failures.append(result))
            if built:
                break
        else:
            self._refuse_full(task, failures[0].error)
            raise TuneError(
                f"tuning {task.name}: the program as it is written cannot be built ({failures[0].status}): "
                f"{failures[0].error}"
            )
        answer = self._run(plain.task, "reference", built[0]["artifact"], _REFERENCE_SECONDS)
        if answer["status"] != "ok":
            self._refuse_full(task, answer["error"])
            raise TuneError(
                f"tuning {task.name}: the program as it is written does not run ({answer['status']}): "
                f"{answer['error']}; give reference=, or inputs= that it accepts"
            )

    def _references(self, task: Task) -> list[MeasureInput]:
        """The candidates that compute the reference."""
        return references(task)

    def _refuse_full(self, task: Task, error: str) -> None:
        """Raise MachineError if the disk is full, which is then the cause of a failure."""
        left = shutil.disk_usage(self._folder).free
        if left < task.nbytes + _LITTLE:
            raise MachineError(
                f"tuning {task.name}: the temporary folder {self._folder} is full ({left >> 10} KiB are left of the "
                f"{(task.nbytes + _LITTLE) >> 10} KiB that the data and the code need): {error}; make room there, or "
                "set TMPDIR to another folder"
            )

    def _result(self, inp: MeasureInput, made: dict[str, Any], answer: dict[str, Any]) -> MeasureResult:
        status = Status(answer["status"])
        trace = made.get("trace") if inp.kind == "decisions" else inp.what if inp.kind == "trace" else None
        result = MeasureResult(
            status,
            tuple(answer.get("seconds", ())) if status is Status.OK else (),
            answer.get("error", ""),
            made.get("build_seconds", 0.0),
            answer.get("run_seconds", 0.0),
            answer.get("ratio"),
            trace,
        )
        return with_reproducer(inp, result, self.options)


def with_reproducer(inp: MeasureInput, result: MeasureResult, options: MeasureOptions) -> MeasureResult:
    """A result with the script that reproduces it, if it is wrong and scripts are wanted. If the script cannot be
    written, the error of the result says so."""
    if result.status is not Status.WRONG or options.reproducers is None:
        return result
    folder = Path(options.reproducers)
    try:
        path = write_reproducer(
            folder, inp.task, inp.token, result.trace, inp.what, options.seed, result.error
        )
    except OSError as error:
        return replace(result, error=f"{result.error}; the script that shows it cannot be written: {error}")
    return replace(result, reproducer=path)


@contextlib.contextmanager
def _room_for(task: Task | None, place: Path) -> Iterator[None]:
    """Turn errors of files, for a task or for all, into a MachineError that names the place and the remedy."""
    try:
        yield
    except OSError as error:
        what = "" if task is None else f" {task.name}: its data ({task.nbytes >> 10} KiB)"
        raise MachineError(
            f"tuning{what or ': a file'} cannot be written to {place}: {error}; make room there, or set TMPDIR to "
            "another folder"
        ) from None


def not_here(target: Target) -> str | None:
    """Why code for a target cannot run in a process of this machine; None if it can, empty if the reason is plain."""
    if target.is_cpu:
        return None if target.has("measurable") and target.llvm.is_host else ""
    if target.is_accelerator:
        return _no_chip(target)
    device = Device(target.kind.device_type, 0)
    if target.has("measurable") and device.exist:
        return None
    return f": there is no device {target.kind.name}(0)"


def _no_chip(target: Target) -> str | None:
    """Why programs for a chip cannot be run by a process of this machine; None if they can."""
    kind = target.kind.name
    if not target.has("measurable"):
        return (
            f": the backend of {kind} does not say that its programs can be run from here (measurable=True)"
        )
    module = module_of_kind(kind)
    if module == "__main__" or (module and importlib.util.find_spec(module) is None):
        return (
            f": the kind {kind} was registered by {module}, which the processes that measure cannot import; register "
            "it in a module of its own, and import that"
        )
    return None


def is_exact(target: Target) -> bool:
    """Whether one run tells the time: a simulator counts the cycles of a chip, which are always the same."""
    return target.is_accelerator


def references(task: Task) -> list[MeasureInput]:
    """The candidates that compute the reference: the program as it is written. For a GPU or a chip it runs on the host,
    and long programs by the zero-trial schedule of the host, which uses no rule of theirs."""
    if task.target.is_cpu:
        return [MeasureInput(task, "plain", None)]
    host = replace(task, target=Target("llvm"))
    points = [math.prod(size_of(iv.dom.extent) for iv in b.iter_vars) for b in blocks_of(task.func)]
    plain = MeasureInput(host, "plain", None)
    return [MeasureInput(host, "decisions", None), plain] if max(points, default=0) > _LONG else [plain]


def blocks_of(func: PrimFunc) -> list[Block]:
    return [m for m in pre_order(func.body) if isinstance(m, Block) and m.iter_vars]


def _folder() -> Path:
    """Make a folder for inputs and references, and remove those of processes that were killed."""
    here = _processes()
    try:
        place = Path(tempfile.gettempdir())
        for left in place.glob(f"tilewright-measure-*-{here}-*"):
            pid = left.name.split("-")[2]
            if pid.isdigit() and Path("/proc/self").exists() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"tilewright-measure-{os.getpid()}-{here}-"))
    except OSError as error:
        raise MachineError(f"tuning: no folder for data can be made: {error}; set TMPDIR to one") from None


def _processes() -> str:
    """A name of the process namespace: machines and containers may share a folder, each with processes of its own."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]


def _stopped(pid: bytes) -> bool:
    """Whether a process was stopped (by a debugger, by Ctrl-Z): it runs nothing, and nobody should wait for it."""
    try:
        stat = Path(f"/proc/{int(pid)}/stat").read_text()
    except (OSError, ValueError):
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _accesses(task: Task) -> tuple[set[Any], set[Any]]:
    """The memory that a function writes, and the memory that it reads."""
    written: set[Any] = set()
    read: set[Any] = set()
    opaque = False
    for m in pre_order(task.func.body):
        if isinstance(m, BufferStore):
            written.add(m.buffer.data)
        elif isinstance(m, BufferLoad):
            read.add(m.buffer.data)
        elif isinstance(m, Block):
            written.update(r.buffer.data for r in m.writes)
            written.update(r.source.buffer.data for r in m.match_buffers)
        elif isinstance(m, Call) and getattr(m.op, "short_name", "") in ("tvm_access_ptr", "address_of"):
            opaque = True
    everything = {b.data for _, b in task.buffers}
    return (everything, everything) if opaque else (written, read)
