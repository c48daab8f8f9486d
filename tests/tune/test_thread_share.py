"""What threads share: what the model counts is what the schedule does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.stmt import ForKind

MACHINE = tvm.target.Target("llvm -mcpu=znver4 -num-cores=4")


def conv(cin: int, cout: int, size: int, kernel: int, stride: int, pad: int) -> list[Any]:
    x = te.placeholder((1, cin, size, size), name="x")
    w = te.placeholder((cout, cin, kernel, kernel), name="w")
    b = te.placeholder((1, cout, 1, 1), name="b")
    y = topi.nn.relu(topi.add(topi.nn.conv2d(x, w, stride, pad, 1), b))
    return [x, w, b, y]


SHAPES = [
    (64, 256, 13, 3, 1, 1),
    (3, 64, 111, 3, 2, 0),
    (256, 32, 27, 1, 1, 0),
    (32, 100, 29, 5, 1, 2),
    (128, 1000, 13, 1, 1, 0),
    (17, 31, 19, 3, 1, 1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_parallel_loop_has_the_turns_that_were_counted(shape: tuple[int, ...]) -> None:
    with tvm.transform.PassContext(config={"tilewright.winograd": 0}):
        sch: Any = tvm.auto_schedule(te.create_prim_func(conv(*shape)), MACHINE, constants=("w",))
    told = {r["stage"]: r for r in sch.explanation.records}["conv2d_nchw"]
    loops = [sch.loop(x) for x in sch.get_loops(sch.get_block("conv2d_nchw"))]
    threads = [x for x in loops if x.kind is ForKind.PARALLEL]
    assert [int(x.extent) for x in threads] == (
        [told["parallel_units"]] if told["parallel_units"] > 1 else []
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tiles_at_the_edges_compute_what_plain_loops_do(shape: tuple[int, ...]) -> None:
    args = conv(*shape)
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal([int(n) for n in a.shape], dtype=np.float32) for a in args[:3])
    results = []
    for f in (tvm.build(te.create_prim_func(args), target="llvm"), tvm.compile(args, "llvm -num-cores=2")):
        out = tvm.nd.array(np.full([int(n) for n in args[3].shape], np.nan, np.float32))
        f(tvm.nd.array(x), tvm.nd.array(w), tvm.nd.array(b), out)
        results.append(out.numpy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)
