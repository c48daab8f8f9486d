"""UseTensorCores: products of 16-bit floats in the form that tensor cores take."""

from __future__ import annotations

from typing import Any, Final

from ...target import Target
from ..expr import Call, Function
from .convert_layout import convert_call
from .layout_rules import RULES, follow
from .layouts import LayoutRewriter
from .rewriting import CallRewriter, call, name_of, scalar_like, static_shape, tensor_type, typed_pass

__all__ = ["UseTensorCores", "use_tensor_cores"]

_HALVES: Final = ("float16", "bfloat16")
_PRODUCTS: Final = ("nn.conv2d", "nn.dense", "nn.batch_matmul", "nn.matmul")
_TOGETHER: Final = 4  # channels of one place that are fetched at once, at least
_LAST: Final = {"nn.conv2d": ("NHWC", "default")}


def use_tensor_cores(func: Function) -> Function:
    """For a GPU that has them, let products of 16-bit floats add up in float32, and convolutions have channels last.

        nn.conv2d(%x, %w)     ->     %0 = layout_transform(%x, "NCHW", "NHWC");
                                     %1 = layout_transform(%w, "OIHW", "HWIO");
                                     %2 = nn.conv2d(%0, %1, data_layout="NHWC", …, out_dtype="float32");
                                     layout_transform(cast(%2, "float16"), "NHWC", "NCHW")

    What lies between convolutions keeps their layout, as in ConvertLayout. Images of one to three channels get
    channels of zeros. For other targets nothing is changed.
    """
    if not _has_tensor_cores(Target.current(allow_none=True)):
        return func
    wide = CallRewriter(dict.fromkeys(_PRODUCTS, _prepared)).visit(func)
    return LayoutRewriter(_channels_last, RULES, follow).visit(wide)  # type: ignore[no-any-return]


def _has_tensor_cores(target: Target | None) -> bool:
    if target is None or target.kind.name != "cuda":
        return False
    return int("".join(filter(str.isdigit, target.gpu.arch)) or 0) >= 80


def _is_half(at: Any) -> bool:
    kind = tensor_type(at)
    return kind is not None and str(kind.dtype) in _HALVES


def _prepared(at: Call) -> Any:
    """A product whose sums are float32, of data whose channels can be fetched some at a time."""
    kind = tensor_type(at)
    if kind is None or not _is_half(at.args[0]) or at.attrs.get("groups", 1) != 1:
        return None
    made = _filled_up(at) if name_of(at) == "nn.conv2d" else at
    if str(kind.dtype) in _HALVES:
        made = Call(made.op, made.args, made.attrs.replace(out_dtype="float32"))
        return call("cast", made, dtype=str(kind.dtype))
    return None if made is at else made


def _filled_up(at: Call) -> Call:
    """A convolution of few channels, such as the colours of an image, with channels of zeros more."""
    operands = []
    for arg, layout, letter in ((0, at.attrs.data_layout, "C"), (1, at.attrs.kernel_layout, "I")):
        shape = static_shape(at.args[arg])
        if shape is None or len(shape) != 4 or letter not in layout:
            return at
        place = layout.index(letter)
        more = -shape[place] % _TOGETHER
        if not more or shape[place] > 2 * _TOGETHER:
            return at
        width = [[0, more if d == place else 0] for d in range(4)]
        operands.append(call("nn.pad", at.args[arg], scalar_like(0, at.args[arg]), pad_width=width))
    return Call(at.op, operands, at.attrs)


def _channels_last(at: Call, plain: Call) -> Call | None:
    if name_of(at) != "nn.conv2d" or not _is_half(at.args[0]):
        return None
    return convert_call(at, plain, _LAST)


UseTensorCores = typed_pass(use_tensor_cores, name="UseTensorCores", opt_level=2)
