"""Functions of JAX in breadth, by family: (name, function, inputs)."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Case = tuple[str, Any, tuple[Any, ...]]
FAMILIES: dict[str, Any] = {}
_RNG = [np.random.default_rng(0)]


def _rand(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    return jnp.asarray(_RNG[0].uniform(low, high, shape), "float32")


def _ints(*shape: int, low: int = 0, high: int = 8, dtype: str = "int32") -> Any:
    return jnp.asarray(_RNG[0].integers(low, high, shape), dtype)


def family(name: str) -> Any:
    """Enter a function that lists cases: (name, function, input, …)."""

    def take(listed: Any) -> Any:
        FAMILIES[name] = listed
        return listed

    return take


def cases(name: str) -> list[Case]:
    """The cases of a family; the same numbers each time."""
    _RNG[0] = np.random.default_rng(0)
    return [(row[0], row[1], row[2:]) for row in FAMILIES[name]()]


def run_compiled(mod: Any, params: Any, inputs: Any) -> list[Any]:
    """The outputs of an imported function, compiled, on the inputs of its first variables."""
    import tilewright
    from tilewright import relay
    from tilewright.contrib import graph_executor

    library = relay.build(mod, target="llvm", params=params)
    runner = graph_executor.GraphModule(library["default"](tilewright.cpu()))
    for variable, array in zip(mod["main"].params, inputs, strict=False):
        runner.set_input(variable.name_hint, tilewright.nd.array(np.asarray(array)))
    runner.run()
    return [runner.get_output(i).numpy() for i in range(runner.get_num_outputs())]


def difference(want: Any, got: Any, tolerance: float = 1e-5) -> str:
    """What is wrong with a result, or nothing: within 1e-5 of JAX's, absolute and relative."""
    expected = np.asarray(want)
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return f"{got.dtype}{got.shape} instead of {expected.dtype}{expected.shape}"
    if str(expected.dtype) == "bfloat16":
        expected, got, tolerance = expected.astype("float32"), got.astype("float32"), 2e-2
    if np.allclose(expected, got, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    return f"differs by {np.abs(np.asarray(expected, 'float64') - np.asarray(got, 'float64')).max()}"


@family("unary")
def _unary() -> list[Any]:
    x = _rand(2, 5)
    names = "abs negative sign exp exp2 expm1 tanh sin cos tan sinh cosh arcsinh arctan floor ceil trunc round cbrt square"
    rows: list[Any] = [(n, getattr(jnp, n), x) for n in names.split()]
    positive = _rand(2, 5, low=0.1, high=3.0)
    rows += [(n, getattr(jnp, n), positive) for n in "log log2 log10 log1p sqrt reciprocal".split()]
    inside = _rand(2, 5, low=-0.9, high=0.9)
    rows += [(n, getattr(jnp, n), inside) for n in "arcsin arccos arctanh".split()]
    rows += [(n, getattr(lax, n), x) for n in "logistic erf erfc".split()]
    acts = "relu relu6 sigmoid softplus silu gelu elu selu celu leaky_relu hard_tanh hard_sigmoid hard_swish soft_sign"
    rows += [(n, getattr(jax.nn, n), x) for n in [*acts.split(), "mish", "log_sigmoid", "squareplus"]]
    rows += [
        ("exact gelu", lambda v: jax.nn.gelu(v, approximate=False), x),
        ("rsqrt", lax.rsqrt, positive),
        ("erf_inv", lax.erf_inv, _rand(40, low=-0.9999, high=0.9999)),
        ("acosh", jnp.arccosh, positive + 1),
        ("small log1p", jnp.log1p, x * 1e-6),
        ("small expm1", jnp.expm1, x * 1e-6),
        ("round away", lambda v: lax.round(v), np.array([0.5, 1.5, -0.5, -2.5, 0.49999997], "float32")),
        ("integer_pow", lambda v: [v**2, v**3, v**-2, v**5], positive),
        (
            "isnan",
            lambda v: [jnp.isnan(v), jnp.isinf(v), jnp.isfinite(v)],
            np.array([1, np.nan, np.inf], "float32"),
        ),
        ("nan_to_num", jnp.nan_to_num, np.array([1, np.nan, np.inf, -np.inf], "float32")),
        ("not", lambda v: [~v, ~(v > 2)], _ints(6)),
        ("popcount", lax.population_count, _ints(6, high=1000)),
        ("reduce_precision", lambda v: lax.reduce_precision(v, 8, 7), x),
        ("relu of ints", jax.nn.relu, _ints(6, low=-5)),
        ("clip", lambda v: [jnp.clip(v, -1, 1), jnp.clip(v, None, 0.5), jnp.clip(v, 0, jnp.abs(v))], x),
    ]
    return rows


@family("binary")
def _binary() -> list[Any]:
    x, y, row = _rand(3, 4), _rand(3, 4), _rand(4)
    names = "add subtract multiply divide maximum minimum arctan2 logaddexp hypot copysign fmod remainder floor_divide"
    rows: list[Any] = [(n, getattr(jnp, n), x, y) for n in names.split()]
    rows += [
        (f"{n} broadcast", getattr(jnp, n), x, row) for n in "add subtract multiply divide maximum".split()
    ]
    rows += [
        (n, getattr(jnp, n), x, np.where(x > 0, x, y))
        for n in "equal not_equal less less_equal greater greater_equal".split()
    ]
    i, j = _ints(6, low=-9, high=9), _ints(6, low=1, high=5)
    rows += [
        (f"{n} ints", getattr(jnp, n), i, j)
        for n in "add subtract multiply floor_divide remainder fmod maximum bitwise_and bitwise_or bitwise_xor left_shift "
        "right_shift power".split()
    ]
    b, c = _ints(6, high=2, dtype="bool"), _ints(6, high=2, dtype="bool")
    rows += [
        (n, getattr(jnp, n), b, c)
        for n in "logical_and logical_or logical_xor bitwise_and equal add multiply".split()
    ]
    rows += [
        ("power", jnp.power, _rand(3, 4, low=0.1), y),
        ("power half", lambda v: [v**0.5, v**-0.5, v**1.5], _rand(4, low=0.1)),
        ("where", lambda v, w: jnp.where(v > w, v, 0.0), x, y),
        ("where rows", lambda v, w: jnp.where(v[:, :1] > 0, v, w), x, row),
        ("select", lambda v, w: jnp.select([v > 1, v > 0], [v, w], -1.0), x, y),
        ("select_n", lambda k, v: lax.select_n(k, v, v * 2, v * 3), _ints(5, high=3), _rand(5)),
        ("logical shift", lax.shift_right_logical, i, j),
        (
            "unsigned",
            lambda v, w: [v // w, v % w, v - w],
            _ints(6, dtype="uint32"),
            _ints(6, low=1, dtype="uint32"),
        ),
        (
            "casts",
            lambda v: [v.astype("int32"), v.astype(bool), v.astype("float16"), (v > 0).astype("float32")],
            x,
        ),
        ("bfloat16", lambda v: v.astype("bfloat16") * 3, x),
        ("bitcast", lambda v: lax.bitcast_convert_type(v, jnp.int32), x),
        ("promotion", lambda v, k: [v + k, k / 2, k * 1.5, True + k], x[0], _ints(4)),
    ]
    return rows


@family("reduction")
def _reduction() -> list[Any]:
    x, k = _rand(2, 3, 4), _ints(3, 4)
    names = "sum mean max min prod var std ptp median argmax argmin"
    rows: list[Any] = [(n, getattr(jnp, n), x) for n in names.split()]
    rows += [(f"{n} axis", partial(getattr(jnp, n), axis=1), x) for n in names.split()]
    rows += [(f"{n} kept", partial(getattr(jnp, n), axis=-1, keepdims=True), x) for n in names.split()]
    rows += [
        ("two axes", lambda v: [v.sum((0, 2)), v.mean((1, 2), keepdims=True), v.max((0, 1))], x),
        ("ints", lambda v: [v.sum(0), v.max(1), v.prod(1), jnp.argmax(v, 0)], k),
        ("flags", lambda v: [jnp.any(v > 1, 1), jnp.all(v > -1), jnp.sum(v > 0), (v > 1).max(0)], x),
        ("logsumexp", lambda v: [jax.nn.logsumexp(v), jax.nn.logsumexp(v, axis=1)], x),
        ("softmax", lambda v: [jax.nn.softmax(v), jax.nn.softmax(v, axis=1), jax.nn.log_softmax(v)], x),
        ("softmax where", lambda v: jax.nn.softmax(v, where=v > -1, axis=-1), x),
        ("softmax of two axes", lambda v: jax.nn.softmax(v, axis=(1, 2)), x),
        ("no softmax", lambda v: jnp.exp(v - v.max(0)) / jnp.exp(v - v.max(0)).sum(1), _rand(4, 4)),
        (
            "norm",
            lambda v: [jnp.linalg.norm(v[0]), jnp.linalg.norm(v, axis=-1), jnp.linalg.norm(v, 1, axis=1)],
            x,
        ),
        (
            "cumulative",
            lambda v: [jnp.cumsum(v, 1), jnp.cumprod(v, 0), lax.cummax(v, 2), lax.cummin(v, 1)],
            x,
        ),
        (
            "cumulative reverse",
            lambda v: [
                lax.cumsum(v, 1, reverse=True),
                lax.cummax(v, 2, reverse=True),
                lax.cumprod(v, 2, reverse=True),
            ],
            x,
        ),
        ("cumlogsumexp", lambda v: [lax.cumlogsumexp(v, 2), lax.cumlogsumexp(v, 1, reverse=True)], x),
        ("reduce", lambda v: lax.reduce(v, np.float32(1), lax.mul, (1,)), x),
        ("standardize", lambda v: jax.nn.standardize(v), x),
        ("associative_scan", lambda v: lax.associative_scan(jnp.maximum, v, axis=2), x),
        ("quantile", lambda v: jnp.quantile(v, 0.3, axis=1), x),
        ("one row", lambda v: [jnp.sum(v), jnp.max(v)], _rand(1, 1)),
    ]
    return rows


@family("shape")
def _shape() -> list[Any]:
    x, y = _rand(2, 3, 4), _rand(2, 3, 4)
    return [
        ("reshape", lambda v: [v.reshape(6, 4), v.reshape(-1), v.reshape(1, 2, 12, 1), v.ravel()], x),
        (
            "transpose",
            lambda v: [v.T, v.transpose(1, 0, 2), jnp.swapaxes(v, 0, 2), jnp.moveaxis(v, 0, -1)],
            x,
        ),
        ("expand", lambda v: [v[:, None], jnp.expand_dims(v, (0, 3)), v[..., None]], x),
        ("squeeze", lambda v: [jnp.squeeze(v[:1]), jnp.squeeze(v[:1, :, :1], 0)], x),
        (
            "broadcast",
            lambda v: [jnp.broadcast_to(v[0], (5, 3, 4)), jnp.broadcast_to(v[:, :1], (2, 3, 4))],
            x,
        ),
        (
            "concatenate",
            lambda v, w: [jnp.concatenate([v, w], 1), jnp.stack([v, w]), jnp.stack([v, w], -1)],
            x,
            y,
        ),
        (
            "stacks",
            lambda v, w: [jnp.hstack([v, w]), jnp.vstack([v, w]), jnp.column_stack([v[0], w[0]])],
            x,
            y,
        ),
        ("split", lambda v: [jnp.split(v, 2, 2), jnp.split(v, [1, 3], 2), jnp.array_split(v, 2, 1)], x),
        (
            "slices",
            lambda v: [v[1], v[-1], v[:, 1:], v[..., ::2], v[:, ::-1], v[0, 1:3, -2:], v[..., 3:0:-2]],
            x,
        ),
        ("lax slice", lambda v: lax.slice(v, (0, 1, 0), (2, 3, 4), (1, 1, 3)), x),
        ("pad", lambda v: [jnp.pad(v, 1), jnp.pad(v, ((0, 0), (1, 2), (0, 3)), constant_values=2.0)], x),
        ("pad modes", lambda v: [jnp.pad(v, 1, mode=m) for m in ("edge", "reflect", "symmetric", "wrap")], x),
        (
            "lax pad",
            lambda v: [
                lax.pad(v, 1.0, ((1, 0, 1), (-1, 2, 0), (0, -1, 2))),
                lax.pad(v, 0.0, ((0, 0, 0), (0, 0, 3), (-1, -1, 1))),
            ],
            x,
        ),
        ("repeat", lambda v: [jnp.repeat(v, 2, 1), jnp.tile(v, (2, 1, 3)), jnp.tile(v, 2)], x),
        ("roll", lambda v: [jnp.roll(v, 1, 1), jnp.roll(v, -2), jnp.flip(v, (0, 2)), jnp.rot90(v[0])], x),
        ("triangles", lambda v: [jnp.tril(v), jnp.triu(v, 1), jnp.diagonal(v[0]), jnp.trace(v[0])], x),
        (
            "creation",
            lambda v: [
                v * 0 + jnp.arange(4),
                jnp.eye(3) @ v[0],
                jnp.linspace(0, 1, 4) + v,
                jnp.full_like(v, 3),
            ],
            x,
        ),
        ("known", lambda v: [jnp.arange(5), jnp.zeros((2, 3)), jnp.eye(2), v], x),
        ("meshgrid", lambda v: jnp.meshgrid(v[0, 0], v[0, :, 0]), x),
        ("one_hot", lambda k: jax.nn.one_hot(k, 5), _ints(4, high=5)),
        ("diff", lambda v: [jnp.diff(v), jnp.gradient(v[0, 0])], x),
        ("iota 2-d", lambda v: v + lax.broadcasted_iota(jnp.float32, (3, 4), 0), x),
    ]


@family("product")
def _product() -> list[Any]:
    table = [
        ("ij,jk->ik", (3, 4), (4, 5)),
        ("ij,kj->ik", (3, 4), (5, 4)),
        ("ji,jk->ik", (4, 3), (4, 5)),
        ("ij,j->i", (3, 4), (4,)),
        ("i,i->", (4,), (4,)),
        ("i,j->ij", (3,), (4,)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
        ("bij,jk->bik", (2, 3, 4), (4, 5)),
        ("ijb,jkb->bik", (3, 4, 2), (4, 5, 2)),
        ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
        ("bhqk,bkhd->bqhd", (2, 2, 3, 5), (2, 5, 2, 4)),
        ("abc,cbd->ad", (2, 3, 4), (4, 3, 5)),
        ("ij,ij->i", (3, 4), (3, 4)),
        ("bi,bj->bij", (2, 3), (2, 4)),
        ("ij,kl->ijkl", (2, 3), (2, 2)),
        ("ii->i", (3, 3)),
        ("ij->ji", (3, 4)),
        ("ijk->j", (2, 3, 4)),
        ("abcd,dc->ab", (2, 3, 4, 5), (5, 4)),
        ("a,abc,c->b", (2,), (2, 3, 4), (4,)),
    ]
    rows: list[Any] = [
        (equation, lambda *v, e=equation: jnp.einsum(e, *v), *(_rand(*s) for s in shapes))
        for equation, *shapes in table
    ]
    a, b = _rand(2, 3, 4), _rand(4, 5)
    rows += [
        ("matmul", lambda v, w: [v @ w, v[0] @ w, v[0, 0] @ w, v @ w[:, 0]], a, b),
        ("matmul broadcast", lambda v, w: v @ w, _rand(2, 1, 3, 4), _rand(3, 4, 2)),
        ("tensordot", lambda v, w: [jnp.tensordot(v, w, 1), jnp.tensordot(v, w.T, ((2,), (1,)))], a, b),
        ("kron", jnp.kron, _rand(2, 2), _rand(2, 3)),
        ("ints", lambda v, w: v @ w, _ints(3, 4), _ints(4, 5)),
        (
            "int8",
            lambda v, w: lax.dot(v, w, preferred_element_type=jnp.int32),
            _ints(3, 4, dtype="int8"),
            _ints(4, 5, dtype="int8"),
        ),
        (
            "bfloat16",
            lambda v, w: (v.astype("bfloat16") @ w.astype("bfloat16")).astype("float32"),
            _ints(3, 4).astype("float32"),
            _ints(4, 5).astype("float32"),
        ),
        ("outer", jnp.outer, _rand(3), _rand(4)),
        ("vmap", jax.vmap(lambda v, w: v @ w, (0, None)), a, b),
        ("attention", lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True), _rand(2, 5, 2, 4)),
    ]
    return rows


@family("window")
def _window() -> list[Any]:
    image, first = _rand(1, 7, 6, 4), _rand(1, 4, 7, 6)
    rows: list[Any] = []

    def conv(name: str, x: Any, w: Any, numbers: Any, **how: Any) -> None:
        given = {"window_strides": (1,) * (x.ndim - 2), "padding": "SAME", **how}
        rows.append(
            (name, lambda v, u: lax.conv_general_dilated(v, u, dimension_numbers=numbers, **given), x, w)
        )

    last = ("NHWC", "HWIO", "NHWC")
    conv("NHWC", image, _rand(3, 3, 4, 5), last)
    conv("NHWC strided", image, _rand(3, 2, 4, 5), last, window_strides=(2, 1), padding="VALID")
    conv("NHWC groups", image, _rand(3, 3, 2, 6), last, feature_group_count=2)
    conv("NHWC depthwise", image, _rand(3, 3, 1, 8), last, feature_group_count=4)
    conv("NHWC dilated", image, _rand(2, 2, 4, 3), last, rhs_dilation=(2, 1))
    conv("NCHW", first, _rand(5, 4, 3, 3), ("NCHW", "OIHW", "NCHW"), padding=((1, 0), (0, 2)))
    conv("NCHW negative pads", first, _rand(5, 4, 3, 3), ("NCHW", "OIHW", "NCHW"), padding=((-1, 0), (1, -1)))
    conv("mixed", image, _rand(5, 4, 3, 3), ("NHWC", "OIHW", "NCHW"))
    conv("HWNC", _rand(7, 6, 1, 4), _rand(3, 3, 4, 5), ("HWNC", "HWIO", "HWNC"))
    conv("NWC", _rand(2, 9, 4), _rand(3, 4, 5), ("NWC", "WIO", "NWC"), window_strides=(2,))
    conv("NCW", _rand(2, 4, 9), _rand(5, 4, 3), ("NCW", "OIW", "NCW"))
    conv("NDHWC", _rand(1, 4, 5, 6, 2), _rand(2, 2, 2, 2, 3), ("NDHWC", "DHWIO", "NDHWC"))
    conv("lhs dilation", image, _rand(3, 3, 4, 5), last, lhs_dilation=(2, 2), padding=((1, 2), (2, 1)))
    conv("lhs dilation wide", image, _rand(2, 3, 4, 5), last, lhs_dilation=(2, 3), padding=((3, 4), (0, 5)))
    conv(
        "lhs dilation, groups and strides",
        image,
        _rand(3, 3, 2, 6),
        last,
        lhs_dilation=(2, 2),
        padding=((1, 1), (1, 1)),
        feature_group_count=2,
        window_strides=(2, 1),
    )
    conv("batch groups", _rand(4, 7, 6, 2), _rand(3, 3, 2, 6), last, batch_group_count=2)
    rows += [
        (
            "conv_transpose",
            lambda v, w: [
                lax.conv_transpose(v, w, (2, 2), p, dimension_numbers=last) for p in ("SAME", "VALID")
            ],
            image,
            _rand(3, 3, 4, 5),
        ),
        (
            "max pool",
            lambda v: [
                lax.reduce_window(v, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), p)
                for p in ("SAME", "VALID")
            ],
            image,
        ),
        (
            "min pool",
            lambda v: lax.reduce_window(v, jnp.inf, lax.min, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"),
            image,
        ),
        ("sum pool", lambda v: lax.reduce_window(v, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), image),
        ("average pool", _average_pool, image),
        (
            "NCHW pool",
            lambda v: lax.reduce_window(
                v, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))
            ),
            first,
        ),
        ("1-d pool", lambda v: lax.reduce_window(v, 0.0, lax.add, (2,), (1,), "VALID"), _rand(9)),
        (
            "pool of all",
            lambda v: lax.reduce_window(v, -jnp.inf, lax.max, (1, 2, 2, 2), (1, 1, 1, 2), "VALID"),
            image,
        ),
        (
            "dilated pool",
            lambda v: lax.reduce_window(
                v, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", window_dilation=(1, 2, 2, 1)
            ),
            image,
        ),
        (
            "base dilation",
            lambda v: lax.reduce_window(
                v, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", base_dilation=(1, 2, 3, 1)
            ),
            image,
        ),
        ("pool of ints", lambda v: lax.reduce_window(v, 0, lax.add, (2, 2), (2, 1), "SAME"), _ints(5, 6)),
        ("product pool", lambda v: lax.reduce_window(v, 1.0, lax.mul, (2, 2), (2, 1), "SAME"), _rand(5, 6)),
    ]
    return rows


def _average_pool(v: Any) -> Any:
    dims, strides = (1, 3, 3, 1), (1, 2, 2, 1)
    total = lax.reduce_window(v, 0.0, lax.add, dims, strides, "SAME")
    return total / lax.reduce_window(jnp.ones_like(v), 0.0, lax.add, dims, strides, "SAME")


@family("index")
def _index() -> list[Any]:
    x, big = _rand(5, 4), _rand(3, 4, 5)
    i, j = _ints(3, high=4), _ints(3, high=4)
    far = np.array([0, 7, -1, -9], "int32")
    return [
        ("x[i]", lambda v, k: v[k], x, np.int32(2)),
        ("x[-i]", lambda v, k: v[-k], x, np.int32(2)),
        ("x[:, i]", lambda v, k: v[:, k], x, np.int32(2)),
        ("x[idx]", lambda v, k: v[k], x, i),
        ("x[:, idx]", lambda v, k: v[:, k], x, i),
        ("x[idx, jdx]", lambda v, k, m: v[k, m], x, i, j),
        ("x[:, idx, jdx]", lambda v, k, m: v[:, k, m], big, i, j),
        ("x[idx, :, jdx]", lambda v, k, m: v[k % 3, :, m], big, i, j),
        ("x[grid]", lambda v, k: v[k[:, None], k[None]], x, i),
        ("x[idx 2-d]", lambda v, k: v[k], x, _ints(2, 3, high=5)),
        (
            "x[known]",
            lambda v: [v[np.array([3, 0, 0])], v[:, np.array([1, 3])], v[np.array([0, 1]), np.array([2, 3])]],
            x,
        ),
        ("x[idx] far", lambda v, k: v[k], x, far),
        (
            "take",
            lambda v, k: [jnp.take(v, k, axis=1), jnp.take(v, k), jnp.take(v, k, axis=0, mode="clip")],
            x,
            i,
        ),
        ("take far", lambda v, k: [jnp.take(v, k, axis=0), jnp.take(v, k, axis=1, mode="wrap")], x, far),
        (
            "take far ints",
            lambda v, k: [jnp.take(v, k), jnp.take(v > 2, k), jnp.take(v.astype("uint32"), k)],
            _ints(6),
            far,
        ),
        ("take pairs far", lambda v, k: v.at[k, k].get(mode="fill", fill_value=7.0), x, far),
        (
            "take_along_axis",
            lambda v, k: [jnp.take_along_axis(v, k, 1), jnp.take_along_axis(v, k[:1], 0)],
            x,
            _ints(5, 4, high=4),
        ),
        ("take_along_axis few", lambda v, k: jnp.take_along_axis(v, k, 1), x, _ints(5, 2, high=4)),
        ("take_along_axis far", lambda v: jnp.take_along_axis(v, jnp.broadcast_to(far, (5, 4)), 1), x),
        (
            "take_along_axis clip",
            lambda v, k: jnp.take_along_axis(v, jnp.broadcast_to(k, (5, 4)), 1, mode="clip"),
            x,
            far,
        ),
        ("vmap index", jax.vmap(lambda v, k: v[k]), x, _ints(5, high=4)),
        ("vmap rows", jax.vmap(lambda v, k: v[k]), big, _ints(3, 2, high=4)),
        (
            "dynamic_slice",
            lambda v, k: [lax.dynamic_slice(v, (k, 1), (2, 3)), lax.dynamic_slice_in_dim(v, k, 3, 1)],
            x,
            np.int32(3),
        ),
        ("dynamic_slice far", lambda v, k: lax.dynamic_slice(v, (k, k), (2, 3)), x, np.int32(9)),
        ("vmap dynamic_slice", jax.vmap(lambda v, k: lax.dynamic_slice(v, (k,), (2,))), x, _ints(5, high=4)),
        (
            "dynamic_update_slice",
            lambda v, u, k: [
                lax.dynamic_update_slice(v, u, (k, k)),
                lax.dynamic_update_slice(v, u, (1, 2)),
                lax.dynamic_update_slice_in_dim(v, v[:1] * 2, k, 0),
            ],
            x,
            _rand(2, 2),
            np.int32(2),
        ),
        (
            "dynamic_update_slice far",
            lambda v, u, k: lax.dynamic_update_slice(v, u, (k, -9)),
            x,
            _rand(2, 2),
            np.int32(8),
        ),
        ("at set", lambda v, k: [v.at[k].set(1.0), v.at[0].set(2.0), v.at[-1].set(0.0)], x, np.int32(2)),
        ("at set rows", lambda v, k, u: v.at[k].set(u), x, np.array([0, 3, 1], "int32"), _rand(3, 4)),
        ("at set columns", lambda v, k, u: v.at[:, k].set(u), x, np.array([0, 3], "int32"), _rand(5, 2)),
        ("at set slices", lambda v: [v.at[1:3, 2:4].set(1.0), v.at[:, 1].set(5.0), v.at[::2].set(0.0)], x),
        (
            "at set pairs",
            lambda v, k, m: v.at[k, m].set(9.0),
            x,
            np.array([0, 3, 1], "int32"),
            np.array([1, 2, 0], "int32"),
        ),
        ("at set far", lambda v, k: v.at[k].set(9.0), x, far),
        ("at set pairs far", lambda v, k: v.at[k, k].set(9.0), x, far),
        ("at add", lambda v, k, u: v.at[k].add(u), x, np.array([0, 3, 0], "int32"), _rand(3, 4)),
        ("at add far", lambda v, k: [v.at[k].add(1.0), v.at[:, k].multiply(2.0)], x, far),
        ("at min max", lambda v, k: [v.at[k].max(0.5), v.at[k].min(0.0), v.at[k].subtract(1.0)], x, i),
        ("at clip", lambda v, k: v.at[k].set(3.0, mode="clip"), x, np.array([9], "int32")),
        (
            "at window",
            lambda v, k: lax.dynamic_update_slice_in_dim(v, v[:2], k, 0).at[k].add(1),
            x,
            np.int32(1),
        ),
        ("vmap at", jax.vmap(lambda v, k: v.at[k].set(0.0)), x, _ints(5, high=4)),
        ("segment_sum", lambda v, k: jax.ops.segment_sum(v, k, 4), x, _ints(5, high=4)),
        ("bincount", lambda k: jnp.bincount(k, length=6), _ints(9, high=6)),
        ("embedding", lambda t, k: t[k] * 2, x, _ints(2, 3, high=5)),
    ]


@family("order")
def _order() -> list[Any]:
    x, k = _rand(4, 6), _ints(4, 6, high=3)
    return [
        ("sort", lambda v: [jnp.sort(v), jnp.sort(v, 0), jnp.sort(v, descending=True)], x),
        ("argsort", lambda v: [jnp.argsort(v), jnp.argsort(v, 0), jnp.argsort(v, descending=True)], x),
        ("argsort of equals", lambda v: jnp.argsort(v), k),
        ("sort pairs", lambda a, b: lax.sort((a, b), dimension=1, num_keys=1), k, x),
        ("sort by two keys", lambda a, b: lax.sort((a, b, a * 2), dimension=0, num_keys=2), k, x),
        ("lexsort", lambda a, b: jnp.lexsort((b, a)), k, x),
        ("top_k", lambda v: [*lax.top_k(v, 3), *lax.top_k(v[0], 1)], x),
        ("top_k of equals", lambda v: lax.top_k(v, 4), k),
        ("approx_max_k", lambda v: lax.approx_max_k(v, 2), x),
        ("searchsorted", lambda v: jnp.searchsorted(jnp.array([-1.0, 0.0, 0.5, 1.0]), v), x),
        ("digitize", lambda v: jnp.digitize(v, jnp.array([-1.0, 0.0, 1.0])), x),
        ("percentile", lambda v: jnp.percentile(v, 30.0, axis=1), x),
        ("nan last", lambda v: [jnp.sort(v), jnp.argsort(v)], np.array([1, np.nan, -2, 3], "float32")),
    ]


@family("numpy")
def _numpy() -> list[Any]:
    x, v, image = _rand(4, 6), _rand(9), _rand(2, 6, 8, 3)

    def pooled(a: Any) -> Any:
        return (lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2).sum()

    return [
        (
            "resize",
            lambda a: [jax.image.resize(a, (2, 12, 4, 3), m) for m in ("nearest", "linear", "cubic")],
            image,
        ),
        ("convolve", lambda a, b: [jnp.convolve(a, b), jnp.correlate(a, b, "same")], v, _rand(3)),
        ("interp", lambda a: jnp.interp(a, jnp.arange(4.0), jnp.array([0.0, 2.0, 1.0, 5.0])), v),
        ("nonzero", lambda a: jnp.nonzero(a > 0, size=5, fill_value=-1), v),
        ("unique", lambda k: jnp.unique(k, size=6, fill_value=0), _ints(9, high=5)),
        ("histogram", lambda a: jnp.histogram(a, bins=4, range=(-2.0, 2.0))[0], v),
        ("cov", lambda a: [jnp.cov(a), jnp.corrcoef(a)], x),
        ("isclose", lambda a: [jnp.isclose(a, a + 1e-9), jnp.allclose(a, a * 2)], v),
        ("polyval", lambda a: jnp.polyval(jnp.array([1.0, -2.0, 3.0]), a), v),
        ("glu", lambda a: jax.nn.glu(a), x),
        ("nanmean", lambda a: [jnp.nanmean(a), jnp.nanmax(a, 0), jnp.average(a, 1, weights=a[0])], x),
        ("cross", lambda a, b: [jnp.cross(a, b), jnp.vdot(a, b), jnp.inner(a, b)], _rand(3), _rand(3)),
        ("block", lambda a: jnp.block([[a, a], [a * 2, a]]), x),
        ("apply_along_axis", lambda a: jnp.apply_along_axis(lambda r: r @ r, 1, a), x),
        ("sinc", lambda a: [jnp.sinc(a), jnp.logaddexp(a, -a), jnp.deg2rad(a), jnp.heaviside(a, 0.5)], v),
        ("matrix_power", lambda a: jnp.linalg.matrix_power(a, 3), _rand(3, 3)),
        ("cumulative_sum", lambda a: jnp.cumulative_sum(a, axis=0), x),
        ("insert", lambda a: [jnp.insert(a, 2, 5.0), jnp.delete(a, 3), jnp.append(a, a)], v),
        (
            "mode",
            lambda k: [jnp.argwhere(k > 3, size=4), jnp.count_nonzero(k), jnp.flatnonzero(k > 2, size=3)],
            _ints(3, 4),
        ),
        ("select pool gradient", jax.grad(pooled), image),
        ("same array twice", lambda a: (a, a, a + 1), x),
        ("l2 normalize", lambda a: a / jnp.linalg.norm(a, axis=-1, keepdims=True), x),
        ("rms norm", lambda a: a * lax.rsqrt(jnp.mean(a * a, -1, keepdims=True) + 1e-6), x),
        ("group norm", _group_norm, image),
        ("rotary", _rotary, _rand(2, 5, 4, 6)),
        (
            "losses",
            lambda a, k: [
                -jnp.take_along_axis(jax.nn.log_softmax(a), k[:, None], 1).mean(),
                jnp.mean((a - 1) ** 2),
            ],
            x,
            _ints(4, high=6),
        ),
        ("moe", _routed, x, _rand(6, 3), _rand(3, 6, 5)),
        ("platform", lambda a: lax.platform_dependent(a, cpu=lambda b: b * 2, default=lambda b: b * 3), x),
    ]


def _group_norm(x: Any) -> Any:
    y = x.reshape(2, 6, 8, 3, 1)
    mean, variance = (f(y, axis=(1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
    return ((y - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def _rotary(x: Any) -> Any:
    angles = jnp.arange(x.shape[1])[:, None] / 10000 ** (jnp.arange(0, 6, 2) / 6)
    cos, sin = (f(angles)[None, :, None] for f in (jnp.cos, jnp.sin))
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def _routed(x: Any, router: Any, experts: Any) -> Any:
    """Each row through its two best experts."""
    weights, which = lax.top_k(jax.nn.softmax(x @ router), 2)
    chosen = jnp.einsum("td,tkdf->tkf", x, experts[which])
    return jnp.einsum("tk,tkf->tf", weights / weights.sum(-1, keepdims=True), chosen)


@family("control")
def _control() -> list[Any]:
    x, w = _rand(5, 4), _rand(4, 4) / 4
    return [
        ("scan", lambda v: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), v), x),
        ("scan reverse", lambda v: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), v, reverse=True), x),
        ("scan of nothing", lambda v: lax.scan(lambda c, _: (c * 0.5, None), v, None, length=3), x),
        ("scan with weights", lambda v, u: lax.scan(lambda c, r: (jnp.tanh(c @ u + r),) * 2, v[0], v), x, w),
        ("scan of length 0", lambda v: lax.scan(lambda c, r: (c + r, c), v[0], v[:0]), x),
        ("fori_loop", lambda v: lax.fori_loop(0, 4, lambda i, c: c * 0.5 + i, v), x),
        (
            "while known",
            lambda v: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, v)),
            x,
        ),
        ("map", lambda v: lax.map(lambda r: r @ r, v), x),
        ("cond known", lambda v: lax.cond(v.shape[0] > 3, jnp.sin, jnp.cos, v), x),
        ("jit", jax.jit(lambda v: jax.jit(jnp.sin)(v) + 1), x),
        ("remat", jax.checkpoint(lambda v: jnp.sin(v) * 2), x),
        ("custom_jvp", lambda v: jax.nn.relu(jax.nn.silu(v)), x),
        ("custom_vjp", _scaled, x),
        ("grad", jax.grad(lambda v: (jnp.tanh(v @ w) ** 2).sum()), x),
        (
            "grad of conv",
            jax.grad(lambda u: (lax.conv(_IMAGE, u, (2, 2), "SAME") ** 2).sum()),
            _rand(3, 2, 3, 3),
        ),
        ("vmap scan", jax.vmap(lambda v: jnp.cumsum(v)), x),
        ("named call", jax.named_call(lambda v: v * 2, name="twice"), x),
        ("stop_gradient", lambda v: lax.stop_gradient(v) + 1, x),
    ]


_IMAGE = np.random.default_rng(1).standard_normal((1, 2, 6, 6)).astype("float32")


@jax.custom_vjp
def _scaled(x: Any) -> Any:
    return x * 3


_scaled.defvjp(lambda x: (x * 3, None), lambda _, g: (g * 3,))
