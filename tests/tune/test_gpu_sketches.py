"""Schedules for GPUs by rules alone: what they compute, and how the work is shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.stmt import For
from tilewright.tir.annotations import SCAN_THREADS

CASES: dict[str, tuple[list[tuple[int, ...]], Callable[..., Any], list[str]]] = {
    "softmax": ([(6, 70)], lambda x: topi.nn.softmax(x, axis=1), ["rows"]),
    "matmul": ([(6, 24), (24, 72)], topi.matmul, ["shared tile"]),
    "add": ([(1000,), (1000,)], lambda a, b: a + b, ["elementwise"]),
    "row sums": ([(7, 300)], lambda x: topi.sum(x, axis=1), ["rows"]),
    "column sums": ([(30, 65)], lambda x: topi.sum(x, axis=0), ["columns"]),
    "one sum": ([(20, 30)], lambda x: topi.sum(x), ["rows"]),
    "layernorm": (
        [(5, 70), (70,), (70,)],
        lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]),
        ["inline", "rows"],
    ),
    "dense, relu": ([(33, 70), (50, 70)], lambda x, w: topi.nn.relu(topi.nn.dense(x, w)), ["large tile"]),
    "batches": ([(3, 40, 16), (3, 24, 16)], lambda a, b: topi.nn.batch_matmul(a, b), ["large tile"]),
    "convolution": (
        [(1, 4, 14, 14), (16, 4, 3, 3)],
        lambda x, w: topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1)),
        ["large tile"],
    ),
    "depthwise": (
        [(1, 8, 14, 14), (8, 1, 3, 3)],
        lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1),
        ["windows"],
    ),
    "depthwise, channels last, relu": (
        [(1, 15, 14, 24), (5, 5, 24, 1)],
        lambda x, w: topi.nn.relu(topi.nn.depthwise_conv2d_nhwc(x, w, 2, 2, 1)),
        ["windows"],
    ),
    "pooling": (
        [(1, 4, 15, 15)],
        lambda x: topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max"),
        ["windows"],
    ),
    "pooling, channels last": (
        [(2, 7, 9, 24)],
        lambda x: topi.nn.relu(topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "avg", layout="NHWC")),
        ["inline", "windows"],
    ),
    "pooling of what is no whole warps": (
        [(1, 1, 31, 17)],
        lambda x: topi.nn.pool2d(x, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "max"),
        ["plain"],
    ),
    "place of the largest": ([(20, 30)], lambda x: topi.argmax(x, axis=1), ["rows"]),
    "transpose": ([(40, 50)], lambda x: topi.transpose(x), ["transpose"]),
    "other axes": ([(3, 40, 2, 50)], lambda x: topi.transpose(x, (0, 3, 2, 1)), ["transpose"]),
    "normed channels": (
        [(2, 8, 8, 8), (8,), (8,), (8,), (8,)],
        lambda x, *of: topi.nn.relu(topi.nn.batch_norm(x, *of)[0]),
        ["inline", "inline", "elementwise"],
    ),
    "running sums": ([(6, 30)], lambda x: topi.cumsum(x, axis=1), ["scan"]),
    "side by side": ([(6, 8), (6, 12)], lambda *x: topi.concatenate(x, 1), ["elementwise"]),
}


def scheduled(name: str) -> Any:
    shapes, build, _ = CASES[name]
    args = [te.placeholder(s, name=f"x{i}") for i, s in enumerate(shapes)]
    return tvm.auto_schedule([*args, build(*args)], "cuda -arch=sm_90")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_programs_mean_the_same(name: str) -> None:
    sch = scheduled(name)
    assert [r["sketch"] for r in sch.explanation.records] == CASES[name][2]
    assert sch.verify()


@pytest.mark.parametrize("name", CASES)
def test_every_stage_is_in_a_kernel(name: str) -> None:
    sch = scheduled(name)
    for block in sch.get_child_blocks(sch.get_block("root")):
        loops: list[For] = [sch.loop(x) for x in sch.get_loops(block)]
        tags = {x.thread_binding.thread_tag for x in loops if x.thread_binding is not None}
        own = all(w.buffer.scope() == "local" for w in sch.realize(block).block.writes)  # each thread does it
        if SCAN_THREADS in sch.get(block).annotations:
            continue  # lowering makes a kernel of it
        assert any(t.startswith("blockIdx") for t in tags)
        assert own or any(t.startswith("threadIdx") for t in tags)


def cumulated(x: Any) -> Any:
    """Lines in parallel, with an operator that is not known to be associative."""
    return topi.reduction.scanop(x, lambda a, b: a * b + b, 1, "sums", 1)


def test_what_is_parallel_already_is_left_so() -> None:
    x = te.placeholder((2000, 30), name="x")
    args = [x, cumulated(x)]
    sch = tvm.auto_schedule(args, "cuda -arch=sm_90")
    assert [r["sketch"] for r in sch.explanation.records] == ["as it is"]
    text = tvm.build(sch.mod, target="cuda -arch=sm_90").imported_modules[0].get_source()
    assert "threadIdx.x" in text and "blockIdx.x" in text


def wide(*shapes: tuple[int, ...], make: Any) -> int:
    args = [te.placeholder(s, name=f"x{i}") for i, s in enumerate(shapes)]
    sch = tvm.auto_schedule([*args, make(*args)], "cuda -arch=sm_90")
    return int(sch.explanation.records[-1]["vector"])


def test_vectors_take_branches_together() -> None:
    def beside(*x: Any) -> Any:
        return topi.concatenate(x, 1)

    assert wide((6, 1000), (6, 1000), make=beside) == 4
    assert wide((6, 1002), (6, 1000), make=beside) == 2
    assert wide((6, 1001), (6, 999), make=beside) == 1
    assert wide((2, 3, 8), (2, 5, 8), make=beside) == 4  # the branch is of another axis
    assert wide((6, 100), make=lambda x: topi.nn.pad(x, (0, 4), (0, 8))) == 4
    assert wide((6, 100), make=lambda x: topi.nn.pad(x, (0, 1), (0, 3))) == 1


def test_vectors_go_on_from_line_to_line() -> None:
    def added(a: Any, b: Any) -> Any:
        return a + b

    assert wide((4, 7, 7), (4, 7, 7), make=added) == 4
    assert wide((3, 7, 7), (3, 7, 7), make=added) == 1
    assert wide((4, 7, 7), (4, 1, 7), make=added) == 1


def test_explained_in_words() -> None:
    assert "shared tile" in str(scheduled("matmul").explanation)


@pytest.mark.parametrize("target", ["cuda -arch=sm_90a", "opencl"])
def test_windows_with_a_result_for_each_of_a_few_threads(target: str) -> None:
    x, k = te.placeholder((1, 5), name="x"), te.reduce_axis((0, 3), "k")
    sums = te.compute((1, 3), lambda i, j: te.sum(x[i, j + k], axis=k), name="sums")
    sch = tvm.auto_schedule([x, sums], target)
    assert [r["sketch"] for r in sch.explanation.records] == ["windows"]
    assert sch.verify()
