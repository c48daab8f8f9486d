"""Recurrent layers against torch."""

from __future__ import annotations

import numpy as np
import pytest
from topi_sweeps import sweep

import tilewright as tvm
from tilewright import te, topi

torch = pytest.importorskip("torch")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32") * 0.5


def layer(kind, gates, steps=4, batch=2, width=3, hidden=5, **more):
    """A torch layer, its weights as arrays and placeholders."""
    torch.manual_seed(0)
    net = getattr(torch.nn, kind)(width, hidden, **more)
    x = normal(steps, batch, width)
    arrays = {
        "Xs": x,
        "Wi": net.weight_ih_l0.detach().numpy(),
        "Wh": net.weight_hh_l0.detach().numpy(),
        "Bi": net.bias_ih_l0.detach().numpy(),
        "Bh": net.bias_hh_l0.detach().numpy(),
        "h_init": normal(batch, net.weight_hh_l0.shape[1], seed=1),
    }
    return net, arrays, {n: te.placeholder(a.shape, "float32", n) for n, a in arrays.items()}


@pytest.mark.slow
@pytest.mark.parametrize("reverse", sweep([True, False]))
@pytest.mark.parametrize(("steps", "batch"), sweep([(4, 2), (1, 1)], several=True))
def test_lstm(check, reverse, steps, batch):
    net, arrays, places = layer("LSTM", 4, steps, batch)
    arrays["c_init"] = normal(batch, 5, seed=2)
    places["c_init"] = te.placeholder((batch, 5), "float32", "c_init")
    hidden, cell = topi.nn.lstm(**places, reverse=reverse)
    order = range(steps)[::-1] if reverse else range(steps)
    h, c = (torch.from_numpy(arrays[n])[None] for n in ("h_init", "c_init"))
    hs, cs = [], []
    with torch.no_grad():
        for t in order:
            _, (h, c) = net(torch.from_numpy(arrays["Xs"][t : t + 1]), (h, c))
            hs.append(h[0].numpy())
            cs.append(c[0].numpy())
    check([hidden, cell], {places[n]: arrays[n] for n in places}, [np.stack(hs), np.stack(cs)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_lstm_with_projection_and_defaults(check):
    net, arrays, places = layer("LSTM", 4, proj_size=2)
    arrays["proj"] = net.weight_hr_l0.detach().numpy()
    places["proj"] = te.placeholder(arrays["proj"].shape, "float32", "proj")
    del places["h_init"]
    with torch.no_grad():
        wanted, (_, last) = net(torch.from_numpy(arrays["Xs"]))
    hidden, cell = topi.nn.lstm(**places)
    feed = {p: arrays[n] for n, p in places.items()}
    check(hidden, feed, wanted.numpy())
    n = te.create_prim_func([*places.values(), cell])
    out = np.zeros((4, 2, 5), "float32")
    tvm.build(n)(*feed.values(), out)
    np.testing.assert_allclose(out[-1], last[0].numpy(), 1e-5, 1e-5)


@pytest.mark.slow
def test_lstm_with_peepholes_and_another_order(check):
    steps, batch, hidden = 3, 2, 4
    x, wi, wh = normal(steps, batch, 3), normal(16, 3, seed=1), normal(16, hidden, seed=2)
    peep = {n: normal(batch, hidden, seed=3 + i) for i, n in enumerate(("p_i", "p_f", "p_o"))}
    sigmoid = lambda v: 1 / (1 + np.exp(-v.astype("float64")))
    h, c = np.zeros((batch, hidden)), np.zeros((batch, hidden))
    hs = []
    for t in range(steps):
        o, i, f, g = np.split(x[t] @ wi.T + h @ wh.T, 4, 1)
        c_next = sigmoid(f + peep["p_f"] * c) * c + sigmoid(i + peep["p_i"] * c) * np.tanh(g)
        h, c = sigmoid(o + peep["p_o"] * c_next) * np.tanh(c_next), c_next
        hs.append(h)
    arrays = {"Xs": x, "Wi": wi, "Wh": wh, **peep}
    places = {n: te.placeholder(a.shape, "float32", n) for n, a in arrays.items()}
    out, _ = topi.nn.lstm(**places, weight_layout="OIFG")
    check(out, {places[n]: arrays[n] for n in places}, np.stack(hs))


@pytest.mark.slow
@pytest.mark.parametrize("reverse", sweep([False, True], 1))
def test_gru(check, reverse):
    net, arrays, places = layer("GRU", 3)
    x = np.ascontiguousarray(arrays["Xs"][::-1]) if reverse else arrays["Xs"]
    with torch.no_grad():
        wanted, _ = net(torch.from_numpy(x), torch.from_numpy(arrays["h_init"])[None])
    out = topi.nn.gru(**places, reverse=reverse)
    check(out, {places[n]: arrays[n] for n in places}, wanted.numpy())


@pytest.mark.slow
def test_gru_with_the_reset_inside(check):
    _, arrays, places = layer("GRU", 3)
    sigmoid = lambda v: 1 / (1 + np.exp(-v.astype("float64")))
    wr, wz, wn = np.split(arrays["Wh"], 3)
    bias = arrays["Bi"] + arrays["Bh"]
    h, hs = arrays["h_init"].astype("float64"), []
    for x in arrays["Xs"]:
        r, z, n = np.split(x @ arrays["Wi"].T + bias, 3, 1)
        r, z = sigmoid(r + h @ wr.T), sigmoid(z + h @ wz.T)
        h = (1 - z) * np.tanh(n + (r * h) @ wn.T) + z * h
        hs.append(h)
    out = topi.nn.gru(**places, linear_before_reset=False)
    check(out, {places[n]: arrays[n] for n in places}, np.stack(hs))


@pytest.mark.slow
def test_rnn(check):
    net, arrays, places = layer("RNN", 1)
    with torch.no_grad():
        wanted, _ = net(torch.from_numpy(arrays["Xs"]), torch.from_numpy(arrays["h_init"])[None])
    check(topi.nn.rnn(**places), {places[n]: arrays[n] for n in places}, wanted.numpy())


def _place(*shape):
    return te.placeholder(shape, "float32", "A")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: topi.nn.lstm(_place(3, 2, 4), _place(6, 4), _place(6, 2)), "do not make 4 gates"),
        (lambda: topi.nn.lstm(_place(3, 2, 4), _place(8, 4), _place(8, 3)), r"Wh has shape \(8, 3\)"),
        (lambda: topi.nn.gru(_place(3, 2, 4), _place(6, 5), _place(6, 2)), r"Wi has shape \(6, 5\)"),
        (
            lambda: topi.nn.lstm(_place(3, 2, 4), _place(8, 4), _place(8, 2), weight_layout="IFGX"),
            "weight_layout is 'IFGX'",
        ),
        (lambda: topi.nn.rnn(_place(3, 4), _place(2, 4), _place(2, 2)), "Xs has 2 dimensions"),
    ],
)
def test_refusals(make, reason):
    with pytest.raises(tvm.TVMError, match=reason):
        make()
