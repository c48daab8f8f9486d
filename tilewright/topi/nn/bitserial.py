"""Layers over few bits: the bits of many numbers lie in one word, and products count bits.

a = a1 * 2 + a0,  b = b1 * 2 + b0   ->   a . b = sum over i, j of popcount(ai & bj) * 2**(i + j)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr
from ..utils import dtype_of, fail, get_const_tuple, injective, normalize_axis, shape_text, tensor_arg
from .padding import pad
from .utils import get_pad_tuple, spatial

__all__ = [
    "binarize_pack",
    "binary_dense",
    "binary_op_multiplier",
    "bitpack",
    "bitserial_conv2d_nchw",
    "bitserial_conv2d_nhwc",
    "bitserial_dense",
]


def binary_op_multiplier(pack_dtype: str) -> int:
    """How many bits a word has: 32 of "uint32"."""
    return DataType(pack_dtype).bits


def _word(what: str, dtype: str) -> int:
    kind = dtype_of(what, dtype)
    if not kind.is_uint or kind.bits not in (8, 16, 32, 64):
        raise fail(what, f"words are {dtype} and must be uint8, uint16, uint32 or uint64")
    return kind.bits


def bitpack(
    data: te.Tensor, bits: int, pack_axis: int, bit_axis: int, pack_type: str, name: str = "QuantizeInput"
) -> te.Tensor:
    """The low bits of numbers in words along `pack_axis`; `bit_axis` is new, with a place for each bit."""
    what = "nn.bitpack"
    x = tensor_arg(what, "data", data)
    width = _word(what, pack_type)
    along = normalize_axis(what, pack_axis, x.ndim, "pack_axis")
    sizes = list(get_const_tuple(x.shape))
    if not isinstance(sizes[along], int) or sizes[along] % width:
        raise fail(
            what, f"data has shape {shape_text(x.shape)} and dimension {pack_axis} must fill words of {width}"
        )
    if not 1 <= bits <= 8:
        raise fail(what, f"bits is {bits} and must be from 1 to 8")
    sizes[along] //= width
    sizes.insert(bit_axis, bits)

    def element(*at: Any) -> PrimExpr:
        bit, rest = at[bit_axis], [*at[:bit_axis], *at[bit_axis + 1 :]]
        out: PrimExpr = te.const(0, pack_type)
        for k in range(width):
            place = [*rest[:along], rest[along] * width + k, *rest[along + 1 :]]
            value = ops.cast("int32", x(*place))
            one = (value >> ops.cast("int32", bit)) & te.const(1, "int32")
            out = (out << te.const(1, pack_type)) | ops.cast(pack_type, one)
        return out

    return injective(what, sizes, element, "bitpack", name)


def _products(a: PrimExpr, w: PrimExpr, weight: PrimExpr, unipolar: bool, out_dtype: str) -> PrimExpr:
    """The sum of products of two words of bits, by the power of two that they stand for.

    Bits of weights are 0 and 1, or -1 and 1 if `unipolar`.
    """
    count = ops.cast(out_dtype, ops.popcount(a & w))
    if unipolar:
        count = count - ops.cast(out_dtype, ops.popcount(a & ~w))
    return count << ops.cast(out_dtype, weight)


def bitserial_dense(
    data: te.Tensor,
    weight: te.Tensor,
    data_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> te.Tensor:
    """`data @ weight.T` of numbers of a few bits; the weight may be packed already: (rows, bits, words)."""
    what = "nn.bitserial_dense"
    packed = bitpack(data, data_bits, 1, 1, pack_dtype)
    other = tensor_arg(what, "weight", weight)
    other = bitpack(other, weight_bits, 1, 1, pack_dtype) if other.ndim == 2 else other
    rows, a_bits, words = get_const_tuple(packed.shape)
    columns, b_bits, _ = get_const_tuple(other.shape)
    k, i, j = (te.reduce_axis((0, n), v) for n, v in ((words, "k"), (a_bits, "db"), (b_bits, "wb")))

    def element(row: Any, column: Any) -> PrimExpr:
        one, two = packed(row, i.var, k.var), other(column, j.var, k.var)
        return te.sum(_products(one, two, i.var + j.var, unipolar, out_dtype), axis=[j, i, k])

    return te.compute((rows, columns), element, "T_bitserial_dense", "bitserial_dense")


def _conv2d(
    what: str, a: te.Tensor, w: te.Tensor, stride: Any, padding: Any, forms: Sequence[str], options: Any
) -> te.Tensor:
    """A convolution of packed data; the forms name the dimensions of data, weight and result, `b` the bits."""
    data, weight, out = forms
    out_dtype, unipolar = options
    d, k = (dict(zip(f, get_const_tuple(t.shape), strict=True)) for f, t in ((data, a), (weight, w)))
    strides = spatial(what, "stride", stride, 2)
    top, left, bottom, right = get_pad_tuple(padding, (k["H"], k["W"]))
    before, after = {"H": top, "W": left}, {"H": bottom, "W": right}
    padded = pad(a, [before.get(v, 0) for v in data], [after.get(v, 0) for v in data], name="pad_temp")
    sizes = {
        "N": d["N"],
        "O": k["O"],
        "H": (d["H"] - k["H"] + top + bottom) // strides[0] + 1,
        "W": (d["W"] - k["W"] + left + right) // strides[1] + 1,
    }
    axes = {v: te.reduce_axis((0, k[v]), f"r{v}") for v in "IHWb"}
    bits = te.reduce_axis((0, d["b"]), "rd")

    def element(*point: Any) -> PrimExpr:
        at = dict(zip(out, point, strict=True))
        rows = {v: at[v] * s + axes[v].var for v, s in zip("HW", strides, strict=True)}
        here = {"N": at["N"], "I": axes["I"].var, "b": bits.var, **rows}
        there = {"O": at["O"], **{v: axes[v].var for v in "IHWb"}}
        one, two = padded(*(here[v] for v in data)), w(*(there[v] for v in weight))
        value = _products(one, two, bits.var + axes["b"].var, unipolar, out_dtype)
        return te.sum(value, axis=[*axes.values(), bits])

    return te.compute([sizes[v] for v in out], element, "Conv2dOutput", what.removeprefix("nn."))


def bitserial_conv2d_nchw(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    activation_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> te.Tensor:
    """A convolution of NCHW with OIHW of numbers of a few bits; the kernel may be packed already, bits last."""
    what = "nn.bitserial_conv2d_nchw"
    a = bitpack(data, activation_bits, 1, 2, pack_dtype)
    w = tensor_arg(what, "kernel", kernel)
    w = bitpack(w, weight_bits, 1, 4, pack_dtype) if w.ndim == 4 else w
    return _conv2d(what, a, w, stride, padding, ("NIbHW", "OIHWb", "NOHW"), (out_dtype, unipolar))


def bitserial_conv2d_nhwc(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    activation_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> te.Tensor:
    """A convolution of NHWC with HWIO of numbers of a few bits; a packed kernel is (H, W, bits, words, O)."""
    what = "nn.bitserial_conv2d_nhwc"
    a = bitpack(data, activation_bits, 3, 4, pack_dtype)
    w = tensor_arg(what, "kernel", kernel)
    form = "HWbIO"
    if w.ndim == 4:
        w, form = bitpack(w, weight_bits, 2, 4, pack_dtype), "HWIOb"
    return _conv2d(what, a, w, stride, padding, ("NHWIb", form, "NHWO"), (out_dtype, unipolar))


def binarize_pack(data: te.Tensor, axis: int | None = None, name: str = "PackedInput") -> te.Tensor:
    """The signs along an axis in words of 32 bits: 1 for what is not negative."""
    what = "nn.binarize_pack"
    x = tensor_arg(what, "data", data)
    along = normalize_axis(what, x.ndim - 1 if axis is None else axis, x.ndim)
    sizes = list(get_const_tuple(x.shape))
    if not isinstance(sizes[along], int) or sizes[along] % 32:
        raise fail(what, f"data has shape {shape_text(x.shape)} and dimension {along} must fill words of 32")
    sizes[along] //= 32

    def element(*at: Any) -> PrimExpr:
        out: PrimExpr = te.const(0, "uint32")
        for k in range(32):
            value = x(*at[:along], at[along] * 32 + k, *at[along + 1 :])
            sign = ops.cast("uint32", ops.greater_equal(value, te.const(0, x.dtype)))
            out = (out << te.const(1, "uint32")) | sign
        return out

    return injective(what, sizes, element, "binarize_pack", name)


def binary_dense(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """`data @ weight.T` of numbers that are -1 or 1, packed by `binarize_pack`."""
    what = "nn.binary_dense"
    a, w = tensor_arg(what, "data", data), tensor_arg(what, "weight", weight)
    if a.ndim != 2 or w.ndim != 2 or a.dtype != "uint32" or w.dtype != "uint32":
        raise fail(what, "data and weight must be matrices of uint32, as binarize_pack makes them")
    rows, words = get_const_tuple(a.shape)
    k = te.reduce_axis((0, words), "k")
    differ = te.compute(
        (rows, w.shape[0]),
        lambda i, j: te.sum(ops.cast("int32", ops.popcount(a(i, k.var) ^ w(j, k.var))), axis=k),
        "T_binary_dense",
        "binary_dense",
    )
    total, two = te.const(32.0 * words, "float32"), te.const(2.0, "float32")
    return injective(
        what, differ.shape, lambda *at: total - ops.cast("float32", differ(*at)) * two, "elemwise"
    )
