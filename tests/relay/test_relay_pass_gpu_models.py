"""What models get for GPUs: results that come in two types, parts of splits, transposed convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relay_eval import check, count

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.transform.rewriting import CallRewriter
from tilewright.relay.transform.transposed_convolutions import as_convolution

T = relay.transform
RNG = np.random.default_rng(0)


def const(*shape: int, dtype: str = "float32") -> Any:
    return relay.const(RNG.standard_normal(shape).astype(dtype))


def norm_in_two_types(*shape: int) -> Any:
    """A norm whose result is the factor of a product in float16, and goes on in float32 beside it."""
    x = relay.var("x", shape=shape)
    n = relay.nn.layer_norm(x, const(shape[-1]), const(shape[-1]))
    half = relay.nn.dense(relay.cast(n, "float16"), const(shape[-1], shape[-1], dtype="float16"))
    made = relay.cast(half, "float32") + n
    return T.InferType()(tvm.IRModule.from_expr(relay.Function([x], made)))


def fused(mod: Any, target: str) -> Any:
    with tvm.target.Target(target):
        return T.FuseOps(2)(T.InferType()(T.SimplifyInference()(mod)))["main"]


# ---------------------------------------------------------------------------- results in two types
def test_a_norm_gives_its_result_in_both_types() -> None:
    text = str(fused(norm_in_two_types(6, 40), "opencl"))
    assert text.count("Primitive=1") == 2
    assert "(Tensor[(6, 40), float32], Tensor[(6, 40), float16])" in text


@pytest.mark.slow
@pytest.mark.needs("opencl")
@pytest.mark.parametrize("first", [True, False])
def test_a_view_does_not_keep_them_apart(first: bool) -> None:
    x = relay.var("x", shape=(2, 3, 40))
    n = relay.nn.layer_norm(x, const(40), const(40))
    steps = [lambda y: relay.reshape(y, (6, 40)), lambda y: relay.cast(y, "float16")]
    half: Any = n
    for step in steps if first else steps[::-1]:
        half = step(half)
    both = relay.Tuple([relay.nn.dense(half, const(8, 40, dtype="float16")), n * const(40)])
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], both)))
    text = str(fused(mod, "opencl"))
    assert "(Tensor[(2, 3, 40), float32], Tensor[(2, 3, 40), float16])" in text
    given, found = RNG.standard_normal((2, 3, 40)).astype("float32"), []
    for target, dev in (("llvm", tvm.cpu()), ("opencl", tvm.opencl())):
        lib = relay.build(mod, target)
        executor = graph_executor.GraphModule(lib["default"](dev))
        executor.run(x=given)
        found.append([executor.get_output(i).numpy().astype("float32") for i in (0, 1)])
    assert len(lib.model.steps) == 3  # on the GPU: the norm, the product, what is done with the norm
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2)


def test_processors_keep_a_kernel_for_each() -> None:
    assert str(fused(norm_in_two_types(6, 40), "llvm")).count("float16])") == 0


def test_what_is_read_with_something_else_stays_alone() -> None:
    x, y = relay.var("x", shape=(4, 8)), relay.var("y", shape=(4, 8))
    n = relay.nn.softmax(relay.exp(x), axis=-1) * relay.sum(x, axis=1, keepdims=True)
    both = relay.Tuple([n, relay.add(n, y)])
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x, y], both)))
    assert ".0" not in str(fused(mod, "opencl"))


@pytest.mark.slow
def test_one_kernel_writes_both() -> None:
    lib = relay.build(norm_in_two_types(8, 96), "cuda -arch=sm_80")
    (told,) = [v for k, v in lib.schedules.items() if "sqrt" in k]
    assert "beside         T_cast" in told
    assert lib.get_lib().device_module.source.count("__global__") == len(lib.model.steps) == 2


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.needs("opencl")
@pytest.mark.parametrize(
    "shape", [(5, 33), *(pytest.param(s, marks=pytest.mark.slow) for s in ((8, 96), (3, 17, 100), (2, 4100)))]
)
def test_the_same_numbers_as_on_the_processor(shape: tuple[int, ...]) -> None:
    mod, found = norm_in_two_types(*shape), []
    x = RNG.standard_normal(shape).astype("float32")
    for target, dev in (("llvm", tvm.cpu()), ("opencl", tvm.opencl())):
        executor = graph_executor.GraphModule(relay.build(mod, target)["default"](dev))
        executor.run(x=x)
        found.append(executor.get_output(0).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-2, atol=1e-2)


# ---------------------------------------------------------------------------- splits
@pytest.mark.parametrize("places", [4, (2, 5)])
def test_parts_of_a_split_are_slices(places: Any) -> None:
    x = relay.var("x", shape=(3, 8))
    parts = relay.split(x, places, axis=-1)
    body = relay.Tuple([relay.tanh(parts[i]) for i in (2, 0)])
    with tvm.target.Target("opencl"):
        found = check(relay.Function([x], body), T.SlicesOfSplits())
    assert count(found, "split") == 0 and count(found, "strided_slice") == 2


def test_a_split_that_is_wanted_as_a_whole_stays() -> None:
    x = relay.var("x", shape=(3, 8))
    func = relay.Function([x], relay.split(x, 2, axis=1).tuple_value)
    with tvm.target.Target("opencl"):
        assert count(check(func, T.SlicesOfSplits()), "split") == 1


def test_processors_split() -> None:
    x = relay.var("x", shape=(3, 8))
    with tvm.target.Target("llvm"):
        found = check(relay.Function([x], relay.tanh(relay.split(x, 2, axis=1)[1])), T.SlicesOfSplits())
    assert count(found, "split") == 1


# ---------------------------------------------------------------------------- transposed convolutions
@pytest.mark.parametrize(
    ("window", "stride", "padding", "more"),
    [(2, 2, 0, 0), (4, 2, 1, 0), (3, 2, 1, 1), (3, 2, 1, 0), (3, 1, 1, 0), (5, 3, 1, 2), (4, 2, 3, 0)],
)
def test_a_transposed_convolution_is_one(window: int, stride: int, padding: int, more: int) -> None:
    x = relay.var("x", shape=(2, 3, 5, 6))
    made = relay.nn.conv2d_transpose(
        x, const(3, 4, window, window), strides=(stride,) * 2, padding=(padding,) * 2, output_padding=(more,) * 2,
        kernel_size=(window,) * 2, channels=4,
    )  # fmt: skip
    before = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], made)))["main"]
    after = CallRewriter({relay.nn.conv2d_transpose: as_convolution}).visit(before)
    assert count(after, "nn.conv2d_transpose") == 0 and count(after, "nn.conv2d") == 1
    given = RNG.standard_normal((2, 3, 5, 6)).astype("float32")
    found = [
        relay.create_executor("graph", tvm.IRModule.from_expr(f)).evaluate()(given) for f in (before, after)
    ]
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=1e-4, atol=1e-5)


def test_transposed_convolutions_that_stay() -> None:
    x, w = relay.var("x", shape=(1, 4, 5, 5)), relay.var("w", shape=(4, 4, 3, 3))
    kept = [
        relay.nn.conv2d_transpose(x, w, strides=(2, 2)),  # weights that are not known
        relay.nn.conv2d_transpose(
            x, const(4, 4, 1, 1), strides=(3, 3)
        ),  # nearly all products would be with zeros
        relay.nn.conv2d_transpose(x, const(4, 1, 3, 3), groups=4, channels=4, strides=(2, 2)),
    ]
    for made in kept:
        func = relay.Function(relay.analysis.free_vars(made), made)
        func = T.InferType()(tvm.IRModule.from_expr(func))["main"]
        assert CallRewriter({relay.nn.conv2d_transpose: as_convolution}).visit(func) is func


def test_tensor_cores_take_transposed_convolutions() -> None:
    x = relay.var("x", shape=(1, 16, 8, 8), dtype="float16")
    made = relay.nn.conv2d_transpose(x, const(16, 16, 4, 4, dtype="float16"), strides=(2, 2), padding=(1, 1))
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], made)))
    with tvm.target.Target("cuda -arch=sm_80"):
        found = T.UseTensorCores()(mod)["main"]
    assert count(found, "nn.conv2d") == 1 and count(found, "nn.conv2d_transpose") == 0
