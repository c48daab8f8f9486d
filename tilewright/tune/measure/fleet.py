"""Measurement on many machines: the interface of the local pool over a Dask cluster.

    TLS="--tls-ca-file ca.pem --tls-cert cert.pem --tls-key key.pem"
    dask scheduler --protocol tls $TLS                                                on one machine
    dask worker tls://host:8786 $TLS --nthreads 1 --resources "device-cpu=1"          on each that measures
    dask worker tls://host:8786 $TLS --nthreads 1 --resources "device-cuda=1"         on each with a GPU to measure on

    with Fleet("tls://host:8786", device="cpu") as fleet:
        tune_task(…, measure=fleet)

Dask uses pickle: whoever can reach a scheduler, and every worker, can run code on all machines, including that of the
search. Without TLS, everything must stay on loopback (`dask scheduler --host 127.0.0.1`).

        search ──▶ queue ──▶ worker: a Measurer of its own (processes that build, one that runs) ──▶ results
                     ▲                      │ is lost
                     └────── its candidates ┘

A worker has one job at a time. If a worker is lost, another one does its job, and each result is reported once. Times
of different machines are never compared: a fleet consists of workers with one fingerprint, and warns of those that it
leaves out. A device whose name begins with the kind of a GPU ("cuda", "opencl", "cuda-h200") is the first of that kind
that a worker sees, and its fingerprint is that of the GPU.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import platform
import threading
import time
import uuid
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

from ...backends import kinds_with
from ...cpus import usable_cpus
from ...ir.serialize import load_json, save_json
from ...runtime.devices import Device
from ...target import Target
from ...target.machine import is_host_cpu
from ..errors import MachineError, TuneError
from ..workload import Task
from .checking import make_inputs
from .machines import describe_machine, differences, fingerprint, record_target
from .measurer import (
    Duel,
    Each,
    MeasureInput,
    MeasureOptions,
    Measurer,
    MeasureResult,
    Status,
    is_exact,
    with_reproducer,
)

_CHANCES = 3  # a job is given up when this many workers were lost over it
_LATE = 900.0  # seconds without an answer after which a worker counts as lost
_FETCH = 2.0  # seconds to wait for a result at a time
_TICK = 0.25
_SESSIONS = 2  # the most pools that a worker keeps
_FAILURES = 2  # failures in a row after which a worker is no longer used


# ---------------------------------------------------------------------------- the workers' side
_pools: dict[str, tuple[Measurer, dict[str, Task]]] = {}
_left: set[str] = set()  # sessions of closed fleets
_at_work = threading.Lock()
_idle: list[threading.Timer] = []  # the timer that ends pools of searches that were killed


def gpu_kind(device: str) -> str:
    """The kind of GPU by the name of a device; empty for a CPU."""
    kind = device.split("-")[0]
    return kind if kind in kinds_with(lambda b: b.family == "gpu" and b.measurable) else ""


def hello(kind: str = "", dask_worker: Any = None) -> dict[str, Any]:
    """The description of a worker: its machine (or its GPU of a kind), its versions, its tags and its cores."""
    machine = describe_machine(kind or None)
    versions = {
        **describe_machine()["versions"],
        **machine["versions"],
        "python": platform.python_version(),
        "distributed": metadata.version("distributed"),
    }
    tags = {} if dask_worker is None else dict(dask_worker.state.total_resources)
    there = bool(kind) and machine["gpu"] != "none"
    return {
        "machine": machine,
        "fingerprint": fingerprint(machine),
        "versions": versions,
        "resources": tags,
        "cores": usable_cpus(),
        "target": str(Target.from_device(Device(Device.STR2MASK[kind], 0))) if there else "",
    }


def work(order: Mapping[str, Any]) -> dict[str, Any]:
    """Measure the candidates of an order on this worker, or return why that is not possible."""
    with _at_work:
        _watch(False)
        try:
            _clear()
            return _answer(order)
        except MachineError:
            raise  # the worker counts as lost
        except TuneError as error:
            return {"error": str(error)}
        finally:
            _watch(True)


def _answer(order: Mapping[str, Any]) -> dict[str, Any]:
    mine = fingerprint(target=order["kind"] or None)
    if mine != order["machine"]:
        return {"foreign": mine}
    pool, tasks = _pool(order["session"], order["options"])
    tasks.update({key: _unpacked(package) for key, package in order["packages"].items()})
    if any(key not in tasks for key, *_ in (*order["items"], *order["incumbent"])):
        return {"unknown": True}
    items, against = ([_input(tasks, *i) for i in order[name]] for name in ("items", "incumbent"))
    if order["rounds"]:
        return {"duel": pool.duel(items[0], items[1], order["rounds"])}
    return {"results": pool.measure(items, against[0] if against else None)}


def _watch(waiting: bool) -> None:
    """Set the timer that ends idle pools while this worker is `waiting`; a search that returns gets a new pool."""
    while _idle:
        _idle.pop().cancel()
    if waiting and _pools:
        _idle.append(threading.Timer(_LATE, _forsake))
        _idle[-1].daemon = True
        _idle[-1].start()


def _forsake() -> None:
    if _at_work.acquire(blocking=False):
        try:
            _left.update(_pools)
            _clear()
        finally:
            _at_work.release()


def release(session: str) -> None:
    """End the processes of a closed fleet: now, or after the current job, since a worker that blocks here cannot send
    heartbeats."""
    _left.add(session)
    if _at_work.acquire(blocking=False):
        try:
            _clear()
        finally:
            _at_work.release()


def _clear() -> None:
    while _left:
        found = _pools.pop(_left.pop(), None)
        if found is not None:
            found[0].close()
    if not _pools:
        _watch(False)


def _pool(session: str, options: MeasureOptions) -> tuple[Measurer, dict[str, Task]]:
    found = _pools.pop(session, None)
    while len(_pools) >= _SESSIONS:  # the others are of searches that were killed
        _pools.pop(next(iter(_pools)))[0].close()
    _pools[session] = found or (Measurer(options), {})
    return _pools[session]


@dataclass(frozen=True)
class _Known:
    """A reference that was computed elsewhere."""

    arrays: tuple[Any, ...]

    def __call__(self, **inputs: Any) -> tuple[Any, ...]:
        return self.arrays


def _unpacked(package: Mapping[str, Any]) -> Task:
    known = package["reference"]
    return Task(
        load_json(package["program"]),
        Target(package["target"]),
        tuple(package["constants"]),
        package["inputs"],
        None if known is None else _Known(tuple(known)),
        package["sizes"],
    )


def _input(tasks: Mapping[str, Task], key: str, kind: str, what: Any) -> MeasureInput:
    return MeasureInput(tasks[key], kind, load_json(what) if kind == "program" else what)


# ---------------------------------------------------------------------------- members
@dataclass(frozen=True)
class Member:
    """A worker: its address and its description (see `hello`); `why_not` is the reason that it is not used."""

    address: str
    said: Mapping[str, Any] = field(default_factory=dict)
    why_not: str = ""

    @property
    def fingerprint(self) -> str:
        return str(self.said["fingerprint"])

    @property
    def machine(self) -> dict[str, Any]:
        return dict(self.said["machine"])

    @property
    def cores(self) -> int:
        """The cores that it may use, and thus the candidates that it builds at once."""
        return max(1, int(self.said["cores"]))


def checked(address: str, said: Any, device: str) -> Member:
    """A worker by its description, with the reason if it cannot be used as a `device`."""
    if not isinstance(said, Mapping):
        return Member(address, {}, f"tilewright does not answer there: {said}")
    if not said["resources"].get(device):
        others = ", ".join(sorted(said["resources"])) or "none"
        return Member(address, said, f"it is not tagged {device} (tags: {others})")
    mine, theirs = hello()["versions"], said["versions"]
    if theirs.get("tilewright") != mine["tilewright"]:
        told = ", ".join(f"{k} {theirs.get(k)} instead of {v}" for k, v in mine.items() if theirs.get(k) != v)
        return Member(address, said, f"its versions differ: {told}")
    if said["machine"].get("gpu") == "none":
        kind = said["machine"]["kind"]
        return Member(address, said, f"it is tagged {device}, and there is no device {kind}(0)")
    return Member(address, said)


def choose_machine(
    members: Iterable[Member], wanted: str | None = None, kind: str = ""
) -> tuple[str, list[str]]:
    """The fingerprint to measure on, and a sentence for each other one that is left out.

    It is that of most workers; between equals, that of this process, or of its GPU of a kind.
    """
    groups: dict[str, list[Member]] = {}
    for m in members:
        groups.setdefault(m.fingerprint, []).append(m)
    if wanted is not None and wanted not in groups:
        told = ", ".join(sorted(groups)) or "none"
        raise TuneError(f"no worker is of the machine {wanted}; there are: {told}")
    here = fingerprint(target=kind or None)
    chosen = wanted or min(groups, key=lambda g: (-len(groups[g]), g != here, g))
    mine = groups[chosen][0].machine
    left = [
        f"{len(group)} of the workers are of another machine and are not used, as times of unlike machines cannot be "
        f"compared: {name} ({differences(group[0].machine, mine)}); Fleet(…, machine={name!r}) uses those instead"
        for name, group in sorted(groups.items())
        if name != chosen
    ]
    return chosen, left


# ---------------------------------------------------------------------------- the search's side
@dataclass
class _Job:
    """A job of a worker: the candidates with these numbers, or a duel."""

    numbers: tuple[int, ...]
    inputs: tuple[MeasureInput, ...]
    incumbent: MeasureInput | None = None
    rounds: int = 0
    lost: list[str] = field(default_factory=list)  # how workers were lost over it


@dataclass
class _Running:
    job: _Job
    future: Any
    begun: float


class Fleet:
    """Workers of one kind of machine, as `measure.Measures`.

    `device` is the tag of the workers (`--resources "device-cpu=1"` is the device cpu). By its beginning they measure
    on a GPU (cuda, cuda-h200, opencl) or on CPUs (all others). `wait` is the number of seconds after which a fleet
    without workers is an error; `machine` is the fingerprint to use if there are several.
    """

    def __init__(
        self,
        address: str,
        device: str = "cpu",
        options: MeasureOptions | None = None,
        wait: float = 30.0,
        machine: str | None = None,
    ) -> None:
        self.address, self.device, self.wait = address, f"device-{device}", wait
        self.kind = gpu_kind(device)
        self.options = options or MeasureOptions()
        self._session = uuid.uuid4().hex
        self._members: dict[str, Member] = {}  # all workers that were asked, by address
        self._taught: dict[str, set[str]] = {}  # the tasks that workers know
        self._narrow: dict[str, str] = {}  # workers that may use too few cores
        self._failed: Counter[str] = Counter()  # failures of each worker in a row
        self._packages: dict[str, dict[str, Any]] = {}
        self._alone: dict[int, float] = {}  # since when no worker has so many cores
        self._stir = threading.Event()
        self._client = _connect(address, wait)
        try:
            self._machine, self._model = "", Member("")
            self._gather(machine)
        except BaseException:
            self._client.close()
            raise

    # -- life ------------------------------------------------------------------------------------
    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the workers end the processes of this fleet, and disconnect; the cluster goes on."""
        with contextlib.suppress(Exception):
            self._client.run(release, self._session, workers=self.workers, on_error="ignore")
        with contextlib.suppress(Exception):
            self._client.close()

    # -- workers ---------------------------------------------------------------------------------
    @property
    def machine(self) -> dict[str, Any]:
        """The machine that measures, to which the records of a fleet belong."""
        return self._model.machine

    @property
    def workers(self) -> list[str]:
        """The addresses of the workers that measure."""
        return [a for a in self._alive() if self._fits(a)]

    @property
    def target(self) -> Target:
        """The machine that measures, as a target for a search on another machine."""
        if self.kind:
            return Target(self._model.said["target"])
        m = self.machine
        sizes = ",".join(f"{k}:{v}" for k, v in zip(("l1d", "l2", "l3", "line"), m["caches"], strict=False))
        return Target(
            f"llvm -mcpu={m['llvm_cpu']} -num-cores={self._model.cores}"
            + (f" -machine={sizes}" if sizes else "")
        )

    def _alive(self) -> list[str]:
        try:
            return list(self._client.nthreads())
        except Exception as error:
            raise TuneError(f"{self.address}: the scheduler does not answer any more: {error}") from None

    def _fits(self, address: str) -> bool:
        member = self._members.get(address)
        return member is not None and not member.why_not and member.fingerprint == self._machine

    def _greet(self, addresses: Iterable[str]) -> None:
        """Ask new workers for their descriptions."""
        new = [a for a in addresses if a not in self._members]
        if not new:
            return
        try:
            said = self._client.run(hello, self.kind, workers=new, on_error="return")
        except Exception:  # one of them was lost meanwhile: those that remain are asked again
            return
        for address, answer in said.items():
            member = self._members[address] = checked(address, answer, self.device)
            if member.why_not and "is not tagged" not in member.why_not:
                _warn(f"the worker {address} is not used: {member.why_not}")
            elif not member.why_not and self._machine and member.fingerprint != self._machine:
                _warn(
                    f"the worker {address} is not used: it is of another machine than the others of this fleet "
                    f"({differences(member.machine, self.machine)})"
                )

    def _gather(self, wanted: str | None) -> None:
        """Wait for the first workers, and choose the machine that measures."""
        end = time.monotonic() + self.wait
        while True:
            alive = self._alive()
            self._greet(alive)
            usable = [self._members[a] for a in alive if a in self._members and not self._members[a].why_not]
            if usable:
                self._machine, left = choose_machine(usable, wanted, self.kind)
                self._model = next(m for m in usable if m.fingerprint == self._machine)
                for text in left:
                    _warn(text)
                return
            if time.monotonic() > end:
                raise TuneError(self._nobody(alive))
            time.sleep(min(_TICK, self.wait / 10))

    def _able(self, address: str, cores: int) -> bool:
        """Whether a worker of this fleet may use as many cores as a target has: otherwise times would not compare."""
        if not self._fits(address):
            return False
        member = self._members[address]
        if member.cores >= cores:
            return True
        why = f"it may use {member.cores} cores, and the target wants {cores}"
        if address not in self._narrow:
            self._narrow[address] = why
            _warn(f"the worker {address} is not used: {why}")
        return False

    def _nobody(self, alive: Sequence[str]) -> str:
        said = {a: m.why_not or self._narrow.get(a) for a in alive if (m := self._members.get(a))}
        there = "; ".join(f"{a}: {why}" for a, why in said.items() if why)
        return (
            f"{self.address}: no worker for {self.device} in {self.wait:g} s ({there or 'there is none at all'}); "
            f'start one: dask worker {self.address} --nthreads 1 --resources "{self.device}=1"'
        )

    # -- the interface -----------------------------------------------------------------------------
    def at_once(self, task: Task) -> int:
        """How many candidates to measure at once, as for a local pool; the workers share them."""
        every = [self._members[a].cores for a in self.workers]
        return 2 * sum(every) if task.target.is_gpu else len(every)

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Each | None = None
    ) -> list[MeasureResult]:
        """Measure candidates on all workers. `each` is called with each result as it arrives, exactly once."""
        results: list[MeasureResult | None] = [None] * len(inputs)

        def done(job: _Job, answer: Mapping[str, Any]) -> None:
            for i, result in zip(job.numbers, _results(job, answer), strict=True):
                if results[i] is not None:
                    continue
                results[i] = told = self._kept(inputs[i], result)
                if each is not None:
                    each(i, inputs[i], told)

        self._drive(self._jobs(inputs, incumbent), done)
        return [r for r in results if r is not None]

    def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Duel:
        """Measure two candidates against each other, in turns, both on one worker."""
        found: list[Duel] = []

        def done(job: _Job, answer: Mapping[str, Any]) -> None:
            lost = _results(job, answer) if "duel" not in answer else []
            duel = answer["duel"] if not lost else Duel(lost[0], lost[1], math.nan)
            found.append(Duel(self._kept(first, duel.first), self._kept(second, duel.second), duel.ratio))

        self._drive([_Job((0, 1), (first, second), rounds=rounds)], done)
        return found[0]

    def _jobs(self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None) -> list[_Job]:
        """Jobs that keep all workers busy, and all cores of a worker while it builds."""
        workers = [self._members[a] for a in self.workers]
        cores = min((m.cores for m in workers), default=1)
        size = max(1, min(cores, -(-len(inputs) // max(1, len(workers)))))
        starts = range(0, len(inputs), size)
        cuts = [tuple(range(s, min(s + size, len(inputs)))) for s in starts]
        return [_Job(cut, tuple(inputs[i] for i in cut), incumbent) for cut in cuts]

    def _kept(self, inp: MeasureInput, result: MeasureResult) -> MeasureResult:
        """A result with the machine of the workers, and with its reproducer on the machine of the search."""
        return with_reproducer(inp, replace(result, machine=self._machine), self.options)

    # -- work ------------------------------------------------------------------------------------
    def _drive(self, jobs: Iterable[_Job], done: Callable[[_Job, Mapping[str, Any]], None]) -> None:
        """Hand jobs to the workers that are there, until all are done."""
        waiting, running = deque(jobs), dict[str, _Running]()
        targets = [inp.task.target for job in waiting for inp in job.inputs]
        cores = max((t.num_cores for t in targets if not t.is_gpu), default=1)
        try:
            while waiting or running:
                alive = self._alive()
                self._greet(alive)
                for address in [a for a in running if a not in alive]:
                    self._lost(running, address, "it left the cluster", waiting, done)
                usable = [a for a in alive if self._able(a, cores)]
                for address in usable:
                    if address not in running and waiting:
                        running[address] = self._hand(address, waiting.popleft())
                if usable:
                    self._alone.pop(cores, None)
                elif time.monotonic() - self._alone.setdefault(cores, time.monotonic()) > self.wait:
                    missing = sum(len(j.numbers) for j in waiting)
                    raise TuneError(
                        f"all workers have left, with {missing} candidates of a batch not measured; what was measured "
                        f"before is kept. {self._nobody(alive)}"
                    )
                self._stir.wait(_TICK)
                self._stir.clear()
                self._collect(running, waiting, done)
        finally:
            for run in running.values():
                with contextlib.suppress(Exception):
                    run.future.cancel()

    def _hand(self, address: str, job: _Job) -> _Running:
        """Give a worker a job, with the tasks that it does not know."""
        everyone = [*job.inputs, *([job.incumbent] if job.incumbent is not None else [])]
        keys = {_key(inp.task): inp.task for inp in everyone}
        known = self._taught.setdefault(address, set())
        order = {
            "session": self._session,
            "options": replace(self.options, reproducers=None, cores=None),
            "machine": self._machine,
            "kind": self.kind,
            "packages": {k: self._package(k, t) for k, t in keys.items() if k not in known},
            "items": [_item(inp) for inp in job.inputs],
            "incumbent": [_item(job.incumbent)] if job.incumbent is not None else [],
            "rounds": job.rounds,
        }
        future = self._client.submit(
            work,
            order,
            workers=[address],
            allow_other_workers=False,
            resources={self.device: 1},
            pure=False,
            retries=0,
        )
        future.add_done_callback(lambda _: self._stir.set())
        known.update(keys)
        return _Running(job, future, time.monotonic())

    def _collect(
        self,
        running: dict[str, _Running],
        waiting: deque[_Job],
        done: Callable[[_Job, Mapping[str, Any]], None],
    ) -> None:
        """Take the results of the jobs that are finished."""
        for address, run in list(running.items()):
            if not run.future.done():
                if time.monotonic() - run.begun > _LATE:
                    self._members[address] = Member(address, {}, "it says nothing")
                    self._lost(running, address, f"it said nothing for {_LATE:g} s", waiting, done)
                continue
            try:
                answer = run.future.result(timeout=_FETCH)
            except TimeoutError:
                continue  # it is still in transit, or lost with its worker, which the next iteration finds
            except Exception as error:  # of the worker, or of the connection
                self._lost(running, address, f"{type(error).__name__}: {error}", waiting, done)
                self._set_aside(address, str(error))
                continue
            del running[address]
            del self._failed[address]
            if "foreign" in answer:  # another machine at a known address
                self._members.pop(address, None)
                waiting.appendleft(run.job)
            elif "unknown" in answer:
                self._taught.pop(address, None)
                waiting.appendleft(run.job)
            elif "error" in answer:
                raise TuneError(f"{address}: {answer['error']}")
            else:
                done(run.job, answer)

    def _set_aside(self, address: str, why: str) -> None:
        """Count a failure of a worker. One that fails again and again is not used any more: it would spoil one job
        after the other."""
        self._failed[address] += 1
        if self._failed[address] >= _FAILURES and address in self._members:
            self._members[address] = Member(address, {}, f"it failed {_FAILURES} times: {why}")
            _warn(f"the worker {address} is not used any more: it failed {_FAILURES} times: {why}")

    def _lost(
        self,
        running: dict[str, _Running],
        address: str,
        why: str,
        waiting: deque[_Job],
        done: Callable[[_Job, Mapping[str, Any]], None],
    ) -> None:
        """Give the job of a lost worker to another one, unless too many workers were lost over it."""
        run = running.pop(address)
        with contextlib.suppress(Exception):
            run.future.cancel()
        self._taught.pop(address, None)
        run.job.lost.append(f"{address}: {why}")
        if len(run.job.lost) < _CHANCES:
            waiting.appendleft(run.job)
        else:
            done(run.job, {"lost": f"{_CHANCES} workers were lost over it; {'; '.join(run.job.lost)}"[:2000]})

    def _package(self, key: str, task: Task) -> dict[str, Any]:
        """A task as it is sent: its program, and the data that a worker cannot make itself."""
        if key not in self._packages:
            self._check_target(task)
            self._packages[key] = {
                "program": save_json(task.mod),
                "target": record_target(task.target),  # with its number of threads, whatever a worker may use
                "constants": list(task.constants),
                "sizes": dict(task.sizes),
                "inputs": dict(task.inputs),
                "reference": _reference(task, self.options.seed),
            }
        return self._packages[key]

    def _check_target(self, task: Task) -> None:
        if is_exact(task.target):
            raise TuneError(
                f"tuning {task.name}: programs for `{task.target}` run on a simulator, which counts the same cycles "
                "everywhere, and not on the machines of a fleet; measure in this process: measure=MeasureOptions()"
            )
        own = task.target.kind.name if task.target.is_gpu else ""
        if own != self.kind:
            they, need = self.kind or "processors", f"device-{own or 'cpu'}"
            raise TuneError(
                f"tuning {task.name}: `{task.target}` is not what the workers tagged {self.device} are ({they}); start "
                f'some for it, --resources "{need}=1", and name them: Fleet(…, device={own or "cpu"!r})'
            )
        if own:
            return self._check_arch(task)
        if not is_host_cpu(task.target) or self._machine == fingerprint():
            return
        raise TuneError(
            f"tuning {task.name}: the target `{task.target}` is the machine of this process, and the workers are of "
            f"another ({differences(self.machine, describe_machine())}); name theirs: Target('{self.target}'), "
            "which is fleet.target"
        )

    def _check_arch(self, task: Task) -> None:
        """Refuse a target that is not for the GPU of the workers: machine code for one GPU does not run on another."""
        mine, theirs = (str(t.attrs.get("arch", "")) for t in (task.target, self.target))
        if mine.rstrip("a") != theirs.rstrip("a"):  # sm_90a is sm_90 with its own instructions
            raise TuneError(
                f"tuning {task.name}: the target `{task.target}` is for {mine or 'no certain GPU'}, and the workers "
                f"have {theirs} ({self.machine['gpu']}); name theirs: Target('{self.target}'), which is fleet.target"
            )


def scheduler_at(host: str, port: int) -> str:
    """The address of a scheduler, whose host may name the protocol: host, tls://host."""
    return f"{host if '://' in host else f'tcp://{host}'}:{port}"


def _connect(address: str, wait: float) -> Any:
    try:
        made: Any = importlib.import_module("distributed").Client
    except ImportError:
        raise TuneError(
            "measuring on a cluster needs dask.distributed: pip install 'tilewright[fleet]'"
        ) from None
    try:
        return made(address, timeout=wait, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # RuntimeError: TLS without certificates
        why = f"{type(error).__name__}: {error}"
    # A failed client closes itself when it is garbage-collected. If another one is starting then, which holds the lock
    # of their threads, that would wait for ever: so it is collected now.
    gc.collect()
    raise TuneError(
        f"{address}: no scheduler answers in {wait:g} s ({why}); an address is tcp://host:8786, or tls://host:8786 "
        "with Dask's TLS; `dask scheduler` starts one"
    )


def _key(task: Task) -> str:
    return f"{task.workload} {task.target}"


def _item(inp: MeasureInput) -> tuple[str, str, Any]:
    return _key(inp.task), inp.kind, save_json(inp.what) if inp.kind == "program" else inp.what


def _reference(task: Task, seed: int) -> list[Any] | None:
    """The results of the task's own reference function, as arrays: functions are not sent."""
    if task.reference is None:
        return None
    names = [task.func.buffer_map[v].name if v in task.func.buffer_map else v.name for v in task.func.params]
    results = task.reference(**dict(zip(names, make_inputs(task, seed), strict=True)))
    return list(results) if isinstance(results, (tuple, list)) else [results]


def _results(job: _Job, answer: Mapping[str, Any]) -> list[MeasureResult]:
    if "results" in answer:
        return list(answer["results"])
    return [MeasureResult(Status.CRASH, error=answer["lost"]) for _ in job.inputs]


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
