"""Small helpers of operator code: constants out of expressions, axes, shapes, padding."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from .. import te
from ..arith import Analyzer
from ..homes import home_of
from ..ir import ops
from ..ir.data_layout import layout_axes
from ..ir.dtype import DataType
from ..ir.errors import TensorExpressionError
from ..ir.expr import ExprOp, FloatImm, IntImm, PrimExpr, convert
from ..te.broadcast import broadcast_indices as broadcast_indices
from ..te.broadcast import broadcast_shape as _broadcast_two
from ..te.broadcast import same_size as same_size
from ..te.errors import refuse
from ..te.errors import shape_text as shape_text
from ..te.errors import shown as shown
from ..te.operation import TagScope
from ..te.tensor import checked_dtype
from . import tag as _tag

P = ParamSpec("P")
First = TypeVar("First")


class InvalidShapeError(TensorExpressionError):
    """An invalid shape for an operator."""


# ---------------------------------------------------------------------------- errors and arguments
def fail(operator_name: str, reason: str, hint: str = "") -> TensorExpressionError:
    """The error to raise: `topi.take: axis is 3 …`, with the user's line."""
    return refuse(reason, hint, what=f"topi.{operator_name}")


def tensor_arg(operator_name: str, argument: str, value: Any) -> te.Tensor:
    """`value`, which must be a tensor."""
    if isinstance(value, te.Tensor):
        return value
    raise fail(operator_name, f"{argument} is {shown(value)} and must be a tensor")


def dtype_of(operator_name: str, dtype: Any) -> DataType:
    """The data type of that name."""
    try:
        return checked_dtype(dtype)
    except TensorExpressionError as error:
        raise fail(operator_name, f"dtype: {str(error).splitlines()[0]}") from None


def int_list(operator_name: str, argument: str, value: Any) -> list[Any]:
    """One integer or several, as a list of Python integers and expressions."""
    items = list(value) if isinstance(value, (tuple, list)) or hasattr(value, "tolist") else [value]
    out: list[Any] = []
    for item in items:
        if isinstance(item, ExprOp):
            item = simplify(convert(item))
            integral = isinstance(item, IntImm) or item.dtype.is_integral
        else:
            integral = hasattr(item, "__index__") and not isinstance(item, bool)
        if not integral:
            raise fail(operator_name, f"{argument} has {shown(item)}, which is not an integer")
        out.append(item.value if isinstance(item, IntImm) else item)
    return [i if isinstance(i, ExprOp) else operator.index(i) for i in out]


def static_int(operator_name: str, argument: str, value: Any) -> int:
    """`value` as a Python integer, known now."""
    try:
        return get_const_int(value)
    except (TypeError, ValueError):
        raise fail(
            operator_name, f"{argument} is {shown(value)} and must be an integer known at compile time"
        ) from None


def variant(
    name: str, work: Callable[Concatenate[First, P], te.Tensor], first: First, doc: str
) -> Callable[P, te.Tensor]:
    """The operator of a family whose layouts, the first parameter of the family's function, are these."""

    def build(*args: P.args, **options: P.kwargs) -> te.Tensor:
        return work(first, *args, **options)

    build.__name__ = build.__qualname__ = name
    build.__module__, build.__doc__ = work.__module__, doc
    form = signature(work)
    build.__signature__ = form.replace(parameters=list(form.parameters.values())[1:])  # type: ignore[attr-defined]
    return build


# ---------------------------------------------------------------------------- constants
def simplify(expr: Any) -> Any:
    """The expression made simple; Python numbers come back as they are."""
    if not isinstance(expr, ExprOp):
        return expr
    made = convert(expr)
    return made if isinstance(made, (IntImm, FloatImm)) else Analyzer().simplify(made)


def get_const_int(expr: Any) -> int:
    """The value of a constant integer expression."""
    if isinstance(expr, ExprOp):
        made = simplify(expr)
        if isinstance(made, IntImm):
            return made.value
        raise ValueError(f"expected a constant integer, and got `{made}`")
    return operator.index(expr)


def get_const_float(expr: Any) -> float:
    """The value of a constant expression."""
    if isinstance(expr, ExprOp):
        made = simplify(expr)
        if isinstance(made, (FloatImm, IntImm)):
            return float(made.value)
        raise ValueError(f"expected a constant number, and got `{made}`")
    return float(expr)


def get_const_tuple(in_tuple: Iterable[Any]) -> tuple[Any, ...]:
    """The sizes as Python integers; symbolic sizes stay expressions."""
    out: list[Any] = []
    for item in in_tuple:
        made = simplify(item)
        out.append(
            made.value
            if isinstance(made, IntImm)
            else made
            if isinstance(made, ExprOp)
            else operator.index(made)
        )
    return tuple(out)


def get_float_tuple(in_tuple: Iterable[Any]) -> tuple[float, ...]:
    """The numbers as Python floats."""
    return tuple(get_const_float(item) for item in in_tuple)


def equal_const_int(expr: Any, value: int) -> bool:
    """Whether an expression is known to be that integer."""
    made = simplify(expr)
    return (made.value if isinstance(made, IntImm) else made) == value if not _open(made) else False


def _open(value: Any) -> bool:
    return isinstance(value, ExprOp) and not isinstance(value, IntImm)


def is_dynamic_shape(shape: Iterable[Any]) -> bool:
    """Whether some size is not known yet."""
    return any(_open(simplify(d)) for d in shape)


def is_empty_shape(shape: Iterable[Any]) -> bool:
    """Whether some size is known to be zero."""
    return any(equal_const_int(d, 0) for d in shape)


def prod(x: Iterable[Any]) -> Any:
    """The product of sizes; 1 for none. Sizes that are known multiply to a Python integer."""
    known, rest = 1, None
    for item in x:
        made = simplify(item)
        if _open(made):
            rest = made if rest is None else rest * made
        else:
            known *= get_const_int(made)
    return known if rest is None or known == 0 else rest if known == 1 else rest * known


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """The greatest power of two that divides `n` and is not above `max_value`."""
    power = 1
    while n % (power * 2) == 0 and n and (max_value is None or power * 2 <= max_value):
        power *= 2
    return power


def ceil_div(a: Any, b: Any) -> Any:
    """`a / b` rounded up, of integers and expressions."""
    if isinstance(a, ExprOp) or isinstance(b, ExprOp):
        return simplify(ops.floordiv(a + (b - 1), b))
    return -(-a // b)


# ---------------------------------------------------------------------------- axes and indices
def normalize_axis(operator_name: str, axis: Any, ndim: int, argument: str = "axis") -> int:
    """An axis counted from the front: -1 is the last one."""
    value = static_int(operator_name, argument, axis)
    if not -ndim <= value < ndim:
        raise fail(
            operator_name,
            f"{argument} is {value} and the tensor has {ndim} dimension{'' if ndim == 1 else 's'}",
            f"it goes from {-ndim} to {ndim - 1}" if ndim else "",
        )
    return value + ndim if value < 0 else value


def normalize_axes(operator_name: str, axes: Any, ndim: int, argument: str = "axis") -> tuple[int, ...]:
    """Axes counted from the front, each once; None is all of them."""
    if axes is None:
        return tuple(range(ndim))
    given = int_list(operator_name, argument, axes)
    out = tuple(normalize_axis(operator_name, a, ndim, argument) for a in given)
    if len(set(out)) != len(out):
        raise fail(operator_name, f"{argument} {shown(axes)} names a dimension twice")
    return out


def ravel_index(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The linear index of a point in row-major order."""
    out: Any = 0
    for position, (index, dim) in enumerate(zip(indices, shape, strict=True)):
        out = index if position == 0 else out * dim + index
    return out


def unravel_index(idx: Any, shape: Sequence[Any]) -> list[Any]:
    """The point of a linear index in row-major order."""
    out: list[Any] = []
    for position, dim in enumerate(reversed(shape)):
        if position == len(shape) - 1:
            out.append(idx)
        else:
            out.append(ops.indexmod(idx, dim) if isinstance(idx, ExprOp) else idx % dim)
            idx = ops.indexdiv(idx, dim) if isinstance(idx, ExprOp) else idx // dim
    return out[::-1]


def within_index(b: Any, e: Any, s: Any, i: Any) -> PrimExpr:
    """Whether `i` is one of the points of range(b, e, s)."""
    up = ops.all(ops.greater(s, 0), ops.greater_equal(i, b), ops.less(i, e))
    down = ops.all(ops.less(s, 0), ops.less_equal(i, b), ops.greater(i, e))
    on = ops.equal(ops.floormod(ops.sub(i, b), s), 0)
    return ops.logical_and(ops.logical_or(up, down), on)


def make_idx(b: Any, e: Any, s: Any, z: Any, i: Any) -> PrimExpr:
    """The position of `i` in range(b, e, s); bounds outside of 0…z are clamped."""
    low, top = te.const(0), ops.sub(z, 1)
    up = ops.floordiv(ops.sub(i, ops.max_of(b, low)), s)
    down = ops.floordiv(ops.sub(i, ops.min_of(b, top)), s)
    return ops.select(ops.greater(s, 0), up, down)


def swap(arr: Sequence[Any], axis: int) -> tuple[int, ...]:
    """The permutation that takes dimension `axis` to the end and the last one to its place."""
    order = list(range(len(arr)))
    order[axis], order[-1] = order[-1], order[axis]
    return tuple(order)


def get_shape(src_shape: Sequence[Any], src_layout: Any, dst_layout: Any) -> tuple[Any, ...]:
    """A shape whose dimensions are named by one layout, in the order of another: NCHW16c to NHWC16c."""
    source, wanted = layout_axes(str(src_layout)), layout_axes(str(dst_layout))
    if not source or not wanted or sorted(source) != sorted(wanted) or len(src_shape) != len(source):
        raise ValueError(f"layouts {src_layout} and {dst_layout} do not name the same dimensions")
    sizes = get_const_tuple(src_shape)
    return tuple(sizes[source.index(axis)] for axis in wanted)


def _is_blocked(layout: str, outer: str, inner: Sequence[str]) -> bool:
    """Whether a layout is these axes and then these inner parts, each with a size."""
    axes = layout_axes(layout) or ()
    parts = axes[len(outer) :]
    return layout.startswith(outer) and [v for v, _ in parts] == list(inner) and all(n for _, n in parts)


def nchw_pack_layout(layout_info: str) -> bool:
    """Whether a layout is NCHW with blocks of batches and channels: NCHW1n16c."""
    return _is_blocked(layout_info, "NCHW", "nc")


def nchw_xc_layout(layout_info: str) -> bool:
    """Whether a layout is NCHW with blocks of channels: NCHW16c."""
    return _is_blocked(layout_info, "NCHW", "c")


def ncw_pack_layout(layout_info: str) -> bool:
    """Whether a layout is NCW with blocks of batches and channels: NCW1n16c."""
    return _is_blocked(layout_info, "NCW", "nc")


def ncw_xc_layout(layout_info: str) -> bool:
    """Whether a layout is NCW with blocks of channels: NCW16c."""
    return _is_blocked(layout_info, "NCW", "c")


def is_target(names: str | Sequence[str]) -> bool:
    """Whether the target of the open `with Target(…)` has one of the keys."""
    current = home_of("targets").Target.current(allow_none=False)
    return any(name in current.keys for name in ([names] if isinstance(names, str) else names))


# ---------------------------------------------------------------------------- shapes and stages
def as_place(index: PrimExpr, size: Any) -> PrimExpr:
    """An index in bounds, in the type of its size, like the indices of all other reads."""
    return ops.cast(convert(size).dtype, index)


def clamped(index: PrimExpr, size: Any) -> PrimExpr:
    """An index from data clamped to the dimension; it is compared in its own type."""
    last = beside(index, ops.sub(size, 1))
    return as_place(ops.max_of(ops.min_of(index, last), 0), size)


def beside(index: PrimExpr, size: Any) -> PrimExpr:
    """A size in the type of a comparison with an index: unsigned indices keep all their bits."""
    kind = index.dtype
    return ops.cast(kind, size) if kind.is_uint and kind.bits >= 32 else convert(size)


def broadcast_shape(operator_name: str, *shapes: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The common shape of operands, as NumPy's rule has it."""
    out: tuple[PrimExpr, ...] = tuple(convert(d) for d in shapes[0])
    for shape in shapes[1:]:
        try:
            out = _broadcast_two(out, tuple(convert(d) for d in shape))
        except TensorExpressionError as error:
            reason = str(error).splitlines()[0].rpartition("shapes ")[2]
            raise fail(
                operator_name, f"shapes {reason}", "dimensions that differ must be 1 in one of the operands"
            ) from None
    return out


def injective(
    operator_name: str,
    shape: Sequence[Any],
    f: Callable[..., Any],
    tag: str = _tag.INJECTIVE,
    name: str = "",
    attrs: Any = None,
) -> Any:
    """A tensor of `shape` by the rule `f`, tagged; the tag of an open te.tag_scope goes first."""
    tag = "" if TagScope.get_current() is not None else tag
    try:
        return te.compute(tuple(shape), f, name or f"T_{operator_name}", tag, attrs)
    except TensorExpressionError:
        raise
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
        raise fail(operator_name, str(error)) from error


def elementwise(operator_name: str, f: Callable[..., Any], *operands: Any) -> Any:
    """`f` of each element. Operands are tensors, which broadcast, and scalars; only scalars give a scalar."""

    def told(*values: Any) -> PrimExpr:
        try:
            return convert(f(*values))
        except TensorExpressionError:
            raise
        except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
            raise fail(operator_name, str(error)) from None

    tensors = [x for x in operands if isinstance(x, te.Tensor)]
    for x in operands:
        scalar = isinstance(x, (te.Tensor, ExprOp, int, float)) or getattr(x, "ndim", None) == 0
        if not scalar:
            raise fail(operator_name, f"an operand is {shown(x)} and must be a tensor or a number")
    if not tensors:
        return told(*operands)
    shape = broadcast_shape(operator_name, *(t.shape for t in tensors))

    def element(*at: Any) -> PrimExpr:
        return told(
            *(x(*broadcast_indices(x.shape, shape, at)) if isinstance(x, te.Tensor) else x for x in operands)
        )

    kind = _tag.ELEMWISE if len(tensors) == 1 else _tag.BROADCAST
    return injective(operator_name, shape, element, kind)


def extern(
    operator_name: str,
    shapes: Sequence[Sequence[Any]],
    inputs: Sequence[te.Tensor],
    build: Callable[..., Any],
    dtypes: Sequence[str],
    tag: str = _tag.EXTERN,
    attrs: Mapping[str, Any] | None = None,
) -> list[te.Tensor]:
    """Tensors filled by statements over buffers: `build(ins, outs)` gives them. One list entry each."""
    tag = "" if TagScope.get_current() is not None else tag
    made = te.extern(
        [tuple(s) for s in shapes], list(inputs), build, operator_name, list(dtypes), tag=tag, attrs=attrs
    )
    return [made] if isinstance(made, te.Tensor) else list(made)


def const_vector(vector: Any, name: str = "const_vector") -> te.Tensor:
    """A list of numbers as a tensor."""
    return const_matrix(vector, name)


def const_matrix(matrix: Any, name: str = "const_matrix") -> te.Tensor:
    """An array of numbers as a tensor without inputs.

    Its elements are a decision tree over the indices, so it is meant for small ones.
    """
    import numpy as np

    array = np.asarray(matrix)
    kind = array.dtype.name

    def pick(part: Any, at: Sequence[Any]) -> PrimExpr:
        if not at:
            return te.const(part.item(), kind)
        out = pick(part[-1], at[1:])
        for i in range(len(part) - 2, -1, -1):
            out = ops.select(ops.equal(at[0], i), pick(part[i], at[1:]), out)
        return out

    if array.size == 0:
        return injective(name, array.shape, lambda *i: te.const(0, kind), name=name)
    return injective(name, array.shape, lambda *i: pick(array, i), name=name, attrs={"const_matrix": True})


# ---------------------------------------------------------------------------- schedules
def traverse_inline(s: Any, final_op: Any, callback: Callable[[Any], None]) -> None:
    """Call `callback` on each operation from the inputs to `final_op`, and inline injective stages on the way."""
    seen: set[int] = set()
    outputs = {id(op) for op in s.outputs}
    order: list[Any] = []
    stack = [(final_op, False)]
    while stack:
        op, done = stack.pop()
        if done:
            order.append(op)
        elif id(op) not in seen:
            seen.add(id(op))
            stack.append((op, True))
            stack.extend((t.op, False) for t in reversed(op.input_tensors))
    for op in order:
        if isinstance(op, te.ComputeOp) and _tag.is_injective(op.tag) and id(op) not in outputs:
            s[op].compute_inline()
    for op in order:
        callback(op)
