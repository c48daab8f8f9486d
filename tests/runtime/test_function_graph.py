"""Graphs written by hand as JSON, run with the functions of a module."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import rpc, te
from tilewright.contrib import graph_executor, utils


def graph(**changes: Any) -> str:
    attrs = {"func_name": "myadd", "flatten_data": "1", "num_inputs": "1", "num_outputs": "1"}
    nodes = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "tvm_op", "name": "first", "inputs": [[0, 0, 0]], "attrs": attrs},
        {"op": "tvm_op", "name": "second", "inputs": [[1, 0, 0]], "attrs": attrs},
        {"op": "tvm_op", "name": "same", "inputs": [[2, 0]], "attrs": {**attrs, "func_name": "__copy"}},
    ]
    made = {
        "nodes": nodes,
        "arg_nodes": [0],
        "node_row_ptr": [0, 1, 2, 3, 4],
        "heads": [[3, 0, 0], [1, 0, 0]],
        "attrs": {
            "shape": ["list_shape", [(2, 2)] * 4],
            "dltype": ["list_str", ["float32"] * 4],
            "storage_id": ["list_int", [0, 1, 2, 3]],
        },
    }
    return json.dumps(made | changes)


def library() -> Any:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    return tvm.build(te.create_schedule(b.op), [a, b], "llvm", name="myadd")


def test_a_graph_calls_functions_of_a_module() -> None:
    module = graph_executor.create(graph(), library(), tvm.cpu(0))
    x = np.random.default_rng(0).random((2, 2), "float32")
    module.run(x=x)
    np.testing.assert_array_equal(module.get_output(0).numpy(), x + 1 + 1)
    np.testing.assert_array_equal(module.get_output(1, tvm.nd.empty((2, 2))).numpy(), x + 1)
    module.set_input(0, x + 1)
    np.testing.assert_array_equal(module.get_input("x").numpy(), x + 1)
    assert module.get_input_info() == ({"x": (2, 2)}, {"x": "float32"})
    assert (module.get_num_inputs(), module.get_num_outputs(), module.get_input_index("x")) == (1, 2, 0)
    module.load_params(tvm.runtime.save_param_dict({"x": tvm.nd.array(x), "other": tvm.nd.array(x)}))
    module.run()
    np.testing.assert_array_equal(module.get_output(1).numpy(), x + 1)
    assert module.benchmark(repeat=1, number=1).mean > 0


def test_a_graph_on_a_server() -> None:
    folder = utils.tempdir()
    file = folder.relpath("add.tar")
    library().export_library(file)
    remote = rpc.LocalSession()
    remote.upload(file)
    module = graph_executor.create(graph(), remote.load_module("add.tar"), remote.cpu())
    module.run(x=np.ones((2, 2), "float32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.full((2, 2), 3))


def test_what_is_wrong_with_a_graph_is_said() -> None:
    lib = library()
    with pytest.raises(tvm.TVMError, match="the graph cannot be run: KeyError: 'heads'"):
        graph_executor.create(
            json.dumps({"nodes": [], "attrs": {"shape": [0, []], "dltype": [0, []]}}), lib, tvm.cpu()
        )
    with pytest.raises(tvm.TVMError, match="the graph is not JSON"):
        graph_executor.create("{", lib, tvm.cpu())
    nodes = json.loads(graph())["nodes"]
    nodes[1]["attrs"]["func_name"] = "other"
    with pytest.raises(tvm.TVMError, match="other"):
        graph_executor.create(graph(nodes=nodes), lib, tvm.cpu())
    nodes[1]["op"] = "call"
    with pytest.raises(tvm.TVMError, match="node 'first' is a 'call'; nodes are null or tvm_op"):
        graph_executor.create(graph(nodes=nodes), lib, tvm.cpu())
    module = graph_executor.create(graph(), lib, tvm.cpu())
    with pytest.raises(ValueError, match="the graph has no input 'y'; its inputs are x"):
        module.set_input("y", np.ones((2, 2), "float32"))
