"""Every access in one dimension."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import tir
from tilewright.ir.expr import BufferLoad
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import BufferStore
from tilewright.script import tir as T

Flatten = tir.transform.FlattenBuffer()


def flat(func):
    made = Flatten(tvm.IRModule({"main": func}))["main"]
    for m in pre_order(made.body):
        if isinstance(m, (BufferLoad, BufferStore)):
            assert len(m.indices) == 1 and not m.buffer.strides
    return made


def data(*sizes):
    rng = np.random.default_rng(6)
    return [rng.integers(-9, 9, s).astype("int32") for s in sizes]


def test_parameters(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4, 8), "int32"), B: T.Buffer((2, 3, 4), "int32"), C: T.Buffer((4,), "int32")):
        for i, j in T.grid(4, 8):
            A[i, j] = i * 10 + j
        for i, j, k in T.grid(2, 3, 4):
            B[i, j, k] = A[i, j + k] + C[k]

    made = flat(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4, 8), "int32"), B: T.Buffer((2, 3, 4), "int32"), C: T.Buffer((4,), "int32")):
            A_1 = T.decl_buffer((32,), "int32", data=A.data)
            B_1 = T.decl_buffer((24,), "int32", data=B.data)
            for i, j in T.grid(4, 8):
                A_1[i * 8 + j] = i * 10 + j
            for i, j, k in T.grid(2, 3, 4):
                B_1[i * 12 + j * 4 + k] = A_1[i * 8 + (j + k)] + C[k]
        """,
    )
    agree(before, made, *data((4, 8), (2, 3, 4), (4,)))


def test_symbolic_shapes(expect, agree):
    @T.prim_func(private=True)
    def before(a: T.handle, b: T.handle):
        n = T.int32()
        m = T.int32()
        A = T.match_buffer(a, (n, m), "int32")
        B = T.match_buffer(b, (m, n), "int32")
        for i, j in T.grid(n, m):
            B[j, i] = A[i, j]

    made = flat(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(a: T.handle, b: T.handle):
            n = T.int32()
            m = T.int32()
            A = T.match_buffer(a, (n, m), "int32")
            B = T.match_buffer(b, (m, n), "int32")
            A_1 = T.decl_buffer((n * m,), "int32", data=A.data)
            B_1 = T.decl_buffer((m * n,), "int32", data=B.data)
            for i, j in T.grid(n, m):
                B_1[j * n + i] = A_1[i * m + j]
        """,
    )
    agree(before, made, *data((4, 5), (5, 4)))


def test_scalars(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((), "int32"), B: T.Buffer((1,), "int32")):
        A[()] = 3
        B[0] = A[()] + 1

    made = flat(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((), "int32"), B: T.Buffer((1,), "int32")):
            A_1 = T.decl_buffer((1,), "int32", data=A.data)
            A_1[0] = 3
            B[0] = A_1[0] + 1
        """,
    )
    agree(before, made, *data((), (1,)))


def test_allocations(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4, 8), "int32")):
        data_1 = T.allocate([4, 8], "int32", "global")
        B = T.decl_buffer((4, 8), "int32", data=data_1)
        for i, j in T.grid(4, 8):
            B[i, j] = i - j
        for i, j in T.grid(4, 8):
            A[i, j] = B[3 - i, j]

    made = flat(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4, 8), "int32")):
            A_1 = T.decl_buffer((32,), "int32", data=A.data)
            B = T.decl_buffer((32,), "int32")
            for i, j in T.grid(4, 8):
                B[i * 8 + j] = i - j
            for i, j in T.grid(4, 8):
                A_1[i * 8 + j] = B[(3 - i) * 8 + j]
        """,
    )
    agree(before, made, *data((4, 8)))


def test_strides_and_offsets(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32")):
        B = T.decl_buffer((4, 8), "int32", data=A.data, strides=[16, 2], elem_offset=1)
        for i, j in T.grid(4, 8):
            if j < 7:
                B[i, j] = i * 8 + j

    made = flat(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((64,), "int32")):
            B = T.decl_buffer((64,), "int32", data=A.data)
            for i, j in T.grid(4, 8):
                if j < 7:
                    B[1 + i * 16 + j * 2] = i * 8 + j
        """,
    )
    agree(before, made, *data((64,)))


def test_the_size_reaches_from_the_start_to_the_last_element(agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "int32")):
        B = T.decl_buffer((4, 8), "int32", data=A.data, strides=[1, 4], elem_offset=20)
        for i, j in T.grid(4, 8):
            B[i, j] = i * 8 + j

    made = flat(before)
    assert 'T.decl_buffer((52,), "int32", data=A.data)' in made.script()
    agree(before, made, *data((64,)))


def test_symbolic_strides_of_parameters(agree):
    @T.prim_func(private=True)
    def before(a: T.handle, B: T.Buffer((4, 3), "int32")):
        s = T.int32()
        A = T.match_buffer(a, (4, 3), "int32", strides=[s, 1])
        for i, j in T.grid(4, 3):
            B[i, j] = A[i, j] * 2

    made = flat(before)
    wide = data((4, 7))[0]
    agree(before, made, wide[:, :3], np.zeros((4, 3), "int32"))


def test_vector_accesses(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((4, 8), "int32"), B: T.Buffer((4, 8), "int32")):
        for i in range(4):
            B[i, 0:8] = A[i, 0:8] + T.Broadcast(i, 8)

    made = flat(before)
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((4, 8), "int32"), B: T.Buffer((4, 8), "int32")):
            A_1 = T.decl_buffer((32,), "int32", data=A.data)
            B_1 = T.decl_buffer((32,), "int32", data=B.data)
            for i in range(4):
                B_1[i * 8:i * 8 + 8] = A_1[i * 8:i * 8 + 8] + T.Broadcast(i, 8)
        """,
    )
    agree(before, made, *data((4, 8), (4, 8)))


def test_the_classic_name():
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32")):
        A[1, 2] = 3

    mod = tvm.IRModule({"main": before})
    assert tir.transform.StorageFlatten()(mod).script() == Flatten(mod).script()


def test_nothing_to_do_is_the_same_object():
    @T.prim_func
    def plain(A: T.Buffer((8,), "int32")):
        for i in range(8):
            A[i] = i

    mod = tvm.IRModule({"main": plain})
    assert Flatten(mod) is mod
