"""Strategies that programs extend for their targets, and functions of topi as computes and schedules of strategies.

    @relay.op.strategy.generic.conv2d_strategy.register("mychip")
    def conv2d_strategy_mychip(attrs, inputs, out_type, target):
        strategy = relay.op.OpStrategy()
        strategy.add_implementation(wrap_compute_conv2d(my_conv2d), wrap_topi_schedule(my_schedule), "conv2d.mychip")
        return strategy

Without such an extension an operator has the compute of its declaration and an automatic schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....target import GenericFunc, Target
from ..computes import te
from ..implementation import strategy_of

# The classic name of a strategy, without `_strategy`, and its operator.
_STRATEGIES: Final = {
    "adaptive_pool1d": "nn.adaptive_avg_pool1d",
    "argsort": "argsort",
    "argwhere": "argwhere",
    "batch_matmul": "nn.batch_matmul",
    "bitserial_conv2d": "nn.bitserial_conv2d",
    "bitserial_dense": "nn.bitserial_dense",
    "concatenate": "concatenate",
    "conv1d": "nn.conv1d",
    "conv1d_transpose": "nn.conv1d_transpose",
    "conv2d": "nn.conv2d",
    "conv2d_NCHWc": "nn.contrib_conv2d_NCHWc",
    "conv2d_backward_weight": "nn.conv2d_backward_weight",
    "conv2d_transpose": "nn.conv2d_transpose",
    "conv2d_winograd_without_weight_transform": "nn.contrib_conv2d_winograd_without_weight_transform",
    "conv3d": "nn.conv3d",
    "conv3d_transpose": "nn.conv3d_transpose",
    "correlation": "nn.correlation",
    "cumprod": "cumprod",
    "cumsum": "cumsum",
    "deformable_conv2d": "nn.deformable_conv2d",
    "dense": "nn.dense",
    "dense_pack": "nn.contrib_dense_pack",
    "depthwise_conv2d_NCHWc": "nn.contrib_depthwise_conv2d_NCHWc",
    "dilation2d": "image.dilation2d",
    "einsum": "einsum",
    "fast_softmax": "nn.fast_softmax",
    "get_valid_counts": "vision.get_valid_counts",
    "invert_permutation": "invert_permutation",
    "log_softmax": "nn.log_softmax",
    "matmul": "nn.matmul",
    "multibox_prior": "vision.multibox_prior",
    "multibox_transform_loc": "vision.multibox_transform_loc",
    "nms": "vision.non_max_suppression",
    "roi_align": "vision.roi_align",
    "scatter_elements": "scatter_elements",
    "scatter_nd": "scatter_nd",
    "searchsorted": "searchsorted",
    "softmax": "nn.softmax",
    "sort": "sort",
    "sparse_dense": "nn.sparse_dense",
    "topk": "topk",
    "unique": "unique",
}

__all__ = [
    "get_conv2d_in_channels",
    "get_conv2d_out_channels",
    "is_depthwise_conv2d",
    "naive_schedule",
    "wrap_compute_batch_matmul",
    "wrap_compute_conv1d",
    "wrap_compute_conv2d",
    "wrap_compute_conv2d_transpose",
    "wrap_compute_conv3d",
    "wrap_compute_dense",
    "wrap_compute_matmul",
    "wrap_compute_softmax",
    "wrap_topi_compute",
    "wrap_topi_schedule",
]

Compute = Callable[[Any, list[Any], Any], list[Any]]


def __getattr__(name: str) -> GenericFunc:
    found = _STRATEGIES.get(name.removesuffix("_strategy")) if name.endswith("_strategy") else None
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return strategy_of(found)
    except ValueError as error:  # an operator that is not there
        raise AttributeError(f"{name}: {error}") from None


# ---------------------------------------------------------------------------- schedules
def naive_schedule(attrs: Any, outs: list[Any], target: Target) -> Any:
    """The mark of an implementation for the automatic scheduler; called, plain loops."""
    return te.create_schedule(outs[-1].op)


naive_schedule.automatic = True  # type: ignore[attr-defined]


def wrap_topi_schedule(topi_schedule: Callable[[list[Any]], Any]) -> Callable[[Any, list[Any], Target], Any]:
    """A schedule of outputs as one of a strategy. topi's own schedules ask for the automatic scheduler."""

    def schedule(attrs: Any, outs: list[Any], target: Target) -> Any:
        with target:
            return topi_schedule(outs)

    ours = (getattr(topi_schedule, "__module__", "") or "").startswith(f"{__name__.partition('.')[0]}.topi")
    schedule.automatic = ours  # type: ignore[attr-defined]
    return schedule


# ---------------------------------------------------------------------------- computes
def wrap_topi_compute(topi_compute: Callable[..., Any]) -> Compute:
    """A function of tensors as a compute."""
    return lambda attrs, inputs, out_type: [topi_compute(*inputs)]


def wrap_compute_softmax(topi_compute: Callable[..., Any]) -> Compute:
    """A function (data, axis) as a compute."""
    return lambda attrs, inputs, out_type: [topi_compute(inputs[0], attrs.axis)]


def _out_dtype(attrs: Any, inputs: list[Any]) -> Any:
    return attrs.get("out_dtype") or inputs[0].dtype


def wrap_compute_conv2d(
    topi_compute: Callable[..., Any],
    *,
    need_data_layout: bool = False,
    need_kernel_layout: bool = False,
    need_out_layout: bool = False,
    has_groups: bool = False,
) -> Compute:
    """A function (data, kernel, strides, padding, dilation, …, out_dtype) as a compute."""

    def compute(attrs: Any, inputs: list[Any], out_type: Any) -> list[Any]:
        args = [*inputs[:2], attrs.strides, attrs.padding, attrs.dilation]
        args += [attrs.groups] if has_groups else []
        args += [attrs.data_layout] if need_data_layout else []
        args += [attrs.kernel_layout] if need_kernel_layout else []
        args += [attrs.out_layout] if need_out_layout else []
        return [topi_compute(*args, _out_dtype(attrs, inputs))]

    return compute


def wrap_compute_conv1d(topi_compute: Callable[..., Any]) -> Compute:
    """A function (data, kernel, strides, padding, dilation, out_dtype) as a compute, with numbers for one dimension."""

    def compute(attrs: Any, inputs: list[Any], out_type: Any) -> list[Any]:
        strides, dilation = attrs.strides[0], attrs.dilation[0]
        return [topi_compute(*inputs[:2], strides, attrs.padding, dilation, _out_dtype(attrs, inputs))]

    return compute


def wrap_compute_conv3d(topi_compute: Callable[..., Any], need_layout: bool = False) -> Compute:
    """A function (data, kernel, strides, padding, dilation, groups, out_dtype) as a compute."""

    def compute(attrs: Any, inputs: list[Any], out_type: Any) -> list[Any]:
        args = [*inputs[:2], attrs.strides, attrs.padding, attrs.dilation, attrs.groups]
        args += [attrs.data_layout] if need_layout else []
        return [topi_compute(*args, _out_dtype(attrs, inputs))]

    return compute


def wrap_compute_conv2d_transpose(topi_compute: Callable[..., Any], has_groups: bool = False) -> Compute:
    """A function (data, kernel, strides, padding, out_dtype, output_padding) as a compute."""

    def compute(attrs: Any, inputs: list[Any], out_type: Any) -> list[Any]:
        args = [*inputs[:2], attrs.strides, attrs.padding, _out_dtype(attrs, inputs), attrs.output_padding]
        return [topi_compute(*args, attrs.groups) if has_groups else topi_compute(*args)]

    return compute


def wrap_compute_dense(topi_compute: Callable[..., Any]) -> Compute:
    """A function (data, weight, bias, out_dtype) as a compute; there is no bias."""
    return lambda attrs, inputs, out_type: [topi_compute(*inputs[:2], None, _out_dtype(attrs, inputs))]


def wrap_compute_matmul(topi_compute: Callable[..., Any]) -> Compute:
    """A function (a, b, bias, out_dtype, transpose_a, transpose_b) as a compute; there is no bias."""

    def compute(attrs: Any, inputs: list[Any], out_type: Any) -> list[Any]:
        kind = _out_dtype(attrs, inputs)
        return [topi_compute(*inputs[:2], None, kind, attrs.transpose_a, attrs.transpose_b)]

    return compute


def wrap_compute_batch_matmul(topi_compute: Callable[..., Any], *, need_out_dtype: bool = False) -> Compute:
    """A function (a, b, shape of the result, out_dtype, transpose_a, transpose_b) as a compute."""

    def compute(attrs: Any, inputs: list[Any], out_type: Any) -> list[Any]:
        args = [*inputs[:2], out_type.shape]
        if need_out_dtype:
            args += [_out_dtype(attrs, inputs), attrs.transpose_a, attrs.transpose_b]
        return [topi_compute(*args)]

    return compute


# ---------------------------------------------------------------------------- questions about convolutions
def _channels(shape: Any, layout: str, letter: str) -> int:
    from .. import layouts

    return int(layouts.sizes(layout, [int(d) for d in shape])[letter])


def get_conv2d_in_channels(data_shape: Any, data_layout: str) -> int:
    """The input channels of a convolution."""
    return _channels(data_shape, data_layout, "C")


def get_conv2d_out_channels(kernel_shape: Any, kernel_layout: str) -> int:
    """The output channels of a convolution."""
    return _channels(kernel_shape, kernel_layout, "O")


def is_depthwise_conv2d(
    data_shape: Any, data_layout: str, kernel_shape: Any, kernel_layout: str, groups: int
) -> bool:
    """Whether each channel is convolved with a kernel of its own."""
    inputs = get_conv2d_in_channels(data_shape, data_layout)
    return inputs == get_conv2d_out_channels(kernel_shape, kernel_layout) == groups
