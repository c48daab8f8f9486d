"""Tensors and operations as JSON and back."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import auto_scheduler, te


def restored(x: Any) -> Any:
    return tvm.ir.load_json(tvm.ir.save_json(x))


def product() -> list[te.Tensor]:
    a, b = te.placeholder((4, 8), name="A"), te.placeholder((8, 4), name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute(
        (4, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C", tag="t", attrs={"n": [1, 2]}
    )
    return [a, b, te.compute((4, 4), lambda i, j: c[i, j] + c[j, i], name="D")]


def test_a_tensor_keeps_all_that_it_is_computed_from() -> None:
    tensors = product()
    a, b, d = restored(tensors)
    (c,) = d.op.input_tensors
    assert c.op.input_tensors == (a, b) and c.op.tag == "t" and c.op.attrs == {"n": (1, 2)}
    tvm.ir.assert_structural_equal(te.create_prim_func([a, b, d]), te.create_prim_func(tensors))


def test_tuple_reductions_scans_and_extern_operations() -> None:
    x = te.placeholder((te.size_var("m"), 4), name="X")
    state = te.placeholder(x.shape, name="state")
    init = te.compute((1, 4), lambda _, i: x[0, i])
    update = te.compute(x.shape, lambda t, i: state[t - 1, i] + x[t, i])
    scan = te.scan(init, update, state, inputs=[x])
    argmax = te.comm_reducer(
        lambda p, q: (te.if_then_else(p[1] >= q[1], p[0], q[0]), te.max(p[1], q[1])),
        lambda i, v: (tvm.tir.const(-1, i), te.min_value(v)),
    )
    k = te.reduce_axis((0, 4), "k")
    pair = te.compute((3,), lambda i: argmax((k.var, x[i, k]), axis=k), name="argmax")
    called = te.extern((4,), [x], lambda ins, outs: tvm.tir.call_packed("f", ins[0], outs[0]), name="E")
    for one in (scan, pair[1], called):
        made = restored(one)
        assert made.op.name == one.op.name and made.value_index == one.value_index
        given = x if one is not called else called.op.input_tensors[0]
        (read,) = {t for t in _inputs(made) if isinstance(t.op, te.PlaceholderOp) and t.op.name == "X"}
        tvm.ir.assert_structural_equal(
            te.create_prim_func([read, *made.op.outputs]), te.create_prim_func([given, *one.op.outputs])
        )


def _inputs(tensor: te.Tensor) -> set[te.Tensor]:
    found, waiting = set[te.Tensor](), [tensor]
    while waiting:
        t = waiting.pop()
        if t not in found:
            found.add(t)
            waiting.extend(t.op.input_tensors)
    return found


def test_a_compute_dag() -> None:
    dag = auto_scheduler.ComputeDAG(product())
    assert restored(dag).hash_key() == dag.hash_key()


def test_a_damaged_file_is_refused() -> None:
    text = tvm.ir.save_json(product()[2]).replace('"te.ComputeOp"', '"te.Computer"')
    with pytest.raises(tvm.TVMError, match=r"is damaged \(node \d+, te.Computer\): there is no node of kind"):
        tvm.ir.load_json(text)
    with pytest.raises(tvm.TVMError, match="cannot be written as JSON"):
        tvm.ir.save_json(te.create_schedule(product()[2].op))
