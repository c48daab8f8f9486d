"""Types of the user's own: numbers with 16 bits after the point, whose arithmetic is a library of C."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import cc
from tilewright.ir.errors import LoweringError
from tilewright.target import datatype

FIXED = "custom[fixed]32"
SOURCE = """
#include <stdint.h>
#include <math.h>
static float number(uint32_t x) { return (int32_t)x / 65536.0f; }
float FixedTo(uint32_t x) { return number(x); }
uint32_t FixedOf(float x) {
    if (x > 32767) x = 32767;
    if (x < -32768) x = -32768;
    return (uint32_t)(int32_t)lrintf(x * 65536.0f);
}
uint32_t FixedAdd(uint32_t a, uint32_t b) { return a + b; }
uint32_t FixedSub(uint32_t a, uint32_t b) { return a - b; }
uint32_t FixedMul(uint32_t a, uint32_t b) { return (uint32_t)(((int64_t)(int32_t)a * (int32_t)b) >> 16); }
uint32_t FixedDiv(uint32_t a, uint32_t b) { return FixedOf(number(a) / number(b)); }
uint32_t FixedMax(uint32_t a, uint32_t b) { return (int32_t)a > (int32_t)b ? a : b; }
uint8_t FixedLT(uint32_t a, uint32_t b) { return (int32_t)a < (int32_t)b; }
uint32_t FixedExp(uint32_t a) { return FixedOf(expf(number(a))); }
uint32_t FixedMin(void) { return 0x80000000u; }
"""


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory: Any) -> Any:
    folder = tmp_path_factory.mktemp("fixed")
    (folder / "fixed.c").write_text(SOURCE)
    cc.create_shared(folder / "fixed.so", str(folder / "fixed.c"))
    held = ctypes.CDLL(str(folder / "fixed.so"), ctypes.RTLD_GLOBAL)
    made = datatype.create_lower_func
    datatype.register("fixed", 150)
    datatype.register_op(made({(32, 32): "FixedOf"}), "Cast", "llvm", "float", "fixed")
    datatype.register_op(made({(32, 32): "FixedTo"}), "Cast", "llvm", "fixed", "float")
    datatype.register_op(made({32: "FixedOf"}), "FloatImm", "llvm", "fixed")
    for name in "Add Sub Mul Div Max LT".split():
        datatype.register_op(made({32: f"Fixed{name}"}), name, "llvm", "fixed")
    datatype.register_op(made({32: "FixedExp"}), "Call", "llvm", "fixed", intrinsic_name="tir.exp")
    datatype.register_op(datatype.lower_ite, "Call", "llvm", "fixed", intrinsic_name="tir.if_then_else")
    datatype.register_op(
        datatype.lower_call_pure_extern, "Call", "llvm", "fixed", intrinsic_name="tir.call_pure_extern"
    )
    datatype.register_min_func(datatype.create_min_lower_func({32: "FixedMin"}, "fixed"), "fixed")
    return held


def converted(values: Any, dtype: str) -> Any:
    x = relay.var("x", shape=values.shape, dtype=str(values.dtype))
    return relay.create_executor("graph").evaluate(relay.Function([x], x.astype(dtype)))(values)


def test_names_and_codes() -> None:
    assert datatype.get_type_code("fixed") == 150 and datatype.get_type_name(150) == "fixed"
    assert datatype.get_type_registered(150) and not datatype.get_type_registered(151)
    kind = tvm.DataType(f"{FIXED}x4")
    assert (kind.bits, kind.lanes, kind.type_code, kind.element) == (32, 4, 150, FIXED)
    datatype.register("fixed", 150)  # once more changes nothing
    with pytest.raises(ValueError, match="'fixed', code 151: it is registered with code 150"):
        datatype.register("fixed", 151)
    with pytest.raises(ValueError, match="'other', code 150: 'fixed' has this code"):
        datatype.register("other", 150)
    with pytest.raises(ValueError, match="the code of 'other' is 7 and must be 129 to 255"):
        datatype.register("other", 7)
    with pytest.raises(ValueError, match=r"unknown data type 'custom\[posit\]16': target.datatype.register"):
        tvm.DataType("custom[posit]16")
    with pytest.raises(ValueError, match="has 8, 16, 32 or 64 bits"):
        tvm.DataType("custom[fixed]24")


def test_loops() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i].astype(FIXED) * 2.0 + tvm.tir.const(0.5, FIXED), name="B")
    C = te.compute((8,), lambda i: te.if_then_else(B[i] < 1.0, te.exp(B[i]), B[i] / 4.0), name="C")
    D = te.compute((8,), lambda i: C[i].astype("float32"), name="D")
    s = te.create_schedule(D.op)
    s[B].compute_inline()
    script = tvm.lower(s, [A, D]).script()
    assert "custom" not in script and '"FixedExp"' in script
    a, d = np.linspace(-2, 2, 8).astype("float32"), tvm.nd.empty((8,))
    tvm.build(s, [A, D], "llvm")(tvm.nd.array(a), d)
    b = a * 2 + 0.5
    np.testing.assert_allclose(d.numpy(), np.where(b < 1, np.exp(b), b / 4), atol=1e-3)


def test_arrays_hold_the_bits() -> None:
    P = te.placeholder((4,), FIXED, name="P")
    Q = te.compute((4,), lambda i: P[i] - P[i] * P[i], name="Q")
    f = tvm.build(te.create_schedule(Q.op), [P, Q], "llvm")
    p, q = tvm.nd.empty((4,), FIXED), tvm.nd.empty((4,), FIXED)
    p.copyfrom(np.full(4, 1 << 15, "uint32"))  # a half
    f(p, q)
    assert p.dtype == q.dtype == FIXED
    np.testing.assert_array_equal(q.numpy(), np.full(4, 1 << 14))
    with pytest.raises(TypeError, match="must have dtype uint32, got float32"):
        f(p, tvm.nd.empty((4,)))


@pytest.mark.slow
def test_a_model() -> None:
    """A graph is changed to the type and computes nearly the same; the least value comes from its function."""
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(1, 2, 6, 6)).astype("float32"), rng.normal(size=(3, 2, 3, 3)).astype("float32")
    X, W = relay.var("x", shape=x.shape), relay.var("w", shape=w.shape)
    y = relay.nn.max_pool2d(relay.nn.relu(relay.nn.conv2d(X, W, padding=(1, 1)) + relay.const(0.25)), (2, 2))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([X, W], y)))
    want = relay.create_executor("graph", mod).evaluate()(x, w).numpy()
    changed = relay.frontend.ChangeDatatype("float32", FIXED)(mod)
    assert str(changed["main"].checked_type.ret_type) == f"Tensor[(1, 3, 5, 5), {FIXED}]"
    got = relay.create_executor("graph", changed).evaluate()(converted(x, FIXED), converted(w, FIXED))
    assert got.dtype == FIXED
    np.testing.assert_allclose(converted(got, "float32").numpy(), want, atol=2e-3)


def test_what_is_not_registered_is_named() -> None:
    A = te.placeholder((8,), FIXED, name="A")
    for compute, missing in (
        (lambda i: te.sqrt(A[i]), "tvm.datatype.lower.llvm.Call.intrin.tir.sqrt.fixed"),
        (lambda i: tvm.tir.Min(A[i], A[i] + A[i]), "Min.fixed"),
        (lambda i: A[i].astype("float64"), r"widths \(32, 64\)"),
    ):
        B = te.compute((8,), compute, name="B")
        with pytest.raises((LoweringError, tvm.TVMError), match=missing):
            tvm.lower(te.create_schedule(B.op), [A, B])
    with pytest.raises(ValueError, match="dest_type_name"):
        datatype.register_op(lambda op: op, "Cast", "llvm", "fixed")
