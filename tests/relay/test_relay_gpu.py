"""Whole models on a GPU target: OpenCL, which PoCL runs on a processor, against the build for the processor."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.contrib.debugger import debug_executor
from tilewright.driver import tvmc
from tilewright.ir.errors import BuildError, TVMError
from tilewright.relay.backend.memory_plan import DEVICE_ALIGNMENT
from tilewright.runtime import cuda_driver

DEV = tvm.opencl(0)
needs_device = pytest.mark.needs("opencl")


def weights(*shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
    return relay.const(values.astype("float32"))


def module(inputs: list[Any], result: Any) -> Any:
    return tvm.IRModule.from_expr(relay.Function(inputs, result))


def mlp() -> Any:
    x = relay.var("x", shape=(3, 20))
    h = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, weights(32, 20)), weights(32, seed=1)))
    return module([x], relay.nn.softmax(relay.nn.dense(h, weights(10, 32, seed=2))))


def conv_net() -> Any:
    """Convolutions with batch norms around a residual, pooling, a classifier."""
    x = relay.var("x", shape=(1, 3, 8, 8))

    def block(y: Any, cin: int, seed: int) -> Any:
        y = relay.nn.conv2d(
            y, weights(8, cin, 3, 3, seed=seed), padding=(1, 1), kernel_size=(3, 3), channels=8
        )
        norm = [relay.const(np.linspace(0.5, 1.5, 8, dtype="float32")) for _ in range(4)]
        return relay.nn.relu(relay.nn.batch_norm(y, *norm)[0])

    a = block(x, 3, 3)
    y = relay.nn.relu(relay.add(block(a, 8, 4), a))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.max_pool2d(y, (2, 2), (2, 2))))
    return module([x], relay.nn.dense(y, weights(5, 8, seed=5)))


def attention() -> Any:
    """One head with a layer norm, a mask, and a residual."""
    x, mask = relay.var("x", shape=(1, 6, 16)), relay.var("mask", shape=(1, 6, 6))
    n = relay.nn.layer_norm(x, weights(16), weights(16, seed=1))
    flat = relay.reshape(n, (6, 16))
    q, k, v = (relay.reshape(relay.nn.dense(flat, weights(16, 16, seed=s)), (1, 6, 16)) for s in (2, 3, 4))
    scores = relay.nn.softmax(relay.nn.batch_matmul(q, k) * relay.const(0.25) + mask, axis=-1)
    out = relay.nn.batch_matmul(scores, relay.transpose(v, (0, 2, 1)))
    return module([x, mask], relay.Tuple([x + out, scores]))


def lstm_cell() -> Any:
    x, h, c = relay.var("x", shape=(2, 8)), relay.var("h", shape=(2, 8)), relay.var("c", shape=(2, 8))
    gates = relay.split(
        relay.nn.dense(x, weights(32, 8)) + relay.nn.dense(h, weights(32, 8, seed=1)), 4, axis=1
    )
    i, f, o = (relay.sigmoid(gates[k]) for k in (0, 1, 3))
    new = f * c + i * relay.tanh(gates[2])
    return module([x, h, c], relay.Tuple([o * relay.tanh(new), new]))


def with_a_sort() -> Any:
    """Something in the middle that has no kernel for a GPU."""
    x = relay.var("x", shape=(4, 16))
    order = relay.argsort(relay.nn.dense(x, weights(12, 16)), axis=1)
    return module([x], relay.cast(order, "float32") * relay.const(2.0) + weights(1, 12))


def arrays(mod: Any, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        p.name_hint: rng.standard_normal(p.type_annotation.shape).astype("float32")
        for p in mod["main"].params
    }


def results(executor: Any, given: dict[str, Any]) -> list[Any]:
    executor.run(**given)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def expected(mod: Any, given: dict[str, Any]) -> list[Any]:
    return results(graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu())), given)


def close(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def small() -> Any:
    """A model that is compiled once for what can be said of any."""
    return relay.build(mlp(), "opencl", mod_name="small")


def on_device(lib: Any) -> Any:
    return graph_executor.GraphModule(lib["default"](DEV))


# -- what is compiled ------------------------------------------------------------------------------
def test_one_program_with_every_kernel_once() -> None:
    x = relay.var("x", shape=(4, 8))
    y = x
    for seed in range(3):
        y = relay.nn.relu(relay.nn.dense(y, weights(8, 8, seed=seed)))
    lib = relay.build(module([x], y), "opencl")
    (source,) = [m.get_source() for m in lib.imported_modules]
    assert len(re.findall(r"__kernel void", source)) == 1  # three layers, one kernel
    assert len(lib.model.steps) == 3 and len({s.kernel for s in lib.model.steps}) == 1
    assert len(lib.model.params) == 3
    for step in lib.model.steps:
        assert all(a.at % DEVICE_ALIGNMENT == 0 for a in step.args if a.space in ("arena", "weights"))


@pytest.mark.slow
def test_memory_between_kernels_of_a_step_is_in_the_arena() -> None:
    """A few very long rows: a kernel for parts of them and one for all, and memory between them."""
    x = relay.var("x", shape=(2, 1 << 20))
    lib = relay.build(module([x], relay.nn.softmax(x)), "opencl")
    assert not lib.model.on_host
    programs = json.loads(lib.get_source("json"))["launches"]["programs"]
    assert not any("alloc" in json.dumps(p) for p in programs.values())
    assert any(a.space == "scratch" for s in lib.model.steps for a in s.args)


@pytest.mark.slow
def test_explain_says_where_a_step_runs(small: Any) -> None:
    text = small.explain()
    assert text.startswith("fused_nn_dense_nn_bias_add_nn_relu: opencl\n") and "T_matmul_NT: rows" in text
    with pytest.warns(RuntimeWarning, match="fused_argsort runs on the host, between copies"):
        lib = relay.build(with_a_sort(), "opencl")
    assert (
        "\nfused_argsort: the host, between copies: argsort would be computed by one thread" in lib.explain()
    )


def test_what_depends_on_constants_alone_is_done_by_the_host() -> None:
    """A transposed weight is made when the model is compiled; one that is only spread out stays as it is."""
    x, y = relay.var("x", shape=(16, 4)), relay.var("y", shape=(64, 16))
    turned, spread = weights(4, 16), weights(16)
    both = relay.Tuple([x + relay.transpose(turned), relay.nn.relu(y + relay.broadcast_to(spread, (64, 16)))])
    with tvm.transform.PassContext(disabled_pass=["FoldConstant", "SimplifyExpr"]):
        lib = relay.build(module([x, y], both), "opencl")
    found = {p.shape: lib.get_params()[p.name].numpy() for p in lib.model.params}
    assert sorted(found) == [(16,), (16, 4)]
    np.testing.assert_array_equal(found[16, 4], turned.numpy().T)


@pytest.mark.needs("nvrtc")
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_cuda_source_compiles(dtype: str) -> None:
    mod = conv_net()
    if dtype == "float16":
        mod = relay.transform.ToMixedPrecision("float16")(relay.transform.InferType()(mod))
    lib = relay.build(mod, "cuda -arch=sm_80")
    source = lib.get_source()
    assert ("tw_f2h(" in source) == (dtype == "float16")
    try:
        ptx = lib.get_source("ptx")
    except TVMError as error:
        pytest.skip(str(error))
    assert ptx.count(".entry") == source.count("__global__")


# -- refusals --------------------------------------------------------------------------------------
def test_other_kinds_are_refused() -> None:
    with pytest.raises(
        BuildError, match=r"models are compiled for cuda, .*llvm, .*opencl.*; 'metal' is not supported"
    ):
        relay.build(mlp(), "metal")


def test_another_device_is_refused(small: Any) -> None:
    with pytest.raises(TVMError, match=r"small was compiled for opencl and cannot run on cpu\(0\)"):
        small["default"](tvm.cpu())


# -- running ---------------------------------------------------------------------------------------
@needs_device
def test_the_smallest_model() -> None:
    x = relay.var("x", shape=(2, 8))
    executor = on_device(relay.build(module([x], relay.nn.relu(x + weights(8))), "opencl"))
    given = np.random.default_rng(0).standard_normal((2, 8)).astype("float32")
    for each in (given, -given):
        executor.run(x=each)
        wanted = np.maximum(each + weights(8).numpy(), 0)
        np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, rtol=1e-6)
    assert executor.get_output(0).device == DEV


@needs_device
@pytest.mark.slow
def test_runs(small: Any) -> None:
    given = arrays(mlp())
    executor = on_device(small)
    close(results(executor, given), expected(mlp(), given))
    assert executor.get_output(0).device == DEV
    assert executor.benchmark(DEV, number=2, repeat=2).min > 0


@needs_device
@pytest.mark.slow
def test_inputs_from_everywhere(small: Any) -> None:
    first, second = arrays(mlp(), 1), arrays(mlp(), 2)
    wanted = [expected(mlp(), g) for g in (first, second)]
    executor = on_device(small)
    there = tvm.nd.array(first["x"], DEV)
    executor.set_input("x", there)
    close(results(executor, {}), wanted[0])
    executor.set_input_zero_copy("x", there)
    close(results(executor, {}), wanted[0])
    there.copyfrom(second["x"])
    close(results(executor, {}), wanted[1])
    out = tvm.nd.empty((3, 10), "float32", DEV)
    executor.set_output_zero_copy(0, out)
    executor.run()
    close([out.numpy()], wanted[1])
    with pytest.raises(ValueError, match=r"'x' must be an array on opencl\(0\) to be used without a copy"):
        executor.set_input_zero_copy("x", first["x"])
    with pytest.raises(
        ValueError, match=r"input 'x' must be float32\[3, 20\], and float32\[20, 3\] was given"
    ):
        executor.set_input("x", tvm.nd.empty((20, 3), "float32", DEV))
    with pytest.raises(ValueError, match="input 'x' must have shape"):
        executor.set_input("x", np.zeros((4, 4), "float32"))


@needs_device
@pytest.mark.slow
def test_two_at_once_share_their_weights(small: Any) -> None:
    first, second = on_device(small), on_device(small)
    assert first.module._weights is second.module._weights
    given = [arrays(mlp(), s) for s in (3, 4)]
    first.set_input(**given[0])
    second.set_input(**given[1])
    first.run()
    second.run()
    close([first.get_output(0).numpy()], expected(mlp(), given[0]))
    close([second.get_output(0).numpy()], expected(mlp(), given[1]))


@needs_device
@pytest.mark.slow
def test_parameters_can_be_set(small: Any) -> None:
    given = arrays(mlp())
    changed, other = on_device(small), on_device(small)
    (name,) = [p.name for p in small.model.params if p.shape == (32,)]
    before = results(other, given)
    changed.set_input(name, np.full(32, -100, "float32"))  # every unit of the first layer is off
    np.testing.assert_allclose(results(changed, given)[0], 0.1, rtol=1e-6)
    close(results(other, given), before)
    other.share_params(changed)
    np.testing.assert_allclose(results(other, given)[0], 0.1, rtol=1e-6)
    assert (changed.get_input(name).numpy() == -100).all()


@needs_device
@pytest.mark.slow
def test_launches_are_recorded_once_they_come_again(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA: the second run records, the next ones replay, and what lies elsewhere is recorded anew."""
    told: list[str] = []

    @contextmanager
    def capture(device: Any) -> Iterator[Any]:
        assert device == DEV
        told.append("record")
        yield lambda: told.append("replay")

    monkeypatch.setattr(cuda_driver, "capture_graph", capture)
    executor = on_device(small)
    executor.module.records = True
    given = arrays(mlp())
    for wanted in ([], ["record", "replay"], ["record", "replay", "replay"]):
        executor.run(**given)
        assert told == wanted
    for k in range(3):  # another array for each run: recording would not pay
        executor.set_input_zero_copy("x", tvm.nd.array(given["x"] + k, DEV))
        executor.run()
    assert told == ["record", "replay", "replay"]
    executor.run()
    assert told[3:] == ["record", "replay"]
    (name,) = [p.name for p in small.model.params if p.shape == (32,)]
    executor.set_input(name, np.zeros(32, "float32"))  # the weights are copied, so that they can be changed
    executor.run()
    executor.set_input(name, np.ones(32, "float32"))
    executor.run()
    assert told[5:] == ["record", "replay"]


@needs_device
@pytest.mark.slow
def test_exported_and_loaded(small: Any, tmp_path: Path) -> None:
    given = arrays(mlp())
    wanted = expected(mlp(), given)
    small.export_library(tmp_path / "small.so")
    assert not (tmp_path / "small.h").exists()  # there is no function for C
    loaded = tvm.runtime.load_module(str(tmp_path / "small.so"))
    close(results(on_device(loaded), given), wanted)
    _, code, params = small
    code.export_library(tmp_path / "code.so")
    bare = on_device(tvm.runtime.load_module(str(tmp_path / "code.so")))
    with pytest.raises(TVMError, match="parameters have no value"):
        bare.run(**given)
    bare.load_params(relay.save_param_dict(params))
    close(results(bare, given), wanted)


@needs_device
@pytest.mark.slow
def test_steps_one_by_one(small: Any) -> None:
    given = arrays(mlp())
    debug = debug_executor.create(small.get_graph_json(), small, DEV)
    debug.set_input(**given)
    report = debug.profile()
    assert [r.name for r in report.kernels] == [s.name for s in small.model.steps]
    assert all(r.seconds > 0 for r in report.kernels)
    hidden = debug.debug_get_output(0).numpy()
    assert hidden.shape == (3, 32) and (hidden >= 0).all() and hidden.any()


@pytest.mark.sample(1)
@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("make", [conv_net, attention, lstm_cell])
def test_models(make: Any) -> None:
    mod = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # all of it runs on the device
        lib = relay.build(mod, "opencl")
    executor = on_device(lib)
    for seed in (0, 1):
        given = arrays(mod, seed)
        close(results(executor, given), expected(mod, given))


@needs_device
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is done by the host")
def test_the_host_does_what_the_device_cannot(tmp_path: Path) -> None:
    mod = with_a_sort()
    lib = relay.build(mod, "opencl")
    lib.export_library(tmp_path / "sorts.so")
    given = arrays(mod)
    for each in (lib, tvm.runtime.load_module(str(tmp_path / "sorts.so"))):
        close(results(on_device(each), given), expected(mod, given))


@needs_device
@pytest.mark.slow
def test_half_precision() -> None:
    mod = relay.transform.InferType()(mlp())
    half = relay.transform.ToMixedPrecision("float16")(mod)
    given = arrays(mod)
    lib = relay.build(half, "opencl")
    assert any(a.dtype == "float16" for s in lib.model.steps for a in s.args)
    (found,) = results(on_device(lib), given)
    np.testing.assert_allclose(found, expected(mod, given)[0], rtol=2e-2, atol=5e-3)


@needs_device
@pytest.mark.slow
def test_create_executor() -> None:
    mod = lstm_cell()
    given = arrays(mod)
    evaluate = relay.create_executor("graph", mod, DEV, "opencl").evaluate()
    found = evaluate(*given.values())
    assert found[0].device == DEV
    close([f.numpy() for f in found], expected(mod, given))
    x = relay.var("x", shape=(4,))
    plain = relay.create_executor("graph", module([x], x), target="opencl").evaluate()
    np.testing.assert_array_equal(plain(np.arange(4.0, dtype="float32")).numpy(), np.arange(4))


@needs_device
@pytest.mark.slow
def test_packages_of_tvmc(tmp_path: Path) -> None:
    mod = mlp()
    package = tvmc.compile(tvmc.TVMCModel(mod, {}), "opencl", package_path=tmp_path / "net.tar")
    given = arrays(mod)
    close([tvmc.run(package, device="cl", inputs=given).get_output("output_0")], expected(mod, given))
    with pytest.raises(tvmc.TVMCException, match="the package is compiled for opencl; use device='opencl'"):
        tvmc.run(package, device="cpu", inputs=given)


@pytest.mark.slow
@needs_device
def test_rows_that_are_gathered_are_read_where_they_are() -> None:
    """A table is not copied for the rows that ids choose of it."""
    table, places = weights(300, 48), weights(5, 48, seed=1)
    ids = relay.var("ids", shape=(2, 5), dtype="int32")
    made = relay.mean(relay.add(relay.take(table, ids, axis=0), places), axis=-1)
    mod = module([ids], made)
    given = {"ids": np.arange(10, dtype="int32").reshape(2, 5) * 29}
    close(results(on_device(relay.build(mod, "opencl")), given), expected(mod, given))


def test_a_device_and_its_host_are_one_target() -> None:
    from tilewright.relay.build_module import as_target

    for given in (
        {"cpu": "llvm -mcpu=core-avx2", "opencl": "opencl"},
        [tvm.target.Target("opencl"), "llvm -mcpu=core-avx2"],
        "opencl, llvm -mcpu=core-avx2",
    ):
        chosen = as_target(given)
        assert (chosen.kind.name, chosen.host.attrs["mcpu"]) == ("opencl", "core-avx2")
    assert as_target({"cpu": "llvm -mattr=+avx2,+fma"}).kind.name == "llvm"
    with pytest.raises(BuildError, match="for one device and its host, not for cuda, opencl"):
        as_target({"cuda": "cuda", "opencl": "opencl"})
