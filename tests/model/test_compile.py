"""`tilewright.compile`: models of all kinds as functions of their inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay, te
from tilewright.runtime.errors import ArgumentTypeError, ArgumentValueError, LoadError
from tilewright.tir import SizeVar

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def graph(*shape: Any) -> tuple[Any, dict[str, Any]]:
    x, w = relay.var("x", shape=shape), relay.var("w", shape=(3, 4))
    return relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))), {"w": floats(3, 4)}


# ---------------------------------------------------------------------------- graphs
def test_a_graph_with_its_weights() -> None:
    fn, params = graph(2, 4)
    net = tilewright.compile(fn, params=params, name="net")
    assert repr(net).startswith("CompiledModel(net: (x: float32[2, 4]) -> (output_0: float32[2, 3])")
    x = floats(2, 4)
    wanted = np.maximum(x @ params["w"].T, 0)
    np.testing.assert_allclose(net(x), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net(x=x), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net.run({"x": x})["output_0"], wanted, rtol=1e-5, atol=1e-6)


def test_results_of_calls_are_arrays_of_their_own() -> None:
    fn, params = graph(2, 4)
    net = tilewright.compile(fn, params=params)
    first = net(floats(2, 4))
    kept = first.copy()
    net(floats(2, 4))
    assert (first == kept).all()


def test_inputs_that_are_not_contiguous_or_aligned() -> None:
    fn, params = graph(2, 4)
    net = tilewright.compile(fn, params=params)
    x = floats(4, 2)
    np.testing.assert_allclose(net(x.T), np.maximum(x.T @ params["w"].T, 0), rtol=1e-5, atol=1e-6)
    raw = np.zeros(8 * 4 + 1, np.uint8)
    odd = raw[1:].view("float32").reshape(2, 4)
    odd[...] = x.T
    np.testing.assert_allclose(net(odd), np.maximum(odd @ params["w"].T, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_one_compilation_for_all_sizes() -> None:
    fn, params = graph(relay.Any(), 4)
    net = tilewright.compile(fn, params=params)
    assert net.is_dynamic and net.inputs[0].shape[1] == 4 and not isinstance(net.inputs[0].shape[0], int)
    for n in (1, 5, 17):
        x = floats(n, 4)
        np.testing.assert_allclose(net(x), np.maximum(x @ params["w"].T, 0), rtol=1e-5, atol=1e-6)


def test_several_results_have_names() -> None:
    x = relay.var("x", shape=(3,))
    fn = relay.Function([x], relay.Tuple([relay.exp(x), relay.negative(x)]))
    fn = fn.with_attr("output_tensor_names", ["up", "down"])
    made = tilewright.compile(fn)(np.ones(3, "float32"))
    assert made.names == ("up", "down") and (made["down"] == -1).all() and (made[1] == -1).all()
    up, _ = made
    assert up.shape == (3,) and list(made.keys()) == ["up", "down"]
    with pytest.raises(KeyError, match="there is no result 'left'; the results are up, down"):
        made["left"]


@pytest.mark.parametrize("executor", ["graph", "vm"])
@pytest.mark.slow
def test_saved_and_loaded(tmp_path: Path, executor: str) -> None:
    fn, params = graph(2 if executor == "graph" else relay.Any(), 4)
    net = tilewright.compile(fn, params=params, name="net")
    net.save(tmp_path / "net.tar")
    again = tilewright.load(tmp_path / "net.tar")
    assert again.inputs == net.inputs and again.outputs == net.outputs and again.name == "net"
    x = floats(2, 4)
    assert (again(x) == net(x)).all()
    again.save(tmp_path / "copy.tar")
    assert (tilewright.load(tmp_path / "copy.tar")(x) == net(x)).all()
    with pytest.raises(ArgumentValueError, match="does not know how its schedules were chosen"):
        again.explain()


@pytest.mark.parametrize("executor", ["graph", "vm"])
@pytest.mark.slow
@pytest.mark.needs("linker")
def test_saved_as_a_library(tmp_path: Path, executor: str) -> None:
    fn, params = graph(2 if executor == "graph" else relay.Any(), 4)
    net = tilewright.compile(fn, params=params, name="net")
    net.save(tmp_path / "net.so")
    assert (tmp_path / "net.so").read_bytes()[:4] == b"\x7fELF"
    again = tilewright.load(tmp_path / "net.so")
    assert again.inputs == net.inputs and again.outputs == net.outputs
    x = floats(2, 4)
    assert (again(x) == net(x)).all()


@pytest.mark.slow
def test_loading_imports_no_compiler(tmp_path: Path) -> None:
    fn, params = graph(2, 4)
    tilewright.compile(fn, params=params).save(tmp_path / "net.tar")
    script = (
        "import sys, numpy as np, tilewright\n"
        f"net = tilewright.load({str(tmp_path / 'net.tar')!r})\n"
        "assert net(np.ones((2, 4), 'float32')).shape == (2, 3)\n"
        "rooms = {m.split('.')[1] for m in sys.modules if m.startswith('tilewright.')}\n"
        "print(sorted(rooms & {'tir', 'te', 'relay', 'tune', 'codegen', 'compiler', 'model', 'target', 'backends'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_explanations_of_all_kernels() -> None:
    fn, params = graph(2, 4)
    text = tilewright.compile(fn, params=params).explain()
    assert "fused_nn_dense_nn_relu" in text and "predicted" in text


@pytest.mark.parametrize("size", [64, relay.Any()], ids=["fixed", "dynamic"])
@pytest.mark.slow
def test_a_profile_of_the_kernels(size: Any) -> None:
    fn, params = graph(size, 4)
    found = tilewright.compile(fn, params=params).profile(floats(64, 4), repeat=2)
    (row,) = [r for r in found.rows() if "dense" in r["name"]]
    assert row["flops"] >= 2 * 64 * 4 * 3 and row["seconds"] > 0


@pytest.mark.slow
def test_trials_are_kept_in_a_file(tmp_path: Path) -> None:
    fn, params = graph(64, 4)
    x, file = floats(64, 4), tmp_path / "records.db"
    net = tilewright.compile(fn, params=params, trials=3, records=file)
    assert file.is_file()
    np.testing.assert_allclose(net(x), np.maximum(x @ params["w"].T, 0), rtol=1e-5, atol=1e-6)
    again = tilewright.compile(fn, params=params, records=file)
    np.testing.assert_allclose(again(x), net(x), rtol=1e-5, atol=1e-6)


def test_a_smaller_type_to_compute_in() -> None:
    fn, params = graph(2, 4)
    x = floats(2, 4)
    net = tilewright.compile(fn, params=params, dtype="bfloat16")
    assert net(x).dtype == np.float32
    wanted = np.maximum(x @ params["w"].T, 0)
    error = np.abs(net(x) - wanted).max()
    assert 0 < error < 0.05


# ---------------------------------------------------------------------------- JAX
@pytest.mark.slow
def test_a_function_of_jax() -> None:
    jax = pytest.importorskip("jax")
    w = jax.numpy.asarray(floats(4, 3))

    def predict(x: Any) -> dict[str, Any]:
        return {"probs": jax.nn.softmax(x @ w)}

    x = jax.numpy.asarray(floats(2, 4))
    net = tilewright.compile(predict, x)
    assert net.name == "predict" and [t.name for t in net.outputs] == ["probs"]
    found = net(x)
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, predict(x)["probs"], rtol=1e-5, atol=1e-6)
    named = tilewright.compile(predict, {"x": x}, dynamic={"x": {0: "n"}})
    assert named(floats(5, 4)).shape == (5, 3)
    with pytest.raises(ArgumentValueError, match="a JAX function has no shapes: give an example"):
        tilewright.compile(predict)


# ---------------------------------------------------------------------------- tensor expressions
def test_tensor_expressions_as_before() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    a, b = floats(8), np.zeros(8, "float32")
    for made in (
        tilewright.compile([A, B]),
        tilewright.compile([A, B], "llvm"),
        tilewright.compile([A, B], target="llvm"),
    ):
        made(a, b)
        assert (b == a + 1).all()
    with pytest.raises(ArgumentTypeError, match="dynamic is for models; tensor expressions have their types"):
        tilewright.compile([A, B], dynamic=True)


# ---------------------------------------------------------------------------- refusals
def test_what_cannot_be_compiled_is_named() -> None:
    with pytest.raises(ArgumentTypeError, match=r"compile takes a torch\.nn\.Module, .*; not int"):
        tilewright.compile(3)
    fn, params = graph(2, 4)
    with pytest.raises(ArgumentValueError, match="dtype='int8': a model is computed in float16, bfloat16"):
        tilewright.compile(fn, params=params, dtype="int8")
    with pytest.raises(ArgumentValueError, match="example: there is no input 'y'; the inputs are x"):
        tilewright.compile(fn, {"y": floats(2, 4)}, params=params)
    with pytest.raises(ArgumentValueError, match=r"example: input 'x' is .*, which \[3, 4\] does not fit"):
        tilewright.compile(fn, floats(3, 4), params=params)
    n = SizeVar("n", "int32")
    a, b = relay.var("a", shape=(n, 3)), relay.var("b", shape=(n, 3))
    with pytest.raises(ArgumentValueError, match=r"example: input 'b' is .*, which \[5, 3\] does not fit"):
        tilewright.compile(relay.Function([a, b], a + b), (floats(4, 3), floats(5, 3)))


def test_wrong_arguments_of_a_call() -> None:
    fn, params = graph(2, 4)
    net = tilewright.compile(fn, params=params)
    with pytest.raises(
        ArgumentValueError, match=r"x: float32\[2, 4\] does not take an array of shape \[3, 4\]"
    ):
        net(floats(3, 4))
    with pytest.raises(ArgumentTypeError, match=r"does not take float64; convert it: x\.astype\('float32'\)"):
        net(floats(2, 4).astype("float64"))
    with pytest.raises(ArgumentTypeError, match="model has no parameter 'y'; it has x"):
        net(y=floats(2, 4))
    with pytest.raises(ArgumentTypeError, match="was not given x"):
        net()


def test_files_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no such file"):
        tilewright.load(tmp_path / "net.tar")
    (tmp_path / "net.onnx").write_bytes(b"x")
    with pytest.raises(
        LoadError, match=r"is a model that is not compiled yet: compile it with tilewright\.compile\("
    ):
        tilewright.load(tmp_path / "net.onnx")
    (tmp_path / "net.tar").write_bytes(b"nothing")
    with pytest.raises(LoadError, match="is neither a package nor a saved model"):
        tilewright.load(tmp_path / "net.tar")


def test_arrays_are_checked_again_if_they_differ_from_those_of_the_last_call() -> None:
    x = relay.var("x", shape=(3, 4))
    net = tilewright.compile(relay.Function([x], relay.nn.relu(x)))
    data = np.arange(-6, 6, dtype="float32").reshape(3, 4)
    first, read_only = net(data), data.copy()
    read_only.flags.writeable = False
    for same in (
        data,
        np.asfortranarray(data),
        data[:, ::-1][:, ::-1],
        read_only,
        np.stack([data, data], 1)[:, 0],
    ):
        np.testing.assert_array_equal(net(same), np.maximum(data, 0))
    np.testing.assert_array_equal(first, np.maximum(data, 0))  # results have memory of their own
    with pytest.raises(ValueError, match=r"does not take an array of shape \[4, 3\]"):
        net(data.T)
    with pytest.raises(TypeError, match="does not take float64"):
        net(data.astype("float64"))
    with pytest.raises(ValueError, match="masked"):
        net(np.ma.masked_array(data, data > 0))
