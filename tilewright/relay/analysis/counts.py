"""Counts of operators and operations in a model."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, Final

from ...ir.errors import TVMError
from ...ir.module import IRModule
from ..expr import Call, Tuple, TupleGetItem
from ..visitor import below
from .walks import post_order

__all__ = ["count_layers", "get_total_mac_number", "list_fake_quantized_op_freqs"]


def _name(at: Any) -> str:
    return str(getattr(at.op, "name", "")) if isinstance(at, Call) else ""


def count_layers(func: Any, valid_ops: Iterable[str]) -> int:
    """The most calls of some operators, such as ["nn.conv2d"], on one path through a graph, or `main` of a module."""
    func = func["main"] if isinstance(func, IRModule) else func
    wanted = frozenset(valid_ops)
    depth: dict[Any, int] = {}
    most = 0
    for at in post_order(func):
        made = max((depth.get(b, 0) for b in below(at)), default=0) + (_name(at) in wanted)
        depth[at] = made
        most = max(most, made)
    return most


# For each product how many elements of which operand make one element of the result.
_PRODUCTS: Final = ("nn.dense", "nn.matmul", "nn.batch_matmul")


def get_total_mac_number(expr: Any) -> int:
    """The multiply-accumulates of the convolutions and products of a graph. Needs: types, static shapes."""
    expr = expr["main"] if isinstance(expr, IRModule) else expr
    return sum(_macs(at) for at in post_order(expr) if isinstance(at, Call))


def _macs(at: Call) -> int:
    name = _name(at)
    convolution = name.startswith(("nn.conv", "nn.contrib_conv")) and "weight_transform" not in name
    if not convolution and name not in _PRODUCTS:
        return 0
    for part in (at, *at.args):
        if part._checked_type is None:
            raise TVMError(
                "get_total_mac_number: the expression has no types; run relay.transform.InferType()"
            )
        if not all(isinstance(d, int) for d in part.checked_type.shape):
            raise TVMError(f"get_total_mac_number: {name} has sizes that are not known: {part.checked_type}")
    data, weight, out = (tuple(p.checked_type.shape) for p in (at.args[0], at.args[1], at))
    if not convolution:
        turned = bool(at.attrs.get("transpose_a"))
        return prod(out) * int(data[-2 if turned else -1])
    letters = [v for v in at.attrs.kernel_layout if v.isalpha()]  # OIHW16i16o: O I H W i o
    if "transpose" in name:  # each element of the data meets the weights of its channel
        return prod(data) * prod(weight) // prod(n for v, n in zip(letters, weight, strict=True) if v in "Ii")
    return prod(out) * prod(weight) // prod(n for v, n in zip(letters, weight, strict=True) if v in "Oo")


def list_fake_quantized_op_freqs(mod: IRModule) -> dict[str, int]:
    """The number of calls of each operator between dequantizations and a quantization."""
    out: dict[str, int] = {}
    for func in mod.functions.values():
        inside: dict[Any, None] = {}
        for at in post_order(func):
            if _name(at) == "qnn.quantize":
                inside.update(dict.fromkeys(_region(at.args[0])))
        for at in inside:
            out[_name(at)] = out.get(_name(at), 0) + 1
    return out


def _region(root: Any) -> list[Call]:
    """The calls up to dequantizations; none if a path ends at another value that is not a constant."""
    found: list[Call] = []
    seen: set[Any] = set()
    stack = [root]
    ends = False
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        if _name(at) == "qnn.dequantize":
            ends = True
        elif isinstance(at, (Call, Tuple, TupleGetItem)):
            if isinstance(at, Call):
                found.append(at)
                stack += at.args
            else:
                stack += below(at)
        elif type(at).__name__ != "Constant":
            return []
    return found if ends else []
