"""Substitution of symbolic sizes: a program over (n, 3) as one over (5, 3).

fn (%x: Tensor[(n, 3), float32]) { reshape(%x, newshape=[n, -1]) }     with n = 5
->  fn (%x: Tensor[(5, 3), float32]) { reshape(%x, newshape=[5, -1]) }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arith import Analyzer
from ..ir.expr import IntImm, PrimExpr
from ..ir.expr import Var as SizeVar
from ..ir.functor import pre_order, substitute
from .analysis import post_order
from .expr import Call, Function, Var
from .op.attributes import Attrs
from .transform.infer_type import infer_type
from .ty import TensorType, TupleType
from .visitor import ExprMutator


def size_values(fn: Function, shapes: Sequence[Sequence[int]]) -> dict[SizeVar, int]:
    """The values of the symbolic sizes of the parameters for these arguments."""
    found: dict[SizeVar, int] = {}
    for p, shape in zip(fn.params, shapes, strict=True):
        kind = p.checked_type
        if not isinstance(kind, TensorType):
            continue
        if len(kind.shape) != len(shape):
            raise ValueError(f"%{p.name_hint} has {len(kind.shape)} dimensions, and {len(shape)} are given")
        for d, size in zip(kind.shape, shape, strict=True):
            if isinstance(d, SizeVar) and found.setdefault(d, int(size)) != size:
                raise ValueError(
                    f"%{p.name_hint}: size {d} is {size} here and {found[d]} in a parameter before"
                )
            if isinstance(d, int) and d != size:
                raise ValueError(f"%{p.name_hint} is {kind}, and a tensor of shape {tuple(shape)} is given")
    return found


def with_sizes(fn: Function, values: Mapping[SizeVar, Any]) -> Function:
    """The function with values substituted for symbolic sizes in types and attributes, with types inferred again."""
    if not values:
        return fn
    made = _Sizes(values).visit(fn)
    return infer_type(made)


def retyped(fn: Function, kinds: Sequence[Any], values: Mapping[SizeVar, Any]) -> Function:
    """A function over parameters of other types, with `values` for the symbolic sizes in its attributes.

    The result has no types yet.
    """
    work = _Sizes(values)
    params = [Var(p.name_hint, kind, span=p.span) for p, kind in zip(fn.params, kinds, strict=True)]
    work.memo_map.update(zip(fn.params, params, strict=True))
    return Function(params, work.visit(fn.body), None, fn.type_params, fn.attrs, fn.span)


def sizes_in(value: Any, found: dict[SizeVar, None] | None = None) -> dict[SizeVar, None]:
    """The symbolic sizes in a type, an attribute, or tuples of them, in order."""
    out: dict[SizeVar, None] = {} if found is None else found
    if isinstance(value, PrimExpr):
        for e in pre_order(value):
            if isinstance(e, SizeVar):
                out[e] = None
    elif isinstance(value, TensorType):
        sizes_in(value.shape, out)
    elif isinstance(value, TupleType):
        sizes_in(tuple(value.fields), out)
    elif isinstance(value, tuple):
        for v in value:
            sizes_in(v, out)
    return out


def free_sizes(fn: Function) -> list[SizeVar]:
    """The symbolic sizes in the attributes of a fused function's calls, in order."""
    out: dict[SizeVar, None] = {}
    for e in post_order(fn.body):
        if isinstance(e, Call) and isinstance(e.attrs, Attrs):
            sizes_in(tuple(e.attrs.values()), out)
    return list(out)


class _Sizes(ExprMutator):
    def __init__(self, values: Mapping[SizeVar, Any]) -> None:
        super().__init__()
        self.values = {
            v: IntImm(v.dtype, int(size)) if isinstance(size, int) else size for v, size in values.items()
        }
        self.ana = Analyzer()

    def number(self, value: Any) -> Any:
        """A value of an attribute or a size, as a number where it is one now."""
        if isinstance(value, tuple):
            return tuple(self.number(v) for v in value)
        if isinstance(value, PrimExpr):
            made = self.ana.simplify(substitute(value, self.values))
            return int(made.value) if isinstance(made, IntImm) else made
        return value

    def kind(self, kind: Any) -> Any:
        if isinstance(kind, TensorType):
            return TensorType([self.number(d) for d in kind.shape], kind.dtype)
        if isinstance(kind, TupleType):
            return TupleType(tuple(self.kind(f) for f in kind.fields))
        return kind

    def visit_var(self, var: Var) -> Any:
        if var.type_annotation is None:
            return var
        kind = self.kind(var.type_annotation)
        return var if kind == var.type_annotation else Var(var.name_hint, kind, span=var.span)

    def visit_function(self, fn: Function) -> Any:
        params = [self.visit(p) for p in fn.params]
        return Function(params, self.visit(fn.body), None, fn.type_params, fn.attrs, fn.span)

    def visit_call(self, call: Call) -> Any:
        op, args = self.visit(call.op), [self.visit(a) for a in call.args]
        attrs = call.attrs
        if isinstance(attrs, Attrs) and self.values and any(map(sizes_in, attrs.values())):
            attrs = Attrs({k: self.number(v) for k, v in attrs.items()})
        return Call(op, args, attrs, call.type_args, call.span)
