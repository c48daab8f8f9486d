"""Programs as JSON: what is read back is what was written."""

from __future__ import annotations

import json
import re
from typing import Any

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
        ("{", "this is not JSON"),
        ("[]", "its format must be"),
        ('{"format": "tilewright-ir-1", "nodes": [["Nope", 1]], "root": null}', "no node of kind 'Nope'"),
        ('{"format": "tilewright-ir-1", "nodes": [], "root": {"node": 3}}', "damaged"),
    ):
        with pytest.raises(tvm.TVMError, match=reason):
            load_json(text)


def matmul() -> dict[str, Any]:
    A, B = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), "k")
    C = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return json.loads(save_json(te.create_prim_func([A, B, C])))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "kind, at, value, reason",
    [
        ("Mul", 0, "Mod", "the field `a` must be whole numbers, not float32"),
        ("Mul", 0, "FloorMod", "the field `a` must be whole numbers, not float32"),
        ("Mul", 0, "And", "the field `a` must be bool, not float32"),
        ("IterVar", 1, {"dtype": "int8"}, "the field `dom` must be Range or None, not 'int8'"),
        ("IterVar", 1, None, "the iterator `v_i` of block C has no domain"),
        ("Range", 1, "x", "the field `min` must be PrimExpr, not 'x'"),
        ("For", 7, {"map": [[{"node": 0}, 1]]}, "the field `annotations` must be dict[str, Any]"),
        ("For", 4, 99, "99 is not a valid ForKind"),
    ],
)
def test_a_node_of_another_kind_is_refused_when_it_is_read(
    kind: str, at: int, value: Any, reason: str
) -> None:
    data = matmul()
    next(node for node in data["nodes"] if node[0] == kind)[at] = value
    with pytest.raises(tvm.TVMError, match=f"damaged .*{re.escape(reason)}"):
        load_json(json.dumps(data))


def test_strides_are_as_many_as_dimensions() -> None:
    fields = tir.Buffer._fields
    data = matmul()
    node = next(node for node in data["nodes"] if node[0] == "Buffer")
    at = 1 + fields.index("strides")
    node[at] = [node[1 + fields.index("elem_offset")]] * 3
    with pytest.raises(tvm.TVMError, match="buffer A has 2 dimensions and 3 strides"):
        load_json(json.dumps(data))


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(tvm.TVMError, match="cannot be written as JSON"):
        save_json(object())
