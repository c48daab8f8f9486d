"""The ONNX graph of a quantized network: which tensors are quantized, and the nodes that say so.

x ──▶ Conv ──▶ Relu ──▶ y     ->     x ──▶ Q ──▶ DQ ──▶ Conv ──▶ Relu ──▶ y
                                               w₈ ──▶ DQ ──┘       Q: QuantizeLinear, DQ: DequantizeLinear
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..runtime.errors import ArgumentValueError

PRODUCTS: Final = ("Conv", "Gemm", "MatMul")
# Operators that move or select elements: their result has the scale of their input.
MOVES: Final = frozenset(
    "MaxPool Reshape Flatten Transpose Squeeze Unsqueeze Slice Identity Dropout DepthToSpace SpaceToDepth "
    "Concat".split()
)
OPSET: Final = 13  # the first one with a scale for each channel


@dataclass(frozen=True, slots=True)
class Scale:
    """real = (integer - zero) * scale, for integers of the type `dtype`."""

    scale: Any
    zero: Any
    dtype: str

    @staticmethod
    def of_range(low: float, high: float, dtype: str) -> Scale:
        """For activations: uint8 takes the range as it is, int8 is symmetric around 0. Zero is exact in both."""
        low, high = min(low, 0.0), max(high, 0.0)
        if dtype == "int8":
            scale = max(-low, high) / 127 or 1.0
            return Scale(np.float32(scale), np.int8(0), dtype)
        scale = (high - low) / 255 or 1.0
        return Scale(np.float32(scale), np.uint8(np.clip(np.round(-low / scale), 0, 255)), dtype)

    @staticmethod
    def of_weight(weight: Any, axis: int | None) -> Scale:
        """For weights: int8, symmetric, one scale for each index of an axis, or one for all."""
        axes = tuple(d for d in range(weight.ndim) if d != axis)
        largest = np.abs(weight).max(axis=axes if axis is not None else None, initial=0.0)
        scale = np.asarray(np.where(largest > 0, largest / 127, 1.0), np.float32)
        return Scale(scale, np.zeros(scale.shape, np.int8), "int8")

    def quantized(self, x: Any, axis: int | None = None) -> Any:
        shape = [1] * x.ndim
        if axis is not None and self.scale.ndim:
            shape[axis] = -1
        info = np.iinfo(self.dtype)
        steps = np.round(x / self.scale.reshape(shape)) + self.zero.reshape(shape).astype(np.float64)
        return np.clip(steps, info.min, info.max).astype(self.dtype)


@dataclass
class Graph:
    """An ONNX graph with its constants, and who makes and reads each tensor."""

    model: Any
    constants: dict[str, Any] = field(default_factory=dict)
    maker: dict[str, Any] = field(default_factory=dict)
    readers: dict[str, list[Any]] = field(default_factory=dict)

    @staticmethod
    def of(model: Any) -> Graph:
        from onnx import numpy_helper

        made = Graph(model)
        made.constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        for n in model.graph.node:
            if n.op_type == "Constant" and n.attribute and n.attribute[0].name == "value":
                made.constants[n.output[0]] = numpy_helper.to_array(n.attribute[0].t)
        made.index()
        return made

    def index(self) -> None:
        nodes = self.model.graph.node
        self.maker = {o: n for n in nodes for o in n.output}
        self.readers = {}
        for n in nodes:
            for name in n.input:
                self.readers.setdefault(name, []).append(n)

    @property
    def outputs(self) -> set[str]:
        return {o.name for o in self.model.graph.output}

    def weight_of(self, node: Any) -> Any:
        """The constant weight of a product, if it has one."""
        found = self.constants.get(node.input[1])
        return found if found is not None and found.dtype == np.float32 else None


def prepared(model: Any) -> Graph:
    """A copy of a model with the opset that quantization needs, and batch norms folded into convolutions."""
    import onnx
    from onnx import version_converter

    made = onnx.ModelProto()
    made.CopyFrom(model)
    version = next((o.version for o in made.opset_import if o.domain in ("", "ai.onnx")), 0)
    if version < OPSET:
        known = {i.name for i in made.graph.input}
        for i in made.graph.initializer:  # the converter takes a constant for undefined that is no input
            if i.name not in known:
                made.graph.input.append(onnx.helper.make_tensor_value_info(i.name, i.data_type, list(i.dims)))
        try:
            made = version_converter.convert_version(made, OPSET)
        except (RuntimeError, ValueError) as why:
            raise ArgumentValueError(
                f"quantize: the model has opset {version}, and scales for each channel need {OPSET}; it cannot be "
                f"converted ({why}): export it again with opset_version={OPSET} or later"
            ) from None
    stored = {i.name for i in made.graph.initializer}
    inputs = [i for i in made.graph.input if i.name not in stored]
    del made.graph.input[:]
    made.graph.input.extend(inputs)
    graph = Graph.of(made)
    _name_nodes(graph)
    _fold_norms(graph)
    return graph


def _name_nodes(graph: Graph) -> None:
    """Give each node a name of its own."""
    taken: set[str] = set()
    for i, n in enumerate(graph.model.graph.node):
        n.name = n.name or f"{n.op_type}_{i}"
        while n.name in taken:
            n.name += "_"
        taken.add(n.name)


def _fold_norms(graph: Graph) -> None:
    """Fold each batch norm that follows a convolution alone into its weight and bias."""
    nodes = graph.model.graph.node
    for norm in [n for n in nodes if n.op_type == "BatchNormalization"]:
        conv = graph.maker.get(norm.input[0])
        if conv is None or conv.op_type != "Conv" or graph.weight_of(conv) is None:
            continue
        if len(graph.readers[conv.output[0]]) != 1 or conv.output[0] in graph.outputs:
            continue
        numbers = [graph.constants.get(name) for name in norm.input[1:5]]
        bias = graph.constants.get(conv.input[2]) if len(conv.input) > 2 else np.float32(0)
        if any(x is None for x in (*numbers, bias)):
            continue
        gamma, beta, mean, variance = map(np.asarray, numbers)
        epsilon = next((a.f for a in norm.attribute if a.name == "epsilon"), 1e-5)
        by = gamma / np.sqrt(variance + epsilon)
        weight = graph.weight_of(conv)
        names = [f"{conv.name}.folded_weight", f"{conv.name}.folded_bias"]
        stored_constant(
            graph, names[0], (weight * by.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.float32)
        )
        stored_constant(graph, names[1], ((np.asarray(bias) - mean) * by + beta).astype(np.float32))
        del conv.input[1:]
        conv.input.extend(names)
        conv.output[0] = norm.output[0]
        nodes.remove(norm)
        graph.index()


def stored_constant(graph: Graph, name: str, value: Any) -> str:
    from onnx import numpy_helper

    if name not in graph.constants:
        graph.constants[name] = value
        graph.model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


# ---------------------------------------------------------------------------- what is quantized
@dataclass
class Plan:
    """The products that compute with integers, and the tensors that are quantized, in groups with one scale each."""

    products: dict[str, Any]  # nodes by name
    additions: dict[str, Any]
    group: dict[str, str]  # of each quantized tensor

    @property
    def tensors(self) -> list[str]:
        return list(self.group)


def planned(graph: Graph, skip: Container[str]) -> Plan:
    """Products with constant weights, products of two activations, and additions after convolutions; without those
    whose name or operator is in `skip`."""
    nodes = [n for n in graph.model.graph.node if n.name not in skip and n.op_type not in skip]
    products = {n.name: n for n in nodes if _is_product(graph, n)}
    plan = Plan(products, {}, {})
    for n in products.values():
        for name in n.input[:2]:
            if name not in graph.constants:
                _add(graph, plan, name, name)
    for n in nodes:
        if n.op_type == "Add" and any(_after_conv(graph, name, products) for name in n.input):
            plan.additions[n.name] = n
            _add_operands(graph, plan, n, products)
    return plan


def _is_product(graph: Graph, n: Any) -> bool:
    if n.op_type not in PRODUCTS or n.domain not in ("", "ai.onnx"):
        return False
    if n.op_type == "MatMul":
        return n.input[1] not in graph.constants or graph.weight_of(n) is not None
    plain = n.op_type == "Conv" or all(a.name not in ("alpha", "beta") or a.f == 1.0 for a in n.attribute)
    return plain and graph.weight_of(n) is not None and n.input[0] not in graph.constants


def _after_conv(graph: Graph, name: str, products: Container[str]) -> bool:
    maker = graph.maker.get(name)
    return maker is not None and maker.op_type == "Conv" and maker.name in products


def _add_operands(graph: Graph, plan: Plan, n: Any, products: Container[str]) -> None:
    """Quantize the operands of a residual addition, except the one that its convolution adds to while the sums are in
    registers."""
    order = {m.name: i for i, m in enumerate(graph.model.graph.node)}
    own = [
        name
        for name in n.input
        if _after_conv(graph, name, products) and len(graph.readers[name]) == 1 and name not in graph.outputs
    ]
    last = max(own, key=lambda name: order[graph.maker[name].name], default=None)
    for name in n.input:
        if name != last and name not in graph.constants:
            _add(graph, plan, name, name)


def _add(graph: Graph, plan: Plan, name: str, group: str) -> None:
    """Quantize a tensor, and what it is moved from, with the same scale."""
    if name in plan.group:
        for other, at in plan.group.items():
            plan.group[other] = plan.group[name] if at == group else at
        return
    plan.group[name] = group
    maker = graph.maker.get(name)
    if maker is None or maker.op_type not in MOVES or maker.domain not in ("", "ai.onnx"):
        return
    for source in maker.input if maker.op_type == "Concat" else maker.input[:1]:
        if source and source not in graph.constants:
            _add(graph, plan, source, group)


# ---------------------------------------------------------------------------- the quantized graph
def with_outputs(model: Any, names: Iterable[str]) -> Any:
    """A copy of a model whose results are these tensors."""
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.output[:]
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return made


def quantized(graph: Graph, plan: Plan, scales: Mapping[str, Scale], per_channel: bool) -> Any:
    """The model with quantized tensors: every reader in the plan takes them, and all that only move them."""
    made: list[Any] = []
    for name in {i.name for i in graph.model.graph.input} & plan.group.keys():
        made += _conversions(graph, name, scales[plan.group[name]])
    for n in graph.model.graph.node:
        moved = n.op_type in MOVES and n.output[0] in plan.group
        new = type(n)()
        new.CopyFrom(n)
        if n.name in plan.products or n.name in plan.additions or moved:
            for i, name in enumerate(n.input):
                if name in plan.group:
                    new.input[i] = f"{name}.dequantized"
        if n.name in plan.products:
            made += _weights(graph, new, n, plan, scales, per_channel)
        made.append(new)
        for name in n.output:
            if name in plan.group:
                made += _conversions(graph, name, scales[plan.group[name]])
    return finished(graph, made)


def finished(graph: Graph, nodes: Iterable[Any]) -> Any:
    """The model with other nodes, and the constants that they use."""
    from onnx import helper

    whole = graph.model.graph
    used = {name for n in nodes for name in n.input} | graph.outputs
    made = helper.make_graph(
        list(nodes), whole.name, whole.input, whole.output, [i for i in whole.initializer if i.name in used]
    )
    version = max(graph.model.ir_version, 7)
    return helper.make_model(
        made, opset_imports=graph.model.opset_import, ir_version=version, producer_name="tilewright"
    )


def _conversions(graph: Graph, name: str, at: Scale) -> list[Any]:
    from onnx import helper

    scale, zero = (
        stored_constant(graph, f"{name}.scale", at.scale),
        stored_constant(graph, f"{name}.zero", at.zero),
    )
    return [
        helper.make_node(
            "QuantizeLinear", [name, scale, zero], [f"{name}.quantized"], name=f"{name}.QuantizeLinear"
        ),
        helper.make_node(
            "DequantizeLinear",
            [f"{name}.quantized", scale, zero],
            [f"{name}.dequantized"],
            name=f"{name}.DequantizeLinear",
        ),
    ]


def _weights(
    graph: Graph, new: Any, n: Any, plan: Plan, scales: Mapping[str, Scale], per_channel: bool
) -> list[Any]:
    """Give a product its weight and bias as integers."""
    weight = graph.weight_of(n)
    if weight is None:
        return []
    axis = output_axis(n, weight) if per_channel else None
    at, name = Scale.of_weight(weight, axis), f"{n.input[1]}.{'each' if axis is None else axis}"
    made = [_stored(graph, name, at.quantized(weight, axis), at, axis)]
    new.input[1] = f"{name}.dequantized"
    bias = graph.constants.get(n.input[2]) if len(n.input) > 2 and n.input[2] else None
    if bias is not None and bias.ndim == 1 and bias.dtype == np.float32:
        # the scale of the sums, so that the bias is added to them
        by = np.asarray(scales[plan.group[n.input[0]]].scale * at.scale, np.float32)
        by = np.broadcast_to(by, bias.shape).copy() if by.ndim else by
        steps = np.clip(np.round(bias / by.astype(np.float64)), -(2**31), 2**31 - 1).astype(np.int32)
        name = f"{n.name}.bias"
        made.append(
            _stored(
                graph, name, steps, Scale(by, np.zeros(by.shape, np.int32), "int32"), 0 if by.ndim else None
            )
        )
        new.input[2] = f"{name}.dequantized"
    return [m for m in made if m is not None]


def output_axis(n: Any, weight: Any) -> int:
    """The axis of a weight along which the outputs of a product are."""
    if n.op_type == "Conv":
        return 0
    turned = any(a.name == "transB" and a.i for a in n.attribute)
    return 0 if turned else int(weight.ndim - 1)


def _stored(graph: Graph, name: str, values: Any, at: Scale, axis: int | None) -> Any:
    """A constant of integers with the node that makes floats of it; None if it is there."""
    from onnx import helper

    if f"{name}.quantized" in graph.constants:
        return None
    names = [
        stored_constant(graph, f"{name}.{what}", value)
        for what, value in (("quantized", values), ("scale", at.scale), ("zero", at.zero))
    ]
    made = helper.make_node(
        "DequantizeLinear", names, [f"{name}.dequantized"], name=f"{name}.DequantizeLinear"
    )
    if axis is not None:
        made.attribute.append(helper.make_attribute("axis", axis))
    return made


def dynamically_quantized(graph: Graph, plan: Plan, per_channel: bool) -> Any:
    """The model whose products with constant weights quantize their data when they run."""
    from onnx import helper

    made: list[Any] = []
    products = {
        name for name, n in plan.products.items() if n.op_type != "Conv" and graph.weight_of(n) is not None
    }
    quantized_data: set[str] = set()
    for n in graph.model.graph.node:
        turned_data = any(a.name == "transA" and a.i for a in n.attribute)
        if n.name not in products or turned_data:
            made.append(n)
            continue
        weight = graph.weight_of(n)
        if any(a.name == "transB" and a.i for a in n.attribute):
            weight = weight.T.copy()
        axis = weight.ndim - 1 if per_channel else None
        at, x, y = Scale.of_weight(weight, axis), n.input[0], n.output[0]
        name = f"{n.name}.weight"
        w = stored_constant(graph, f"{name}.quantized", at.quantized(weight, axis))
        scale = stored_constant(graph, f"{name}.scale", at.scale)
        parts = [f"{x}.dynamic", f"{x}.dynamic_scale", f"{x}.dynamic_zero"]
        if x not in quantized_data:
            quantized_data.add(x)
            made.append(
                helper.make_node("DynamicQuantizeLinear", [x], parts, name=f"{x}.DynamicQuantizeLinear")
            )
        has_bias = len(n.input) > 2 and bool(n.input[2])
        last = f"{y}.product" if has_bias else y
        made += [
            helper.make_node(
                "MatMulInteger", [parts[0], w, parts[2]], [f"{y}.sums"], name=f"{n.name}.MatMulInteger"
            ),
            helper.make_node("Cast", [f"{y}.sums"], [f"{y}.floats"], name=f"{n.name}.Cast", to=1),
            helper.make_node("Mul", [parts[1], scale], [f"{y}.scale"], name=f"{n.name}.Scale"),
            helper.make_node("Mul", [f"{y}.floats", f"{y}.scale"], [last], name=f"{n.name}.Mul"),
        ]
        if has_bias:
            made.append(helper.make_node("Add", [last, n.input[2]], [y], name=f"{n.name}.Add"))
    return finished(graph, made)
