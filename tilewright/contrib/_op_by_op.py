"""A graph function run operator by operator, each compiled for the sizes that its arguments have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..relay.expr import Call, Constant, If, Tuple, TupleGetItem, Var
from ..relay.ty import TensorType, TupleType, is_dynamic, tensor_fields

__all__ = ["evaluate"]

_kernels: dict[Any, Any] = {}


def evaluate(function: Any, values: Mapping[str, Any]) -> list[Any]:
    """The results of a function for arrays by the names of its parameters."""
    known = {p: np.asarray(values[p.name_hint]) for p in function.params}
    found = _value(function.body, known)
    return list(found) if isinstance(found, tuple) else [found]


def _value(root: Any, memo: dict[Any, Any]) -> Any:
    stack = [root]
    while stack:
        at = stack[-1]
        if at in memo:
            stack.pop()
            continue
        if isinstance(at, If):
            if at.cond not in memo:
                stack.append(at.cond)
                continue
            branch = at.true_branch if bool(memo[at.cond]) else at.false_branch
            if branch not in memo:
                stack.append(branch)
                continue
            memo[at] = memo[branch]
        else:
            waiting = [c for c in at.children() if c not in memo]
            if waiting:
                stack += waiting
                continue
            memo[at] = _one(at, memo)
        stack.pop()
    return memo[root]


def _one(at: Any, memo: dict[Any, Any]) -> Any:
    if isinstance(at, Constant):
        return np.array(at.numpy())
    if isinstance(at, Tuple):
        return tuple(memo[f] for f in at.fields)
    if isinstance(at, TupleGetItem):
        return memo[at.tuple_value][at.index]
    if isinstance(at, Var):
        raise ValueError(f"variable %{at.name_hint} has no value")
    return _call(at, [memo[a] for a in at.args])


def _kind(value: Any) -> Any:
    if isinstance(value, tuple):
        return TupleType(tuple(_kind(v) for v in value))
    from ..runtime.dtypes import name_of_numpy

    return TensorType(value.shape, name_of_numpy(value.dtype))


def _flat(value: Any) -> list[Any]:
    return [a for v in value for a in _flat(v)] if isinstance(value, tuple) else [value]


def _call(at: Call, args: list[Any]) -> Any:
    from .. import nd

    kinds = [_kind(a) for a in args]
    out = at.op.infer(kinds, at.attrs)
    if is_dynamic(out):
        if at.op.name == "argwhere":
            out = TensorType((int(np.count_nonzero(args[0])), args[0].ndim), out.dtype)
        else:
            return _settled(at, args)
    results = [np.zeros(t.concrete_shape, _numpy(t.dtype)) for t in tensor_fields(out)]
    inputs = [a for value in args for a in _flat(value)]
    if any(r.size for r in results):
        key = (at.op.name, tuple(map(str, kinds)), repr(at.attrs))
        kernel = _kernels.get(key)
        if kernel is None:
            kernel = _kernels[key] = _compile(at, kinds, out)
        made = [nd.array(np.asarray(a, order="C")) for a in inputs]
        outs = [nd.array(r) for r in results]
        kernel(*made, *outs)
        results = [o.numpy() for o in outs]
    return results[0] if isinstance(out, TensorType) else tuple(results)


def _settled(at: Call, args: list[Any]) -> Any:
    """A call whose shape is data, as the one whose shape is a constant."""
    from ..relay import op as operators

    build = getattr(operators, at.op.name.removeprefix("dyn."), None)
    if build is None or not at.op.name.startswith("dyn."):
        raise NotImplementedError(f"{at.op.name}: the sizes of the result depend on data")
    data = Var("data", _kind(args[0]))
    given = {k: v for k, v in at.attrs.items() if v is not None}
    if at.op.name == "dyn.strided_slice":
        rows = [[int(v) for v in a] for a in args[1:]]
        made = build(data, *rows, slice_mode=given.get("slice_mode", "end"))
    else:
        made = build(data, *[Constant(nd_array(a)) for a in args[1:]], **given)
    return _call(made, [args[0]])


def nd_array(a: Any) -> Any:
    from .. import nd

    return nd.array(a)


def _numpy(dtype: Any) -> Any:
    from ..runtime.dtypes import element

    return element(str(dtype)).numpy


def _compile(at: Call, kinds: list[Any], out: Any) -> Any:
    from .. import build, te

    tensors = [t for k in kinds for t in tensor_fields(k)]
    inputs = [te.placeholder(t.shape, str(t.dtype), name=f"p{i}") for i, t in enumerate(tensors)]
    made = at.op.compute(at.attrs, inputs, out)
    return build(te.create_prim_func([*inputs, *made]), target="llvm")
