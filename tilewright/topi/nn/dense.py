"""Dense layers and batched matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from .. import tag as _tag
from ..math import cast
from ..reduction import accumulator
from ..utils import (
    broadcast_indices,
    broadcast_shape,
    clamped,
    dtype_of,
    fail,
    get_const_tuple,
    injective,
    normalize_axis,
    prod,
    same_size,
    shape_text,
    simplify,
    tensor_arg,
    unravel_index,
)

__all__ = [
    "batch_flatten",
    "batch_matmul",
    "bias_add",
    "blockwise_dense",
    "dense",
    "dense_pack",
    "fifo_buffer",
    "flatten",
    "grouped_matmul",
    "matmul",
]


def _check_inner(what: str, a: te.Tensor, b: te.Tensor, left: Any, right: Any) -> None:
    """Check that the reduced dimensions of both operands are equal, as far as known."""
    if isinstance(left, int) and isinstance(right, int) and left != right:
        raise fail(
            what,
            f"`{a.name}` of shape {shape_text(a.shape)} and `{b.name}` of shape {shape_text(b.shape)} do not "
            f"multiply: {left} and {right} differ",
            "transpose_a and transpose_b say which operands are transposed",
        )


def _check_ndim(what: str, tensor: Any, argument: str, ndim: int, more: bool = False) -> te.Tensor:
    tensor = tensor_arg(what, argument, tensor)
    if tensor.ndim != ndim and not (more and tensor.ndim > ndim):
        raise fail(
            what,
            f"`{tensor.name}` has shape {shape_text(tensor.shape)} and must have {ndim} dimensions"
            + (" or more" if more else ""),
        )
    return tensor


def matmul(
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> te.Tensor:
    """The product of two matrices, and a bias for each column; dimensions in front broadcast."""
    what = "nn.matmul"
    a, b = (_check_ndim(what, t, n, 2, True) for t, n in ((tensor_a, "tensor_a"), (tensor_b, "tensor_b")))
    rows, inner = get_const_tuple(a.shape[-2:])[:: -1 if transpose_a else 1]
    other, columns = get_const_tuple(b.shape[-2:])[:: -1 if transpose_b else 1]
    _check_inner(what, a, b, inner, other)
    batch = broadcast_shape(what, a.shape[:-2], b.shape[:-2])
    kind = dtype_of(what, a.dtype if out_dtype is None else out_dtype)
    held, k = accumulator(kind), te.reduce_axis((0, inner), "k")

    def element(*at: Any) -> Any:
        *lead, i, j = at
        first = (k.var, i) if transpose_a else (i, k.var)
        second = (j, k.var) if transpose_b else (k.var, j)
        left = a(*broadcast_indices(a.shape[:-2], batch, lead), *first)
        right = b(*broadcast_indices(b.shape[:-2], batch, lead), *second)
        return te.sum(ops.mul(ops.cast(held, left), ops.cast(held, right)), axis=k)

    form = f"{'T' if transpose_a else 'N'}{'T' if transpose_b else 'N'}"
    # A product with the transposed weight is what the classic system calls dense.
    tag = {"NT": "dense", "NN": "matmul"}.get(form, f"matmul_{form}")
    made = te.compute((*batch, rows, columns), element, f"T_matmul_{form}", tag)
    return _finished(what, made, bias, kind)


def _finished(what: str, data: te.Tensor, bias: te.Tensor | None, kind: DataType) -> te.Tensor:
    """The sums of products, with a bias if there is one, in the type of the result."""
    return cast(data if bias is None else _with_bias(what, data, bias), kind)


def _with_bias(what: str, data: te.Tensor, bias: te.Tensor) -> te.Tensor:
    bias = tensor_arg(what, "bias", bias)
    sizes = get_const_tuple((*bias.shape, data.shape[-1]))
    if bias.ndim != 1 or (all(isinstance(s, int) for s in sizes) and sizes[0] != sizes[1]):
        raise fail(what, f"bias has shape {shape_text(bias.shape)} and must have one element for each column")
    return injective(
        what,
        data.shape,
        lambda *at: ops.add(data(*at), ops.cast(data.dtype, bias(at[-1]))),
        _tag.BROADCAST,
        "T_add",
    )


def dense(
    data: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    out_dtype: str | None = None,
) -> te.Tensor:
    """`data @ weight.T + bias`: each row of the weight makes one output."""
    data = tensor_arg("nn.dense", "data", data)
    if data.ndim <= 2:
        return matmul(data, weight, bias, out_dtype, False, True)
    weight = _check_ndim("nn.dense", weight, "weight", 2)
    columns, inner = get_const_tuple(weight.shape)
    _check_inner("nn.dense", data, weight, get_const_tuple(data.shape)[-1], inner)
    kind = dtype_of("nn.dense", data.dtype if out_dtype is None else out_dtype)
    held, k = accumulator(kind), te.reduce_axis((0, data.shape[-1]), "k")
    made = te.compute(
        (*data.shape[:-1], columns),
        lambda *at: te.sum(
            ops.mul(ops.cast(held, data(*at[:-1], k.var)), ops.cast(held, weight(at[-1], k.var))), axis=k
        ),
        "T_dense",
        "dense",
    )
    return _finished("nn.dense", made, bias, kind)


def dense_pack(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None
) -> te.Tensor:
    """`data @ weight.T + bias` with the weight in blocks of rows: (rows // block, inner, block), or not in blocks."""
    what = "nn.dense_pack"
    data = _check_ndim(what, data, "data", 2)
    if tensor_arg(what, "weight", weight).ndim == 2:
        return dense(data, weight, bias, out_dtype)
    weight = _check_ndim(what, weight, "weight", 3)
    rows, inner = get_const_tuple(data.shape)
    blocks, other, block = get_const_tuple(weight.shape)
    _check_inner(what, data, weight, inner, other)
    kind = dtype_of(what, data.dtype if out_dtype is None else out_dtype)
    held, k = accumulator(kind), te.reduce_axis((0, inner), "k")

    def element(i: Any, j: Any) -> Any:
        right = weight(ops.floordiv(j, block), k.var, ops.floormod(j, block))
        return te.sum(ops.mul(ops.cast(held, data(i, k.var)), ops.cast(held, right)), axis=k)

    made = te.compute((rows, simplify(blocks * block)), element, "T_dense_pack", "dense_pack")
    return _finished(what, made, bias, kind)


def batch_matmul(
    tensor_a: te.Tensor,
    tensor_b: te.Tensor,
    oshape: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> te.Tensor:
    """The products of pairs of matrices; an operand with a batch of one is used for all.

    `tensor_b` is transposed unless told otherwise, as in dense.
    """
    what = "nn.batch_matmul"
    a = _check_ndim(what, tensor_a, "tensor_a", 3)
    b = _check_ndim(what, tensor_b, "tensor_b", 3)
    many, *left = get_const_tuple(a.shape)
    other, *right = get_const_tuple(b.shape)
    rows, inner = left[::-1] if transpose_a else left
    depth, columns = right[::-1] if transpose_b else right
    _check_inner(what, a, b, inner, depth)
    one_a, one_b = (isinstance(n, int) and n == 1 for n in (many, other))
    if isinstance(many, int) and isinstance(other, int) and many != other and not (one_a or one_b):
        raise fail(what, f"the batches {many} and {other} differ", "they must be equal, or one of them 1")
    batch = other if one_a else many
    shape = (batch, rows, columns) if oshape is None else get_const_tuple(oshape)
    kind = dtype_of(what, a.dtype if out_dtype is None else out_dtype)
    held, k = accumulator(kind), te.reduce_axis((0, inner), "k")

    def element(n: Any, i: Any, j: Any) -> Any:
        first, second = (0 if one_a else n), (0 if one_b else n)
        x = a(first, k.var, i) if transpose_a else a(first, i, k.var)
        y = b(second, j, k.var) if transpose_b else b(second, k.var, j)
        return te.sum(ops.mul(ops.cast(held, x), ops.cast(held, y)), axis=k)

    form = f"{'T' if transpose_a else 'N'}{'T' if transpose_b else 'N'}"
    return _finished(what, te.compute(shape, element, f"T_batch_matmul_{form}", "batch_matmul"), None, kind)


def grouped_matmul(
    data: te.Tensor, weight: te.Tensor, offsets: te.Tensor, out_dtype: str | None = None
) -> te.Tensor:
    """The product of each row of a matrix with the weight of its group, as a mixture of experts computes it.

    The rows of a group are neighbours: group g has the rows from `offsets[g - 1]` (0 for the first) to `offsets[g]`,
    which do not decrease. Rows from the last offset on are in no group, and their results are 0.

        out[i, j] = sum(data[i, k] * weight[group(i), k, j] for k)
    """
    what = "nn.grouped_matmul"
    x, w = _check_ndim(what, data, "data", 2), _check_ndim(what, weight, "weight", 3)
    ends = _check_ndim(what, offsets, "offsets", 1)
    (rows, inner), (groups, depth, columns) = get_const_tuple(x.shape), get_const_tuple(w.shape)
    _check_inner(what, x, w, inner, depth)
    if not same_size(ends.shape[0], groups):
        raise fail(what, f"offsets has {ends.shape[0]} elements and weight {groups} groups")
    if ends.dtype not in ("int32", "int64"):
        raise fail(what, f"offsets is of {ends.dtype} and must be of int32 or int64")
    kind = dtype_of(what, x.dtype if out_dtype is None else out_dtype)
    held, k, g = accumulator(kind), te.reduce_axis((0, inner), "k"), te.reduce_axis((0, groups), "g")

    def before(i: Any) -> Any:
        """The number of groups that end at row i or before it."""
        ended = ops.less_equal(ends(g.var), ops.cast(ends.dtype, i))
        return te.sum(ops.cast("int32", ended), axis=g)

    group = te.compute((rows,), before, "T_group")

    def element(i: Any, j: Any) -> Any:
        mine = clamped(group(i), groups)
        return te.sum(ops.mul(ops.cast(held, x(i, k.var)), ops.cast(held, w(mine, k.var, j))), axis=k)

    made = te.compute((rows, columns), element, "T_grouped_matmul", "grouped_matmul")

    def inside(i: Any, j: Any) -> Any:
        return ops.if_then_else(ops.less(group(i), groups), made(i, j), te.const(0, made.dtype))

    return _finished(
        what, injective(what, made.shape, inside, _tag.INJECTIVE, "T_grouped_matmul_rows"), None, kind
    )


def blockwise_dense(
    data: te.Tensor,
    weight: te.Tensor,
    scale: te.Tensor,
    zero: te.Tensor,
    bits: int = 4,
    out_dtype: str | None = None,
    data_bits: int = 0,
) -> te.Tensor:
    """`data @ w.T` for weights of 2, 4 or 8 bits whose blocks along a row have a scale and a zero point each:

        w[n, k] = (q[n, k] - zero[n, k // block]) * scale[n, k // block]

    `weight` is of uint8 and has 8 / bits numbers q in each byte, the lowest bits first; `scale` is (rows of the weight,
    blocks), `zero` too, or it has no dimensions. Sums are kept in float32. Where `data` has fewer columns than the
    blocks together, the last weights of a row do not count.

    With `data_bits=8`, the data of each block is rounded to integers from -127 to 127, with a scale for each row and
    block: 1/127 of its largest absolute value. A last block that is not whole stays as it is, and all others too.
    """
    what = "nn.blockwise_dense"
    if data_bits not in (0, 8):
        raise fail(what, f"data_bits is {data_bits}; it must be 8, or 0 for data that is not rounded")
    x, w = _check_ndim(what, data, "data", 2), _check_ndim(what, weight, "weight", 2)
    s, z = _check_ndim(what, scale, "scale", 2), tensor_arg(what, "zero", zero)
    if w.dtype != "uint8" or bits not in (2, 4, 8):
        raise fail(what, f"weight is of {w.dtype} with {bits} bits; it must be of uint8, with 2, 4 or 8 bits")
    (rows, inner), (units, packed), (same, blocks) = (get_const_tuple(t.shape) for t in (x, w, s))
    per = 8 // bits
    if not same_size(units, same) or (z.ndim and not all(map(same_size, z.shape, s.shape))):
        raise fail(
            what,
            f"weight is {shape_text(w.shape)}, scale {shape_text(s.shape)} and zero {shape_text(z.shape)}",
        )
    if packed * per % blocks or inner > packed * per:
        raise fail(what, f"a row has {packed * per} weights in {blocks} blocks, and data has {inner} columns")
    block, real = packed * per // blocks, DataType("float32")

    def real_weight(n: Any, k: Any) -> Any:
        q, at = w(n, ops.floordiv(k, per)), ops.floordiv(k, block)
        if bits < 8:
            place = ops.cast("uint8", ops.mul(ops.floormod(k, per), bits))
            q = ops.bitwise_and(ops.shift_right(q, place), te.const((1 << bits) - 1, "uint8"))
        moved = ops.sub(ops.cast(real, q), ops.cast(real, z(n, at) if z.ndim else z()))
        return ops.mul(moved, ops.cast(real, s(n, at)))

    wide = injective(what, (units, inner), real_weight, name="T_blockwise_weight")
    k = te.reduce_axis((0, inner), "k")
    number = _rounded_blocks(what, x, block) if data_bits and inner % block == 0 else None

    def element(i: Any, j: Any) -> Any:
        value = ops.cast(real, x(i, k.var)) if number is None else number(i, k.var)
        return te.sum(ops.mul(value, wide(j, k.var)), axis=k)

    made = te.compute((rows, units), element, "T_blockwise_dense", "dense")
    return _finished(what, made, None, dtype_of(what, x.dtype if out_dtype is None else out_dtype))


def _rounded_blocks(what: str, x: te.Tensor, block: int) -> Callable[[Any, Any], Any]:
    """The elements of a matrix as int8 times a scale for each block of a row."""
    rows, inner = x.shape
    real, step = DataType("float32"), te.reduce_axis((0, block), "step")
    count = ops.floordiv(inner, block)

    def size(i: Any, k: Any) -> Any:
        return ops.abs(ops.cast(real, x(i, k)))

    largest = te.compute(
        (rows, count),
        lambda i, b: te.max(size(i, ops.add(ops.mul(b, block), step.var)), axis=step),
        "T_largest",
    )

    def inverse(i: Any, b: Any) -> Any:
        top = largest(i, b)
        return ops.if_then_else(
            ops.less(te.const(0, real), top), ops.div(te.const(127, real), top), te.const(0, real)
        )

    by = injective(what, (rows, count), inverse, name="T_inverse")
    whole = injective(
        what,
        (rows, inner),
        lambda i, k: ops.cast(
            "int8", ops.round(ops.mul(ops.cast(real, x(i, k)), by(i, ops.floordiv(k, block))))
        ),
        name="T_rounded",
    )
    scale = injective(
        what,
        (rows, count),
        lambda i, b: ops.mul(largest(i, b), te.const(1 / 127, real)),
        name="T_scale",
    )
    return lambda i, k: ops.mul(ops.cast(real, whole(i, k)), scale(i, ops.floordiv(k, block)))


def bias_add(data: te.Tensor, bias: te.Tensor, axis: int = 1) -> te.Tensor:
    """The tensor with `bias[i]` added to all elements at position i of an axis."""
    what = "nn.bias_add"
    data = tensor_arg(what, "data", data)
    bias = _check_ndim(what, bias, "bias", 1)
    place = normalize_axis(what, axis, data.ndim)
    have, wanted = get_const_tuple((bias.shape[0], data.shape[place]))
    if isinstance(have, int) and isinstance(wanted, int) and have != wanted:
        raise fail(what, f"bias has {have} elements and dimension {axis} of `{data.name}` has {wanted}")
    return injective(
        what,
        data.shape,
        lambda *at: ops.add(data(*at), ops.cast(data.dtype, bias(at[place]))),
        _tag.BROADCAST,
        "T_bias_add",
    )


def fifo_buffer(data: te.Tensor, buffer: te.Tensor, axis: int) -> te.Tensor:
    """The buffer shifted by the size of `data`, which is appended at its end.

    buffer 1 2 3 4, data 8 9:  3 4 8 9
    """
    what = "nn.fifo_buffer"
    data, buffer = tensor_arg(what, "data", data), tensor_arg(what, "buffer", buffer)
    if data.ndim != buffer.ndim:
        raise fail(what, f"data has {data.ndim} dimensions and buffer {buffer.ndim}")
    place = normalize_axis(what, axis, buffer.ndim)
    for d, (x, y) in enumerate(zip(data.shape, buffer.shape, strict=True)):
        if d != place and not same_size(x, y):
            raise fail(what, f"dimension {d} of data is {x} and that of buffer is {y}; they must be equal")
    new, size = get_const_tuple((data.shape[place], buffer.shape[place]))
    if isinstance(new, int) and isinstance(size, int) and new > size:
        raise fail(what, f"data has {new} elements on axis {axis} and buffer has room for {size}")

    def element(*at: Any) -> Any:
        i = at[place]
        old = buffer(*at[:place], ops.add(i, new), *at[place + 1 :])
        fresh = data(*at[:place], ops.sub(i, size - new), *at[place + 1 :])
        return ops.if_then_else(ops.less(i, size - new), old, ops.cast(buffer.dtype, fresh))

    return injective(what, buffer.shape, element, name="new_buffer")


def flatten(data: te.Tensor) -> te.Tensor:
    """The tensor as a matrix: the first dimension, and all others in one."""
    data = tensor_arg("nn.flatten", "data", data)
    if data.ndim < 1:
        raise fail("nn.flatten", f"`{data.name}` has no dimensions and must have a batch")
    rest = get_const_tuple(data.shape[1:])
    return injective(
        "nn.flatten",
        (data.shape[0], prod(rest)),
        lambda n, i: data(n, *unravel_index(i, rest)),
        name="T_flatten",
    )


batch_flatten = flatten
