"""Products and convolutions of float32 by large tiles, for GPUs with asynchronous copies, and what must come out.

They are compiled by NVRTC in tests/codegen/test_cuda_large_tiles.py, and run on a GPU by tests/gpu/run.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_programs import Program, random

import tilewright as tvm
from tilewright import te, topi

AMPERE = "cuda -arch=sm_80 -max_dynamic_shared_memory_per_block=101376"
HOPPER = "cuda -model=h200"


def _product(
    m: int, n: int, k: int, trans_a: bool = False, trans_b: bool = False, target: str = AMPERE
) -> Callable[[], Program]:
    def build() -> Program:
        a = te.placeholder((k, m) if trans_a else (m, k), name="a")
        b = te.placeholder((n, k) if trans_b else (k, n), name="b")
        c = te.placeholder((n,), name="c")
        out = topi.nn.relu(topi.matmul(a, b, trans_a, trans_b) + c)
        x, y, z = (random(*(int(d) for d in t.shape), seed=i) for i, t in enumerate((a, b, c)))
        left, right = (t.astype("float64").T if turn else t for t, turn in ((x, trans_a), (y, trans_b)))
        return _program([a, b, c, out], [x, y, z], np.maximum(left @ right + z, 0), target)

    return build


def _batch(count: int, m: int, n: int, k: int) -> Callable[[], Program]:
    def build() -> Program:
        a, b = te.placeholder((count, m, k), name="a"), te.placeholder((count, n, k), name="b")
        x, y = random(count, m, k), random(count, n, k, seed=1)
        want = x.astype("float64") @ y.astype("float64").transpose(0, 2, 1)
        return _program([a, b, topi.nn.batch_matmul(a, b)], [x, y], want, HOPPER)

    return build


def _convolution(
    image: tuple[int, ...], filters: int, window: int, stride: int = 1, padding: int = 0, dilation: int = 1,
    layout: str = "NCHW", target: str = AMPERE,
) -> Callable[[], Program]:  # fmt: skip
    def build() -> Program:
        last = layout == "NHWC"
        channels = image[3] if last else image[1]
        shape = (window, window, channels, filters) if last else (filters, channels, window, window)
        data, weights = te.placeholder(image, name="data"), te.placeholder(shape, name="weights")
        bias = te.placeholder((filters,) if last else (filters, 1, 1), name="bias")
        out = topi.nn.conv2d(data, weights, stride, padding, dilation, layout) + bias
        x, w, b = random(*image), random(*shape, seed=1), random(filters, seed=2)
        plain = (x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)) if last else (x, w)
        want = _direct(*plain, stride, padding, dilation) + b[:, None, None]
        return _program(
            [data, weights, bias, topi.nn.relu(out)],
            [x, w, b.reshape([int(d) for d in bias.shape])],
            np.maximum(want.transpose(0, 2, 3, 1) if last else want, 0),
            target,
        )

    return build


def _direct(x: Any, w: Any, stride: int, padding: int, dilation: int) -> Any:
    """A convolution, one place of the window after the other, in float64."""
    sides = (padding, padding)
    x = np.pad(x.astype("float64"), ((0, 0), (0, 0), sides, sides))
    high, wide = ((x.shape[d] - dilation * (w.shape[d] - 1) - 1) // stride + 1 for d in (2, 3))
    out = np.zeros((x.shape[0], w.shape[0], high, wide))
    for r in range(w.shape[2]):
        for t in range(w.shape[3]):
            part = x[:, :, r * dilation :, t * dilation :][:, :, ::stride, ::stride][:, :, :high, :wide]
            out += np.einsum("nchw,fc->nfhw", part, w[:, :, r, t].astype("float64"))
    return out


def _program(args: list[Any], given: list[Any], want: Any, target: str) -> Program:
    sch = tvm.auto_schedule(args, target)
    (record,) = [r for r in sch.explanation.records if r["sketch"] == "large tile"]
    assert ("copies" in record) is (target == HOPPER), sch.explain()
    return Program(sch.mod, None, given, want.astype("float32"), 1e-4, 1e-3)


LARGE_TILE_PROGRAMS: dict[str, Callable[[], Program]] = {
    "product": _product(1024, 1024, 128),
    "product, both turned": _product(260, 520, 96, True, True),
    "product, odd sizes": _product(300, 333, 70, trans_b=True),
    "product, parts of the sum": _product(64, 96, 2048),
    "convolution 3x3": _convolution((2, 32, 14, 14), 64, 3, padding=1),
    "convolution 1x1": _convolution((4, 64, 14, 14), 128, 1),
    "convolution 3x3, odd": _convolution((3, 17, 15, 15), 70, 3, stride=2, padding=1),
    "convolution, dilation": _convolution((2, 8, 19, 19), 40, 3, padding=2, dilation=2),
    "convolution, few pixels": _convolution((1, 128, 7, 7), 128, 3, padding=1),
    "convolution 7x7": _convolution((1, 3, 45, 45), 64, 7, stride=2, padding=3),
    "convolution, channels last": _convolution((2, 14, 14, 32), 64, 3, padding=1, layout="NHWC"),
    "convolution, channels last, odd": _convolution((2, 15, 15, 13), 70, 3, stride=2, layout="NHWC"),
}

# The copy engine fetches; operands along the reduction are turned before, or read four steps at a time.
STREAMED_PROGRAMS: dict[str, Callable[[], Program]] = {
    "streamed": _product(1024, 512, 256, True, target=HOPPER),
    "streamed, one operand turned": _product(1024, 1024, 1024, target=HOPPER),
    "streamed, both operands turned": _product(2048, 2048, 512, trans_b=True, target=HOPPER),
    "streamed, as it lies": _product(1024, 48, 1024, target=HOPPER),
    "streamed, odd sizes": _product(333, 500, 100, trans_b=True, target=HOPPER),
    "streamed, more odd sizes": _product(132, 300, 70, True, target=HOPPER),
    "streamed, parts of the sum": _product(64, 96, 4096, True, target=HOPPER),
    "streamed, many": _batch(6, 200, 132, 64),
    "streamed, convolution 1x1": _convolution((4, 64, 14, 14), 128, 1, target=HOPPER),
    "streamed, convolution 1x1 of one image": _convolution((1, 36, 14, 14), 100, 1, target=HOPPER),
}
