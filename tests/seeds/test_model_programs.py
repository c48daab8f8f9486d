"""The programs of the seed documents that import a model or compile a graph, with only their import line changed.

Where a document compiles for "cuda", the program is compiled as it stands, and its result runs where there is a GPU;
with the target that the document gives for machines without one it runs here.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, tir
from tilewright.contrib import graph_executor

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

# 000_c94b23ed02cfc284: Advanced Topics, 1. Relay - High-Level IR
IMPORT_A_MODEL = """
from tilewright import relay

# Import PyTorch model
model = torch.nn.Linear(128, 64)
input_shape = (1, 128)
input_data = torch.randn(input_shape)

# Convert to TVM Relay
traced = torch.jit.trace(model, input_data)
relay_mod, params = relay.frontend.from_pytorch(traced, [("input", input_shape)])

# Optimize graph
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(relay_mod, target="cuda", params=params)
"""

# 000_c94b23ed02cfc284: Advanced Topics, 3. Graph Optimizations
FUSE_A_GRAPH = """
with relay.build_config(opt_level=3):
    # Automatic fusion
    graph, lib, params = relay.build(mod, target="cuda")
"""

# 000_c94b23ed02cfc284: Core Concepts, 3. Build and Execute: target="cuda")  # or "llvm" for CPU
FOR_CPU = ('target="cuda"', 'target="llvm"')


def run(lib: Any, device: Any = None, **inputs: np.ndarray) -> np.ndarray:
    module = graph_executor.GraphModule(lib["default"](device or tvm.cpu()))
    module.set_input(**inputs)
    module.run()
    return module.get_output(0).numpy()


@pytest.mark.slow
def test_import_a_model_of_pytorch() -> None:
    """000_c94b23ed02cfc284: Advanced Topics, 1. Relay - High-Level IR."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    scope: dict[str, Any] = {"torch": torch, "tvm": tvm}
    exec(IMPORT_A_MODEL.replace(*FOR_CPU), scope)
    found = run(scope["lib"], input=scope["input_data"].numpy())
    wanted = scope["model"](scope["input_data"]).detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_model_for_a_gpu() -> None:
    """000_c94b23ed02cfc284: the same program as it stands."""
    torch = pytest.importorskip("torch")
    scope: dict[str, Any] = {"torch": torch, "tvm": tvm}
    exec(IMPORT_A_MODEL, scope)
    lib = scope["lib"]
    assert "__global__" in lib.get_source() and not lib.model.on_host
    if not tvm.cuda(0).exist:
        with pytest.raises(ValueError, match=r"device cuda\(0\) is not available"):
            lib["default"](tvm.cuda(0))
        return
    found = run(lib, tvm.cuda(0), input=scope["input_data"].numpy())
    wanted = scope["model"](scope["input_data"]).detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.needs("opencl")
def test_a_model_on_opencl() -> None:
    """000_c94b23ed02cfc284: the same program, on a GPU that may be this processor."""
    torch = pytest.importorskip("torch")
    scope: dict[str, Any] = {"torch": torch, "tvm": tvm}
    exec(IMPORT_A_MODEL.replace("cuda", "opencl"), scope)
    found = run(scope["lib"], tvm.opencl(0), input=scope["input_data"].numpy())
    wanted = scope["model"](scope["input_data"]).detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_fused_graph_for_a_gpu() -> None:
    """000_c94b23ed02cfc284: Advanced Topics, 3. Graph Optimizations, as it stands."""
    x = relay.var("x", shape=(4, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.exp(x) + relay.const(1.0))))
    scope: dict[str, Any] = {"relay": relay, "mod": mod}
    exec(FUSE_A_GRAPH, scope)
    nodes = json.loads(scope["graph"])["nodes"]
    assert [n["name"] for n in nodes if n["op"] == "tvm_op"] == ["fused_exp_add_nn_relu"]
    assert scope["lib"].get_source().count("__global__") == 1


def test_convolution_normalisation_and_activation_are_one_kernel() -> None:
    """000_c94b23ed02cfc284: Advanced Topics, 3. Graph Optimizations."""
    rng = np.random.default_rng(1)
    x = relay.var("x", shape=(1, 3, 8, 8))
    w, *stats = (relay.const(a) for a in (rng.standard_normal((4, 3, 3, 3), "float32"), *_statistics(4)))
    y = relay.nn.relu(relay.nn.batch_norm(relay.nn.conv2d(x, w, padding=(1, 1)), *stats)[0])
    scope: dict[str, Any] = {"relay": relay, "mod": tvm.IRModule.from_expr(relay.Function([x], y))}
    exec(FUSE_A_GRAPH.replace(*FOR_CPU), scope)
    nodes = json.loads(scope["graph"])["nodes"]
    assert [n["name"] for n in nodes if n["op"] == "tvm_op"] == ["fused_nn_conv2d_add_nn_relu"]
    module = graph_executor.create(scope["graph"], scope["lib"], tvm.cpu())
    module.set_input(**scope["params"])
    module.run(x=rng.standard_normal((1, 3, 8, 8)).astype("float32"))
    assert module.get_output(0).numpy().min() == 0


def _statistics(n: int) -> list[np.ndarray]:
    return [np.linspace(0.5, 1.5 + i, n, dtype="float32") for i in range(4)]


@pytest.mark.parametrize(
    "target", ["llvm -mcpu=core-avx2", "llvm -mtriple=wasm32-unknown-unknown", "cuda -model=jetson-nano"]
)
def test_targets_of_other_machines(target: str) -> None:
    """000_c94b23ed02cfc284: Advanced Topics, 4. Cross-Compilation, with a model."""
    x = relay.var("x", shape=(2, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    assert relay.build(mod, target=tvm.target.Target(target)).lib is not None


@pytest.mark.slow
def test_a_perceptron_through_relay() -> None:
    """002_d39a76ab4d320c7f: Phase 4, Relay Integration: import, apply passes, compile, verify against PyTorch."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(2)
    layers = [torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(16, 10)).eval()
    x = torch.randn(3, 20)
    mod, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", tuple(x.shape))])
    passes = [
        relay.transform.InferType(),
        relay.transform.SimplifyInference(),
        relay.transform.FoldConstant(),
        relay.transform.FuseOps(fuse_opt_level=2),
    ]
    with tvm.transform.PassContext(opt_level=3):
        fused = tvm.transform.Sequential(passes)(mod)
        lib = relay.build(mod, target="llvm", params=params)
    # What graph passes do and schedules of single operators cannot: the bias and the activation join the product.
    assert fused.astext().count("Primitive=1") == 3
    with torch.no_grad():
        np.testing.assert_allclose(run(lib, x=x.numpy()), net(x).numpy(), rtol=1e-4, atol=1e-5)


def test_what_relay_build_returns() -> None:
    """003_6d17afb3b306fbc9: Relay, relay.build(); 004_eb1758ed1c90b5cf: compile."""
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    ir_mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.sqrt(relay.exp(relay.nn.dense(x, w)))))
    weight = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    made = tvm.relay.build(
        ir_mod,
        target="llvm",
        target_host="llvm",
        executor=relay.backend.Executor("graph"),
        runtime=relay.backend.Runtime("cpp"),
        params={"w": weight},
    )
    assert isinstance(made, tvm.relay.backend.executor_factory.ExecutorFactoryModule)
    graph_json, lib, params = made
    assert set(json.loads(graph_json)) >= {"nodes", "arg_nodes", "heads", "node_row_ptr"}
    assert isinstance(lib, tvm.runtime.Module)
    assert all(isinstance(p, tvm.nd.NDArray) for p in params.values())
    value = np.ones((2, 8), "float32")
    np.testing.assert_allclose(run(made, x=value), np.sqrt(np.exp(value @ weight.T)), rtol=1e-5)


def test_expressions_of_graphs_and_of_loops() -> None:
    """003_6d17afb3b306fbc9: Relay v.s. TE."""
    assert isinstance(tvm.tir.sqrt(tir.Var("x", "float32")), tvm.ir.PrimExpr)
    assert isinstance(tvm.te.sqrt(te.var("x", "float32")), tvm.ir.PrimExpr)
    assert isinstance(tvm.relay.sqrt(data=relay.var("x", shape=(2,))), tvm.relay.RelayExpr)
    assert not issubclass(tvm.relay.RelayExpr, tvm.ir.PrimExpr)
    names = list(inspect.signature(tvm.relay.build).parameters)
    assert names[:5] == ["ir_mod", "target", "target_host", "executor", "runtime"]
