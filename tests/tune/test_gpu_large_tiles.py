"""Products and convolutions of float32 by large tiles: what they compute, thread by thread, and with which code.

The tiles are as small as a warp allows, so that the interpreter can run them and look for races.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.target import Target
from tilewright.tune.cost.gpu import Counts
from tilewright.tune.plan import plan_of
from tilewright.tune.rules.gpu.simt import Simt, ThreadTile

H200 = "cuda -model=h200"


def matmul(
    m: int, n: int, k: int, trans_a: bool = False, trans_b: bool = False, bias: bool = False
) -> list[Any]:
    a = te.placeholder((k, m) if trans_a else (m, k), name="a")
    b = te.placeholder((n, k) if trans_b else (k, n), name="b")
    out = topi.matmul(a, b, trans_a, trans_b)
    if not bias:
        return [a, b, out]
    c = te.placeholder((n,), name="c")
    return [a, b, c, topi.nn.relu(out + c)]


def conv(
    image: tuple[int, ...],
    filters: int,
    window: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    layout: str = "NCHW",
) -> list[Any]:
    last = layout == "NHWC"
    channels = image[3] if last else image[1]
    x = te.placeholder(image, name="x")
    shape = (window, window, channels, filters) if last else (filters, channels, window, window)
    w = te.placeholder(shape, name="w")
    b = te.placeholder((filters,) if last else (1, filters, 1, 1), name="b")
    return [x, w, b, topi.nn.relu(topi.nn.conv2d(x, w, stride, padding, dilation, layout) + b)]


def forced(monkeypatch: pytest.MonkeyPatch, tile: ThreadTile) -> None:
    """Let every product take a tile, however small it is."""
    monkeypatch.setattr(Simt, "tiles", lambda *_: [tile])
    monkeypatch.setattr(Simt, "counts", lambda *_: Counts())
    monkeypatch.setattr(Simt, "refusal", lambda *_: "")


# rows, columns, stages, parts, blocks of a processor, depth, rows and columns of a thread, lanes
ONE_WARP = ThreadTile(32, 16, 2, 1, 2, 8, 4, 4, 8)
CASES: dict[str, tuple[list[Any], ThreadTile]] = {
    "plain": (matmul(16, 32, 32), ThreadTile(16, 32, 2, 1, 2, 8, 4, 4, 4)),
    "sizes that are not tiles": (matmul(30, 15, 25, bias=True), ONE_WARP),
    "both turned": (matmul(32, 16, 24, True, True), ONE_WARP),
    "pieces that change places": (matmul(32, 32, 16, True), ThreadTile(32, 32, 2, 1, 2, 8, 8, 4, 4)),
    "convolution": (conv((1, 4, 4, 4), 30, 3, padding=1), ThreadTile(32, 16, 2, 1, 2, 18, 4, 4, 8)),
    "strides, dilation": (
        conv((2, 4, 9, 9), 32, 2, stride=2, dilation=2),
        ThreadTile(32, 16, 2, 1, 2, 16, 4, 4, 8),
    ),
    "channels last": (
        conv((1, 4, 4, 4), 12, 3, padding=1, layout="NHWC"),
        ThreadTile(32, 16, 2, 1, 2, 12, 4, 4, 8),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_threads_compute_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    args, tile = CASES[name]
    forced(monkeypatch, tile)
    sch = tvm.auto_schedule(args, "cuda -arch=sm_90")
    assert [r["sketch"] for r in sch.explanation.records if r["sketch"] != "inline"] == ["large tile"]
    assert "thread by thread" in str(sch.verify())


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        matmul(32, 16, 64, False, True, True),
        conv((1, 16, 4, 4), 32, 1),
        conv((1, 16, 7, 7), 24, 1),  # results that are no whole blocks of threads
        matmul(9, 37, 64, bias=True),
    ],
)
def test_parts_of_the_sum(args: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, ThreadTile(32, 16, 3, 2, 2, 8, 4, 4, 8))
    sch = tvm.auto_schedule(args, "cuda -arch=sm_90")
    (record,) = [r for r in sch.explanation.records if r["sketch"] == "large tile"]
    assert record["split-K"] == 2
    assert sch.verify()


@pytest.mark.slow
def test_operands_come_in_either_order(monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, ONE_WARP)
    a, b, k = te.placeholder((16, 32), name="a"), te.placeholder((32, 16), name="b"), te.reduce_axis((0, 16))
    c = te.compute((32, 16), lambda i, j: te.sum(a[k, j] * b[i, k], axis=k), name="c")
    sch = tvm.auto_schedule([a, b, c], "cuda -arch=sm_90")
    assert sch.explanation.records[0]["sketch"] == "large tile"
    assert sch.verify()


def test_counters_are_added_to_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pieces have changed places the rest of an address is one number, to which counters are added."""
    args, tile = CASES["pieces that change places"]
    forced(monkeypatch, tile)
    text = tvm.build(tvm.auto_schedule(args, "cuda -arch=sm_90").mod, target="cuda -arch=sm_90")
    reads = [x for x in text.imported_modules[0].get_source().splitlines() if "tw_keep(" in x and "^" in x]
    assert reads and all(re.search(r"tw_keep\(.*\^.*\) \+ [^(^]*\);$", x) for x in reads)


@pytest.mark.slow
def test_code_of_a_kernel() -> None:
    sch = tvm.auto_schedule(conv((16, 64, 56, 56), 64, 3, padding=1), H200)
    text = tvm.build(sch.mod, target=H200).imported_modules[0].get_source()
    assert "tw_copy_async<4>" in text and "#pragma unroll" in text
    assert text.count("__syncthreads();") == 1  # the last turns are in the loop
    assert len(text.splitlines()) < 500


@pytest.mark.parametrize(
    ("m", "n", "k", "parts"), [(4096, 4096, 4096, False), (512, 49, 4608, True), (64, 64, 64, False)]
)
def test_sizes_by_the_count_of_cycles(m: int, n: int, k: int, parts: bool) -> None:
    gpu, func = Target(H200).gpu, te.create_prim_func(matmul(m, n, k))
    (choice,) = plan_of(func, Target(H200), forced={0: "SIMT"}).choices
    tile = ThreadTile(**{k: v for k, v in choice.row.values.items() if k != "transposed"})
    assert (tile.parts > 1) is parts
    assert tile.threads % 32 == 0 and tile.shared <= gpu.dynamic_shared_memory_per_block


def test_one_row_is_no_tile() -> None:
    sch = tvm.auto_schedule(matmul(1, 1000, 512, trans_b=True), H200)
    assert [r["sketch"] for r in sch.explanation.records] == ["rows"]
