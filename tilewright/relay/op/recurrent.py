"""Recurrent layers as one operator each, for sequences of dynamic length."""

from __future__ import annotations

from typing import Any

from ..expr import Call, TupleWrapper
from ..ty import TensorType, TupleType, Type
from .gradients import nn as grads
from .registry import Tensor, operator, refuse
from .shapes import differ, need_dtype, need_rank
from .traits import Traits

__all__ = ["gru", "lstm"]


def _states(types: list[Any], gates: int) -> TensorType:
    """The type of the states after all steps, with the weights checked."""
    data, wi, wh, bias_i, bias_h, *starts = types
    need_rank(data, 3, "data")
    steps, batch, width = data.shape
    for kind, name, columns in ((wi, "weight_in", width), (wh, "weight_state", None)):
        need_rank(kind, 2, name)
        need_dtype(kind, data.dtype, name)
        if columns is not None and differ(kind.shape[1], columns):
            raise refuse(f"is {kind} and data has {columns} elements for each step", name)
    hidden = wh.shape[1]
    if differ(wh.shape[0], gates * hidden) or differ(wi.shape[0], wh.shape[0]):
        raise refuse(
            f"is {wh} and must have {gates} gates of {hidden} rows, as weight_in {wi}", "weight_state"
        )
    for kind, name in ((bias_i, "bias_in"), (bias_h, "bias_state")):
        need_rank(kind, 1, name)
        if differ(kind.shape[0], wh.shape[0]):
            raise refuse(f"is {kind} and the weights have {wh.shape[0]} rows", name)
    for kind in starts:
        need_rank(kind, 2, "h_init")
        if differ(kind.shape[0], batch) or differ(kind.shape[1], hidden):
            raise refuse(f"is {kind} and must be ({batch}, {hidden})", "h_init")
    return TensorType((steps, batch, hidden), data.dtype)


def _lstm_rel(types: list[Any], attrs: Any) -> Type:
    made = _states(types, 4)
    return TupleType((made, made))


@operator("nn.lstm", traits=Traits(gradient=grads.lstm), rel=_lstm_rel, compute="nn.lstm", results=2)
def lstm(
    data: Tensor,
    weight_in: Tensor,
    weight_state: Tensor,
    bias_in: Tensor,
    bias_state: Tensor,
    h_init: Tensor,
    c_init: Tensor,
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> TupleWrapper:
    """Long short-term memory over [steps, batch, inputs]: the hidden and the cell states after each step."""


@operator(
    "nn.gru",
    traits=Traits(gradient=grads.gru),
    rel=lambda types, attrs: _states(types, 3),
    compute="nn.gru",
)
def gru(
    data: Tensor,
    weight_in: Tensor,
    weight_state: Tensor,
    bias_in: Tensor,
    bias_state: Tensor,
    h_init: Tensor,
    reverse: bool = False,
    linear_before_reset: bool = True,
    weight_layout: str = "RZN",
) -> Call:
    """Gated recurrent units over [steps, batch, inputs]: the hidden state after each step."""
