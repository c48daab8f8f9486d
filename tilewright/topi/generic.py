"""Schedules of the classic API. There are no hand-written ones here: the automatic scheduler chooses the loops when the
schedule is lowered, for the target of then.

    s = topi.generic.schedule_injective([C])
    tvm.build(s, [A, B, C], "llvm")              # as tilewright.auto_schedule([A, B, C], "llvm")

A stage that is scheduled by hand stays as it is: all loops are plain then, until they are scheduled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from .. import te
from ..absent import attributes as _attributes
from ..te.schedule import automatic_schedule
from .elsewhere import is_scheduled
from .elsewhere import operator_or as _operator_or

_NAMES = """
    adaptive_pool argsort argwhere batch_matmul batch_norm binarize_pack binary_dense bitpack bitserial_conv2d_nchw
    bitserial_conv2d_nhwc bitserial_dense concatenate conv1d_ncw conv1d_nwc conv1d_transpose_ncw conv2d_NCHWc
    conv2d_hwcn conv2d_nchw conv2d_nhwc conv2d_nhwc_pack conv2d_transpose_nchw conv2d_winograd_weight_transform
    conv3d_ncdhw conv3d_ndhwc conv3d_transpose_ncdhw correlation_nchw deformable_conv2d_nchw deformable_conv2d_nhwc
    dense depthwise_conv2d_NCHWc depthwise_conv2d_nchw depthwise_conv2d_nhwc dilation2d_nchw dilation2d_nhwc einsum
    elemwise extern fast_softmax get_valid_counts group_conv1d_ncw group_conv1d_nwc group_conv1d_transpose_ncw
    group_conv2d_nchw group_conv2d_nhwc group_conv2d_transpose_nchw group_conv3d_transpose_ncdhw injective
    invert_permutation lrn lstm matmul multibox_detection multibox_prior multibox_transform_loc nms pad pool pool_grad
    proposal reduce reorg roi_align roi_pool scan scatter scatter_add scatter_elements scatter_nd searchsorted
    softmax sort sparse_conv2d sparse_dense sparse_fill_empty_rows sparse_reshape sparse_transpose stft topk unique
    upsampling
""".split()

__all__ = ["default_schedule", "schedule_injective_from_existing", *(f"schedule_{n}" for n in _NAMES)]


def default_schedule(outs: Any, auto_inline: bool = False) -> Any:
    """The plain loops of the outputs; with `auto_inline`, injective stages on the way are inlined."""
    tensors = [outs] if isinstance(outs, te.Tensor) else list(outs)
    made = te.create_schedule([t.op for t in tensors])
    if auto_inline:
        from .utils import traverse_inline

        for t in tensors:
            traverse_inline(made, t.op, lambda op: None)
    return made


def schedule_injective_from_existing(sch: Any, out: te.Tensor) -> Any:
    """The schedule as it is."""
    return sch


def _plain(name: str) -> Callable[..., Any]:
    def schedule(outs: Any, *args: Any, **kwargs: Any) -> Any:
        return automatic_schedule(outs)

    schedule.__name__ = schedule.__qualname__ = f"schedule_{name}"
    schedule.__doc__ = f"An automatic schedule of `{name}`."
    return schedule


@cache
def schedule_of(name: str) -> Callable[..., Any] | None:
    """The schedule function of the name `schedule_…`, if there is an operator of that name."""
    kind = name.removeprefix("schedule_")
    return vars(sys.modules[__name__]).get(name) or (_plain(kind) if is_scheduled(kind) else None)


globals().update({f"schedule_{n}": _plain(n) for n in _NAMES})
__path__: list[str] = []  # its modules have its names
_MODULES = "conv2d default extern image injective math nn search sort vision".split()
_schedule_or_absent = _operator_or(_attributes(__name__))


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}") if name in _MODULES else _schedule_or_absent(name)


# Pooling and others hand over a layout or a target; the scheduler reads the program.
schedule_extern: Callable[..., Any] = globals()["schedule_extern"]
schedule_injective: Callable[..., Any] = globals()["schedule_injective"]
schedule_reduce: Callable[..., Any] = globals()["schedule_reduce"]
