"""Executors: inputs by name and number, zero copy, the classic factory, the debugger, evaluate, the virtual machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.contrib.debugger import debug_executor


@pytest.fixture(scope="module")
def lib() -> Iterator[Any]:
    """tanh(x @ w.T) + y, softmax of it, with w a parameter."""
    x, y = relay.var("x", shape=(2, 4)), relay.var("y", shape=(3,))
    w = relay.var("w", shape=(3, 4))
    a = relay.tanh(relay.nn.dense(x, w)) + y
    func = relay.Function([x, y, w], relay.Tuple([relay.nn.softmax(a), a]))
    yield relay.build(tvm.IRModule.from_expr(func), "llvm", params={"w": W}, mod_name="default")


W = np.arange(12, dtype="float32").reshape(3, 4) / 10
X = np.array([[1, -1, 0.5, 2], [0, 1, 1, -2]], "float32")
Y = np.array([0.5, 0, -0.5], "float32")


def want(x: Any = X, y: Any = Y, w: Any = W) -> list[Any]:
    a = np.tanh(x @ w.T) + y
    e = np.exp(a - a.max(-1, keepdims=True))
    return [e / e.sum(-1, keepdims=True), a]


def check(m: Any, **changes: Any) -> None:
    for i, value in enumerate(want(**changes)):
        np.testing.assert_allclose(m.get_output(i).numpy(), value, rtol=1e-5, atol=1e-6)


def module(lib: Any) -> graph_executor.GraphModule:
    return graph_executor.GraphModule(lib["default"](tvm.cpu()))


def test_inputs_by_name_and_by_number(lib: Any) -> None:
    m = module(lib)
    m.set_input("x", tvm.nd.array(X))
    m.set_input(1, Y)
    m.run()
    check(m)
    m.set_input(x=X * 2, y=Y)
    m.run()
    check(m, x=X * 2)
    m.run(x=X, y=Y * 3)
    check(m, y=Y * 3)
    m.set_input({"x": X, "y": Y})
    m.run()
    check(m)
    assert m.get_num_outputs() == 2 and m.get_num_inputs() == 2
    np.testing.assert_array_equal(m.get_input("x").numpy(), X)
    np.testing.assert_array_equal(m.get_input(1).numpy(), Y)
    assert m.get_input_info() == ({"x": (2, 4), "y": (3,)}, {"x": "float32", "y": "float32"})
    assert m.get_input_index("y") == 1 and m.get_input_index("z") == -1
    out = tvm.nd.empty((2, 3))
    assert m.get_output(1, out) is out
    np.testing.assert_allclose(out.numpy(), want()[1], rtol=1e-5)


def test_functions_of_the_executor_by_name(lib: Any) -> None:
    m = lib["default"](tvm.cpu())
    m["set_input"]("x", X)
    m["set_input"]("y", Y)
    m["run"]()
    np.testing.assert_allclose(m["get_output"](1).numpy(), want()[1], rtol=1e-5)
    with pytest.raises(AttributeError, match="no function 'fly'"):
        m["fly"]


def test_executors_do_not_share_memory(lib: Any) -> None:
    a, b = module(lib), module(lib)
    a.run(x=X, y=Y)
    b.run(x=X * 3, y=Y)
    check(a)
    check(b, x=X * 3)


def test_zero_copy(lib: Any) -> None:
    m = module(lib)
    x = tvm.nd.array(X)
    m.set_input("y", Y)
    m.set_input_zero_copy("x", x)
    m.run()
    check(m)
    np.asarray(x)[...] = X * 2
    m.run()
    check(m, x=X * 2)
    out = tvm.nd.empty((2, 3))
    m.set_output_zero_copy(1, out)
    m.run()
    np.testing.assert_allclose(out.numpy(), want(x=X * 2)[1], rtol=1e-5)
    with pytest.raises(ValueError, match="must be dense"):
        m.set_input_zero_copy("x", np.asfortranarray(X))


def test_parameters_can_be_set_without_changing_the_library(lib: Any) -> None:
    (name,) = lib.get_params()
    m = module(lib)
    m.set_input(**lib.get_params())
    m.run(x=X, y=Y)
    check(m)
    packed = lib.get_params()[name].numpy()
    m.set_input(name, packed * 2)
    m.run()
    check(m, w=W * 2)
    np.testing.assert_array_equal(lib.get_params()[name].numpy(), packed)
    other = module(lib)
    other.run(x=X, y=Y)
    check(other)
    other.share_params(m)
    other.run()
    check(other, w=W * 2)


def test_wrong_inputs_are_named(lib: Any) -> None:
    m = module(lib)
    with pytest.raises(ValueError, match=r"no input 'z'; its inputs are x: float32\[2, 4\], y: float32\[3\]"):
        m.set_input("z", X)
    with pytest.raises(ValueError, match=r"input 'x' must have shape \(2, 4\), .* shape \(4, 2\)"):
        m.set_input("x", X.T)
    with pytest.raises(TypeError, match="input 'x' must be of type float32, and complex64"):
        m.set_input("x", X.astype("complex64"))
    with pytest.raises(TypeError, match="input 'x' must be of type float32, and float64"):
        m.set_input("x", X.astype("float64") * 1e300)
    with pytest.raises(TypeError, match="input 'x' must be of type float32, and float64"):
        m.set_input("x", tvm.nd.array(X.astype("float64")))
    with pytest.raises(ValueError, match="no input number 7"):
        m.set_input(7, X)
    with pytest.raises(ValueError, match="2 results, and index 2 is out of range"):
        m.get_output(2)
    with pytest.raises(TypeError, match='takes lib\\["default"\\]'):
        graph_executor.GraphModule(3)


def test_the_classic_triple(lib: Any) -> None:
    graph, kernels, params = lib
    m = graph_executor.create(graph, kernels, tvm.cpu())
    m.set_input(**params)
    m.run(x=X, y=Y)
    check(m)
    nodes = json.loads(graph)
    assert [n["name"] for n in nodes["nodes"]] == [
        "x", "y", "p0", "fused_nn_dense_tanh_add", "fused_nn_softmax"
    ]  # fmt: skip
    assert nodes["heads"] == [[4, 0, 0], [3, 0, 0]] and nodes["arg_nodes"] == [0, 1, 2]
    assert nodes["attrs"]["shape"][1][3] == [2, 3] and nodes["node_row_ptr"] == [0, 1, 2, 3, 4, 5]
    assert lib.get_executor_config() == graph and lib.libmod_name == "default"
    with pytest.raises(tvm.TVMError, match="not the JSON"):
        graph_executor.create("{}", kernels, tvm.cpu())
    with pytest.raises(tvm.TVMError, match="not the library of a model"):
        graph_executor.create(graph, 3, tvm.cpu())


def test_graph_codegen() -> None:
    from tilewright.relay.backend import graph_executor_codegen

    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    graph, kernels, params = graph_executor_codegen.GraphExecutorCodegen(None, "llvm").codegen(
        mod, mod["main"]
    )
    assert [n["op"] for n in json.loads(graph)["nodes"]] == ["null", "tvm_op"] and params == {}
    m = graph_executor.create(graph, kernels, tvm.cpu())
    m.run(x=np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(m.get_output(0).numpy(), np.ones((2, 3)))


def test_benchmark(lib: Any) -> None:
    m = module(lib)
    for whole in (False, True):
        result = m.benchmark(tvm.cpu(), repeat=2, number=3, end_to_end=whole, x=X, y=Y)
        assert len(result.results) == 2 and result.mean > 0
    check(m)


def test_the_debugger(lib: Any, tmp_path: Path) -> None:
    graph, kernels, _ = lib
    m = debug_executor.create(graph, lib, tvm.cpu(), dump_root=str(tmp_path / "dump"))
    m.set_input(x=X, y=Y)
    m.run()
    check(m)
    names = m.step_names()
    assert names == ["fused_nn_dense_tanh_add", "fused_nn_softmax"]
    np.testing.assert_allclose(m.debug_get_output(names[0]).numpy(), want()[1], rtol=1e-5)
    np.testing.assert_allclose(m.debug_get_output(1).numpy(), want()[0], rtol=1e-5)
    made = lib["debug_create"]("default", tvm.cpu())
    classic = debug_executor.GraphModuleDebug(made, [tvm.cpu()], graph, None)
    classic.run(x=X, y=Y)
    check(classic)
    report = m.profile(number=2)
    assert [r.name for r in report.kernels] == names and report.total > 0
    assert "fused_nn_softmax" in str(report) and "total" in str(report)
    saved = relay.load_param_dict((tmp_path / "dump" / "output_tensors.params").read_bytes())
    assert set(saved) == {f"{n}:0" for n in names}
    with pytest.raises(ValueError, match="there is no step 'nope'"):
        m.debug_get_output("nope")
    assert "fused_nn_dense_tanh_add" in m.get_debug_result()
    times = m.run_individual(2, 3)
    assert [len(t) for t in times] == [3, 3] and min(map(min, times)) > 0
    with pytest.raises(ValueError, match="there is no step number 2; there are 2"):
        m.run_individual_node(2)


# ---------------------------------------------------------------------------- evaluate
@pytest.mark.parametrize("kind", ["graph", "aot", "debug", "vm"])
def test_evaluate(kind: str) -> None:
    x, y = relay.var("x", shape=(2, 4)), relay.var("y", shape=(2, 4))
    mod = tvm.IRModule.from_expr(relay.Function([x, y], relay.Tuple([x - y, relay.Tuple([x])])))
    out = relay.create_executor(kind, mod, tvm.cpu(), "llvm").evaluate()(X, y=X * 3)
    np.testing.assert_array_equal(out[0].numpy(), X - X * 3)
    np.testing.assert_array_equal(out[1][0].numpy(), X)
    assert isinstance(out, list) is isinstance(out[1], list) is (kind in ("graph", "aot"))
    again = relay.create_executor(kind, mod, tvm.cpu(), "llvm", params={"y": X}).evaluate()(X)
    np.testing.assert_array_equal(again[0].numpy(), X - X)


def test_evaluate_expressions_functions_and_names() -> None:
    ex = relay.create_executor("graph")
    assert ex.evaluate(relay.const(2.0) + relay.const(3.0)).numpy() == 5
    x = relay.var("x", shape=())
    assert ex.evaluate(relay.Function([x], x * x))(3.0).numpy() == 9
    assert ex.evaluate(x * x, {x: 4.0}).numpy() == 16
    f = relay.GlobalVar("square")
    mod = tvm.IRModule({f: relay.Function([x], x * x)})
    assert relay.create_executor("graph", mod).evaluate(f)(5.0).numpy() == 25
    with pytest.raises(ValueError, match="%x has no value"):
        ex.evaluate(x * x)
    with pytest.raises(TypeError, match="takes 1 arguments"):
        ex.evaluate(relay.Function([x], x))(1.0, 2.0)
    with pytest.raises(TypeError, match="was not given x"):
        ex.evaluate(relay.Function([x], x))()
    with pytest.raises(TypeError, match="no parameter 'z'"):
        ex.evaluate(relay.Function([x], x))(z=1.0)
    with pytest.raises(ValueError, match="there are graph, aot, debug, vm"):
        relay.create_executor("fast")


# ---------------------------------------------------------------------------- the virtual machine
def test_branches_compute_what_is_chosen() -> None:
    x, c = relay.var("x", shape=(3,)), relay.var("c", shape=(), dtype="bool")
    func = relay.Function([x, c], relay.If(c, relay.exp(x), x + relay.const(1.0)))
    run = relay.create_executor("vm").evaluate(func)
    v = np.array([0, 1, 2], "float32")
    np.testing.assert_allclose(run(v, True).numpy(), np.exp(v), rtol=1e-6)
    np.testing.assert_array_equal(run(v, False).numpy(), v + 1)


def test_loops_take_no_stack() -> None:
    i, acc = relay.var("i", shape=(), dtype="int32"), relay.var("acc", shape=(2,))
    loop = relay.GlobalVar("loop")
    more = relay.Call(loop, [i + relay.const(1), acc + relay.const(1.0)])
    mod = tvm.IRModule()
    mod[loop] = relay.Function(
        [i, acc], relay.If(relay.less(i, relay.const(5000)), more, acc), relay.TensorType((2,))
    )
    x = relay.var("x", shape=(2,))
    mod["main"] = relay.Function([x], relay.Call(loop, [relay.const(0), x]))
    for kind in ("vm", "debug"):
        out = relay.create_executor(kind, mod).evaluate()(np.zeros(2, "float32"))
        np.testing.assert_array_equal(out.numpy(), [5000, 5000])


def test_closures() -> None:
    y, z, add = relay.var("y", shape=(2,)), relay.var("z", shape=(2,)), relay.var("add")
    inner = relay.Function([z], z + y)
    func = relay.Function([y], relay.Let(add, inner, relay.Call(add, [relay.Call(add, [y])])))
    for kind in ("vm", "graph"):
        out = relay.create_executor(kind).evaluate(func)(np.array([1, 2], "float32"))
        np.testing.assert_array_equal(out.numpy(), [3, 6])


@pytest.mark.slow
def test_sizes_known_only_when_it_runs() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    func = relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(W))))
    run = relay.create_executor("vm").evaluate(func)
    for n in (1, 3, 1):
        v = np.linspace(-1, 1, n * 4, dtype="float32").reshape(n, 4)
        np.testing.assert_allclose(run(v).numpy(), np.maximum(v @ W.T, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_one_kernel_for_all_sizes_of_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.relay.backend import vm

    done: list[str] = []
    real = vm.compile_all

    def counted(jobs: Any, *more: Any) -> Any:
        done.extend(job.label for job in jobs)
        return real(jobs, *more)

    monkeypatch.setattr(vm, "compile_all", counted)
    x, y = (relay.var(name, shape=(relay.Any(), 4)) for name in "xy")
    func = relay.Function([x, y], relay.tanh(relay.nn.dense(x + y, relay.const(W))))
    run = relay.create_executor("vm").evaluate(func)

    def check_sizes(n: int, m: int) -> None:
        a = np.linspace(-1, 1, n * 4, dtype="float32").reshape(n, 4)
        b = np.linspace(-1, 0, m * 4, dtype="float32").reshape(m, 4)
        np.testing.assert_allclose(run(a, b).numpy(), np.tanh((a + b) @ W.T), rtol=1e-5, atol=1e-6)

    for n, m in ((2, 2), (3, 3), (9, 9), (1, 1)):
        check_sizes(n, m)
    assert done == ["fused_nn_dense_tanh", "fused_add"]
    for n, m in ((5, 1), (6, 1), (1, 7), (1, 8)):  # what is broadcast is another kernel
        check_sizes(n, m)
    assert done == ["fused_nn_dense_tanh", "fused_add", "fused_add", "fused_add"]
    with pytest.raises(tvm.TVMError, match="add: 3 and 2 do not broadcast"):
        run(np.zeros((3, 4), "float32"), np.zeros((2, 4), "float32"))


def _dynamic(*shape: Any) -> Any:
    return relay.var("x", shape=[relay.Any() if d is None else d for d in shape])


DYNAMIC: dict[str, tuple[Any, Any, Any]] = {
    "reshape": (_dynamic(None, 4), lambda x: relay.reshape(x, (-1,)), lambda v: v.reshape(-1)),
    "sizes that are computed": (
        _dynamic(None, 4),
        lambda x: relay.nn.relu(relay.reshape(relay.exp(x), relay.reverse(relay.shape_of(x), 0))),
        lambda v: np.exp(v).reshape(v.shape[::-1]),
    ),
    "shape_of": (_dynamic(None, 4), relay.shape_of, lambda v: np.array(v.shape)),
    "reduction": (_dynamic(None, 4), lambda x: relay.mean(x, axis=0), lambda v: v.mean(0)),
    "transpose": (_dynamic(None, None), relay.transpose, lambda v: v.T),
    "part": (_dynamic(None, 4), lambda x: relay.split(x, 2, axis=1)[1], lambda v: v[:, 2:]),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_operators_over_unknown_sizes(name: str) -> None:
    x, make, reference = DYNAMIC[name]
    run = relay.create_executor("vm").evaluate(relay.Function([x], make(x)))
    for n in (3, 5):
        v = np.linspace(-1, 1, n * 4, dtype="float32").reshape(n, 4)
        np.testing.assert_allclose(run(v).numpy(), reference(v), rtol=1e-5, atol=1e-6)


def test_the_classic_way_to_the_machine() -> None:
    x, w = relay.var("x", shape=(2, 4)), relay.var("w", shape=(3, 4))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    exe = relay.vm.compile(mod, target="llvm", params={"w": W})
    vm = tvm.runtime.vm.VirtualMachine(exe, tvm.cpu())
    np.testing.assert_allclose(vm.invoke("main", X).numpy(), X @ W.T, rtol=1e-5)
    np.testing.assert_allclose(vm.run(x=X * 2).numpy(), X @ W.T * 2, rtol=1e-5)
    assert len(vm.get_outputs()) == 1
    with pytest.raises(TypeError, match="no parameter 'q'"):
        vm.invoke("main", q=X)


def test_run_is_timed_by_name(lib: Any) -> None:
    m = module(lib)
    m.set_input(x=X, y=Y)
    result = m.module.time_evaluator("run", tvm.cpu(), number=2, repeat=3)()
    assert len(result.results) == 3 and result.mean > 0
    check(m)
    with pytest.raises(AttributeError, match="an executor has no function 'walk'"):
        m.module.time_evaluator("walk")


def test_float64_is_rounded(lib: Any) -> None:
    """NumPy makes it of float32 and a Python number, and classic programs pass it on."""
    m = module(lib)
    m.set_input("x", X.astype("float64") + 1e-12)
    np.testing.assert_array_equal(m.get_input("x").numpy(), (X.astype("float64") + 1e-12).astype("float32"))


def test_arrays_of_numpy_are_converted_where_values_stay() -> None:
    x = relay.var("x", shape=(3,), dtype="uint8")
    y = relay.var("y", shape=(3,), dtype="float32")
    f = relay.create_executor("graph").evaluate(relay.Function([x, y], relay.cast(x, "float32") + y))
    got = f(np.array([1, 200, 255]), np.array([1, 2, 3], "float16"))
    np.testing.assert_array_equal(got.numpy(), [2, 202, 258])
    np.testing.assert_array_equal(
        f(np.zeros(3, "uint8"), np.array([1, 2, -(2**24)])).numpy(), [1, 2, -(2**24)]
    )
    third = np.array([1 / 3, 1e-50, 1e30])  # is rounded, as NumPy and the classic set_input round it
    np.testing.assert_array_equal(f(np.zeros(3, "uint8"), third).numpy(), third.astype("float32"))
    with pytest.raises(TypeError, match="input 'y' must be of type float32"):
        f(np.zeros(3, "uint8"), np.array([1, 2, 2**24 + 1]))
    for bad in (np.array([1, 2, 256]), np.array([-1, 2, 3]), np.array([1.0, 2.0, 3.0])):
        with pytest.raises(TypeError, match="input 'x' must be of type uint8"):
            f(bad, np.zeros(3, "float32"))


@pytest.mark.parametrize("kind", ["graph", "vm", "debug"])
def test_parameters_that_share_a_name_are_given_in_order(kind: str) -> None:
    a, b = relay.var("x", shape=(2,)), relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([a, b], a - b))
    five, one = np.full(2, 5, "float32"), np.ones(2, "float32")
    found = relay.create_executor(kind, mod, target="llvm").evaluate()(five, one)
    np.testing.assert_array_equal(found.numpy(), [4, 4])
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
    np.testing.assert_array_equal(machine.invoke("main", five, one).numpy(), [4, 4])
    with pytest.raises(TypeError, match="main has several parameters 'x'; give them in order"):
        machine.set_input("main", x=five)
