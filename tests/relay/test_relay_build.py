"""relay.build: from a module to something that runs, at every level, with errors that say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config, relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import BuildError
from tilewright.relay.backend import kernel as kernels
from tilewright.relay.backend import te_compiler
from tilewright.relay.testing import mlp


def run(lib: Any, **inputs: Any) -> list[np.ndarray[Any, Any]]:
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    m.run(**inputs)
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


def mlp_reference(x: Any, params: dict[str, Any]) -> Any:
    p = {k: v.numpy().astype("float64") for k, v in params.items()}
    h = x.reshape(len(x), -1)
    h = np.maximum(h @ p["fc1_weight"].T + p["fc1_bias"], 0)
    h = np.maximum(h @ p["fc2_weight"].T + p["fc2_bias"], 0)
    h = h @ p["fc3_weight"].T + p["fc3_bias"]
    e = np.exp(h - h.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("level", [3, 0])
def test_mlp_with_bound_and_with_free_parameters(level: int, rng: np.random.Generator) -> None:
    mod, params = mlp.get_workload(2, image_shape=(1, 6, 6))
    x = rng.random((2, 1, 6, 6), "float32")
    want = mlp_reference(x, params)
    with tvm.transform.PassContext(opt_level=level):
        bound = relay.build(mod, "llvm", params=params)
        free = relay.build(mod, "llvm")
    np.testing.assert_allclose(run(bound, data=x)[0], want, rtol=1e-5)
    assert [t.name for t in bound.model.inputs] == ["data"]
    m = graph_executor.GraphModule(free["default"](tvm.cpu()))
    m.set_input(**params)
    m.run(data=x)
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-5)


def small_net(rng: np.random.Generator) -> tuple[relay.Function, Any]:
    """Convolution, batch normalisation, a branch that joins, pooling, a split and a concatenation."""
    w1, w2 = rng.normal(size=(2, 8, 8, 3, 3)).astype("float32") * 0.2
    gamma, beta, mean, variance = rng.random((4, 8), "float32") + 0.5
    x = relay.var("x", shape=(1, 8, 9, 9))
    c = relay.const
    y = relay.nn.conv2d(x, c(w1), padding=(1, 1))
    y = relay.nn.batch_norm(y, c(gamma), c(beta), c(mean), c(variance))[0]
    y = relay.nn.relu(y)
    y = relay.nn.conv2d(y, c(w2), padding=(1, 1)) + x
    a, b = relay.split(y, 2, axis=1)
    y = relay.concatenate([relay.tanh(b), a], axis=1)
    y = relay.nn.max_pool2d(y, pool_size=(3, 3), strides=(2, 2))

    def reference(value: Any) -> Any:
        torch = pytest.importorskip("torch")
        f = torch.nn.functional
        t = torch.from_numpy
        v = t(value)
        h = f.batch_norm(
            f.conv2d(v, t(w1), padding=1), t(mean), t(variance), t(gamma), t(beta), False, 0.0, 1e-5
        )
        h = f.conv2d(torch.relu(h), t(w2), padding=1) + v
        h = torch.cat([torch.tanh(h[:, 4:]), h[:, :4]], 1)
        return f.max_pool2d(h, 3, 2).numpy()

    return relay.Function([x], y), reference


@pytest.mark.sample(1)
@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.slow
def test_a_small_network_at_every_level(level: int, rng: np.random.Generator) -> None:
    func, reference = small_net(rng)
    x = rng.normal(size=(1, 8, 9, 9)).astype("float32")
    with tvm.transform.PassContext(opt_level=level):
        lib = relay.build(tvm.IRModule.from_expr(func), "llvm")
    np.testing.assert_allclose(run(lib, x=x)[0], reference(x), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_a_small_network(rng: np.random.Generator) -> None:
    func, reference = small_net(rng)
    x = rng.normal(size=(1, 8, 9, 9)).astype("float32")
    lib = relay.build(tvm.IRModule.from_expr(func), "llvm")
    np.testing.assert_allclose(run(lib, x=x)[0], reference(x), rtol=2e-4, atol=2e-5)


def test_equal_kernels_are_compiled_once(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    done: list[str] = []
    real = te_compiler.compile_kernel

    def counted(job: Any, target: Any) -> Any:
        done.append(job.label)
        return real(job, target)

    monkeypatch.setattr(te_compiler, "compile_kernel", counted)
    monkeypatch.setattr(te_compiler, "_FEW", 100)
    weights = rng.normal(size=(3, 4, 4)).astype("float32")
    x = y = relay.var("x", shape=(2, 4))
    for w in weights:
        y = relay.nn.relu(relay.nn.dense(y, relay.const(w)))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "llvm")
    assert done == ["fused_nn_dense_nn_relu"]
    value = rng.normal(size=(2, 4)).astype("float32")
    want = value
    for w in weights:
        want = np.maximum(want @ w.T, 0)
    np.testing.assert_allclose(run(lib, x=value)[0], want, rtol=1e-5, atol=1e-6)
    assert len(lib.model.steps) == 3 and len(lib.get_params()) == 3


@pytest.mark.slow
def test_kernels_compiled_in_processes(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr(te_compiler, "usable_cpus", lambda: 2)
    monkeypatch.setattr(te_compiler, "_FEW", 1)
    x = y = relay.var("x", shape=(4, 16))
    for i in range(4):
        y = relay.nn.softmax(relay.reshape(y, (4 * 2**i, 16 // 2**i)))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "llvm")
    value = rng.normal(size=(4, 16)).astype("float32")
    want = value
    for i in range(4):
        want = want.reshape(4 * 2**i, -1)
        e = np.exp(want - want.max(-1, keepdims=True))
        want = e / e.sum(-1, keepdims=True)
    np.testing.assert_allclose(run(lib, x=value)[0], want, rtol=1e-5)


@pytest.mark.slow
def test_the_second_build_comes_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    mod, params = mlp.get_workload(1, image_shape=(1, 4, 4))
    x = np.ones((1, 1, 4, 4), "float32")
    first = run(relay.build(mod, "llvm", params=params), data=x)[0]

    def refuse(*_: Any) -> Any:
        raise AssertionError("compiled again")

    monkeypatch.setattr(te_compiler, "compile_kernel", refuse)
    again = relay.build(mod, "llvm", params=params)
    np.testing.assert_array_equal(run(again, data=x)[0], first)
    with pytest.raises(tvm.TVMError, match="compiled again"), tvm.transform.PassContext(opt_level=1):
        relay.build(mod, "llvm", params=params)
    with pytest.raises(tvm.TVMError, match="compiled again"), config.using(cache=False):
        relay.build(mod, "llvm", params=params)


def test_the_key_of_a_kernel() -> None:
    def key(shape: tuple[int, ...], value: float, known: tuple[int, ...] = (), cpu: str = "llvm") -> str:
        x = relay.var("x", shape=shape)
        fn = relay.infer_type(relay.Function([x], relay.clip(x + relay.const(value), 0, 6)))
        return kernels.job_of(fn, known, tvm.target.Target(cpu)).key

    assert key((2, 3), 1.0) == key((2, 3), 1.0)
    assert len({key((2, 3), 1.0), key((3, 2), 1.0), key((2, 3), 2.0), key((2, 3), 1.0, (0,))}) == 4
    assert key((2, 3), 1.0) != key((2, 3), 1.0, (), "llvm -mcpu=x86-64")


@pytest.mark.slow
def test_the_key_is_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        kernels, "producer", lambda: ()
    )  # the state of the sources, of which each knows its own
    program = """
import tilewright as tvm
from tilewright import relay
from tilewright.relay.backend import kernel
kernel.producer = lambda: ()
x = relay.var("x", shape=(2, 3))
fn = relay.infer_type(relay.Function([x], relay.nn.relu(x)))
print(kernel.job_of(fn, (), tvm.target.Target("llvm")).key)
"""
    x = relay.var("x", shape=(2, 3))
    fn = relay.infer_type(relay.Function([x], relay.nn.relu(x)))
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == kernels.job_of(fn, (), tvm.target.Target("llvm")).key


def test_an_operator_of_ones_own_is_not_kept_on_disk() -> None:
    x = relay.var("x", shape=(3,))
    fn = relay.infer_type(relay.Function([x], relay.nn.relu(x)))
    assert kernels.job_of(fn, (), tvm.target.Target("llvm")).cached
    op = relay.op.get("nn.relu")
    before = op.compute
    try:
        relay.op.register_compute("nn.relu", lambda attrs, ins, out: [tvm.topi.nn.relu(ins[0])])
        assert not kernels.job_of(fn, (), tvm.target.Target("llvm")).cached
    finally:
        op.compute = before


def test_constants_inside_fused_functions() -> None:
    x = relay.var("x", shape=(3,))
    p = relay.var("p", shape=(3,))
    inner = relay.Function([p], p + relay.const(np.arange(3, dtype="float32")), attrs={"Primitive": 1})
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.Call(inner, [x]))), "llvm")
    np.testing.assert_array_equal(run(lib, x=np.ones(3, "float32"))[0], [1, 2, 3])


def test_results_of_all_kinds() -> None:
    x = relay.var("x", shape=(2, 3))
    k = relay.const(np.arange(4), "int64")
    a = relay.nn.relu(x)
    body = relay.Tuple([x, a, a, relay.Tuple([k, relay.reshape(x, (3, 2))]), relay.reshape(a, (6,))])
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm")
    value = np.array([[-1, 2, -3], [4, -5, 6]], "float32")
    out = run(lib, x=value)
    relu = np.maximum(value, 0)
    for got, want in zip(
        out, [value, relu, relu, np.arange(4), value.reshape(3, 2), relu.reshape(6)], strict=True
    ):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype or got.dtype == np.int64


def test_lets_calls_and_closures_are_written_out() -> None:
    x, v = relay.var("x", shape=(2,)), relay.var("v")
    z = relay.var("z", shape=(2,))
    f = relay.GlobalVar("twice")
    mod = tvm.IRModule({f: relay.Function([z], z + z)})
    mod["main"] = relay.Function([x], relay.Let(v, relay.Call(f, [x]), relay.Call(f, [v]) * v))
    out = run(relay.build(mod, "llvm"), x=np.array([1, 2], "float32"))[0]
    np.testing.assert_array_equal(out, [8, 32])


def test_a_tuple_as_a_parameter() -> None:
    t = relay.var("t", relay.TupleType([relay.TensorType((2,)), relay.TensorType((2,))]))
    body = relay.TupleGetItem(t, 0) - relay.TupleGetItem(t, 1)
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([t], body)), "llvm")
    assert [i.name for i in lib.model.inputs] == ["t.0", "t.1"]
    got = run(lib, **{"t.0": np.array([5, 6], "float32"), "t.1": np.array([1, 2], "float32")})[0]
    np.testing.assert_array_equal(got, [4, 4])


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "float16", "float64", "bool"])
def test_element_types(dtype: str) -> None:
    x = relay.var("x", shape=(5,), dtype=dtype)
    y = relay.logical_not(x) if dtype == "bool" else relay.maximum(x, relay.const(3, dtype))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "llvm")
    value = np.array([0, 1, 3, 4, 5]).astype(dtype)
    want = ~value if dtype == "bool" else np.maximum(value, 3)
    np.testing.assert_array_equal(run(lib, x=value)[0], want)


def test_a_model_of_nothing() -> None:
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([], relay.const(np.ones(3, "float32")))), "llvm")
    np.testing.assert_array_equal(run(lib)[0], np.ones(3))
    x = relay.var("x", shape=(0, 3))
    empty = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), "llvm")
    assert run(empty, x=np.ones((0, 3), "float32"))[0].shape == (0, 3)


def refused(func: Any, match: str, **options: Any) -> None:
    with pytest.raises(BuildError, match=match):
        relay.build(func, **options)


def test_refusals() -> None:
    x, c = relay.var("x", shape=(3,)), relay.var("c", shape=(), dtype="bool")
    refused(relay.Function([x, c], relay.If(c, x, relay.exp(x))), "a branch cannot be part .*vm")
    n = relay.var("n", shape=(relay.Any(),))
    refused(relay.Function([n], relay.exp(n)), "%n is .*not known now.*vm")
    refused(relay.Function([x], x), "'metal' is not supported", target="metal")
    refused(tvm.IRModule({"other": relay.Function([x], x)}), "no graph function 'main'; it has: other")
    refused(relay.Function([x, relay.var("x", shape=(3,))], x), "two parameters .* named 'x'")
    with pytest.raises(TypeError, match="not int"):
        relay.build(3)


def test_operators_that_nothing_computes_are_listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = relay.var("x", shape=(3,))
    for name in ("exp", "tanh"):
        monkeypatch.setattr(relay.op.get(name), "compute", None)
    with tvm.transform.PassContext(opt_level=0):
        refused(relay.Function([x], relay.tanh(relay.exp(relay.exp(x)))), r"exp \(2 times\), tanh")


@pytest.mark.slow
@pytest.mark.parametrize("length", [300, pytest.param(10000, marks=pytest.mark.slow)])
def test_a_long_chain_builds(length: int) -> None:
    x = y = relay.var("x", shape=(4,))
    for _ in range(length):
        y = relay.abs(y)
    with tvm.transform.PassContext(opt_level=1):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "llvm")
    np.testing.assert_array_equal(run(lib, x=np.array([-1, 2, -3, 4], "float32"))[0], [1, 2, 3, 4])


def test_too_many_inputs() -> None:
    xs = [relay.var(f"x{i}", shape=()) for i in range(1200)]
    with tvm.transform.PassContext(opt_level=0):
        refused(relay.Function(xs, xs[0] + xs[1]), "1200 inputs .* bind the parameters")


def test_the_bar_is_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = list(range(10))
    with te_compiler._progress(len(jobs)) as advance:
        advance(jobs[0])  # type: ignore[arg-type]
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    x = relay.var("x", shape=(2,))
    job = kernels.job_of(relay.infer_type(relay.Function([x], relay.exp(x))), (), tvm.target.Target("llvm"))
    with te_compiler._progress(10) as advance:
        advance(job)
    out, err = capsys.readouterr()
    assert out == "" and "fused_exp" in err


def test_build_config_and_optimize() -> None:
    mod, params = mlp.get_workload(1, image_shape=(1, 4, 4))
    with relay.build_config(opt_level=3):
        made, left = relay.optimize(mod, "llvm", params)
        assert tvm.transform.PassContext.current().opt_level == 3
    assert [p.name_hint for p in made["main"].params] == ["data"] and left == {}
    assert relay.build_module.bind_params_by_name is relay.binding.bind_params_by_name


def test_a_kernel_that_computes_another_type_than_memory_is_planned_for() -> None:
    x = relay.var("x", shape=(4, 2), dtype="uint8")
    w = relay.const(np.ones((2, 4), "float32"))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.sigmoid(relay.nn.matmul(x, w))))
    for compiled in (lambda: relay.build(mod, "llvm"), lambda: relay.vm.compile(mod, "llvm")):
        with pytest.raises(tvm.TVMError, match=r"its compute returns a tensor .* its type is"):
            compiled()


@pytest.mark.parametrize("cached", [True, False])
def test_a_model_gives_the_text_of_its_kernels(
    cached: bool, rng: np.random.Generator, tmp_path: Path
) -> None:
    x = relay.var("x", shape=(8, 8))
    weight = relay.const(rng.random((8, 8), "float32"))
    fn = relay.Function([x], relay.nn.relu(relay.nn.dense(x, weight)))
    with config.using(cache_dir=tmp_path), tvm.transform.PassContext(opt_level=3):
        if cached:
            relay.build(fn, "llvm -mcpu=skylake")
        lib = relay.build(fn, "llvm -mcpu=skylake")
    symbols = [step.kernel for step in lib.model.steps]
    ll, asm = lib.get_source("ll"), lib.get_lib().get_source("asm")
    assert len(symbols) == 1 and all(f"@{s}(" in ll and f"\n{s}:" in asm for s in symbols)
    assert "%ymm" in asm and lib.lib.get_source() == ll  # the code of that processor
    with pytest.raises(tvm.TVMError, match="has no source in format 'cu'"):
        lib.get_source("cu")
