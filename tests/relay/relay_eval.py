"""Runs graph programs one operator at a time, without any pass: what the tests of passes compare with."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.ir.module import GlobalVar
from tilewright.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.transform.run_now import run_call
from tilewright.relay.ty import TupleType
from tilewright.relay.visitor import flow_inputs


class _Closure:
    def __init__(self, fn: Function, env: dict[Any, Any]) -> None:
        self.fn, self.env = fn, env


def _flat(value: Any) -> list[Any]:
    return [v for f in value for v in _flat(f)] if isinstance(value, list) else [value]


def _wrap(kind: Any, arrays: Any) -> Any:
    return [_wrap(f, arrays) for f in kind.fields] if isinstance(kind, TupleType) else next(arrays)


class _Run:
    def __init__(self, mod: tvm.IRModule) -> None:
        self.mod = mod

    def value(self, expr: Any, env: dict[Any, Any]) -> Any:
        stack = [expr]
        while stack:
            at = stack[-1]
            if at in env:
                stack.pop()
                continue
            waiting = [b for b in flow_inputs(at) if b not in env]
            if waiting:
                stack.extend(waiting)
                continue
            env[at] = self.step(at, env)
            stack.pop()
        return env[expr]

    def step(self, at: Any, env: dict[Any, Any]) -> Any:
        if isinstance(at, Constant):
            return at.data
        if isinstance(at, GlobalVar):
            return _Closure(self.mod[at], {})
        if isinstance(at, Function):
            return _Closure(at, env)
        if isinstance(at, Tuple):
            return [env[f] for f in at.fields]
        if isinstance(at, TupleGetItem):
            return env[at.tuple_value][at.index]
        if isinstance(at, If):
            return self.value(
                at.true_branch if self.value(at.cond, env).numpy() else at.false_branch, dict(env)
            )
        if isinstance(at, Let):
            inner = dict(env)
            while isinstance(at, Let):
                inner[at.var] = (
                    _Closure(at.value, inner)
                    if isinstance(at.value, Function)
                    else self.value(at.value, inner)
                )
                at = at.body
            return self.value(at, inner)
        if isinstance(at, Var):
            raise KeyError(f"%{at.name_hint} has no value")
        assert isinstance(at, Call)
        args = [env[a] for a in at.args]
        if isinstance(at.op, relay.op.RelayOp):
            kinds = [a.checked_type for a in at.args]
            flat = [v for a in args for v in _flat(a)]
            return _wrap(at.checked_type, iter(run_call(at.op, at.attrs, kinds, flat, at.checked_type)))
        closure = self.value(at.op, env)
        return self.value(closure.fn.body, {**closure.env, **dict(zip(closure.fn.params, args, strict=True))})


def _numpy(value: Any) -> Any:
    return [_numpy(v) for v in value] if isinstance(value, list) else value.numpy()


def evaluate(program: Any, *args: Any) -> Any:
    """What `main`, or a function, gives for arrays."""
    mod = program if isinstance(program, tvm.IRModule) else tvm.IRModule.from_expr(program)
    mod = relay.transform.InferType()(mod)
    main = mod["main"]
    env = dict(zip(main.params, [tvm.nd.array(a) for a in args], strict=True))
    return _numpy(_Run(mod).value(main.body, env))


def inputs(func: Function, seed: int = 0) -> list[np.ndarray]:
    """Random arrays for the parameters of a function."""
    rng = np.random.default_rng(seed)
    out = []
    for p in func.params:
        kind = p.type_annotation
        shape = tuple(kind.shape)
        if str(kind.dtype) == "bool":
            out.append(rng.integers(0, 2, shape).astype("bool"))
        elif kind.dtype.is_float:
            out.append(rng.standard_normal(shape).astype(str(kind.dtype)))
        else:
            out.append(rng.integers(0, 5, shape).astype(str(kind.dtype)))
    return out


def apply(program: Any, *passes: Any) -> Any:
    """A function or module after some passes, each of which gives types by itself."""
    mod = program if isinstance(program, tvm.IRModule) else tvm.IRModule.from_expr(program)
    for p in passes:
        mod = p(mod)
    return mod if isinstance(program, tvm.IRModule) else mod["main"]


def check(before: Any, passes: Any, expected: Any = None, rtol: float = 1e-5, atol: float = 1e-5) -> Any:
    """Run passes, compare with what is expected, and compare what both compute on random arrays."""
    passes = passes if isinstance(passes, (list, tuple)) else [passes]
    after = apply(before, *passes)
    if expected is not None:
        tvm.ir.assert_structural_equal(after, relay.transform.infer_type(expected))
    main = before["main"] if isinstance(before, tvm.IRModule) else before
    arrays = inputs(main)
    _close(evaluate(before, *arrays), evaluate(after, *arrays), rtol, atol)
    return after


def _close(a: Any, b: Any, rtol: float, atol: float) -> None:
    if isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            _close(x, y, rtol, atol)
    else:
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=rtol, atol=atol)


def count(expr: Any, name: str) -> int:
    """How many calls of an operator there are."""
    return int(relay.analysis.count_calls(expr, name))


def rand(*shape: int, seed: int = 1, positive: bool = False) -> Any:
    """A constant of random numbers."""
    values = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return relay.const(np.abs(values) + 0.1 if positive else values)
