"""The programs of the seed documents about templates and the search over them, with only their import line changed.

They run with few trials. A test's name says what the program is; its docstring names the document.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import autotvm, te
from tilewright.tir.tensor_intrin import intrin as intrinsics

# 000_c94b23ed02cfc284: Advanced Topics, 2. Tensor Cores
TENSOR_CORES = """
# Use tensor cores for matmul
with tvm.target.Target("cuda"):
    # Enable tensor core
    cfg.define_knob("use_tensorcore", [0, 1])
    
    if cfg["use_tensorcore"].val:
        # Use WMMA (Warp Matrix Multiply Accumulate)
        intrin = tvm.tir.TensorIntrin.register(
            "wmma_sync",
            wmma_sync_desc,
            wmma_sync_impl
        )
"""

# 000_c94b23ed02cfc284: Core Concepts, 2. Schedule; the sizes are left open
SCHEDULE = """
# Create schedule
s = te.create_schedule(C.op)

# Apply optimizations (tiling, parallelization, etc.)
xo, xi = s[C].split(C.op.axis[0], factor=32)
s[C].parallel(xo)
s[C].vectorize(xi)
"""


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    known = dict(intrinsics._table)
    yield
    intrinsics._table.clear()
    intrinsics._table.update(known)


@pytest.mark.usefixtures("_as_it_was")
def test_a_knob_for_tensor_cores() -> None:
    """000_c94b23ed02cfc284: Advanced Topics, 2. Tensor Cores."""
    wmma = tvm.tir.TensorIntrin.get("wmma_sync_16x16x16_f16f16f32")
    registered: list[bool] = []

    @autotvm.template("seeds/tensor_cores")
    def product(n: int) -> Any:
        A = te.placeholder((n, n), "float16", name="A")
        B = te.compute((n, n), lambda i, j: A[i, j] + A[j, i], name="B")
        scope = {
            "tvm": tvm,
            "cfg": autotvm.get_config(),
            "wmma_sync_desc": wmma.desc,
            "wmma_sync_impl": wmma.impl,
        }
        exec(TENSOR_CORES, scope)
        registered.append("intrin" in scope)
        return te.create_schedule(B.op), [A, B]

    task = autotvm.task.create("seeds/tensor_cores", args=(32,), target="cuda")
    assert [task.config_space.get(i)["use_tensorcore"].val for i in range(len(task.config_space))] == [0, 1]
    for i in range(2):
        task.instantiate(task.config_space.get(i))
    assert registered == [False, False, True]  # while the space is collected, then for each configuration
    assert tvm.tir.TensorIntrin.get("wmma_sync").desc is wmma.desc


@autotvm.template("seeds/addition")
def addition(n: int) -> Any:
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    cfg = autotvm.get_config()
    cfg.define_split("x", C.op.axis[0], num_outputs=2, filter=lambda e: 4 <= e.size[-1] <= 64)
    scope = {"te": te, "C": C}
    exec(SCHEDULE.replace("factor=32", f"factor={cfg['x'].size[-1]}"), scope)
    return scope["s"], [A, B, C]


def test_the_same_computation_has_many_schedules() -> None:
    """000_c94b23ed02cfc284: Core Concepts, 2. Schedule."""
    task = autotvm.task.create("seeds/addition", args=(1024,), target="llvm")
    factors = [task.config_space.get(i)["x"].size[-1] for i in range(len(task.config_space))]
    assert factors == [4, 8, 16, 32, 64]
    plain = tvm.lower(*task.instantiate(task.config_space.get(3)))
    assert "T.parallel(32)" in str(plain) and "C[i_outer * 32:i_outer * 32 + 32] = " in str(plain)


# 001_1e32228900fa6a2d: 2.1 Core Concept, with the sizes as arguments
EXPRESSION = """
A = t.placeholder((m, h), name='A')
B = t.placeholder((n, h), name='B')
k = t.reduce_axis((0, h), name='k')
C = t.compute((m, n), lambda y, x: t.sum(A[k, y] * B[k, x], axis=k))
"""


@autotvm.template("seeds/product")
def transposed_product(m: int, n: int, h: int) -> Any:
    scope: dict[str, Any] = {"t": te, "m": m, "n": n, "h": h}
    exec(textwrap.dedent(EXPRESSION), scope)
    A, B, C = scope["A"], scope["B"], scope["C"]
    s = te.create_schedule(C.op)
    x, y = s[C].op.axis
    cfg = autotvm.get_config()
    cfg.define_split("x", x, num_outputs=2)
    cfg.define_split("y", y, num_outputs=2)
    cfg.define_annotate("inner", [y], policy="try_unroll_vec")
    xo, xi = cfg["x"].apply(s, C, x)
    yo, yi = cfg["y"].apply(s, C, y)
    s[C].reorder(xo, yo, s[C].op.reduce_axis[0], xi, yi)  # 3.1 From Halide
    cfg["inner"].apply(s, C, [yi], axis_lens=[cfg["y"].size[-1]], max_unroll=16, cfg=cfg)
    return s, [A, B, C]


@pytest.mark.slow
def test_the_schedule_explorer(tmp_path: Path) -> None:
    """001_1e32228900fa6a2d: 5. ML-Based Cost Model: propose, ask the model, run the best of them, update the model."""
    task = autotvm.task.create("seeds/product", args=(32, 32, 32), target="llvm -num-cores=1")
    log = tmp_path / "records.json"
    runner = autotvm.LocalRunner(repeat=2, timeout=60)
    tuner = autotvm.tuner.XGBTuner(task, plan_size=8, optimizer="sa")
    tuner.tune(
        n_trial=16,
        measure_option=autotvm.measure_option(builder=autotvm.LocalBuilder(n_parallel=1), runner=runner),
        callbacks=[autotvm.callback.log_to_file(log)],
    )
    runner.close()
    assert tuner.train_ct == 2 and tuner.best_flops > 0
    with autotvm.apply_history_best(log), tvm.target.Target("llvm"):
        func = tvm.build(*transposed_product(32, 32, 32), target="llvm")
    a, b = np.random.default_rng(0).random((2, 32, 32), "float32")
    c = tvm.nd.array(np.zeros((32, 32), "float32"))
    func(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a.T @ b, rtol=1e-5)
