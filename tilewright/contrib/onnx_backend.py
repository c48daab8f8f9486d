"""The interface by which ONNX runs models on a backend: `onnx.backend.base.Backend` over the importer and compiler.

    from tilewright.contrib import onnx_backend
    (y,) = onnx_backend.run_model(model, [x])

A graph is compiled when it is first run. Inputs that decide about shapes (the `shape` of a Reshape) are bound to
their values then, and the graph is compiled anew where they change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx.backend.base import Backend, BackendRep, namedtupledict

from .. import relay
from ..ir.module import IRModule
from ..relay.analysis import post_order
from ..relay.expr import Expr, If, Let
from ..relay.frontend.onnx import NeedsValue
from ..relay.frontend.onnx.importer import Importer
from ..relay.frontend.onnx.load import array_of, load_model, stored
from ..relay.frontend.onnx.narrow import numpy_type
from ..relay.frontend.onnx.strings import STRING
from ..relay.ty import is_dynamic
from ..runtime.devices import cpu
from ..runtime.ndarray import NDArray, array
from ..runtime.words import Numbering
from .graph_executor import GraphModule

_FEW = 1024  # an integer input of more elements is data and no shape


class TilewrightRep(BackendRep):  # type: ignore[misc]
    """A model that is ready to be run."""

    def __init__(self, model: Any, device: str = "CPU") -> None:
        self.model, self.name, self.folder = load_model(model)
        self.device = device
        given = {t.name for t in self.model.graph.initializer}
        self.inputs = [i for i in self.model.graph.input if i.name not in given]
        self._made: dict[Any, Any] = {}

    def run(self, inputs: Any, **options: Any) -> Any:
        """The outputs for inputs in the order of the model, or by name."""
        names = [i.name for i in self.inputs]
        if isinstance(inputs, Mapping):
            values = dict(inputs)
        else:
            given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) > len(names):
                raise ValueError(
                    f"{self.name} takes {len(names)} inputs ({', '.join(names)}), not {len(given)}"
                )
            values = dict(zip(names, given, strict=False))
        values = {k: _array(v) for k, v in values.items()}
        results = self._results(values)
        labels = [o.name for o in self.model.graph.output]
        return namedtupledict("Outputs", labels)(*results)

    def _results(self, values: dict[str, Any]) -> list[Any]:
        """Run with as few inputs bound as will do: none, small integers, all small ones."""
        frozen: set[str] = {k for k, v in values.items() if isinstance(v, list) or v is None}
        stages = [
            {k for k, v in values.items() if _small(v) and v.dtype.kind in "iub"},
            {k for k, v in values.items() if _small(v)},
        ]
        while True:
            try:
                return self._compiled(values, frozen)
            except NeedsValue:
                while stages and stages[0] <= frozen:
                    stages.pop(0)
                if not stages:
                    raise
                frozen |= stages.pop(0)

    def _compiled(self, values: dict[str, Any], frozen: set[str]) -> list[Any]:
        shapes = {k: v.shape for k, v in values.items() if k not in frozen}
        key = (tuple(sorted(shapes.items())), tuple(_fingerprint(k, values[k]) for k in sorted(frozen)))
        made = self._made.get(key)
        if made is None:
            work = Importer(self.model, self.name, self.folder, True, {})
            mod, _ = work.run(shapes, "float32", {k: values[k] for k in frozen})
            made = self._made[key] = (work, _Program(mod))
        work, program = made
        words = Numbering(work.words.words)
        texts = {k: words.encoded(values[k]) for k in work.string_inputs if k not in frozen}
        found = program.run({**values, **texts})
        flat = [
            np.asarray(a) if not elem else _stored(np.asarray(a), elem)
            for a, elem in zip(found, work.output_elems, strict=True)
        ]
        flat = [
            words.decoded(a) if elem == STRING else _narrow(a, elem) if elem else a
            for a, elem in zip(flat, work.output_elems, strict=True)
        ]
        return work.regroup(flat)


class _Program:
    """A compiled graph: the ahead-of-time executor where all sizes are known, else the virtual machine."""

    def __init__(self, mod: IRModule) -> None:
        main = mod["main"]
        self.names = [p.name_hint for p in main.params]
        dynamic = any(
            isinstance(e, (If, Let)) or (isinstance(e, Expr) and is_dynamic(e.checked_type))
            for e in post_order(main.body)
        )
        self.machine = self.module = None
        if dynamic:
            self.machine = relay.create_executor("vm", mod, cpu(), "llvm").evaluate()
        else:
            self.module = GraphModule(relay.build(mod, "llvm")["default"](cpu()))

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        if self.machine is not None:
            found = self.machine(*(array(values[n]) for n in self.names))
            return (
                [found.numpy()]
                if isinstance(found, NDArray)
                else [found[i].numpy() for i in range(len(found))]
            )
        assert self.module is not None
        for name in self.names:
            self.module.set_input(name, values[name])
        self.module.run()
        return [self.module.get_output(i).numpy() for i in range(self.module.get_num_outputs())]


def _fingerprint(name: str, value: Any) -> Any:
    """A key of the value of an input."""
    if isinstance(value, list):
        return name, tuple(_fingerprint("", v) for v in value)
    if value is None:
        return name, None
    data = tuple(map(str, value.flat)) if value.dtype == object else value.tobytes()
    return name, value.shape, str(value.dtype), data


def _array(v: Any) -> Any:
    """An input as it is stored here: an array, a list of them for a sequence, or None."""
    from onnx import TensorProto

    if isinstance(v, TensorProto):
        return array_of(v, None)
    if isinstance(v, list):
        return [_array(item) for item in v]
    return None if v is None else stored(np.asarray(v))


def _small(v: Any) -> bool:
    return isinstance(v, np.ndarray) and v.size <= _FEW


def _stored(a: Any, elem: int) -> Any:
    return a if elem == STRING else a.astype(np.int8 if elem in (22, 26) else np.uint8, copy=False)


def _narrow(a: Any, elem: int) -> Any:
    """An array in the element type that the model says it has."""
    kind = numpy_type(elem)
    return a.view(kind) if elem in (17, 18, 19, 20, 23, 24) else a.astype(kind)


class TilewrightBackend(Backend):  # type: ignore[misc]
    """The backend as a class, for `onnx.backend.test.BackendTest`."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> TilewrightRep:
        if not cls.supports_device(device):
            raise ValueError(f"device {device!r} is not supported; CPU is")
        return TilewrightRep(model, device)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **options: Any) -> Any:
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **options: Any,
    ) -> Any:
        """One node alone, its inputs given as arrays."""
        from onnx import defs, helper

        arrays = [np.asarray(v) for v in inputs]
        names = [n for n in node.input if n]
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays, strict=True)
        ]
        outs = [helper.make_tensor_value_info(n, 1, None) for n in node.output if n]
        version = options.get("opset_version", defs.onnx_opset_version())
        graph = helper.make_graph([node], node.op_type, infos, outs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return cls.run_model(model, arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return str(device).upper().partition(":")[0] == "CPU"


prepare = TilewrightBackend.prepare
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
