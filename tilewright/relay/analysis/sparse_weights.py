"""Weights that can be sparse, and their sparse form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from ...homes import home_of
from ...ir.op import Op
from ..expr import Call, Expr, Function, Var
from .walks import post_order

__all__ = ["search_dense_op_weight", "search_fc_transpose"]


class SparseAnalysisResult(NamedTuple):
    """The weights to replace: their names, and the shape of each with that of its columns and row pointers behind."""

    weight_name: list[str]
    weight_shape: list[list[int]]


def _is_op(expr: Any, name: str) -> bool:
    return expr.__class__ is Call and isinstance(expr.op, Op) and expr.op.name == name


def is_sparse_conv(call: Any, layout: str, kernel_size: int) -> bool:
    """Whether a sparse convolution of that layout and kernel computes what a call does."""
    if not _is_op(call, "nn.conv2d"):
        return False
    attrs = call.attrs
    wanted = {"NHWC": "HWIO", "NCHW": "OIHW"}.get(layout)
    pad = {1: 0, 3: 1}.get(kernel_size)
    shape = getattr(call.args[1].checked_type, "shape", ())
    taps = shape[:2] if layout == "NHWC" else shape[2:]
    return bool(
        (attrs.data_layout, attrs.kernel_layout) == (layout, wanted)
        and tuple(taps) == (kernel_size, kernel_size)
        and set(attrs.padding) == {pad}
        and set(attrs.strides) == set(attrs.dilation) == {1}
        and attrs.groups == 1
        and attrs.out_dtype in ("", None, call.args[0].checked_type.dtype)
    )


def _weights(expr: Any, wanted: Callable[[Call], Any]) -> list[str]:
    """The variables of which every use is a weight: `wanted(call)` is the weight of a call, or None."""
    uses: Counter[Var] = Counter()
    found: Counter[Var] = Counter()
    for at in post_order(expr):
        if at.__class__ is Call:
            uses.update(a for a in at.args if isinstance(a, Var))
            weight = wanted(at)
            found.update([weight] if isinstance(weight, Var) else [])
        elif isinstance(at, Expr) and not isinstance(at, (Function, Var)):
            uses.update(a for a in getattr(at, "fields", ()) if isinstance(a, Var))
    return [v.name_hint for v, n in found.items() if uses[v] == n]


def search_dense_op_weight(expr: Any) -> list[str]:
    """The names of the variables that are weights of dense layers, and nothing else."""
    return _weights(expr, lambda call: call.args[1] if _is_op(call, "nn.dense") else None)


def search_conv2d_op_weight(expr: Any, layout: str, kernel_size: int) -> list[str]:
    """The names of the variables that are weights of convolutions that can be sparse, and nothing else."""
    return _weights(expr, lambda c: c.args[1] if is_sparse_conv(c, layout, kernel_size) else None)


def _is_turned(expr: Any) -> bool:
    """Whether an expression is the transpose of a matrix."""
    return _is_op(expr, "transpose") and tuple(expr.attrs.axes or (1, 0)) == (1, 0)


def search_fc_transpose(expr: Any) -> list[str]:
    """The names of the variables that are transposed to be weights of dense layers, and nothing else."""
    turned = {id(at.args[1]) for at in post_order(expr) if _is_op(at, "nn.dense") and _is_turned(at.args[1])}
    return _weights(expr, lambda call: call.args[0] if id(call) in turned else None)


def as_matrix(weight: Any, layout: str) -> Any:
    """The weight of a convolution with a row for each output channel."""
    return weight.reshape(-1, weight.shape[-1]).T if layout == "NHWC" else weight.reshape(weight.shape[0], -1)


def sparse_form(weight: Any, layout: str, blocksize: tuple[int, int], threshold: float) -> Any:
    """(data, indices, indptr) of a weight in blocks, or None if it does not fall into them or too little is zero."""
    import scipy.sparse

    matrix = np.asarray(weight) if layout == "" else as_matrix(np.asarray(weight), layout)
    if any(n % b for n, b in zip(matrix.shape, blocksize, strict=True)):
        return None
    if 1.0 - np.count_nonzero(matrix) / max(matrix.size, 1) < threshold:
        return None
    made = scipy.sparse.bsr_matrix(matrix, blocksize=blocksize)
    return made.data, made.indices.astype("int32"), made.indptr.astype("int32")


def replace_params(
    names: Iterable[str],
    params: dict[str, Any],
    layout: str,
    blocksize: Any,
    threshold: float,
    prefix: str,
    register: bool = True,
) -> SparseAnalysisResult:
    """Replace weights of which enough is zero by their sparse form, and tell the tuner their values."""
    found = SparseAnalysisResult([], [])
    rows, columns = blocksize
    array = home_of("arrays").array
    for name in names:
        if name not in params:
            continue
        weight = params[name].numpy()
        parts = sparse_form(weight, layout, (rows, columns), threshold)
        if parts is None:
            continue
        shape = weight.shape if layout == "" else as_matrix(weight, layout).shape
        del params[name]
        data, indices, indptr = parts
        if layout and columns == 1 and weight.size == shape[0] * shape[1] and _is_pointwise(weight, layout):
            data = data.reshape(len(data), rows)
        found.weight_name.append(name)
        found.weight_shape.append([*data.shape, *indices.shape, *indptr.shape])
        key = f"{prefix}_{shape[0]}_{shape[1]}_{rows}_{columns}_{len(indices)}_{len(indptr)}_"
        for kind, value in (("data", data), ("indices", indices), ("indptr", indptr)):
            params[f"{name}.{kind}"] = array(value)
            if register:
                home_of("task_inputs").register_task_input_buffer(
                    "default", f"{key}W_{kind}", value, overwrite=True
                )
    return found


def _is_pointwise(weight: Any, layout: str) -> bool:
    return tuple(weight.shape[:2] if layout == "NHWC" else weight.shape[2:]) == (1, 1)
