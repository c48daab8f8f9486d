"""Programs by name: keys, the registry, tasks, and the small helpers."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scheduler_fakes import TARGET, matmul_task

import tilewright as tvm
from tilewright import auto_scheduler, te
from tilewright.auto_scheduler import utils, workload_registry
from tilewright.testing import auto_scheduler as programs


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    held = dict(workload_registry.WORKLOAD_FUNC_REGISTRY)
    yield
    workload_registry.WORKLOAD_FUNC_REGISTRY.clear()
    workload_registry.WORKLOAD_FUNC_REGISTRY.update(held)


def scaled(n: int) -> list[Any]:
    A = te.placeholder((n, n), name="A")
    return [A, te.compute((n, n), lambda i, j: A[i, j] * 2.0, name="B")]


def test_functions_are_registered_by_decorator_and_by_name() -> None:
    @auto_scheduler.register_workload
    def first(n: int) -> list[Any]:
        return scaled(n)

    auto_scheduler.register_workload("second", scaled)

    @auto_scheduler.register_workload("third")
    def third(n: int) -> list[Any]:
        return scaled(n)

    assert workload_registry.WORKLOAD_FUNC_REGISTRY["second"] is scaled
    assert auto_scheduler.make_workload_key("second", (8,)) == '["second", 8]'
    assert auto_scheduler.make_workload_key(first, (8,)) == json.dumps([first.__qualname__, 8])
    A, B = workload_registry.workload_key_to_tensors('["third", 8]')
    assert A.op.name == "A" and [int(d) for d in B.shape] == [8, 8]


def test_a_name_is_taken_once() -> None:
    auto_scheduler.register_workload("mine", scaled)
    with pytest.raises(RuntimeError, match="mine has been registered already"):
        auto_scheduler.register_workload("mine", scaled)
    auto_scheduler.register_workload("mine", lambda n: scaled(n), override=True)


def test_what_is_not_registered_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scaled is not registered; put @auto_scheduler.register_workload"):
        auto_scheduler.make_workload_key(scaled, (8,))
    with pytest.raises(ValueError, match=r"the program of .* is not known here"):
        auto_scheduler.SearchTask(workload_key='["nobody", 3]', target="llvm")
    with pytest.raises(ValueError, match="SearchTask takes func= and args="):
        auto_scheduler.SearchTask(target="llvm")


def test_tensors_among_arguments_are_their_shapes_and_types() -> None:
    auto_scheduler.register_workload(
        "of_tensor", lambda A, k: [A, te.compute(A.shape, lambda i: A[i] + k, name="B")]
    )
    key = auto_scheduler.make_workload_key("of_tensor", (te.placeholder((7,), "float64", "A"), 3))
    assert key == '["of_tensor", ["TENSOR", [7], "float64"], 3]'
    A, _ = workload_registry.workload_key_to_tensors(key)
    assert str(A.dtype) == "float64" and int(A.shape[0]) == 7


def test_tensors_are_registered_and_sent() -> None:
    key = auto_scheduler.register_workload_tensors('["my-hash", 4]', scaled(4))
    assert [t.op.name for t in workload_registry.workload_key_to_tensors(key)] == ["A", "B"]
    data = pickle.loads(pickle.dumps(workload_registry.serialize_workload_registry_entry(key)))
    before = auto_scheduler.SearchTask(workload_key=key, target="llvm")
    del workload_registry.WORKLOAD_FUNC_REGISTRY['["my-hash", 4]']
    workload_registry.deserialize_workload_registry_entry(data)
    again = auto_scheduler.SearchTask(workload_key=key, target="llvm")
    assert again.task.workload == before.task.workload
    name, value = workload_registry.serialize_workload_registry_entry(
        '["matmul_auto_scheduler_test", 1, 1, 1]'
    )
    assert name == "matmul_auto_scheduler_test" and value is programs.matmul_auto_scheduler_test


def test_a_task_of_a_function_of_a_key_and_of_a_program_are_one() -> None:
    task = matmul_task(32)
    assert task.workload_key == '["matmul_auto_scheduler_test", 32, 32, 32]'
    by_key = auto_scheduler.SearchTask(workload_key=task.workload_key, target=TARGET)
    by_dag = auto_scheduler.SearchTask(compute_dag=task.compute_dag, target=TARGET)
    assert task.task.workload == by_key.task.workload == by_dag.task.workload
    assert task.compute_dag == by_dag.compute_dag and hash(task.compute_dag) == hash(by_dag.compute_dag)
    # a key that was made of the program is enough from then on
    assert auto_scheduler.SearchTask(workload_key=by_dag.workload_key, target=TARGET).compute_dag.tensors
    assert json.loads(by_dag.workload_key)[1:] == [[32, 32], [32, 32], [32, 32]]
    sent = pickle.loads(pickle.dumps(by_dag))
    assert sent.workload_key == by_dag.workload_key and str(sent.target) == str(by_dag.target)


def test_the_target_is_the_one_at_hand() -> None:
    with tvm.target.Target(TARGET):
        task = auto_scheduler.SearchTask(func=programs.matmul_auto_scheduler_test, args=(8, 8, 8))
    assert str(task.target) == str(tvm.target.Target(TARGET))
    assert (
        auto_scheduler.create_task(programs.matmul_auto_scheduler_test, (8, 8, 8), "llvm").target_host is None
    )


def test_hardware_params_are_those_of_the_target() -> None:
    assert matmul_task().hardware_params.num_cores == 4
    assert matmul_task().hardware_params.vector_unit_bytes == 64
    gpu = auto_scheduler.HardwareParams(target="cuda", warp_size=16)
    assert (gpu.max_threads_per_block, gpu.warp_size) == (1024, 16)
    given = auto_scheduler.HardwareParams(num_cores=2, vector_unit_bytes=32, cache_line_bytes=64)
    with pytest.warns(
        RuntimeWarning, match="hardware_params say 2 cores.*give them in the target: llvm -num-cores=2"
    ):
        task = auto_scheduler.SearchTask(
            func=programs.matmul_auto_scheduler_test, args=(8, 8, 8), target=TARGET, hardware_params=given
        )
    assert task.hardware_params is given and "num_cores: 2" in str(given)


def test_inputs_with_values_of_their_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    index = np.arange(5, dtype="int32")
    A, at = te.placeholder((9,), name="A"), te.placeholder((5,), "int32", name="at")
    dag = auto_scheduler.ComputeDAG([A, at, te.compute((5,), lambda i: A[at[i]], name="B")])
    task = auto_scheduler.SearchTask(
        compute_dag=dag, target="llvm", task_inputs={"at": index}, task_inputs_save_to_file=True
    )
    assert task.task_input_names == ["at"] and task.task.inputs["at"] is index
    assert (tmp_path / "at.5_int32.npy").exists()
    assert auto_scheduler.measure.get_task_input_buffer(task.workload_key, "at") is index
    # what is registered stays, unless it is to be overwritten; a file is as good
    other = tvm.nd.array(index[::-1].copy())
    register = auto_scheduler.register_task_input_buffer
    assert register(task.workload_key, "at", other) is index
    assert list(register(task.workload_key, "at", other, overwrite=True)) == [4, 3, 2, 1, 0]
    assert list(register("another", "at", other)) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="A of another has no registered value; those that have: at"):
        auto_scheduler.measure.get_task_input_buffer("another", "A")


def test_inputs_that_a_function_finds_out() -> None:
    auto_scheduler.register_workload("gather", lambda: _gather())

    @auto_scheduler.register_task_input_check_func("gather")
    def check(tensors: Any) -> dict[Any, str]:
        return {tensors[1]: "permutation"}

    key = auto_scheduler.make_workload_key("gather", ())
    values = np.arange(5, dtype="int32")
    auto_scheduler.register_task_input_buffer(key, "permutation", values)
    task = auto_scheduler.SearchTask(func="gather", args=(), target="llvm", task_inputs=["permutation"])
    assert task.task.inputs == {"at": values}


def _gather() -> list[Any]:
    A, at = te.placeholder((9,), name="A"), te.placeholder((5,), "int32", name="at")
    return [A, at, te.compute((5,), lambda i: A[at[i]], name="B")]


def test_helpers() -> None:
    assert utils.get_const_tuple(te.placeholder((3, 4)).shape) == (3, 4)
    assert utils.decode_workload_key('["f", 1, [2, 3]]') == ("f", (1, (2, 3)))
    assert utils.decode_workload_key("f") == (None, None)
    assert utils.get_func_name(scaled) == "scaled"
    factor = utils.calc_workload_dis_factor
    assert factor(("f", [8, [4, 4]]), ("f", [8, [2, 4]])) == 2
    assert factor(("f", [8]), ("g", [8])) == math.inf == factor(("f", [8]), ("f", [3]))
    assert utils.to_str_round([1.23456789, "x", 3], 2) == "[1.23, x, 3]"
    assert utils.array_mean([1, 2]) == 1.5 and not utils.check_remote("key", "127.0.0.1", 1)
    with pytest.raises(RuntimeError, match=r"127\.0\.0\.1:1: no connection .*is a server running there"):
        utils.request_remote("key", "127.0.0.1", 1)
    layout = auto_scheduler.get_shape_from_rewritten_layout
    assert layout("4i8j16i", ["i", "j"]) == [64, 8]
    with pytest.raises(ValueError, match="has no axis k"):
        layout("4i8j", ["i", "k"])


@pytest.mark.parametrize(
    "name, args",
    [
        ("matmul_auto_scheduler_test", (16, 16, 16)),
        ("parallel_matmul_auto_scheduler_test", (16,)),
        ("double_matmul_auto_scheduler_test", (16,)),
        ("min_nm_auto_scheduler_test", (4, 8)),
        ("conv2d_winograd_nhwc_auto_scheduler_test", (1, 6, 6, 4, 4, 3, 1, 1)),
        ("matmul_auto_scheduler_test_rename_1", (16, 16, 16)),
        ("conv2d_nchw_bn_relu_auto_scheduler_test", (1, 8, 8, 4, 4, 3, 1, 1)),
        ("max_pool2d_auto_scheduler_test", (1, 8, 8, 4, 1)),
        ("softmax_nm_auto_scheduler_test", (4, 8)),
        ("zero_rank_reduce_auto_scheduler_test", (32,)),
        ("zero_rank_compute_auto_scheduler_test", (32,)),
    ],
)
def test_programs_of_tests_have_schedules(name: str, args: tuple[int, ...]) -> None:
    task = auto_scheduler.SearchTask(func=name, args=args, target="llvm")
    sch, tensors = auto_scheduler.auto_schedule(task)
    assert (task.compute_dag.flop_ct > 0) == (name != "zero_rank_compute_auto_scheduler_test")  # a copy
    assert [a.name for a in tvm.lower(sch, tensors)["main"].buffer_map.values()]
    assert sch.verify()
