"""A task and records for tests of tuners, and a runner that measures nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import autotvm, te
from ..autotvm.measure import MeasureInput, MeasureResult, Runner
from ..target import Target


class DummyRunner(Runner):
    """Every configuration takes some time between 0 and 1 s, by chance."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(1, 1)
        self._rng = np.random.default_rng(seed)

    def run(self, measure_inputs: Sequence[Any], build_results: Sequence[Any]) -> list[Any]:
        return [MeasureResult((float(self._rng.random()),), 0, 0.2, time.time()) for _ in measure_inputs]

    def get_build_kwargs(self) -> dict[str, Any]:
        return {}


@autotvm.template("testing/matmul")  # type: ignore[untyped-decorator]
def matmul(N: int, L: int, M: int, dtype: str) -> Any:
    """A product in tiles; a tile of one column is not a tile, so that the number of loops differs."""
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    (r,) = s[C].op.reduce_axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, C, y)
    if cfg["tile_x"].size[-1] > 1:
        xo, xi = cfg["tile_x"].apply(s, C, x)
        s[C].reorder(yo, xo, r, yi, xi)
    else:
        s[C].reorder(yo, r, yi, x)
    return s, [A, B, C]


@autotvm.template("testing/bad_matmul")  # type: ignore[untyped-decorator]
def bad_matmul(N: int, L: int, M: int, dtype: str) -> Any:
    """The product, but with the last term left out on targets with the key `bad_device`."""
    target = Target.current(allow_none=True)
    if target is None or "bad_device" not in target.keys:
        return matmul(N, L, M, dtype)
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    k = te.reduce_axis((0, L - 1), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    return s, [A, B, C]


def get_sample_task(n: int = 128) -> tuple[Any, Target]:
    """The product of matrices of a size as a task, and its target."""
    target = Target("llvm")
    return autotvm.task.create("testing/matmul", args=(n, n, n, "float32"), target=target), target


def get_sample_records(n: int) -> list[tuple[MeasureInput, MeasureResult]]:
    """Records of the task, of which each is slower than the one before."""
    task, target = get_sample_task()
    out = []
    for i in range(n):
        config = task.config_space.get(i % len(task.config_space))
        out.append((MeasureInput(target, task, config), MeasureResult((i + 1.0,), 0, float(i), time.time())))
    return out
