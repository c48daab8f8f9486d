"""Neural-network operators: convolution, dense, activations, normalisation, pooling, padding."""

# ruff: noqa: F403
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..expr import Call, Constant, Expr, TupleWrapper, const, type_so_far
from ..ty import TensorType, TupleType, Type
from . import dyn, layouts, nn_attention, nn_conv, nn_more, nn_pool
from .computes import topi
from .nn_attention import *
from .nn_conv import *
from .nn_more import *
from .nn_pool import *
from .registry import OpPattern, RelayOp, dtype, flag, integer, ints, number, refuse, register, text
from .shapes import add, axis_of, differ, need_dtype, need_rank, product, unify
from .spatial import conv_rel, four, pair, pool_rel

__all__ = [
    "avg_pool2d",
    "batch_flatten",
    "batch_matmul",
    "batch_norm",
    "bias_add",
    "conv2d",
    "dense",
    "dropout",
    "dropout_raw",
    "fast_softmax",
    "global_avg_pool2d",
    "global_max_pool2d",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "matmul",
    "max_pool2d",
    "pad",
    "prelu",
    "relu",
    "softmax",
]
__all__ += nn_attention.__all__
__all__ += nn_conv.__all__
__all__ += nn_pool.__all__
__all__ += nn_more.__all__


# ---------------------------------------------------------------------------- convolution
def _conv2d_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    made = topi.nn.conv2d(
        ins[0], ins[1], attrs.strides, attrs.padding, attrs.dilation,
        attrs.data_layout, attrs.kernel_layout, out.dtype, attrs.groups,
    )  # fmt: skip
    if attrs.out_layout and attrs.out_layout != attrs.data_layout:
        made = topi.layout_transform(made, attrs.data_layout, attrs.out_layout)
    return [made]


_conv2d = register(
    "nn.conv2d",
    inputs=("data", "weight"),
    attrs={
        "strides": ints((1, 1)),
        "padding": ints((0, 0, 0, 0)),
        "dilation": ints((1, 1)),
        "groups": integer(1),
        "channels": integer(None),
        "kernel_size": ints(None),
        "data_layout": text("NCHW"),
        "kernel_layout": text("OIHW"),
        "out_layout": text(""),
        "out_dtype": dtype(None),
    },
    rel=conv_rel,
    compute=_conv2d_compute,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
)


def conv2d(
    data: Any,
    weight: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: Any = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: Any = "",
) -> Call:
    """A two-dimensional convolution."""
    return _conv2d(
        data,
        weight,
        strides=pair(strides),
        padding=four(padding),
        dilation=pair(dilation),
        groups=groups,
        channels=channels,
        kernel_size=None if kernel_size is None else pair(kernel_size),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_layout=out_layout,
        out_dtype=out_dtype,
    )


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


_dense = register(
    "nn.dense",
    inputs=("data", "weight"),
    attrs={"units": integer(None), "out_dtype": dtype(None)},
    rel=_dense_rel,
    compute=lambda attrs, ins, out: [topi.nn.dense(ins[0], ins[1], None, out.dtype)],
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
)


def dense(data: Any, weight: Any, units: Any = None, out_dtype: Any = "") -> Call:
    """`data @ weight.T`: each row of the weight makes one output."""
    return _dense(data, weight, units=units, out_dtype=out_dtype)


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
_matmul = register(
    "nn.matmul",
    inputs=("tensor_a", "tensor_b"),
    attrs={"units": integer(None), **_PRODUCT},
    rel=_matmul_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.matmul(ins[0], ins[1], None, out.dtype, attrs.transpose_a, attrs.transpose_b)
    ],
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
)


def matmul(
    tensor_a: Any,
    tensor_b: Any,
    units: Any = None,
    out_dtype: Any = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Call:
    """The product of two matrices."""
    return _matmul(
        tensor_a, tensor_b, units=units, out_dtype=out_dtype, transpose_a=transpose_a, transpose_b=transpose_b
    )


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


_batch_matmul = register(
    "nn.batch_matmul",
    inputs=("tensor_a", "tensor_b"),
    attrs={**_PRODUCT, "transpose_b": flag(True)},
    rel=_batch_matmul_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.batch_matmul(ins[0], ins[1], None, out.dtype, attrs.transpose_a, attrs.transpose_b)
    ],
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
)


def batch_matmul(
    tensor_a: Any, tensor_b: Any, out_dtype: Any = "", transpose_a: bool = False, transpose_b: bool = True
) -> Call:
    """The products of pairs of matrices; the second is transposed unless told otherwise."""
    return _batch_matmul(
        tensor_a, tensor_b, out_dtype=out_dtype, transpose_a=transpose_a, transpose_b=transpose_b
    )


def _bias_rel(types: list[Any], attrs: Any) -> Type:
    data, bias = types
    need_rank(bias, 1, "bias")
    need_dtype(bias, data.dtype, "bias")
    at = axis_of(attrs.axis, len(data.shape))
    if differ(data.shape[at], bias.shape[0]):
        raise refuse(f"has {bias.shape[0]} elements and dimension {at} of data {data.shape[at]}", "bias")
    return data  # type: ignore[no-any-return]


_bias_add = register(
    "nn.bias_add",
    inputs=("data", "bias"),
    attrs={"axis": integer(1)},
    rel=_bias_rel,
    compute=lambda attrs, ins, out: [topi.nn.bias_add(ins[0], ins[1], attrs.axis)],
    pattern=OpPattern.BROADCAST,
)


def bias_add(data: Any, bias: Any, axis: int = 1) -> Call:
    """A vector added along one axis."""
    return _bias_add(data, bias, axis=axis)


# ---------------------------------------------------------------------------- activations
def _same(types: list[Any], attrs: Any) -> Type:
    return types[0]  # type: ignore[no-any-return]


_relu = register(
    "nn.relu",
    inputs=("data",),
    rel=_same,
    compute=lambda attrs, ins, out: [topi.nn.relu(ins[0])],
    pattern=OpPattern.ELEMWISE,
)


def relu(data: Any) -> Call:
    """max(x, 0)."""
    return _relu(data)


_leaky_relu = register(
    "nn.leaky_relu",
    inputs=("data",),
    attrs={"alpha": number(0.25)},
    rel=_same,
    compute=lambda attrs, ins, out: [topi.nn.leaky_relu(ins[0], attrs.alpha)],
    pattern=OpPattern.ELEMWISE,
)


def leaky_relu(data: Any, alpha: float = 0.01) -> Call:
    """x where it is positive, else alpha·x."""
    return _leaky_relu(data, alpha=alpha)


def _prelu_rel(types: list[Any], attrs: Any) -> Type:
    data, alpha = types
    need_rank(alpha, 1, "alpha")
    at = axis_of(attrs.axis, len(data.shape))
    if differ(data.shape[at], alpha.shape[0]):
        raise refuse(f"has {alpha.shape[0]} elements and dimension {at} of data {data.shape[at]}", "alpha")
    return data  # type: ignore[no-any-return]


_prelu = register(
    "nn.prelu",
    inputs=("data", "alpha"),
    attrs={"axis": integer(1)},
    rel=_prelu_rel,
    compute=lambda attrs, ins, out: [topi.nn.prelu(ins[0], ins[1], attrs.axis)],
    pattern=OpPattern.BROADCAST,
)


def prelu(data: Any, alpha: Any, axis: int = 1) -> Call:
    """x where it is positive, else alpha·x, with an alpha for each channel."""
    return _prelu(data, alpha, axis=axis)


def _axis_rel(types: list[Any], attrs: Any) -> Type:
    axis_of(attrs.axis, len(types[0].shape))
    return types[0]  # type: ignore[no-any-return]


def _softmax_like(name: str, work: Callable[..., Any]) -> RelayOp:
    return register(
        f"nn.{name}",
        inputs=("data",),
        attrs={"axis": integer(-1)},
        rel=_axis_rel,
        compute=lambda attrs, ins, out: [work(ins[0], attrs.axis)],
        pattern=OpPattern.OPAQUE,
    )


_softmax = _softmax_like("softmax", topi.nn.softmax)
_log_softmax = _softmax_like("log_softmax", topi.nn.log_softmax)
_fast_softmax = _softmax_like("fast_softmax", topi.nn.fast_softmax)


def softmax(data: Any, axis: int = -1) -> Call:
    """exp(x) / sum(exp(x)) along an axis."""
    return _softmax(data, axis=axis)


def log_softmax(data: Any, axis: int = -1) -> Call:
    """The logarithm of softmax."""
    return _log_softmax(data, axis=axis)


def fast_softmax(data: Any, axis: int = -1) -> Call:
    """softmax with a quicker and less exact exp."""
    return _fast_softmax(data, axis=axis)


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


_batch_norm = register(
    "nn.batch_norm",
    inputs=("data", "gamma", "beta", "moving_mean", "moving_var"),
    attrs={"axis": integer(1), "epsilon": number(1e-5), "center": flag(True), "scale": flag(True)},
    rel=_batch_norm_rel,
    compute=lambda attrs, ins, out: topi.nn.batch_norm(
        ins[0], ins[1], ins[2], ins[3], ins[4], attrs.axis, attrs.epsilon, attrs.center, attrs.scale, False
    ),
    pattern=OpPattern.OPAQUE,
)


def batch_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    moving_mean: Any,
    moving_var: Any,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> TupleWrapper:
    """Each channel normalised by its moving mean and variance: (output, mean, variance)."""
    made = _batch_norm(
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        axis=axis,
        epsilon=epsilon,
        center=center,
        scale=scale,
    )
    return TupleWrapper(made, 3)


def _layer_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, gamma, beta = types
    _along(data, axis_of(attrs.axis, len(data.shape)), (gamma, beta), ("gamma", "beta"))
    return data  # type: ignore[no-any-return]


_layer_norm = register(
    "nn.layer_norm",
    inputs=("data", "gamma", "beta"),
    attrs={"axis": integer(-1), "epsilon": number(1e-5), "center": flag(True), "scale": flag(True)},
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
    data: Any,
    gamma: Any,
    beta: Any,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Each row normalised by its own mean and variance."""
    return _layer_norm(data, gamma, beta, axis=axis, epsilon=epsilon, center=center, scale=scale)


_dropout = register(
    "nn.dropout",
    inputs=("data",),
    attrs={"rate": number(0.5)},
    rel=lambda types, attrs: TupleType((types[0], types[0])),
    compute=lambda attrs, ins, out: [topi.identity(ins[0]), topi.full_like(ins[0], 1)],
    pattern=OpPattern.OPAQUE,
)


def dropout(data: Any, rate: float = 0.5) -> Expr:
    """Nothing at inference: the data as it is."""
    return TupleWrapper(dropout_raw(data, rate), 2)[0]


def dropout_raw(data: Any, rate: float = 0.5) -> Call:
    """`dropout` with both its results: the data, and the mask."""
    return _dropout(data, rate=rate)


# ---------------------------------------------------------------------------- pooling
_POOL = {
    "pool_size": ints(),
    "strides": ints((1, 1)),
    "dilation": ints((1, 1)),
    "padding": ints((0, 0, 0, 0)),
    "layout": text("NCHW"),
    "out_layout": text(""),
    "ceil_mode": flag(False),
}


def _pool(name: str, kind: str, more: dict[str, Any]) -> RelayOp:
    return register(
        name,
        inputs=("data",),
        attrs={**_POOL, **more},
        rel=pool_rel,
        compute=lambda attrs, ins, out: [
            topi.nn.pool2d(
                ins[0],
                attrs.pool_size,
                attrs.strides,
                attrs.dilation,
                attrs.padding,
                kind,
                attrs.ceil_mode,
                attrs.layout,
                attrs.get("count_include_pad", True),
            )
        ],
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    )


_max_pool2d = _pool("nn.max_pool2d", "max", {})
_avg_pool2d = _pool("nn.avg_pool2d", "avg", {"count_include_pad": flag(False)})


def max_pool2d(
    data: Any,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    dilation: Any = (1, 1),
    padding: Any = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Call:
    """The greatest element of each window."""
    return _max_pool2d(
        data,
        pool_size=pair(pool_size),
        strides=pair(strides),
        dilation=pair(dilation),
        padding=four(padding),
        layout=layout,
        out_layout=out_layout,
        ceil_mode=ceil_mode,
    )


def avg_pool2d(
    data: Any,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    dilation: Any = (1, 1),
    padding: Any = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    """The average of each window."""
    return _avg_pool2d(
        data,
        pool_size=pair(pool_size),
        strides=pair(strides),
        dilation=pair(dilation),
        padding=four(padding),
        layout=layout,
        out_layout=out_layout,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )


def _global_rel(types: list[Any], attrs: Any) -> Type:
    named = layouts.sizes(attrs.layout, types[0].shape)
    named.update(dict.fromkeys([v for v in named if v not in "NC"], 1))
    return TensorType(layouts.shape_in(attrs.layout, named), types[0].dtype)


def _global(name: str, kind: str) -> RelayOp:
    return register(
        name,
        inputs=("data",),
        attrs={"layout": text("NCHW"), "out_layout": text("")},
        rel=_global_rel,
        compute=lambda attrs, ins, out: [topi.nn.global_pool(ins[0], kind, attrs.layout)],
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    )


_global_max = _global("nn.global_max_pool2d", "max")
_global_avg = _global("nn.global_avg_pool2d", "avg")


def global_max_pool2d(data: Any, layout: str = "NCHW", out_layout: str = "") -> Call:
    """The greatest element of each channel."""
    return _global_max(data, layout=layout, out_layout=out_layout)


def global_avg_pool2d(data: Any, layout: str = "NCHW", out_layout: str = "") -> Call:
    """The average of each channel."""
    return _global_avg(data, layout=layout, out_layout=out_layout)


# ---------------------------------------------------------------------------- shape
def _flatten_rel(types: list[Any], attrs: Any) -> Type:
    shape = types[0].shape
    if not shape:
        raise refuse(f"must have a dimension and is {types[0]}", "data")
    return TensorType((shape[0], product(shape[1:])), types[0].dtype)


_batch_flatten = register(
    "nn.batch_flatten",
    inputs=("data",),
    rel=_flatten_rel,
    compute=lambda attrs, ins, out: [topi.nn.flatten(ins[0])],
    pattern=OpPattern.INJECTIVE,
)


def batch_flatten(data: Any) -> Call:
    """All dimensions after the first as one."""
    return _batch_flatten(data)


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


_pad = register(
    "nn.pad",
    inputs=("data", "pad_value"),
    attrs={"pad_width": ints(), "pad_mode": text("constant")},
    rel=_pad_rel,
    compute=_pad_compute,
    pattern=OpPattern.INJECTIVE,
)


def pad(data: Any, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant") -> Call:
    """The tensor in a frame: of a value, of its edge, or of its mirror image (reflect)."""
    if dyn.is_computed(pad_width):
        return dyn.pad(data, pad_width, pad_value, pad_mode)
    if isinstance(pad_width, Constant):
        pad_width = pad_width.numpy().tolist()
    width = tuple((w, w) if isinstance(w, int) else tuple(w) for w in pad_width)
    if pad_mode not in ("constant", "edge", "reflect"):
        raise ValueError(f"nn.pad: pad_mode is {pad_mode!r} and may be 'constant', 'edge' or 'reflect'")
    kind = type_so_far(data) if isinstance(data, Expr) else None
    beside = str(kind.dtype) if isinstance(kind, TensorType) else None
    value = pad_value if isinstance(pad_value, Expr) else const(pad_value, beside or "float32")
    return _pad(data, value, pad_width=width, pad_mode=pad_mode)
