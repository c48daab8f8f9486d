"""A graph by hand as JSON, run with the functions of a module: what `graph_executor.create` makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from .devices import Device
from .errors import ArgumentValueError, TVMError
from .ndarray import NDArray, array, empty
from .params import load_param_dict
from .timing import BenchmarkResult, time_evaluator

_COPIES = ("__copy", "__nop")


class FunctionGraph:
    """Nodes in order, each a call of a function of a module with arrays: its inputs, then its outputs.

        {"op": "null", "name": "x", "inputs": []}
        {"op": "tvm_op", "name": "add", "inputs": [[0, 0, 0]], "attrs": {"func_name": "myadd", "num_outputs": "1", …}}

    Each value has memory of its own. `shape` and `dltype` list the values by number; those of node `n` begin at
    `node_row_ptr[n]`.
    """

    def __init__(self, graph: Mapping[str, Any], module: Any, device: Device) -> None:
        try:
            self._nodes: list[Mapping[str, Any]] = list(graph["nodes"])
            attrs = graph["attrs"]
            shapes, dtypes = attrs["shape"][1], attrs["dltype"][1]
            self._first = list(graph.get("node_row_ptr") or range(len(self._nodes) + 1))
            heads = [self._number(entry) for entry in graph["heads"]]
            inputs = [self._nodes[i]["name"] for i in graph["arg_nodes"]]
            numbers = [self._first[i] for i in graph["arg_nodes"]]
            self._values = [empty(tuple(s), t, device) for s, t in zip(shapes, dtypes, strict=True)]
            self._outputs = [self._values[n] for n in heads]
            self._calls = [
                self._call(node, i, module) for i, node in enumerate(self._nodes) if node["op"] != "null"
            ]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise TVMError(f"the graph cannot be run: {type(error).__name__}: {error}") from error
        self._inputs = dict(zip(inputs, numbers, strict=True))

    def _number(self, entry: Sequence[int]) -> int:
        return int(self._first[entry[0]] + (entry[1] if len(entry) > 1 else 0))

    def _call(self, node: Mapping[str, Any], position: int, module: Any) -> Callable[[], Any]:
        if node["op"] != "tvm_op":
            raise ValueError(f"node {node['name']!r} is a {node['op']!r}; nodes are null or tvm_op")
        attrs = node["attrs"]
        ins = [self._values[self._number(e)] for e in node["inputs"]]
        outs = [self._values[self._first[position] + k] for k in range(int(attrs.get("num_outputs", 1)))]
        if attrs["func_name"] in _COPIES:
            return lambda: outs[0].copyfrom(ins[0])
        arrays = [*ins, *outs]
        if str(attrs.get("flatten_data", "0")) == "1":
            arrays = [a if a.ndim == 1 else a._create_view((prod(a.shape),)) for a in arrays]
        function = module[attrs["func_name"]]
        return lambda: function(*arrays)

    # -- inputs and results ------------------------------------------------------------------------
    def _input(self, key: int | str) -> NDArray:
        if isinstance(key, str) and key in self._inputs:
            return self._values[self._inputs[key]]
        if not isinstance(key, str) and 0 <= key < len(self._inputs):
            return self._values[list(self._inputs.values())[key]]
        raise ArgumentValueError(f"the graph has no input {key!r}; its inputs are {', '.join(self._inputs)}")

    def set_input(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        if key is not None:
            self._input(key).copyfrom(value)
        for name, each in params.items():
            self._input(name).copyfrom(each)

    def load_params(self, params_bytes: bytes | bytearray | Mapping[str, Any]) -> None:
        given = params_bytes if isinstance(params_bytes, Mapping) else load_param_dict(bytes(params_bytes))
        for name, value in given.items():
            if name in self._inputs:
                self.set_input(name, value)

    def run(self, **inputs: Any) -> None:
        self.set_input(**inputs)
        for call in self._calls:
            call()

    def get_num_inputs(self) -> int:
        return len(self._inputs)

    def get_num_outputs(self) -> int:
        return len(self._outputs)

    def get_input_index(self, name: str) -> int:
        return list(self._inputs).index(name) if name in self._inputs else -1

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        values = {name: self._values[n] for name, n in self._inputs.items()}
        return {n: v.shape for n, v in values.items()}, {n: str(v.dtype) for n, v in values.items()}

    def get_input(self, key: int | str, out: Any = None) -> NDArray:
        return _given(self._input(key), out)

    def get_output(self, index: int | str, out: Any = None) -> NDArray:
        return _given(self._outputs[int(index)], out)

    def benchmark(self, **options: Any) -> BenchmarkResult:
        return time_evaluator(self.run, None, **options)()

    def __getitem__(self, name: str) -> Any:
        method = getattr(self, name, None)
        if name.startswith("_") or not callable(method):
            raise AttributeError(f"a graph has no function {name!r}")
        return method


def _given(value: NDArray, out: Any) -> NDArray:
    if out is None:
        return value
    target: NDArray = out if isinstance(out, NDArray) else array(out)
    return value.copyto(target)
