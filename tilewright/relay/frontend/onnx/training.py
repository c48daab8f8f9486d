"""Steps of training as ONNX has them: Adagrad, Adam, Momentum over any number of tensors."""

from __future__ import annotations

from typing import Any

from .build import R, cast, rank, scalar
from .context import Node, converter

_DOMAIN = "ai.onnx.preview.training"


def _groups(n: Node, kinds: int) -> list[list[Any]]:
    """The tensors of each weight: itself, its gradient and what is kept for it; after the rate and the step."""
    count, rest = divmod(len(n) - 2, kinds)
    if rest or count < 1:
        raise n.refuse(
            f"it has {len(n)} inputs, and takes a rate, a step and {kinds} tensors for each weight"
        )
    return [[n[2 + k * count + i] for k in range(kinds)] for i in range(count)]


def _by_output(rows: list[list[Any]]) -> list[Any]:
    """All new weights, then all of the next kind."""
    return [row[k] for k in range(len(rows[0])) for row in rows]


def _number(e: Any) -> Any:
    return R.reshape(e, ()) if rank(e) else e


def _regular(n: Node, x: Any, g: Any) -> Any:
    """The gradient with that of the penalty on great weights."""
    return R.add(R.multiply(scalar(float(n.attr("norm_coefficient", 0.0)), x), x), g)


def _square(e: Any) -> Any:
    return R.multiply(e, e)


@converter("Adagrad", domain=_DOMAIN)
def adagrad(n: Node) -> Any:
    rate, step = _number(n[0]), _number(n[1])
    slower = R.multiply(cast(step, "float32"), scalar(float(n.attr("decay_factor", 0.0)), rate))
    rate = R.divide(rate, R.add(scalar(1.0, rate), slower))
    rows = []
    for x, g, h in _groups(n, 3):
        g = _regular(n, x, g)
        h = R.add(h, _square(g))
        size = R.add(R.sqrt(h), scalar(float(n.attr("epsilon", 1e-6)), x))
        rows.append([R.subtract(x, R.divide(R.multiply(rate, g), size)), h])
    return _by_output(rows)


@converter("Momentum", domain=_DOMAIN)
def momentum(n: Node) -> Any:
    rate, step = _number(n[0]), _number(n[1])
    alpha, mode = float(n.attr("alpha", 0.0)), n.attr("mode", "standard")
    if mode not in ("standard", "nesterov"):
        raise n.refuse(f"mode {mode!r} is unknown")
    later = R.greater(step, scalar(0, step))
    weight = R.where(later, scalar(float(n.attr("beta", 0.0)), rate), scalar(1.0, rate))
    rows = []
    for x, g, v in _groups(n, 3):
        g = _regular(n, x, g)
        v = R.add(R.multiply(scalar(alpha, v), v), R.multiply(weight, g))
        move = v if mode == "standard" else R.add(g, R.multiply(scalar(alpha, v), v))
        rows.append([R.subtract(x, R.multiply(rate, move)), v])
    return _by_output(rows)


@converter("Adam", domain=_DOMAIN)
def adam(n: Node) -> Any:
    rate, step = _number(n[0]), _number(n[1])
    alpha, beta = float(n.attr("alpha", 0.9)), float(n.attr("beta", 0.999))
    one, turns = scalar(1.0, rate), cast(step, "float32")
    grown = R.sqrt(R.subtract(one, R.power(scalar(beta, rate), turns)))
    early = R.divide(R.multiply(rate, grown), R.subtract(one, R.power(scalar(alpha, rate), turns)))
    rate = R.where(R.greater(step, scalar(0, step)), early, rate)
    post = 1.0 - float(n.attr("norm_coefficient_post", 0.0))
    rows = []
    for x, g, v, h in _groups(n, 4):
        g = _regular(n, x, g)
        v = R.add(R.multiply(scalar(alpha, v), v), R.multiply(scalar(1.0 - alpha, g), g))
        h = R.add(R.multiply(scalar(beta, h), h), R.multiply(scalar(1.0 - beta, g), _square(g)))
        size = R.add(R.sqrt(h), scalar(float(n.attr("epsilon", 1e-6)), x))
        new = R.subtract(x, R.divide(R.multiply(rate, v), size))
        rows.append([R.multiply(scalar(post, x), new), v, h])
    return _by_output(rows)
