"""Activations, softmax, dropout at inference."""

from __future__ import annotations

from typing import Any

from ...expr import Expr
from ..common.activations import gelu_of
from .build import NN, R, literal, rank, reshape, shape_of
from .table import Refusal, Site, aten, rows

rows(
    {
        "relu": lambda n, x: NN.relu(x),
        "relu6": lambda n, x: R.clip(x, 0.0, 6.0),
        "gelu": lambda n, x, approximate="none": gelu_of(x, approximate),
        "leaky_relu": lambda n, x, negative_slope: NN.leaky_relu(x, float(negative_slope)),
        "silu": lambda n, x: R.multiply(x, R.sigmoid(x)),
        "mish": lambda n, x: R.multiply(x, R.tanh(softplus(n, x, 1.0, 20.0))),
        "hardtanh": lambda n, x, min_val, max_val: R.clip(x, float(min_val), float(max_val)),
        "hardswish": lambda n, x: R.multiply(x, hardsigmoid(n, x)),
        "selu": lambda n, x: elu(n, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946),
        "celu": lambda n, x, alpha=1.0: elu(n, x, alpha, 1, 1 / alpha),
        "hardshrink": lambda n, x, lambd=0.5: R.where(
            R.greater(R.abs(x), n.to(lambd)), x, literal(0.0, n.dtype)
        ),
        "native_dropout": lambda n, x, p, train: [dropout(n, x, p, bool(train)), R.ones(shape_of(x), "bool")],
        "threshold": lambda n, x, threshold, value: R.where(R.greater(x, n.to(threshold)), x, n.to(value)),
        "softmax _softmax _safe_softmax special_softmax": lambda n, x, dim, dtype=None, half_to_float=None: (
            NN.softmax(n.to(x), dim) if rank(x) else R.ones_like(n.to(x))
        ),
        "log_softmax _log_softmax special_log_softmax": lambda n, x, dim, dtype=None, half_to_float=None: (
            NN.log_softmax(n.to(x), dim) if rank(x) else R.zeros_like(n.to(x))
        ),
    }
)


@aten("hardsigmoid")
def hardsigmoid(n: Site, x: Expr) -> Expr:
    raised = R.clip(R.add(x, literal(3.0, n.dtype)), 0.0, 6.0)
    return R.multiply(raised, literal(1 / 6, n.dtype))


@aten("elu")
def elu(n: Site, x: Expr, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Expr:
    zero, one = literal(0.0, n.dtype), literal(1.0, n.dtype)
    bent = R.multiply(
        R.subtract(R.exp(R.minimum(R.multiply(x, n.to(input_scale)), zero)), one), n.to(alpha * scale)
    )
    return R.where(R.greater(x, zero), R.multiply(x, n.to(scale)), bent)


@aten("softplus")
def softplus(n: Site, x: Expr, beta: Any = 1, threshold: Any = 20) -> Expr:
    """max(bx, 0) + log(1 + exp(-|bx|)), over b: nothing overflows; x itself above the threshold."""
    scaled = R.multiply(x, n.to(beta))
    zero, one = literal(0.0, n.dtype), literal(1.0, n.dtype)
    soft = R.add(R.maximum(scaled, zero), R.log(R.add(one, R.exp(R.negative(R.abs(scaled))))))
    return R.where(R.greater(scaled, n.to(threshold)), x, R.divide(soft, n.to(beta)))


@aten("log_sigmoid")
def log_sigmoid(n: Site, x: Expr) -> Expr:
    zero, one = literal(0.0, n.dtype), literal(1.0, n.dtype)
    return R.subtract(R.minimum(x, zero), R.log(R.add(one, R.exp(R.negative(R.abs(x))))))


@aten("softshrink")
def softshrink(n: Site, x: Expr, lambd: Any = 0.5) -> Expr:
    by = n.to(lambd)
    return R.subtract(x, R.minimum(R.maximum(x, R.negative(by)), by))


@aten("prelu", "_prelu_kernel")
def prelu(n: Site, x: Expr, weight: Expr) -> Expr:
    zero = literal(0.0, n.dtype)
    if n.name.startswith("aten.prelu") and rank(x) > 1 and rank(weight) == 1:
        weight = reshape(weight, (shape_of(weight)[0], *[1] * (rank(x) - 2)))
    return R.where(R.greater(x, zero), x, R.multiply(x, weight))


@aten("glu")
def glu(n: Site, x: Expr, dim: int = -1) -> Expr:
    value, gate = R.split(x, 2, dim % rank(x))
    return R.multiply(value, R.sigmoid(gate))


@aten("logit")
def logit(n: Site, x: Expr, eps: float | None = None) -> Expr:
    x = n.to(x)
    if eps is not None:
        x = R.clip(x, eps, 1 - eps)
    return R.log(R.divide(x, R.subtract(literal(1.0, n.dtype), x)))


@aten("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(n: Site, x: Expr, p: float, train: bool) -> Expr:
    if train and p:
        raise Refusal("dropout is random in training; export the model in eval() mode")
    return x


@aten("rrelu_with_noise", "rrelu_with_noise_functional")
def rrelu(n: Site, x: Expr, noise: Expr, lower: float, upper: float, training: bool = False) -> Any:
    if training:
        raise Refusal("rrelu is random in training; export the model in eval() mode")
    made = NN.leaky_relu(x, (lower + upper) / 2)
    return made if len(n.kinds) == 1 else [made, noise]
