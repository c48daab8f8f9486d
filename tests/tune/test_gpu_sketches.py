"""Schedules for GPUs by rules alone: what they compute, and how the work is shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.stmt import For

CASES: dict[str, tuple[list[tuple[int, ...]], Callable[..., Any], list[str]]] = {
    "softmax": ([(6, 70)], lambda x: topi.nn.softmax(x, axis=1), ["rows"]),
    "matmul": ([(40, 24), (24, 72)], topi.matmul, ["shared tile"]),
    "add": ([(1000,), (1000,)], lambda a, b: a + b, ["elementwise"]),
    "row sums": ([(7, 300)], lambda x: topi.sum(x, axis=1), ["rows"]),
    "column sums": ([(30, 65)], lambda x: topi.sum(x, axis=0), ["columns"]),
    "one sum": ([(20, 30)], lambda x: topi.sum(x), ["rows"]),
    "layernorm": (
        [(5, 70), (70,), (70,)],
        lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]),
        ["inline", "rows"],
    ),
    "dense, relu": ([(33, 70), (50, 70)], lambda x, w: topi.nn.relu(topi.nn.dense(x, w)), ["shared tile"]),
    "batches": ([(3, 40, 16), (3, 24, 16)], lambda a, b: topi.nn.batch_matmul(a, b), ["shared tile"]),
    "convolution": (
        [(1, 4, 14, 14), (16, 4, 3, 3)],
        lambda x, w: topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1)),
        ["shared tile"],
    ),
    "depthwise": (
        [(1, 8, 14, 14), (8, 1, 3, 3)],
        lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1),
        ["shared tile"],
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
        [(1, 5, 19, 17)],
        lambda x: topi.nn.pool2d(x, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "max"),
        ["plain"],
    ),
    "place of the largest": ([(20, 30)], lambda x: topi.argmax(x, axis=1), ["rows", "elementwise"]),
    "transpose": ([(40, 50)], lambda x: topi.transpose(x), ["transpose"]),
    "other axes": ([(3, 40, 2, 50)], lambda x: topi.transpose(x, (0, 3, 2, 1)), ["transpose"]),
    "running sums": ([(6, 30)], lambda x: topi.cumsum(x, axis=1), ["plain"]),
}


def scheduled(name: str) -> Any:
    shapes, build, _ = CASES[name]
    args = [te.placeholder(s, name=f"x{i}") for i, s in enumerate(shapes)]
    return tvm.auto_schedule([*args, build(*args)], "cuda -arch=sm_90")


@pytest.mark.parametrize("name", CASES)
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
        assert any(t.startswith("blockIdx") for t in tags)
        assert own or any(t.startswith("threadIdx") for t in tags)


def test_explained_in_words() -> None:
    assert "shared tile" in str(scheduled("matmul").explanation)
