"""UseTensorCores: products in the form that tensor cores take."""

from __future__ import annotations

from typing import Any, Final

from ...target import Target
from .. import op as R
from ..expr import Call, Constant, Function
from .convert_layout import convert_call
from .layout_rules import rule_of
from .layouts import LayoutRewriter
from .rewriting import (
    CallRewriter,
    is_call,
    scalar_like,
    static_shape,
    tensor_type,
    typed_pass,
)
from .transposed_convolutions import as_convolution

_HALVES: Final = ("float16", "bfloat16")
_PRODUCTS: Final = (R.nn.conv2d, R.nn.dense, R.nn.batch_matmul, R.nn.matmul)
_TOGETHER: Final = 4  # least number of channels of a pixel for a vector load
# Products of float32 (tf32) take weights that are contiguous along the reduction.
_LAST: Final = {"nn.conv2d": ("NHWC", "default")}
_LAST_IN_LINE: Final = {"nn.conv2d": ("NHWC", "OHWI")}


def use_tensor_cores(func: Function) -> Function:
    """For a GPU with tensor cores, let products of 16-bit floats accumulate in float32, and convolutions be
    channels-last.

        nn.conv2d(%x, %w)     ->     %0 = layout_transform(%x, "NCHW", "NHWC");
                                     %1 = layout_transform(%w, "OIHW", "HWIO");
                                     %2 = nn.conv2d(%0, %1, data_layout="NHWC", …, out_dtype="float32");
                                     layout_transform(cast(%2, "float16"), "NHWC", "NCHW")

    Operators between convolutions keep their layout, as in ConvertLayout. Transposed convolutions become convolutions
    for all phases of the stride. Images of one to three channels are padded with zero channels. Convolutions of float32
    are channels-last if the target allows tf32 (`-tf32`). Other targets are unchanged.
    """
    if not _has_tensor_cores(Target.current(allow_none=True)):
        return func
    func = CallRewriter({R.nn.conv2d_transpose: _straight}).visit(func)
    wide = CallRewriter(dict.fromkeys(_PRODUCTS, _prepared)).visit(func)
    return LayoutRewriter(_channels_last, rule_of).visit(wide)


def _has_tensor_cores(target: Target | None) -> bool:
    return target is not None and target.has("mma.bf16")


def _is_taken(at: Any) -> bool:
    """Whether tensor cores support products of a tensor."""
    from ...tune.rules.gpu.product import takes  # scheduling is loaded when something is compiled

    kind, target = tensor_type(at), Target.current(allow_none=True)
    name = "" if kind is None else str(kind.dtype)
    return name in _HALVES or (name == "float32" and target is not None and takes(target, name))


def _straight(at: Call) -> Any:
    """A transposed convolution of a supported type as a convolution."""
    return as_convolution(at) if _is_taken(at.args[0]) else None


def _prepared(at: Call) -> Any:
    """A product with float32 accumulators, of data whose channels can be loaded as vectors."""
    kind = tensor_type(at)
    if kind is None or not _is_taken(at.args[0]) or at.attrs.get("groups", 1) != 1:
        return None
    made = _filled_up(at) if is_call(at, R.nn.conv2d) else _transposed(at)
    if str(kind.dtype) in _HALVES:
        made = Call(made.op, made.args, made.attrs.replace(out_dtype="float32"))
        return R.cast(made, dtype=str(kind.dtype))
    return None if made is at else made


def _transposed(at: Call) -> Call:
    """A product with its constant weights transposed at compile time, if it requires that layout."""
    weights = at.args[1]
    if (
        at.attrs.get("transpose_b", True)
        or not isinstance(weights, Constant)
        or not _contiguous_only(at.args[0])
    ):
        return at
    rank = len(weights.data.shape)
    axes = [*range(rank - 2), rank - 1, rank - 2]
    return Call(at.op, [at.args[0], R.transpose(weights, axes=axes)], at.attrs.replace(transpose_b=True))


def _filled_up(at: Call) -> Call:
    """A convolution of few channels, such as the colours of an image, padded with zero channels.

    For TMA copies of contiguous rows of windows, columns of zeros are added as well.
    """
    top, left, bottom, right = at.attrs.padding
    lines = _contiguous_only(at.args[0]) and at.attrs.dilation[1] == 1 and "W" in at.attrs.data_layout
    operands = []
    for arg, layout, letter in ((0, at.attrs.data_layout, "C"), (1, at.attrs.kernel_layout, "I")):
        shape = static_shape(at.args[arg])
        if shape is None or len(shape) != 4 or letter not in layout:
            return at
        place = layout.index(letter)
        width = [[0, 0] for _ in shape]
        width[place][1] = -shape[place] % _TOGETHER
        lines = lines and shape[place] <= _TOGETHER
        if shape[place] > 2 * _TOGETHER or not (width[place][1] or lines):
            return at
        if arg == 0 and lines:
            width[layout.index("W")] = [left, right]
        padded = R.nn.pad(at.args[arg], width, scalar_like(0, at.args[arg]))
        operands.append(padded if any(map(any, width)) else at.args[arg])
    attrs = at.attrs.replace(padding=(top, 0, bottom, 0)) if lines else at.attrs
    return Call(at.op, operands, attrs)


def _contiguous_only(data: Any) -> bool:
    """Whether products of a tensor require operands that are contiguous along the reduction: those of tf32."""
    kind = tensor_type(data)
    return kind is not None and str(kind.dtype) == "float32" and _is_taken(data)


def _channels_last(at: Call, plain: Call) -> Call | None:
    if not is_call(at, R.nn.conv2d) or not _is_taken(at.args[0]):
        return None
    in_line = _contiguous_only(at.args[0]) and at.attrs.groups == 1
    return convert_call(at, plain, _LAST_IN_LINE if in_line else _LAST)


UseTensorCores = typed_pass(use_tensor_cores, name="UseTensorCores", opt_level=2)
