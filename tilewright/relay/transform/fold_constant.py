"""FoldConstant: what depends on constants alone is computed now, by compiling and running it."""

from __future__ import annotations

from typing import Any, Final

from ...runtime.ndarray import NDArray
from ..expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const
from ..ty import TensorType, TupleType, is_dynamic, tensor_fields
from .rewriting import Mutator, is_pure_op, name_of, static_shape, type_of, typed_pass
from .run_now import can_run, run_call

__all__ = ["FoldConstant", "fold_constant", "fold_expr"]

# A result that is larger than this and larger than four times what it is made from, is cheaper to compute again.
LARGE: Final = 1 << 20
_SHAPES: Final = ("shape_of", "vm.shape_of", "ndarray_size")


def fold_constant(func: Function, fold_qnn: bool = False) -> Function:
    """Compute now what depends on constants alone.

        %0 = exp(2f);
        add(%x, %0)            ->      add(%x, 7.38906f)
        reshape(%y, shape_of(%x))      with the shape of %x as a constant, if it is known

    Each call is compiled and run as at run time, so that there is one meaning of each operator.
    """
    made = _Fold(fold_qnn).visit(func)
    return made  # type: ignore[no-any-return]


def fold_expr(expr: Expr) -> Expr:
    """An expression with its constant parts computed; the types of its free variables must be known."""
    made = _Fold(False).visit(expr)
    return made  # type: ignore[no-any-return]


class _Fold(Mutator):
    def __init__(self, fold_qnn: bool) -> None:
        super().__init__()
        self.fold_qnn = fold_qnn
        self.values: dict[Var, Any] = {}

    def visit_var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_let(self, let: Let) -> Any:
        rows: list[tuple[Let, Any]] = []
        at: Any = let
        while isinstance(at, Let):
            value = self.visit(at.value)
            if _is_value(value):
                self.values[at.var] = value
                self.memo_map[at.var] = value
            else:
                rows.append((at, value))
            at = at.body
        body = self.visit(at)
        for old, value in reversed(rows):
            same = value is old.value and body is old.body
            body = old if same else Let(old.var, value, body, span=old.span)
        return body

    def visit_if(self, if_: If) -> Any:
        cond = self.visit(if_.cond)
        if isinstance(cond, Constant):
            return self.visit(if_.true_branch if bool(cond.numpy()) else if_.false_branch)
        return super().visit_if(if_)

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        value = self.visit(op.tuple_value)
        return value.fields[op.index] if isinstance(value, Tuple) else super().visit_tuple_getitem(op)

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        name = name_of(new)
        if name in _SHAPES:
            return _size(new, name) or new
        if not is_pure_op(new.op) or (name.startswith("qnn.") and not self.fold_qnn):
            return new
        if not new.args and name != "arange":
            return new  # `zeros` and its like are smaller as they are
        if not all(map(_is_value, new.args)):
            return new
        return _run(new)


def _is_value(expr: Any) -> bool:
    if isinstance(expr, Tuple):
        return all(map(_is_value, expr.fields))
    return isinstance(expr, Constant)


def _size(call: Call, name: str) -> Expr | None:
    """The sizes of a tensor, if they are known."""
    shape = static_shape(call.args[0])
    if shape is None:
        return None
    kind = str(call.attrs.dtype)
    if name == "ndarray_size":
        total = 1
        for d in shape:
            total *= d
        return const(total, kind)
    import numpy as np

    return const(np.array(shape, dtype=np.int64), kind)


def _arrays(expr: Any) -> list[NDArray]:
    if isinstance(expr, Tuple):
        return [a for f in expr.fields for a in _arrays(f)]
    return [expr.data]


def _bytes(kinds: list[TensorType]) -> int:
    total = 0
    for kind in kinds:
        size = (kind.dtype.bits * kind.dtype.lanes + 7) // 8
        for d in kind.shape:
            size *= d
        total += size
    return total


def _run(call: Call) -> Expr:
    result = type_of(call)
    if not can_run(call.op, result):
        return call
    types = [type_of(a) for a in call.args]
    if any(is_dynamic(t) for t in types):
        return call
    taken, given = _bytes([t for k in types for t in tensor_fields(k)]), _bytes(tensor_fields(result))
    if given > LARGE and given > 4 * taken:
        return call
    arrays = [a for arg in call.args for a in _arrays(arg)]
    return _wrap(result, iter(run_call(call.op, call.attrs, types, arrays, result)))


def _wrap(kind: Any, arrays: Any) -> Expr:
    if isinstance(kind, TupleType):
        return Tuple([_wrap(f, arrays) for f in kind.fields])
    return Constant(next(arrays))


FoldConstant = typed_pass(fold_constant, name="FoldConstant", opt_level=2)
