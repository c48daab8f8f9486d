"""FoldConstant: constant expressions are compiled and evaluated at compile time."""

from __future__ import annotations

import math
from typing import Any, Final

from .. import op as R
from ..analysis import post_order
from ..expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const
from ..ty import TensorType, is_dynamic, tensor_fields
from ..visitor import below
from .rewriting import Mutator, is_call, is_pure_op, name_of, rebuilt_lets, static_shape, type_of, typed_pass
from .run_now import can_run, run_all

# A result larger than this, and larger than four times its operands, is cheaper to recompute.
LARGE: Final = 1 << 20
_SHAPES: Final = (R.shape_of, R.ndarray_size)


def fold_constant(func: Function, fold_qnn: bool = False) -> Function:
    """Evaluate expressions that depend only on constants.

        %0 = exp(2f);
        add(%x, %0)            ->      add(%x, 7.38906f)
        reshape(%y, shape_of(%x))      with the shape of %x as a constant, if it is known

    They are fused, compiled and run as at run time, so that each operator has one definition.
    """
    found = _Find(fold_qnn)
    marked = found.visit(func)
    roots = _roots(marked, found.known)
    if not roots:
        return marked
    return _Replace(dict(zip(roots, run_all(roots), strict=True))).visit(marked)


class _Find(Mutator):
    """Finds the constant calls; branches with constant conditions are resolved."""

    def __init__(self, fold_qnn: bool) -> None:
        super().__init__()
        self.fold_qnn = fold_qnn
        self.values: dict[Var, Any] = {}
        self.known: set[Any] = set()  # calls that depend only on constants

    def is_value(self, expr: Any) -> bool:
        if isinstance(expr, Tuple):
            return all(map(self.is_value, expr.fields))
        if isinstance(expr, TupleGetItem):
            return self.is_value(expr.tuple_value)
        return isinstance(expr, Constant) or expr in self.known

    def visit_var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_let(self, let: Let) -> Any:
        rows: list[tuple[Let, Any]] = []
        at: Any = let
        while isinstance(at, Let):
            value = self.visit(at.value)
            if self.is_value(value):
                self.values[at.var] = value
                self.memo_map[at.var] = value
            else:
                rows.append((at, value))
            at = at.body
        return rebuilt_lets(rows, self.visit(at))

    def visit_if(self, if_: If) -> Any:
        cond = self.visit(if_.cond)
        if self.is_value(cond):
            if not isinstance(cond, Constant):
                (cond,) = run_all([cond])
            return self.visit(if_.true_branch if bool(cond.numpy()) else if_.false_branch)
        return super().visit_if(if_)

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        value = self.visit(op.tuple_value)
        return value.fields[op.index] if isinstance(value, Tuple) else super().visit_tuple_getitem(op)

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        name = name_of(new)
        if is_call(new, *_SHAPES):
            return _size(new) or new
        if not is_pure_op(new.op) or (name.startswith("qnn.") and not self.fold_qnn):
            return new
        if not new.args and not is_call(new, R.arange):
            return new  # `zeros` and similar are smaller unevaluated
        if all(map(self.is_value, new.args)) and _worth_it(new):
            self.known.add(new)
        return new


def _roots(expr: Any, known: set[Any]) -> list[Any]:
    """The constant calls that non-constant expressions use."""
    if not known:
        return []
    out: dict[Any, None] = {}
    if expr in known:
        out[expr] = None
    for at in post_order(expr):
        if at not in known and not isinstance(at, (Tuple, TupleGetItem)):
            for b in below(at):
                _note(b, known, out)
    if isinstance(expr, (Tuple, TupleGetItem)):
        _note(expr, known, out)
    return list(out)


def _note(expr: Any, known: set[Any], out: dict[Any, None]) -> None:
    stack = [expr]
    while stack:
        at = stack.pop()
        if at in known:
            out[at] = None
        elif isinstance(at, Tuple):
            stack.extend(at.fields)
        elif isinstance(at, TupleGetItem):
            stack.append(at.tuple_value)


class _Replace(Mutator):
    def __init__(self, values: dict[Any, Expr]) -> None:
        super().__init__()
        self.memo_map.update(values)


def _size(call: Call) -> Expr | None:
    """The sizes of a tensor, if they are known."""
    shape = static_shape(call.args[0])
    if shape is None:
        return None
    kind = str(call.attrs.dtype)
    if is_call(call, R.ndarray_size):
        return const(math.prod(shape), kind)
    import numpy as np

    return const(np.array(shape, dtype=np.int64), kind)


def _bytes(kinds: list[TensorType]) -> int:
    return sum(math.prod(k.shape) * ((k.dtype.bits * k.dtype.lanes + 7) // 8) for k in kinds)


def _worth_it(call: Call) -> bool:
    """Whether a call can be evaluated and its result is not much larger than its operands."""
    result = type_of(call)
    if not can_run(call.op, result):
        return False
    types = [type_of(a) for a in call.args]
    if any(is_dynamic(t) for t in types):
        return False
    taken, given = _bytes([t for k in types for t in tensor_fields(k)]), _bytes(tensor_fields(result))
    return given <= LARGE or given <= 4 * taken


FoldConstant = typed_pass(fold_constant, name="FoldConstant", opt_level=2)
