"""Vectors in memory of one's own lose the predicate that all of them have."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.expr import BufferLoad
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import SLACK, Allocate, BufferStore
from tilewright.script import tir as T
from tilewright.tir.transform.unmask_scratch import unmask_scratch


def masked(func):
    """The memory that is read or written under predicates."""
    found = (m for m in pre_order(func.body) if isinstance(m, (BufferLoad, BufferStore)))
    return {m.buffer.name for m in found if m.predicate is not None}


def sums(rows, columns):
    """Sums of columns, by lanes of 8 of which the last may be too many."""
    A = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis((0, rows), name="k")
    B = te.compute((columns,), lambda j: te.sum(A[k, j], axis=k), name="B")
    C = te.compute((columns,), lambda j: B[j] * 2, name="C")
    s = te.create_schedule(C.op)
    jo, ji = s[C].split(C.op.axis[0], factor=8)
    s[C].vectorize(ji)
    s[B].compute_at(s[C], jo)
    (j,) = s[B].op.axis
    s[B].reorder(k, j)
    s[B].vectorize(j)
    return s, [A, C]


@pytest.mark.parametrize("columns", [5, 8, 19, 24])
def test_sums_in_scratch_are_whole_vectors(columns):
    s, args = sums(6, columns)
    with tvm.transform.PassContext(config={"tir.disable_storage_rewrite": True}):
        made = tvm.lower(s, args)["main"]
    assert (
        not any(name.startswith("B") for name in masked(made)) or columns < 8
    )  # then scratch has no room for eight
    rng = np.random.default_rng(0)
    a = rng.integers(-9, 9, (6, columns)).astype("float32")
    out = tvm.nd.array(np.zeros(columns, "float32"))
    tvm.build(s, args, "llvm")(tvm.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), a.sum(0) * 2)


def scratch(**changed):
    """Scratch of 16 numbers under a predicate, with changes."""
    text = """
@T.prim_func(private=True)
def func(A: T.Buffer((16,), "KIND"), n: T.int32):
    s = T.allocate([SIZE], "KIND", "local")
    s_1 = T.decl_buffer((SIZE,), "KIND", data=s)
    for i in range(2):
        s_1.vstore([T.Ramp(BASE, 1, 8)], T.Broadcast(T.KIND(1), 8), predicate=T.Ramp(0, 1, 8) < T.Broadcast(LIMIT, 8))
        OTHER
        A.vstore([T.Ramp(0, 1, 8)], s_1.vload([T.Ramp(BASE, 1, 8)], predicate=T.Ramp(0, 1, 8) < T.Broadcast(n, 8)), predicate=T.Ramp(0, 1, 8) < T.Broadcast(n, 8))
"""
    changes = {"KIND": "float32", "SIZE": "8", "BASE": "0", "LIMIT": "n", "OTHER": "T.evaluate(0)"}
    changes.update(changed)
    for name, value in changes.items():
        text = text.replace(name, value)
    scope = {"T": T}
    return tvm.script.from_source(text, scope)


@pytest.mark.parametrize(
    ("change", "dropped"),
    [
        ({}, True),
        ({"SIZE": "16", "BASE": "i * 8"}, True),
        ({"BASE": "i * 8"}, False),  # the second vector ends behind the memory
        ({"KIND": "int32"}, False),  # nobody knows what is divided by it
        ({"LIMIT": "(n + i)"}, False),  # another predicate, and one that changes
        ({"OTHER": "s_1[0] = T.float32(3)"}, False),  # a single element
        ({"OTHER": 'T.evaluate(T.call_extern("int32", "f", s))'}, False),  # whoever has the address
    ],
)
def test_when_predicates_go(change, dropped):
    func = scratch(**change)
    made = unmask_scratch(func)
    assert ("s_1" in masked(made)) is not dropped
    assert "A" in masked(made)
    if not dropped:
        assert made is func


@pytest.mark.parametrize("shape", [(3, 7, 5), (2, 9, 21)])
def test_softmax_along_the_middle(shape):
    X = te.placeholder(shape, name="X")
    Y = topi.nn.softmax(X, axis=1)
    with tvm.transform.PassContext(config={"tilewright.auto_schedule": True}):
        run = tvm.build(te.create_prim_func([X, Y]), target="llvm")
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    out = tvm.nd.array(np.full(shape, np.nan, "float32"))
    run(tvm.nd.array(x), out)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.slow
def test_padded_scratch_of_dynamic_size_is_loaded_without_masks():
    high, wide = te.size_var("high"), te.size_var("wide")
    A, W = te.placeholder((1, 4, high, wide), name="A"), te.placeholder((4, 4, 3, 3), name="W")
    func = te.create_prim_func([A, W, topi.nn.conv2d_nchw(A, W, 1, 1, 1)])
    target = tvm.target.Target("llvm -mcpu=x86-64-v3")
    with target:
        made = tvm.lower(tvm.auto_schedule(func, target, trials=0).mod["main"])["main"]
    marked = [m for m in pre_order(made.body) if isinstance(m, Allocate) and SLACK in m.annotations]
    assert {m.buffer_var.name for m in marked} == {"pad_temp"}
    rng = np.random.default_rng(0)
    for size in ((1, 1), (3, 20), (2, 33)):
        a = rng.integers(-4, 5, (1, 4, *size)).astype("float32")
        w = rng.integers(-4, 5, (4, 4, 3, 3)).astype("float32")
        found, expected = (np.zeros((1, 4, *size), "float32") for _ in range(2))
        tvm.tir.interpret(made, a, w, found)
        tvm.tir.interpret(func, a, w, expected)
        np.testing.assert_array_equal(found, expected)
