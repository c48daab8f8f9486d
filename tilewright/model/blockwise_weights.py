"""Matrix products with weights of 4 or 8 bits in an ONNX graph: each block of a column has a scale and a zero point.

x ──▶ MatMul ──▶ y      ->      x ──▶ MatMulNBits ──▶ y        w = (q - zero) * scale
        w ──┘                      q, scale, zero ──┘
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .quantized_graph import Graph, Plan, finished, stored_constant

__all__ = ["blocks_of_weight", "with_blockwise_weights"]

_MICROSOFT = "com.microsoft"


def blocks_of_weight(weight: Any, bits: int, block: int) -> tuple[Any, Any, Any]:
    """The packed integers, scales and zero points of a weight (outputs, inputs): those of MatMulNBits."""
    rows, deep = weight.shape
    count, top = -(-deep // block), (1 << bits) - 1
    parts = np.pad(weight, ((0, 0), (0, count * block - deep))).reshape(rows, count, block)
    low, high = np.minimum(parts.min(axis=2), 0), np.maximum(parts.max(axis=2), 0)
    scale = np.where(high > low, (high - low) / top, 1).astype(np.float32)
    zero = np.clip(np.round(-low / scale), 0, top).astype(np.uint8)
    steps = np.round(parts / scale[:, :, None]) + zero[:, :, None]
    return _packed(np.clip(steps, 0, top).astype(np.uint8), bits), scale, _packed(zero, bits)


def _packed(numbers: Any, bits: int) -> Any:
    """Numbers of 4 bits in pairs, the first in the lower half of a byte; those of 8 as they are."""
    if bits == 8:
        return numbers
    if numbers.shape[-1] % 2:
        numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, 1)])
    return numbers[..., ::2] | numbers[..., 1::2] << 4


def with_blockwise_weights(graph: Graph, plan: Plan, bits: int, block: int, data_bits: int = 0) -> Any:
    """The model whose products of matrices with constant weights take these as integers of few bits; None if there
    is none. With `data_bits=8`, the data of these products may be rounded to 8 bits."""
    from onnx import helper

    made: list[Any] = []
    for n in graph.model.graph.node:
        weight = graph.weight_of(n) if n.name in plan.products and n.op_type != "Conv" else None
        turned = {a.name: a.i for a in n.attribute}
        if weight is None or weight.ndim != 2 or turned.get("transA"):
            made.append(n)
            continue
        rows = np.ascontiguousarray(weight if turned.get("transB") else weight.T)
        name = f"{n.name}.weight"
        parts = zip(("quantized", "scale", "zero"), blocks_of_weight(rows, bits, block), strict=True)
        names = [n.input[0], *(stored_constant(graph, f"{name}.{what}", value) for what, value in parts)]
        sizes = {"K": rows.shape[1], "N": rows.shape[0], "bits": bits, "block_size": block}
        if data_bits:
            sizes["accuracy_level"] = 4
        biased = len(n.input) > 2 and bool(n.input[2])
        product = f"{n.output[0]}.product" if biased else n.output[0]
        made.append(
            helper.make_node("MatMulNBits", names, [product], name=n.name, domain=_MICROSOFT, **sizes)
        )
        if biased:
            made.append(helper.make_node("Add", [product, n.input[2]], [n.output[0]], name=f"{n.name}.bias"))
    if not any(n.op_type == "MatMulNBits" for n in made):
        return None
    model = finished(graph, made)
    if all(o.domain != _MICROSOFT for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
    return model
