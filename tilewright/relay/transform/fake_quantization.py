"""FakeQuantizationToInteger: float arithmetic between dequantize and quantize, converted to integer arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from ...ir.affine_type import TensorAffineType
from ...ir.errors import TVMError
from .. import op as R
from ..analysis import post_order
from ..expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, const
from ..op import layouts as names
from ..op.expansions import along_axis
from ..op.reduce import reduced_axes
from ..op.traits import traits_of
from ..qnn import op as Q
from ..visitor import flow_inputs
from .fold_constant import fold_constant
from .infer_type import infer_type
from .rewriting import (
    Mutator,
    by_operator,
    call,
    is_call,
    name_of,
    ndim_of,
    static_shape,
    type_of,
    typed_pass,
)

MOST: Final = 64  # most operators of a region: regions may overlap, and duplicate operators


def fake_quantization_to_integer(
    func: Function, hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Any = None
) -> Function:
    """Convert float operators between dequantization and quantization to integer operators.

        %0 = qnn.dequantize(%q, s, z);
        %1 = nn.conv2d(%0, qnn.dequantize(%w, t, 0));     ->     %0 = qnn.conv2d(%q, %w, z, 0, s, t);
        qnn.quantize(nn.relu(%1), u, y)                          qnn.requantize(maximum(%0, 0), s·t, 0, u, y)

    A product of two dequantised tensors always becomes an integer product. The operators after it, up to a
    quantization, are converted if all of them have an integer form, and are unchanged otherwise; with `hard_fail` that
    is an error. The attribute `FTVMFakeQuantizationToInteger` of an operator is its rule, if a program registers one;
    for operators named in `optional_qnn_ops`, so is `FTVMOptionalFakeQuantizationToInteger`. `use_qat` has no effect:
    regions without a quantization at their end are converted as far as their products.
    """
    if not any(is_call(at, Q.dequantize) for at in post_order(func)):
        return func
    typed = infer_type(fold_constant(func))  # scales and zero points may be casts of constants
    return _ToInteger(hard_fail, frozenset(optional_qnn_ops or ())).visit(typed)


@dataclass
class Affine:
    """Quantised values: (q - zero) · scale, with scales per tensor or along an axis."""

    expr: Expr
    scale: Expr
    zero: Expr
    axis: int

    @property
    def single(self) -> bool:
        return _all_single(self.scale, self.zero)


def _all_single(*parameters: Expr) -> bool:
    return all((static_shape(p) or ()) in ((), (1,)) for p in parameters)


class _Refused(Exception):
    pass


class _ToInteger(Mutator):
    def __init__(self, hard_fail: bool, optional: frozenset[str]) -> None:
        super().__init__()
        self.hard_fail, self.optional = hard_fail, optional

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        try:
            if _product_rule(new) is not None:
                return _integer_product(new)
            if is_call(new, Q.quantize) and isinstance(new.args[0], (Call, TupleGetItem)):
                return _quantized_region(new, lambda at: _rule(at, self.optional))
        except _Refused as reason:
            if self.hard_fail and is_call(new, Q.quantize):
                raise TVMError(f"FakeQuantizationToInteger: {reason}") from None
        return new


def _quantized_region(quantize: Call, rule_of: Callable[[Any], Rule | None]) -> Expr:
    """The integer form of a quantization and the calls before it."""
    root: Any = quantize.args[0]
    if is_call(root, Q.dequantize) and type_of(root.args[0]).dtype.bits < 32:
        source = _dequantize(root, {}, None)
        same = _same(source.scale, quantize.args[1]) and _same(source.zero, quantize.args[2])
        return source.expr if same and type_of(source.expr).dtype == quantize.attrs.out_dtype else quantize
    done: dict[Any, Affine] = {}
    region = _region(root, rule_of)
    first = _first_of(root, region) if _all_single(*quantize.args[1:]) else root
    for at, rule in region:
        done[at] = rule(at, done, quantize if at is first else None)
    return _finished(done[root], quantize)


def _first_of(root: Any, region: list[tuple[Any, Rule]]) -> Any:
    """The call whose elements are quantised: the last one, or the one whose result the last ones only move."""
    users = Counter(operand for at, _ in region for operand in flow_inputs(at))
    rules = dict(region)
    while rules[root] in _MOVERS and users[before := flow_inputs(root)[0]] == 1 and before in rules:
        root = before
    return root


def _integer_product(at: Call) -> Expr:
    """A product of dequantised operands as the dequantization of an integer product."""
    done: dict[Any, Affine] = {}
    for operand in at.args:
        for inner, rule in _region(operand, _moving_rule):
            if inner not in done:
                done[inner] = rule(inner, done, None)
    product = _product_rule(at)
    assert product is not None
    made = product(at, done, None)
    kind = type_of(at).dtype
    return Q.dequantize(made.expr, made.scale, made.zero, axis=made.axis, out_dtype=kind)


def _region(root: Expr, rule_of: Callable[[Any], Rule | None]) -> list[tuple[Any, Rule]]:
    """The calls between dequantizations and a quantization with their rules, in topological order."""
    out: list[tuple[Any, Rule]] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, Rule | None]] = [(root, None)]
    found = False
    while stack:
        at, ready = stack.pop()
        if ready is not None:
            out.append((at, ready))
            continue
        if at in seen or isinstance(at, (Constant, Tuple)):
            if isinstance(at, Tuple):
                stack.extend((f, None) for f in at.fields)
            continue
        seen.add(at)
        rule = rule_of(at)
        if rule is None:
            raise _Refused(f"{name_of(at) or type(at).__name__} has no integer form")
        if len(seen) > MOST:
            raise _Refused(f"there are more than {MOST} operators before a quantisation")
        stack.append((at, rule))
        if is_call(at, Q.dequantize):
            found = True
        else:
            moved = rule in _MOVERS  # the other operands are places
            stack.extend((b, None) for b in flow_inputs(at)[: 1 if moved else None])
    if not found:
        raise _Refused("no operand of the region is quantised")
    return out


def _same(a: Expr, b: Expr) -> bool:
    """Whether two scales or zero points are equal, up to the last bits of a product of scales."""
    if a is b:
        return True
    if not isinstance(a, Constant) or not isinstance(b, Constant):
        return False
    one, other = a.numpy(), b.numpy()
    fits = one.shape == other.shape or one.size == 1 or other.size == 1
    return fits and bool((abs(one.reshape(-1) - other.reshape(-1)) <= 1e-6 * abs(one.reshape(-1))).all())


def _finished(made: Affine, quantize: Call) -> Expr:
    """Integers requantized to the scale of the quantization."""
    _, scale, zero = quantize.args
    kind = quantize.attrs.out_dtype
    if _same(made.scale, scale) and _same(made.zero, zero) and type_of(made.expr).dtype == kind:
        return made.expr
    if not made.single and not _all_single(scale, zero):
        if made.axis % ndim_of(made.expr) != quantize.attrs.axis % ndim_of(made.expr):
            raise _Refused("the scales before and after are along different axes")
    axis = quantize.attrs.axis if made.single else made.axis
    # accumulators of 8-bit products times a factor, rounded to 8 bits: the precision of float32 suffices
    real = "float32" if kind.bits <= 8 else "float64"
    return Q.requantize(made.expr, made.scale, made.zero, scale, zero,
        axis=axis, rounding="TONEAREST_EVEN", compute_dtype=real, out_dtype=kind,
    )  # fmt: skip


Rule = Callable[[Any, dict[Any, Affine], Call | None], Affine]


def _operand(at: Call, i: int, done: dict[Any, Affine]) -> Affine:
    found = done.get(at.args[i])
    if found is None:
        raise _Refused(f"operand {i} of {name_of(at)} is not quantised")
    return found


# ---------------------------------------------------------------------------- rules
def _dequantize(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    return Affine(at.args[0], at.args[1], at.args[2], at.attrs.axis)


def _moved(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    """Operators that only move or select elements."""
    x = _operand(at, 0, done)
    if not x.single:
        raise _Refused(f"{name_of(at)} of several scales")
    return Affine(at.over([x.expr, *at.args[1:]]), x.scale, x.zero, x.axis)


def _field(at: TupleGetItem, done: dict[Any, Affine], last: Call | None) -> Affine:
    """A part of a tensor that was split, or the values of several results."""
    x = done[at.tuple_value]
    return Affine(TupleGetItem(x.expr, at.index), x.scale, x.zero, x.axis)


def _topk(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    if at.attrs.ret_type != "values":
        raise _Refused("topk that also returns indices")
    return _moved(at, done, last)


def _transpose(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    x = _operand(at, 0, done)
    ndim = ndim_of(x.expr)
    order = [d % ndim for d in (at.attrs.axes or range(ndim - 1, -1, -1))]
    return Affine(at.over([x.expr]), x.scale, x.zero, order.index(x.axis % ndim))


def _pad(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    x, value = _operand(at, 0, done), at.args[1]
    zero = isinstance(value, Constant) and not value.numpy().any()
    if not x.single or (at.attrs.pad_mode == "constant" and not zero):
        raise _Refused("nn.pad of a tensor with several scales, or with a value other than zero")
    return Affine(at.over([x.expr, _zero_as(x)]), x.scale, x.zero, x.axis)


def _resize(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    if not at.attrs.method.startswith("nearest"):
        raise _Refused(f"{name_of(at)} that interpolates between pixels")
    return _moved(at, done, last)


def _averaged(at: Call, x: Affine, axes: Sequence[int], keepdims: bool) -> Affine:
    """An average as a sum of integers, whose scale is that of an element divided by their number."""
    shape = static_shape(x.expr)
    if shape is None or not x.single or type_of(x.expr).dtype.bits > 16:
        raise _Refused(f"{name_of(at)} of a dynamic shape, of several scales or of 32-bit integers")
    count = prod(shape[d] for d in axes)
    if count << type_of(x.expr).dtype.bits >= 1 << 31:
        raise _Refused(f"{name_of(at)} of {count} elements, whose sum may not fit into 32 bits")
    centred = R.subtract(R.cast(x.expr, dtype="int32"), R.cast(_zero_as(x), dtype="int32"))
    total = R.sum(centred, axis=list(axes), keepdims=keepdims) if axes else centred
    return Affine(total, _times(x.scale, const(1.0 / count, "float32")), const(0, "int32"), -1)


def _mean(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    x = _operand(at, 0, done)
    return _averaged(at, x, reduced_axes(at.attrs, ndim_of(x.expr)), at.attrs.keepdims)


def _global_average(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    """An average over all of space; an adaptive one if a single element of it is asked for."""
    if set(at.attrs.get("output_size") or (1,)) != {1}:
        raise _Refused(f"{name_of(at)} to several windows")
    x = _operand(at, 0, done)
    space = [d for d, (letter, _) in enumerate(names.axes(at.attrs.layout)) if letter in "DHW"]
    return _averaged(at, x, space, True)


def _zero_as(x: Affine) -> Expr:
    """The zero point in the type of the tensor."""
    zero = x.zero
    if static_shape(zero) == (1,):
        zero = R.reshape(zero, newshape=())
    elif static_shape(zero):
        zero = along_axis(zero, x.axis, ndim_of(x.expr))
    return R.cast(zero, dtype=type_of(x.expr).dtype)


def _relu(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    x = _operand(at, 0, done)
    return Affine(R.maximum(x.expr, _zero_as(x)), x.scale, x.zero, x.axis)


def _clip(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    x = _operand(at, 0, done)
    if last is not None:  # the bounds are exact in the scale of the result
        x = Affine(_finished(x, last), last.args[1], last.args[2], last.attrs.axis)
    if not isinstance(x.scale, Constant) or not isinstance(x.zero, Constant):
        raise _Refused("clip with scales that are not constant")
    kind = type_of(x.expr).dtype
    # a bound may be infinite, or out of the range of the type
    low, high = (
        np.round(np.clip(v / x.scale.numpy().reshape(-1) + x.zero.numpy().reshape(-1), kind.low, kind.high))
        for v in (at.attrs.a_min, at.attrs.a_max)
    )
    if x.single:
        made = R.clip(x.expr, a_min=float(low[0]), a_max=float(high[0]))
    else:
        least, most = (along_axis(const(v, kind), x.axis, ndim_of(x.expr)) for v in (low, high))
        made = R.minimum(R.maximum(x.expr, least), most)
    return Affine(made, x.scale, x.zero, x.axis)


def _operands(at: Call, done: dict[Any, Affine], weight_axis: int | None) -> tuple[Affine, Affine]:
    """Both operands of a product; scales of the second may be per output channel."""
    x, w = _operand(at, 0, done), _operand(at, 1, done)
    if any(type_of(o.expr).dtype.bits > 16 for o in (x, w)):
        raise _Refused(f"{name_of(at)} of 32-bit integers")
    if not x.single:
        raise _Refused(f"{name_of(at)} of data with per-axis scales")
    if not w.single and (weight_axis is None or w.axis % ndim_of(w.expr) != weight_axis):
        raise _Refused(f"{name_of(at)} with scales along an axis other than the output channels")
    return x, w


def _summed(at: Call, x: Affine, w: Affine, axis: int, **attrs: Any) -> Affine:
    made = call(
        traits_of(at).quantised, x.expr, w.expr, x.zero, w.zero, x.scale, w.scale, **attrs, out_dtype="int32"
    )
    return Affine(made, _times(x.scale, w.scale), const(0, "int32"), axis)


def _convolution(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    x, w = _operands(at, done, names.axis_in(at.attrs.kernel_layout, "O"))
    left_out = ("auto_scheduler_rewritten_layout", "meta_schedule_original_shape", "out_dtype")
    attrs = {k: v for k, v in at.attrs.items() if k not in left_out}
    channels = (at.attrs.out_layout or at.attrs.data_layout).find("C")
    if traits_of(at).quantised != "centred":
        return _summed(at, x, w, channels, **attrs)
    made = call(name_of(at), _centred(x), _centred(w), **attrs, out_dtype="int32")
    return Affine(made, _times(x.scale, w.scale), const(0, "int32"), channels)


def _centred(x: Affine) -> Expr:
    """The integers minus their zero point, for products without a qnn operator."""
    if isinstance(x.zero, Constant) and not x.zero.numpy().any():
        return x.expr
    wide = "int16" if type_of(x.expr).dtype.bits == 8 else "int32"
    return R.subtract(R.cast(x.expr, dtype=wide), R.cast(_zero_as(x), dtype=wide))


def _transposed(x: Affine) -> Affine:
    """The transposes of the matrices in the last two dimensions."""
    ndim = ndim_of(x.expr)
    order = (*range(ndim - 2), ndim - 1, ndim - 2)
    return Affine(R.transpose(x.expr, axes=order), x.scale, x.zero, order.index(x.axis % ndim) if ndim else 0)


def _matrices(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    """dense, matmul and batch_matmul, whose qnn operators take the second operand transposed."""
    columns = "transpose_b" in at.attrs and not at.attrs.transpose_b
    batch = is_call(at, R.nn.batch_matmul)
    x, w = _operands(at, done, None if batch else int(columns))
    x = _transposed(x) if at.attrs.get("transpose_a") else x
    w = _transposed(w) if columns else w
    return _summed(at, x, w, ndim_of(at) - 1)


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Constant) and isinstance(b, Constant):
        product: Any = a.numpy() * b.numpy()
        return const(product, "float32")
    return R.multiply(a, b)


def _bias(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    """An addition in the scale of the data: the bias after a product."""
    x = _operand(at, 0, done)
    if type_of(x.expr).dtype != "int32":
        raise _Refused(f"{name_of(at)} to 8-bit integers")
    return Affine(at.over([x.expr, _as_bias(at, at.args[1], x, done)]), x.scale, x.zero, x.axis)


def _as_bias(at: Call, other: Expr, x: Affine, done: dict[Any, Affine]) -> Expr:
    """The other operand as int32 in the scale of the data."""
    found = done.get(other)
    if found is not None and _same(found.zero, x.zero) and _same(found.scale, x.scale):
        return R.cast(found.expr, dtype="int32") if type_of(found.expr).dtype != "int32" else found.expr
    bias = found.expr if found is not None else other
    shape = static_shape(other)
    wide = [] if shape is None else [d for d, s in enumerate(shape) if s != 1]
    if shape is None or len(wide) > 1 or (not wide and not x.single):
        raise _Refused(f"{name_of(at)} of a tensor with another scale")
    axis = (wide[0] - len(shape)) if wide else -1
    if found is not None:
        return Q.requantize(bias, found.scale, found.zero, x.scale, x.zero, axis=axis, out_dtype="int32")
    return Q.quantize(bias, x.scale, x.zero, axis=axis, out_dtype="int32")


def _binary(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    """Elementwise sums and products: a bias in the scale of a product, or a qnn operator."""
    sums = [i for i, a in enumerate(at.args) if a in done and type_of(done[a].expr).dtype == "int32"]
    if is_call(at, R.add) and sums:
        # if both are accumulators, the larger one is the product
        first = max(sums, key=lambda i: len(static_shape(at.args[i]) or ()))
        x = done[at.args[first]]
        return Affine(at.over([x.expr, _as_bias(at, at.args[1 - first], x, done)]), x.scale, x.zero, x.axis)
    if last is None:
        raise _Refused(f"{name_of(at)} of 8-bit integers whose result is not quantised directly")
    kind = last.attrs.out_dtype
    lhs, rhs = (_constant(a, kind) or _operand(at, i, done) for i, a in enumerate(at.args))
    if type_of(lhs.expr).dtype != kind or type_of(rhs.expr).dtype != kind:
        raise _Refused(f"{name_of(at)} of different integer types")
    if not lhs.single or not rhs.single:
        raise _Refused(f"{name_of(at)} of several scales")
    scale, zero = last.args[1], last.args[2]
    made = call(
        traits_of(at).quantised, lhs.expr, rhs.expr, lhs.scale, lhs.zero, rhs.scale, rhs.zero, scale, zero
    )
    return Affine(made, scale, zero, last.attrs.axis)


def _constant(e: Expr, kind: Any) -> Affine | None:
    """A constant scalar as the integer that is the farthest from zero in its type, by which it is exact."""
    if not isinstance(e, Constant) or e.numpy().size != 1:
        return None
    value = float(e.numpy().reshape(-1)[0])
    far = kind.high if value >= 0 or not kind.is_int else -kind.high
    zero = kind.high if value < 0 and not kind.is_int else 0
    integer = const(0 if zero else far, kind)
    return Affine(integer, const(abs(value) / kind.high or 1.0, "float32"), const(zero, "int32"), -1)


def _extreme(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    """The greater or smaller of integers of one scale, if need be of that of the result."""
    kind = None if last is None else last.attrs.out_dtype
    lhs, rhs = ((kind and _constant(a, kind)) or _operand(at, i, done) for i, a in enumerate(at.args))
    kinds = [type_of(x.expr).dtype for x in (lhs, rhs)]
    if not (kinds[0] == kinds[1] and _same(lhs.scale, rhs.scale) and _same(lhs.zero, rhs.zero)):
        if last is None or not _all_single(*last.args[1:]):
            raise _Refused(f"{name_of(at)} of different scales whose result is not quantised directly")
        _, scale, zero = last.args
        lhs, rhs = (Affine(_finished(x, last), scale, zero, last.attrs.axis) for x in (lhs, rhs))
    return Affine(at.over([lhs.expr, rhs.expr]), lhs.scale, lhs.zero, lhs.axis)


def _unary(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    x = _operand(at, 0, done)
    if last is None or not x.single or type_of(x.expr).dtype != last.attrs.out_dtype:
        raise _Refused(f"{name_of(at)} whose result is not quantised directly to its own type")
    attrs = {k: v for k, v in at.attrs.items() if k != "out_layout"}
    made = call(traits_of(at).quantised, x.expr, x.scale, x.zero, last.args[1], last.args[2], **attrs)
    return Affine(made, last.args[1], last.args[2], last.attrs.axis)


def _concatenate(at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    parts = at.args[0]
    if not isinstance(parts, Tuple) or any(f not in done for f in parts.fields):
        raise _Refused("concatenate of a tensor that is not quantised")
    rows = [done[f] for f in parts.fields]
    if not all(r.single for r in rows):
        raise _Refused("concatenate of tensors with per-axis scales")
    first = rows[0]
    scale, zero = (first.scale, first.zero) if last is None else (last.args[1], last.args[2])
    made = Q.concatenate(
        Tuple([r.expr for r in rows]),
        Tuple([r.scale for r in rows]),
        Tuple([r.zero for r in rows]),
        scale,
        zero,
        axis=at.attrs.axis,
    )
    return Affine(made, scale, zero, -1)


_MOVERS: Final = frozenset((_moved, _transpose, _resize, _topk, _field))
# Rules of some operators; for the others, the trait `quantised` selects the rule.
_MOVING: Final[dict[Any, Rule]] = by_operator(
    {
        Q.dequantize: _dequantize,
        R.transpose: _transpose,
        R.nn.pad: _pad,
        R.image.resize2d: _resize,
        R.take: _moved,
        R.split: _moved,
        R.topk: _topk,
    }
)
_RULES: Final[dict[Any, Rule]] = by_operator(
    {
        **_MOVING,
        R.nn.relu: _relu,
        R.clip: _clip,
        R.nn.bias_add: _bias,
        R.concatenate: _concatenate,
        R.maximum: _extreme,
        R.minimum: _extreme,
        R.mean: _mean,
        **dict.fromkeys(
            (R.nn.global_avg_pool1d, R.nn.global_avg_pool2d, R.nn.global_avg_pool3d), _global_average
        ),
        **dict.fromkeys(
            (R.nn.adaptive_avg_pool1d, R.nn.adaptive_avg_pool2d, R.nn.adaptive_avg_pool3d), _global_average
        ),
    }
)


def _moving_rule(at: Any) -> Rule | None:
    """The rule of an operator that only moves elements."""
    if isinstance(at, TupleGetItem):
        return _field
    return _moved if traits_of(at).quantised == "same" else _MOVING.get(getattr(at, "op", None))


def _own_rule(at: Any, optional: frozenset[str] = frozenset()) -> Rule | None:
    """The rule that a program registered for an operator."""
    if not name_of(at):
        return None
    work: Any = at.op.get_attr("FTVMFakeQuantizationToInteger")
    if work is None and name_of(at) in optional:
        work = at.op.get_attr("FTVMOptionalFakeQuantizationToInteger")
    return None if work is None else partial(_by_rule, work)


def _by_rule(work: Any, at: Call, done: dict[Any, Affine], last: Call | None) -> Affine:
    """What a rule of a program makes of the call over integers, given their types."""
    found = [done.get(a) for a in at.args]
    integers = [a if x is None else x.expr for a, x in zip(at.args, found, strict=True)]
    kinds = {
        x.expr: TensorAffineType(x.scale, x.zero, str(type_of(x.expr).dtype), x.axis)
        for x in found
        if x is not None
    }
    made = work(at.over(integers), kinds)
    if not isinstance(made, (list, tuple)) or len(made) != 2 or not isinstance(made[1], TensorAffineType):
        raise TVMError(
            f"FakeQuantizationToInteger: the rule of {name_of(at)} must return an expression and its TensorAffineType"
        )
    return Affine(made[0], made[1].scale, made[1].zero_point, made[1].axis)


def _product_rule(at: Any) -> Rule | None:
    """The rule of a product with an integer form."""
    if not (traits_of(at).product and traits_of(at).quantised):
        return None
    own = _own_rule(at)
    if own is not None:
        return own
    return _convolution if "kernel_layout" in at.attrs else _matrices


def _rule(at: Any, optional: frozenset[str]) -> Rule | None:
    """The rule of an operator in a region, other than products."""
    found = _own_rule(at, optional) or _moving_rule(at) or _RULES.get(getattr(at, "op", None))
    if found is not None or traits_of(at).product or not traits_of(at).quantised:
        return found
    return _binary if len(at.args) == 2 else _unary


FakeQuantizationToInteger = typed_pass(
    fake_quantization_to_integer, name="FakeQuantizationToInteger", opt_level=1
)
