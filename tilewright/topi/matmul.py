"""Products of matrices and tensors: matmul, tensordot, einsum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..ir import ops
from ..ir.expr import PrimExpr
from . import math as _math
from .reduction import accumulator
from .utils import (
    broadcast_indices,
    broadcast_shape,
    equal_const_int,
    fail,
    get_const_tuple,
    injective,
    int_list,
    normalize_axes,
    prod,
    same_size,
    shape_text,
    tensor_arg,
)

__all__ = ["einsum", "matmul", "tensordot"]


def _result_type(name: str, a: te.Tensor, b: te.Tensor) -> Any:
    common = a.dtype if a.dtype is b.dtype else ops.common_type(a.dtype, b.dtype)
    if common is None:
        raise fail(name, f"there is no common type for {a.dtype} and {b.dtype}", "cast one of them")
    return common


def _need_same(name: str, a: te.Tensor, x: int, b: te.Tensor, y: int) -> None:
    if not same_size(a.shape[x], b.shape[y]):
        raise fail(
            name,
            f"shapes {shape_text(a.shape)} and {shape_text(b.shape)} do not multiply: dimension {x} of the "
            f"first, {a.shape[x]}, must be dimension {y} of the second, {b.shape[y]}",
        )


def matmul(a: te.Tensor, b: te.Tensor, transp_a: bool = False, transp_b: bool = False) -> te.Tensor:
    """The matrix product over the last two dimensions; those before broadcast, as in NumPy.

    A vector counts as a row in front and as a column behind, and its dimension is not in the result.
    """
    a, b = tensor_arg("matmul", "a", a), tensor_arg("matmul", "b", b)
    if a.ndim == 0 or b.ndim == 0:
        raise fail("matmul", "an operand has no dimensions; multiply by a scalar with topi.multiply")
    row, column = a.ndim > 1, b.ndim > 1
    a_sum = a.ndim - (2 if transp_a and row else 1)
    b_sum = b.ndim - (1 if transp_b or not column else 2)
    _need_same("matmul", a, a_sum, b, b_sum)
    kind = _result_type("matmul", a, b)
    held = accumulator(kind)
    batch = broadcast_shape("matmul", a.shape[:-2], b.shape[:-2])
    k = te.reduce_axis((0, a.shape[a_sum]), "k")
    shape = list(batch)
    if row:
        shape.append(a.shape[-1] if transp_a else a.shape[-2])
    if column:
        shape.append(b.shape[-2] if transp_b else b.shape[-1])

    def element(*at: Any) -> Any:
        lead, rest = at[: len(batch)], list(at[len(batch) :])
        left = [*broadcast_indices(a.shape[:-2], batch, lead)] + ([rest.pop(0)] if row else [])
        right = [*broadcast_indices(b.shape[:-2], batch, lead)] + ([rest.pop(0)] if column else [])
        left.insert(a_sum, k.var)
        right.insert(b_sum, k.var)
        return te.sum(ops.mul(ops.cast(held, a(*left)), ops.cast(held, b(*right))), axis=k)

    return _math.cast(injective("matmul", shape, element, "matmul"), kind)


def tensordot(a: te.Tensor, b: te.Tensor, axes: Any = 2) -> te.Tensor:
    """The sum of products over pairs of axes; the remaining axes of `a` come first, then those of `b`.

    `axes` is a number n (the last n of `a` with the first n of `b`), or two lists of axes, or two axes.
    """
    a, b = tensor_arg("tensordot", "a", a), tensor_arg("tensordot", "b", b)
    if isinstance(axes, (tuple, list)):
        if len(axes) != 2:
            raise fail("tensordot", f"axes has {len(axes)} entries and must have one for each operand")
        left = normalize_axes("tensordot", axes[0], a.ndim, "axes[0]")
        right = normalize_axes("tensordot", axes[1], b.ndim, "axes[1]")
    else:
        (n,) = int_list("tensordot", "axes", axes)
        if not isinstance(n, int) or not 0 <= n <= min(a.ndim, b.ndim):
            raise fail("tensordot", f"axes is {n} and the operands have {a.ndim} and {b.ndim} dimensions")
        left, right = tuple(range(a.ndim - n, a.ndim)), tuple(range(n))
    if len(left) != len(right):
        raise fail("tensordot", f"axes names {len(left)} axes of the first and {len(right)} of the second")
    for x, y in zip(left, right):
        _need_same("tensordot", a, x, b, y)
    kind = _result_type("tensordot", a, b)
    held = accumulator(kind)
    over = [te.reduce_axis((0, a.shape[d]), f"k{i}") for i, d in enumerate(left)]
    keep_a = [d for d in range(a.ndim) if d not in left]
    keep_b = [d for d in range(b.ndim) if d not in right]

    def element(*at: Any) -> Any:
        ia: list[Any] = [None] * a.ndim
        ib: list[Any] = [None] * b.ndim
        for i, d in enumerate(keep_a):
            ia[d] = at[i]
        for i, d in enumerate(keep_b):
            ib[d] = at[len(keep_a) + i]
        for k, x, y in zip(over, left, right):
            ia[x] = ib[y] = k.var
        return te.sum(ops.mul(ops.cast(held, a(*ia)), ops.cast(held, b(*ib))), axis=over)

    shape = [a.shape[d] for d in keep_a] + [b.shape[d] for d in keep_b]
    return _math.cast(injective("tensordot", shape, element, "matmul"), kind)


# ---------------------------------------------------------------------------- einsum
def _expanded(term: str, ndim: int, dots: int, subscripts: str) -> list[str]:
    """The labels of one operand; those of `…` are numbered from the last: .1 is the last."""
    head, found, tail = term.partition("...")
    count = ndim - len(head) - len(tail)
    wrong = count < 0 if found else count != 0
    if wrong or (not (head + tail).isalpha() and head + tail):
        raise fail(
            "einsum", f"{subscripts!r}: `{term}` names {len(head + tail)} of an operand's {ndim} dimensions"
        )
    return [*head, *(f".{i}" for i in range(count, 0, -1)), *tail]


def _parse(subscripts: str, operands: Sequence[te.Tensor]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the result; without `->` those that occur once, in order."""
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        raise fail("einsum", f"{subscripts!r} has {len(terms)} terms for {len(operands)} operands")
    labels = [_expanded(t, x.ndim, 0, subscripts) for t, x in zip(terms, operands)]
    every = [label for term in labels for label in term]
    dots = sorted({v for v in every if v[0] == "."}, key=lambda v: -int(v[1:]))
    if not arrow:
        once = sorted(v for v in set(every) if v[0] != "." and every.count(v) == 1)
        return labels, [*dots, *once]
    head, found, tail = output.partition("...")
    result = [*head, *(dots if found else ()), *tail]
    unknown = [v for v in result if v not in every]
    if unknown or len(set(result)) != len(result):
        raise fail(
            "einsum", f"{subscripts!r}: the result names `{(unknown or result)[0]}`, which it must not"
        )
    return labels, result


def _sizes(subscripts: str, labels: list[list[str]], operands: Sequence[te.Tensor]) -> dict[str, Any]:
    """The size of each label; 1 broadcasts."""
    sizes: dict[str, Any] = {}
    for term, x in zip(labels, operands):
        for label, dim in zip(term, x.shape):
            known = sizes.get(label)
            if known is None or equal_const_int(known, 1):
                sizes[label] = dim
            elif not equal_const_int(dim, 1) and not same_size(known, dim):
                raise fail("einsum", f"{subscripts!r}: `{label}` is {known} and {dim}")
    return sizes


def _contract(
    terms: list[list[str]], operands: list[te.Tensor], result: list[str], sizes: dict[str, Any]
) -> te.Tensor:
    """One sum of products: the labels that the result does not name are summed over."""
    kind = operands[0].dtype
    for x in operands[1:]:
        common = kind if kind is x.dtype else ops.common_type(kind, x.dtype)
        if common is None:
            raise fail("einsum", f"there is no common type for {kind} and {x.dtype}", "cast one of them")
        kind = common
    held = accumulator(kind)
    over = {
        label: te.reduce_axis((0, sizes[label]), f"k{i}")
        for i, label in enumerate(dict.fromkeys(v for t in terms for v in t))
        if label not in result
    }

    def element(*at: Any) -> Any:
        value: PrimExpr | None = None
        for term, x in zip(terms, operands):
            index = []
            for label, dim in zip(term, x.shape):
                place: Any = over[label].var if label in over else at[result.index(label)]
                stretched = equal_const_int(dim, 1) and not equal_const_int(sizes[label], 1)
                index.append(te.const(0) if stretched else place)
            factor = ops.cast(held, x(*index))
            value = factor if value is None else ops.mul(value, factor)
        return te.sum(value, axis=list(over.values())) if over else value

    made = injective("einsum", [sizes[v] for v in result], element, "einsum" if over else "injective")
    return _math.cast(made, kind)


def _cheapest(terms: list[list[str]], result: list[str], sizes: dict[str, Any]) -> tuple[int, int]:
    """The pair of operands whose product takes the fewest steps; the first pair if sizes are symbolic."""
    known = get_const_tuple(sizes.values())
    if not all(isinstance(v, int) for v in known):
        return 0, 1
    pairs = [(i, j) for i in range(len(terms)) for j in range(i + 1, len(terms))]
    return min(pairs, key=lambda p: prod(sizes[v] for v in {*terms[p[0]], *terms[p[1]]}))


def einsum(subscripts: str, *operand: Any) -> te.Tensor:
    """Einstein's summation: "ij,jk->ik" is a matrix product, "...ij->...ji" a transpose.

    More than two operands are multiplied pair by pair, the cheapest pair first.
    """
    given = operand[0] if len(operand) == 1 and isinstance(operand[0], (tuple, list)) else operand
    operands = [tensor_arg("einsum", f"operand {i}", x) for i, x in enumerate(given)]
    terms, result = _parse(subscripts, operands)
    sizes = _sizes(subscripts, terms, operands)
    while len(operands) > 2:
        i, j = _cheapest(terms, result, sizes)
        pair = [terms[i], terms[j]]
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        needed = {*result, *(v for t in rest for v in t)}
        kept = [v for v in dict.fromkeys(pair[0] + pair[1]) if v in needed]
        # A size that only a later operand stretches stays 1 here.
        here = _sizes(subscripts, pair, [operands[i], operands[j]])
        made = _contract(pair, [operands[i], operands[j]], kept, here)
        operands = [*(x for k, x in enumerate(operands) if k not in (i, j)), made]
        terms = [*rest, kept]
    return _contract(terms, operands, result, sizes)
