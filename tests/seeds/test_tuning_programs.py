"""The programs of the seed documents that tune with the automatic scheduler, with only their import line changed.

They run with few trials. Where a document tunes for "cuda", the program as it stands says what is missing; with the target
that the document gives for machines without a GPU it runs to the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import auto_scheduler, te
from tilewright.auto_scheduler.workload_registry import WORKLOAD_FUNC_REGISTRY
from tilewright.tune.errors import TuneError

# 000_c94b23ed02cfc284: AutoScheduler
TUNE_A_PRODUCT = """
from tilewright import auto_scheduler

# 1. Register workload
@auto_scheduler.register_workload
def matmul(M, N, K):
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))
    return [A, B, C]

# 2. Create task
task = auto_scheduler.SearchTask(
    func=matmul,
    args=(1024, 1024, 1024),
    target="cuda"
)

# 3. Configure tuning
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=1000,  # Try 1000 schedules
    measure_callbacks=[auto_scheduler.RecordToFile("matmul.json")]
)

# 4. Run auto-tuning
task.tune(tune_option)

# 5. Apply best schedule
sch, args = task.apply_best("matmul.json")
"""

FOR_CPU = ('target="cuda"', 'target="llvm"')
FOR_OPENCL = ('target="cuda"', 'target="opencl"')
FEW_TRIALS = ("num_measure_trials=1000", "num_measure_trials=4")
SMALL = ("1024, 1024, 1024", "96, 80, 64")


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    WORKLOAD_FUNC_REGISTRY.pop("matmul", None)


@pytest.mark.slow
def test_tune_a_product() -> None:
    """000_c94b23ed02cfc284: AutoScheduler."""
    scope: dict[str, Any] = {"te": te, "tvm": tvm}
    program = TUNE_A_PRODUCT
    for change in (FOR_CPU, FEW_TRIALS, SMALL):
        program = program.replace(*change)
    exec(program, scope)
    func = tvm.build(scope["sch"], scope["args"], "llvm")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((96, 64)).astype("float32"), rng.standard_normal((64, 80)).astype("float32")
    c = tvm.nd.empty((96, 80))
    func(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4, atol=1e-4)
    assert "main" in str(tvm.lower(scope["sch"], scope["args"], simple_mode=True))
    assert len(list(auto_scheduler.load_records("matmul.json"))) == 4


@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU")
def test_a_product_for_a_gpu_says_what_is_missing() -> None:
    """000_c94b23ed02cfc284: the same program as it stands."""
    scope: dict[str, Any] = {"te": te, "tvm": tvm}
    with pytest.raises(TuneError, match=r"there is no device cuda\(0\), so it cannot be measured here"):
        exec(TUNE_A_PRODUCT, scope)
    sch, args = auto_scheduler.auto_schedule(scope["task"])
    assert "threadIdx.x" in str(tvm.lower(sch, args))


@pytest.mark.slow
@pytest.mark.needs("opencl")
def test_tune_a_product_for_a_gpu() -> None:
    """000_c94b23ed02cfc284: the same program, for a GPU that is there."""
    scope: dict[str, Any] = {"te": te, "tvm": tvm}
    program = TUNE_A_PRODUCT
    for change in (
        FOR_OPENCL,
        ("num_measure_trials=1000", "num_measure_trials=2"),
        ("1024, 1024, 1024", "24, 32, 16"),
    ):
        program = program.replace(*change)
    exec(program, scope)
    func = tvm.build(scope["sch"], scope["args"], "opencl")
    rng, dev = np.random.default_rng(0), tvm.opencl(0)
    a, b = rng.standard_normal((24, 16)).astype("float32"), rng.standard_normal((16, 32)).astype("float32")
    c = tvm.nd.empty((24, 32), device=dev)
    func(tvm.nd.array(a, dev), tvm.nd.array(b, dev), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_phase_of_tuning(capsys: pytest.CaptureFixture[str]) -> None:
    """002_d39a76ab4d320c7f: Phase 5, set up a task, create a search policy, run tuning, apply the best schedule; in
    its quick mode. 003_6d17afb3b306fbc9 names the same package."""

    @auto_scheduler.register_workload("matmul")
    def matmul(n: int) -> list[Any]:
        A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        k = te.reduce_axis((0, n), name="k")
        return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]

    target = tvm.target.Target("llvm")
    task = tvm.auto_scheduler.SearchTask(func="matmul", args=(64,), target=target)
    print("Computational DAG:", task.compute_dag, sep="\n")
    cost_model = auto_scheduler.XGBModel()
    search_policy = auto_scheduler.SketchPolicy(task, cost_model, verbose=0)
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=3,
        runner=auto_scheduler.LocalRunner(repeat=3, enable_cpu_cache_flush=True),
        measure_callbacks=[auto_scheduler.RecordToFile("matmul.json")],
        verbose=2,
    )
    task.tune(tune_option, search_policy=search_policy)
    sch, args = task.apply_best("matmul.json")
    func = tvm.build(sch, args, target)
    dev = tvm.device("llvm", 0)
    arrays = [tvm.nd.array(np.ones((64, 64), "float32"), dev) for _ in range(3)]
    seconds = func.time_evaluator(func.entry_name, dev, number=2)(*arrays).mean
    print(f"Execution time: {1e3 * seconds:.3f} ms")
    print("Equivalent python schedule:", task.print_best("matmul.json"), sep="\n")
    np.testing.assert_array_equal(arrays[2].numpy(), 64.0)
    shown = capsys.readouterr().out
    assert "C(i, j) += A[i, k] * B[k, j]" in shown and "sch.vectorize(" in shown
