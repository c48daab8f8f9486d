"""FoldSizes: symbolic evaluation of shape computations, whose results become attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...ir import ops
from ...ir.expr import PrimExpr, convert
from ...ir.module import IRModule
from ...ir.op import graph_operators
from .. import op as R
from ..analysis import post_order
from ..expr import Call, Constant, Expr, Function, Let, TupleGetItem, Var
from ..expr import Tuple as TupleExpr
from ..op.shapes import add, floordiv, is_known, least, mul, same_size, sub
from ..op.traits import traits_of
from ..ty import Any as AnySize
from .fuse_ops import is_primitive, map_graphs
from .infer_type import infer_module
from .rewriting import by_operator, is_call, typed_pass

_ROUNDS: Final = 16
_MANY: Final = 64  # most elements of a list of sizes


def fold_sizes(mod: IRModule) -> IRModule:
    """Evaluate computations of sizes symbolically, and pass the results to operators as attributes.

        %0 = shape_of(%x)         /* %x: Tensor[(n, 3), float32] */;
        %1 = take(%0, 0);
        %2 = multiply(%1, 3);                             ->      reshape(%x, newshape=[n * 3])
        dyn.reshape(%x, expand_dims(%2, 0))

    Needs: types. Computations that depend on values, or on anonymous sizes, are unchanged. One known shape may make
    others known, so this is iterated to a fixed point.
    """
    for _ in range(_ROUNDS):
        made = map_graphs(mod, lambda f: _Fold().function(f))
        if all(made[gv] is f for gv, f in mod.functions.items()):
            return mod
        mod = infer_module(made)
    return mod


def _is_dynamic(e: Call) -> bool:
    return bool(traits_of(e).sizes) or is_call(e, R.dyn.strided_slice)


class _Fold:
    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}  # small integer tensors as arrays of sizes
        self.lets: dict[Var, Any] = {}

    def function(self, func: Function) -> Function:
        order = post_order(func)
        if not any(isinstance(e, Call) and _is_dynamic(e) for e in order):
            return func
        new: dict[Any, Any] = {}
        for e in order:
            if isinstance(e, Let):
                self.lets[e.var] = e.value
            if not isinstance(e, Expr):
                continue
            self.note(e)
            made: Any = e if is_primitive(e) else e.map_children(lambda c: new.get(c, c))
            if isinstance(e, Call) and _is_dynamic(e):
                made = self.static(e, made) or made
            if made is not e:
                new[e] = made
        return new.get(func, func)

    def value(self, e: Any) -> Any:
        """The sizes in a small tensor, or None."""
        while isinstance(e, Var) and e in self.lets:
            e = self.lets[e]
        return self.known.get(e)

    def note(self, e: Any) -> None:
        if isinstance(e, Constant):
            if str(e.data.dtype) in ("int32", "int64") and e.data.size <= _MANY:
                self.known[e] = np.asarray(e.numpy()).astype(object)
        elif isinstance(e, TupleGetItem):
            fields = self.known.get(e.tuple_value)
            if isinstance(fields, list) and fields[e.index] is not None:
                self.known[e] = fields[e.index]
        elif isinstance(e, TupleExpr):
            self.known[e] = [self.value(f) for f in e.fields]
        elif isinstance(e, Call) and e.op in _RULES:
            args = [self.value(a) for a in e.args]
            if is_call(e, R.shape_of, R.ndarray_size):
                args = [e.args[0].checked_type.shape]
                if any(isinstance(d, AnySize) for d in args[0]):
                    return
            elif any(a is None or (isinstance(a, list) and any(v is None for v in a)) for a in args):
                return
            try:
                made = _RULES[e.op](e.attrs, args)
            except (IndexError, ValueError, TypeError, ZeroDivisionError):
                return  # type inference reports the error
            if made is not None and made.size <= _MANY:
                self.known[e] = made

    def static(self, e: Call, made: Call) -> Expr | None:
        """The call of the operator whose shape is an attribute."""
        if is_call(e, R.dyn.strided_slice):
            return self.sliced(e, made)
        name = traits_of(e).sizes
        at = e.op.inputs.index(name)
        sizes = self.value(e.args[at])
        if sizes is None or sizes.ndim != 1:
            return None
        found: Any = graph_operators[e.op.name.removeprefix("dyn.")]
        attrs = {k: v for k, v in e.attrs.items() if k in found.spec}
        attrs[name] = tuple(sizes.tolist())
        rest = [a for i, a in enumerate(made.args) if i != at]
        if found.inputs is not None:
            rest = rest[: len(found.inputs)]
        if is_call(e, R.dyn.resize2d):
            roi = e.args[2]
            if not isinstance(roi, Constant):
                return None
            attrs["roi"] = tuple(float(v) for v in roi.numpy().reshape(-1))
        return found(*rest, **attrs)

    def sliced(self, e: Call, made: Call) -> Expr | None:
        """A slice whose bounds are constants, or provably in range: only these have the same meaning as an
        attribute."""
        begin, end, strides = (self.value(a) for a in e.args[1:])
        shape = e.args[0].checked_type.shape
        if begin is None or end is None or strides is None or e.attrs.slice_mode != "end":
            return None
        if any(not is_known(v) for v in strides) or len(begin) != len(end):
            return None
        for place, size in [*zip(begin, shape, strict=False), *zip(end, shape, strict=False)]:
            if not is_known(place) and (isinstance(size, AnySize) or not _inside(place, size)):
                return None
        return R.strided_slice(
            made.args[0],
            begin=tuple(begin.tolist()),
            end=tuple(end.tolist()),
            strides=tuple(strides.tolist()),
        )


def _inside(place: Any, size: Any) -> bool:
    """Whether an index is provably between 0 and a size."""
    from ...arith import Analyzer  # loaded when sizes are first compared

    ana = Analyzer()
    return bool(
        same_size(place, size)
        or (
            ana.can_prove(ops.greater_equal(place, 0)) and ana.can_prove(ops.less_equal(place, convert(size)))
        )
    )


# ---------------------------------------------------------------------------- arithmetic on arrays of sizes
def _array(values: Any, shape: Any = None) -> Any:
    listed = list(values)
    out = np.empty(len(listed), object)
    out[:] = listed
    return out if shape is None else out.reshape(shape)


def _each(work: Callable[[Any, Any], Any]) -> Callable[[Any, list[Any]], Any]:
    def run(attrs: Any, args: list[Any]) -> Any:
        a, b = np.broadcast_arrays(*args)
        return _array((work(x, y) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)), a.shape)

    return run


def _size(attrs: Any, args: list[Any]) -> Any:
    total: Any = 1
    for d in args[0]:
        total = mul(total, d)
    return _array([total], ())


def _take(attrs: Any, args: list[Any]) -> Any:
    data, index = args
    if any(isinstance(i, PrimExpr) for i in index.reshape(-1)):
        return None
    places = index.astype("int64")
    axis = None if data.ndim == 1 else attrs.axis
    return None if (places < 0).any() else _as_array(data.take(places, axis=axis))


def _as_array(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else _array([value], ())


def _slice(attrs: Any, args: list[Any]) -> Any:
    data = args[0]
    if data.ndim != 1 or attrs.axes not in (None, (0,)) or attrs.slice_mode != "end":
        return None
    if any(not is_known(v) for v in (*attrs.begin, *attrs.end, *attrs.strides)):
        return None
    return data[attrs.begin[0] : attrs.end[0] : attrs.strides[0]]


def _expand(attrs: Any, args: list[Any]) -> Any:
    out = args[0]
    for _ in range(attrs.num_newaxis):
        out = np.expand_dims(out, attrs.axis)
    return out


def _reshape(attrs: Any, args: list[Any]) -> Any:
    if any(not is_known(d) or d < -1 or d == 0 for d in attrs.newshape):
        return None
    return args[0].reshape(attrs.newshape)


_RULES: Final[dict[Any, Callable[[Any, list[Any]], Any]]] = by_operator(
    {
        R.shape_of: lambda attrs, args: _array(args[0]),
        R.ndarray_size: _size,
        R.cast: lambda attrs, args: args[0] if str(attrs.dtype) in ("int32", "int64") else None,
        R.take: _take,
        R.strided_slice: _slice,
        R.concatenate: lambda attrs, args: np.concatenate(args[0], axis=attrs.axis),
        R.stack: lambda attrs, args: np.stack(args[0], axis=attrs.axis),
        R.expand_dims: _expand,
        R.squeeze: lambda attrs, args: args[0].squeeze(None if attrs.axis is None else tuple(attrs.axis)),
        R.reshape: _reshape,
        R.reverse: lambda attrs, args: args[0][::-1] if args[0].ndim == 1 else None,
        R.add: _each(add),
        R.subtract: _each(sub),
        R.multiply: _each(mul),
        R.floor_divide: _each(floordiv),
        R.minimum: _each(least),
    }
)

FoldSizes = typed_pass(fold_sizes, name="FoldSizes", opt_level=1, whole_module=True)
