"""Operators with computed shape data: types, kernels of open sizes run at the shapes their functions say, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay, te
from tilewright.relay.op import dyn, get
from tilewright.relay.op.registry import list_names
from tilewright.relay.testing import run_infer_type
from tilewright.relay.ty import tensor_fields
from tilewright.runtime.shape_functions import SHAPE_FUNCTIONS

A = relay.Any()
X = np.arange(6, dtype="float32").reshape(2, 3)
IMAGE = np.arange(12, dtype="float32").reshape(1, 1, 3, 4)


def i64(*values: Any) -> Any:
    return np.array(values, "int64")


def scalar(value: Any, dtype: str = "int64") -> Any:
    return np.array(value, dtype)


# (the call over variables, their values, the shape that inference says, the values of the result)
CASES: dict[str, tuple[Callable[..., Any], list[Any], Any, Any]] = {
    "reshape": (relay.reshape, [X, i64(3, -1)], (A, A), X.reshape(3, 2)),
    "squeeze": (relay.squeeze, [X.reshape(2, 1, 3), i64(1)], (A, A), X),
    "expand_dims": (relay.expand_dims, [X, scalar(1)], (A, A, A), X.reshape(2, 1, 3)),
    "broadcast_to": (
        relay.broadcast_to,
        [X.reshape(2, 1, 3), i64(2, 2, 4, 3)],
        (A, 2, A, 3),
        np.broadcast_to(X.reshape(2, 1, 3), (2, 2, 4, 3)),
    ),
    "tile": (relay.tile, [X, i64(2, 1, 2)], (A, A, A), np.tile(X, (2, 1, 2))),
    "zeros": (lambda s: relay.zeros(s, "int32"), [i64(2, 3)], (A, A), np.zeros((2, 3), "int32")),
    "ones": (lambda s: relay.ones(s, "float32"), [i64(4)], (A,), np.ones(4, "float32")),
    "full": (
        lambda v, s: relay.full(v, s),
        [scalar(2.5, "float32"), i64(2, 2)],
        (A, A),
        np.full((2, 2), 2.5),
    ),
    "arange": (
        lambda a, b, c: relay.arange(a, b, c, "int64"),
        [scalar(2), scalar(11), scalar(3)],
        (A,),
        np.arange(2, 11, 3),
    ),
    "one_hot": (
        lambda i, on, off, depth: relay.one_hot(i, on, off, depth, -1, "float32"),
        [np.array([0, 2], "int32"), scalar(1, "float32"), scalar(0, "float32"), scalar(3)],
        (2, A),
        np.eye(3)[[0, 2]],
    ),
    "topk": (
        lambda x, k: relay.topk(x, k, ret_type="values"),
        [X, scalar(2)],
        (2, A),
        X[:, :0:-1],
    ),
    "topk_both": (
        lambda x, k: relay.topk(x, k, axis=0, dtype="int64"),
        [X, scalar(1)],
        None,
        [X[1:], np.ones((1, 3), "int64")],
    ),
    "strided_slice": (
        relay.strided_slice,
        [X, i64(0, -1), i64(2, -4), i64(1, -2)],
        (A, A),
        X[:, ::-2],
    ),
    "strided_slice_size": (
        lambda x, b, e: relay.strided_slice(x, b, e, slice_mode="size"),
        [X, i64(0, 1), i64(1, -1)],
        (A, A),
        X[:1, 1:],
    ),
    "sparse_to_dense": (
        lambda i, s, v: relay.sparse_to_dense(i, s, v, 7.0),
        [np.array([[0, 1], [1, 0]]), i64(2, 2), np.array([1, 2], "float32")],
        (A, A),
        [[7, 1], [2, 7]],
    ),
    "pad": (
        lambda x, w: relay.nn.pad(x, w, 9.0),
        [X, np.array([[1, 0], [0, 2]])],
        (A, A),
        np.pad(X, ((1, 0), (0, 2)), constant_values=9),
    ),
    "pad_edge": (
        lambda x, w: relay.nn.pad(x, w, pad_mode="edge"),
        [X, np.array([[1, 0], [0, 2]])],
        (A, A),
        np.pad(X, ((1, 0), (0, 2)), "edge"),
    ),
    "pad_reflect": (
        lambda x, w: relay.nn.pad(x, w, pad_mode="reflect"),
        [X, np.array([[1, 0], [2, 2]])],
        (A, A),
        np.pad(X, ((1, 0), (2, 2)), "reflect"),
    ),
    "upsampling": (
        relay.nn.upsampling,
        [IMAGE, scalar(2, "float32"), scalar(3, "float32")],
        (1, 1, A, A),
        IMAGE.repeat(2, 2).repeat(3, 3),
    ),
    "upsampling3d": (
        relay.nn.upsampling3d,
        [IMAGE[None], scalar(2, "float32"), scalar(2, "float32"), scalar(1, "float32")],
        (1, 1, A, A, A),
        IMAGE[None].repeat(2, 2).repeat(2, 3),
    ),
    "resize2d": (
        lambda x, s: relay.image.resize2d(
            x, s, method="nearest_neighbor", coordinate_transformation_mode="asymmetric"
        ),
        [IMAGE, i64(6, 8)],
        (1, 1, A, A),
        IMAGE.repeat(2, 2).repeat(2, 3),
    ),
    "argwhere": (relay.argwhere, [X > 3], (A, 2), np.argwhere(X > 3)),
}


def call_of(name: str) -> Any:
    build, arrays, _, _ = CASES[name]
    made = build(*(relay.var(f"v{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)))
    return run_infer_type(made.tuple_value if isinstance(made, relay.TupleWrapper) else made)


def opened(kind: Any) -> Any:
    """A type with a variable for each size that is open, as an executor compiles it."""
    fields = [relay.TensorType(dyn.room(t), t.dtype) for t in tensor_fields(kind)]
    return fields[0] if len(fields) == 1 else relay.TupleType(tuple(fields))


@pytest.mark.parametrize("name", list(CASES))
def test_type_and_value(name: str) -> None:
    _, arrays, shape, want = CASES[name]
    call = call_of(name)
    if shape is not None:
        assert call.checked_type.shape == shape
    places, values = [], []
    given = iter(arrays)
    for i, arg in enumerate(call.args):
        values.append(arg.numpy() if isinstance(arg, relay.Constant) else next(given))
        places.append(te.placeholder(values[-1].shape, name=f"p{i}", dtype=str(values[-1].dtype)))
    results = call.op.compute(call.attrs, places, opened(call.checked_type))
    built = tilewright.build(te.create_prim_func([*places, *results]), target="llvm")
    shapes = get(call.op.name).get_attr("FShapeFunc")(call.attrs, values)
    outs = [tilewright.nd.empty(s, str(t.dtype)) for s, t in zip(shapes, results, strict=True)]
    built(*(tilewright.nd.array(v) for v in values), *outs)
    for out, right in zip(outs, want if isinstance(want, list) and len(outs) > 1 else [want], strict=True):
        np.testing.assert_allclose(out.numpy(), right)
        assert out.shape == np.shape(right)


def test_every_operator_of_open_shape_says_its_shape() -> None:
    assert {n for n in list_names() if n.startswith("dyn.")} <= set(SHAPE_FUNCTIONS)
    assert {call_of(n).op.name for n in CASES} == set(SHAPE_FUNCTIONS)


def test_constants_stay_static() -> None:
    x = relay.var("x", shape=(2, 3))
    assert relay.reshape(x, relay.const([3, 2])).op.name == "reshape"
    assert (
        relay.image.resize2d(relay.var("i", shape=(1, 1, 3, 4)), relay.const([6, 8])).op.name
        == "image.resize2d"
    )
    assert (
        relay.nn.upsampling(relay.var("i", shape=(1, 1, 3, 4)), relay.const(2.0)).op.name == "nn.upsampling"
    )
    assert relay.topk(x, relay.const(2)).tuple_value.op.name == "topk"


REFUSALS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda x: relay.reshape(x, relay.var("s", shape=(A,), dtype="int64")),
        "newshape: is Tensor[(?,), int64]: the number of dimensions of the result must be known",
    ),
    (
        lambda x: relay.reshape(x, relay.var("s", shape=(2,), dtype="float32")),
        "newshape: must hold integers and is Tensor[(2,), float32]",
    ),
    (
        lambda x: relay.broadcast_to(x, relay.var("s", shape=(1,), dtype="int64")),
        "shape: is Tensor[(1,), int64] and data has 2 dimensions",
    ),
    (
        lambda x: relay.nn.pad(x, relay.var("s", shape=(3, 2), dtype="int64")),
        "pad_width: must be (2, 2) for Tensor[(2, 3), float32] and is Tensor[(3, 2), int64]",
    ),
    (
        lambda x: relay.topk(x, relay.var("k", shape=(2,), dtype="int64")).tuple_value,
        "k: must be one number and is Tensor[(2,), int64]",
    ),
]


@pytest.mark.parametrize(("build", "reason"), REFUSALS)
def test_refusals(build: Any, reason: str) -> None:
    with pytest.raises(relay.RelayTypeError) as caught:
        run_infer_type(build(relay.var("x", shape=(2, 3))))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("dyn.reshape", [X, i64(4, 2)], "newshape: (2, 3) has 6 elements and (4, 2) has 8"),
        ("dyn.squeeze", [X, i64(0)], "axis: dimension 0 of (2, 3) is not 1"),
        ("dyn.broadcast_to", [X, i64(4, 3)], "shape: (2, 3) does not broadcast to (4, 3)"),
        ("dyn.zeros", [i64(-1)], "shape: (-1,) has a size below 0"),
        ("dyn.arange", [scalar(0), scalar(1), scalar(0)], "step: is 0"),
        ("dyn.topk", [X, scalar(4)], "k: is 4 and dimension 1 has 3 elements"),
    ],
)
def test_shapes_that_cannot_be(name: str, values: Any, reason: str) -> None:
    op = get(name)
    with pytest.raises(relay.RelayTypeError) as caught:
        op.get_attr("FShapeFunc")(op.check_attrs({}), values)
    assert reason in str(caught.value)
