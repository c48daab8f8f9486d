"""Long, wide and nested programs: every pass, the text and the build go through them, or refuse them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir import deep

T = relay.transform


def chain(n: int) -> relay.Function:
    x = y = relay.var("x", shape=(4,))
    for i in range(n):
        y = relay.tanh(y) if i % 2 else y + relay.const(1.0)
    return relay.Function([x], y)


def diamonds(n: int) -> relay.Function:
    x = y = relay.var("x", shape=(4,))
    for _ in range(n):
        y = relay.exp(y) + relay.tanh(y)
    return relay.Function([x], y)


def doubled(n: int) -> relay.Function:
    x = y = relay.var("x", shape=(4,))
    for _ in range(n):
        y = y + y
    return relay.Function([x], y)


def swapped_pairs(n: int) -> relay.Function:
    x = relay.var("x", shape=(4,))
    pair: Any = relay.Tuple([x, x])
    for _ in range(n):
        pair = relay.Tuple([relay.TupleGetItem(pair, 1), relay.tanh(relay.TupleGetItem(pair, 0))])
    return relay.Function([x], pair)


def lets(n: int) -> relay.Function:
    x = relay.var("x", shape=(4,))
    names = [x, *(relay.var(f"v{i}", shape=(4,)) for i in range(n))]
    body: Any = names[-1]
    for before, v in reversed(list(zip(names, names[1:], strict=False))):
        body = relay.Let(v, relay.tanh(before), body)
    return relay.Function([x], body)


def wide(n: int) -> relay.Function:
    x = relay.var("x", shape=(4,))
    return relay.Function(
        [x], relay.concatenate([relay.tanh(x + relay.const(float(i))) for i in range(n)], axis=0)
    )


def scaled(n: int) -> relay.Function:
    x = y = relay.var("x", shape=(1, 4, 4, 4))
    for _ in range(n):
        y = y * relay.const(np.full((4, 1, 1), 1.001, "float32"))
        y = relay.nn.relu(y) + y
    return relay.Function([x], relay.nn.conv2d(y, relay.const(np.ones((4, 4, 1, 1), "float32"))))


def values_of_lets(n: int) -> relay.Function:
    x = y = relay.var("x", shape=(4,))
    for i in range(n):
        v = relay.var(f"v{i}", shape=(4,))
        y = relay.Let(v, relay.tanh(y), v + v)
    return relay.Function([x], y)


def branches(n: int) -> relay.Function:
    x, c = relay.var("x", shape=(4,)), relay.var("c", shape=(), dtype="bool")
    y: Any = x
    for _ in range(n):
        y = relay.If(c, relay.tanh(y), relay.exp(x))
    return relay.Function([x, c], y)


FLAT = {f.__name__: f for f in (chain, diamonds, doubled, swapped_pairs, lets, wide, scaled)}
NESTED = {f.__name__: f for f in (values_of_lets, branches)}
PASSES: dict[str, Callable[[], Any]] = {
    name: getattr(T, name)
    for name in """SimplifyInference FoldConstant EliminateCommonSubexpr CombineParallelConv2D CombineParallelDense
    CombineParallelBatchMatmul FoldScaleAxis SimplifyExpr CanonicalizeOps AlterOpLayout DeadCodeElimination FastMath
    FuseOps ToANormalForm ToGraphNormalForm ToBasicBlockNormalForm LambdaLift DefuseOps ToMixedPrecision
    FakeQuantizationToInteger CanonicalizeCast FoldExplicitPadding DynamicToStatic""".split()
}


def typed(func: relay.Function) -> tvm.IRModule:
    return T.InferType()(tvm.IRModule.from_expr(func))


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two calls for each level of LONG: a walk that calls itself takes three or four, and is found out."""
    monkeypatch.setattr(deep, "_DEPTH", 2 * LONG)


LONG = 1_500
LENGTHS = [300, pytest.param(LONG, marks=pytest.mark.slow)]


@pytest.mark.parametrize("shape", list(FLAT))
@pytest.mark.parametrize("length", LENGTHS)
def test_every_pass(shape: str, length: int, little_room: None) -> None:
    """A walk that sees what is shared each time it is used never ends here."""
    mod = typed(FLAT[shape](length))
    with tvm.transform.PassContext(opt_level=4):
        for make in PASSES.values():
            make()(mod)


@pytest.mark.parametrize("shape", list(FLAT))
@pytest.mark.parametrize("length", LENGTHS)
def test_text_and_back(shape: str, length: int, little_room: None) -> None:
    mod = typed(FLAT[shape](length))
    back = relay.fromtext(mod.astext())
    tvm.ir.assert_structural_equal(T.InferType()(back), mod)
    assert tvm.ir.structural_hash(back["main"]) == tvm.ir.structural_hash(mod["main"])


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(NESTED))
def test_scopes_inside_scopes(shape: str) -> None:
    mod = typed(NESTED[shape](400))
    with tvm.transform.PassContext(opt_level=4):
        for make in PASSES.values():
            make()(mod)
    tvm.ir.assert_structural_equal(
        T.InferType()(relay.fromtext(typed(NESTED[shape](100)).astext())), typed(NESTED[shape](100))
    )


@pytest.mark.slow
def test_too_many_of_them_are_refused() -> None:
    mod = typed(values_of_lets(30_000))
    with pytest.raises(
        tvm.TVMError, match="nested more deeply than can be walked; bind the inner ones to names"
    ):
        T.SimplifyExpr()(mod)


def test_tuples_in_tuples_are_refused() -> None:
    x: Any = relay.var("x", shape=(4,))
    nest: Any = relay.tanh(x)
    for _ in range(150):
        nest = relay.Tuple([nest])
    tvm.ir.assert_structural_equal(
        relay.fromtext(typed(relay.Function([x], nest)).astext()), typed(relay.Function([x], nest))
    )
    for _ in range(12_000):
        nest = relay.Tuple([nest])
    with pytest.raises(tvm.TVMError, match="tuples are nested more than 200 deep"):
        typed(relay.Function([x], nest))
    for _ in range(40):
        x = relay.Tuple([x, x])
    with pytest.raises(tvm.TVMError, match="a tuple has more than 100000 tuples in it"):
        typed(relay.Function(relay.analysis.free_vars(x), x))


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "length"), [("diamonds", 40), ("doubled", 1000), ("swapped_pairs", 500), ("lets", 1000)]
)
def test_built(shape: str, length: int) -> None:
    run = relay.create_executor("graph", tvm.IRModule.from_expr(FLAT[shape](length))).evaluate()
    array = np.full((4,), -0.5, "float32") if shape != "doubled" else np.zeros((4,), "float32")
    made = run(array)
    assert all(m.shape == (4,) for m in ([made] if hasattr(made, "shape") else made))
