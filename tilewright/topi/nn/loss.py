"""Losses of classification."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from .. import tag
from ..checks import checked_position
from ..indexing import taken
from ..utils import fail, injective, same_size, shape_text, static_int, tensor_arg
from .softmax import log_softmax
from .stages import along, float_tensor, reduced

__all__ = ["cross_entropy", "cross_entropy_loss", "cross_entropy_with_logits", "nll_loss"]


def nll_loss(
    predictions: Any,
    targets: Any,
    weights: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    *,
    node: str = "",
) -> te.Tensor:
    """-weight[t]·prediction of the class t at each place, [N, C, ...] and [N, ...] or [C] and a scalar.

    Elements of the class `ignore_index` are ignored. `reduction` is "none", "sum" or "mean", the sum divided by the sum
    of weights. An out-of-bounds class is clamped, or an error of the `node`, if it has a name.
    """
    name = "nn.nll_loss"
    data, ids = float_tensor(name, "predictions", predictions), tensor_arg(name, "targets", targets)
    if reduction not in ("none", "sum", "mean"):
        raise fail(name, f"reduction is {reduction!r}", 'it is "none", "sum" or "mean"')
    if not ids.dtype.is_integral or ids.dtype.is_bool:
        raise fail(name, f"targets are {ids.dtype} and must be integers")
    channel = 0 if len(data.shape) == 1 else 1
    if not data.shape:
        raise fail(name, "predictions have no dimensions", "they are [C] or [N, C, ...]")
    places = (*data.shape[:channel], *data.shape[channel + 1 :])
    if len(ids.shape) != len(places) or not all(map(same_size, ids.shape, places)):
        raise fail(
            name, f"targets have shape {shape_text(ids.shape)} where predictions need {shape_text(places)}"
        )
    scale = along(name, "weights", weights, data, [channel])
    top = data.shape[channel]

    def safe(*i: Any) -> PrimExpr:
        return taken("clip", ids(*i), top)

    def weight(*i: Any) -> PrimExpr:
        value = te.const(1, data.dtype) if scale is None else ops.cast(data.dtype, scale(safe(*i)))
        seen = ops.not_equal(ids(*i), te.const(ignore_index, ids.dtype))
        return ops.select(seen, value, te.const(0, data.dtype))

    def loss(*i: Any) -> PrimExpr:
        if node:
            place = checked_position(ids(*i), static_int(name, "classes", top), node, i, ignore_index)
        else:
            place = safe(*i)
        value = -data(*i[:channel], place, *i[channel:])
        value = value if scale is None else value * ops.cast(data.dtype, scale(place))
        seen = ops.not_equal(ids(*i), te.const(ignore_index, ids.dtype))
        return ops.select(seen, value, te.const(0, data.dtype))

    each = injective(name, places, loss, tag.INJECTIVE, "T_nll_loss")
    if reduction == "none":
        return each
    axes = list(range(len(places)))
    total = reduced("T_nll_loss_sum", places, axes, te.sum, each)
    if reduction == "sum":
        return total
    whole = reduced("T_nll_loss_weights", places, axes, te.sum, weight)
    return injective(name, (), lambda: total() / whole(), tag.INJECTIVE, "T_nll_loss_mean")


def cross_entropy_loss(
    logits: Any, targets: Any, weights: Any = None, reduction: str = "mean", ignore_index: int = -100
) -> te.Tensor:
    """nll_loss of the log-softmax over the classes."""
    data = float_tensor("nn.cross_entropy_loss", "logits", logits)
    return nll_loss(
        log_softmax(data, 0 if len(data.shape) == 1 else 1), targets, weights, reduction, ignore_index
    )


def _against(name: str, predictions: Any, targets: Any, logarithm: bool) -> te.Tensor:
    """-sum(prediction·target) / batch, of predictions or their logarithms."""
    p, t = (
        float_tensor(f"nn.{name}", "predictions", predictions),
        tensor_arg(f"nn.{name}", "targets", targets),
    )
    if not p.shape or len(p.shape) != len(t.shape) or not all(map(same_size, p.shape, t.shape)):
        shapes = f"{shape_text(p.shape)} and {shape_text(t.shape)}"
        raise fail(f"nn.{name}", f"predictions and targets have shapes {shapes} and must have the same")

    def part(*i: Any) -> PrimExpr:
        return (te.log(p(*i)) if logarithm else p(*i)) * ops.cast(p.dtype, t(*i))

    total = reduced(f"T_{name}_sum", p.shape, list(range(len(p.shape))), te.sum, part)
    return injective(
        f"nn.{name}", (), lambda: -total() / ops.cast(p.dtype, p.shape[0]), tag.INJECTIVE, f"T_{name}"
    )


def cross_entropy(predictions: Any, targets: Any) -> te.Tensor:
    """-sum(log(predictions)·targets) / batch, with a probability of each class as target."""
    return _against("cross_entropy", predictions, targets, True)


def cross_entropy_with_logits(predictions: Any, targets: Any) -> te.Tensor:
    """-sum(predictions·targets) / batch, where the predictions are logarithms already."""
    return _against("cross_entropy_with_logits", predictions, targets, False)
