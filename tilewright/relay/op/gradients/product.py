"""Gradients of products of matrices, and of the bias after them."""

from __future__ import annotations

from typing import Any

from ....ir.errors import TVMError
from ...expr import Call
from ..computes import R
from .parts import fields_of, ndim, shape, summed_but, through


def _like(grad: Any, data: Any, call: Call) -> Any:
    """A gradient in the element type of an operand, where the result has another."""
    dtype = data.checked_type.dtype
    return grad if call.checked_type.dtype == dtype else R.cast(grad, str(dtype))


def dense(call: Call, grad: Any) -> list[Any]:
    data, weight = call.args
    outputs, inputs = shape(weight)
    by_data = R.nn.dense(_like(grad, weight, call), R.transpose(weight))
    flat = grad if ndim(data) == 2 else R.reshape(grad, (-1, outputs))
    rows = data if ndim(data) == 2 else R.reshape(data, (-1, inputs))
    by_weight = R.nn.dense(R.transpose(_like(flat, data, call)), R.transpose(rows))
    return [by_data, by_weight]


def _transposed(flags: tuple[bool, bool], build: Any, grad: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The gradients of a · b with operands that may be transposed; `build(x, y, transpose_x, transpose_y)`."""
    ta, tb = flags
    by_a = build(b, grad, tb, True) if ta else build(grad, b, False, not tb)
    by_b = build(grad, a, True, ta) if tb else build(a, grad, not ta, False)
    return by_a, by_b


def matmul(call: Call, grad: Any) -> list[Any]:
    a, b = call.args
    attrs, given = call.attrs, _like(grad, a, call)

    def build(x: Any, y: Any, tx: bool, ty: bool) -> Any:
        return R.nn.matmul(x, y, transpose_a=tx, transpose_b=ty)

    if ndim(a) > 2:  # many matrices: their rows are those of one
        swapped = (*range(ndim(a) - 2), ndim(a) - 1, ndim(a) - 2)
        rows = R.transpose(a, swapped) if attrs.transpose_a else a
        *lead, many, columns = shape(call)
        inner = shape(a)[-2 if attrs.transpose_a else -1]
        flat = R.reshape(given, (-1, columns))
        by_rows, by_b = _transposed((False, attrs.transpose_b), build, flat, R.reshape(rows, (-1, inner)), b)
        by_a = R.reshape(by_rows, (*lead, many, inner))
        return [R.transpose(by_a, swapped) if attrs.transpose_a else by_a, by_b]
    return list(_transposed((attrs.transpose_a, attrs.transpose_b), build, given, a, b))


def batch_matmul(call: Call, grad: Any) -> list[Any]:
    a, b = call.args
    attrs, given = call.attrs, _like(grad, a, call)

    def build(x: Any, y: Any, tx: bool, ty: bool) -> Any:
        return R.nn.batch_matmul(x, y, transpose_a=tx, transpose_b=ty)

    made = _transposed((attrs.transpose_a, attrs.transpose_b), build, given, a, b)
    batches = shape(call)[0]
    return [
        # a single matrix that all of the other side share
        R.sum(g, axis=0, keepdims=True) if shape(x)[0] == 1 and batches != 1 else g
        for g, x in zip(made, (a, b), strict=True)
    ]


def bias_add(call: Call, grad: Any) -> list[Any]:
    return [grad, summed_but(grad, call.attrs.axis, ndim(call.args[0]))]


dense_pack = through(
    lambda call: R.nn.dense(
        call.args[0],
        R.layout_transform(call.args[1], call.attrs.weight_layout, "NC"),
        None,
        call.attrs.out_dtype or "",
    )
)


def einsum(call: Call, grad: Any) -> list[Any]:
    """For each tensor, the product of the gradient with the others, summed to its labels."""
    fields, (inputs, output) = call.args[0], _labels(call)
    made: list[Any] = []
    tensors = fields_of(fields)
    kinds = fields.checked_type.fields
    for i, own in enumerate(inputs):
        if len(set(own)) != len(own):
            raise TVMError(
                f"gradient of einsum: {call.attrs.equation!r} names a label twice in one tensor; "
                "take the diagonal before the einsum"
            )
        others = [t for j, t in enumerate(tensors) if j != i]
        terms = [t for j, t in enumerate(inputs) if j != i]
        known = [c for c in own if c in output or any(c in t for t in terms)]
        equation = f"{','.join([output, *terms])}->{''.join(known)}"
        part = R.einsum([grad, *others], equation)
        for d, c in enumerate(own):  # a label that was only summed: the gradient is the same for all of it
            if c not in known:
                part = R.expand_dims(part, axis=d)
        whole = R.ones(kinds[i].shape, str(kinds[i].dtype))
        spread = len(known) < len(own) or any(d == 1 for d in kinds[i].shape)
        made.append(_fitted(part, whole, kinds[i]) if spread else part)
    return [made]


def _fitted(part: Any, ones: Any, kind: Any) -> Any:
    """A gradient summed over dimensions of 1 that were broadcast, then repeated along labels that were summed."""
    single = [d for d, size in enumerate(kind.shape) if size == 1]
    if single:
        part = R.sum(part, axis=single, keepdims=True)
    return part * ones


def _labels(call: Call) -> tuple[list[str], str]:
    """The labels of each tensor and of the result, with letters for `...`."""
    left, arrow, right = call.attrs.equation.replace(" ", "").partition("->")
    terms, kinds = left.split(","), call.args[0].checked_type.fields
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in left + right]
    most = max(
        (len(k.shape) - len(t.replace("...", "")) for t, k in zip(terms, kinds) if "..." in t), default=0
    )
    dots = "".join(free[:most])
    inputs = [
        t.replace("...", dots[most - (len(k.shape) - len(t.replace("...", ""))) :])
        for t, k in zip(terms, kinds, strict=True)
    ]
    if arrow:
        return inputs, right.replace("...", dots)
    every = "".join(inputs)
    return inputs, dots + "".join(sorted(c for c in set(every) if c not in dots and every.count(c) == 1))
