"""Measuring on a cluster: workers that die, leave, are of other machines or versions, or are not there at all."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import certificates
import numpy as np
import pytest
from tune_fakes import Fake, odd

from tilewright import te, topi
from tilewright.tune.errors import MachineError, TuneError
from tilewright.tune.measure import fleet as fleets
from tilewright.tune.measure.building import Builder
from tilewright.tune.measure.fleet import Fleet, Member, checked, choose_machine
from tilewright.tune.measure.machines import describe_machine, fingerprint
from tilewright.tune.measure.measurer import MeasureInput, MeasureOptions, Measurer, Status, _stopped
from tilewright.tune.records.database import Database
from tilewright.tune.search.search import SearchOptions, tune_task
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task, task_of

pytest.importorskip("distributed")
OPTIONS = SearchOptions(model="analytical", batch=8, patience=1000)


def square(n: int, **more: Any) -> Task:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    return task_of([A, B, topi.matmul(A, B)], "llvm -num-cores=1", **more)


@pytest.fixture(scope="module")
def task() -> Task:
    return square(48)


@pytest.fixture(scope="module")
def inputs(task: Task) -> list[MeasureInput]:
    space = Sketches(task).space
    return [MeasureInput.of(task, space.decisions(r)) for r in space.sample(np.random.default_rng(0), 8)]


# ---------------------------------------------------------------------------- a cluster without processes
class Future:
    """What a worker will have answered; `answer` is None while it works."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def done(self) -> bool:
        return self.answer is not None

    def result(self, timeout: float) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def cancel(self) -> None:
        self.answer = None

    def add_done_callback(self, told: Any) -> None:
        if self.done():
            told(self)


class Cluster:
    """Workers that measure at once, in this process; `before` may do something to them when they are given work."""

    def __init__(self, count: int, before: Callable[[Cluster, str, Any], Any] | None = None) -> None:
        self.there = {f"tcp://w{i}": fleets.hello() for i in range(count)}
        for said in self.there.values():
            said["resources"] = {"device-cpu": 1}
        self.before, self.orders = before, list[tuple[str, Any]]()

    def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(self.there, 1)

    def run(self, function: Any, *args: Any, workers: list[str], on_error: str) -> dict[str, Any]:
        if function is fleets.hello:
            return {a: self.there[a] for a in workers}
        return {a: function(*args) for a in workers}

    def submit(self, function: Any, order: Any, workers: list[str], **ignored: Any) -> Future:
        (address,) = workers
        self.orders.append((address, order))
        forced = self.before(self, address, order) if self.before is not None else None
        if address not in self.there:
            return Future(None)
        return Future(forced if forced is not None else function(order))

    def close(self) -> None:
        pass


class Pool(Fake):
    """In place of a Measurer: times by the decisions."""

    def __init__(self, options: MeasureOptions) -> None:
        super().__init__(lambda inp: 1e-3 * (1 + odd(inp)))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Fleet]]:
    opened: list[Fleet] = []

    def make(cluster: Cluster, **more: Any) -> Fleet:
        monkeypatch.setattr(fleets, "_connect", lambda address, wait: cluster)
        monkeypatch.setattr(fleets, "Measurer", Pool)
        monkeypatch.setattr(fleets, "_TICK", 0.01)
        opened.append(Fleet("tcp://host:8786", **{"wait": 0.1, **more}))
        return opened[-1]

    yield make
    for fleet in opened:
        fleet.close()
    assert not fleets._pools  # nobody keeps processes of a fleet that is closed


def test_results_are_told_once_in_any_order_and_lie_in_that_of_the_inputs(
    made: Any, inputs: list[MeasureInput]
) -> None:
    fleet, seen = made(Cluster(3)), []
    results = fleet.measure(inputs, inputs[0], lambda i, inp, result: seen.append((i, inp, result)))
    assert sorted(i for i, _, _ in seen) == list(range(8))
    assert all(inputs[i] is inp and results[i] is result for i, inp, result in seen)
    assert [r.seconds[0] for r in results] == [1e-3 * (1 + odd(inp)) for inp in inputs]
    assert {r.machine for r in results} == {fingerprint()}


def test_a_worker_knows_a_task_after_the_first_piece_of_work(made: Any, inputs: list[MeasureInput]) -> None:
    cluster = Cluster(2)
    fleet = made(cluster)
    for _ in range(2):
        fleet.measure(inputs)
    carried = [(address, bool(order["packages"])) for address, order in cluster.orders]
    assert carried[:2] == [("tcp://w0", True), ("tcp://w1", True)] and not any(c for _, c in carried[2:])
    fleets._pools[fleet._session][1].clear()  # the worker's process was started anew at the same address
    assert len(fleet.measure(inputs)) == 8


def test_what_a_worker_had_when_it_left_is_measured_by_another(made: Any, inputs: list[MeasureInput]) -> None:
    def leave(cluster: Cluster, address: str, order: Any) -> None:
        if address == "tcp://w1":
            del cluster.there[address]

    cluster, seen = Cluster(2, leave), []
    results = made(cluster).measure(inputs, None, lambda i, *_: seen.append(i))
    assert sorted(seen) == list(range(8)) and all(r.ok for r in results)
    assert [a for a, _ in cluster.orders].count("tcp://w1") == 1


def test_a_worker_that_comes_later_helps(made: Any, inputs: list[MeasureInput]) -> None:
    def join(cluster: Cluster, address: str, order: Any) -> None:
        cluster.there.setdefault("tcp://late", cluster.there["tcp://w0"])

    cluster = Cluster(1, join)
    assert len(made(cluster).measure(inputs)) == 8
    assert {a for a, _ in cluster.orders} == {"tcp://w0", "tcp://late"}


def test_a_candidate_that_costs_three_workers_is_a_crash(made: Any, inputs: list[MeasureInput]) -> None:
    bad = inputs[3]

    def fall(cluster: Cluster, address: str, order: Any) -> Any:
        if any(what == bad.what for _, _, what in order["items"]):
            del cluster.there[address]

    fleet = made(Cluster(5, fall))
    fleet._members["tcp://w0"].said["cores"] = 1  # one candidate at a time
    results = fleet.measure(inputs)
    assert [r.status for r in results] == [Status.CRASH if i is bad else Status.OK for i in inputs]
    assert results[3].error.startswith("3 workers were lost over it; tcp://w")


def test_a_worker_that_fails_is_as_one_that_left(made: Any, inputs: list[MeasureInput]) -> None:
    fails = [OSError("no space left on device")]
    cluster = Cluster(1, lambda cluster, address, order: fails.pop() if fails else None)
    assert all(r.ok for r in made(cluster).measure(inputs)) and not fails


def test_a_worker_that_always_fails_is_set_aside(made: Any, inputs: list[MeasureInput]) -> None:
    def full(cluster: Cluster, address: str, order: Any) -> Any:
        return MachineError("no room in /tmp") if address == "tcp://w0" else None

    cluster = Cluster(2, full)
    fleet = made(cluster)
    for m in fleet._members.values():
        m.said["cores"] = 1
    with pytest.warns(
        RuntimeWarning, match=r"tcp://w0 is not used any more: it failed 2 times: no room in /tmp"
    ):
        results = fleet.measure(inputs)
    assert all(r.ok for r in results) and fleet.workers == ["tcp://w1"]
    assert [a for a, _ in cluster.orders].count("tcp://w0") == 2
    alone = made(Cluster(1, full))
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(TuneError, match=r"tcp://w0: it failed 2 times: no room in /tmp"),
    ):
        alone.measure(inputs)
    assert alone.machine == describe_machine()


def test_what_a_search_that_was_killed_leaves_with_a_worker_goes_in_time(
    made: Any, inputs: list[MeasureInput], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = made(Cluster(1))
    monkeypatch.setattr(fleets, "_LATE", 0.02)
    fleet.measure(inputs[:1])
    end = time.monotonic() + 60
    while fleets._pools:
        assert time.monotonic() < end
        time.sleep(0.005)
    monkeypatch.setattr(fleets, "_LATE", 900.0)
    assert fleet.measure(inputs[:1])[0].ok  # it was only slow: the worker begins anew
    assert fleets._idle
    fleet.close()
    assert not fleets._idle


def test_workers_that_may_use_too_few_cores_are_told_and_not_used(
    made: Any, inputs: list[MeasureInput], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are of the same machine, and would be slower all the same."""
    cluster = Cluster(2)
    cluster.there["tcp://w0"]["cores"], cluster.there["tcp://w1"]["cores"] = 1, 4
    fleet = made(cluster)
    four = [MeasureInput.of(task_of(inp.task.mod, "llvm -num-cores=4"), inp.what) for inp in inputs]
    with pytest.warns(
        RuntimeWarning, match=r"tcp://w0 is not used: it may use 1 cores, and the target wants 4"
    ):
        assert all(r.ok for r in fleet.measure(four))
    assert {a for a, _ in cluster.orders} == {"tcp://w1"}
    many = [MeasureInput.of(task_of(inp.task.mod, "llvm -num-cores=64")) for inp in inputs]
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(TuneError, match=r"tcp://w1: it may use 4 cores, and the target wants 64"),
    ):
        fleet.measure(many)


def test_a_duel_is_fought_again_elsewhere(made: Any, inputs: list[MeasureInput]) -> None:
    def leave(cluster: Cluster, address: str, order: Any) -> None:
        if len(cluster.there) > 1:
            del cluster.there[address]

    duel = made(Cluster(2, leave)).duel(inputs[0], inputs[1])
    assert duel.ratio == pytest.approx((1 + odd(inputs[0])) / (1 + odd(inputs[1])))
    lost = made(Cluster(4, lambda cluster, address, order: cluster.there.pop(address) and None))
    assert math.isnan(lost.duel(inputs[0], inputs[1]).ratio)


def test_if_all_leave_it_says_so(made: Any, inputs: list[MeasureInput]) -> None:
    cluster = Cluster(1, lambda cluster, address, order: cluster.there.pop(address) and None)
    with pytest.raises(TuneError) as error:
        made(cluster).measure(inputs)
    assert str(error.value) == (
        "all workers have left, with 8 candidates of a batch not measured; what was measured before is kept. "
        "tcp://host:8786: no worker for device-cpu in 0.1 s (there is none at all); start one: dask worker "
        'tcp://host:8786 --nthreads 1 --resources "device-cpu=1"'
    )


@pytest.mark.slow
def test_once_all_have_left_nobody_waits_again(made: Any, inputs: list[MeasureInput]) -> None:
    """Not for each task of a search: the first has waited; who comes later is used."""
    cluster = Cluster(1)
    fleet = made(cluster, wait=0.5)
    (there,) = cluster.there.items()
    cluster.there.clear()
    waits: list[float] = []
    wait, began = fleet._stir.wait, time.monotonic()
    fleet._stir.wait = lambda seconds: waits.append(seconds) or wait(seconds)
    with pytest.raises(TuneError, match="all workers have left"):
        fleet.measure(inputs)
    assert time.monotonic() - began >= 0.5 and waits
    waits.clear()
    for _ in range(2):
        with pytest.raises(TuneError, match="all workers have left"):
            fleet.measure(inputs)
    assert waits == []
    cluster.there.update([there])
    assert len(fleet.measure(inputs)) == 8


def test_what_the_pool_of_a_worker_cannot_do_is_an_error_here(made: Any, inputs: list[MeasureInput]) -> None:
    cluster = Cluster(1, lambda cluster, address, order: {"error": "tuning main: it writes nothing"})
    with pytest.raises(TuneError, match="tcp://w0: tuning main: it writes nothing"):
        made(cluster).measure(inputs)


def test_records_carry_the_machine_that_measured(
    made: Any, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search here, workers elsewhere: nothing of it is taken for a record of this machine."""
    there = {**describe_machine(), "cpu": "Another", "cores": 64}
    cluster = Cluster(2)
    for said in cluster.there.values():
        said.update(machine=there, fingerprint=fingerprint(there))
    fleet = made(cluster)
    with pytest.raises(TuneError, match=r"the workers are of another \(cpu Another instead of") as error:
        tune_task(task, trials=8, measure=fleet, options=OPTIONS)
    assert "name theirs: Target('llvm -keys=cpu -machine=l1d:" in str(error.value)
    named = task_of(task.mod, fleet.target)
    monkeypatch.setattr(
        fleets, "fingerprint", lambda machine=None, target=None: fingerprint(machine or there)
    )
    with Database(":memory:") as db:
        tune_task(named, trials=8, database=db, measure=fleet, options=OPTIONS)
        records = db.records(named)
        assert {r.machine for r in records} == {fingerprint(there)} and len(records) == 9
        assert db.machines() == {fingerprint(there): json.loads(json.dumps(there))}
        assert db.best(named) is None
        before = len(cluster.orders)
        tune_task(named, trials=8, database=db, measure=fleet, options=OPTIONS)
        assert len(cluster.orders) == before  # it had ended


# ---------------------------------------------------------------------------- who may measure
def member(address: str, **differs: Any) -> Member:
    machine = {**describe_machine(), **differs}
    return Member(address, {"machine": machine, "fingerprint": fingerprint(machine)})


def test_unlike_machines_are_not_mixed() -> None:
    here, others = member("a"), [member("b", cores=64), member("c", cores=64)]
    chosen, told = choose_machine([here, *others])
    assert chosen == others[0].fingerprint
    assert told == [
        "1 of the workers are of another machine and are not used, as times of unlike machines cannot be compared: "
        f"{here.fingerprint} (cores {describe_machine()['cores']} instead of 64); "
        f"Fleet(…, machine='{here.fingerprint}') uses those instead"
    ]
    assert choose_machine([here, others[0]])[0] == here.fingerprint  # of as many, that of this process
    assert choose_machine([here, *others], here.fingerprint)[0] == here.fingerprint
    with pytest.raises(TuneError, match="no worker is of the machine x; there are: "):
        choose_machine([here], "x")


def test_versions_and_tags_that_differ_are_named() -> None:
    said = {**fleets.hello(), "resources": {"device-cpu": 1.0}}
    assert checked("a", said, "device-cpu").why_not == ""
    assert checked("a", said, "device-gpu").why_not == "it is not tagged device-gpu (tags: device-cpu)"
    versions = {**said["versions"], "tilewright": "9.9", "llvm": "1.0"}
    why = checked("a", {**said, "versions": versions}, "device-cpu").why_not
    mine = said["versions"]
    assert why == (
        f"its versions differ: tilewright 9.9 instead of {mine['tilewright']}, llvm 1.0 instead of {mine['llvm']}"
    )
    absent = checked("a", ModuleNotFoundError("No module named 'tilewright'"), "device-cpu")
    assert absent.why_not == "tilewright does not answer there: No module named 'tilewright'"


def test_a_worker_of_another_version_is_told_and_not_used(made: Any, inputs: list[MeasureInput]) -> None:
    cluster = Cluster(2)
    cluster.there["tcp://w1"]["versions"] = {"tilewright": "9.9"}
    with pytest.warns(RuntimeWarning, match=r"tcp://w1 is not used: its versions differ: tilewright 9.9"):
        fleet = made(cluster)
    fleet.measure(inputs)
    assert {a for a, _ in cluster.orders} == {"tcp://w0"} and fleet.workers == ["tcp://w0"]


# ---------------------------------------------------------------------------- GPUs
H200 = {"kind": "cuda", "gpu": "H200", "arch": "9.0", "driver": "13.0", "processors": 132, "versions": {}}


class Gpus(Cluster):
    """Workers that have the same GPU, as its driver tells of it."""

    def __init__(self, count: int, device: str, machine: dict[str, Any], target: str) -> None:
        super().__init__(count)
        for said in self.there.values():
            said.update(machine=machine, fingerprint=fingerprint(machine), target=target, cores=4)
            said["resources"] = {f"device-{device}": 1}


def test_a_fleet_of_gpus_is_of_the_gpus_and_not_of_the_machines_around_them(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Gpus(2, "cuda-h200", H200, "cuda -arch=sm_90a -multi_processor_count=132")
    fleet = made(cluster, device="cuda-h200")
    assert (fleet.kind, fleet.machine, fleet.target.attrs["arch"]) == ("cuda", H200, "sm_90a")
    A = te.placeholder((64,), name="A")
    task = task_of([A, topi.tanh(A)], "cuda -arch=sm_90")
    assert fleet.at_once(task) == 16  # kernels are compiled by all cores of both
    monkeypatch.setattr(fleets, "fingerprint", lambda machine=None, target=None: fingerprint(H200))
    with Database(":memory:") as db:
        tune_task(task, trials=4, database=db, measure=fleet, options=OPTIONS)
        assert {r.machine for r in db.records(task)} == {fingerprint(H200)}
        assert db.machines() == {fingerprint(H200): H200}
    assert {order["kind"] for _, order in cluster.orders} == {"cuda"}


def test_a_target_that_the_workers_are_not_is_refused(made: Any, task: Task) -> None:
    fleet = made(Gpus(1, "cuda", H200, "cuda -arch=sm_90a"), device="cuda")
    with pytest.raises(TuneError) as error:
        fleet.measure([MeasureInput.of(task)])
    assert str(error.value) == (
        "tuning main: `llvm -keys=cpu -num-cores=1` is not what the workers tagged device-cuda are (cuda); start some for it, "
        "--resources \"device-cpu=1\", and name them: Fleet(…, device='cpu')"
    )
    for target, told in (("cuda -arch=sm_80", "sm_80"), ("cuda -model=unknown", "no certain GPU")):
        with pytest.raises(
            TuneError, match=rf"is for {told}, and the workers have sm_90a \(H200\); name theirs"
        ):
            fleet.measure([MeasureInput.of(task_of(task.mod, target))])
    with pytest.raises(
        TuneError, match=r"not what the workers tagged device-cpu are \(processors\); start some"
    ):
        made(Cluster(1)).measure([MeasureInput.of(task_of(task.mod, "opencl"))])


def test_a_worker_that_has_no_such_gpu_is_told_and_not_used(made: Any) -> None:
    none = {"kind": "cuda", "gpu": "none", "versions": {}}
    with (
        pytest.warns(RuntimeWarning, match=r"it is tagged device-cuda, and there is no device cuda\(0\)"),
        pytest.raises(TuneError, match=r"no worker for device-cuda in 0\.1 s"),
    ):
        made(Gpus(1, "cuda", none, ""), device="cuda")


def test_data_travels_with_the_task(task: Task) -> None:
    given = {"A": np.ones((48, 48), np.float32)}
    own = square(48, inputs=given, reference=lambda A, B, **out: A @ B)
    fleet = Fleet.__new__(Fleet)
    fleet._packages, fleet._machine, fleet.options, fleet.kind = {}, fingerprint(), MeasureOptions(), ""
    back = fleets._unpacked(fleet._package("k", own))
    assert back.workload == own.workload and (back.inputs["A"] == 1).all()
    (wanted,) = back.reference()  # type: ignore[misc]
    assert wanted.shape == (48, 48) and np.ptp(wanted, axis=0).max() < 1e-5


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(TuneError, match=r"pip install 'tilewright\[fleet\]'"):
        Fleet("tcp://127.0.0.1:1")


def test_nothing_is_left_of_a_client_that_did_not_connect() -> None:
    """What Python's garbage collector would close in the midst of starting the next one, which waits for itself then."""
    import distributed

    gc.disable()
    try:
        with pytest.raises(TuneError, match="no scheduler answers"):
            fleets._connect("tls://127.0.0.1:1", 1.0)
        left = [o for o in gc.get_objects() if isinstance(o, distributed.Client) and o.status != "closed"]
    finally:
        gc.enable()
    assert left == []


# ---------------------------------------------------------------------------- real processes
class Processes:
    """A scheduler and workers on loopback."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        place = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self.file))
        self._start("scheduler", *place, *options)
        end = time.monotonic() + 120
        while not self.file.exists() or not self.file.read_text():
            assert time.monotonic() < end, "the scheduler did not start"
            time.sleep(0.02)
        self.address = str(json.loads(self.file.read_text())["address"])

    def _start(self, role: str, *arguments: str, name: str = "") -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{role}", *arguments, "--no-dashboard"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
        with open(self.folder / f"{name or role}.log", "ab") as log:
            self.started[name or role] = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=self.folder
            )

    def worker(self, name: str, *options: str) -> None:
        tags = ("--resources", "device-cpu=1,device-opencl=1", "--name", name)
        self._start("worker", self.address, "--nthreads", "1", "--no-nanny", *tags, *options, name=name)

    def close(self) -> None:
        for process in self.started.values():
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Three workers, each for a processor and for a GPU: each test that kills one leaves enough for the next."""
    made = Processes(tmp_path_factory.mktemp("cluster"))
    try:
        for name in ("one", "two", "three"):
            made.worker(name)
        yield made
    finally:
        made.close()


def _killed_in_the_midst(cluster: Processes, device: str, task: Task, trials: int) -> list[Any]:
    """Search on a fleet, one of whose workers is killed over a piece of work: the records of it."""
    with Fleet(cluster.address, device, MeasureOptions(builders=1), wait=120) as fleet:
        end = time.monotonic() + 120
        while len(fleet.workers) < 2:
            assert time.monotonic() < end, "no second worker came"
            time.sleep(0.05)
            fleet._greet(fleet._alive())
        orders = _kill_at_the_fifth_order(fleet, fleet._client.run(os.getpid))
        with Database(":memory:") as db, warnings.catch_warnings():
            warnings.simplefilter("error")
            tune_task(task, trials=trials, database=db, measure=fleet, options=OPTIONS)
            records = [r for r in db.records(task) if r.origin == "trial"]
        assert len(set(orders)) >= 2 and len(fleet.workers) < 3
    assert (
        len(records) == len({json.dumps(r.decisions) for r in records}) == trials
    )  # all of them, none twice
    return records


@pytest.mark.slow
def test_a_fleet_over_tls(tmp_path: Path, inputs: list[MeasureInput]) -> None:
    """As the page on tuning starts it; whoever has no certificate gets nowhere."""
    import dask

    cert, key, authority = certificates.made(tmp_path, "fleet")
    files = ("--tls-ca-file", authority, "--tls-cert", cert, "--tls-key", key)
    made = Processes(tmp_path, "--protocol", "tls", *files)
    mine = {"ca-file": authority, "client.cert": cert, "client.key": key}
    try:
        assert made.address.startswith("tls://127.0.0.1:")
        made.worker("one", *files)
        with dask.config.set({f"distributed.comm.tls.{k}": v for k, v in mine.items()}):
            host, _, port = made.address.rpartition(":")
            address = fleets.scheduler_at(host, int(port))
            with Fleet(address, "cpu", MeasureOptions(builders=1), wait=120) as fleet:
                assert fleet.measure(inputs[:1])[0].status is Status.OK
        with pytest.raises(TuneError, match="no scheduler answers"):
            Fleet(made.address, wait=2)
    finally:
        made.close()


@pytest.mark.slow
def test_a_worker_is_killed_in_the_midst_of_a_search_and_nothing_is_lost(
    task: Task, cluster: Processes
) -> None:
    with pytest.raises(TuneError, match=r"tcp://127.0.0.1:1: no scheduler answers in 0.5 s"):
        Fleet("tcp://127.0.0.1:1", wait=0.5)
    records = _killed_in_the_midst(cluster, "cpu", task, 12)
    assert {(r.status, r.machine) for r in records} == {("ok", fingerprint())}
    with pytest.raises(TuneError, match=r"no worker for device-gpu in 0.2 s .tcp://127.0.0.1:\d+: it is not"):
        Fleet(cluster.address, device="gpu", wait=0.2)


@pytest.mark.slow
@pytest.mark.needs("opencl")
def test_a_worker_with_a_gpu_is_killed_in_the_midst_and_nothing_is_lost(cluster: Processes) -> None:
    """Each worker measures on its own device, in a process of its own; records are of that device."""
    gpu = task_of(square(16).mod, "opencl")
    records = _killed_in_the_midst(cluster, "opencl", gpu, 6)
    assert {(r.status, r.machine) for r in records} == {("ok", fingerprint(target="opencl"))}


def _kill_at_the_fifth_order(fleet: Fleet, pids: dict[str, int]) -> list[str]:
    """The worker that has just been given a piece of work is killed."""
    orders: list[str] = []
    hand = fleet._hand

    def deadly(address: str, job: Any) -> Any:
        orders.append(address)
        running = hand(address, job)
        if len(orders) == 5:
            while running.future.key not in fleet._client.processing()[address]:  # until it is at it
                assert not running.future.done()
            os.kill(pids[address], signal.SIGKILL)
        return running

    fleet._hand = deadly  # type: ignore[method-assign]
    return orders


def test_a_fleet_that_is_closed_while_another_works_is_cleared_afterwards(
    made: Any, inputs: list[MeasureInput]
) -> None:
    one, other = made(Cluster(1)), made(Cluster(1))
    one.measure(inputs[:1]), other.measure(inputs[:1])
    assert set(fleets._pools) == {one._session, other._session}
    with fleets._at_work:  # of the other: nobody waits for it
        fleets.release(one._session)
    assert one._session in fleets._pools
    other.measure(inputs[:1])
    assert set(fleets._pools) == {other._session}


# ---------------------------------------------------------------------------- the local pool, as a worker uses it
class Told:
    """A process that builds, as the pool sees it; it forgets as the real one does."""

    def __init__(self) -> None:
        self.known, self.builder = {"ready"}, Builder()
        self.built: list[str] = []

    def start(self) -> None:
        """It runs."""

    greet = start

    def ask(self, message: Any, limit: float) -> Any:
        return self.builder.task(message[1])

    def send(self, message: Any, limit: float) -> None:
        key = message[1][0]
        assert key in self.builder.tasks, "it does not know the task"
        self.built.append(str(self.builder.tasks[key][0].target))


def test_a_process_that_builds_knows_every_task_and_every_target_that_it_is_given(monkeypatch: Any) -> None:
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr("gc.freeze", lambda: None)
    pool, process = Measurer.__new__(Measurer), Told()
    pool.options = MeasureOptions()
    pool._builders, pool._runner, pool._lock_file, pool._folder = [], None, None, Path("/nonexistent")
    tasks = [task_of(square(n).mod, f"llvm -num-cores={c}") for n in range(2, 24) for c in (1, 2)]
    for t in [*tasks, *tasks[::-1], tasks[0]]:  # more than it remembers
        pool._give(process, MeasureInput.of(t))  # type: ignore[arg-type]
        assert process.built[-1] == str(t.target)
    assert MeasureInput.of(tasks[0]).token != MeasureInput.of(tasks[1]).token


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only /proc tells of it")
def test_nobody_waits_for_a_process_that_is_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            assert not _stopped(str(process.pid).encode())
            process.send_signal(signal.SIGSTOP)
            end = time.monotonic() + 120
            while not _stopped(str(process.pid).encode()):
                assert time.monotonic() < end
                time.sleep(0.01)
        finally:
            process.kill()
    assert not _stopped(b"") and not _stopped(b"nonsense")
