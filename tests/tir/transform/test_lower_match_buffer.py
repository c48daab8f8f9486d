"""Views of regions replaced by accesses of what they view."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.errors import LoweringError
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Block
from tilewright.script import tir as T

Match = tir.transform.LowerMatchBuffer()


def lowered(func):
    mod = tir.transform.ConvertBlocksToOpaque()(tvm.IRModule({"main": func}))
    made = Match(mod)["main"]
    assert not [m for m in pre_order(made.body) if isinstance(m, Block) and m.match_buffers]
    return made


def data(*sizes):
    rng = np.random.default_rng(4)
    return [rng.integers(-9, 9, s).astype("int32") for s in sizes]


@T.prim_func
def tiles(A: T.Buffer((8, 8), "int32"), C: T.Buffer((8, 8), "int32")):
    for i, j in T.grid(2, 2):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
            T.writes(C[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
            X = T.match_buffer(A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], (4, 4), "int32", offset_factor=1)
            Y = T.match_buffer(C[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], (4, 4), "int32", offset_factor=1)
            for a, b in T.grid(4, 4):
                Y[a, b] = X[b, a] + 1


def test_tiles(expect, agree):
    made = lowered(tiles)
    expect(
        made,
        """
        @T.prim_func
        def tiles(A: T.Buffer((8, 8), "int32"), C: T.Buffer((8, 8), "int32")):
            # with T.block("root"):
            for i, j in T.grid(2, 2):
                with T.block("C"):
                    T.reads(A[i * 4:i * 4 + 4, j * 4:j * 4 + 4])
                    T.writes(C[i * 4:i * 4 + 4, j * 4:j * 4 + 4])
                    for a, b in T.grid(4, 4):
                        C[i * 4 + a, j * 4 + b] = A[i * 4 + b, j * 4 + a] + 1
        """,
    )
    agree(tiles, made, *data((8, 8), (8, 8)))
    agree(tiles, tvm.lower(tiles), *data((8, 8), (8, 8)))


def test_fewer_dimensions(agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi, 0:8])
                T.writes(C[vi, 0:8])
                X = T.match_buffer(A[vi, 0:8], (8,), "int32", offset_factor=1)
                Y = T.match_buffer(C[vi, 0:8], (8,), "int32", offset_factor=1)
                for j in range(8):
                    Y[j] = X[7 - j]

    agree(before, lowered(before), *data((4, 8), (4, 8)))


def test_views_of_views(agree):
    @T.prim_func
    def before(A: T.Buffer((8, 8), "int32")):
        for i in range(2):
            with T.block("outer"):
                vi = T.axis.spatial(2, i)
                T.reads()
                T.writes(A[vi * 4 : vi * 4 + 4, 0:8])
                X = T.match_buffer(A[vi * 4 : vi * 4 + 4, 0:8], (4, 8), "int32", offset_factor=1)
                for j in range(4):
                    with T.block("inner"):
                        vj = T.axis.spatial(4, j)
                        T.reads()
                        T.writes(X[vj, 2:6])
                        Y = T.match_buffer(X[vj, 2:6], (4,), "int32", offset_factor=1)
                        for k in range(4):
                            Y[k] = vi * 100 + vj * 10 + k

    agree(before, lowered(before), *data((8, 8)))


def test_strides_and_offsets_have_values(expect):
    @T.prim_func
    def before(A: T.Buffer((8, 8), "int32"), C: T.Buffer((4,), "int32")):
        s0 = T.int32()
        s1 = T.int32()
        for i in range(2):
            with T.block("A"):
                vi = T.axis.spatial(2, i)
                T.reads()
                T.writes(A[vi * 4 : vi * 4 + 4, 0:8], C[0:4])
                X = T.match_buffer(
                    A[vi * 4 : vi * 4 + 4, 0:8], (4, 8), "int32", strides=[s0, s1], offset_factor=1
                )
                C[0] = s0
                C[1] = s1
                C[2] = X.elem_offset
                X[0, 0] = 1

    made = lowered(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((8, 8), "int32"), C: T.Buffer((4,), "int32")):
            # with T.block("root"):
            for i in range(2):
                with T.block("A"):
                    T.reads()
                    T.writes(A[i * 4:i * 4 + 4, 0:8], C[0:4])
                    C[0] = 8
                    C[1] = 1
                    C[2] = i * 4 * 8
                    A[i * 4, 0] = 1
        """,
    )
    c = np.zeros(4, "int32")
    tir.interpret(made, np.zeros((8, 8), "int32"), c)
    assert c.tolist() == [8, 1, 32, 0]


def test_another_type_is_refused():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32")):
        with T.block("A"):
            T.reads()
            T.writes(A[0:8])
            X = T.match_buffer(A[0:8], (8,), "int32")
            X[0] = 1

    def retyped(b):
        match = b.block.match_buffers[0]
        made = tir.decl_buffer((8,), "float32", "X")
        body = tir.BufferStore(made, tir.const(1, "float32"), [0])
        return b.replace(block=b.block.replace(match_buffers=(match.replace(buffer=made),), body=body))

    func = before.replace(body=retyped(before.body))
    with pytest.raises(LoweringError, match="match_buffer X: float32 is not int32"):
        Match(tvm.IRModule({"main": func}))


def test_nothing_to_do_is_the_same_object():
    @T.prim_func
    def plain(A: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("A"):
                A[i] = i

    mod = tvm.IRModule({"main": plain})
    assert Match(mod) is mod
