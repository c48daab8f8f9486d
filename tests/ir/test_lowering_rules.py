"""Rules of a program for the lowering of operators, which act in the code of the targets that they are for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir import op as operators
from tilewright.ir.errors import LoweringError


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Operators and rules as they were before."""
    known = {name: (dict(o.attrs), dict(o.levels), o.effect) for name, o in operators._registry.items()}
    monkeypatch.setattr(operators, "_lowering_rules", [])
    yield
    for name in list(operators._registry):
        if name not in known:
            del operators._registry[name]
            continue
        o = operators._registry[name]
        o.attrs, o.levels, o.effect = known[name]


def run(rule):
    A = te.placeholder((5,), name="A")
    B = te.compute((5,), lambda i: rule(A[i]), name="B")
    a = tvm.nd.array(np.linspace(-2, 2, 5, dtype="float32"))
    b = tvm.nd.empty((5,))
    tvm.build(te.create_schedule(B.op), [A, B], "llvm")(a, b)
    return a.numpy(), b.numpy()


def test_an_operator_of_ones_own():
    tvm.ir.register_op_attr("tir.twice", "TCallEffectKind", tir.CallEffectKind.Pure)
    tvm.ir.register_intrin_lowering("tir.twice", target="llvm", f=lambda call: call.args[0] * 2)
    assert tvm.ir.Op.get("tir.twice").is_pure
    a, b = run(lambda x: tir.call_intrin("float32", "tir.twice", x))
    np.testing.assert_array_equal(b, 2 * a)


def test_a_rule_for_a_known_operator():
    @tvm.ir.register_intrin_lowering("tir.exp", target="default", level=20)
    def rule(call):
        return call.args[0] + 1

    tvm.ir.register_intrin_lowering(
        "tir.exp", target="default", f=lambda call: call.args[0] - 1
    )  # a lower level
    a, b = run(te.exp)
    np.testing.assert_array_equal(b, a + 1)
    tvm.ir.register_intrin_lowering("tir.exp", target="llvm", f=lambda call: call)  # does not apply
    a, b = run(te.exp)
    np.testing.assert_array_equal(b, a + 1)


def test_a_rule_is_for_its_target_alone():
    tvm.ir.register_intrin_lowering(
        "tir.exp", target="cuda", f=lambda call: tir.call_pure_extern("float32", "__expf", call.args[0])
    )
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: te.exp(A[i]), name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    cuda = tvm.build(s, [A, B], "cuda -arch=sm_80").imported_modules[0].get_source()
    opencl = tvm.build(s, [A, B], "opencl").imported_modules[0].get_source()
    assert "__expf(" in cuda and "__expf(" not in opencl
    a, b = run(te.exp)
    np.testing.assert_allclose(b, np.exp(a), rtol=1e-6)


def test_a_rule_that_gives_another_type_is_refused():
    tvm.ir.register_intrin_lowering("tir.exp", target="llvm", f=lambda call: call.args[0].astype("float64"))
    with pytest.raises(LoweringError, match=r"llvm\.FLowerIntrinsic of tir\.exp gives .* of type float64"):
        run(te.exp)


def test_rules_are_part_of_the_keys_of_compiled_code():
    assert operators.rules_key() == ""
    tvm.ir.register_intrin_lowering("tir.exp", target="llvm", f=lambda call: call)
    first = operators.rules_key()
    tvm.ir.register_intrin_lowering("tir.exp", target="llvm", f=lambda call: call)
    assert first and operators.rules_key() not in ("", first)
