"""Models with dynamic shapes and branches on a device, against the build for the processor and models of fixed sizes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda_models import of_models, weights

import tilewright as tvm
from tilewright import config, relay
from tilewright.contrib import graph_executor
from tilewright.relay.transform.infer_type import infer_module
from tilewright.runtime.errors import OutOfBoundsError
from tilewright.runtime.versions import RECURS
from tilewright.runtime.vm import VirtualMachine

A = relay.Any()


def mlp(n: Any = A, wide: int = 256) -> Any:
    x = relay.var("x", shape=(n, wide))
    h = relay.nn.relu(
        relay.nn.bias_add(relay.nn.dense(x, weights(2 * wide, wide)), weights(2 * wide, seed=1))
    )
    return relay.Function([x], relay.nn.softmax(relay.nn.dense(h, weights(wide, 2 * wide, seed=2))))


def block(n: Any = A, wide: int = 256, heads: int = 4) -> Any:
    """A block of a transformer: attention over n tokens, and two products."""
    x = relay.var("x", shape=(1, n, wide))

    def norm(y: Any, seed: int) -> Any:
        return relay.nn.layer_norm(y, weights(wide, seed=seed), weights(wide, seed=seed + 1))

    def product(y: Any, outs: int, seed: int) -> Any:
        inner = int(wide * 4 if seed == 9 else wide)
        flat = relay.reshape(y, (-1, inner))
        return relay.nn.dense(flat, weights(outs, inner, seed=seed))

    def head(y: Any, seed: int) -> Any:
        rows = relay.reshape(product(y, wide, seed), (-1, heads, wide // heads))
        return relay.transpose(rows, (1, 0, 2))

    y = norm(x, 0)
    q, k, v = (head(y, seed) for seed in (2, 3, 4))
    scores = relay.nn.softmax(relay.nn.batch_matmul(q, k) * relay.const(0.125))
    y = relay.nn.batch_matmul(scores, relay.transpose(v, (0, 2, 1)))
    y = relay.reshape(relay.transpose(y, (1, 0, 2)), (-1, wide))
    x2 = x + relay.reshape(product(y, wide, 5), (1, -1, wide))
    y = relay.nn.relu(product(norm(x2, 6), 4 * wide, 8))
    return relay.Function([x], x2 + relay.reshape(product(y, wide, 9), (1, -1, wide)))


def conv_net(n: Any = A, h: Any = A, w: Any = A) -> Any:
    x = relay.var("x", shape=(n, 3, h, w))

    def conv(y: Any, cin: int, cout: int, stride: int, seed: int) -> Any:
        y = relay.nn.conv2d(
            y, weights(cout, cin, 3, 3, seed=seed), strides=(stride, stride), padding=(1, 1),
            kernel_size=(3, 3), channels=cout,
        )  # fmt: skip
        return relay.nn.relu(relay.nn.bias_add(y, weights(cout, seed=seed + 1)))

    y = relay.nn.max_pool2d(conv(x, 3, 16, 1, 1), (2, 2), (2, 2))
    y = conv(y, 16, 32, 2, 3)
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    return relay.Function([x], relay.nn.dense(y, weights(10, 32, seed=5)))


def branch(n: Any = A) -> Any:
    """A model that takes one of two ways by a value that is computed on the device."""
    x = relay.var("x", shape=(n, 64))
    y = relay.nn.dense(x, weights(64, 64))
    yes, no = relay.nn.relu(y), relay.tanh(y) * relay.const(2.0)
    return relay.Function([x], relay.If(relay.greater(relay.sum(x), relay.const(0.0)), yes, no))


MODELS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "mlp": (mlp, [(1, 256), (3, 256), (64, 256), (501, 256)]),
    "block": (block, [(1, 1, 256), (1, 17, 256), (1, 128, 256), (1, 300, 256)]),
    "conv": (conv_net, [(1, 3, 32, 32), (2, 3, 45, 32), (5, 3, 64, 80)]),
    "branch": (branch, [(1, 64), (9, 64), (70, 64)]),
}
FREE = {"mlp": (0,), "block": (1,), "conv": (0, 2, 3), "branch": (0,)}  # the axes of dynamic size


def module(fn: Any) -> Any:
    return infer_module(tvm.IRModule.from_expr(fn))


def on_device(fn: Any, dev: Any, versions: int = 0) -> VirtualMachine:
    with config.using(versions=versions):
        return VirtualMachine(relay.vm.compile(module(fn), dev.kind), dev)


def sample(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def close(found: Any, wanted: Any, tolerance: float = 2e-4) -> None:
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=tolerance, atol=tolerance)


@of_models
def dynamic_models(dev: Any) -> None:
    for name, (make, shapes) in MODELS.items():
        wanted = VirtualMachine(relay.vm.compile(module(make()), "llvm"), tvm.cpu())
        with config.using(versions=0):
            machine = on_device(make(), dev)
            assert not any(k.on_host for k in machine.exe.assembly.kernels.values()), name
            for shape in shapes:
                for seed in range(2):
                    x = sample(shape, seed)
                    made = machine.run(x)
                    assert made.device == dev
                    close(made, wanted.run(x))
                    close(machine.run(tvm.nd.array(x, dev)), wanted.run(x))


def half(fn: Any) -> Any:
    """A model in float16, whose products take tensor cores."""
    folded = relay.transform.FoldConstant()(relay.transform.ToMixedPrecision("float16")(module(fn)))
    return infer_module(folded)["main"]


@of_models
def dynamic_half_precision(dev: Any) -> str:
    told = []
    for name in ("mlp", "block"):
        make, shapes = MODELS[name]
        wanted = VirtualMachine(relay.vm.compile(module(make()), "llvm"), tvm.cpu())
        with config.using(versions=0):
            machine = on_device(half(make()), dev)
            for shape in shapes:
                x = sample(shape)
                found = machine.run(x).numpy().astype("float32")
                np.testing.assert_allclose(found, wanted.run(x).numpy(), rtol=3e-2, atol=3e-2)
            kernels = machine.exe.assembly.kernels.values()
            rules = [k.device["schedule"] for k in kernels if k.device is not None]
            told.append(f"{name}: {sum('tensor cores' in r for r in rules)} of {len(rules)} on tensor cores")
    return ", ".join(told)


@of_models
def dynamic_loop(dev: Any) -> None:
    """A loop whose condition the host computes, around work on the device."""
    x, n = relay.var("x", shape=(A, 32)), relay.var("n", shape=(), dtype="int32")
    i = relay.var("i", shape=(), dtype="int32")
    y = relay.var("y", shape=(A, 32))
    loop = relay.var("loop")
    more = relay.Call(loop, [i + relay.const(1), relay.tanh(relay.nn.dense(y, weights(32, 32)))])
    body = relay.Function([i, y], relay.If(relay.less(i, n), more, y), relay.TensorType((A, 32), "float32"))
    fn = relay.Function([x, n], relay.Let(loop, body, relay.Call(loop, [relay.const(0), x])))
    machine = on_device(fn, dev)
    wanted = VirtualMachine(relay.vm.compile(module(fn), "llvm"), tvm.cpu())
    for rows, times in ((1, 0), (5, 3), (40, 20)):
        given = sample((rows, 32)), np.array(times, "int32")
        close(machine.run(*given), wanted.run(*given))


@of_models
def dynamic_indices_are_checked(dev: Any) -> None:
    x, at = relay.var("x", shape=(A, 8)), relay.var("at", shape=(A,), dtype="int32")
    machine = on_device(relay.Function([x, at], relay.take(x, at, axis=0, mode="fast")), dev)
    table = sample((20, 8))
    found = machine.run(table, np.array([3, 19, 0], "int32")).numpy()
    np.testing.assert_array_equal(found, table[[3, 19, 0]])
    try:
        machine.run(table, np.array([3, 20], "int32")).numpy()
    except OutOfBoundsError:
        pass
    else:
        raise AssertionError("an index out of bounds was not found")
    found = machine.run(table, np.array([1, 2], "int32")).numpy()
    np.testing.assert_array_equal(found, table[[1, 2]])


@of_models
def dynamic_versions(dev: Any) -> str:
    """Sizes that recur get a model of their own, whose launches are a graph on CUDA."""
    cases = {(rows, seed): sample((rows, 256), seed) for rows in (64, 100) for seed in range(RECURS + 4)}
    with config.using(versions=0):
        on_cpu = VirtualMachine(relay.vm.compile(module(mlp()), "llvm"), tvm.cpu())
        wanted = {case: on_cpu.run(x) for case, x in cases.items()}
        other = on_cpu.run(sample((7, 256)))
    with config.using(versions=2):
        machine = on_device(mlp(), dev, versions=2)
        told = []
        for rows in (64, 100):
            for seed in range(RECURS + 4):
                close(machine.run(cases[rows, seed]), wanted[rows, seed])
                if seed == RECURS:
                    machine.finish()
            versions = machine.exe.versions
            assert not versions.failed, versions.failed
            assert ((rows, 256),) in versions.ready
        assert len(machine._executors) == 2
        for executor in machine._executors.values():
            if executor.records:
                assert executor._graphs is not None
                told.append("a graph")
        close(machine.run(sample((7, 256))), other)
        return ", ".join(told)


@of_models
def dynamic_torch(dev: Any) -> str:
    """Tensors of PyTorch on the device go in and come out."""
    try:
        import torch
    except ImportError:
        return "no torch"
    if dev.kind != "cuda" or not torch.cuda.is_available():
        return "no torch for the device"
    model = tvm.compile(module(mlp()), target="cuda")
    wanted = VirtualMachine(relay.vm.compile(module(mlp()), "llvm"), tvm.cpu())
    for rows in (5, 90):
        x = sample((rows, 256))
        there = model(torch.from_numpy(x).cuda())
        assert there.is_cuda
        np.testing.assert_allclose(there.cpu().numpy(), wanted.run(x).numpy(), rtol=2e-4, atol=2e-4)
        part = torch.from_numpy(np.concatenate([x[:1], x])).cuda()[1:]
        np.testing.assert_allclose(model(part).cpu().numpy(), there.cpu().numpy(), rtol=1e-5, atol=1e-5)
        assert isinstance(model(x), np.ndarray)
    return "read in place"


@of_models
def dynamic_times(dev: Any) -> str:
    """The time of a call with arrays on the device: of the dynamic program, a version, and the model of this size."""
    told = []
    for name, (make, shapes) in MODELS.items():
        if name == "branch":
            continue
        for shape in (shapes[0], shapes[-1]):
            x = tvm.nd.array(sample(shape), dev)
            times = {}
            with config.using(versions=0):
                machine = on_device(make(), dev)
                times["dynamic"] = seconds(lambda m=machine, x=x: m.run(x), dev)
                exe = machine.exe
            with config.using(versions=2):
                machine = VirtualMachine(exe, dev)
                for _ in range(RECURS):
                    machine.run(x)
                machine.finish()
                times["version"] = seconds(lambda m=machine, x=x: m.run(x), dev)
            lib = relay.build(module(make(*(shape[a] for a in FREE[name]))), dev.kind)
            fixed = graph_executor.GraphModule(lib["default"](dev))
            fixed.set_input(0, x)
            times["fixed"] = seconds(fixed.run, dev)
            each = " ".join(f"{k} {1e6 * v:.0f}" for k, v in times.items())
            told.append(f"{name} {shape}: {each} us")
    return "; ".join(told)


def seconds(call: Callable[[], Any], dev: Any, times: int = 20) -> float:
    for _ in range(3):
        call()
    dev.sync()
    found = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(times):
            call()
        dev.sync()
        found.append((time.perf_counter() - start) / times)
    return min(found)
