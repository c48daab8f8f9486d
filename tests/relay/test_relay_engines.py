"""The code generators of the package: a C compiler, oneDNN and onnxruntime, against this compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.contrib import dnnl, onnxruntime
from tilewright.relay.contrib.to_onnx import known_operators
from tilewright.relay.engines import MISSING

T = relay.transform
nn = relay.nn
RANDOM = np.random.default_rng(0)

needs_dnnl = pytest.mark.needs("dnnl")
needs_onnxruntime = pytest.mark.skipif("onnxruntime" in MISSING, reason="onnxruntime is not installed")
ENGINES = [
    pytest.param(
        lambda m, p: dnnl.partition_for_dnnl(m, p, prune_subgraphs=False), marks=needs_dnnl, id="dnnl"
    ),
    pytest.param(onnxruntime.partition_for_onnxruntime, marks=needs_onnxruntime, id="onnxruntime"),
]


def rand(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype("float32")


def parts_of(mod: Any) -> list[Any]:
    return [f for f in mod.functions.values() if "Compiler" in f.attrs]


def run(lib: Any, arrays: Any) -> Any:
    made = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    made.set_input(**arrays)
    made.run()
    return [made.get_output(i).numpy() for i in range(made.get_num_outputs())]


def agree(body: Any, partition: Any, count: int = 1) -> Any:
    """The results of an engine are those of this compiler; parameters that start with w are constants."""
    params = relay.analysis.free_vars(body)
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))
    arrays = {p.name_hint: rand(*p.type_annotation.shape) for p in params}
    weights = {n: a for n, a in arrays.items() if n.startswith("w")}
    made = partition(mod, weights)
    assert len(parts_of(made)) == count
    given = {n: a for n, a in arrays.items() if n not in weights}
    lib = relay.build(made, "llvm")
    for got, wanted in zip(run(lib, given), run(relay.build(mod, "llvm"), arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    return lib, given


def image() -> Any:
    return relay.var("x", shape=(1, 8, 14, 14))


def conv_bias(**attrs: Any) -> Any:
    w, b = relay.var("w", shape=(16, 8, 3, 3)), relay.var("wb", shape=(16,))
    return nn.bias_add(nn.conv2d(image(), w, **attrs), b)


CASES = {
    "conv_bias_relu": lambda: nn.relu(conv_bias(padding=(1, 0, 1, 1), strides=(2, 1))),
    "depthwise": lambda: relay.tanh(
        nn.conv2d(image(), relay.var("w", shape=(8, 1, 3, 3)), groups=8, dilation=(2, 2))
    ),
    "conv_bias_sum_relu": lambda: nn.relu(conv_bias(padding=(1, 1)) + relay.var("y", shape=(1, 16, 14, 14))),
    "weights_at_run_time": lambda: nn.conv2d(image(), relay.var("k", shape=(4, 8, 1, 1))),
    "dense_bias_sigmoid": lambda: relay.sigmoid(
        nn.dense(relay.var("a", shape=(2, 3, 8)), relay.var("w", shape=(5, 8))) + relay.var("wb", shape=(5,))
    ),
    "batch_matmul_softmax": lambda: nn.softmax(
        nn.batch_matmul(relay.var("a", shape=(2, 3, 8)), relay.var("b", shape=(2, 4, 8)))
    ),
    "pools": lambda: nn.global_avg_pool2d(
        nn.max_pool2d(nn.avg_pool2d(image(), (3, 3), padding=(1, 1)), (2, 2), strides=(2, 2))
    ),
    "elementwise": lambda: (
        lambda x: relay.clip(relay.exp(relay.log(relay.sqrt(relay.abs(x)))), 0.1, 0.5) * nn.leaky_relu(x, 0.3)
    )(image()),
    "broadcast": lambda: relay.const(rand(8, 1, 1)) + image() * relay.const(2.0),
    "same_input_twice": lambda: (lambda x: x * x + x)(image()),
}


@pytest.mark.parametrize("partition", ENGINES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_engine(name, partition):
    agree(CASES[name](), partition)


@needs_onnxruntime
@pytest.mark.slow
def test_shapes_in_onnxruntime():
    x = image()
    flat = relay.reshape(x, (1, 8, 196))
    joined = relay.concatenate([flat, relay.squeeze(relay.expand_dims(flat, 3), [3])], axis=1)
    body = relay.mean(relay.transpose(joined, (0, 2, 1)), axis=[1], keepdims=True)
    agree(relay.Tuple([body, relay.sum(nn.batch_flatten(x), axis=1), relay.max(x)]), ENGINES[1].values[0], 3)


@pytest.mark.parametrize("partition", ENGINES)
@pytest.mark.slow
def test_export_and_load(partition, tmp_path):
    lib, given = agree(nn.relu(conv_bias(padding=(1, 1))), partition)
    path = str(tmp_path / "net.so")
    lib.export_library(path)
    np.testing.assert_allclose(run(tvm.runtime.load_module(path), given), run(lib, given), rtol=1e-6)


@needs_dnnl
def test_patterns_are_one_primitive():
    body = nn.relu(conv_bias(padding=(1, 1)) + relay.var("y", shape=(1, 16, 14, 14)))
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    made = dnnl.partition_for_dnnl(mod, {"w": rand(16, 8, 3, 3), "wb": rand(16)})
    (fn,) = parts_of(made)
    assert fn.body.op.attrs["Composite"] == "dnnl.conv2d_bias_sum_relu"
    (nodes,) = [about["nodes"] for about in _functions(relay.build(made, "llvm"))]
    assert [n["op"] for n in nodes] == ["conv2d"] and nodes[0]["bias"]
    assert [p[0] for p in nodes[0]["post"]] == ["sum", "relu"]


def _functions(lib: Any) -> list[Any]:
    import json
    import struct

    data = lib.imported_modules[0].save_to_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return list(json.loads(data[8 : 8 + length]).values())


@needs_dnnl
@pytest.mark.slow
def test_a_batch_norm_becomes_weights_and_one_bias():
    given = [relay.var(f"w{n}", shape=(16,)) for n in ("gamma", "beta", "mean")]
    variance = relay.const(np.linspace(0.5, 2, 16, dtype="float32"))
    normed = nn.batch_norm(conv_bias(padding=(1, 1)), *given, variance)[0]
    lib, _ = agree(nn.relu(normed), ENGINES[0].values[0])
    assert [n["op"] for about in _functions(lib) for n in about["nodes"]] == ["conv2d"]


@needs_dnnl
def test_pruning_leaves_functions_without_a_product():
    x = relay.var("x", shape=(4, 8))
    body = relay.exp(nn.dense(relay.erf(relay.exp(x)), relay.var("w", shape=(4, 8))))
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    assert len(parts_of(dnnl.partition_for_dnnl(mod, prune_subgraphs=False))) == 2
    (kept,) = parts_of(dnnl.partition_for_dnnl(mod))
    assert "nn.dense" in str(kept)
    agree(body, dnnl.partition_for_dnnl)


def test_operators_that_onnxruntime_takes_are_known():
    assert set(onnxruntime.OPERATORS) <= set(known_operators())


def test_a_type_that_an_engine_lacks_is_not_taken():
    x = relay.var("x", shape=(2, 2), dtype="float16")
    mod = tvm.IRModule.from_expr(relay.Function([x], nn.relu(x)))
    for partition in (dnnl.partition_for_dnnl, onnxruntime.partition_for_onnxruntime):
        assert not parts_of(partition(mod))


def test_a_missing_engine_says_how_it_is_installed(monkeypatch):
    x = relay.var("x", shape=(2, 2))
    mod = dnnl.partition_for_dnnl(
        tvm.IRModule.from_expr(relay.Function([x], nn.relu(x))), prune_subgraphs=False
    )
    kept = tvm.get_global_func("relay.ext.dnnl", True)
    tvm.runtime.remove_global_func("relay.ext.dnnl")
    monkeypatch.setitem(MISSING, "dnnl", "pip install onednn-cpu-gomp, which has oneDNN")
    try:
        with pytest.raises(tvm.ir.BuildError, match="'dnnl', and there is none: pip install onednn-cpu-gomp"):
            relay.build(mod, "llvm")
    finally:
        if kept is not None:
            tvm.register_func("relay.ext.dnnl", kept)


# ---------------------------------------------------------------------------- C
def in_c(mod: Any, params: Any = None) -> Any:
    passes = [T.AnnotateTarget("ccompiler"), T.MergeCompilerRegions(), T.PartitionGraph()]
    return tvm.transform.Sequential(passes)(mod)


@pytest.mark.needs("cc")
def test_ccompiler():
    a, b = relay.var("a", shape=(3, 1, 5)), relay.var("b", shape=(4, 1))
    agree(relay.exp((a + b) * relay.const(rand(5)) - b), in_c)
    agree(relay.Tuple([nn.relu(a), relay.maximum(a, b)]), in_c, 2)


@pytest.mark.needs("cc")
def test_ccompiler_code_is_linked_in():
    x = relay.var("x", shape=(2, 2))
    mod = in_c(T.InferType()(tvm.IRModule.from_expr(relay.Function([x], x + x))))
    lib = relay.build(mod, "llvm")
    assert not lib.externals and not lib.imported_modules


def test_ccompiler_refuses_other_operators():
    a = relay.var("a", shape=(2, 2))
    fn = relay.Function([a], relay.sqrt(a)).with_attr("Compiler", "ccompiler")
    x = relay.var("x", shape=(2, 2))
    with pytest.raises(tvm.ir.BuildError, match="ccompiler: ccompiler_0 has sqrt, which it cannot compile"):
        relay.build(tvm.IRModule.from_expr(relay.Function([x], fn(x))), "llvm")
