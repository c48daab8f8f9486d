"""Files of tuning records: damaged lines, damaged databases, and well-formed traces that mean harm."""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from fuzz import fuzzer, refused
from fuzz.damage import damaged
from tilewright import te, tir, topi
from tilewright.error import TVMError
from tilewright.tir.schedule.from_files import ANNOTATIONS, STEPS, UntrustedStep
from tilewright.tir.schedule.trace import Trace
from tilewright.tune.measure.machines import fingerprint
from tilewright.tune.records.database import Database, Record
from tilewright.tune.records.files import open_records
from tilewright.tune.records.history import History
from tilewright.tune.search.search import apply_record
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task, task_of


def product() -> list[Any]:
    A, B = te.placeholder((12, 16), name="A"), te.placeholder((16, 20), name="B")
    return [A, B, topi.nn.relu(topi.matmul(A, B))]


@cache
def kept() -> tuple[Task, dict[str, Any], bytes, bytes]:
    """A task, the trace of a schedule of it, and files with its records: lines and a database."""
    task = task_of(product(), "llvm")
    sketches = Sketches(task)
    trace = sketches.apply(None).trace.as_json()
    record = Record(
        task.workload,
        str(task.target),
        fingerprint(target=task.target),
        "ok",
        sketches.space.decisions(sketches.space.default),
        trace,
        (1e-6,),
        uid="abc",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.db"
        with Database(path) as db:
            db.add(record, task)
            db.export_json(Path(folder) / "t.json")
            db._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return task, trace, (Path(folder) / "t.json").read_bytes(), path.read_bytes()


def _used(path: Path) -> str:
    """What becomes of a file: everything that it holds is read, built as a schedule, and looked up."""
    task = kept()[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_records(path) as db:
                db.tasks()
                db.machines()
                for record in db.records():
                    apply_record(db.task(record.workload, record.target), record)
            with History(str(path), machine="any") as history:
                tvm.auto_schedule(task.mod, task.target)
    except TVMError as error:
        return refused(error)
    return "applied" if history.used else "not applied"


@fuzzer("records", seconds=60, gib=3, short=20)
def records(rng: random.Random) -> str:
    """Damaged files of records are refused by an error of ours, or used; the program stays what it is."""
    lines = rng.randrange(2) == 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("t.json" if lines else "t.db")
        path.write_bytes(damaged(rng, kept()[2 if lines else 3]))
        return f"{'lines' if lines else 'database'}: {_used(path)}"


def hostile(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    """A trace with steps added, changed, removed or moved, of those that a file may have."""
    steps = json.loads(json.dumps(trace["steps"]))
    names = [n for s in steps for n in s.get("outputs", [])]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(steps))
        loops = [n for n in names if n.startswith("l")]
        blocks = [n for n in names if n.startswith("b")]
        match rng.randrange(5):
            case 0:
                key = rng.choice([*ANNOTATIONS, "prefetch_past_A"])
                many = "list" in ANNOTATIONS.get(key, ("",))[0]
                value: Any = (
                    [rng.randrange(3) for _ in range(rng.randrange(4))]
                    if many
                    else rng.choice([0, 1, 2, 4, 64])
                )
                ref = {"ref": rng.choice([*loops, *blocks])}
                steps.insert(
                    at,
                    {"step": "annotate", "kwargs": {"block_or_loop": ref, "ann_key": key, "ann_val": value}},
                )
            case 1:
                del steps[at]
            case 2:
                other = rng.randrange(len(steps))
                steps[at], steps[other] = steps[other], steps[at]
            case 3:
                for key, value in steps[at].get("kwargs", {}).items():
                    if isinstance(value, dict) and "ref" in value:
                        value["ref"] = rng.choice(names)
                    elif isinstance(value, int) and not isinstance(value, bool):
                        steps[at]["kwargs"][key] = rng.choice([0, 1, 2, 3, 5, 16, -1, 1 << 20])
                    elif isinstance(value, list):
                        steps[at]["kwargs"][key] = [rng.choice([None, 1, 2, 3, 5, 16]) for _ in value]
            case 4:
                kind = rng.choice(
                    ["parallel", "vectorize", "unroll", "compute_inline", "rfactor", "add_unit_loop"]
                )
                which = rng.choice(loops if "loop" in STEPS[kind] else blocks)
                name = next(iter(n for n in STEPS[kind] if n in ("loop", "block", "block_or_loop")))
                outputs = [f"x{rng.randrange(99)}"] if kind in ("rfactor", "add_unit_loop") else []
                steps.insert(at, {"step": kind, "kwargs": {name: {"ref": which}}, "outputs": outputs})
    return {**trace, "steps": steps}


@fuzzer("record_traces", seconds=60, gib=3, short=20)
def record_traces(rng: random.Random) -> str:
    """A trace of a file that is accepted gives a program that computes the same."""
    task, trace, _, _ = kept()
    sch = tir.Schedule(task.mod)
    try:
        Trace.apply_json_to_schedule(hostile(rng, trace), sch)
    except UntrustedStep:
        return "refused as untrusted"
    except TVMError as error:
        return refused(error)
    try:
        built = tvm.build(sch.mod, target="llvm")
    except TVMError as error:
        return refused(error, "refused when built")
    a, b = (
        np.arange(192, dtype="float32").reshape(12, 16) % 7,
        np.arange(320, dtype="float32").reshape(16, 20) % 5 - 2,
    )
    guard = np.full((3, 12, 20), 7, "float32")  # memory before and behind the result
    out = tvm.nd.array(guard[1])
    built(tvm.nd.array(a), tvm.nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), np.maximum(a @ b, 0), rtol=1e-4)
    return "equal"
