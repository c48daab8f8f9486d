"""AlterOpLayout: convolutions in the best layout for the target."""

from __future__ import annotations

from typing import Any, Final

from ...ir.op import graph_operators
from .. import op as R
from ..expr import Call, Function
from .convert_layout import fits_layout
from .layout_rules import rule_of
from .layouts import LayoutRewriter
from .rewriting import is_call, shape_of, static_shape, type_of, typed_pass

_RULE: Final = "FTVMAlterOpLayout"
BLOCKS: Final = (16, 8, 4)  # lanes of a vector, the widest first


def alter_op_layout(func: Function, pack: bool = True) -> Function:
    """Convert operators to the best layouts for the target.

    The attribute `FTVMAlterOpLayout` of an operator is a function of (attrs, inputs, types of the inputs, type of the
    result) that returns another call, or None. `nn.conv2d` without one is packed (`pack`; in relay.build from level 4
    on): channels in blocks of a vector's width, as NCHW16c with a kernel in OIHW16i16o. Weights that are constants are
    packed by FoldConstant afterwards.
    """
    if not pack and all(op.get_attr(_RULE) is None for op in graph_operators.values()):
        return func
    return LayoutRewriter(lambda at, plain: _altered(at, plain, pack), rule_of).visit(func)


def _altered(at: Call, plain: Call, pack: bool) -> Call | None:
    alter: Any = at.op.get_attr(_RULE) if hasattr(at.op, "get_attr") else None
    if alter is None:
        return pack_conv2d(at, plain) if pack and is_call(at, R.nn.conv2d) else None
    made = alter(at.attrs, list(plain.args), [type_of(a) for a in at.args], type_of(at))
    if isinstance(made, Call) and made.op is at.op and made.attrs == at.attrs:
        same = len(made.args) == len(plain.args) and all(
            a is b for a, b in zip(made.args, plain.args, strict=True)
        )
        return None if same else made
    return made


def pack_conv2d(at: Call, plain: Call) -> Call | None:
    """The convolution with its channels in blocks, if the block size divides them."""
    attrs = at.attrs
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW" or attrs.out_layout not in ("", "NCHW"):
        return None
    if static_shape(at) is None or static_shape(at.args[0]) is None or not type_of(at).dtype.is_float:
        return None
    inputs, outputs = shape_of(at.args[0])[1], shape_of(at)[1]
    depthwise = attrs.groups == inputs == outputs and attrs.groups > 1
    if attrs.groups != 1 and not depthwise:
        return None
    for block in BLOCKS:
        kernel = f"OIHW{block}o" if depthwise else f"OIHW{block}i{block}o"
        data = f"NCHW{block}c"
        if inputs % block == 0 and outputs % block == 0 and fits_layout(at, "NCHW", data):
            changed = attrs.replace(data_layout=data, kernel_layout=kernel, out_layout=data)
            return Call(at.op, plain.args, changed)
    return None


AlterOpLayout = typed_pass(alter_op_layout, name="AlterOpLayout", opt_level=3)
