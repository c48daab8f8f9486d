"""Legalize: operators replaced by their own legalization functions."""

from __future__ import annotations

from typing import Any

from ...ir.op import graph_operators
from ..expr import Call, Function
from ..op.registry import RelayOp
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
        return made

    rules = {
        op: rule
        for op in graph_operators.values()
        if isinstance(op, RelayOp) and op.get_attr(legalize_map_attr_name) is not None
    }
    return CallRewriter(rules).visit(func) if rules else func


Legalize = typed_pass(legalize, name="Legalize", opt_level=1)
