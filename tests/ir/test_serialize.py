"""Programs as JSON: what is read back is what was written."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir import load_json, save_json


def chain() -> tuple[te.Tensor, te.Tensor]:
    n = te.size_var("n")
    A = te.placeholder((n, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((n,), lambda i: te.sum(te.exp(A[i, k]), axis=k), name="B")
    return A, te.compute((n,), lambda i: tir.max(B[i], tir.const(float("-inf"), "float32")), name="C")


def test_a_function_comes_back_before_and_after_lowering() -> None:
    A, C = chain()
    func = te.create_prim_func([A, C])
    mod = tvm.lower(te.create_schedule(C.op), [A, C])
    for program in (func, tvm.IRModule({"main": func}), mod):
        tvm.ir.assert_structural_equal(load_json(save_json(program)), program)


def test_what_is_shared_stays_shared() -> None:
    x = tir.Var("x", "int32")
    back = load_json(save_json((x + 1) * (x + 2)))
    assert back.a.a is back.b.a and back.a.a.name == "x"


def test_damaged_text_is_refused() -> None:
    for text, reason in (
        ("{", "this is no JSON"),
        ("[]", "its format must be"),
        ('{"format": "tilewright-ir-1", "nodes": [["Nope", 1]], "root": null}', "no node of kind 'Nope'"),
        ('{"format": "tilewright-ir-1", "nodes": [], "root": {"node": 3}}', "damaged"),
    ):
        with pytest.raises(tvm.TVMError, match=reason):
            load_json(text)


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(tvm.TVMError, match="cannot be written as JSON"):
        save_json(object())
