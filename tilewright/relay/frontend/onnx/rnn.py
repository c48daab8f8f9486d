"""Recurrent networks, unrolled over the steps of their sequence.

The products with the input are one matrix product for all steps; what remains in a step is the product with the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .build import R, cast, constant, dtype_of, scalar, shape_of, static_shape
from .context import Node, Refusal, converter
from .math import softplus_of

_LONGEST = 4096
_UNROLLED = 128  # a longer sequence is one operator, if it can be


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
        "relu": lambda x: R.nn.relu(x),
        "tanh": lambda x: R.tanh(x),
        "sigmoid": lambda x: R.sigmoid(x),
        "affine": lambda x: R.add(R.multiply(scalar(k(alpha, 1.0), x), x), scalar(k(beta, 0.0), x)),
        "leakyrelu": lambda x: R.nn.leaky_relu(x, k(alpha, 0.01)),
        "thresholdedrelu": lambda x: R.where(R.greater(x, scalar(k(alpha, 1.0), x)), x, scalar(0, x)),
        "scaledtanh": lambda x: R.multiply(
            scalar(k(alpha, 1.0), x), R.tanh(R.multiply(scalar(k(beta, 1.0), x), x))
        ),
        "hardsigmoid": lambda x: R.clip(
            R.add(R.multiply(scalar(k(alpha, 0.2), x), x), scalar(k(beta, 0.5), x)), 0.0, 1.0
        ),
        "elu": lambda x: R.where(
            R.greater(x, scalar(0, x)),
            x,
            R.multiply(scalar(k(alpha, 1.0), x), R.subtract(R.exp(x), scalar(1, x))),
        ),
        "softsign": lambda x: R.divide(x, R.add(scalar(1, x), R.abs(x))),
        "softplus": softplus_of,
    }
    found = table.get(name.lower())
    if found is None:
        raise Refusal(f"activation {name!r} is unknown")
    return found


@dataclass(slots=True)
class _Cell:
    """One direction of a layer: its weights as (in, gates), biases, and what the attributes say."""

    hidden: int
    recurrent: Any  # (hidden, gates · hidden)
    bias: Any  # of the recurrent product, or None
    peephole: Any
    acts: list[Callable[[Any], Any]]
    clip: float
    n: Node

    def limited(self, x: Any) -> Any:
        return R.clip(x, -self.clip, self.clip) if self.clip > 0 else x

    def state(self, h: Any) -> Any:
        made = R.nn.matmul(as_quantized(h) if self.n.attr(QUANTIZED) else h, self.recurrent)
        return made if self.bias is None else R.add(made, self.bias)

    def gate(self, x: Any, i: int) -> Any:
        return R.strided_slice(x, [i * self.hidden], [(i + 1) * self.hidden], axes=[1])


def _rnn_step(cell: _Cell, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    return cell.acts[0](cell.limited(R.add(x, cell.state(h)))), c


def _gru_step(cell: _Cell, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    f, g = cell.acts
    inner = cell.state(h)
    z = f(cell.limited(R.add(cell.gate(x, 0), cell.gate(inner, 0))))
    r = f(cell.limited(R.add(cell.gate(x, 1), cell.gate(inner, 1))))
    if cell.n.attr("linear_before_reset", 0):
        part = R.multiply(r, cell.gate(inner, 2))
    else:
        last = cell.gate(cell.recurrent, 2)
        part = R.nn.matmul(R.multiply(r, h), last)
        if cell.bias is not None:
            part = R.add(part, cell.gate(cell.bias, 2))
    new = g(cell.limited(R.add(cell.gate(x, 2), part)))
    return R.add(R.multiply(R.subtract(scalar(1, z), z), new), R.multiply(z, h)), c


def _lstm_step(cell: _Cell, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    f, g, last = cell.acts
    total = R.add(x, cell.state(h))
    i, o, forget, new = (cell.gate(total, k) for k in range(4))
    if cell.peephole is not None:
        pi, po, pf = (cell.gate(cell.peephole, k) for k in range(3))
        i, forget = R.add(i, R.multiply(pi, c)), R.add(forget, R.multiply(pf, c))
    i = f(cell.limited(i))
    forget = R.subtract(scalar(1, i), i) if cell.n.attr("input_forget", 0) else f(cell.limited(forget))
    c = R.add(R.multiply(forget, c), R.multiply(i, g(cell.limited(new))))
    if cell.peephole is not None:
        o = R.add(o, R.multiply(po, c))
    return R.multiply(f(cell.limited(o)), last(c)), c


_KINDS: dict[str, tuple[int, list[str], Callable[..., tuple[Any, Any]]]] = {
    "RNN": (1, ["Tanh"], _rnn_step),
    "GRU": (3, ["Sigmoid", "Tanh"], _gru_step),
    "LSTM": (4, ["Sigmoid", "Tanh", "Tanh"], _lstm_step),
}


def _part(e: Any, i: int) -> Any:
    """One direction of a tensor."""
    return R.squeeze(R.strided_slice(e, [i], [i + 1], axes=[0]), [0])


def _cell(n: Node, d: int, gates: int, names: list[str]) -> tuple[_Cell, Any, Any]:
    """The cell of a direction, its input weights and their bias."""
    hidden = static_shape(n[2])[2]
    w = R.transpose(_part(n[1], d), [1, 0])
    r = R.transpose(_part(n[2], d), [1, 0])
    wb = rb = None
    if n.has(3):
        both = _part(n[3], d)
        wide = gates * hidden
        wb, rb = (
            R.expand_dims(R.strided_slice(both, [i * wide], [(i + 1) * wide], axes=[0]), 0) for i in (0, 1)
        )
    given = n.attr("activations") or names * 2
    alphas, betas = list(n.attr("activation_alpha", [])), list(n.attr("activation_beta", []))
    acts = []
    for i in range(len(names)):
        at = d * len(names) + i
        if at >= len(given):
            raise n.refuse(f"{len(given)} activations where {len(names)} are needed for each direction")
        alpha = alphas[at] if at < len(alphas) else None
        beta = betas[at] if at < len(betas) else None
        acts.append(_activation(given[at], alpha, beta))
    peep = R.expand_dims(_part(n[7], d), 0) if n.op_type == "LSTM" and n.has(7) else None
    return _Cell(hidden, r, rb, peep, acts, float(n.attr("clip", 0.0)), n), w, wb


@converter("RNN", "GRU", "LSTM")
def recurrent(n: Node) -> Any:
    gates, names, step = _KINDS[n.op_type]
    x = n[0]
    batched = n.flag("layout", 0)
    if batched:
        x = R.transpose(x, [1, 0, 2])
    length, batch, width = shape_of(x)
    if not isinstance(length, int) or length > _UNROLLED:
        found = _scanned(n, x, batched)
        if found is not None:
            return found
    if not isinstance(length, int) or not isinstance(width, int):
        raise n.refuse(f"a sequence of shape {shape_of(x)} needs sizes that are known at import; give shape=")
    if length > _LONGEST:
        raise n.refuse(f"a sequence of {length} steps is too long to unroll (at most {_LONGEST})")
    direction = n.attr("direction", "forward")
    count = 2 if direction == "bidirectional" else 1
    lengths = cast(n[4], "int32") if n.has(4) else None
    outs, lasts, cells = [], [], []
    for d in range(count):
        cell, w, bias = _cell(n, d, gates, names)
        rows = R.reshape(x, [-1, width])
        flat = R.nn.matmul(as_quantized(rows) if n.attr(QUANTIZED) else rows, w)
        if bias is not None:
            flat = R.add(flat, bias)
        seen = R.reshape(flat, [length, batch, gates * cell.hidden])
        h, c = (_initial(n, i, d, batch, cell.hidden, dtype_of(x), batched) for i in (5, 6))
        backward = direction == "reverse" or d == 1
        ys: list[Any] = [None] * length
        for t in reversed(range(length)) if backward else range(length):
            new, state = step(cell, _part(seen, t), h, c)
            if lengths is not None:
                live = R.expand_dims(R.greater(lengths, constant(np.int32(t))), 1)
                ys[t] = R.where(live, new, scalar(0, new))
                h, c = R.where(live, new, h), R.where(live, state, c)
            else:
                ys[t], h, c = new, new, state
        outs.append(R.stack(ys, 0))
        lasts.append(h)
        cells.append(c)
    y = R.stack(outs, 1)  # (length, directions, batch, hidden)
    y_h, y_c = R.stack(lasts, 0), R.stack(cells, 0)
    if batched:
        y, y_h, y_c = R.transpose(y, [2, 0, 1, 3]), R.transpose(y_h, [1, 0, 2]), R.transpose(y_c, [1, 0, 2])
    return [y, y_h, y_c] if n.op_type == "LSTM" else [y, y_h]


def _scanned(n: Node, x: Any, batched: bool) -> Any:
    """A layer of the usual activations as one operator, whatever the length; None where it has other wishes."""
    gates, names, _ = _KINDS[n.op_type]
    given = n.attr("activations")
    plain = not given or [a.lower() for a in given] in (
        [a.lower() for a in names],
        [a.lower() for a in names * 2],
    )
    if n.op_type == "RNN" or not plain or n.attr("clip") or n.attr("input_forget", 0) or n.has(4):
        return None
    if n.op_type == "LSTM" and n.has(7):
        return None
    kind, batch = dtype_of(x), shape_of(x)[1]
    hidden = static_shape(n[2])[2]
    direction = n.attr("direction", "forward")
    outs, lasts, cells = [], [], []
    for d in range(2 if direction == "bidirectional" else 1):
        biases = [constant(np.zeros(gates * hidden), kind)] * 2
        if n.has(3):
            both = _part(n[3], d)
            wide = gates * hidden
            biases = [R.strided_slice(both, [i * wide], [(i + 1) * wide], axes=[0]) for i in (0, 1)]
        weights = [_part(n[1], d), _part(n[2], d), *biases]
        h, c = (_initial(n, i, d, batch, hidden, kind, batched) for i in (5, 6))
        backward = direction == "reverse" or d == 1
        if n.op_type == "LSTM":
            states, memory = R.nn.lstm(x, *weights, h, c, reverse=backward, weight_layout="IOFG")
            cells.append(_last(memory))
        else:
            before = n.flag("linear_before_reset", 0)
            states = R.nn.gru(x, *weights, h, backward, before, "ZRN")
        lasts.append(_last(states))
        outs.append(R.reverse(states, 0) if backward else states)
    y, y_h = R.stack(outs, 1), R.stack(lasts, 0)
    y_c = R.stack(cells, 0) if cells else None
    if batched:
        y, y_h = R.transpose(y, [2, 0, 1, 3]), R.transpose(y_h, [1, 0, 2])
        y_c = None if y_c is None else R.transpose(y_c, [1, 0, 2])
    return [y, y_h, y_c] if n.op_type == "LSTM" else [y, y_h]


def _last(states: Any) -> Any:
    """The state after the last step."""
    return R.squeeze(R.strided_slice(states, [-1], [2**31 - 1], axes=[0]), [0])


def _initial(n: Node, at: int, d: int, batch: Any, hidden: int, kind: str, batched: bool) -> Any:
    if n.has(at) and (at == 5 or n.op_type == "LSTM"):
        found = R.transpose(n[at], [1, 0, 2]) if batched else n[at]
        return _part(found, d)
    return R.zeros([batch, hidden], kind)
