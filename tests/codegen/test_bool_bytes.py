"""A bool in memory is true unless its byte is 0, whoever has written it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_source_c import compiled, needs_cc

import tilewright as tvm
from tilewright import relay, te, tir
from tilewright.contrib import graph_executor

BYTES = np.array([0, 1, 2, 168, 255, 128, 0, 3, 64, 0, 254] * 7, "uint8")
TRUTH = BYTES != 0
N = len(BYTES)

# what is computed from truths, in terms of NumPy, by name
USES: dict[str, tuple[str, Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "copy": ("bool", lambda a: a, lambda t: t),
    "not": ("bool", lambda a: tir.Not(a), lambda t: ~t),
    "int": ("int32", lambda a: a.astype("int32"), lambda t: t.astype("int32")),
    "byte": ("uint8", lambda a: a.astype("uint8"), lambda t: t.astype("uint8")),
    "float": ("float32", lambda a: a.astype("float32"), lambda t: t.astype("float32")),
    "where": ("float32", lambda a: tir.Select(a, 2.5, -1.0), lambda t: np.where(t, 2.5, -1).astype("f4")),
    "equal": ("bool", lambda a: a.astype("int8").equal(tir.const(1, "int8")), lambda t: t),
    "and": ("bool", lambda a: tir.And(a, tir.const(True, "bool")), lambda t: t),
}


def bools() -> np.ndarray:
    return BYTES.view(np.bool_)


def program(use: str, index: Callable[[Any], Any] = lambda i: i) -> Any:
    A = te.placeholder((N,), "bool", name="A")
    kind, make, _ = USES[use]
    B = te.compute((N,), lambda i: make(A[index(i)]), name="B")
    assert B.dtype == kind
    return te.create_prim_func([A, B])


def check(got: np.ndarray, use: str, order: Any = slice(None)) -> None:
    want = USES[use][2](TRUTH[order])
    np.testing.assert_array_equal(got.view("uint8"), want.view("uint8"))  # what is written is 0 or 1


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("automatic", [True, False])
def test_compiled(use: str, automatic: bool) -> None:
    func = program(use)
    mod = tvm.auto_schedule(func, "llvm").mod if automatic else func
    out = tvm.nd.empty((N,), USES[use][0])
    tvm.build(mod, target="llvm")(tvm.nd.array(bools()), out)
    check(out.numpy(), use)


def test_gathered_and_backwards() -> None:
    for index, order in ((lambda i: N - 1 - i, slice(None, None, -1)), (lambda i: i * 2 % N, None)):
        order = np.arange(N) * 2 % N if order is None else order
        out = tvm.nd.empty((N,), "int32")
        mod = tvm.auto_schedule(program("int", index), "llvm").mod
        tvm.build(mod, target="llvm")(tvm.nd.array(bools()), out)
        check(out.numpy(), "int", order)


@pytest.mark.parametrize("use", USES)
def test_interpreted(use: str) -> None:
    out = np.zeros(N, USES[use][0])
    tir.interpret(program(use), bools(), out)
    check(out, use)


@needs_cc
@pytest.mark.parametrize("use", ["copy", "not", "int", "where"])
def test_as_c(use: str, tmp_path: Any) -> None:
    library = compiled(tvm.build(program(use), target="c"), tmp_path)
    given, out = bools(), np.zeros(N, USES[use][0])
    library.tw_main(given.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p))
    check(out, use)


@pytest.mark.slow
def test_of_a_graph() -> None:
    """Inputs, parameters, operators on truths, and what is folded when the graph is compiled."""
    x = relay.var("x", shape=(N,), dtype="bool")
    p = relay.var("p", shape=(N,), dtype="bool")
    c = relay.const(bools())
    outs = [
        relay.logical_and(x, p),
        relay.logical_or(x, relay.logical_not(p)),
        relay.logical_xor(x, p),
        relay.where(p, relay.const(np.float32(3)), relay.const(np.float32(4))),
        relay.sum(relay.cast(x, "int32")),
        relay.any(x, axis=0),
        relay.all(x, axis=0),
        relay.cast(c, "float32"),
        relay.logical_and(c, relay.const(np.ones(N, bool))),
        relay.reshape(x, (7, N // 7)),
    ]
    mod = tvm.IRModule.from_expr(relay.Function([x, p], relay.Tuple(outs)))
    t = TRUTH
    want = [t, t | ~t, t ^ t, np.where(t, 3, 4), t.sum(), t.any(), t.all(), t.astype("f4"), t]
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params={"p": bools()})
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    m.set_input("x", tvm.nd.array(bools()))
    m.run()
    for i, w in enumerate(want):
        np.testing.assert_array_equal(m.get_output(i).numpy(), w, err_msg=str(i))
    np.testing.assert_array_equal(m.get_output(9).numpy().view("uint8").reshape(-1) != 0, t)
