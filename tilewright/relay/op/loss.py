"""Losses."""

from __future__ import annotations

from typing import Any

from ..expr import Call
from ..ty import TensorType, Type
from .attributes import text
from .gradients import nn as grads
from .registry import Place, Tensor, operator, refuse
from .shapes import need_dtype, need_one_of, need_rank, need_vectors, unlike
from .traits import Traits

__all__ = ["cross_entropy", "cross_entropy_with_logits", "nll_loss"]


def _entropy_rel(types: list[Any], attrs: Any) -> Type:
    predictions, targets = types
    need_rank(predictions, 2, "predictions")
    need_rank(targets, 2, "targets")
    need_dtype(targets, predictions.dtype, "targets")
    if unlike(predictions.shape, targets.shape):
        raise refuse(f"are {targets} and predictions are {predictions}", "targets")
    return TensorType((), predictions.dtype)


@operator(
    "nn.cross_entropy",
    traits=Traits(gradient=grads.cross_entropy),
    rel=_entropy_rel,
    compute="nn.cross_entropy",
)
def cross_entropy(predictions: Tensor, targets: Tensor) -> Call:
    """-sum(log(predictions)·targets) / batch."""


@operator(
    "nn.cross_entropy_with_logits",
    traits=Traits(gradient=grads.cross_entropy_with_logits),
    rel=_entropy_rel,
    compute="nn.cross_entropy_with_logits",
)
def cross_entropy_with_logits(predictions: Tensor, targets: Tensor) -> Call:
    """-sum(predictions·targets) / batch, of predictions that are logarithms already."""


def _nll_rel(types: list[Any], attrs: Any) -> Type:
    predictions, targets, weights = types
    if not predictions.shape:
        raise refuse(f"must have classes and are {predictions}", "predictions")
    at = 0 if len(predictions.shape) == 1 else 1
    places = (*predictions.shape[:at], *predictions.shape[at + 1 :])
    if unlike(places, targets.shape):
        raise refuse(f"are {targets} and predictions are {predictions}", "targets")
    if not targets.dtype.is_integral:
        raise refuse(f"are {targets.dtype} and must be integers", "targets")
    need_vectors(predictions, at, weights=weights)
    need_one_of(attrs.reduction, ("mean", "sum", "none"), "reduction")
    return TensorType(places if attrs.reduction == "none" else (), predictions.dtype)


@operator(
    "nn.nll_loss",
    traits=Traits(gradient=grads.nll_loss),
    attrs={"node": text("")},
    rel=_nll_rel,
    compute="nn.nll_loss",
    places=lambda types, attrs: [
        Place(1, "position", 0, (min(1, len(types[0].shape) - 1),), ignored=attrs.ignore_index)
    ],
)
def nll_loss(
    predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str = "mean", ignore_index: int = -100
) -> Call:
    """-weight·prediction of the target class of each element, averaged, summed or unreduced."""
