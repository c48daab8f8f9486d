"""Functions of JAX: imported, compiled, and held against JAX."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import jax_cases  # noqa: E402
from jax import lax  # noqa: E402

import tilewright  # noqa: E402
from tilewright import relay  # noqa: E402
from tilewright.ir.errors import FrontendError  # noqa: E402
from tilewright.relay.analysis import post_order  # noqa: E402
from tilewright.relay.frontend.jax import supported_primitives  # noqa: E402

from_jax = relay.frontend.from_jax


def _rand(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _check(function: Any, *args: Any) -> None:
    """Compare a function of some arrays, compiled, with JAX."""
    mod, params = from_jax(function, *args)
    got = jax_cases.run_compiled(mod, params, jax.tree_util.tree_leaves(args))
    want = jax.tree_util.tree_leaves(jax.jit(function)(*args))
    wrong = [jax_cases.difference(a, b) for a, b in zip(want, got, strict=True)]
    assert not any(wrong), wrong


def _check_on_machine(function: Any, *calls: Any, dynamic: Any = None) -> None:
    """Compare a function on the virtual machine with JAX; it is compiled for the first of the calls."""
    mod, params = from_jax(function, *calls[0], dynamic=dynamic)
    exe = relay.vm.compile(mod, target="llvm", params=params)
    machine = relay.vm.VirtualMachine(exe, tilewright.cpu())
    for args in calls:
        made = machine.invoke("main", *(np.asarray(a) for a in args))
        got = [made.numpy()] if hasattr(made, "numpy") else [m.numpy() for m in made]
        want = jax.tree_util.tree_leaves(jax.jit(function)(*args))
        wrong = [jax_cases.difference(a, b) for a, b in zip(want, got, strict=True)]
        assert not any(wrong), wrong


def _operators(function: Any, *args: Any) -> list[str]:
    mod, _ = from_jax(function, *args)
    return [e.op.name for e in post_order(mod["main"]) if isinstance(e, relay.Call)]


def _refusal(function: Any, *args: Any, **more: Any) -> str:
    with pytest.raises(FrontendError) as caught:
        from_jax(function, *args, **more)
    return str(caught.value)


# ---------------------------------------------------------------------------- primitives
@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("family", list(jax_cases.FAMILIES))
def test_family_agrees_with_jax(family: str) -> None:
    rows = jax_cases.cases(family)
    flat = [a for _, _, given in rows for a in given]

    def many(*arrays: Any) -> list[Any]:
        left = list(arrays)
        return [work(*[left.pop(0) for _ in given]) for _, work, given in rows]

    mod, params = from_jax(many, *flat)
    got = iter(jax_cases.run_compiled(mod, params, flat))
    wrong = []
    for (name, _, _), want in zip(rows, jax.jit(many)(*flat), strict=True):
        found = [jax_cases.difference(t, next(got)) for t in jax.tree_util.tree_leaves(want)]
        wrong += [f"{name}: {text}" for text in found if text]
    assert not wrong and next(got, None) is None, wrong


def test_primitives_of_networks_are_supported() -> None:
    names = (
        "add dot_general conv_general_dilated reduce_window_max gather scatter-add scan while cond sort top_k"
    )
    assert set(names.split()) <= set(supported_primitives())


# ---------------------------------------------------------------------------- networks
def _mlp() -> Any:
    """With weights as arguments."""

    def mlp(layers: Any, x: Any) -> Any:
        for layer in layers[:-1]:
            x = jax.nn.gelu(x @ layer["w"] + layer["b"])
        return jax.nn.log_softmax(x @ layers[-1]["w"] + layers[-1]["b"])

    layers = [{"w": _rand(a, b) / 4, "b": _rand(b)} for a, b in ((8, 16), (16, 16), (16, 5))]
    return mlp, layers, _rand(3, 8)


def _network(x: Any, layout: str) -> Any:
    """Convolutions with batch norm, depthwise ones, pools, a dense layer."""
    last = layout == "NHWC"
    numbers = ("NHWC", "HWIO", "NHWC") if last else ("NCHW", "OIHW", "NCHW")

    def kernel(h: int, w: int, i: int, o: int) -> Any:
        made = _rand(h, w, i, o) / np.sqrt(h * w * i)
        return made if last else made.transpose(3, 2, 0, 1)

    def channels(v: Any) -> Any:
        return v if last else v[:, None, None]

    def conv(x: Any, w: Any, strides: Any = (1, 1), groups: int = 1) -> Any:
        return lax.conv_general_dilated(
            x, w, strides, "SAME", dimension_numbers=numbers, feature_group_count=groups
        )

    x = conv(x, kernel(3, 3, 3, 8), (2, 2))
    mean, variance = channels(_rand(8)), channels(jnp.abs(_rand(8)) + 0.5)
    x = jax.nn.relu((x - mean) / jnp.sqrt(variance + 1e-5) * channels(_rand(8)) + channels(_rand(8)))
    x = jax.nn.silu(conv(x, kernel(3, 3, 1, 8), groups=8)) + x
    dims, strides = ((1, 2, 2, 1), (1, 2, 2, 1)) if last else ((1, 1, 2, 2), (1, 1, 2, 2))
    x = lax.reduce_window(x, -jnp.inf, lax.max, dims, strides, "SAME")
    x = jax.nn.relu6(conv(x, kernel(1, 1, 8, 12)))
    return jax.nn.softmax(x.mean((1, 2) if last else (2, 3)) @ _rand(12, 10))


def _layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias


def _block(p: Any, x: Any, heads: int = 2) -> Any:
    """Attention with a causal mask, and a gated layer, both before a residual sum."""
    batch, length, width = x.shape
    h = _layer_norm(x, p["scale"], p["bias"])
    q, k, v = jnp.split(h @ p["qkv"], 3, axis=-1)
    q, k, v = (e.reshape(batch, length, heads, width // heads) for e in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // heads)
    seen = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(x.dtype).min))
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, width) @ p["out"]
    h = _layer_norm(x, p["scale"], p["bias"])
    return x + (jax.nn.silu(h @ p["up"]) * (h @ p["gate"])) @ p["down"]


def _weights(width: int = 8) -> dict[str, Any]:
    sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 2 * width), "gate": (width, 2 * width),
             "down": (2 * width, width)}  # fmt: skip
    made = {name: _rand(*shape) / np.sqrt(shape[0]) for name, shape in sizes.items()}
    return {**made, "scale": _rand(width), "bias": _rand(width)}


def _transformer() -> Any:
    weights = _weights()

    def model(ids: Any) -> Any:
        x = jnp.asarray(_rand(11, 8))[ids] + _rand(5, 8)
        return _block(weights, jax.checkpoint(_block)(weights, x)) @ _rand(11, 8).T

    return model, np.array([[1, 2, 3, 10, 0], [4, 4, 4, 4, 4]], "int32")


def _scanned_layers() -> Any:
    stacked = jax.tree_util.tree_map(lambda a: jnp.stack([a, a * 0.5, a * 0.25]), _weights())
    return lambda x: lax.scan(lambda h, p: (_block(p, h), None), x, stacked)[0], _rand(2, 4, 8)


def _recurrent() -> Any:
    w, u, b = _rand(6, 32) / 4, _rand(8, 32) / 4, _rand(32)

    def lstm(x: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(row @ w + h @ u + b, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], 8))
        (h, c), rows = lax.scan(step, (zero, zero), x)
        back = lax.scan(step, (h, c), x, reverse=True)[1]
        return rows, back, c

    return lstm, _rand(7, 2, 6)


NETWORKS = {
    "mlp": _mlp,
    "NHWC": lambda: (lambda x: _network(x, "NHWC"), _rand(2, 15, 13, 3)),
    "NCHW": lambda: (lambda x: _network(x, "NCHW"), _rand(2, 3, 15, 13)),
    "transformer": _transformer,
    "layers scanned over stacked weights": _scanned_layers,
    "LSTM by scan": _recurrent,
}


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("network", list(NETWORKS))
def test_network_agrees_with_jax(network: str) -> None:
    _check(*NETWORKS[network]())


@pytest.mark.slow
def test_cache_of_keys_is_written_at_a_position() -> None:
    def step(cache: Any, new: Any, position: Any) -> Any:
        return lax.dynamic_update_slice(cache, new, (0, position, 0)), cache.at[:, position].set(new[:, 0])

    _check(step, _rand(2, 6, 4), _rand(2, 1, 4), np.int32(3))


# ---------------------------------------------------------------------------- what the graph is made of
def test_softmax_is_one_operator() -> None:
    x = _rand(4, 4)
    assert _operators(jax.nn.softmax, x) == ["nn.softmax"]
    assert _operators(jax.nn.log_softmax, x) == ["nn.log_softmax"]
    assert "nn.softmax" not in _operators(lambda v: jnp.exp(v - v.max(0)) / jnp.exp(v - v.max(0)).sum(1), x)


def test_repeated_elements_are_not_written_out() -> None:
    assert _operators(lambda v: jnp.where(v > 0, v, jnp.zeros((4, 4))), _rand(4, 4)) == ["greater", "where"]
    assert _operators(lambda v, w: v * jnp.broadcast_to(w, (4, 4)), _rand(4, 4), _rand(4)) == [
        "reshape",
        "multiply",
    ]


def test_index_arithmetic_is_done_at_import() -> None:
    assert _operators(lambda v: jnp.tril(v) + jnp.arange(4), _rand(4, 4)) == ["where", "add"]
    assert _operators(lambda v: v.at[1:3].set(0.0), _rand(4, 4)) == ["full", "scatter_nd"]


def test_equal_masks_are_one_constant() -> None:
    def model(x: Any) -> Any:
        for _ in range(3):
            x = jnp.sin(jnp.where(jnp.tril(jnp.ones(x.shape, bool)), x, 0.0))
        return x

    mod, _ = from_jax(model, _rand(300, 300))
    whole = [e for e in post_order(mod["main"]) if isinstance(e, relay.Constant) and e.data.size > 1]
    assert len(whole) == 1


def test_convolution_keeps_its_layout() -> None:
    def conv(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    assert _operators(conv, _rand(1, 5, 5, 3), _rand(3, 3, 3, 4)) == ["nn.conv2d"]


def test_products_need_no_transpose() -> None:
    for equation, shapes in (("ij,kj->ik", ((3, 4), (5, 4))), ("ji,jk->ik", ((4, 3), (4, 5)))):
        assert _operators(functools.partial(jnp.einsum, equation), *(_rand(*s) for s in shapes)) == [
            "nn.matmul"
        ]


# ---------------------------------------------------------------------------- names, arguments, types
def test_names_of_inputs_and_results_are_paths() -> None:
    def model(params: Any, *images: Any, scale: Any) -> Any:
        x = images[0] @ params["dense"][0] * scale
        return {"probs": jax.nn.softmax(x), "aux": (x, images[1])}

    mod, params = from_jax(model, {"dense": [_rand(4, 3)]}, _rand(2, 4), _rand(2), scale=2.0)
    main = mod["main"]
    assert [p.name_hint for p in main.params] == ["params.dense.0", "images.0", "images.1", "scale"]
    assert not params
    inputs, outputs = relay.interface.interface_of(mod)
    assert [spec.name for spec in outputs] == ["aux.0", "aux.1", "probs"]
    assert inputs[3].shape == ()


def test_results_without_keys_have_no_names() -> None:
    mod, _ = from_jax(lambda x: (x + 1, x * 2), _rand(2))
    assert relay.interface.output_names(mod["main"], 2) == ["output_0", "output_1"]


def test_closed_over_arrays_are_parameters_with_names() -> None:
    weights = {"w": jnp.asarray(_rand(4, 3)), "b": jnp.asarray(_rand(3))}

    def dense(weights: Any, x: Any) -> Any:
        return x @ weights["w"] + weights["b"]

    x = _rand(2, 4)
    for function in (
        functools.partial(dense, weights),
        lambda x: dense(weights, x),
        jax.jit(lambda x: dense(weights, x)),
    ):
        mod, params = from_jax(function, x)
        assert sorted(params) == ["weights.b", "weights.w"]
        np.testing.assert_array_equal(params["weights.w"].numpy(), weights["w"])
        (got,) = jax_cases.run_compiled(mod, params, [x])
        np.testing.assert_allclose(got, dense(weights, x), rtol=1e-5, atol=1e-5)


def test_arrays_of_an_object_have_the_names_of_its_attributes() -> None:
    class Dense:
        def __init__(self) -> None:
            self.layers = [{"w": jnp.asarray(_rand(4, 3))}]

        def __call__(self, x: Any) -> Any:
            return x @ self.layers[0]["w"]

    dense = Dense()
    for function in (dense, dense.__call__, jax.jit(dense.__call__), jax.vmap(dense)):
        assert list(from_jax(function, _rand(2, 4))[1]) == ["layers.0.w"]


def test_one_array_read_twice_is_one_parameter() -> None:
    w = jnp.asarray(_rand(4, 4))
    assert list(from_jax(lambda x: jax.jit(lambda y: y @ w)(x @ w), _rand(2, 4))[1]) == ["w"]


def test_closed_jaxpr() -> None:
    closed = jax.make_jaxpr(lambda x: {"y": jnp.sin(x)})(_rand(3))
    mod, params = from_jax(closed)
    assert mod["main"].params[0].name_hint == "x" and not params
    np.testing.assert_allclose(
        jax_cases.run_compiled(mod, params, [_rand(3)])[0], np.sin(_rand(3)), rtol=1e-5
    )


def test_shapes_serve_as_examples() -> None:
    mod, _ = from_jax(lambda x: x * 2, jax.ShapeDtypeStruct((3, 4), jnp.float16))
    assert str(mod["main"].params[0].checked_type) == "Tensor[(3, 4), float16]"


def test_float64_stays_where_jax_has_it() -> None:
    with jax.enable_x64(True):
        mod, _ = from_jax(lambda x: x.sum() * 2, np.ones((3, 4)))
    assert str(mod["main"].body.checked_type) == "Tensor[(), float64]"


def test_unread_primitives_do_not_matter() -> None:
    def model(x: Any) -> Any:
        jnp.linalg.cholesky(x)
        return x + 1

    _check(model, _rand(3, 3))


# ---------------------------------------------------------------------------- branches, loops, dynamic sizes
@pytest.mark.slow
def test_loops_that_depend_on_data() -> None:
    w, x = jnp.asarray(_rand(4, 4) / 8), _rand(3, 4)

    def halve(v: Any) -> Any:
        return lax.while_loop(lambda c: jnp.abs(c).sum() > 1, lambda c: c * 0.5, v)

    def power(v: Any, n: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.tanh(c[1] @ w) + v), (0, v))

    _check_on_machine(halve, (x,), (x * 100,), (x * 0,))
    _check_on_machine(power, (x, np.int32(3)), (x, np.int32(0)))


@pytest.mark.slow
def test_long_scan_is_a_loop() -> None:
    w, x = jnp.asarray(_rand(4, 4) / 8), _rand(5000, 4) / 8

    def both(v: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            return jnp.tanh(c @ w + row), c.sum()

        return lax.scan(step, jnp.zeros(4), v), lax.scan(step, jnp.zeros(4), v, reverse=True)

    _check_on_machine(both, (x,))


@pytest.mark.slow
def test_branches_that_depend_on_data() -> None:
    x = _rand(3, 4)

    def two(v: Any) -> Any:
        return lax.cond(v[0, 0] > 0, lambda a: (a * 2, a.sum()), lambda a: (-a, a.max()), v)

    def three(v: Any, i: Any) -> Any:
        return lax.switch(i, [lambda a: a, lambda a: a * 2, lambda a: -a], v)

    _check_on_machine(two, (x,), (-x,))
    _check_on_machine(three, *((x, np.int32(i)) for i in (0, 1, 2, 7, -1)))


@pytest.mark.slow
def test_dynamic_sizes() -> None:
    w = jnp.asarray(_rand(4, 4) / 8)

    def model(x: Any) -> Any:
        h = jax.nn.softmax(jax.nn.relu(x @ w + 1.0) @ w)
        return (
            h,
            h.mean(0),
            h.reshape(-1),
            jnp.arange(x.shape[0]),
            x[1:],
            x[-1],
            lax.scan(lambda c, r: (c + r, c), h[0], h),
        )

    _check_on_machine(model, (_rand(3, 4),), (_rand(7, 4),), dynamic={"x": {0: "n"}})


def test_dynamic_sizes_have_names() -> None:
    mod, _ = from_jax(
        lambda x, y: (x @ y)[: x.shape[0] // 2], _rand(4, 3), _rand(3, 5), dynamic={"x": ("n", None)}
    )
    inputs, outputs = relay.interface.interface_of(mod)
    assert inputs[0].shape == ("n", 3) and outputs[0].shape == ("n // 2", 5)


def test_sizes_are_read_from_their_text() -> None:
    from tilewright.relay.frontend.jax.symbols import Symbols

    n, m = jax.export.symbolic_shape("n, m")
    symbols = Symbols()
    table = {
        n: "n",
        4 * n**2 - 1: "4 * (n * n) - 1",
        (n + 1) // 2: "(n + 1) // 2",
        n % 3 + m: "n % 3 + m",
        jax.core.max_dim(n, m): "T.max(n, m)",
    }
    assert [str(symbols.size(size)) for size in table] == list(table.values())
    assert list(symbols.vars) == ["n", "m"] and symbols.size(np.int64(3)) == 3


def test_operators_carry_scopes_and_lines() -> None:
    def model(x: Any) -> Any:
        with jax.named_scope("encoder"), jax.named_scope("dense"):
            return jax.jit(jnp.sin)(x)

    mod, _ = from_jax(model, _rand(3))
    assert str(mod["main"].body.span).startswith("sin in encoder/dense at ")


# ---------------------------------------------------------------------------- refusals
def test_missing_primitives_are_reported_at_once() -> None:
    def model(x: Any) -> Any:
        noise = jax.random.normal(jax.random.key(0), x.shape)
        return jnp.linalg.cholesky(x) + noise + jnp.linalg.cholesky(x + 1)

    text = _refusal(model, _rand(3, 3))
    assert text.startswith("primitives of the function without a converter: 3\n  cholesky ×2, first at ")
    assert "test_relay_jax.py" in text.splitlines()[1]
    assert "random_bits ×1" in text and "draw them outside and pass them as an argument" in text


@pytest.mark.parametrize(
    ("function", "args", "more", "text"),
    [
        (3, (), {}, "from_jax takes a function of JAX or a closed jaxpr (jax.make_jaxpr(f)(x)), not int"),
        (
            lambda x, mode: x,
            (np.ones(3), "same"),
            {},
            "from_jax: argument mode is 'same' and not an array; bind it before: functools.partial(function, mode=…), or "
            "a lambda",
        ),
        (lambda x: x, (np.ones(3),), {"dynamic": {"y": {0: "n"}}}, "dynamic: there is no input 'y'; the inputs are x"),
        (lambda x: x, (np.ones(3),), {"dynamic": {"x": {1: "n"}}}, "dynamic: input 'x' has 1 dimensions and no dimension 1"),
        (lambda x: x, (np.ones(3),), {"dynamic": {"x": {0: 3}}}, "dynamic: the size of dimension 0 of 'x' needs a name, not 3"),
        (lambda x: (), (np.ones(3),), {}, "the function returns no array"),
    ],
)  # fmt: skip
def test_wrong_arguments(function: Any, args: Any, more: Any, text: str) -> None:
    assert _refusal(function, *args, **more) == text


def test_refusals_name_the_primitive_and_the_line() -> None:
    text = _refusal(lambda x: x.at[0].apply(jnp.sin), _rand(3))
    assert text.startswith("scatter at ") and "test_relay_jax.py" in text
    assert text.endswith(": a function of the elements at indices (x.at[i].apply(f)) is not supported")
    text = _refusal(lambda x: x * 1j, _rand(3))
    assert text.endswith(": elements of type complex64 are not supported")
    same = functools.partial(lax.conv, window_strides=(2, 2), padding="SAME")
    text = _refusal(lambda x, w: same(x, w), _rand(1, 2, 8, 8), _rand(2, 2, 3, 3), dynamic={"x": {2: "h"}})
    assert "its padding depends on a dynamic size" in text
    assert (
        _refusal(lambda k: k, jax.random.key(0)) == "input 'k': elements of type key<fry> are not supported"
    )


def test_closed_jaxpr_takes_no_examples() -> None:
    closed = jax.make_jaxpr(jnp.sin)(_rand(3))
    assert "leave out the examples" in _refusal(closed, _rand(3))
