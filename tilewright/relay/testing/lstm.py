"""A recurrent network of LSTM cells, each a function that is called."""

from __future__ import annotations

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray
from ..analysis import free_vars
from ..expr import Call, Function, Tuple, TupleGetItem, Var
from ..op import nn
from ..op.creation import zeros
from ..op.elementwise import sigmoid, tanh
from ..op.rearrange import split
from ..scope_builder import ScopeBuilder
from ..ty import TensorType, TupleType
from .init import create_workload


def _types(num_hidden: int, batch_size: int, dtype: str) -> tuple[TensorType, TensorType, TensorType]:
    """The types of a state, of a weight and of a bias."""
    return (
        TensorType((batch_size, num_hidden), dtype),
        TensorType((4 * num_hidden, num_hidden), dtype),
        TensorType((4 * num_hidden,), dtype),
    )


def lstm_cell(num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = "") -> Function:
    """The function (inputs, (h, c), four parameters) -> (output, (h, c))."""
    state, weight, bias = _types(num_hidden, batch_size, dtype)
    inputs, states = Var("inputs", state), Var("states", TupleType((state, state)))
    from_input = (Var("i2h_weight", weight), Var("i2h_bias", bias))
    from_state = (Var("h2h_weight", weight), Var("h2h_bias", bias))
    sb = ScopeBuilder()

    def gates_of(x: Var | TupleGetItem, params: tuple[Var, Var]) -> Call:
        return nn.bias_add(nn.dense(x, params[0], units=4 * num_hidden), params[1])

    both = sb.let("gates", gates_of(inputs, from_input) + gates_of(TupleGetItem(states, 0), from_state))
    parts = split(both, 4, axis=1)
    take, forget, new, give = (sb.let(f"gate{i}", parts[i]) for i in range(4))
    kept = sigmoid(forget) * TupleGetItem(states, 1)
    c = sb.let("next_c", kept + sigmoid(take) * tanh(new))
    h = sb.let("next_h", sigmoid(give) * tanh(c))
    sb.ret(Tuple([h, Tuple([h, c])]))
    result = TupleType((state, TupleType((state, state))))
    return Function([inputs, states, *from_input, *from_state], sb.get(), result)


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """One cell after another, each with parameters and an input of its own: data, data1, data2, …"""
    state, weight, bias = _types(num_hidden, batch_size, dtype)
    sb = ScopeBuilder()
    zero = sb.let("zeros", zeros((batch_size, num_hidden), dtype))
    states, out = sb.let("init_states", Tuple([zero, zero])), zero
    for i in range(iterations):
        data = Var(f"data{i or ''}", state)
        params = [
            Var(f"{way}_{i}_{part}", kind)
            for way in ("i2h", "h2h")
            for part, kind in (("weight", weight), ("bias", bias))
        ]
        cell = lstm_cell(num_hidden, batch_size, dtype, f"lstm_{i}")
        made = sb.let(f"call_{i}", Call(cell, [data, states, *params]))
        out = sb.let(f"out_{i}", TupleGetItem(made, 0))
        states = sb.let(f"states_{i}", TupleGetItem(made, 1))
    sb.ret(out)
    body = sb.get()
    return Function(free_vars(body), body, state)


def get_workload(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network with random parameters."""
    mod, params = create_workload(get_net(iterations, num_hidden, batch_size, dtype))
    return mod, {name: value for name, value in params.items() if not name.startswith("data")}
