"""LSTM, GRU and plain recurrent layers, in torch's order of weights."""

from __future__ import annotations

from typing import Any

from ...expr import Expr
from ..common.recurrent import Layer, run
from .build import NN, R, permute
from .table import Refusal, Site, aten


def _recurrent(name: str, layout: str, curves: Any = None) -> None:
    @aten(f"{name}.input")
    def work(
        n: Site,
        x: Expr,
        hx: Any,
        params: list[Expr],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Expr]:
        """All layers: (outputs, last states …) as torch orders them."""
        if dropout and train:
            raise Refusal("dropout is random in training; export the model in eval() mode")
        x = permute(x, [1, 0, 2]) if batch_first else x
        states: list[Expr] = hx if isinstance(hx, list) else [hx]
        ways = 2 if bidirectional else 1
        each = len(params) // (num_layers * ways)
        rows = [_rows(s, num_layers * ways) for s in states]
        last: list[list[Expr]] = [[] for _ in states]
        for layer in range(num_layers):
            outs = []
            for way in range(ways):
                at = layer * ways + way
                w_in, w_state, *rest = params[at * each : (at + 1) * each]
                b_in, b_state = (rest.pop(0), rest.pop(0)) if has_biases else (None, None)
                one = Layer(
                    layout, w_in, w_state, b_in, b_state, curves, projection=rest[0] if rest else None
                )
                out, state = run(one, x, [r[at] for r in rows], way == 1)
                outs.append(out)
                for kept, s in zip(last, state, strict=True):
                    kept.append(s)
            x = outs[0] if ways == 1 else R.concatenate(outs, 2)
        return [permute(x, [1, 0, 2]) if batch_first else x, *(R.stack(s, 0) for s in last)]


def _rows(x: Expr, count: int) -> list[Expr]:
    parts = R.split(x, count, 0) if count > 1 else [x]
    return [R.squeeze(p, [0]) for p in parts]


_recurrent("lstm", "IFGO")
_recurrent("gru", "RZN")
_recurrent("rnn_tanh", "H")
_recurrent("rnn_relu", "H", [NN.relu])
