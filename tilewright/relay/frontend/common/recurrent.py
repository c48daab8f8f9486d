"""Recurrent layers: LSTM, GRU and plain ones, step by step, or as one operator where the sequence is long.

x[0] ──▶ cell ──▶ x[1] ──▶ cell ──▶ …        the products with the inputs are one product for all steps;
       h ╱  ╲ h         h ╱  ╲ h              what remains in a step is the product with the state
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .build import R, Refusal, cast, constant, dtype_of, scalar, shape_of, static_shape

_LONGEST = 4096
_UNROLLED = 128  # longer sequences become one operator, if possible
Curve = Callable[[Any], Any]


@dataclass(slots=True)
class Layer:
    """One direction of a layer. Weights have rows for each gate, and the gates are in the order of `layout`."""

    layout: str  # of an LSTM an order of IFGO (input, forget, new, output), of a GRU one of RZN; H: no gates
    w_in: Any
    w_state: Any
    b_in: Any = None
    b_state: Any = None
    curves: Sequence[Curve] | None = None  # None: sigmoid and tanh, as is usual
    clip: float = 0.0  # limit of the inputs of activations; 0 is none
    peephole: Any = None  # of an LSTM: (3 · hidden) numbers for input, output, forget
    coupled: bool = False  # the forget gate is 1 - input gate
    linear_before_reset: bool = True  # of a GRU: the reset gate comes after the product with the state
    projection: Any = None  # of an LSTM: weights of the projection of the state
    rounded: Curve | None = None  # rounding of the operands of products

    @property
    def hidden(self) -> int:
        return static_shape(self.w_state)[0] // len(self.layout)

    def is_usual(self) -> bool:
        """Whether `nn.lstm` or `nn.gru` implements this layer; they do not round operands of products."""
        plain = self.curves is None and not self.clip and self.peephole is None and not self.coupled
        return plain and self.layout != "H" and self.projection is None

    def product(self, x: Any, weight: Any, bias: Any) -> Any:
        made = R.nn.dense(x if self.rounded is None else self.rounded(x), weight)
        return made if bias is None else R.add(made, bias)

    def gate(self, x: Any, letter: str, axis: int = 1) -> Any:
        at = self.layout.index(letter) * self.hidden
        return R.strided_slice(x, [at], [at + self.hidden], axes=[axis])

    def limited(self, x: Any) -> Any:
        return R.clip(x, -self.clip, self.clip) if self.clip > 0 else x

    # -- one step: what the input gives, already multiplied by its weights; the states before; those after ---------
    def step(self, x: Any, states: list[Any]) -> list[Any]:
        if self.layout == "H":
            (f,) = self.curves or (R.tanh,)
            return [f(self.limited(R.add(x, self.product(states[0], self.w_state, self.b_state))))]
        return self.gru(x, *states) if "R" in self.layout else self.lstm(x, *states)

    def gru(self, x: Any, h: Any) -> list[Any]:
        f, g = self.curves or (R.sigmoid, R.tanh)
        inner = self.product(h, self.w_state, self.b_state)
        z, r = (f(self.limited(R.add(self.gate(x, k), self.gate(inner, k)))) for k in "ZR")
        if self.linear_before_reset:
            part = R.multiply(r, self.gate(inner, "N"))
        else:
            bias = None if self.b_state is None else self.gate(self.b_state, "N", 0)
            part = self.product(R.multiply(r, h), self.gate(self.w_state, "N", 0), bias)
        new = g(self.limited(R.add(self.gate(x, "N"), part)))
        return [R.add(new, R.multiply(z, R.subtract(h, new)))]

    def lstm(self, x: Any, h: Any, c: Any) -> list[Any]:
        f, g, last = self.curves or (R.sigmoid, R.tanh, R.tanh)
        total = R.add(x, self.product(h, self.w_state, self.b_state))
        i, forget, new, o = (self.gate(total, k) for k in "IFGO")
        if self.peephole is not None:
            size = self.hidden
            peeps = (R.strided_slice(self.peephole, [k * size], [(k + 1) * size], axes=[0]) for k in range(3))
            pi, po, pf = peeps
            i, forget = R.add(i, R.multiply(c, pi)), R.add(forget, R.multiply(c, pf))
        i = f(self.limited(i))
        forget = R.subtract(scalar(1, i), i) if self.coupled else f(self.limited(forget))
        c = R.add(R.multiply(forget, c), R.multiply(i, g(self.limited(new))))
        if self.peephole is not None:
            o = R.add(o, R.multiply(c, po))
        h = R.multiply(f(self.limited(o)), last(c))
        return [h if self.projection is None else R.nn.dense(h, self.projection), c]


def run(
    layer: Layer, x: Any, states: list[Any], backward: bool = False, lengths: Any = None
) -> tuple[Any, list[Any]]:
    """(the outputs of all steps, the states after the last) over x[step, batch, input].

    `lengths` are the lengths of the sequences of the batch; later outputs are 0, and do not change the state.
    """
    length, batch, width = shape_of(x)
    if (not isinstance(length, int) or length > _UNROLLED) and layer.is_usual() and lengths is None:
        return _scanned(layer, x, states, backward)
    if not isinstance(length, int) or not isinstance(width, int):
        raise Refusal(f"a sequence of shape {shape_of(x)} needs sizes that are known at import; give shape=")
    if length > _LONGEST:
        raise Refusal(f"a sequence of {length} steps is too long to unroll (at most {_LONGEST})")
    flat = layer.product(R.reshape(x, [-1, width]), layer.w_in, layer.b_in)
    seen = R.reshape(flat, [length, batch, shape_of(flat)[1]])
    outs: list[Any] = [None] * length
    for t in reversed(range(length)) if backward else range(length):
        made = layer.step(R.squeeze(R.strided_slice(seen, [t], [t + 1], axes=[0]), [0]), states)
        outs[t] = made[0]
        if lengths is not None:
            live = R.expand_dims(R.greater(cast(lengths, "int32"), constant(np.int32(t))), 1)
            outs[t] = R.where(live, made[0], scalar(0, made[0]))
            made = [R.where(live, new, old) for new, old in zip(made, states, strict=True)]
        states = made
    return R.stack(outs, 0), states


def _scanned(layer: Layer, x: Any, states: list[Any], backward: bool) -> tuple[Any, list[Any]]:
    """A layer as one operator, for any length."""
    none = constant(np.zeros(len(layer.layout) * layer.hidden), dtype_of(x))
    biases = [none if b is None else b for b in (layer.b_in, layer.b_state)]
    weights = [layer.w_in, layer.w_state, *biases, *states]
    if "R" in layer.layout:
        every = [R.nn.gru(x, *weights, backward, layer.linear_before_reset, layer.layout)]
    else:
        every = list(R.nn.lstm(x, *weights, backward, layer.layout))
    last = [R.squeeze(R.strided_slice(e, [-1], [2**31 - 1], axes=[0]), [0]) for e in every]
    return (R.reverse(every[0], 0) if backward else every[0]), last
