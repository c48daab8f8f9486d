"""The code generator `dnnl`: a function as a list of primitives of oneDNN, which `runtime/dnnl.py` runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.errors import BuildError
from ...runtime.dnnl import dnnl_module
from ...runtime.external import ExternalModule
from ..expr import Call, Constant, Expr, Function, Tuple, Var
from ..visitor import in_order
from .dnnl import BINARY, ELTWISE, PRODUCTS, bias_of


def generate(fn: Function) -> ExternalModule:
    """`relay.ext.dnnl`."""
    name = str(fn.attrs["global_symbol"])
    work = _Nodes(fn, name)
    about = {
        "inputs": len(fn.params),
        "shapes": work.shapes,
        "nodes": work.nodes,
        "outputs": work.outputs(),
    }
    return dnnl_module({name: about}, {name: work.constants})


def _inside(e: Any) -> list[Any]:
    """The operands; the inside of a composite function is read with its call."""
    if isinstance(e, Call):
        return list(e.args)
    return list(e.children()) if isinstance(e, Tuple) else []


class _Nodes:
    """Numbers the values of a function: parameters, constants, then a result for each node."""

    def __init__(self, fn: Function, name: str) -> None:
        self.fn, self.name = fn, name
        self.shapes: list[list[int]] = []
        self.nodes: list[dict[str, Any]] = []
        self.constants: dict[str, Any] = {}
        self.number: dict[Any, int] = {}
        for p in fn.params:
            self.add(p)
        for e in in_order(fn.body, _inside):
            self.visit(e)

    def outputs(self) -> list[int]:
        """The values that are results, each once and made by a node."""
        fields = self.fn.body.fields if isinstance(self.fn.body, Tuple) else (self.fn.body,)
        made = {n["output"] for n in self.nodes}
        found = [self.number[f] for f in fields]
        if len(set(found)) != len(found) or not set(found) <= made:
            raise self.refused("a result that is a parameter, a constant or another result")
        return found

    def add(self, e: Any) -> int:
        self.number[e] = len(self.shapes)
        self.shapes.append(list(e.checked_type.shape))
        return self.number[e]

    def refused(self, what: str) -> BuildError:
        return BuildError(
            f"dnnl: {self.name} has {what}, which oneDNN does not compute here; use partition_for_dnnl"
        )

    def visit(self, e: Expr) -> None:
        if e in self.number or isinstance(e, Tuple):
            return
        if isinstance(e, Constant):
            self.constants[str(self.add(e))] = e.data
        elif not isinstance(e, Call):
            raise self.refused(f"a {type(e).__name__}")
        elif isinstance(e.op, Function):
            self.composite(e)
        else:
            node = self.node(e, [self.number[a] for a in e.args])
            self.nodes.append({**node, "output": self.add(e)})

    def node(self, e: Call, ins: list[int]) -> dict[str, Any]:
        """The primitive of one operator."""
        name, attrs, shape = e.op.name, e.attrs, list(e.checked_type.shape)
        made: dict[str, Any] = {"inputs": ins, "shape": shape, "post": []}
        if name == "nn.conv2d":
            more = {"strides": attrs.strides, "padding": attrs.padding, "dilation": attrs.dilation}
            return {**made, "op": "conv2d", "groups": attrs.groups, "bias": False} | {
                k: list(v) for k, v in more.items()
            }
        if name in ("nn.dense", "nn.batch_matmul"):
            a, b = (False, True) if name == "nn.dense" else (attrs.transpose_a, attrs.transpose_b)
            return {**made, "op": "matmul", "transpose_a": bool(a), "transpose_b": bool(b), "bias": False}
        if name in ELTWISE:
            alpha, beta = eltwise_numbers(e)
            return {**made, "op": "eltwise", "kind": ELTWISE[name], "alpha": alpha, "beta": beta}
        if name in BINARY:
            if self.shapes[ins[0]] != shape:
                made["inputs"] = ins[::-1]
            return {**made, "op": "binary", "kind": name}
        if name == "nn.softmax":
            return {**made, "op": "softmax", "axis": attrs.axis % len(shape)}
        if "pool2d" in name:
            return {**made, "op": "pool2d", **_window(e)}
        raise self.refused(name)

    def composite(self, call: Call) -> None:
        """A product with the operators behind it, as one primitive."""
        fn: Function = call.op
        given: dict[Any, Any] = dict(zip(fn.params, call.args, strict=True))
        order = [e for e in in_order(fn.body, _inside) if isinstance(e, Call)]
        product = order[0]
        if product.op.name not in PRODUCTS:
            raise self.refused(f"a composite function {fn.attrs.get('Composite')!r} without a product")
        node = self.node(product, [self.value(a, given) for a in product.args])
        for e in order[1:]:
            self.behind(node, e, product, given)
        self.nodes.append({**node, "output": self.add(call)})

    def behind(self, node: dict[str, Any], e: Call, product: Call, given: Mapping[Any, Any]) -> None:
        if e.op.name != "add":
            node["post"].append([ELTWISE[e.op.name], *eltwise_numbers(e)])
            return
        bias = bias_of(e, product) if product in e.args else None
        if bias is not None:
            node["bias"] = True
            node["inputs"].append(self.value(bias, given))
            return
        (other,) = [a for a in e.args if not (isinstance(a, Call) and a is not product)]
        node["post"].append(["sum", 1.0, 0.0])
        node["inputs"].append(self.value(other, given))

    def value(self, e: Any, given: Mapping[Any, Any]) -> int:
        """The number of an operand inside of a composite function."""
        if isinstance(e, Var):
            e = given[e]
        self.visit(e)
        return self.number[e]


def eltwise_numbers(e: Call) -> tuple[float, float]:
    """The two numbers of an elementwise operator."""
    if e.op.name == "clip":
        return float(e.attrs.a_min), float(e.attrs.a_max)
    return (float(e.attrs.alpha), 0.0) if e.op.name == "nn.leaky_relu" else (0.0, 0.0)


def _window(e: Call) -> dict[str, Any]:
    attrs, (h, w) = e.attrs, e.args[0].checked_type.shape[2:]
    if e.op.name == "nn.global_avg_pool2d":
        return {"kind": "avg_exclude", "kernel": [h, w], "strides": [1, 1], "padding": [0, 0, 0, 0]}
    kind = "max"
    if e.op.name == "nn.avg_pool2d":
        kind = "avg_include" if attrs.count_include_pad else "avg_exclude"
    return {
        "kind": kind,
        "kernel": list(attrs.pool_size),
        "strides": list(attrs.strides),
        "padding": list(attrs.padding),
    }
