"""Products of float32 that the copy engine fetches for threads: what they compute, and with which code."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import LoweringError
from tilewright.target import Target
from tilewright.tune.cost.gpu import Counts
from tilewright.tune.plan import plan_of
from tilewright.tune.rules.gpu.simt import ThreadTile
from tilewright.tune.rules.gpu.simt_tma import SimtTma

H200 = "cuda -model=h200"
# rows, columns, stages, parts, blocks of a processor, depth, rows and columns of a thread, lanes
ONE_WARP = ThreadTile(32, 16, 2, 1, 1, 16, 4, 4, 8)


def matmul(m: int, n: int, k: int, trans_a: bool = False, trans_b: bool = False) -> list[Any]:
    a = te.placeholder((k, m) if trans_a else (m, k), name="a")
    b = te.placeholder((n, k) if trans_b else (k, n), name="b")
    c = te.placeholder((n,), name="c")
    return [a, b, c, topi.nn.relu(topi.matmul(a, b, trans_a, trans_b) + c)]


def conv(n: int, channels: int, size: int, filters: int) -> list[Any]:
    x = te.placeholder((n, channels, size, size), name="x")
    w = te.placeholder((filters, channels, 1, 1), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, 0, 1))]


def record_of(sch: Any) -> dict[str, Any]:
    (found,) = [r for r in sch.explanation.records if r["sketch"] == "large tile"]
    return dict(found)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every product take a tile of one warp, and nothing be turned."""
    monkeypatch.setattr(SimtTma, "tiles", lambda *_: [ONE_WARP])
    monkeypatch.setattr(SimtTma, "counts", lambda *_: Counts())
    monkeypatch.setattr(SimtTma, "refusal", lambda *_: "")


@pytest.mark.parametrize(
    "args",
    [
        matmul(32, 16, 32),
        matmul(28, 16, 16, True),
        matmul(31, 12, 20, False, True),
        matmul(36, 13, 16, True, True),
        conv(2, 16, 4, 20),
        conv(1, 16, 4, 24),
    ],
    ids=["along, across", "across", "along", "across, along", "convolution", "convolution of one image"],
)
@pytest.mark.usefixtures("small")
def test_threads_compute_it(args: list[Any]) -> None:
    sch = tvm.auto_schedule(args, H200)
    assert record_of(sch)["copies"] == "TMA"
    told = str(sch.verify())
    assert "agree" in told and "the copy engine works for all threads of a block at once" in told


@pytest.mark.usefixtures("small")
def test_code_of_a_kernel() -> None:
    """Lines of 64 bytes are swizzled by the engine, and read so."""
    text = (
        tvm.build(tvm.auto_schedule(matmul(32, 16, 32), H200).mod, target=H200)
        .imported_modules[0]
        .get_source()
    )
    kernel = text[text.index("__global__") :]
    reads = [
        line.split("=", 1)[1].strip()
        for line in kernel.splitlines()
        if "_shared_dyn +" in line and "float4" in line
    ]
    assert len(reads) == 2 and all("^" in r for r in reads)
    assert kernel.count("tw_bulk_copy_2(") == 2
    assert "tw_barrier_init(barriers + 2, 32);" in kernel  # each thread says that it has read a tile
    assert "setmaxnreg" not in kernel  # one warp computes: no warpgroup has registers to give


@pytest.mark.slow
def test_registers_are_given_where_warpgroups_compute() -> None:
    text = (
        tvm.build(tvm.auto_schedule(matmul(512, 512, 64, True), H200).mod, target=H200)
        .imported_modules[0]
        .get_source()
    )
    assert text.count("setmaxnreg.dec") == text.count("setmaxnreg.inc") == 1
    assert "^" not in text  # longer lines lie as they are


@pytest.mark.parametrize(
    ("shape", "turned"),
    [
        ((4096, 4096, 4096), ["a"]),
        ((4096, 4096, 4096, True), None),
        ((4096, 4096, 4096, False, True), ["a", "b"]),
        ((8192, 64, 4096), None),
    ],
)
def test_operands_are_turned_where_it_pays(shape: tuple[Any, ...], turned: list[str] | None) -> None:
    assert record_of(tvm.auto_schedule(matmul(*shape), H200)).get("transposed") == turned


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (1000, 3000, 500), (64, 4096, 4096), (64, 64, 64)])
def test_sizes_by_the_count_of_cycles(shape: tuple[int, int, int]) -> None:
    a, b, *_ = matmul(*shape)
    func = te.create_prim_func([a, b, topi.matmul(a, b)])
    (choice,) = plan_of(func, Target(H200), forced={0: "SIMT with TMA"}).choices
    tile = ThreadTile(**{k: v for k, v in choice.row.values.items() if k != "transposed"})
    assert tile.threads % 128 == 0


@pytest.mark.parametrize("shape", [(16, 4096, 4096), (333, 333, 333)])
def test_others_fetch_for_themselves(shape: tuple[int, int, int]) -> None:
    """Few rows, and lines that do not begin at multiples of 16 bytes."""
    assert "copies" not in record_of(tvm.auto_schedule(matmul(*shape), H200))


@pytest.mark.usefixtures("small")
def test_what_is_copied_is_not_written_to() -> None:
    sch = tvm.auto_schedule(matmul(32, 16, 32), H200)
    (copy,) = [
        b for b in sch.get_child_blocks(sch.get_block("root")) if sch.get(b).name_hint == "a_shared_dyn_o"
    ]
    sch.unannotate(copy, "tilewright.bulk_copy")
    with pytest.raises(LoweringError, match="a_shared_dyn"):
        tvm.lower(sch.mod)
