"""Pieces of shared lines that change places for threads that read several of them: the banks, the result, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels
from tilewright.ir.errors import LoweringError
from tilewright.ir.functor import pre_order, vars_used
from tilewright.ir.stmt import BufferStore


def neighbours(rows: int, wide: int, each: int, pieces: int | None = None) -> tir.Schedule:
    """B = A + 1 through a tile of shared memory, of which a thread reads `each` pieces of four numbers in turn."""
    A = te.placeholder((rows, wide), name="A")
    B = te.compute((rows, wide), lambda i, j: A[i, j] + 1.0, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    copy = sch.cache_read(sch.get_block("B"), 0, "shared")
    i, j = sch.get_loops("B")
    block, row = sch.split(i, [1, None])
    thread, piece, lane = sch.split(j, [None, each, 4])
    sch.compute_at(copy, block)
    several, mine, vector = sch.split(sch.fuse(*sch.get_loops(copy)[1:]), [None, wide // (4 * each), 4])
    sch.bind(block, "blockIdx.x")
    for x in (thread, mine):
        sch.bind(x, "threadIdx.x")
    for x in (lane, vector):
        sch.vectorize(x)
    sch.annotate(copy, "permuted_layout", each if pieces is None else pieces)
    return sch


@pytest.mark.parametrize("each", [2, 4, 8])
def test_the_result_stays(each: int) -> None:
    x = np.random.default_rng(0).random((3, 256), dtype=np.float32)
    got = np.zeros_like(x)
    tir.interpret(lower_kernels(neighbours(3, 256, each).mod)["main"], x, got)
    np.testing.assert_array_equal(got, x + 1)


@pytest.mark.parametrize("each", [2, 4, 8])
def test_neighbouring_threads_read_from_all_banks(each: int) -> None:
    func = lower_kernels(neighbours(1, 256, each).mod)["main"]
    stores = [m for m in pre_order(func.body) if isinstance(m, BufferStore)]
    (index,) = next(s.indices for s in stores if s.buffer.name.startswith("A_shared"))
    turn, thread = sorted(vars_used(index), key=lambda v: v.name)  # ax0_ax1_fused_0, j_0
    places = []
    for piece in range(64):
        several, mine = divmod(piece, 64 // each)
        places.append(int(eval(str(index.base), {"T": tir}, {turn.name: several, thread.name: mine})) // 4)
    assert sorted(places) == list(range(64)) and all(p // 8 == q // 8 for p, q in enumerate(places))
    for first in range(0, 64 // each, 8):
        for own in range(each):  # eight threads read their first pieces, then their second ones, and so on
            assert len({places[(first + t) * each + own] % 8 for t in range(8)}) == 8


def test_rows_must_be_whole_lines() -> None:
    with pytest.raises(LoweringError) as error:
        lower_kernels(neighbours(2, 48, 2).mod)
    assert (
        "block A_shared is marked permuted_layout, and A_shared has rows of 12 pieces of 16 bytes, of which threads "
        in (str(error.value))
    )
    with pytest.raises(LoweringError, match="rows must be whole lines of 8 pieces, which 3 divides"):
        lower_kernels(neighbours(2, 256, 4, pieces=3).mod)
