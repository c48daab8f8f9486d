"""Integers in com.microsoft: operators over quantised tensors, weights of few bits with a scale for each block."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...op.expansions import unpacked
from ..common.build import reshape
from ..common.matrices import matmul
from ..common.windows import pool
from .build import R, cast, constant, dtype_of, rank, scalar, shape_of, typed
from .context import Node, Value, converter, rows
from .nn import pool_windows
from .quant import along, dynamic_quantize_linear, integer_matmul, quantized, rescaled
from .reduce import over_the_rest

MS = "com.microsoft"


# ---------------------------------------------------------------------------- operators over integers
def _floats(n: Node, at: int) -> Any:
    """A quantised input and its scale and zero point as floats."""
    x = cast(n[at], "float32")
    if n.has(at + 2):
        x = R.subtract(x, cast(R.reshape(n[at + 2], ()), "float32"))
    return R.multiply(x, R.reshape(n[at + 1], ()))


def _back(n: Node, made: Any, at: int, like: int = 0) -> Any:
    """Floats as integers by the scale and zero point of the output."""
    zero = R.reshape(n[at + 1], ()) if n.has(at + 1) else None
    return quantized(made, R.reshape(n[at], ()), zero, n.dtype(like), 0)


rows(
    {
        "QLinearAdd": lambda n: _back(n, R.add(_floats(n, 0), _floats(n, 3)), 6),
        "QLinearMul": lambda n: _back(n, R.multiply(_floats(n, 0), _floats(n, 3)), 6),
        "QLinearSigmoid": lambda n: _back(n, R.sigmoid(_floats(n, 0)), 3),
        "QLinearLeakyRelu": lambda n: _back(n, R.nn.leaky_relu(_floats(n, 0), n.attr("alpha", 0.01)), 3),
        "QLinearWhere": lambda n: _back(n, R.where(n[0], _floats(n, 1), _floats(n, 4)), 7, 1),
    },
    domain=MS,
)


@converter("QLinearSoftmax", domain=MS)
def qlinear_softmax(n: Node) -> Any:
    """Its attribute says by which opset of ONNX the softmax is meant."""
    x, axis = _floats(n, 0), n.axis(-1)
    opset = int(n.attr("opset", n.importer.opsets.get("", 13)))
    return _back(n, R.nn.softmax(x, axis) if opset >= 13 else over_the_rest(x, axis, R.nn.softmax), 3)


@converter("QLinearGlobalAveragePool", domain=MS)
def qlinear_global_average_pool(n: Node) -> Any:
    last = n.flag("channels_last", 0)
    axes = list(range(1, n.rank(0) - 1)) if last else list(range(2, n.rank(0)))
    return _back(n, R.mean(_floats(n, 0), axis=axes, keepdims=True), 3)


@converter("QLinearAveragePool", domain=MS)
def qlinear_average_pool(n: Node) -> Any:
    x = _floats(n, 0)
    last = n.flag("channels_last", 0)
    if last:
        x = R.transpose(x, [0, rank(x) - 1, *range(1, rank(x) - 1)])
    inner = Node(n.importer, n.proto, [Value(typed(x))], n.opset)
    made = pool("avg", x, pool_windows(inner), count_include_pad=n.flag("count_include_pad", 0))
    if last:
        made = R.transpose(made, [0, *range(2, rank(x)), 1])
    return _back(n, made, 3)


@converter("QLinearConcat", domain=MS)
def qlinear_concat(n: Node) -> Any:
    kind = n.dtype(1)
    parts = [_floats(n, i) for i in range(2, len(n), 3)]
    axis = n.front(int(n.attr("axis", 0)), rank(parts[0]))
    return quantized(R.concatenate(parts, axis), R.reshape(n[0], ()), R.reshape(n[1], ()), kind, 0)


@converter("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(n: Node) -> Any:
    inner = Node(n.importer, n.proto, n.inputs[:1], n.opset)
    q, scale, zero = dynamic_quantize_linear(inner)
    total = cast(integer_matmul(q, n[1], zero, n.get(3)), "float32")
    made = R.multiply(total, R.multiply(scale, along(n[2], total, rank(total) - 1)))
    return R.add(made, n[4]) if n.has(4) else made


@converter("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(n: Node) -> Any:
    total = cast(integer_matmul(n[0], n[1], n.get(4), n.get(5)), "float32")
    last = rank(total) - 1
    made = R.multiply(R.multiply(total, along(n[2], total, last)), along(n[3], total, last))
    return R.add(made, n[6]) if n.has(6) else made


@converter("QGemm", domain=MS)
def quantized_gemm(n: Node) -> Any:
    """alpha · A · B + C of integers; C has the scale of the product. Without a scale of the output it is float32."""
    turn_a, turn_b = n.flag("transA", 0), n.flag("transB", 0)
    a, b = (R.transpose(n[i]) if turned else n[i] for i, turned in ((0, turn_a), (3, turn_b)))
    total = integer_matmul(a, b, n.get(2), n.get(5))
    if n.has(6):
        total = R.add(total, n[6])
    alpha = n.attr("alpha", 1.0)
    scale = n[1] if alpha == 1.0 else R.multiply(n[1], scalar(alpha, n[1]))
    if n.has(7):
        zero = n.get(8)
        return rescaled(total, (scale, n[4], n[7]), zero, n.dtype(8) if n.has(8) else n.dtype(0), 1)
    by = R.multiply(along(scale, total, 1), along(n[4], total, 1))
    return R.multiply(cast(total, "float32"), by)


# ---------------------------------------------------------------------------- weights of few bits
def _bits(n: Node, default: int = 4) -> int:
    bits = int(n.attr("bits", default))
    if bits not in (2, 4, 8):
        raise n.refuse(f"weights of {bits} bits are not supported; 2, 4 and 8 are")
    return bits


@converter("MatMulNBits", domain=MS)
def matmul_of_few_bits(n: Node) -> Any:
    """A product with weights (N, blocks, bytes) whose blocks along K have a scale and a zero point each."""
    bits, block = _bits(n), int(n.attr("block_size", 0))
    rows, deep = int(n.attr("N", 0)), int(n.attr("K", 0))
    if rows < 1 or deep < 1 or block < 1:
        raise n.refuse(f"N={rows}, K={deep}, block_size={block} must be positive")
    level = int(n.attr("accuracy_level", 0))
    if not 0 <= level <= 4:
        raise n.refuse(f"accuracy_level={level} is not supported; 0 to 4 are")
    count = -(-deep // block)
    kind = dtype_of(n[0])
    packed = R.reshape(n[1], [rows, -1])
    scale, zero = R.reshape(n[2], [rows, count]), _zero_points(n, rows, count, bits)
    if n.has(4):
        out = _with_block_of_columns(n, packed, scale, zero, bits)
    else:
        data = R.reshape(n[0], [-1, deep])
        # level 4 allows data of 8 bits; the others ask for floats, and float32 is the most exact of them
        made = R.nn.blockwise_dense(
            data, packed, scale, zero, bits=bits, out_dtype=kind, data_bits=8 if level == 4 else 0
        )
        out = reshape(made, [*shape_of(n[0])[:-1], rows])
    return R.add(out, n[5]) if n.has(5) else out


def _with_block_of_columns(n: Node, packed: Any, scale: Any, zero: Any, bits: int) -> Any:
    """The product where an input gives the block of each column: its weights are floats."""
    deep = int(n.attr("K", 0))
    wide = cast(R.strided_slice(unpacked(packed, bits), [0], [deep], axes=[1]), "float32")
    wanted = (cast(e, "float32") for e in (scale, zero))
    spread = [e if rank(e) < 2 else R.take(e, cast(n[4], "int32"), axis=1) for e in wanted]
    made = R.multiply(R.subtract(wide, spread[1]), spread[0])
    return matmul(n[0], R.transpose(cast(made, dtype_of(n[0])), [1, 0]))


def _zero_points(n: Node, rows: int, count: int, bits: int) -> Any:
    """The zero points (rows, blocks): bytes if they are packed like weights, or floats as they are."""
    if not n.has(3):
        return constant(np.float32(1 << (bits - 1)))
    zero = n[3]
    if dtype_of(zero) != "uint8":
        return R.reshape(zero, [rows, count])
    zero = unpacked(R.reshape(zero, [rows, -(-count * bits // 8)]), bits)
    return R.strided_slice(zero, [0], [count], axes=[1])


@converter("GatherBlockQuantized", domain=MS)
def gather_block_quantized(n: Node) -> Any:
    """Rows of a table of few bits, as floats; blocks along the last axis have a scale and a zero point each."""
    data, ndim = n.value(0), n.rank(0)
    block = int(n.attr("block_size", 128))
    if n.front(int(n.attr("gather_axis", 0)), ndim) != 0 or n.front(
        int(n.attr("quantize_axis", 1)), ndim
    ) != (ndim - 1):
        raise n.refuse(
            "gather_axis other than the first, or quantize_axis other than the last, is not supported"
        )
    bits = 4 if data.elem else _bits(n)
    packed = not data.elem and bits < 8

    def chosen(x: Any) -> Any:
        return R.take(x, n[1], axis=0, mode="fast")

    x = chosen(data.expr)
    x = cast(unpacked(x, bits) if packed else x, "float32")
    scale = chosen(n[2])
    blocks = shape_of(scale)[-1]
    if n.has(3):
        zero = chosen(n[3])
        zero = unpacked(zero, bits) if packed else zero
        zero = cast(R.strided_slice(zero, [0], [blocks], axes=[rank(zero) - 1]), "float32")
        zero = along(zero, x, rank(x) - 1, block)
    else:  # bytes have their middle as zero, signed numbers 0
        zero = constant(np.float32(0 if data.elem else 1 << (bits - 1)))
    made = R.multiply(R.subtract(x, zero), along(cast(scale, "float32"), x, rank(x) - 1, block))
    return cast(made, dtype_of(n[2]))
