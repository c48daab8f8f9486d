"""GroupAttention: which parts of models become one kernel, what is left alone, and that it means the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from attention_models import FORMS, Form, sample

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.analysis import count_calls, post_order
from tilewright.relay.transform.axis_parts import Part, View, regrouped, source_of

HOPPER = "cuda -model=h200"
OP = "nn.scaled_dot_product_attention"


def grouped(mod: Any, target: str = HOPPER) -> Any:
    with tvm.target.Target(target):
        return relay.transform.GroupAttention()(mod)["main"]


def kernels(func: Any) -> list[Any]:
    return [e for e in post_order(func) if isinstance(e, relay.Function) and e.attrs.get("Primitive")]


def call_of(func: Any) -> Any:
    (kernel,) = kernels(func)
    (found,) = (e for e in post_order(kernel) if isinstance(e, relay.Call) and e.op.name == OP)
    return found


def attention(name: str = "BERT", **changes: Any) -> Any:
    return sample(FORMS[name]._replace(**changes)).mod


@pytest.mark.parametrize("name", FORMS)
def test_models_have_one_kernel_for_it(name: str) -> None:
    func = grouped(attention(name))
    assert len(kernels(func)) == 1 and count_calls(func, OP) == 1
    assert not count_calls(func, "nn.batch_matmul") and not count_calls(func, "nn.softmax")


def run(mod: Any, given: dict[str, Any]) -> Any:
    executor = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    executor.run(**given)
    return executor.get_output(0).numpy().astype("float64")


@pytest.mark.parametrize(
    "name",
    [
        "a window, slices",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in (
                "written out, narrow",
                "128 wide, rows that see nothing",
                "keys turned, hidden",
            )
        ),
    ],
)
def test_it_means_the_same(name: str) -> None:
    made = sample(FORMS[name])
    func = grouped(made.mod)
    found = run(tvm.IRModule.from_expr(func), made.given)
    np.testing.assert_allclose(found, made.expected, atol=2e-3)


def test_heads_are_read_where_they_lie() -> None:
    (kernel,) = kernels(grouped(attention("ViT")))
    assert [p.checked_type.shape for p in kernel.params] == [(2, 197, 3, 3, 64)]
    assert kernel.checked_type.ret_type.shape == (2, 197, 3, 64)
    (kernel,) = kernels(grouped(attention("PyTorch")))
    assert [p.checked_type.shape for p in kernel.params] == [(100, 3, 3, 64)]
    (kernel,) = kernels(grouped(attention("BERT", mask="")))
    assert [p.checked_type.shape for p in kernel.params] == [(2, 128, 4, 64)] * 3


def test_keys_that_lie_across_are_transposed_before() -> None:
    func = grouped(attention("keys turned, hidden"))
    (kernel,) = kernels(func)
    assert not count_calls(kernel, "transpose") and count_calls(func, "transpose") == 1


@pytest.mark.parametrize("scale", ["product", "operands"])
def test_numbers_go_into_the_scale(scale: str) -> None:
    found = call_of(grouped(attention(scale=scale)))
    assert found.attrs.scale == pytest.approx(0.125, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("GPT-2", (True, 0, None)),
        ("causal, later rows", (True, 40, None)),
        ("a window, slices", (True, 0, (39, -1))),
        ("one head, infinity added", (True, 0, None)),
    ],
)
def test_masks_that_are_known_become_comparisons(name: str, facts: Any) -> None:
    found = call_of(grouped(attention(name)))
    assert (found.attrs.is_causal, found.attrs.offset, found.attrs.window) == facts
    assert len(found.args) == 3


def test_masks_of_models_are_not_spread_out() -> None:
    assert call_of(grouped(attention())).args[3].checked_type.shape == (2, 1, 1, 128)
    mask = call_of(grouped(attention("128 wide, rows that see nothing"))).args[3].checked_type
    assert mask.shape == (1, 130, 130)[-len(mask.shape) :] and mask.dtype == "bool"


def test_layers_of_the_same_data_become_one() -> None:
    x = relay.var("x", shape=(1, 64, 128), dtype="float16")
    heads = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        w, b = (relay.const(rng.standard_normal(s).astype("float16")) for s in ((128, 128), (128,)))
        y = relay.add(relay.cast(relay.nn.dense(x, w, out_dtype="float32"), "float16"), b)
        y = relay.transpose(relay.reshape(y, (1, 64, 2, 64)), (0, 2, 1, 3))
        heads.append(relay.reshape(y, (2, 64, 64)))
    q, k, v = heads
    weights = relay.cast(relay.nn.softmax(relay.nn.batch_matmul(q, k, out_dtype="float32")), "float16")
    out = relay.cast(relay.nn.batch_matmul(weights, v, out_dtype="float32", transpose_b=False), "float16")
    func = grouped(tvm.IRModule.from_expr(relay.Function([x], out)))
    assert count_calls(func, "nn.dense") == 1 and count_calls(func, OP) == 1
    (kernel,) = kernels(func)
    assert [p.checked_type.shape for p in kernel.params] == [(64, 3, 2, 64)]


# ---------------------------------------------------------------------------- what stays
@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_80", "opencl"])
def test_other_targets_have_no_kernel_for_it(target: str) -> None:
    mod = attention()
    assert grouped(mod, target) is mod["main"]


def test_a_context_can_leave_it_out() -> None:
    with tvm.target.Target(HOPPER), tvm.transform.PassContext(disabled_pass=["GroupAttention"]):
        ready, _ = relay.optimize(attention(), HOPPER)
    assert not kernels(ready["main"])


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float32"},  # no warpgroup multiplies them
        {"rows": 8, "keys": 128},  # too few rows for a tile
        {"width": 60},  # lines of the matrices do not start at multiples of 16 bytes
        {"width": 320},  # more than registers hold
    ],
)
def test_what_no_kernel_does_stays(changes: dict[str, Any]) -> None:
    mod = attention(**changes)
    func = grouped(mod)
    assert not kernels(func) and count_calls(func, "nn.batch_matmul") == 2


def products(between: Any, *, beside: bool = False) -> Any:
    """Two products with something between them."""
    q, k, v = (relay.var(n, shape=(2, 64, 64), dtype="float16") for n in "qkv")
    scores = relay.nn.batch_matmul(q, k, out_dtype="float32")
    weights = between(scores)
    out = relay.nn.batch_matmul(relay.cast(weights, "float16"), v, out_dtype="float32", transpose_b=False)
    out = relay.cast(out, "float16")
    return tvm.IRModule.from_expr(relay.Function([q, k, v], relay.Tuple([out, weights]) if beside else out))


@pytest.mark.parametrize(
    "between",
    [
        lambda s: relay.nn.softmax(s, axis=1),
        lambda s: relay.reshape(relay.nn.softmax(relay.reshape(s, (2, 4096))), (2, 64, 64)),
        lambda s: relay.reshape(relay.nn.softmax(relay.reshape(s, (2, 128, 32))), (2, 64, 64)),
        lambda s: relay.nn.softmax(relay.tanh(s)),
        lambda s: relay.nn.softmax(s * relay.const(-1.0)),
        lambda s: relay.nn.softmax(relay.where(s > relay.const(0.0), s, relay.const(-5.0))),
        lambda s: relay.nn.softmax(relay.maximum(s, relay.const(0.0))),
        lambda s: relay.nn.softmax(relay.multiply(s, s)),
        lambda s: relay.exp(s) / relay.sum(relay.exp(s), axis=2, keepdims=True),
        lambda s: relay.nn.relu(s),
    ],
)
def test_what_is_no_attention_stays(between: Any) -> None:
    assert not kernels(grouped(products(between)))
    assert kernels(grouped(products(relay.nn.softmax)))


def test_weights_that_are_used_elsewhere_are_computed_as_before() -> None:
    assert not kernels(grouped(products(relay.nn.softmax, beside=True)))


# ---------------------------------------------------------------------------- axes
def test_axes_are_found_below_what_moves_them() -> None:
    b, h, i, e = (Part(n) for n in (2, 3, 5, 7))
    x = relay.var("x", shape=(2, 5, 63))
    y = relay.transpose(relay.reshape(relay.split(x, 3, axis=2)[1], (2, 5, 3, 7)), (0, 2, 1, 3))
    y = relay.multiply(relay.reshape(y, (6, 5, 7)), relay.const(2.0))
    y = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))["main"].body
    last = source_of(View(y, ((b, h), (i,), (e,))))[-1]
    assert last.factor == 2 and last.expr.name_hint == "x"
    first, second, (which, *rest) = last.dims
    assert (first, second, rest) == ((b,), (i,), [h, e]) and (which.size, which.index) == (3, 1)


def test_axes_are_not_cut() -> None:
    a, b = Part(4), Part(6)
    assert regrouped([a, b], (4, 1, 6)) == ((a,), (), (b,))
    assert regrouped([a, b], (24,)) == ((a, b),)
    assert regrouped([a, b], (8, 3)) is None and regrouped([a, b], (4,)) is None
    assert Form(1, 2, 3, 4).scores == (1, 2, 3, 3)
