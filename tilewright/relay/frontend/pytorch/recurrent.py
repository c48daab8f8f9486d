"""LSTM, GRU and plain recurrent layers, step by step.

for each layer, for each direction:    x[0] ──▶ cell ──▶ x[1] ──▶ cell ──▶ …
                                              h ╱  ╲ h         h ╱  ╲ h
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...expr import Expr
from .build import NN, R, permute, reshape, shape_of, sizes_of
from .table import Refusal, Site, aten

__all__: list[str] = []

# A cell: (what the input gives, already multiplied by its weights; the state; w_hh, b_hh, w_hr) -> the new state.
Cell = Callable[[Expr, list[Expr], Expr, Any, Any], list[Expr]]


def _product(x: Expr, weight: Expr, bias: Expr | None) -> Expr:
    made = NN.dense(x, weight)
    return made if bias is None else R.add(made, bias)


def _lstm_cell(gates_x: Expr, state: list[Expr], w_hh: Expr, b_hh: Any, w_hr: Any) -> list[Expr]:
    h, c = state
    gates = R.add(gates_x, _product(h, w_hh, b_hh))
    i, f, g, o = R.split(gates, 4, 1)
    kept = R.add(R.multiply(R.sigmoid(f), c), R.multiply(R.sigmoid(i), R.tanh(g)))
    out = R.multiply(R.sigmoid(o), R.tanh(kept))
    return [out if w_hr is None else NN.dense(out, w_hr), kept]


def _gru_cell(gates_x: Expr, state: list[Expr], w_hh: Expr, b_hh: Any, w_hr: Any) -> list[Expr]:
    (h,) = state
    r_x, z_x, n_x = R.split(gates_x, 3, 1)
    r_h, z_h, n_h = R.split(_product(h, w_hh, b_hh), 3, 1)
    reset, update = R.sigmoid(R.add(r_x, r_h)), R.sigmoid(R.add(z_x, z_h))
    new = R.tanh(R.add(n_x, R.multiply(reset, n_h)))
    return [R.add(new, R.multiply(update, R.subtract(h, new)))]


def _plain_cell(curve: Any) -> Cell:
    def cell(gates_x: Expr, state: list[Expr], w_hh: Expr, b_hh: Any, w_hr: Any) -> list[Expr]:
        return [curve(R.add(gates_x, _product(state[0], w_hh, b_hh)))]

    return cell


def _direction(
    cell: Cell, x: Expr, state: list[Expr], weights: Sequence[Any], backwards: bool
) -> tuple[Expr, list[Expr]]:
    """(the outputs of all steps, the last state) of one direction of a layer over x[step, batch, feature]."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    steps, batch, width = sizes_of(x, "a recurrent layer")
    # What the inputs give does not depend on the state: one product for all steps.
    every = _product(reshape(x, (steps * batch, width)), w_ih, b_ih)
    parts = R.split(every, steps, 0) if steps > 1 else [every]
    outs: list[Any] = [None] * steps
    for t in reversed(range(steps)) if backwards else range(steps):
        state = cell(parts[t], state, w_hh, b_hh, w_hr)
        outs[t] = state[0]
    return (R.stack(outs, 0) if steps > 1 else R.expand_dims(outs[0], 0)), state


def _layers(
    n: Site,
    cell: Cell,
    x: Expr,
    states: list[Expr],
    params: list[Expr],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    projected: bool = False,
) -> list[Expr]:
    """All layers: (outputs, last states …) as torch orders them."""
    x = permute(x, [1, 0, 2]) if batch_first else x
    ways = 2 if bidirectional else 1
    each = 2 + (2 if has_biases else 0) + int(projected)
    rows = [_rows(s, num_layers * ways) for s in states]
    last: list[list[Expr]] = [[] for _ in states]
    for layer in range(num_layers):
        outs = []
        for way in range(ways):
            at = layer * ways + way
            given = params[at * each : (at + 1) * each]
            biases = given[2:4] if has_biases else [None, None]
            weights = [given[0], given[1], *biases, given[-1] if projected else None]
            out, state = _direction(cell, x, [r[at] for r in rows], weights, way == 1)
            outs.append(out)
            for kept, s in zip(last, state, strict=True):
                kept.append(s)
        x = outs[0] if ways == 1 else R.concatenate(outs, 2)
    ends = [R.stack(s, 0) if len(s) > 1 else R.expand_dims(s[0], 0) for s in last]
    return [permute(x, [1, 0, 2]) if batch_first else x, *ends]


def _rows(x: Expr, count: int) -> list[Expr]:
    parts = R.split(x, count, 0) if count > 1 else [x]
    return [R.squeeze(p, [0]) for p in parts]


def _check(dropout: float, train: bool) -> None:
    if dropout and train:
        raise Refusal("dropout is random in training; export the model in eval() mode")


@aten("lstm.input")
def lstm(
    n: Site,
    x: Expr,
    hx: list[Expr],
    params: list[Expr],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Expr]:
    _check(dropout, train)
    h, c = hx
    projected = shape_of(h)[-1] != shape_of(c)[-1]
    return _layers(
        n, _lstm_cell, x, [h, c], params, has_biases, num_layers, bidirectional, batch_first, projected
    )


def _recurrent(name: str, cell: Cell) -> None:
    @aten(f"{name}.input")
    def work(
        n: Site,
        x: Expr,
        hx: Expr,
        params: list[Expr],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Expr]:
        _check(dropout, train)
        return _layers(n, cell, x, [hx], params, has_biases, num_layers, bidirectional, batch_first)


_recurrent("gru", _gru_cell)
_recurrent("rnn_tanh", _plain_cell(R.tanh))
_recurrent("rnn_relu", _plain_cell(NN.relu))
