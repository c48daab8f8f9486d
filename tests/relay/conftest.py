"""Graph expressions run through their computes, without the graph compiler: the reference of operator tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay, te
from tilewright.relay.analysis import post_order
from tilewright.relay.expr import Call, Constant, Tuple, TupleGetItem, Var
from tilewright.relay.ty import tensor_fields


def _tensors(expr: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """(variables and constants, their placeholders, the tensors of the result)."""
    expr = relay.infer_type(expr)
    made: dict[Any, Any] = {}
    inputs, places = [], []
    for at in post_order(expr):
        if isinstance(at, (Var, Constant)):
            kind = at.checked_type
            made[at] = [te.placeholder(kind.shape, name=f"in{len(inputs)}", dtype=str(kind.dtype))]
            inputs.append(at)
            places += made[at]
        elif isinstance(at, Tuple):
            made[at] = [t for f in at.fields for t in made[f]]
        elif isinstance(at, TupleGetItem):
            made[at] = [made[at.tuple_value][at.index]]
        elif isinstance(at, Call):
            made[at] = at.op.compute(at.attrs, [t for a in at.args for t in made[a]], at.checked_type)
            for t, kind in zip(made[at], tensor_fields(at.checked_type), strict=True):
                assert relay.TensorType(t.shape, t.dtype) == kind, at.op.name
    return inputs, places, made[expr]


def compiled(expr: Any) -> Callable[..., list[Any]]:
    """An expression as one kernel: a function of arrays by the names of its free variables."""
    inputs, places, results = _tensors(expr)
    inner = [t for t in results if t in places]
    assert not inner, "a result that is an input has nothing to compute"
    # What LLVM makes of the loops is tested elsewhere: here it takes them as they are.
    with tilewright.transform.PassContext(opt_level=0):
        built = tilewright.build(te.create_prim_func([*places, *results]), target="llvm -opt-level=0")

    def run(**arrays: Any) -> list[Any]:
        given = [
            i.data if isinstance(i, Constant) else tilewright.nd.array(arrays[i.name_hint]) for i in inputs
        ]
        outs = [tilewright.nd.empty(tuple(int(d) for d in t.shape), str(t.dtype)) for t in results]
        built(*given, *outs)
        return [o.numpy() for o in outs]

    return run


@pytest.fixture
def compile_graph() -> Callable[..., Callable[..., list[Any]]]:
    """compile_graph(expr)(x=array, …): the values of an expression over its free variables, compiled once."""
    return compiled


@pytest.fixture
def run_graph() -> Callable[..., Any]:
    """run_graph(expr, x=array, …): the value of an expression over its free variables."""

    def run(expr: Any, **arrays: Any) -> Any:
        values = compiled(expr.tuple_value if isinstance(expr, relay.TupleWrapper) else expr)(**arrays)
        return values[0] if len(values) == 1 else values

    return run


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session", autouse=True)
def _data_places() -> Any:
    from data_places import watched

    with watched():
        yield
