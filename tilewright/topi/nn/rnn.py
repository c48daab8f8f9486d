"""Recurrent layers: a product with the inputs for all steps at once, then a scan over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from .. import tag
from ..math import cast
from ..reduction import accumulator
from ..utils import fail, injective, same_size, shape_text, static_int
from .stages import float_tensor

__all__ = ["gru", "lstm", "rnn"]

Activation = Callable[[Any], Any]


# ---------------------------------------------------------------------------- parts
class _Cell:
    """The inputs of a layer with `gates` products per step, checked; step t of a scan reads input t - 1."""

    def __init__(
        self, name: str, xs: Any, wi: Any, wh: Any, biases: dict[str, Any], gates: int, reverse: bool
    ) -> None:
        self.name, self.gates, self.reverse = name, gates, reverse
        self.xs = self.floats("Xs", xs, 3)
        self.wi, self.wh = self.floats("Wi", wi, 2), self.floats("Wh", wh, 2)
        self.steps, self.batch, width = self.xs.shape
        rows = static_int(name, "the rows of Wi", self.wi.shape[0])
        if rows % gates:
            raise fail(name, f"Wi has {rows} rows, which do not make {gates} gates of one size")
        self.hidden = rows // gates
        self.out = self.wh.shape[1]
        self.need("Wi", self.wi, (rows, width))
        self.need("Wh", self.wh, (rows, self.out))
        self.biases = {n: None if b is None else self.vector(n, b, rows) for n, b in biases.items()}

    def floats(self, argument: str, value: Any, ndim: int) -> te.Tensor:
        held = float_tensor(self.name, argument, value)
        if len(held.shape) != ndim:
            raise fail(self.name, f"{argument} has {len(held.shape)} dimensions and must have {ndim}")
        return held

    def need(self, argument: str, value: te.Tensor, shape: tuple[Any, ...]) -> te.Tensor:
        wanted = [s if isinstance(s, PrimExpr) else te.const(s, "int32") for s in shape]
        if len(value.shape) != len(wanted) or not all(map(same_size, value.shape, wanted)):
            given = shape_text(value.shape)
            raise fail(self.name, f"{argument} has shape {given} and must have {shape_text(wanted)}")
        return value

    def vector(self, argument: str, value: Any, size: int) -> te.Tensor:
        return self.need(argument, self.floats(argument, value, 1), (size,))

    def start(self, argument: str, value: Any, size: Any) -> te.Tensor:
        """What a state starts from, zeros if it is not given, as one step of a scan."""
        given = (
            None
            if value is None
            else self.need(argument, self.floats(argument, value, 2), (self.batch, size))
        )
        zero = te.const(0, self.xs.dtype)
        return injective(
            self.name,
            (1, self.batch, size),
            lambda _, b, h: zero if given is None else given(b, h),
            tag.INJECTIVE,
            f"T_{argument}",
        )

    def state(self, name: str, size: Any) -> te.Tensor:
        return te.placeholder((self.steps + 1, self.batch, size), self.xs.dtype, name)

    def gated(self, name: str, steps: Any, x: Callable[..., PrimExpr], weight: te.Tensor) -> te.Tensor:
        """The product of a row of each step with the weights: [steps, batch, gates, hidden]."""
        k = te.reduce_axis((0, weight.shape[1]), "k")

        def element(t: Any, b: Any, g: Any, h: Any) -> PrimExpr:
            return self.summed(x(t, b, k.var), weight(g * self.hidden + h, k.var), k)

        shape = (steps, self.batch, self.gates, self.hidden)
        return self.narrow(injective(self.name, shape, element, tag.COMM_REDUCE, name))

    def inputs(self) -> te.Tensor:
        """The product of every input with Wi."""
        return self.gated("T_input_gates", self.steps, self.xs, self.wi)

    def products(self, state: te.Tensor) -> te.Tensor:
        """The product of the state before each step with Wh."""
        return self.gated("T_hidden_gates", self.steps + 1, lambda t, b, k: state(t - 1, b, k), self.wh)

    def summed(self, a: PrimExpr, b: PrimExpr, k: Any) -> PrimExpr:
        """The sum of products over an axis, in the accumulator type."""
        wide = accumulator(self.xs.dtype)
        return te.sum(ops.cast(wide, a) * ops.cast(wide, b), axis=k)

    def narrow(self, sums: te.Tensor) -> te.Tensor:
        return cast(sums, self.xs.dtype)

    def time(self, t: PrimExpr) -> PrimExpr:
        """Which input step t of the scan reads."""
        return self.steps - t if self.reverse else t - 1

    def bias(self, name: str, gate: int, h: PrimExpr) -> PrimExpr | None:
        held = self.biases[name]
        return None if held is None else held(gate * self.hidden + h)

    def stage(self, name: str, size: Any, f: Callable[..., PrimExpr], kind: str = tag.INJECTIVE) -> te.Tensor:
        return injective(self.name, (self.steps + 1, self.batch, size), f, kind, name)

    def without_start(self, states: te.Tensor, name: str) -> te.Tensor:
        shape = (self.steps, *states.shape[1:])
        return injective(self.name, shape, lambda t, b, h: states(t + 1, b, h), tag.INJECTIVE, name)


def _sum(first: PrimExpr, *more: PrimExpr | None) -> PrimExpr:
    for m in more:
        first = first if m is None else first + m
    return first


def _order(name: str, layout: str, letters: str) -> dict[str, int]:
    if sorted(layout) != sorted(letters):
        raise fail(name, f"weight_layout is {layout!r}", f"it is an order of the letters {letters}")
    return {letter: layout.index(letter) for letter in letters}


# ---------------------------------------------------------------------------- layers
def lstm(
    Xs: Any,
    Wi: Any,
    Wh: Any,
    Bi: Any = None,
    Bh: Any = None,
    h_init: Any = None,
    c_init: Any = None,
    proj: Any = None,
    p_i: Any = None,
    p_f: Any = None,
    p_o: Any = None,
    f_act: Activation = te.sigmoid,
    g_act: Activation = te.tanh,
    h_act: Activation = te.tanh,
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[te.Tensor, te.Tensor]:
    """Long short-term memory over [steps, batch, inputs]: the hidden and the cell states after each step.

        i, f, o = f_act(Wi·x + Wh·h + p·c),  g = g_act(Wi·x + Wh·h)
        c = f·c + i·g,                       h = o·h_act(c), then proj·h if given

    Rows of Wi and Wh are gates in the order `weight_layout`. In reverse the last input is the first step.
    """
    cell = _Cell("nn.lstm", Xs, Wi, Wh, {"Bi": Bi, "Bh": Bh}, 4, reverse)
    at = _order(cell.name, weight_layout, "IFGO")
    peep = {
        gate: None if p is None else cell.need(n, cell.floats(n, p, 2), (cell.batch, cell.hidden))
        for gate, n, p in (("I", "p_i", p_i), ("F", "p_f", p_f), ("O", "p_o", p_o))
    }
    hidden, width = cell.hidden, cell.out
    if proj is None:
        cell.need("Wh", cell.wh, (4 * hidden, hidden))
    project = None if proj is None else cell.need("proj", cell.floats("proj", proj, 2), (width, hidden))
    inputs = cell.inputs()
    h_state, c_state = cell.state("h_state", width), cell.state("c_state", hidden)
    products = cell.products(h_state)

    def gate(letter: str, t: Any, b: Any, h: Any, memory: PrimExpr | None) -> PrimExpr:
        g = at[letter]
        looked = peep.get(letter)
        peeped = None if looked is None or memory is None else looked(b, h) * memory
        biases = cell.bias("Bi", g, h), cell.bias("Bh", g, h)
        return _sum(inputs(cell.time(t), b, g, h) + products(t, b, g, h), *biases, peeped)

    def next_cell(t: Any, b: Any, h: Any) -> PrimExpr:
        old = c_state(t - 1, b, h)
        fresh = f_act(gate("I", t, b, h, old)) * g_act(gate("G", t, b, h, None))
        return f_act(gate("F", t, b, h, old)) * old + fresh

    next_c = cell.stage("T_lstm_cell", hidden, next_cell)
    next_h = cell.stage(
        "T_lstm_hidden",
        hidden,
        lambda t, b, h: f_act(gate("O", t, b, h, next_c(t, b, h))) * h_act(next_c(t, b, h)),
    )
    if project is not None:
        k, before = te.reduce_axis((0, hidden), "k"), next_h
        projected = cell.stage(
            "T_lstm_projected",
            width,
            lambda t, b, h: cell.summed(before(t, b, k.var), project(h, k.var), k),
            tag.COMM_REDUCE,
        )
        next_h = cell.narrow(projected)
    starts = [cell.start("h_init", h_init, width), cell.start("c_init", c_init, hidden)]
    h_all, c_all = te.scan(starts, [next_h, next_c], [h_state, c_state], name="lstm_scan")
    return cell.without_start(h_all, "hidden_state"), cell.without_start(c_all, "cell_state")


def gru(
    Xs: Any,
    Wi: Any,
    Wh: Any,
    Bi: Any = None,
    Bh: Any = None,
    h_init: Any = None,
    f_act: Activation = te.sigmoid,
    g_act: Activation = te.tanh,
    reverse: bool = False,
    linear_before_reset: bool = True,
    weight_layout: str = "RZN",
) -> te.Tensor:
    """Gated recurrent units over [steps, batch, inputs]: the hidden state after each step.

        r, z = f_act(Wi·x + Wh·h),  n = g_act(Wi·x + r·(Wh·h)),  h = (1 - z)·n + z·h

    Without `linear_before_reset` the new gate is g_act(Wi·x + Wh·(r·h)). Rows of Wi and Wh are gates in the order
    `weight_layout`. In reverse the last input is the first step.
    """
    cell = _Cell("nn.gru", Xs, Wi, Wh, {"Bi": Bi, "Bh": Bh}, 3, reverse)
    at = _order(cell.name, weight_layout, "RZN")
    hidden = cell.hidden
    cell.need("Wh", cell.wh, (3 * hidden, hidden))
    inputs, state = cell.inputs(), cell.state("h_state", hidden)
    products = cell.products(state)

    def gate(letter: str, t: Any, b: Any, h: Any) -> PrimExpr:
        g = at[letter]
        biases = cell.bias("Bi", g, h), cell.bias("Bh", g, h)
        return f_act(_sum(inputs(cell.time(t), b, g, h) + products(t, b, g, h), *biases))

    new = at["N"]
    if linear_before_reset:

        def inner(t: Any, b: Any, h: Any) -> PrimExpr:
            return gate("R", t, b, h) * _sum(products(t, b, new, h), cell.bias("Bh", new, h))

    else:
        reset = cell.stage("T_gru_reset", hidden, lambda t, b, h: gate("R", t, b, h) * state(t - 1, b, h))
        k = te.reduce_axis((0, hidden), "k")
        sums = cell.stage(
            "T_gru_new",
            hidden,
            lambda t, b, h: cell.summed(reset(t, b, k.var), cell.wh(new * hidden + h, k.var), k),
            tag.COMM_REDUCE,
        )
        again = cell.narrow(sums)

        def inner(t: Any, b: Any, h: Any) -> PrimExpr:
            return _sum(again(t, b, h), cell.bias("Bh", new, h))

    def element(t: Any, b: Any, h: Any) -> PrimExpr:
        fresh = g_act(_sum(inputs(cell.time(t), b, new, h) + inner(t, b, h), cell.bias("Bi", new, h)))
        z = gate("Z", t, b, h)
        return (te.const(1, state.dtype) - z) * fresh + z * state(t - 1, b, h)

    update = cell.stage("T_gru_hidden", hidden, element)
    states = te.scan(cell.start("h_init", h_init, hidden), update, state, name="gru_scan")
    return cell.without_start(states, "hidden_state")


def rnn(
    Xs: Any,
    Wi: Any,
    Wh: Any,
    Bi: Any = None,
    Bh: Any = None,
    h_init: Any = None,
    act: Activation = te.tanh,
    reverse: bool = False,
) -> te.Tensor:
    """h = act(Wi·x + Wh·h) over [steps, batch, inputs]: the hidden state after each step."""
    cell = _Cell("nn.rnn", Xs, Wi, Wh, {"Bi": Bi, "Bh": Bh}, 1, reverse)
    hidden = cell.hidden
    cell.need("Wh", cell.wh, (hidden, hidden))
    inputs, state = cell.inputs(), cell.state("h_state", hidden)
    products = cell.products(state)

    def element(t: Any, b: Any, h: Any) -> PrimExpr:
        biases = cell.bias("Bi", 0, h), cell.bias("Bh", 0, h)
        return act(_sum(inputs(cell.time(t), b, 0, h) + products(t, b, 0, h), *biases))

    update = cell.stage("T_rnn_hidden", hidden, element)
    states = te.scan(cell.start("h_init", h_init, hidden), update, state, name="rnn_scan")
    return cell.without_start(states, "hidden_state")
