"""Measuring on many machines: the interface of the local pool over a Dask cluster.

    dask scheduler                                                              on one machine
    dask worker tcp://host:8786 --nthreads 1 --resources "device-cpu=1"         on each that measures

    with Fleet("tcp://host:8786", device="cpu") as fleet:
        tune_task(…, measure=fleet)

        search ──▶ queue ──▶ worker: a Measurer of its own (processes that build, one that runs) ──▶ results
                     ▲                      │ is gone
                     └────── its candidates ┘

A worker has one piece of work at a time. What a worker had when it went is measured by another, and what was told is
told once. Times of unlike machines are never compared: a fleet is the workers of one fingerprint, and says whom it
leaves out.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import platform
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from ..ir.serialize import load_json, save_json
from ..target import Target
from ..target.machine import is_host_cpu
from .checking import make_inputs
from .errors import TuneError
from .machines import describe_machine, differences, fingerprint
from .measure import Duel, Each, MeasureInput, MeasureOptions, Measurer, MeasureResult, Status
from .reproduce import write_reproducer
from .workload import Task

__all__ = ["Fleet", "Member", "choose_machine"]

_CHANCES = 3  # workers that may be lost over a piece of work
_LATE = 900.0  # seconds after which a worker that says nothing is taken for lost
_TICK = 0.25
_SESSIONS = 2  # pools that a worker keeps


# ---------------------------------------------------------------------------- the workers' side
_pools: dict[str, tuple[Measurer, dict[str, Task]]] = {}
_left: set[str] = set()  # sessions whose fleets are closed
_at_work = threading.Lock()


def hello(dask_worker: Any = None) -> dict[str, Any]:
    """What a worker is: its machine, its versions, the devices that it is tagged with."""
    machine = describe_machine()
    versions = {
        **machine["versions"],
        "python": platform.python_version(),
        "distributed": metadata.version("distributed"),
    }
    tags = {} if dask_worker is None else dict(dask_worker.state.total_resources)
    return {"machine": machine, "fingerprint": fingerprint(), "versions": versions, "resources": tags}


def work(order: Mapping[str, Any]) -> dict[str, Any]:
    """Measure what an order says, here; or say why not."""
    with _at_work:
        _clear()
        if fingerprint() != order["machine"]:
            return {"foreign": fingerprint()}
        pool, tasks = _pool(order["session"], order["options"])
        tasks.update({key: _unpacked(package) for key, package in order["packages"].items()})
        if any(key not in tasks for key, *_ in (*order["items"], *order["incumbent"])):
            return {"unknown": True}
        items, against = ([_input(tasks, *i) for i in order[name]] for name in ("items", "incumbent"))
        try:
            if order["rounds"]:
                return {"duel": pool.duel(items[0], items[1], order["rounds"])}
            return {"results": pool.measure(items, against[0] if against else None)}
        except TuneError as error:
            return {"error": str(error)}


def release(session: str) -> None:
    """End the processes of a fleet that is closed: now, or after the work at hand, as a worker that waits cannot say
    that it is alive."""
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


def _pool(session: str, options: MeasureOptions) -> tuple[Measurer, dict[str, Task]]:
    found = _pools.pop(session, None)
    while len(_pools) >= _SESSIONS:  # of searches that were killed
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


# ---------------------------------------------------------------------------- who may measure
@dataclass(frozen=True)
class Member:
    """A worker: where it is and what it said of itself; `why_not` is the reason that it is not used."""

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
        return max(1, int(self.said["machine"].get("cores", 1)))


def checked(address: str, said: Any, device: str) -> Member:
    """A worker by what it said, with the reason if it cannot be used."""
    if not isinstance(said, Mapping):
        return Member(address, {}, f"tilewright does not answer there: {said}")
    if not said["resources"].get(device):
        others = ", ".join(sorted(said["resources"])) or "none"
        return Member(address, said, f"it is not tagged {device} (tags: {others})")
    mine, theirs = hello()["versions"], said["versions"]
    if theirs.get("tilewright") != mine["tilewright"]:
        told = ", ".join(f"{k} {theirs.get(k)} instead of {v}" for k, v in mine.items() if theirs.get(k) != v)
        return Member(address, said, f"its versions differ: {told}")
    return Member(address, said)


def choose_machine(members: Iterable[Member], wanted: str | None = None) -> tuple[str, list[str]]:
    """The fingerprint to measure on, and a sentence for each other one, which is left out.

    It is that of most workers; of as many, that of this process.
    """
    groups: dict[str, list[Member]] = {}
    for m in members:
        groups.setdefault(m.fingerprint, []).append(m)
    if wanted is not None and wanted not in groups:
        told = ", ".join(sorted(groups)) or "none"
        raise TuneError(f"no worker is of the machine {wanted}; there are: {told}")
    here = fingerprint()
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
    """A piece of work: the candidates with these numbers, or a duel."""

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

    `device` is the tag of the workers (`--resources "device-cpu=1"` is the device cpu), `wait` the seconds after which
    a fleet without a worker is an error, `machine` the fingerprint to use where there are several.
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
        self.options = options or MeasureOptions()
        self._session = uuid.uuid4().hex
        self._members: dict[str, Member] = {}  # all that were asked, by address
        self._taught: dict[str, set[str]] = {}  # the tasks that workers know
        self._packages: dict[str, dict[str, Any]] = {}
        self._stir = threading.Event()
        self._client = _connect(address, wait)
        try:
            self._machine = ""
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
        """Let the workers end what they started for this fleet, and leave; the cluster goes on."""
        with contextlib.suppress(Exception):
            self._client.run(release, self._session, workers=self.workers, on_error="ignore")
        with contextlib.suppress(Exception):
            self._client.close()

    # -- who is there ----------------------------------------------------------------------------
    @property
    def machine(self) -> dict[str, Any]:
        """The machine that measures; records of a fleet are of it."""
        return next(m.machine for m in self._members.values() if m.said and m.fingerprint == self._machine)

    @property
    def workers(self) -> list[str]:
        """The addresses of those that measure."""
        return [a for a in self._alive() if self._fits(a)]

    @property
    def target(self) -> Target:
        """The machine that measures as a target, for those who search on another one."""
        m = self.machine
        sizes = ",".join(f"{k}:{v}" for k, v in zip(("l1d", "l2", "l3", "line"), m["caches"], strict=False))
        return Target(
            f"llvm -mcpu={m['llvm_cpu']} -num-cores={m['cores']}" + (f" -machine={sizes}" if sizes else "")
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
        """Ask those that are new who they are."""
        new = [a for a in addresses if a not in self._members]
        if not new:
            return
        try:
            said = self._client.run(hello, workers=new, on_error="return")
        except Exception:  # one of them went meanwhile: it is asked again, or is not there any more
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
        """Wait for the first workers, and settle which machine measures."""
        end = time.monotonic() + self.wait
        while True:
            alive = self._alive()
            self._greet(alive)
            usable = [self._members[a] for a in alive if a in self._members and not self._members[a].why_not]
            if usable:
                self._machine, left = choose_machine(usable, wanted)
                for text in left:
                    _warn(text)
                return
            if time.monotonic() > end:
                raise TuneError(self._nobody(alive))
            time.sleep(min(_TICK, self.wait / 10))

    def _nobody(self, alive: Sequence[str]) -> str:
        there = "; ".join(f"{a}: {m.why_not}" for a in alive if (m := self._members.get(a)) and m.why_not)
        return (
            f"{self.address}: no worker for {self.device} in {self.wait:g} s ({there or 'there is none at all'}); "
            f'start one: dask worker {self.address} --nthreads 1 --resources "{self.device}=1"'
        )

    # -- the interface -----------------------------------------------------------------------------
    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Each | None = None
    ) -> list[MeasureResult]:
        """Measure candidates wherever there is room; `each` is told results as they come, each of them once."""
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
        """Pieces that keep the cores of a worker busy while it builds, and all workers busy."""
        workers = [self._members[a] for a in self.workers]
        cores = min((m.cores for m in workers), default=1)
        size = max(1, min(cores, -(-len(inputs) // max(1, len(workers)))))
        starts = range(0, len(inputs), size)
        cuts = [tuple(range(s, min(s + size, len(inputs)))) for s in starts]
        return [_Job(cut, tuple(inputs[i] for i in cut), incumbent) for cut in cuts]

    def _kept(self, inp: MeasureInput, result: MeasureResult) -> MeasureResult:
        """A result as it is told here: of the workers' machine, its reproducer where the search is."""
        result = replace(result, machine=self._machine)
        if result.status is not Status.WRONG or self.options.reproducers is None:
            return result
        folder, seed = Path(self.options.reproducers), self.options.seed
        path = write_reproducer(folder, inp.task, inp.token, result.trace, inp.what, seed, result.error)
        return replace(result, reproducer=path)

    # -- work ------------------------------------------------------------------------------------
    def _drive(self, jobs: Iterable[_Job], done: Callable[[_Job, Mapping[str, Any]], None]) -> None:
        """Have jobs done by whoever is there, until all are."""
        waiting, running = deque(jobs), dict[str, _Running]()
        somebody = time.monotonic()
        try:
            while waiting or running:
                alive = self._alive()
                self._greet(alive)
                for address in [a for a in running if a not in alive]:
                    self._lost(running, address, "it left the cluster", waiting, done)
                usable = [a for a in alive if self._fits(a)]
                for address in usable:
                    if address not in running and waiting:
                        running[address] = self._hand(address, waiting.popleft())
                if usable:
                    somebody = time.monotonic()
                elif time.monotonic() - somebody > self.wait:
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
        """Give a worker a piece of work, with the tasks that it does not know."""
        everyone = [*job.inputs, *([job.incumbent] if job.incumbent is not None else [])]
        keys = {_key(inp.task): inp.task for inp in everyone}
        known = self._taught.setdefault(address, set())
        order = {
            "session": self._session,
            "options": replace(self.options, reproducers=None, cores=None),
            "machine": self._machine,
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
        """Take in what is finished."""
        for address, run in list(running.items()):
            if not run.future.done():
                if time.monotonic() - run.begun > _LATE:
                    self._members[address] = Member(address, {}, "it says nothing")
                    self._lost(running, address, f"it said nothing for {_LATE:g} s", waiting, done)
                continue
            try:
                answer = run.future.result(timeout=60)
            except Exception as error:  # of the worker, or of the way to it
                self._lost(running, address, f"{type(error).__name__}: {error}", waiting, done)
                continue
            del running[address]
            if "foreign" in answer:  # another machine at an address that was known
                self._members.pop(address, None)
                waiting.appendleft(run.job)
            elif "unknown" in answer:
                self._taught.pop(address, None)
                waiting.appendleft(run.job)
            elif "error" in answer:
                raise TuneError(f"{address}: {answer['error']}")
            else:
                done(run.job, answer)

    def _lost(
        self,
        running: dict[str, _Running],
        address: str,
        why: str,
        waiting: deque[_Job],
        done: Callable[[_Job, Mapping[str, Any]], None],
    ) -> None:
        """A worker is gone: what it had goes to another, unless that has cost too many."""
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
        """A task as it travels: its program, and its data where that cannot be made anew."""
        if key not in self._packages:
            self._check_target(task)
            self._packages[key] = {
                "program": save_json(task.mod),
                "target": str(task.target),
                "constants": list(task.constants),
                "sizes": dict(task.sizes),
                "inputs": dict(task.inputs),
                "reference": _reference(task, self.options.seed),
            }
        return self._packages[key]

    def _check_target(self, task: Task) -> None:
        if task.target.is_gpu:
            raise TuneError(
                f"tuning {task.name}: a fleet measures on processors, and `{task.target}` is a GPU: tune on the "
                "machine that has it, without a cluster"
            )
        if not is_host_cpu(task.target) or self._machine == fingerprint():
            return
        raise TuneError(
            f"tuning {task.name}: the target `{task.target}` is the machine of this process, and the workers are of "
            f"another ({differences(self.machine, describe_machine())}); name theirs: Target('{self.target}'), "
            "which is fleet.target"
        )


def _connect(address: str, wait: float) -> Any:
    try:
        made: Any = importlib.import_module("distributed").Client
    except ImportError:
        raise TuneError(
            "measuring on a cluster needs dask.distributed: pip install 'tilewright[fleet]'"
        ) from None
    try:
        return made(address, timeout=wait, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise TuneError(
            f"{address}: no scheduler answers in {wait:g} s ({type(error).__name__}: {error}); an address is "
            "tcp://host:8786, and `dask scheduler` starts one"
        ) from None


def _key(task: Task) -> str:
    return f"{task.workload} {task.target}"


def _item(inp: MeasureInput) -> tuple[str, str, Any]:
    return _key(inp.task), inp.kind, save_json(inp.what) if inp.kind == "program" else inp.what


def _reference(task: Task, seed: int) -> list[Any] | None:
    """What the task's own function computes, as arrays: functions stay where they are."""
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
