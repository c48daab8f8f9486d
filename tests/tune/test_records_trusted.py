"""A file of records can change the speed of a program, and nothing else."""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import auto_scheduler, te, tir, topi, tune
from tilewright.ir import IRModule
from tilewright.ir.errors import ScheduleError
from tilewright.ir.serialize import save_json
from tilewright.tir.schedule.from_files import ANNOTATIONS, STEPS, UntrustedStep, untrusted
from tilewright.tir.schedule.trace import Trace
from tilewright.tune.errors import RecordError
from tilewright.tune.measure.machines import fingerprint
from tilewright.tune.records.database import Database, Record
from tilewright.tune.records.files import open_records
from tilewright.tune.records.history import History
from tilewright.tune.records.programs import check_program
from tilewright.tune.search.search import apply_record
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task, task_of

LLVM_CODE = "define void @strange() { ret void }"


def matmul(n: int = 16, dtype: str = "float32") -> list[Any]:
    A, B = te.placeholder((n, n), dtype, name="A"), te.placeholder((n, n), dtype, name="B")
    return [A, B, topi.matmul(A, B)]


def conv() -> list[Any]:
    x, w = te.placeholder((1, 32, 14, 14), name="x"), te.placeholder((32, 32, 3, 3), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1))]


def softmax() -> list[Any]:
    x = te.placeholder((64, 512), name="x")
    return [x, topi.nn.softmax(x)]


def transposed() -> list[Any]:
    x = te.placeholder((512, 512), name="x")
    return [x, topi.transpose(x)]


def norm() -> list[Any]:
    x, g, b = te.placeholder((8, 4096), name="x"), te.placeholder((4096,)), te.placeholder((4096,))
    return [x, topi.nn.layer_norm(x, g, b, [1]), g, b]


def attention() -> list[Any]:
    q, k, v = (te.placeholder((2, 128, 64), "float16", name=n) for n in "qkv")
    scores = topi.nn.softmax(topi.nn.batch_matmul(q, k, out_dtype="float32") * 0.125)
    return [
        q,
        k,
        v,
        topi.nn.batch_matmul(topi.cast(scores, "float16"), v, out_dtype="float32", transpose_b=False),
    ]


CPU = "llvm -mcpu=skylake-avx512 -num-cores=4"
SEARCHES: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "matmul": (lambda: matmul(64), CPU),
    "matmul int8": (lambda: matmul(64, "int8"), "llvm -mcpu=cascadelake -num-cores=4"),
    "conv": (conv, CPU),
    "softmax": (softmax, CPU),
    "transpose": (transposed, CPU),
    "norm": (norm, CPU),
    "gpu matmul": (lambda: matmul(512, "float16"), "cuda -arch=sm_80"),
    "gpu matmul f32": (lambda: matmul(1024), "cuda -arch=sm_90a"),
    "hopper matmul": (lambda: matmul(1024, "float16"), "cuda -arch=sm_90a"),
    "gpu conv": (conv, "cuda -arch=sm_90a"),
    "gpu softmax": (softmax, "cuda -arch=sm_90a"),
    "gpu norm": (norm, "cuda -arch=sm_80"),
    "attention": (attention, "cuda -arch=sm_90a"),
}


def replayed(sketches: Sketches, decisions: Any) -> None:
    """A schedule of the search has steps of the table only, and they give the same program again."""
    made = sketches.apply(decisions)
    steps = made.trace.as_json()
    assert [why for why in map(untrusted, steps["steps"]) if why] == []
    again = tir.Schedule(sketches.task.mod)
    Trace.apply_json_to_schedule(json.loads(json.dumps(steps)), again)
    tvm.ir.assert_structural_equal(again.mod, made.mod)


def sketches_of(name: str) -> Sketches:
    program, target = SEARCHES[name]
    constants = {"conv": ("w",), "matmul": ("B",)}.get(name, ())
    return Sketches(task_of(program(), target, constants=constants))


@pytest.mark.parametrize("name", SEARCHES)
def test_the_table_has_what_schedules_without_trials_write(name: str) -> None:
    replayed(sketches_of(name), None)


def _slow(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow) if "cuda" in SEARCHES[name][1] else name


@pytest.mark.parametrize("name", [_slow(n) for n in SEARCHES if n != "attention"])  # which has no choices
def test_the_table_has_all_that_searches_write(name: str) -> None:
    sketches = sketches_of(name)
    rng = np.random.default_rng(1)
    for row in sketches.space.sample(rng, 3):
        replayed(sketches, sketches.space.decisions(row))


def calls_of_rules() -> Iterator[tuple[str, str, ast.Call]]:
    """What the files of the search call on a schedule."""
    primitives = tir.Schedule(te.create_prim_func(matmul())).primitives
    for file in sorted(Path(tune.__file__).parent.rglob("*.py")):
        inside = file.relative_to(Path(tune.__file__).parent).with_suffix("")
        module = ".".join(("tilewright.tune", *inside.parts))
        for n in ast.walk(ast.parse(file.read_text())):
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in primitives:
                owner = n.func.value
                if getattr(owner, "id", getattr(owner, "attr", "")) == "sch":
                    yield module, n.func.attr, n


@pytest.mark.slow
def test_the_table_has_all_that_the_rules_call() -> None:
    seen = set()
    for module, kind, call in calls_of_rules():
        assert kind in STEPS, f"{module}:{call.lineno}: {kind}"
        assert {k.arg for k in call.keywords} <= STEPS[kind], f"{module}:{call.lineno}: {kind}"
        if kind == "annotate":
            key = call.args[1]
            if isinstance(key, ast.JoinedStr):
                assert isinstance(key.values[0], ast.Constant) and key.values[0].value == "prefetch_past_"
                continue
            home = importlib.import_module(module)
            if isinstance(key, ast.Name):
                # a function that marks stages takes one of the keys of its module
                seen |= {getattr(home, key.id)} if hasattr(home, key.id) else set(home.PRAGMAS)
            else:
                seen.add(ast.literal_eval(key))
    assert seen <= set(ANNOTATIONS)
    # the rest is what auto_scheduler's states write
    assert set(ANNOTATIONS) - seen == {"pragma_auto_unroll_max_step"}


# ---------------------------------------------------------------------------- refusals
def first_loop(more: dict[str, Any]) -> dict[str, Any]:
    """A trace over the loops of the product, and one more step."""
    return {
        "format": "tilewright-trace-1",
        "steps": [
            {"step": "get_block", "kwargs": {"name": "T_matmul"}, "outputs": ["b0"]},
            {"step": "get_loops", "kwargs": {"block": {"ref": "b0"}}, "outputs": ["l0", "l1", "l2"]},
            more,
        ],
    }


def noted(key: str, value: Any) -> dict[str, Any]:
    return {
        "step": "annotate",
        "kwargs": {"block_or_loop": {"ref": "l0"}, "ann_key": key, "ann_val": value},
    }


LAYOUT = {"block": {"ref": "b0"}, "buffer": ["write", 0], "index_map": {"index_map": "lambda i, j: (j, i)"}}
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "llvm": (noted("pragma_import_llvm", LLVM_CODE), "`annotate` with 'pragma_import_llvm'"),
    "c": (noted("pragma_import_c", "int x;"), "`annotate` with 'pragma_import_c'"),
    "any pragma": (noted("pragma_debug_skip_region", 1), "`annotate` with 'pragma_debug_skip_region'"),
    "a value that is code": (noted("pragma_nontemporal", LLVM_CODE), "takes a whole number from 0"),
    "a negative value": (noted("reduce_lanes", -1), "takes a whole number from 0"),
    "a truth value": (noted("reduce_lanes", True), "takes a whole number from 0"),
    "a long list": (noted("software_pipeline_stage", [0] * 65), "takes a list of at most 64"),
    "a key that is not text": (
        {"step": "annotate", "kwargs": {"block_or_loop": {"ref": "l0"}, "ann_key": 3, "ann_val": 1}},
        "the key of an annotation is text",
    ),
    "annotate by position": (
        {"step": "annotate", "args": [{"ref": "l0"}, "pragma_import_llvm", LLVM_CODE]},
        "the arguments of `annotate` are damaged",
    ),
    "dtype": (
        {"step": "unsafe_set_dtype", "kwargs": {"block": {"ref": "b0"}, "buffer_index": 0, "dtype": "int8"}},
        "`unsafe_set_dtype` is not a step of the search",
    ),
    "predication": (
        {
            "step": "split",
            "kwargs": {"loop": {"ref": "l0"}, "factors": [None, 5], "disable_predication": True},
            "outputs": ["x", "y"],
        },
        "`split` with the argument `disable_predication`",
    ),
    "no primitive": ({"step": "mod"}, "`mod` is not a step of the search"),
    "a decision": (
        {"step": "parallel", "kwargs": {"loop": {"ref": "l0"}}, "decision": 1},
        "draws nothing",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_trace_that_does_more_is_refused(name: str) -> None:
    step, why = HOSTILE[name]
    sch = tir.Schedule(te.create_prim_func(matmul()))
    before = sch.mod
    with pytest.raises(UntrustedStep) as caught:
        Trace.apply_json_to_schedule(json.dumps(first_loop(step)), sch)
    assert str(caught.value).startswith("step 2 of the trace is refused: ") and why in str(caught.value)
    assert "trusted=True" in str(caught.value)
    assert sch.mod is before and not sch.trace.insts


def test_a_trusted_trace_does_anything() -> None:
    sch = tir.Schedule(te.create_prim_func(matmul()))
    Trace.apply_json_to_schedule(first_loop(HOSTILE["llvm"][0]), sch, trusted=True)
    assert "pragma_import_llvm" in str(sch.mod)


@pytest.mark.parametrize("pad", [None, 0])
def test_parameters_stay_what_callers_know(pad: int | None) -> None:
    """A layout of an output parameter would let callers hand over too little memory."""
    wide = {
        **LAYOUT,
        "index_map": {"index_map": "lambda i, j: (i, j)" if pad is None else "lambda i, j: (i * 2, j)"},
    }
    step = {"step": "transform_layout", "kwargs": wide if pad is None else {**wide, "pad_value": pad}}
    sch = tir.Schedule(te.create_prim_func(matmul()))
    before = sch.mod
    if pad is None:
        Trace.apply_json_to_schedule(first_loop(step), sch)  # the same layout
        return
    with pytest.raises(ScheduleError):
        Trace.apply_json_to_schedule(first_loop(step), sch)
    assert sch.mod is before
    swapped = first_loop({"step": "transform_layout", "kwargs": LAYOUT})
    narrow = tir.Schedule(te.create_prim_func([te.placeholder((4, 8), name="A"), *_twice()]))
    swapped["steps"][0]["kwargs"]["name"] = "twice"
    swapped["steps"][1]["outputs"] = ["l0", "l1"]
    with pytest.raises(UntrustedStep, match="changes the parameters of a function"):
        Trace.apply_json_to_schedule(swapped, narrow)


def test_what_a_trace_assumes_is_proved() -> None:
    """Two elements in one place, of an array that lives inside."""
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] * 2, name="twice")
    sch = tir.Schedule(te.create_prim_func([A, te.compute((4, 8), lambda i, j: B[i, j] + 1, name="more")]))
    step = {
        "step": "transform_layout",
        "kwargs": {
            "block": {"ref": "b0"},
            "buffer": ["write", 0],
            "index_map": {"index_map": "lambda i, j: (i // 2, j)"},
            "assume_injective_transform": True,
        },
    }
    trace = {
        "format": "tilewright-trace-1",
        "steps": [{"step": "get_block", "kwargs": {"name": "twice"}, "outputs": ["b0"]}, step],
    }
    before = sch.mod
    with pytest.raises(ScheduleError, match="cannot be laid out by it"):
        Trace.apply_json_to_schedule(trace, sch)
    assert sch.mod is before
    Trace.apply_json_to_schedule(trace, sch, trusted=True)


def _twice() -> list[Any]:
    A = te.placeholder((4, 8), name="A2")
    return [A, te.compute((4, 8), lambda i, j: A[i, j] * 2, name="twice")]


# ---------------------------------------------------------------------------- files
def task() -> Task:
    return task_of(matmul(), "llvm")


def record(trace: Any, of: Task) -> Record:
    return Record(
        of.workload,
        str(of.target),
        fingerprint(target=of.target),
        "ok",
        None,
        trace,
        (1e-6,),
        uid="abc",
        origin="winner",
    )


@pytest.fixture(params=["database", "lines"])
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file with a record that carries machine code."""
    of = task()
    with Database(tmp_path / "t.db", trusted=True) as db:
        db.add(record(first_loop(HOSTILE["llvm"][0]), of), of)
        if request.param == "lines":
            db.export_json(tmp_path / "t.json")
    return str(tmp_path / ("t.json" if request.param == "lines" else "t.db"))


SAID = r"record abc.*step 2 of the trace is refused: `annotate` with 'pragma_import_llvm'"


def test_every_reader_of_a_file_refuses_the_record(hostile: str, tmp_path: Path) -> None:
    readers: list[Callable[[], Any]] = [
        lambda: open_records(hostile).records(),
        lambda: open_records(hostile).best(task()),
        lambda: open_records(hostile).export_json(tmp_path / "out.json"),
        lambda: (
            Database(":memory:").merge(hostile)
            if hostile.endswith("db")
            else Database(":memory:").import_json(hostile)
        ),
        lambda: History(hostile).find(task()),
        lambda: list(auto_scheduler.load_records(hostile)),
        lambda: auto_scheduler.load_best_record(hostile),
    ]
    for read in readers:
        with pytest.raises(RecordError, match=SAID) as caught:
            read()
        assert hostile in str(caught.value)


def test_auto_schedule_refuses_the_record(hostile: str) -> None:
    with pytest.raises(RecordError, match=SAID), History(hostile):
        tvm.auto_schedule(task().mod, "llvm")


def test_a_record_given_as_an_object_is_refused_too() -> None:
    with pytest.raises(RecordError, match=SAID), History([record(first_loop(HOSTILE["llvm"][0]), task())]):
        tvm.auto_schedule(task().mod, "llvm")
    with pytest.raises(RecordError, match=SAID):
        apply_record(task(), record(first_loop(HOSTILE["llvm"][0]), task()))


def test_a_trusted_file_is_applied(hostile: str) -> None:
    with History(hostile, trusted=True) as history:
        made = tvm.auto_schedule(task().mod, "llvm")
    assert "pragma_import_llvm" in str(made.mod) and len(history.used) == 1
    inp, _ = next(iter(auto_scheduler.load_records(hostile, trusted=True)))
    assert "pragma_import_llvm" in str(inp.state.schedule.mod)


def test_views_and_triggers_of_strangers_are_refused(tmp_path: Path) -> None:
    import sqlite3

    with Database(tmp_path / "t.db") as db:
        db.add(record(None, task()), task())
    with sqlite3.connect(tmp_path / "t.db") as raw:
        raw.execute("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM workloads; END")
    with pytest.raises(RecordError, match=r"t\.db: a database of tuning records has no trigger 't'"):
        Database(tmp_path / "t.db")


# ---------------------------------------------------------------------------- programs
def program(body: str, head: str = "") -> IRModule:
    made = tvm.script.from_source(
        f'@T.prim_func\ndef main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32")):\n{head}'
        f'    for i in range(8):\n        with T.block("b"):\n            vi = T.axis.spatial(8, i)\n            {body}\n'
    )
    return IRModule({"main": made})


BAD: dict[str, tuple[str, str, str]] = {
    "extern": ('T.evaluate(T.call_extern("int32", "system", "true"))', "", "calls `tir.call_extern`"),
    "pure extern": ('B[vi] = T.call_pure_extern("int32", "abort")', "", "calls `tir.call_pure_extern`"),
    "packed": ('T.evaluate(T.call_packed("runtime.x", 1))', "", "calls `tir.call_packed`"),
    "address": ("T.evaluate(T.address_of(A[vi]))", "", "is a pointer"),
    "pointer": ('T.evaluate(T.reinterpret("handle", T.int64(4096)))', "", "is a pointer"),
    "past the end": (
        "A[vi + 1] = T.float32(0)",
        "",
        r"an index of `A`, `vi \+ 1`, is not known to be below 8",
    ),
    "before the start": ("A[vi - 1] = T.float32(0)", "", "an index of `A`"),
    "by data": ("A[B[vi]] = T.float32(0)", "", "an index of `A`"),
    "a predicate that lets through": (
        "A[vi + 4] = T.float32(0)",
        "",
        "an index of `A`",
    ),
    "code": (
        'T.block_attr({"pragma_import_llvm": "x"})\n            A[vi] = T.float32(0)',
        "",
        "has the attribute 'pragma_import_llvm'",
    ),
    "function": (
        "A[vi] = T.float32(0)",
        '    T.func_attr({"calling_conv": 2})\n',
        "has the attribute 'calling_conv'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_programs_of_files_only_compute(name: str, tmp_path: Path) -> None:
    body, head, why = BAD[name]
    mod = program(body, head)
    with pytest.raises(ScheduleError, match=why):
        check_program(mod, "trust it")
    of = task()
    with Database(tmp_path / "t.db") as db:
        db.take([(of.workload, "main", save_json(mod), "[]", "{}")], {}, [record(None, of)])
        with pytest.raises(RecordError, match=rf"t\.db: workload {of.workload}: its program .*{why}"):
            db.task(of.workload, "llvm")
    with Database(tmp_path / "t.db", trusted=True) as db:
        assert db.task(of.workload, "llvm").name == "main"


GOOD = {
    "clamped": "A[T.max(T.min(B[vi], 7), 0)] = T.float32(0)",
    "guarded": "A[vi] = T.if_then_else(vi < 7, A[vi + 1], T.float32(0))",
    "functions": "A[vi] = T.exp(A[vi]) + T.erf(A[vi])",
}


@pytest.mark.parametrize("name", GOOD)
def test_programs_that_compute_are_taken(name: str) -> None:
    check_program(program(GOOD[name]), "trust it")


@pytest.mark.parametrize("make", [matmul, conv, softmax, transposed, norm, attention])
def test_tasks_of_searches_are_taken(make: Callable[[], list[Any]]) -> None:
    check_program(task_of(make(), "llvm").mod, "trust it")


def test_reproducers_are_python_whatever_the_message_says(tmp_path: Path) -> None:
    from tilewright.tune.measure.reproduce import write_reproducer

    said = 'a \\x and a """ and a \\N{BAD} and \x00 and \r and \u2028 and a lone \ud800\nimport os\n\\'
    path = write_reproducer(tmp_path, task(), "t", None, task().mod, 0, said)
    text = Path(path).read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert [type(n).__name__ for n in tree.body] == ["Import", "ImportFrom", "Expr"]
    assert "\n# import os\n" in text
