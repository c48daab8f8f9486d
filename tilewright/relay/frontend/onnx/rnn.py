"""Recurrent networks: what the attributes of ONNX make of the layers that importers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..common.recurrent import Layer, run
from .build import R, dtype_of, scalar, shape_of, static_shape
from .context import Node, Refusal, converter
from .math import elu_of, hard_sigmoid_of, softplus_of, softsign_of, thresholded_relu_of

QUANTIZED = "of quantised activations"  # set by the converter of DynamicQuantizeLSTM


def as_quantized(x: Any) -> Any:
    """Floats rounded as if they had been quantised to 8 bits, by a scale of their own, and back."""
    zero = scalar(0, x)
    low, high = R.minimum(R.min(x), zero), R.maximum(R.max(x), zero)
    scale = R.divide(R.subtract(high, low), scalar(255, x))
    scale = R.where(R.equal(scale, zero), scalar(1, x), scale)
    point = R.clip(R.round(R.negative(R.divide(low, scale))), 0.0, 255.0)
    rounded = R.clip(R.add(R.round(R.divide(x, scale)), point), 0.0, 255.0)
    return R.multiply(R.subtract(rounded, point), scale)


def _activation(name: str, alpha: float | None, beta: float | None) -> Callable[[Any], Any]:
    def k(value: float | None, default: float) -> float:
        return default if value is None else value

    table: dict[str, Callable[[Any], Any]] = {
        "relu": R.nn.relu,
        "tanh": R.tanh,
        "sigmoid": R.sigmoid,
        "affine": lambda x: R.add(R.multiply(scalar(k(alpha, 1.0), x), x), scalar(k(beta, 0.0), x)),
        "leakyrelu": lambda x: R.nn.leaky_relu(x, k(alpha, 0.01)),
        "thresholdedrelu": lambda x: thresholded_relu_of(x, k(alpha, 1.0)),
        "scaledtanh": lambda x: R.multiply(
            scalar(k(alpha, 1.0), x), R.tanh(R.multiply(scalar(k(beta, 1.0), x), x))
        ),
        "hardsigmoid": lambda x: hard_sigmoid_of(x, k(alpha, 0.2), k(beta, 0.5)),
        "elu": lambda x: elu_of(x, k(alpha, 1.0)),
        "softsign": softsign_of,
        "softplus": softplus_of,
    }
    found = table.get(name.lower())
    if found is None:
        raise Refusal(f"activation {name!r} is unknown")
    return found


_USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_WITH_ALPHA = {"affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu"}
_WITH_BETA = {"affine", "hardsigmoid", "scaledtanh"}
_LAYOUTS = {"RNN": "H", "GRU": "ZRN", "LSTM": "IOFG"}


def _part(e: Any, i: int) -> Any:
    """One direction of a tensor."""
    return R.squeeze(R.strided_slice(e, [i], [i + 1], axes=[0]), [0])


def _curves(n: Node, d: int) -> list[Callable[[Any], Any]] | None:
    """The activations of a direction; None where they are the usual ones."""
    usual = _USUAL[n.op_type]
    count = len(usual)
    given = n.attr("activations") or usual * 2
    alphas, betas = list(n.attr("activation_alpha", [])), list(n.attr("activation_beta", []))
    if (d + 1) * count > len(given):
        raise n.refuse(f"{len(given)} activations where {count} are needed for each direction")
    mine = slice(d * count, (d + 1) * count)
    if [a.lower() for a in given[mine]] == [a.lower() for a in usual]:
        return None
    # A value of the lists goes to the next function that has such a parameter, not to the function of its place.
    return [
        _activation(
            name,
            alphas.pop(0) if alphas and name.lower() in _WITH_ALPHA else None,
            betas.pop(0) if betas and name.lower() in _WITH_BETA else None,
        )
        for name in given
    ][mine]


def _layer(n: Node, d: int) -> Layer:
    """One direction, as the inputs and attributes of a node describe it."""
    biases: list[Any] = [None, None]
    if n.has(3):
        both, wide = _part(n[3], d), static_shape(n[2])[1]
        biases = [R.strided_slice(both, [i * wide], [(i + 1) * wide], axes=[0]) for i in (0, 1)]
    return Layer(
        _LAYOUTS[n.op_type],
        _part(n[1], d),
        _part(n[2], d),
        biases[0],
        biases[1],
        curves=_curves(n, d),
        clip=float(n.attr("clip", 0.0)),
        peephole=_part(n[7], d) if n.op_type == "LSTM" and n.has(7) else None,
        coupled=bool(n.attr("input_forget", 0)),
        linear_before_reset=n.flag("linear_before_reset", 0),
        rounded=as_quantized if n.attr(QUANTIZED) else None,
    )


@converter("RNN", "GRU", "LSTM")
def recurrent(n: Node) -> Any:
    batched = n.flag("layout", 0)
    x = R.transpose(n[0], [1, 0, 2]) if batched else n[0]
    direction = n.attr("direction", "forward")
    lengths = n[4] if n.has(4) else None
    outs, lasts = [], []
    for d in range(2 if direction == "bidirectional" else 1):
        layer = _layer(n, d)
        count = 2 if n.op_type == "LSTM" else 1
        states = [
            _initial(n, 5 + i, d, shape_of(x)[1], layer.hidden, dtype_of(x), batched) for i in range(count)
        ]
        made, ends = run(layer, x, states, direction == "reverse" or d == 1, lengths)
        outs.append(made)
        lasts.append(ends)
    y = R.stack(outs, 1)  # (length, directions, batch, hidden)
    ends = [R.stack(list(each), 0) for each in zip(*lasts, strict=True)]
    if batched:
        y, ends = R.transpose(y, [2, 0, 1, 3]), [R.transpose(e, [1, 0, 2]) for e in ends]
    return [y, *ends]


def _initial(n: Node, at: int, d: int, batch: Any, hidden: int, kind: str, batched: bool) -> Any:
    if not n.has(at):
        return R.zeros([batch, hidden], kind)
    return _part(R.transpose(n[at], [1, 0, 2]) if batched else n[at], d)
