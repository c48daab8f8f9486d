"""Lines of TVM's own Ansor logs: read, applied, written, and printed as code for a te.Schedule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tilewright as tvm
from tilewright import auto_scheduler, te, topi
from tilewright.auto_scheduler import _ffi_api
from tilewright.auto_scheduler.loop_state import State
from tilewright.auto_scheduler.measure_record import dump_record_to_string, load_record_from_string
from tilewright.auto_scheduler.workload_registry import WORKLOAD_FUNC_REGISTRY
from tilewright.ir.errors import UnsupportedError
from tilewright.tune.errors import RecordError


@auto_scheduler.register_workload("classic_logs_matmul_add", override=True)
def matmul_add(n: int) -> list[Any]:
    A, B, D = (te.placeholder((n, n), name=name) for name in "ABD")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return [A, B, D, te.compute((n, n), lambda i, j: C[i, j] + D[i, j], name="E")]


# As TVM's search writes them: tiles of C inside the fused tiles of E, whose outer loops are fused afterwards.
STEPS = [
    ["SP", 2, 0, 16, [2, 1, 4], 1],
    ["SP", 2, 4, 16, [1, 1, 8], 1],
    ["SP", 2, 8, 16, [4], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
    ["FSP", 4, 0, 0, 2],
    ["FSP", 4, 3, 1, 2],
    ["RE", 4, [0, 3, 1, 4, 2, 5]],
    ["CA", 2, 4, 1],
    ["FU", 4, [0, 1]],
    ["AN", 4, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$8"],
    ["AN", 2, 9, 2],
    ["AN", 4, 4, 2],
]
KEY = '["classic_logs_matmul_add", 16]'


def line(steps: list[Any] = STEPS, seconds: float = 1e-3, error: int = 0, key: str = KEY) -> str:
    task = [key, "llvm -keys=cpu", [4, 64, 64, 0, 0, 0, 0, 0], "", 1, []]
    data = {"i": [task, [[], steps]], "r": [[seconds], error, 0.2, 1607112214], "v": "v0.6"}
    return json.dumps(data) + "\n"


def test_a_log_of_tvm_is_applied(tmp_path: Path) -> None:
    log = tmp_path / "matmul.json"
    log.write_text("# a comment\n" + line([], 2e-3) + line() + line([["CI", 2]], 1e-9, error=4))
    task = auto_scheduler.SearchTask(workload_key=KEY, target="llvm")
    pairs = list(auto_scheduler.load_records(log))
    assert [(float(r.costs[0]) if r.costs else None, r.error_no) for _, r in pairs] == [
        (2e-3, 0),
        (1e-3, 0),
        (None, 4),
    ]
    assert pairs[0][0].task.hardware_params.num_cores == 4
    sch, args = task.apply_best(log)
    tvm.ir.assert_structural_equal(sch.mod, pairs[1][0].state.schedule.mod)
    assert sch.verify() and [a.op.name for a in args] == ["A", "B", "D", "E"]
    inp, res = auto_scheduler.load_best_record(log, KEY)
    assert res is not None and float(res.costs[0]) == 1e-3 and inp is not None
    with auto_scheduler.ApplyHistoryBest(log):
        tvm.ir.assert_structural_equal(tvm.auto_schedule(task.compute_dag.mod, "llvm").mod, sch.mod)


def test_the_best_of_a_log_as_code(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(line())
    task = auto_scheduler.SearchTask(workload_key=KEY, target="llvm")
    code = task.print_best(tmp_path / "log.json")
    assert code.splitlines()[2] == "C_i_rest0, C_i_3 = s[C].split(C_i, factor=4)"
    tensors = {op.name: op.output(0) for op in task.compute_dag.ops}
    s = te.create_schedule(tensors["E"].op)
    exec(code, {"te": te, "s": s, **tensors})
    made = s.to_prim_func(task.compute_dag.tensors)
    tvm.ir.assert_structural_equal(made, task.apply_best(tmp_path / "log.json")[0].mod["main"])


def every_step() -> State:
    A, B = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    k = te.reduce_axis((0, 16), name="k")
    R = topi.nn.relu(A)
    C = te.compute((16, 16), lambda i, j: te.sum(R[i, k] * B[k, j], axis=k), name="C")
    dag = auto_scheduler.ComputeDAG([A, B, C])
    s = dag.get_init_state()
    ko, _ = s.split(C, s[C].iters[2], [4], False)
    s.rfactor(C, ko, 2)
    local = s.cache_write(C, "local")
    s.split(C, s[C].iters[0], [4])
    s.compute_at(local, C, s[C].iters[0])
    shared = s.cache_read(B, "shared", [s.stage_ops[3]])
    s.storage_align(shared, s[shared].iters[0], 8, 4)
    s.compute_inline(R)
    s.pragma(C, s[C].iters[0], "auto_unroll_max_step$16")
    s.unroll(C, s[C].iters[1])
    return s


def test_all_kinds_of_steps_come_back() -> None:
    state = every_step()
    task = auto_scheduler.SearchTask(
        compute_dag=state.compute_dag, workload_key="classic-logs-all", target="llvm"
    )
    res = auto_scheduler.MeasureResult([0.5], 0, "", 0.2, 7)
    text = dump_record_to_string(auto_scheduler.MeasureInput(task, state), res)
    kinds = {step[0] for step in json.loads(text)["i"][1][1]}
    assert kinds == {"SP", "RF", "CHW", "CA", "CHR", "SA", "CI", "PR", "AN"}
    inp, again = load_record_from_string(text)
    assert inp.state == state and str(again) == str(res)
    tvm.ir.assert_structural_equal(inp.state.schedule.mod, state.schedule.mod)
    assert dump_record_to_string(inp, again) == text


def test_a_program_that_is_not_registered(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(line(key='["0123abcd", 1, 16]'))
    ((inp, res),) = auto_scheduler.load_records(tmp_path / "log.json")
    assert inp.task.workload_key == '["0123abcd", 1, 16]' and res.error_no == 0
    assert len(inp.state.transform_steps) == len(STEPS)
    with pytest.raises(UnsupportedError, match="is not registered here, so its steps cannot be applied"):
        _ = inp.state.schedule
    with pytest.warns(RuntimeWarning, match="their programs are not registered here"):
        assert auto_scheduler.load_best_record(tmp_path / "log.json") == (None, None)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([["XX", 1]], "there is no step 'XX'"),
        ([["PR", 2, 0, "import_c$1"]], "is not one that a search writes"),
        ([["AN", 2, 0, 99]], "the annotation 99 of a loop cannot be applied"),
        ([["SP", 2]], "TypeError"),
    ],
)
def test_lines_that_are_damaged(steps: list[Any], why: str) -> None:
    with pytest.raises(RecordError, match=why):
        load_record_from_string(line(steps))


def test_steps_that_no_longer_apply(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(line([["CI", 4]]) + line([], 5e-3))
    task = auto_scheduler.SearchTask(workload_key=KEY, target="llvm")
    with pytest.raises(tvm.TVMError):  # an output cannot be inlined
        _ = next(iter(auto_scheduler.load_records(tmp_path / "log.json")))[0].state.schedule
    assert auto_scheduler.SearchTask.best_record(task, tmp_path / "log.json").time == 5e-3


def test_tasks_as_text() -> None:
    task = auto_scheduler.SearchTask(workload_key=KEY, target="llvm")
    again = _ffi_api.DeserializeSearchTask(_ffi_api.SerializeSearchTask(task))
    assert (again.workload_key, str(again.target)) == (task.workload_key, str(task.target))
    older = _ffi_api.DeserializeSearchTask(json.dumps([KEY, "llvm"]))
    assert older.workload_key == KEY and older.task_input_names == []
    assert KEY not in WORKLOAD_FUNC_REGISTRY  # the function is, under its name
