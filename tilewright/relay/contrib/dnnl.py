"""oneDNN (DNNL): the operators and patterns that it takes, and `partition_for_dnnl`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final

from ...ir.module import IRModule
from ...runtime.dnnl_path import INSTALL, find
from ..engines import register_engine
from ..expr import Call
from ..op.registry import RelayOp
from ..ty import TensorType
from .partition import partition_for
from .register import register_pattern_table

ELTWISE: Final = {
    "nn.relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "clip": "clip", "abs": "abs", "sqrt": "sqrt",
    "exp": "exp", "log": "log", "nn.leaky_relu": "relu",
}  # fmt: skip
BINARY: Final = ("add", "multiply")
POST: Final = ("nn.relu", "tanh", "sigmoid", "clip")
PRODUCTS: Final = ("nn.conv2d", "nn.dense")
_OTHERS: Final = (
    "nn.batch_matmul", "nn.softmax", "nn.max_pool2d", "nn.avg_pool2d", "nn.global_avg_pool2d",
)  # fmt: skip


def _known(kind: Any) -> bool:
    return (
        isinstance(kind, TensorType)
        and str(kind.dtype) == "float32"
        and all(isinstance(d, int) and d > 0 for d in kind.shape)
    )


def takes(call: Any) -> bool:
    """Whether oneDNN computes a call: float32 of known sizes, in the layouts NCHW and OIHW."""
    if not all(_known(a.checked_type) for a in call.args) or not _known(call.checked_type):
        return False
    name, attrs, out = call.op.name, call.attrs, call.checked_type.shape
    if name == "nn.conv2d":
        return attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and not attrs.out_layout
    if name == "nn.dense":
        return len(call.args[1].checked_type.shape) == 2 and len(out) >= 2
    if name in BINARY:
        # one side has the shape of the result
        shapes = [a.checked_type.shape for a in call.args]
        return 0 < len(out) <= 5 and any(s == out for s in shapes)
    if "pool" in name:
        plain = attrs.layout == "NCHW" and not attrs.get("ceil_mode", False)
        return plain and all(d == 1 for d in attrs.get("dilation", (1, 1)))
    return 0 < len(out) <= 5


def _op_name(e: Any) -> str:
    return e.op.name if isinstance(e, Call) and isinstance(e.op, RelayOp) else ""


def bias_of(add: Any, product: Any) -> Any:
    """The operand of an addition that is a bias of the product's channels, or None."""
    other = add.args[1] if add.args[0] is product else add.args[0]
    kind, out = other.checked_type, product.checked_type.shape
    if not _known(kind):
        return None
    axis = 1 if _op_name(product) == "nn.conv2d" else len(out) - 1
    full = (*(1 for _ in out[len(kind.shape) :]), *kind.shape)
    wanted = tuple(d if i == axis else 1 for i, d in enumerate(out))
    return other if full == wanted and len(kind.shape) <= len(out) and prod(kind.shape) == out[axis] else None


def _accepted(e: Any) -> bool:
    """Whether a match is what oneDNN does in one step: a product, its bias, another tensor of the same shape added."""
    chain = [e]
    while _op_name(chain[-1]) not in PRODUCTS:
        below = [a for a in chain[-1].args if _op_name(a) in (*PRODUCTS, "add", *POST)]
        if not below:
            return False
        chain.append(below[0])
    product = chain[-1]
    if not takes(product):
        return False
    for at, add in enumerate(c for c in reversed(chain) if _op_name(c) == "add"):
        if at == 0 and bias_of(add, product) is None:
            return False
        if at == 1 and any(a.checked_type != product.checked_type for a in add.args):
            return False
    return True


@register_pattern_table("dnnl")
def pattern_table() -> list[Any]:
    """Products with a bias, a sum and an elementwise operator behind them, the longest first."""
    from ..dataflow_pattern import is_op, wildcard

    def added(x: Any) -> Any:
        return is_op("add")(x, wildcard())

    rows: list[Any] = []
    for op in PRODUCTS:
        name = "dnnl." + op.removeprefix("nn.")
        plain = is_op(op)(wildcard(), wildcard())
        for tail in POST:
            end = tail.removeprefix("nn.")
            if tail == "nn.relu" and op == "nn.conv2d":
                rows.append((f"{name}_bias_sum_{end}", is_op(tail)(added(added(plain))), _accepted))
            rows.append((f"{name}_bias_{end}", is_op(tail)(added(plain)), _accepted))
            rows.append((f"{name}_{end}", is_op(tail)(plain), _accepted))
        rows.append((f"{name}_bias_sum", added(added(plain)), _accepted))
        rows.append((f"{name}_bias", added(plain), _accepted))
    return sorted(rows, key=lambda row: -row[0].count("_"))


def partition_for_dnnl(
    mod: IRModule,
    params: Mapping[str, Any] | None = None,
    alter_layout: bool = True,
    prune_subgraphs: bool = True,
) -> IRModule:
    """Give all that oneDNN takes to it, in as few functions as possible.

    Weights are packed as oneDNN likes them with `alter_layout` and without it. `prune_subgraphs` leaves functions
    without a convolution or a product to this compiler.
    """
    return partition_for("dnnl", mod, params, (*PRODUCTS, "nn.batch_matmul") if prune_subgraphs else ())


register_engine(
    "dnnl",
    f"{__name__}_codegen",
    [*PRODUCTS, *_OTHERS, *ELTWISE, *BINARY],
    takes,
    "" if find() else f"{INSTALL}, which has oneDNN",
)
