"""Those who compute the workloads: tilewright with no trial, NumPy, PyTorch eager, onnxruntime.

Each gives `run()`, which computes once, from inputs in its own containers, and `result()`, the last result.
None means that it has nothing for a workload. Weights are constants for those who can make use of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from workloads import Workload, windows

Array = np.ndarray[Any, Any]


class Prepared(NamedTuple):
    """A workload made ready. `note` tells what is not as it should be."""

    run: Callable[[], Any]
    result: Callable[[], Array]
    note: str = ""


# -- tilewright ---------------------------------------------------------------------------------
def tilewright(w: Workload, x: dict[str, Array], threads: int, figures: str) -> Prepared | None:
    from programs import program

    import tilewright as tvm

    target = tvm.target.Target(f"llvm -num-cores={threads}" + (f" -machine={figures}" if figures else ""))
    func = tvm.te.create_prim_func(program(w))
    constants = {name: x[name] for name in w.constants}
    note = ""
    if hasattr(tvm, "compile"):
        made = tvm.compile(func, target, constants=constants) if constants else tvm.compile(func, target)
    else:
        made, constants, note = tvm.build(func, target=target), {}, "plain loops"
    arrays = [tvm.nd.array(value) for name, value in x.items() if name not in constants]
    out = tvm.nd.array(np.zeros(w.output, np.float32))
    call = getattr(made, "entry_func", made)
    return Prepared(lambda: call(*arrays, out), out.numpy, note)


# -- NumPy --------------------------------------------------------------------------------------
def numpy(w: Workload, x: dict[str, Array], threads: int, figures: str) -> Prepared | None:
    out = np.empty(w.output, np.float32)
    return Prepared(_NUMPY[w.kind](x, w.options, out), lambda: out)


def _numpy_conv(x: dict[str, Array], o: dict[str, Any], out: Array) -> Callable[[], Any]:
    """Columns of the image by a matrix of the weights; for each channel alone, a sum over the window."""
    image, weight = x["x"], x["w"]
    filters, kernel, flat = weight.shape[0], o["kernel"], out.reshape(out.shape[1], -1)
    matrix = weight.reshape(filters, -1)

    def run() -> None:
        seen = windows(image, kernel, o["stride"], o["pad"])
        if o["groups"] > 1:
            np.einsum("chwyx,cyx->chw", seen, weight[:, 0], out=out[0])
        elif kernel == 1:
            np.matmul(matrix, seen[..., 0, 0].reshape(seen.shape[0], -1), out=flat)
        else:
            columns = seen.transpose(0, 3, 4, 1, 2).reshape(matrix.shape[1], -1)
            np.matmul(matrix, columns, out=flat)
        if o["epilogue"]:
            np.add(flat, x["bias"][:, None], out=flat)
            np.maximum(flat, 0, out=flat)

    return run


def _numpy_softmax(x: Array, out: Array) -> None:
    np.subtract(x, x.max(-1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(-1, keepdims=True), out=out)


def _numpy_layernorm(x: dict[str, Array], o: dict[str, Any], out: Array) -> Callable[[], Any]:
    squares = np.empty_like(out)

    def run() -> None:
        np.subtract(x["x"], x["x"].mean(-1, keepdims=True), out=out)
        np.multiply(out, out, out=squares)
        np.multiply(out, 1 / np.sqrt(squares.mean(-1, keepdims=True) + np.float32(1e-5)), out=out)
        np.multiply(out, x["g"], out=out)
        np.add(out, x["b"], out=out)

    return run


def _numpy_gelu(x: dict[str, Array], o: dict[str, Any], out: Array) -> Callable[[], Any]:
    from scipy.special import erf

    a, b, c = (np.float32(o[name]) for name in "abc")
    moved = np.empty_like(out)

    def run() -> None:
        np.multiply(x["x"], a, out=moved)
        np.add(moved, b, out=moved)
        np.multiply(moved, np.float32(1 / math.sqrt(2)), out=out)
        erf(out, out=out)
        np.add(out, np.float32(1), out=out)
        np.multiply(out, moved, out=out)
        np.multiply(out, np.float32(0.5), out=out)
        np.add(out, c, out=out)

    return run


def _numpy_attention(x: dict[str, Array], o: dict[str, Any], out: Array) -> Callable[[], Any]:
    q, turned, v = x["q"], x["k"].swapaxes(-1, -2), x["v"]
    scale = np.float32(1 / math.sqrt(q.shape[-1]))

    def run() -> None:
        scores = np.matmul(q, turned)
        np.multiply(scores, scale, out=scores)
        _numpy_softmax(scores, scores)
        np.matmul(scores, v, out=out)

    return run


_NUMPY: dict[str, Callable[[dict[str, Array], dict[str, Any], Array], Callable[[], Any]]] = {
    "matmul": lambda x, o, out: lambda: np.matmul(x["a"], x["b"], out=out),
    "conv": _numpy_conv,
    "softmax": lambda x, o, out: lambda: _numpy_softmax(x["x"], out),
    "layernorm": _numpy_layernorm,
    "sum": lambda x, o, out: lambda: x["x"].sum(o["axis"], out=out),
    "gelu": _numpy_gelu,
    "transpose": lambda x, o, out: lambda: np.copyto(out, x["x"].T),
    "add": lambda x, o, out: lambda: np.add(x["x"], x["y"], out=out),
    "attention": _numpy_attention,
}


# -- PyTorch ------------------------------------------------------------------------------------
def torch(w: Workload, x: dict[str, Array], threads: int, figures: str) -> Prepared | None:
    import torch as lib

    lib.set_num_threads(threads)
    lib.set_grad_enabled(False)
    t = {name: lib.from_numpy(value) for name, value in x.items()}
    out = lib.empty(w.output)
    if w.kind in ("matmul", "add"):  # these write where they are told, as NumPy's do
        first, second = t.values()
        into = lib.matmul if w.kind == "matmul" else lib.add
        return Prepared(lambda: into(first, second, out=out), out.numpy)
    compute = _torch_function(w, t)
    last: list[Any] = [None]

    def run() -> None:
        last[0] = compute()

    return Prepared(run, lambda: np.asarray(last[0].numpy()))


def _torch_function(w: Workload, t: dict[str, Any]) -> Callable[[], Any]:
    import torch as lib
    from torch.nn import functional

    o = w.options
    if w.kind == "conv":
        stride, pad, groups = o["stride"], o["pad"], o["groups"]
        if o["epilogue"]:
            return lambda: lib.relu_(functional.conv2d(t["x"], t["w"], t["bias"], stride, pad, 1, groups))
        return lambda: functional.conv2d(t["x"], t["w"], None, stride, pad, 1, groups)
    functions: dict[str, Callable[[], Any]] = {
        "softmax": lambda: lib.softmax(t["x"], -1),
        "layernorm": lambda: functional.layer_norm(t["x"], t["x"].shape[-1:], t["g"], t["b"], 1e-5),
        "sum": lambda: lib.sum(t["x"], o["axis"]),
        "gelu": lambda: functional.gelu(t["x"] * o["a"] + o["b"]) + o["c"],
        "transpose": lambda: t["x"].t().contiguous(),
        "attention": lambda: functional.scaled_dot_product_attention(
            t["q"][None], t["k"][None], t["v"][None]
        ),
    }
    return functions[w.kind]


# -- onnxruntime --------------------------------------------------------------------------------
def onnxruntime(w: Workload, x: dict[str, Array], threads: int, figures: str) -> Prepared | None:
    import onnxruntime as lib

    options = lib.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = lib.InferenceSession(_onnx_model(w, x), options, providers=["CPUExecutionProvider"])
    binding, out = session.io_binding(), np.empty(w.output, np.float32)
    for given in session.get_inputs():
        binding.bind_cpu_input(given.name, x[given.name])
    binding.bind_output("out", "cpu", 0, np.float32, out.shape, out.ctypes.data)
    return Prepared(lambda: session.run_with_iobinding(binding), lambda: out)


def _onnx_model(w: Workload, x: dict[str, Array]) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, shape: tuple[int, ...]) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes, numbers = _onnx_nodes(w)
    inputs = [value(name, shape) for name, shape in w.inputs.items() if name not in w.constants]
    held = {**{name: x[name] for name in w.constants}, **numbers}
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [value("out", w.output)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(model.SerializeToString())


def _onnx_nodes(w: Workload) -> tuple[list[Any], dict[str, Any]]:
    from onnx.helper import make_node as node

    o = w.options
    if w.kind == "conv":
        named = {"kernel_shape": [o["kernel"]] * 2, "strides": [o["stride"]] * 2, "pads": [o["pad"]] * 4}
        to = "plain" if o["epilogue"] else "out"
        nodes = [node("Conv", list(w.inputs), [to], group=o["groups"], **named)]
        return nodes + ([node("Relu", [to], ["out"])] if o["epilogue"] else []), {}
    if w.kind == "gelu":
        numbers = {name: np.float32(o[name]) for name in "abc"}
        return [
            node("Mul", ["x", "a"], ["scaled"]),
            node("Add", ["scaled", "b"], ["moved"]),
            node("Gelu", ["moved"], ["bent"], approximate="none"),
            node("Add", ["bent", "c"], ["out"]),
        ], numbers
    if w.kind == "attention":
        return [
            node("Transpose", ["k"], ["turned"], perm=[0, 2, 1]),
            node("MatMul", ["q", "turned"], ["scores"]),
            node("Mul", ["scores", "scale"], ["scaled"]),
            node("Softmax", ["scaled"], ["weights"], axis=-1),
            node("MatMul", ["weights", "v"], ["out"]),
        ], {"scale": np.float32(1 / math.sqrt(w.output[-1]))}
    if w.kind == "sum":
        return [node("ReduceSum", ["x", "axis"], ["out"], keepdims=0)], {
            "axis": np.array([o["axis"]], np.int64)
        }
    single: dict[str, Any] = {
        "matmul": lambda: node("MatMul", ["a", "b"], ["out"]),
        "softmax": lambda: node("Softmax", ["x"], ["out"], axis=-1),
        "layernorm": lambda: node("LayerNormalization", ["x", "g", "b"], ["out"], axis=-1, epsilon=1e-5),
        "transpose": lambda: node("Transpose", ["x"], ["out"], perm=[1, 0]),
        "add": lambda: node("Add", ["x", "y"], ["out"]),
    }
    return [single[w.kind]()], {}


PEERS: dict[str, Callable[[Workload, dict[str, Array], int, str], Prepared | None]] = {
    "tilewright": tilewright,
    "numpy": numpy,
    "torch": torch,
    "onnxruntime": onnxruntime,
}
