"""The metadata of a whole model: inputs, results, parameters, and the steps over its memory.

    steps over   inputs │ results │ weights: all parameters, one after the other │ arena: all that is in between

A place is `["input", 2]`, `["output", 0]`, `["weights", 4096]`, `["arena", 128]` or `["scratch", 512]`; the last
three are offsets in bytes. Scratch is the workspace of a step in the arena.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .dtypes import ELEMENTS
from .errors import LoadError
from .profiling import Roof, parse_roof

MODEL = "model"  # the key in a library's metadata
LAUNCHES = "launches"  # in a device's model: the functions that launch its kernels
PROGRAMS_OF_CHIP = (
    "programs_of_chip"  # in an accelerator's model: the program of each of its kernels, as data
)
FORMAT = 1
LINE = 64  # bytes of a cache line, the unit of prefetches
_SPACES = ("input", "output", "weights", "arena", "scratch")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or result."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return _bytes(self.dtype, self.shape)

    @property
    def text(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or result as the model declares it: a dynamic size is a name, or None."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]

    def __str__(self) -> str:
        sizes = ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype}[{sizes}]"


@dataclass(frozen=True, slots=True)
class ParamInfo(TensorInfo):
    """A parameter: a tensor at an offset in the weights."""

    offset: int


@dataclass(frozen=True, slots=True)
class PlaceInfo:
    """A tensor that a step reads or writes."""

    space: str
    at: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return _bytes(self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class StepInfo:
    """A call of a kernel: its arguments in order, and which of them are results. Without a kernel, a copy.

    A kernel that prefetches weights of later steps takes two more arguments: an offset in the weights, and a stride.
    """

    name: str
    kernel: str
    args: tuple[PlaceInfo, ...]
    outputs: tuple[int, ...]
    ahead: tuple[int, ...] = ()
    # of the source: the node that takes the time, then the others
    nodes: tuple[str, ...] = field(default=(), compare=False, repr=False)
    flops: int | None = field(default=None, compare=False, repr=False)
    accessed: int | None = field(default=None, compare=False, repr=False)  # bytes


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A whole model."""

    name: str
    entry: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    params: tuple[ParamInfo, ...]
    weights: int
    arena: int
    steps: tuple[StepInfo, ...]
    inside: int = 0  # most bytes that each thread of a kernel allocates in addition
    device: str = "cpu"  # the kind of device that runs it
    on_host: Mapping[str, str] = field(default_factory=dict)  # kernels that run on the host instead, and why
    roof: Roof | None = None  # the peak of the machine that it is compiled for

    @property
    def weights_symbol(self) -> str:
        return f"tvmgen_{self.name}_weights"


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    size = ELEMENTS[dtype].itemsize
    for extent in shape:
        size *= extent
    return size


def parse_model(data: Any, where: str) -> ModelInfo:
    """Parse and check the metadata of a model: every place must be within its memory."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else data
        raise LoadError(
            f"{where}: the model has format {found!r}, this runtime reads {FORMAT}; compile it again"
        )
    try:
        info = ModelInfo(
            name=str(data["name"]),
            entry=str(data["entry"]),
            inputs=tuple(TensorInfo(str(n), *_tensor(d, s, where)) for n, d, s in data["inputs"]),
            outputs=tuple(TensorInfo(str(n), *_tensor(d, s, where)) for n, d, s in data["outputs"]),
            params=tuple(
                ParamInfo(str(n), *_tensor(d, s, where), _whole(o)) for n, d, s, o in data["params"]
            ),
            weights=_whole(data["weights"]),
            arena=_whole(data["arena"]),
            steps=tuple(
                StepInfo(
                    str(name),
                    str(kernel),
                    tuple(_place(a, where) for a in args),
                    tuple(map(_whole, outs)),
                    tuple(_whole(n) for each in ahead for n in each),
                    *_work(work),
                )
                for (name, kernel, args, outs, *ahead), work in zip(data["steps"], _works(data), strict=True)
            ),
            inside=_whole(data["inside"]),
            device=str(data.get("device", "cpu")),
            on_host={str(k): str(why) for k, why in data.get("on_host", {}).items()},
            roof=parse_roof(data.get("roof")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LoadError(f"{where}: the description of the model is damaged: {error!r}") from error
    _check_places(info, where)
    return info


def _works(data: Any) -> Any:
    """The figures of the steps; a library from before there were any has none."""
    return data.get("work", [[(), None]] * len(data["steps"]))


def _work(data: Any) -> tuple[tuple[str, ...], int | None, int | None]:
    """The source nodes of a step, its operations and its bytes."""
    nodes, counts = data
    flops, nbytes = (None, None) if counts is None else map(_whole, counts)
    return tuple(map(str, nodes)), flops, nbytes


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a size")
    return value


def _tensor(dtype: Any, shape: Any, where: str) -> tuple[str, tuple[int, ...]]:
    if dtype not in ELEMENTS:
        raise LoadError(f"{where}: data type {dtype!r} is unknown to this runtime")
    return str(dtype), tuple(_whole(d) for d in shape)


def _place(data: Any, where: str) -> PlaceInfo:
    space, at, dtype, shape = data
    if space not in _SPACES:
        raise ValueError(f"{space!r} is not a kind of memory")
    return PlaceInfo(space, _whole(at), *_tensor(dtype, shape, where))


def _check_places(info: ModelInfo, where: str) -> None:
    rooms = {"weights": info.weights, "arena": info.arena, "scratch": info.arena}
    lists = {"input": info.inputs, "output": info.outputs}
    for param in info.params:
        if param.offset + param.nbytes > info.weights:
            raise LoadError(f"{where}: damaged: parameter {param.name!r} ends past the end of the weights")
    for step in info.steps:
        for place in step.args:
            room = rooms.get(place.space)
            if room is not None:
                fits = place.at + place.nbytes <= room
            else:
                tensors = lists[place.space]
                fits = place.at < len(tensors) and place.nbytes <= tensors[place.at].nbytes
            if not fits:
                raise LoadError(
                    f"{where}: damaged: step {step.name!r} has a tensor outside of {place.space} memory"
                )
        if step.ahead and (len(step.ahead) != 2 or step.ahead[0] + LINE > info.weights):
            raise LoadError(f"{where}: damaged: step {step.name!r} prefetches past the end of the weights")
        if any(i >= len(step.args) for i in step.outputs):
            raise LoadError(f"{where}: damaged: step {step.name!r} has a result that is not an argument")


def graph_json(info: ModelInfo) -> str:
    """The model as the classic graph executor's JSON."""
    nodes: list[dict[str, Any]] = []
    rows = [0]
    kinds: list[tuple[str, tuple[int, ...]]] = []
    storage: list[int] = []
    ids: dict[tuple[str, int], int] = {}
    entry: dict[tuple[str, int], list[int]] = {}

    def add(
        node: dict[str, Any], places: list[tuple[str, int]], types: list[tuple[str, tuple[int, ...]]]
    ) -> None:
        for i, place in enumerate(places):
            entry[place] = [len(nodes), i, 0]
            storage.append(ids.setdefault(place, len(ids)))
        nodes.append(node)
        kinds.extend(types)
        rows.append(rows[-1] + len(types))

    for i, t in enumerate(info.inputs):
        add({"op": "null", "name": t.name, "inputs": []}, [("input", i)], [(t.dtype, t.shape)])
    for p in info.params:
        add({"op": "null", "name": p.name, "inputs": []}, [("weights", p.offset)], [(p.dtype, p.shape)])
    leaves = len(nodes)
    for step in info.steps:
        outs = [step.args[i] for i in step.outputs]
        ins = [a for i, a in enumerate(step.args) if i not in step.outputs and a.space != "scratch"]
        node = {
            "op": "tvm_op",
            "name": step.name,
            "attrs": {
                "func_name": step.kernel or "__copy",
                "num_inputs": str(len(ins)),
                "num_outputs": str(len(outs)),
                "flatten_data": "0",
            },
            "inputs": [entry[(a.space, a.at)] for a in ins],
        }
        add(node, [(a.space, a.at) for a in outs], [(a.dtype, a.shape) for a in outs])
    graph = {
        "nodes": nodes,
        "arg_nodes": list(range(leaves)),
        "heads": [entry[("output", i)] for i in range(len(info.outputs))],
        "attrs": {
            "dltype": ["list_str", [d for d, _ in kinds]],
            "shape": ["list_shape", [list(s) for _, s in kinds]],
            "storage_id": ["list_int", storage],
        },
        "node_row_ptr": rows,
    }
    return json.dumps(graph, indent=2)
