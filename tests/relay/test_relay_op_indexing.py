"""Scatter, coordinates, sequences, sorting, Einstein's sums: types, values against NumPy, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.relay.testing import run_infer_type

X = np.arange(12, dtype="float32").reshape(3, 4)
U = np.array([[5, 1, 4, 4], [2, 2, 0, 9], [7, 3, 3, 1]], "float32")


def var(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return relay.var(name, shape=shape, dtype=dtype)


def shape_of(expr: Any) -> Any:
    return run_infer_type(expr).checked_type.shape


def c(values: Any, dtype: str = "int32") -> Any:
    return relay.const(np.array(values, dtype))


def _scattered() -> Any:
    out = X.copy()
    np.put_along_axis(out, np.array([[2, 0, 1, 1]]), U[:1], 0)
    return out


def _added() -> Any:
    out = X.copy()
    np.add.at(out, (np.array([0, 0, 2]),), U)
    return out


def _set_by_one() -> Any:
    made = X.copy()
    made[1:2, 0:2] = 1
    return made


def _set() -> Any:
    out = X.copy()
    out[0:3:2, 1:3] = -1
    return out


def _masked() -> Any:
    out = X.copy()
    out[1:, 0] = out[2:, 2] = -5
    return out


def _reversed() -> Any:
    out = X.copy()
    out[0, :2], out[2, :3] = X[0, 1::-1], X[2, 2::-1]
    return out


def _diagonals() -> Any:
    out = X.copy()
    out[[0, 1, 2], [1, 2, 3]] = [1, 2, 3]
    out[[0, 1, 2], [0, 1, 2]] = [4, 5, 6]
    return out


V = relay.var("x", shape=(3, 4))
W = relay.var("u", shape=(3, 4))
CASES: dict[str, tuple[Any, Any]] = {
    "scatter_elements": (
        relay.scatter_elements(V, c([[2, 0, 1, 1]]), relay.strided_slice(W, [0, 0], [1, 4])),
        _scattered(),
    ),
    "scatter_nd": (relay.scatter_nd(V, c([[0, 0, 2]]), W, "add"), _added()),
    "segment_sum": (
        relay.segment_sum(V, c([0, 0, 1]), 3),
        np.stack([X[0] + X[1], X[2], 0 * X[0]]),
    ),
    "unravel_index": (
        relay.unravel_index(c([5, 11, 0]), (3, 4)),
        np.array(np.unravel_index([5, 11, 0], (3, 4))),
    ),
    "adv_index": (relay.adv_index([V, c([[0], [2]]), c([1, 3, 0])]), X[[[0], [2]], [1, 3, 0]]),
    "invert_permutation": (relay.invert_permutation(c([2, 0, 1])), [1, 2, 0]),
    "sequence_mask": (relay.sequence_mask(V, c([1, 3, 2, 3]), -5.0, 0), _masked()),
    "reverse_sequence": (relay.reverse_sequence(V, c([2, 1, 3])), _reversed()),
    "sliding_window": (
        relay.sliding_window(V, 0, (2, 2), (1, 2)),
        np.lib.stride_tricks.sliding_window_view(X, (2, 2))[:, ::2],
    ),
    "strided_set": (relay.strided_set(V, c(np.full((2, 2), -1), "float32"), (0, 1), (3, 3), (2, 1)), _set()),
    "strided_set by 1": (
        relay.strided_set(V, c(np.ones((1, 2)), "float32"), c([1]), c([2, 2])),
        _set_by_one(),
    ),
    "reverse_reshape": (relay.reverse_reshape(relay.expand_dims(V, 0), (-1, 0)), X),
    "reverse_reshape of two": (relay.reverse_reshape(relay.expand_dims(V, 0), (0, -3)), X.reshape(1, 12)),
    "sparse_to_dense": (
        relay.sparse_to_dense(c([[0, 1], [1, 2]]), (2, 3), c([3, 4], "float32"), 1.0),
        [[1, 3, 1], [1, 1, 4]],
    ),
    "matrix_set_diag": (relay.matrix_set_diag(V, c([[1, 2, 3], [4, 5, 6]], "float32"), (0, 1)), _diagonals()),
    "triu": (relay.trilu(V, 1), np.triu(X, 1)),
    "tril": (relay.trilu(V, c(-1), upper=False), np.tril(X, -1)),
    "sort": (relay.sort(W, 0, is_ascend=False), -np.sort(-U, 0)),
    "argsort": (relay.argsort(W), np.argsort(U, -1, kind="stable")),
    "topk_values": (relay.topk(W, 2, ret_type="values"), -np.sort(-U, -1)[:, :2]),
    "topk_indices": (relay.topk(W, 2, ret_type="indices"), np.argsort(-U, -1, kind="stable")[:, :2]),
    "searchsorted": (
        relay.searchsorted(c([1, 3, 4], "float32"), W, right=True),
        np.searchsorted([1, 3, 4], U, side="right"),
    ),
    "einsum": (relay.einsum([V, W], "ij,kj->ki"), (X @ U.T).T),
    "einsum_dots": (relay.einsum([V, W], "...i,...i"), (X * U).sum(-1)),
    "fixed_point_multiply": (relay.fixed_point_multiply(c([100, -7]), 1 << 30, 1), [100, -7]),
    "fixed_point_multiply_per_axis": (
        relay.fixed_point_multiply_per_axis(
            c([[100, 8]]), c([1 << 30, 1 << 30]), c([1, 0]), c([0, 1]), True, True, [1]
        ),
        [[100, 2]],
    ),
}


@pytest.mark.slow
def test_values(run_graph: Any) -> None:
    got = run_graph(relay.Tuple([e for e, _ in CASES.values()]), x=X, u=U)
    for (name, (_, want)), y in zip(CASES.items(), got, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-5, err_msg=name)


def test_several_results(run_graph: Any) -> None:
    values, places = run_graph(relay.topk(W, 3, axis=0, is_ascend=True), u=U)
    np.testing.assert_allclose(values, np.sort(U, 0))
    np.testing.assert_array_equal(places, np.argsort(U, 0, kind="stable"))

    grid = run_graph(relay.meshgrid([c([1, 2, 3]), c([4, 5])], "xy"))
    for got, want in zip(grid, np.meshgrid([1, 2, 3], [4, 5]), strict=True):
        np.testing.assert_array_equal(got, want)

    data = np.array([3, 1, 3, 2, 1, 3], "int32")
    elements, first, inverse, number, counts = run_graph(
        relay.unique(var("d", 6, dtype="int32"), True, True), d=data
    )
    want = np.unique(data, return_index=True, return_inverse=True, return_counts=True)
    assert number[0] == 3
    for got, right in zip((elements[:3], first[:3], inverse, counts[:3]), want, strict=True):
        np.testing.assert_array_equal(got, right)


def test_symbolic_and_unknown_sizes() -> None:
    n = te.size_var("n")
    assert shape_of(relay.argwhere(var("x", n, 3, 4))) == (relay.Any(), 3)
    assert shape_of(relay.einsum([var("x", n, 3), var("y", 3, relay.Any())], "ij,jk->ik")) == (n, relay.Any())
    assert shape_of(relay.topk(var("x", n, relay.Any()), 5, ret_type="values")) == (n, 5)
    assert shape_of(relay.adv_index([var("x", 9, n), var("i", relay.Any(), dtype="int32")])) == (
        relay.Any(),
        n,
    )
    assert str(shape_of(relay.sliding_window(var("x", n, 8), 0, (3, 3), (1, 1)))[0]) == "n - 2"
    assert shape_of(relay.reverse_reshape(var("x", n, 2, 3), (-1, 0)))[1] == 3


REFUSALS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda x: relay.scatter_elements(x, var("i", 1, 4, dtype="int32"), var("u", 2, 4)),
        "updates: is Tensor[(2, 4), float32] and must be Tensor[(1, 4), float32]: as indices",
    ),
    (lambda x: relay.scatter_elements(x, var("i", 1, 4), x), "indices: must hold integers"),
    (
        lambda x: relay.scatter_elements(x, var("i", 3, 4, dtype="int32"), x, reduction="xor"),
        "reduction: is 'xor'",
    ),
    (
        lambda x: relay.scatter_nd(x, var("i", 3, 5, dtype="int32"), x),
        "indices: has 3 coordinates and data is",
    ),
    (
        lambda x: relay.sequence_mask(x, var("l", 5, dtype="int32")),
        "valid_length: has 5 elements and the batch",
    ),
    (lambda x: relay.sliding_window(x, 0, (4, 1), (1, 1)), "a window of 4 does not fit into 3"),
    (
        lambda x: relay.topk(x, 5).tuple_value,
        "k: is 5 and dimension 1 of Tensor[(3, 4), float32] has 4 elements",
    ),
    (lambda x: relay.sort(x, 2), "axis: is 2"),
    (lambda x: relay.einsum([x, x], "ij,jk->ik"), "equation: 'ij,jk->ik': `j` is 4 and 3"),
    (lambda x: relay.einsum([x], "ijk->i"), "equation: 'ijk->i': `ijk` does not name the dimensions of"),
    (lambda x: relay.unique(x).tuple_value, "data: must have 1 dimensions"),
    (lambda x: relay.trilu(var("y", 3)), "data: must hold matrices and is Tensor[(3,), float32]"),
    (
        lambda x: relay.matrix_set_diag(x, var("d", 4, 3), (0, 1)),
        "diagonal: is Tensor[(4, 3), float32] and must be",
    ),
]


@pytest.mark.parametrize(("build", "reason"), REFUSALS)
def test_refusals(build: Any, reason: str) -> None:
    with pytest.raises(relay.RelayTypeError) as caught:
        run_infer_type(build(var("x", 3, 4)))
    assert reason in str(caught.value)


def test_slices_named_by_the_longest_list(run_graph):
    x = np.arange(120, dtype="float32").reshape(2, 3, 4, 5)
    v = relay.var("x", shape=x.shape)
    made = relay.strided_slice(v, begin=[0, 1], end=[1, 3, 3], strides=[1, 1, 2, -1])
    np.testing.assert_array_equal(run_graph(made, x=x), x[0:1, 1:3, :3:2, ::-1])
    made = relay.strided_slice(v, begin=[1], end=[1, 2], slice_mode="size")
    np.testing.assert_array_equal(run_graph(made, x=x), x[1:2, :2])


@pytest.mark.parametrize("rows", [3, relay.Any()])
def test_the_largest_id_says_the_number_of_segments(rows: Any) -> None:
    x, ids = relay.var("x", shape=(rows, 4)), relay.var("ids", shape=(rows,), dtype="int64")
    call = relay.create_executor("vm", target="llvm").evaluate(
        relay.Function([x, ids], relay.segment_sum(x, ids))
    )
    np.testing.assert_allclose(call(X, np.array([2, 0, 2])).numpy(), np.stack([X[1], 0 * X[0], X[0] + X[2]]))
    with pytest.raises(tvm.TVMError, match=r"num_segments: must be given to a call"):
        run_infer_type(relay.Call(relay.op.get("segment_sum"), [x, ids]))
