"""Block iterators replaced by what they are bound to."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Block
from tilewright.script import tir as T

Opaque = tir.transform.ConvertBlocksToOpaque()


def opaque(func):
    made = Opaque(tvm.IRModule({"main": func}))["main"]
    assert not [m for m in pre_order(made.body) if isinstance(m, Block) and m.iter_vars]
    return made


@T.prim_func
def tiled(A: T.Buffer((10, 4), "int32"), B: T.Buffer((4, 10), "int32")):
    for i_0, i_1, j in T.grid(3, 4, 4):
        with T.block("B"):
            vi = T.axis.spatial(10, i_0 * 4 + i_1)
            vj = T.axis.spatial(4, j)
            T.where(i_0 * 4 + i_1 < 10)
            B[vj, vi] = A[vi, vj] + vi


def test_values_and_predicates(expect, agree):
    made = opaque(tiled)
    expect(
        made,
        """
        @T.prim_func
        def tiled(A: T.Buffer((10, 4), "int32"), B: T.Buffer((4, 10), "int32")):
            # with T.block("root"):
            for i_0, i_1, j in T.grid(3, 4, 4):
                with T.block("B"):
                    T.where(i_0 * 4 + i_1 < 10)
                    T.reads(A[i_0 * 4 + i_1, j])
                    T.writes(B[j, i_0 * 4 + i_1])
                    B[j, i_0 * 4 + i_1] = A[i_0 * 4 + i_1, j] + (i_0 * 4 + i_1)
        """,
    )
    rng = np.random.default_rng(0)
    agree(tiled, made, rng.integers(0, 9, (10, 4), "int32"), np.zeros((4, 10), "int32"))


def test_blocks_in_blocks(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((4, 4), "int32")):
        for i in range(4):
            with T.block("outer"):
                vi = T.axis.spatial(4, 3 - i)
                T.reads()
                T.writes(A[vi, 0:4])
                for j in range(4):
                    with T.block("inner"):
                        vj = T.axis.spatial(4, (vi + j) % 4)
                        T.where((vi + j) % 4 < 3 or vi < 2)
                        A[vi, vj] = vi * 4 + vj

    made = opaque(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((4, 4), "int32")):
            # with T.block("root"):
            for i in range(4):
                with T.block("outer"):
                    T.reads()
                    T.writes(A[3 - i, 0:4])
                    for j in range(4):
                        with T.block("inner"):
                            T.where((3 - i + j) % 4 < 3 or 3 - i < 2)
                            T.reads()
                            T.writes(A[3 - i, (3 - i + j) % 4])
                            A[3 - i, (3 - i + j) % 4] = (3 - i) * 4 + (3 - i + j) % 4
        """,
    )
    agree(before, made, np.zeros((4, 4), "int32"))


def test_buffers_whose_shape_uses_an_iterator(agree):
    @T.prim_func
    def before(A: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                B = T.alloc_buffer((vi + 1,), "int32")
                B[vi] = vi
                A[vi] = B[vi]

    made = opaque(before)
    assert "T.alloc_buffer((i + 1,)" in made.script()
    agree(before, made, np.zeros(4, "int32"))


def test_nothing_to_do_is_the_same_object():
    made = tvm.IRModule({"main": opaque(tiled)})
    assert Opaque(made) is made


@pytest.mark.parametrize(
    "make, reason",
    [
        (tir.transform.ConvertBlocksToOpaque, "block `C` still has an init"),
        (tir.transform.LowerOpaqueBlock, "block `C` still has iterators"),
    ],
)
def test_passes_run_before_their_time_say_so(make, reason):
    A = te.placeholder((4, 5), name="A")
    k = te.reduce_axis((0, 5), "k")
    C = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="C")
    with pytest.raises(LoweringError, match=reason):
        make()(tvm.IRModule({"main": te.create_prim_func([A, C])}))
