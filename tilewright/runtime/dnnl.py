"""oneDNN as the engine of parts of a model: a list of its primitives, run on float32 arrays.

The library is that of a wheel (`pip install onednn-cpu-gomp`), or of the system. Its C interface is called with ctypes,
with the constants of version 3.
"""

from __future__ import annotations

import ctypes
import json
import math
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ..forks import new_in_child
from .dnnl_path import INSTALL, find
from .errors import LoadError, TVMError
from .external import ExternalModule
from .json_reader import read_json
from .ndarray import NDArray
from .params import load_param_dict, save_param_dict
from .registry import register_func

TYPE_KEY: Final = "dnnl_json"

_F32, _ANY, _INFERENCE, _CPU = 3, 1, 96, 1
_SRC, _SRC_1, _DST, _WEIGHTS, _BIAS = 1, 2, 17, 33, 41
_WEIGHTS_MD = 131  # the query for the layout of the weights
_AUTO = 3  # the algorithm of a convolution
_SOFTMAX = 0x30000
_BINARY = {"add": 0x1FFF0, "multiply": 0x1FFF1}
_POOLING = {"max": 0x1FF, "avg_include": 0x2FF, "avg_exclude": 0x3FF}
_ELTWISE = {
    "relu": 0x20, "tanh": 0x21, "abs": 0x24, "sqrt": 0x25, "sigmoid": 0x29, "exp": 0x2A, "log": 0x2D, "clip": 0x2E,
}  # fmt: skip
_Dims = ctypes.c_int64 * 12
_lock = new_in_child(threading.Lock())  # there are one engine and one stream


class _Arg(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", ctypes.c_void_p)]


class _Library:
    """The library with an engine and a stream on this machine."""

    def __init__(self, path: str) -> None:
        try:
            self.dll = ctypes.CDLL(path)
        except OSError as error:
            raise TVMError(f"oneDNN: the system cannot load {path}: {error}") from error
        if not hasattr(self.dll, "dnnl_matmul_primitive_desc_create"):
            raise TVMError(f"oneDNN: {path} does not have the interface of version 3; {INSTALL}")
        self.engine = self.new("engine_create", _CPU, ctypes.c_size_t(0))
        self.stream = self.new("stream_create", self.engine, 1)

    def call(self, name: str, *args: Any) -> None:
        code = getattr(self.dll, f"dnnl_{name}")(*args)
        if code:
            raise TVMError(f"oneDNN: {name} failed with status {code}")

    def new(self, name: str, *args: Any) -> ctypes.c_void_p:
        """The object that a function of the library creates."""
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *args)
        return made

    def plain(self, shape: Sequence[int], strides: Sequence[int] | None = None) -> ctypes.c_void_p:
        """The description of a float32 array, with strides in elements."""
        if strides is None:
            strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        return self.new("memory_desc_create_with_strides", len(shape), _Dims(*shape), _F32, _Dims(*strides))

    def anyhow(self, shape: Sequence[int]) -> ctypes.c_void_p:
        """The description of an array whose layout the library chooses."""
        return self.new("memory_desc_create_with_tag", len(shape), _Dims(*shape), _F32, _ANY)

    def memory(self, about: ctypes.c_void_p, array: np.ndarray[Any, Any] | None) -> ctypes.c_void_p:
        """The memory object of an array; None lets the library allocate one."""
        address = ctypes.c_void_p(-1 if array is None else array.ctypes.data)
        return self.new("memory_create", about, self.engine, address)

    def execute(self, primitive: ctypes.c_void_p, given: Mapping[int, ctypes.c_void_p]) -> None:
        args = (_Arg * len(given))(*[_Arg(k, v) for k, v in given.items()])
        self.call("primitive_execute", primitive, self.stream, len(given), args)
        self.call("stream_wait", self.stream)


@lru_cache(maxsize=1)
def _library() -> _Library:
    path = find()
    if path is None:
        raise TVMError(f"oneDNN was not found: {INSTALL}")
    return _Library(path)


# ---------------------------------------------------------------------------- primitives
class _Primitive:
    """A node of a function, ready to be run: roles of its arguments with their descriptions."""

    def __init__(self, lib: _Library, about: ctypes.c_void_p, roles: dict[int, tuple[int, Any]]) -> None:
        self.lib, self.roles = lib, roles  # argument of the primitive -> (number of the value, description)
        self.handle = lib.new("primitive_create", about)
        self.held: dict[int, ctypes.c_void_p] = {}  # weights in the library's layout
        self.addend: int | None = None  # the value that the result is added to

    def __del__(self) -> None:
        for memory in self.held.values():
            self.lib.call("memory_destroy", memory)
        self.lib.call("primitive_destroy", self.handle)

    def run(self, values: list[Any]) -> None:
        out = values[self.roles[_DST][0]]
        if self.addend is not None:
            np.copyto(out, values[self.addend].reshape(out.shape))
        made = {
            arg: self.lib.memory(about, values[i])
            for arg, (i, about) in self.roles.items()
            if arg not in self.held
        }
        try:
            self.lib.execute(self.handle, {**made, **self.held})
        finally:
            for memory in made.values():
                self.lib.call("memory_destroy", memory)

    def pack(self, arg: int, weights: np.ndarray[Any, Any], about: ctypes.c_void_p) -> None:
        """Reorder constant weights once."""
        lib, source = self.lib, self.roles[arg][1]
        reorder = lib.new("reorder_primitive_desc_create", source, lib.engine, about, lib.engine, None)
        self.held[arg] = lib.memory(about, None)
        given = lib.memory(source, weights)
        lib.execute(lib.new("primitive_create", reorder), {_SRC: given, _DST: self.held[arg]})


Node = Mapping[str, Any]
Shapes = Sequence[Sequence[int]]


def _attributes(lib: _Library, node: Node) -> ctypes.c_void_p | None:
    """The attributes of the epilogue: operators that are applied before the result is stored."""
    if not node.get("post"):
        return None
    ops, made = lib.new("post_ops_create"), lib.new("primitive_attr_create")
    for name, alpha, beta in node["post"]:
        if name == "sum":
            lib.call("post_ops_append_sum", ops, ctypes.c_float(1.0), 0, _F32)
        else:
            lib.call(
                "post_ops_append_eltwise", ops, _ELTWISE[name], ctypes.c_float(alpha), ctypes.c_float(beta)
            )
    lib.call("primitive_attr_set_post_ops", made, ops)
    return made


def _product(
    lib: _Library, node: Node, weights: Any, create: Callable[..., Any], src: Any, bias: Any, dst: Any
) -> _Primitive:
    """A primitive with weights: constant weights are packed in the layout that the library prefers."""
    ins = node["inputs"]
    shape, strides, constant = weights
    given = lib.plain(shape, strides)
    about = create(src, given if constant is None else lib.anyhow(shape), bias, dst, _attributes(lib, node))
    roles = {_SRC: (ins[0], src), _WEIGHTS: (ins[1], given), _DST: (node["output"], dst)}
    if bias is not None:
        roles[_BIAS] = (ins[2], bias)
    made = _Primitive(lib, about, roles)
    if constant is not None:
        query = lib.dll.dnnl_primitive_desc_query_md
        query.restype = ctypes.c_void_p
        made.pack(_WEIGHTS, constant, ctypes.c_void_p(query(about, _WEIGHTS_MD, 0)))
    if any(name == "sum" for name, _, _ in node["post"]):
        made.addend = ins[-1]
    return made


def _conv2d(lib: _Library, node: Node, shapes: Shapes, constant: Any) -> _Primitive:
    groups, (o, i, h, w) = node["groups"], shapes[node["inputs"][1]]
    weights = (o, i, h, w) if groups == 1 else (groups, o // groups, i, h, w)
    pads = node["padding"]
    windows = [_Dims(*v) for v in (node["strides"], [d - 1 for d in node["dilation"]], pads[:2], pads[2:])]

    def create(src: Any, kernel: Any, bias: Any, dst: Any, attr: Any) -> Any:
        name = "convolution_forward_primitive_desc_create"
        return lib.new(name, lib.engine, _INFERENCE, _AUTO, src, kernel, bias, dst, *windows, attr)

    src, dst = lib.plain(shapes[node["inputs"][0]]), lib.plain(node["shape"])
    bias = lib.plain([o]) if node["bias"] else None
    return _product(lib, node, (weights, None, constant), create, src, bias, dst)


def _matmul(lib: _Library, node: Node, shapes: Shapes, constant: Any) -> _Primitive:
    """`dense` as the product with transposed weights; `batch_matmul` with either side transposed."""
    a, b = (list(shapes[i]) for i in node["inputs"][:2])
    out = list(node["shape"])
    if len(b) == 2 and len(a) != 2:
        a, out = [math.prod(a[:-1]), a[-1]], [math.prod(out[:-1]), out[-1]]

    def transposed(shape: list[int], swap: bool) -> tuple[list[int], list[int]]:
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        if swap:
            shape, strides = [*shape[:-2], shape[-1], shape[-2]], [*strides[:-2], strides[-1], strides[-2]]
        return shape, strides

    def create(src: Any, kernel: Any, bias: Any, dst: Any, attr: Any) -> Any:
        return lib.new("matmul_primitive_desc_create", lib.engine, src, kernel, bias, dst, attr)

    src, dst = lib.plain(*transposed(a, node["transpose_a"])), lib.plain(out)
    weights = transposed(b, node["transpose_b"])
    bias = lib.plain([*(1 for _ in out[:-1]), out[-1]]) if node["bias"] else None
    return _product(lib, node, (*weights, constant), create, src, bias, dst)


def _pool2d(lib: _Library, node: Node, shapes: Shapes, constant: Any) -> _Primitive:
    src, dst = lib.plain(shapes[node["inputs"][0]]), lib.plain(node["shape"])
    pads = node["padding"]
    windows = [_Dims(*v) for v in (node["strides"], node["kernel"], (0, 0), pads[:2], pads[2:])]
    about = lib.new(
        "pooling_forward_primitive_desc_create",
        lib.engine, _INFERENCE, _POOLING[node["kind"]], src, dst, *windows, None,
    )  # fmt: skip
    return _Primitive(lib, about, {_SRC: (node["inputs"][0], src), _DST: (node["output"], dst)})


def _eltwise(lib: _Library, node: Node, shapes: Shapes, constant: Any) -> _Primitive:
    flat = lib.plain([math.prod(node["shape"])])
    about = lib.new(
        "eltwise_forward_primitive_desc_create", lib.engine, _INFERENCE, _ELTWISE[node["kind"]], flat, flat,
        ctypes.c_float(node["alpha"]), ctypes.c_float(node["beta"]), None,
    )  # fmt: skip
    return _Primitive(lib, about, {_SRC: (node["inputs"][0], flat), _DST: (node["output"], flat)})


def _softmax(lib: _Library, node: Node, shapes: Shapes, constant: Any) -> _Primitive:
    plain = lib.plain(node["shape"])
    about = lib.new(
        "softmax_forward_primitive_desc_create",
        lib.engine, _INFERENCE, _SOFTMAX, plain, plain, node["axis"], None,
    )  # fmt: skip
    return _Primitive(lib, about, {_SRC: (node["inputs"][0], plain), _DST: (node["output"], plain)})


def _binary(lib: _Library, node: Node, shapes: Shapes, constant: Any) -> _Primitive:
    out = node["shape"]
    a, b = (lib.plain([*(1 for _ in out[len(shapes[i]) :]), *shapes[i]]) for i in node["inputs"])
    dst = lib.plain(out)
    about = lib.new("binary_primitive_desc_create", lib.engine, _BINARY[node["kind"]], a, b, dst, None)
    first, second = node["inputs"]
    return _Primitive(lib, about, {_SRC: (first, a), _SRC_1: (second, b), _DST: (node["output"], dst)})


_MAKERS: Final[dict[str, Callable[[_Library, Node, Shapes, Any], _Primitive]]] = {
    "conv2d": _conv2d,
    "matmul": _matmul,
    "pool2d": _pool2d,
    "eltwise": _eltwise,
    "softmax": _softmax,
    "binary": _binary,
}


# ---------------------------------------------------------------------------- functions
class _Function:
    """A function as primitives: its values are the inputs, the constants, and one result of each node."""

    def __init__(self, about: Any, constants: Mapping[str, NDArray]) -> None:
        self.shapes: list[list[int]] = about["shapes"]
        self.inputs: int = about["inputs"]
        self.outputs: list[int] = about["outputs"]
        self.nodes = about["nodes"]
        self.constants = {int(k): np.ascontiguousarray(v.numpy()) for k, v in constants.items()}
        self._ready: list[_Primitive] | None = None

    def __call__(self, *arrays: NDArray) -> None:
        values: list[Any] = [None] * len(self.shapes)
        for i, a in enumerate(arrays[: self.inputs]):
            values[i] = np.ascontiguousarray(a)
        for k, v in self.constants.items():
            values[k] = v
        given = dict(zip(self.outputs, arrays[self.inputs :], strict=True))
        for node in self.nodes:
            at = node["output"]
            values[at] = np.asarray(given[at]) if at in given else np.empty(self.shapes[at], np.float32)
        with _lock:
            if self._ready is None:
                self._ready = [self._made(n) for n in self.nodes]
            for primitive in self._ready:
                primitive.run(values)

    def _made(self, node: Node) -> _Primitive:
        ins = node["inputs"]
        constant = self.constants.get(ins[1]) if len(ins) > 1 else None
        return _MAKERS[node["op"]](_library(), node, self.shapes, constant)


def dnnl_module(functions: Mapping[str, Any], constants: Mapping[str, Mapping[str, Any]]) -> ExternalModule:
    """A module of functions as lists of primitives, with the constants of each."""
    text = json.dumps(functions).encode()
    flat = {f"{name}/{k}": v for name, each in constants.items() for k, v in each.items()}
    return _module(functions, constants, struct.pack("<Q", len(text)) + text + save_param_dict(flat))


def _module(functions: Mapping[str, Any], constants: Mapping[str, Any], data: bytes) -> ExternalModule:
    made = {n: _Function(about, constants.get(n, {})) for n, about in functions.items()}
    return ExternalModule(made, TYPE_KEY, data)


@register_func(f"runtime.module.loadbinary_{TYPE_KEY}", override=True)
def load(data: bytes) -> ExternalModule:
    """The module that `save_to_bytes` wrote."""
    (length,) = struct.unpack("<Q", data[:8]) if len(data) >= 8 else (len(data),)
    if 8 + length > len(data):
        raise LoadError("a module of oneDNN is damaged: it is truncated")
    functions = read_json(data[8 : 8 + length], "a module of oneDNN is damaged")
    constants: dict[str, dict[str, NDArray]] = {}
    for key, value in load_param_dict(data[8 + length :]).items():
        name, _, at = key.rpartition("/")
        constants.setdefault(name, {})[at] = value
    return _module(functions, constants, data)
