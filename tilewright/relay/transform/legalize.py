"""Legalize: operators replaced by their own legalization functions."""

from __future__ import annotations

from typing import Any

from ...ir.op import graph_operators
from .. import op as R
from ..expr import Call, Function
from ..op.registry import RelayOp, get
from ..op.spatial import multiplies_channels
from .rewriting import CallRewriter, type_of, typed_pass


def legalize(func: Function, legalize_map_attr_name: str = "FTVMLegalize") -> Function:
    """Replace each call by the result of an attribute of its operator.

        @register_op_attr("nn.dense", "FTVMLegalize")
        def _(attrs, inputs, types): …               # types: of the inputs, and last that of the result

    A function that returns None leaves the call as it is.
    """

    def rule(at: Call) -> Any:
        made = at.op.get_attr(legalize_map_attr_name)(
            at.attrs, list(at.args), [*(type_of(a) for a in at.args), type_of(at)]
        )
        return made if made is not None or at.op not in ours else ours[at.op](at)

    ours = _legal_forms() if legalize_map_attr_name == "FTVMLegalize" else {}
    rules = {
        op: rule
        for op in graph_operators.values()
        if isinstance(op, RelayOp) and op.get_attr(legalize_map_attr_name) is not None
    }
    return CallRewriter({**ours, **rules}).visit(func)


def _legal_forms() -> dict[Any, Any]:
    return {get(f"nn.conv{rank}d"): _one_channel_each for rank in (1, 2, 3)}


def _one_channel_each(at: Call) -> Any:
    """A depthwise convolution whose weight is (channels, 1, …) instead of (inputs, channels from each, …).

    conv2d(x, w: (16, 2, 3, 3), groups=16)   ->   conv2d(x, reshape(w, (32, 1, 3, 3)), groups=16)
    """
    data, weight = (type_of(a) for a in at.args)
    if not multiplies_channels(data, weight, at.attrs):
        return None
    first = at.attrs.kernel_layout.index("OI")
    shape = list(weight.shape)
    shape[first : first + 2] = [shape[first] * shape[first + 1], 1]
    return Call(at.op, [at.args[0], R.reshape(at.args[1], shape)], at.attrs)


Legalize = typed_pass(legalize, name="Legalize", opt_level=0)
