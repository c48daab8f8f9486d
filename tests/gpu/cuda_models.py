"""Whole models on a CUDA device, against the build for the processor. They need LLVM for what the host does."""

from __future__ import annotations

import importlib.util
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from attention_models import FORMS, sample
from cuda_checks import check

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.contrib.debugger import debug_executor


def of_models(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A check, where models can be compiled."""
    return check(f) if importlib.util.find_spec("llvmlite") is not None else f


def weights(*shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
    return relay.const(values.astype("float32"))


def conv_net(layout: str = "NCHW") -> Any:
    """Convolutions with a residual, pooling, a classifier, a softmax."""
    x = relay.var("x", shape=(2, 16, 19, 19))

    def block(y: Any, seed: int, stride: int = 1) -> Any:
        w = weights(16, 16, 3, 3, seed=seed)
        y = relay.nn.conv2d(y, w, strides=(stride, stride), padding=(1, 1), kernel_size=(3, 3), channels=16)
        norm = [relay.const(np.linspace(0.5, 1.5, 16, dtype="float32")) for _ in range(4)]
        return relay.nn.relu(relay.nn.batch_norm(y, *norm)[0])

    a = block(x, 1, 2)
    y = relay.nn.relu(relay.add(block(a, 2), a))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    y = relay.nn.softmax(relay.nn.dense(y, weights(10, 16, seed=3)))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    if layout != "NCHW":
        mod = relay.transform.ConvertLayout({"nn.conv2d": [layout, "default"]})(mod)
    return mod


def attention() -> Any:
    x = relay.var("x", shape=(1, 40, 64))
    n = relay.nn.layer_norm(x, weights(64), weights(64, seed=1))
    flat = relay.reshape(n, (40, 64))

    def head(seed: int) -> Any:
        rows = relay.reshape(relay.nn.dense(flat, weights(64, 64, seed=seed)), (40, 4, 16))
        return relay.transpose(rows, (1, 0, 2))

    q, k, v = head(2), head(3), head(4)
    scores = relay.nn.softmax(relay.nn.batch_matmul(q, k) * relay.const(0.25), axis=-1)
    out = relay.nn.batch_matmul(scores, relay.transpose(v, (0, 2, 1)))
    out = relay.reshape(relay.transpose(out, (1, 0, 2)), (1, 40, 64))
    return tvm.IRModule.from_expr(relay.Function([x], x + out))


def with_a_sort() -> Any:
    x = relay.var("x", shape=(4, 32))  # too few rows to sort each by a thread
    order = relay.argsort(relay.nn.dense(x, weights(24, 32)), axis=1)
    return tvm.IRModule.from_expr(relay.Function([x], relay.cast(order, "float32") * relay.const(2.0)))


def image(mod: Any, seed: int = 0) -> Any:
    (p,) = mod["main"].params
    return np.random.default_rng(seed).standard_normal(p.type_annotation.shape).astype("float32")


def on_cpu(mod: Any, x: Any) -> Any:
    executor = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    executor.run(x=x)
    return executor.get_output(0).numpy()


def agree(executor: Any, mod: Any, tolerance: float = 1e-4) -> None:
    """The first run launches, those after it replay a graph; each has another input."""
    for seed in range(4):
        x = image(mod, seed)
        executor.run(x=x)
        np.testing.assert_allclose(
            executor.get_output(0).numpy().astype("float32"), on_cpu(mod, x), rtol=tolerance, atol=tolerance
        )


@of_models
def models(dev: Any) -> str:
    told = []
    for name, mod in {
        "conv": conv_net(),
        "conv NHWC": conv_net("NHWC"),
        "attention": attention(),
    }.items():
        lib = relay.build(mod, "cuda")
        assert not lib.model.on_host
        executor = graph_executor.GraphModule(lib["default"](dev))
        agree(executor, mod)
        assert executor.module._graphs is not None and len(executor.module._graphs) == 1
        told.append(f"{name} {executor.benchmark(dev, number=20).median * 1e6:.0f} us")
    return ", ".join(told)


@of_models
def half_precision(dev: Any) -> None:
    for mod in (conv_net(), conv_net("NHWC"), attention()):
        small = relay.transform.ToMixedPrecision("float16")(relay.transform.InferType()(mod))
        executor = graph_executor.GraphModule(relay.build(small, "cuda")["default"](dev))
        for seed in range(2):
            x = image(mod, seed)
            executor.run(x=x)
            found = executor.get_output(0).numpy().astype("float32")
            np.testing.assert_allclose(found, on_cpu(mod, x), rtol=2e-2, atol=2e-2)


@of_models
def attention_of_models(dev: Any) -> str:
    """Attention in the words of exporters, against float64; on Hopper it is one kernel."""
    worst = 0.0
    for name, form in FORMS.items():
        made = sample(form)
        lib = relay.build(made.mod, "cuda")
        assert not lib.model.on_host
        if dev.compute_version == "9.0":
            assert sum("attention" in step.name for step in lib.model.steps) == 1, name
        executor = graph_executor.GraphModule(lib["default"](dev))
        for _ in range(3):
            executor.run(**made.given)
            found = executor.get_output(0).numpy().astype("float64")
            np.testing.assert_allclose(found, made.expected, atol=4e-3, err_msg=name)
            worst = max(worst, float(abs(found - made.expected).max()))
    return f"largest difference {worst:.1e}"


@of_models
def norms(dev: Any) -> None:
    """A norm is one kernel, for rows that are no whole vectors too."""
    for shape in ((3, 50, 768), (7, 33), (2, 4100)):
        x = relay.var("x", shape=shape)
        made = relay.nn.layer_norm(x, weights(shape[-1]), weights(shape[-1], seed=1))
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], made)))
        lib = relay.build(mod, "cuda")
        assert len(lib.model.steps) == 1
        agree(graph_executor.GraphModule(lib["default"](dev)), mod)
        sums = relay.add(relay.exp(x), weights(*shape, seed=2))
        mod = relay.transform.InferType()(
            tvm.IRModule.from_expr(relay.Function([x], relay.nn.l2_normalize(sums, 1e-6, [-1])))
        )
        lib = relay.build(mod, "cuda")
        assert len(lib.model.steps) == 1
        agree(graph_executor.GraphModule(lib["default"](dev)), mod)


@of_models
def model_memory(dev: Any) -> None:
    """Arrays used where they lie, weights that change: what was recorded is recorded anew."""
    mod = conv_net()
    lib = relay.build(mod, "cuda")
    one, two = (graph_executor.GraphModule(lib["default"](dev)) for _ in range(2))
    assert one.module._weights is two.module._weights
    agree(one, mod)
    x = [image(mod, s) for s in (5, 6)]
    there = [tvm.nd.array(v, dev) for v in x]
    out = tvm.nd.empty((2, 10), "float32", dev)
    two.set_output_zero_copy(0, out)
    for k in (0, 1, 0):
        two.set_input_zero_copy("x", there[k])
        for _ in range(2):
            two.run()
            np.testing.assert_allclose(out.numpy(), on_cpu(mod, x[k]), rtol=1e-4, atol=1e-4)
    last = next(p for p in lib.model.params if p.shape[0] == 10)
    two.set_input(last.name, np.zeros(last.shape, "float32"))
    for _ in range(2):
        two.run()
        np.testing.assert_allclose(out.numpy(), 0.1, rtol=1e-5)
    agree(one, mod)


@of_models
def model_files(dev: Any) -> None:
    mod = conv_net()
    lib = relay.build(mod, "cuda")
    with tempfile.TemporaryDirectory() as folder:
        lib.export_library(f"{folder}/net.so")
        agree(graph_executor.GraphModule(tvm.runtime.load_module(f"{folder}/net.so")["default"](dev)), mod)


@of_models
def model_steps(dev: Any) -> str:
    mod = attention()
    lib = relay.build(mod, "cuda")
    debug = debug_executor.create(lib.get_graph_json(), lib, dev)
    debug.set_input("x", image(mod))
    report = debug.profile(number=10)
    assert all(0 < r.seconds < 1e-2 for r in report.kernels)
    return f"{len(report.kernels)} steps, {report.total * 1e6:.0f} us one by one"


@of_models
def host_between(dev: Any) -> None:
    """A step in the middle that the host does: graphs before and after it."""
    mod = with_a_sort()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        lib = relay.build(mod, "cuda")
    assert len(lib.model.on_host) == 1
    executor = graph_executor.GraphModule(lib["default"](dev))
    agree(executor, mod)
    assert len(executor.module._graphs or ()) == 3


@of_models
def torch_inputs(dev: Any) -> str:
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    import torch

    mod = conv_net()
    executor = graph_executor.GraphModule(relay.build(mod, "cuda")["default"](dev))
    x = image(mod)
    for _ in range(3):
        executor.set_input("x", torch.from_numpy(x).cuda())
        executor.run()
        found = torch.from_dlpack(executor.get_output(0)).cpu().numpy()
        np.testing.assert_allclose(found, on_cpu(mod, x), rtol=1e-4, atol=1e-4)
    return ""
