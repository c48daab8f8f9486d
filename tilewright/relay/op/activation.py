"""Activations: relu and its like, softmax, dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..expr import Call, Expr, TupleWrapper
from ..ty import TupleType, Type
from .attributes import number
from .computes import topi
from .gradients import elementwise, nn
from .registry import BROADCAST, ELEMWISE, Constructor, Tensor, operator
from .shapes import axis_of, axis_rel, need_vectors, same_rel, vectors
from .traits import FOLLOW, FULL, Traits

__all__ = ["dropout", "dropout_raw", "fast_softmax", "leaky_relu", "log_softmax", "prelu", "relu", "softmax"]


@operator(
    "nn.relu",
    traits=Traits(
        precision=FOLLOW, scale="positive", idempotent=True, vector=("max",), gradient=elementwise.relu
    ),
    rel=same_rel,
    compute="nn.relu",
    pattern=ELEMWISE,
)
def relu(data: Tensor) -> Call:
    """max(x, 0)."""


@operator(
    "nn.leaky_relu",
    traits=Traits(
        precision=FOLLOW, scale="positive", quantised="qnn.leaky_relu", gradient=elementwise.leaky_relu
    ),
    attrs={"alpha": number(0.25)},
    rel=same_rel,
    compute="nn.leaky_relu",
    pattern=ELEMWISE,
)
def leaky_relu(data: Tensor, alpha: float = 0.01) -> Call:
    """x where it is positive, else alpha·x."""


def _prelu_rel(types: list[Any], attrs: Any) -> Type:
    data, alpha = types
    need_vectors(data, axis_of(attrs.axis, len(data.shape)), alpha=alpha)
    return data


@operator(
    "nn.prelu",
    traits=Traits(layout="axis", weights=vectors(1), gradient=nn.prelu),
    rel=_prelu_rel,
    compute="nn.prelu",
    pattern=BROADCAST,
)
def prelu(data: Tensor, alpha: Tensor, axis: int = 1) -> Call:
    """x where it is positive, else alpha·x, with an alpha for each channel."""


def _softmax_like(name: str, **traits: Any) -> Callable[[Constructor], Constructor]:
    return operator(
        f"nn.{name}",
        rel=axis_rel,
        compute=f"nn.{name}",
        traits=Traits(layout="axis", precision=FULL, **traits),
    )


@_softmax_like("softmax", fast="nn.fast_softmax", quantised="qnn.softmax", gradient=nn.softmax)
def softmax(data: Tensor, axis: int = -1) -> Call:
    """exp(x) / sum(exp(x)) along an axis."""


@_softmax_like("log_softmax", gradient=nn.log_softmax)
def log_softmax(data: Tensor, axis: int = -1) -> Call:
    """The logarithm of softmax."""


@_softmax_like("fast_softmax", gradient=nn.softmax)
def fast_softmax(data: Tensor, axis: int = -1) -> Call:
    """softmax with a quicker and less exact exp."""


def dropout(data: Any, rate: float = 0.5) -> Expr:
    """Nothing at inference: the data as it is."""
    return TupleWrapper(dropout_raw(data, rate), 2)[0]


@operator(
    "nn.dropout",
    traits=Traits(precision=FOLLOW, gradient=nn.dropout),
    rel=lambda types, attrs: TupleType((types[0], types[0])),
    compute=lambda attrs, ins, out: [topi.identity(ins[0]), topi.full_like(ins[0], 1)],
)
def dropout_raw(data: Tensor, rate: float = 0.5) -> Call:
    """`dropout` with both its results: the data, and the mask."""
