"""Evaluation of constant expressions at compile time, by kernels that are compiled and cached as a model's are."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from ...forks import new_in_child
from ...homes import home_of
from ...ir.transform import PassContext
from ...runtime.ndarray import NDArray, array, empty
from ..analysis import post_order
from ..expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from ..op.implementation import has_strategy
from ..op.registry import RelayOp
from ..ty import TupleType, Type, is_dynamic, tensor_fields
from ..visitor import in_order
from .check_data import check_data
from .fuse_ops import fuse_ops, is_primitive
from .infer_type import infer_type

# Most operators of a kernel: a long chain of scalars would otherwise be one very deep expression.
DEPTH: Final = 32
_kernels: Final[dict[Any, Any]] = {}
_lock: Final = new_in_child(threading.RLock())


def can_run(op: Any, result: Type) -> bool:
    """Whether a call of the operator with that result can be compiled on its own and run now."""
    return isinstance(op, RelayOp) and (op.compute is not None or has_strategy(op)) and not is_dynamic(result)


def _unwatched() -> PassContext:
    """The current context without its instruments: they watch the passes over a program, and not those that compile
    a part of it on the way."""
    ctx = PassContext.current()
    return PassContext(ctx.opt_level, ctx.required_pass, ctx.disabled_pass, config=ctx.config)


def run_call(op: RelayOp, attrs: Any, types: list[Type], args: list[Any], result: Type) -> list[NDArray]:
    """The results of a call for arrays, with tuples flattened on both sides."""
    key = (op, op.compute, op.get_attr("FTVMStrategy"), attrs, tuple(types), result)
    with _lock:
        kernel = _kernels.get(key)
        if kernel is None:
            params = [Var(f"p{i}", kind) for i, kind in enumerate(types)]
            fn = infer_type(Function(params, Call(op, params, attrs), attrs={"Primitive": 1}))
            with _unwatched():
                kernel = _kernels[key] = home_of("graph_kernels").kernels_of([fn])[fn]
    return _launched(kernel, [a if isinstance(a, NDArray) else array(a) for a in args], result)


def run_all(roots: Sequence[Expr]) -> list[Expr]:
    """The values of constant expressions, as constants and tuples of them.

    They are fused, and their kernels are compiled in parallel: equal ones (of weights of one shape) once.
    """
    whole: Any = check_data(Tuple(roots))
    # Arrays are parameters, so that one kernel serves all of one shape.
    arrays = [c for c in post_order(whole) if isinstance(c, Constant) and not c.is_scalar]
    params = {c: Var(f"c{i}", c.checked_type) for i, c in enumerate(arrays)}
    body = _over(whole, params)
    fused = infer_type(fuse_ops(infer_type(Function(list(params.values()), body)), max_depth=DEPTH))
    order = [e for e in _outside(fused.body) if not is_primitive(e)]
    with _lock, _unwatched():
        kernels = home_of("graph_kernels").kernels_of([e.op for e in order if isinstance(e, Call)])
    values: dict[Any, Any] = {params[c]: c.data for c in arrays}
    for e in order:
        if isinstance(e, Constant):
            values[e] = e.data
        elif isinstance(e, Tuple):
            values[e] = [values[f] for f in e.fields]
        elif isinstance(e, TupleGetItem):
            values[e] = values[e.tuple_value][e.index]
        elif isinstance(e, Call):
            given = [a for arg in e.args for a in _flat(values[arg])]
            values[e] = _nested(e.checked_type, iter(_launched(kernels[e.op], given, e.checked_type)))
    return [_as_expr(v) for v in values[fused.body]]


def _launched(kernel: Any, given: list[NDArray], result: Type) -> list[NDArray]:
    made = [empty(t.shape, str(t.dtype)) for t in tensor_fields(result)]
    kernel(*given, *made)
    return made


def _over(root: Tuple, params: dict[Constant, Var]) -> Expr:
    """The expression with parameters in place of arrays."""
    new: dict[Any, Any] = dict(params)
    for e in post_order(root):
        if e not in new:
            new[e] = e.map_children(lambda c: new.get(c, c)) if isinstance(e, Expr) else e
    return new[root]


def _outside(root: Expr) -> list[Any]:
    """Every expression once, in post-order; fused functions are not entered."""
    return in_order(root, lambda e: [] if is_primitive(e) else e.children())


def _flat(value: Any) -> list[NDArray]:
    return [a for v in value for a in _flat(v)] if isinstance(value, list) else [value]


def _nested(kind: Any, arrays: Any) -> Any:
    return [_nested(f, arrays) for f in kind.fields] if isinstance(kind, TupleType) else next(arrays)


def _as_expr(value: Any) -> Expr:
    return Tuple([_as_expr(v) for v in value]) if isinstance(value, list) else Constant(value)
