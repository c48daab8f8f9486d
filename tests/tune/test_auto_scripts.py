"""Programs written by hand: whatever the automatic scheduler does not know is left as it is, and means the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.tir.interpret import interpret


@T.prim_func
def predicated(A: T.Buffer((40,), "float32"), B: T.Buffer((40,), "float32")) -> None:
    for i, j in T.grid(6, 8):
        with T.block("B"):
            v = T.axis.spatial(40, i * 8 + j)
            T.where(i * 8 + j < 40)
            B[v] = A[v] * T.float32(2)


@T.prim_func
def half_of_it(A: T.Buffer((40,), "float32"), B: T.Buffer((40,), "float32")) -> None:
    for i in range(40):
        with T.block("B"):
            v = T.axis.spatial(40, i)
            T.where(i < 20)
            B[v] = A[v] * T.float32(2)


@T.prim_func
def opaque(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")) -> None:
    for i in range(8):
        with T.block("line"):
            v = T.axis.spatial(8, i)
            T.reads(A[v, 0:16])
            T.writes(B[v, 0:16])
            for j in range(16):
                B[v, j] = A[v, 15 - j]


@T.prim_func
def nested(A: T.Buffer((8, 16), "float32"), C: T.Buffer((8,), "float32")) -> None:
    B = T.alloc_buffer((8, 16))
    for i in range(8):
        with T.block("outer"):
            v = T.axis.spatial(8, i)
            for j in range(16):
                with T.block("twice"):
                    w = T.axis.spatial(16, j)
                    B[v, w] = A[v, w] * T.float32(2)
            for k in range(16):
                with T.block("sum"):
                    r = T.axis.reduce(16, k)
                    with T.init():
                        C[v] = T.float32(0)
                    C[v] = C[v] + B[v, r]


@T.prim_func
def same_names(A: T.Buffer((64,), "float32"), D: T.Buffer((64,), "float32")) -> None:
    B = T.alloc_buffer((64,))
    C = T.alloc_buffer((64,))
    for i in range(64):
        with T.block("step"):
            v = T.axis.spatial(64, i)
            B[v] = A[v] + T.float32(1)
    for i in range(64):
        with T.block("step"):
            v = T.axis.spatial(64, i)
            C[v] = B[63 - v] * T.float32(2)
    for i in range(64):
        with T.block("step"):
            v = T.axis.spatial(64, i)
            D[v] = C[v] + B[v]


@T.prim_func
def in_place(A: T.Buffer((64,), "float32")) -> None:
    B = T.alloc_buffer((64,))
    for i in range(64):
        with T.block("B"):
            v = T.axis.spatial(64, i)
            B[v] = A[v] + T.float32(1)
    for i in range(64):
        with T.block("A"):
            v = T.axis.spatial(64, i)
            A[v] = B[63 - v]


@T.prim_func
def written_twice(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")) -> None:
    B = T.alloc_buffer((64,))
    for i in range(64):
        with T.block("first"):
            v = T.axis.spatial(64, i)
            B[v] = A[v]
    for i in range(32):
        with T.block("then"):
            v = T.axis.spatial(32, i)
            B[v * 2] = T.float32(7)
    for i in range(64):
        with T.block("C"):
            v = T.axis.spatial(64, i)
            C[v] = B[v] + T.float32(1)


@T.prim_func
def running_sum(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")) -> None:
    for i in range(64):
        with T.block("B"):
            v = T.axis.opaque(64, i)
            B[v] = T.if_then_else(v == 0, T.float32(0), B[T.max(v - 1, 0)]) + A[v]


@T.prim_func
def from_one(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")) -> None:
    for i in range(1, 63):
        with T.block("B"):
            v = T.axis.spatial((1, 63), i)
            B[v] = A[v - 1] + A[v + 1]


@T.prim_func
def without_init(A: T.Buffer((8, 64), "float32"), B: T.Buffer((8,), "float32")) -> None:
    for i, k in T.grid(8, 64):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            B[v] = B[v] + A[v, r]


@T.prim_func
def one_element(A: T.Buffer((1,), "float32"), B: T.Buffer((1,), "float32")) -> None:
    with T.block("B"):
        B[0] = A[0] + T.float32(1)


@T.prim_func
def no_block(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")) -> None:
    for i in range(64):
        B[i] = A[i] + T.float32(1)


@T.prim_func
def views(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")) -> None:
    for i in range(8):
        with T.block("line"):
            v = T.axis.spatial(8, i)
            T.reads(A[v, 0:16])
            T.writes(B[v, 0:16])
            S = T.match_buffer(A[v, 0:16], (16,), offset_factor=1)
            D = T.match_buffer(B[v, 0:16], (16,), offset_factor=1)
            for j in range(16):
                with T.block("copy"):
                    w = T.axis.spatial(16, j)
                    D[w] = S[w]


@T.prim_func
def mixed(
    A: T.Buffer((32, 32), "float32"), W: T.Buffer((32, 32), "float32"), D: T.Buffer((32, 32), "float32")
) -> None:
    B = T.alloc_buffer((32, 32))
    C = T.alloc_buffer((32, 32))
    for i in range(32):
        with T.block("reversed"):
            v = T.axis.spatial(32, i)
            T.reads(A[v, 0:32])
            T.writes(B[v, 0:32])
            for j in range(32):
                B[v, j] = A[v, 31 - j]
    for i, j, k in T.grid(32, 32, 32):
        with T.block("product"):
            a, b, c = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[a, b] = T.float32(0)
            C[a, b] = C[a, b] + B[a, c] * W[c, b]
    for i, j in T.grid(32, 32):
        with T.block("after"):
            a, b = T.axis.remap("SS", [i, j])
            D[a, b] = C[b, a] + T.float32(1)


SCRIPTS = {
    f.attrs.get("global_symbol", name): f
    for name, f in list(globals().items())
    if isinstance(f, tir.PrimFunc)
}


def arrays(func: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(-8, 8, [int(d) for d in func.buffer_map[p].shape]).astype("float32") for p in func.params
    ]


def check(func: Any, scheduled: Any) -> None:
    want, got, compiled = arrays(func), arrays(func), arrays(func)
    interpret(func, *want)
    interpret(scheduled, *got)
    tvm.build(scheduled)(*compiled)
    for w, g, c in zip(want, got, compiled, strict=True):
        np.testing.assert_array_equal(g, w)
        np.testing.assert_array_equal(c, w)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_scripts_mean_the_same(name: str) -> None:
    func = SCRIPTS[name]
    check(func, tvm.auto_schedule(func).mod["main" if "main" in str(func.attrs) else name])
    out = arrays(func)
    tvm.compile(func)(*out)
    want = arrays(func)
    interpret(func, *want)
    for w, g in zip(want, out, strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize(
    "name",
    ["predicated", "half_of_it", "opaque", "nested", "running_sum", "without_init", "views", "no_block"],
)
def test_what_is_not_known_is_left_as_it_is(name: str) -> None:
    func = SCRIPTS[name]
    sch = tvm.auto_schedule(func)
    assert sch.mod[next(iter(sch.mod.functions))] is func
    assert all(r["sketch"] == "as it is" for r in sch.explanation.records)


def test_what_is_known_beside_it_is_scheduled() -> None:
    told = {r["stage"]: r["sketch"] for r in tvm.auto_schedule(mixed).explanation.records}
    assert told["reversed"] == "as it is"
    assert told["product"] == "tile"


def test_a_schedule_is_not_scheduled_again() -> None:
    A = te.placeholder((64, 64), name="A")
    B = te.compute((64, 64), lambda i, j: A[i, j] + 1.0, name="B")
    by_hand = tir.Schedule(te.create_prim_func([A, B]))
    i, j = by_hand.get_loops("B")
    by_hand.vectorize(by_hand.split(j, [None, 8])[1])
    assert tvm.auto_schedule(by_hand.mod).mod["main"] is by_hand.mod["main"]
    automatic = tvm.auto_schedule([A, B])
    assert tvm.auto_schedule(automatic.mod).mod["main"] is automatic.mod["main"]
    marked = te.create_prim_func([A, B]).with_attr("tir.is_scheduled", True)
    assert tvm.auto_schedule(marked).mod["main"] is marked


def test_every_function_of_a_module() -> None:
    @I.ir_module
    class Two:
        @T.prim_func
        def double(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")) -> None:
            for i in range(100):
                with T.block("B"):
                    v = T.axis.spatial(100, i)
                    B[v] = A[v] * T.float32(2)

        @T.prim_func
        def total(A: T.Buffer((100,), "float32"), B: T.Buffer((1,), "float32")) -> None:
            for i, k in T.grid(1, 100):
                with T.block("B"):
                    v, r = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[v] = T.float32(0)
                    B[v] = B[v] + A[r]

    sch = tvm.auto_schedule(Two)
    assert [r["sketch"] for r in sch.explanation.records] == ["elementwise", "rows"]
    made = tvm.compile(Two)
    a, b, c = np.arange(100, dtype="float32"), np.zeros(100, "float32"), np.zeros(1, "float32")
    made["double"](a, b)
    made["total"](a, c)
    np.testing.assert_array_equal(b, 2 * a)
    assert c[0] == a.sum()


def test_steps_of_a_scan_stay_in_order() -> None:
    s = te.placeholder((8, 16), name="s")
    x = te.placeholder((8, 16), name="x")
    first = te.compute((1, 16), lambda _, i: x[0, i], name="first")
    step = te.compute((8, 16), lambda t, i: s[t - 1, i] + x[t, i], name="step")
    out = te.scan(first, step, s, inputs=[x], name="out")
    func = te.create_prim_func([x, out])
    check(func, tvm.auto_schedule(func).mod["main"])


def test_a_call_to_elsewhere_stays() -> None:
    A = te.placeholder((32,), name="A")
    B = te.compute((32,), lambda i: A[i] * 2.0, name="B")
    C = te.extern((32,), [B], lambda ins, outs: _copied(ins[0], outs[0]), name="C", dtype="float32")
    D = te.compute((32,), lambda i: C[i] + 1.0, name="D")
    func = te.create_prim_func([A, D])
    sch = tvm.auto_schedule(func)
    assert {r["stage"]: r["sketch"] for r in sch.explanation.records}["C"] == "as it is"
    check(func, sch.mod["main"])


def _copied(source: Any, target: Any) -> Any:
    ib = tir.ir_builder.create()
    src, dst = ib.buffer_ptr(source), ib.buffer_ptr(target)
    with ib.for_range(0, 32, name="i") as i:
        dst[i] = src[i]
    return ib.get()
