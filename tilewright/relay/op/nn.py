"""Neural-network operators: convolution, dense, activations, normalisation, pooling, padding."""

# ruff: noqa: F403
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..expr import Call, Expr, TupleWrapper, const, type_so_far
from ..ty import TensorType, TupleType, Type
from . import dyn, nn_attention, nn_conv, nn_more, nn_pool
from .computes import topi
from .nn_attention import *
from .nn_conv import *
from .nn_more import *
from .nn_pool import *
from .registry import (
    Constructor,
    Dtype,
    Ints,
    OpPattern,
    Tensor,
    dtype,
    flag,
    given,
    number,
    operator,
    refuse,
)
from .shapes import add, axis_of, differ, need_dtype, need_rank, product, unify

__all__ = [
    "batch_flatten",
    "batch_matmul",
    "batch_norm",
    "bias_add",
    "dense",
    "dropout",
    "dropout_raw",
    "fast_softmax",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "matmul",
    "pad",
    "prelu",
    "relu",
    "softmax",
]
__all__ += nn_attention.__all__
__all__ += nn_conv.__all__
__all__ += nn_pool.__all__
__all__ += nn_more.__all__


# ---------------------------------------------------------------------------- products
def _dense_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types
    need_rank(weight, 2, "weight")
    if not data.shape:
        raise refuse(f"must have a dimension and is {data}", "data")
    if differ(data.shape[-1], weight.shape[1]):
        raise refuse(f"has {weight.shape[1]} columns and data {data.shape[-1]}", "weight")
    if attrs.units is not None and differ(attrs.units, weight.shape[0]):
        raise refuse(f"is {attrs.units} and weight has {weight.shape[0]} rows", "units")
    return TensorType((*data.shape[:-1], weight.shape[0]), attrs.out_dtype or data.dtype)


@operator(
    "nn.dense",
    rel=_dense_rel,
    compute=lambda attrs, ins, out: [topi.nn.dense(ins[0], ins[1], None, out.dtype)],
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
)
def dense(data: Tensor, weight: Tensor, units: int | None = None, out_dtype: Dtype = "") -> Call:
    """`data @ weight.T`: each row of the weight makes one output."""


def _matmul_rel(types: list[Any], attrs: Any) -> Type:
    a, b = types
    need_rank(a, 2, "tensor_a")
    need_rank(b, 2, "tensor_b")
    rows, inner = a.shape[::-1] if attrs.transpose_a else a.shape
    other, columns = b.shape[::-1] if attrs.transpose_b else b.shape
    if differ(inner, other):
        raise refuse(f"is {b} and tensor_a is {a}: {inner} against {other}", "tensor_b")
    return TensorType((rows, columns), attrs.out_dtype or a.dtype)


_PRODUCT = {"out_dtype": dtype(None), "transpose_a": flag(False), "transpose_b": flag(False)}


@operator(
    "nn.matmul",
    rel=_matmul_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.matmul(ins[0], ins[1], None, out.dtype, attrs.transpose_a, attrs.transpose_b)
    ],
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
)
def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    units: int | None = None,
    out_dtype: Dtype = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Call:
    """The product of two matrices."""


def _batch_matmul_rel(types: list[Any], attrs: Any) -> Type:
    a, b = types
    need_rank(a, 3, "tensor_a")
    need_rank(b, 3, "tensor_b")
    rows, inner = a.shape[:0:-1] if attrs.transpose_a else a.shape[1:]
    other, columns = b.shape[:0:-1] if attrs.transpose_b else b.shape[1:]
    if differ(inner, other):
        raise refuse(f"is {b} and tensor_a is {a}: {inner} against {other}", "tensor_b")
    if 1 not in (a.shape[0], b.shape[0]) and differ(a.shape[0], b.shape[0]):
        raise refuse(f"is {b} and tensor_a is {a}: the batches differ", "tensor_b")
    batch = (
        b.shape[0] if a.shape[0] == 1 else a.shape[0] if b.shape[0] == 1 else unify(a.shape[0], b.shape[0])
    )
    return TensorType((batch, rows, columns), attrs.out_dtype or a.dtype)


@operator(
    "nn.batch_matmul",
    rel=_batch_matmul_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.batch_matmul(ins[0], ins[1], None, out.dtype, attrs.transpose_a, attrs.transpose_b)
    ],
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
)
def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    out_dtype: Dtype = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Call:
    """The products of pairs of matrices; the second is transposed unless told otherwise."""


def _bias_rel(types: list[Any], attrs: Any) -> Type:
    data, bias = types
    need_rank(bias, 1, "bias")
    need_dtype(bias, data.dtype, "bias")
    at = axis_of(attrs.axis, len(data.shape))
    if differ(data.shape[at], bias.shape[0]):
        raise refuse(f"has {bias.shape[0]} elements and dimension {at} of data {data.shape[at]}", "bias")
    return data  # type: ignore[no-any-return]


@operator(
    "nn.bias_add",
    rel=_bias_rel,
    compute=lambda attrs, ins, out: [topi.nn.bias_add(ins[0], ins[1], attrs.axis)],
    pattern=OpPattern.BROADCAST,
)
def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Call:
    """A vector added along one axis."""


# ---------------------------------------------------------------------------- activations
def _same(types: list[Any], attrs: Any) -> Type:
    return types[0]  # type: ignore[no-any-return]


@operator(
    "nn.relu",
    rel=_same,
    compute=lambda attrs, ins, out: [topi.nn.relu(ins[0])],
    pattern=OpPattern.ELEMWISE,
)
def relu(data: Tensor) -> Call:
    """max(x, 0)."""


@operator(
    "nn.leaky_relu",
    attrs={"alpha": number(0.25)},
    rel=_same,
    compute=lambda attrs, ins, out: [topi.nn.leaky_relu(ins[0], attrs.alpha)],
    pattern=OpPattern.ELEMWISE,
)
def leaky_relu(data: Tensor, alpha: float = 0.01) -> Call:
    """x where it is positive, else alpha·x."""


def _prelu_rel(types: list[Any], attrs: Any) -> Type:
    data, alpha = types
    need_rank(alpha, 1, "alpha")
    at = axis_of(attrs.axis, len(data.shape))
    if differ(data.shape[at], alpha.shape[0]):
        raise refuse(f"has {alpha.shape[0]} elements and dimension {at} of data {data.shape[at]}", "alpha")
    return data  # type: ignore[no-any-return]


@operator(
    "nn.prelu",
    rel=_prelu_rel,
    compute=lambda attrs, ins, out: [topi.nn.prelu(ins[0], ins[1], attrs.axis)],
    pattern=OpPattern.BROADCAST,
)
def prelu(data: Tensor, alpha: Tensor, axis: int = 1) -> Call:
    """x where it is positive, else alpha·x, with an alpha for each channel."""


def _axis_rel(types: list[Any], attrs: Any) -> Type:
    axis_of(attrs.axis, len(types[0].shape))
    return types[0]  # type: ignore[no-any-return]


def _softmax_like(name: str) -> Callable[[Constructor], Constructor]:
    return operator(
        f"nn.{name}",
        rel=_axis_rel,
        compute=lambda attrs, ins, out: [getattr(topi.nn, name)(ins[0], attrs.axis)],
    )


@_softmax_like("softmax")
def softmax(data: Tensor, axis: int = -1) -> Call:
    """exp(x) / sum(exp(x)) along an axis."""


@_softmax_like("log_softmax")
def log_softmax(data: Tensor, axis: int = -1) -> Call:
    """The logarithm of softmax."""


@_softmax_like("fast_softmax")
def fast_softmax(data: Tensor, axis: int = -1) -> Call:
    """softmax with a quicker and less exact exp."""


# ---------------------------------------------------------------------------- normalisation
def _along(data: TensorType, at: int, kinds: Sequence[TensorType], names: Sequence[str]) -> None:
    for kind, name in zip(kinds, names, strict=True):
        need_rank(kind, 1, name)
        if differ(kind.shape[0], data.shape[at]):
            raise refuse(f"has {kind.shape[0]} elements and dimension {at} of data {data.shape[at]}", name)


def _batch_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, *others = types
    at = axis_of(attrs.axis, len(data.shape))
    _along(data, at, others, ("gamma", "beta", "moving_mean", "moving_var"))
    return TupleType((data, others[2], others[3]))


@operator(
    "nn.batch_norm",
    rel=_batch_norm_rel,
    compute=lambda attrs, ins, out: topi.nn.batch_norm(
        ins[0], ins[1], ins[2], ins[3], ins[4], attrs.axis, attrs.epsilon, attrs.center, attrs.scale, False
    ),
    pattern=OpPattern.OPAQUE,
    results=3,
)
def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> TupleWrapper:
    """Each channel normalised by its moving mean and variance: (output, mean, variance)."""


def _layer_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, gamma, beta = types
    _along(data, axis_of(attrs.axis, len(data.shape)), (gamma, beta), ("gamma", "beta"))
    return data  # type: ignore[no-any-return]


@operator(
    "nn.layer_norm",
    rel=_layer_norm_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.layer_norm(
            ins[0],
            ins[1] if attrs.scale else None,
            ins[2] if attrs.center else None,
            [axis_of(attrs.axis, ins[0].ndim)],
            attrs.epsilon,
        )
    ],
    pattern=OpPattern.OPAQUE,
)
def layer_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Each row normalised by its own mean and variance."""


def dropout(data: Any, rate: float = 0.5) -> Expr:
    """Nothing at inference: the data as it is."""
    return TupleWrapper(dropout_raw(data, rate), 2)[0]


@operator(
    "nn.dropout",
    rel=lambda types, attrs: TupleType((types[0], types[0])),
    compute=lambda attrs, ins, out: [topi.identity(ins[0]), topi.full_like(ins[0], 1)],
    pattern=OpPattern.OPAQUE,
)
def dropout_raw(data: Tensor, rate: float = 0.5) -> Call:
    """`dropout` with both its results: the data, and the mask."""


# ---------------------------------------------------------------------------- shape
def _flatten_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    if not shape:
        raise refuse(f"must have a dimension and is {types[0]}", "data")
    return TensorType((shape[0], product(shape[1:])), types[0].dtype)


@operator(
    "nn.batch_flatten",
    rel=_flatten_rel,
    compute=lambda attrs, ins, out: [topi.nn.flatten(ins[0])],
    pattern=OpPattern.INJECTIVE,
)
def batch_flatten(data: Tensor) -> Call:
    """All dimensions after the first as one."""


def _pad_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    if len(attrs.pad_width) != len(data.shape):
        raise refuse(f"has {len(attrs.pad_width)} entries and data is {data}", "pad_width")
    out = [add(d, add(before, after)) for d, (before, after) in zip(data.shape, attrs.pad_width, strict=True)]
    if any(isinstance(d, int) and d < 0 for d in out):
        raise refuse(f"{attrs.pad_width} takes more from {data} than it has", "pad_width")
    return TensorType(out, data.dtype)


def _pad_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    before, after = ([w[i] for w in attrs.pad_width] for i in (0, 1))
    if attrs.pad_mode == "constant":
        return [topi.nn.pad(ins[0], before, after, ins[1]())]
    if attrs.pad_mode == "reflect":
        return [topi.nn.mirror_pad(ins[0], before, after, "REFLECT")]
    last = [max(int(d) - 1, 0) for d in ins[0].shape]
    return [
        topi.utils.injective(
            "pad",
            list(out.shape),
            lambda *at: ins[0](*(topi.clip(i - b, 0, m) for i, b, m in zip(at, before, last, strict=True))),
        )
    ]


@operator(
    "nn.pad",
    rel=_pad_rel,
    compute=_pad_compute,
    pattern=OpPattern.INJECTIVE,
    dynamic=dyn.pad,
)
def pad(data: Tensor, pad_width: Ints, pad_value: Tensor = 0, pad_mode: str = "constant") -> Call:
    """The tensor in a frame: of a value, of its edge, or of its mirror image (reflect)."""
    if pad_mode not in ("constant", "edge", "reflect"):
        raise ValueError(f"nn.pad: pad_mode is {pad_mode!r} and may be 'constant', 'edge' or 'reflect'")
    if isinstance(pad_value, Expr):
        return given()
    kind = type_so_far(data) if isinstance(data, Expr) else None
    return given(pad_value=const(pad_value, str(kind.dtype) if isinstance(kind, TensorType) else "float32"))
