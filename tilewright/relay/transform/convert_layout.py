"""ConvertLayout: convolutions and their neighbours in another layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.errors import TVMError
from ..expr import Call, Function
from ..op import layouts as names
from ..op.registry import get
from .layout_rules import rule_of
from .layouts import LayoutRewriter, place_of_weight
from .rewriting import name_of, static_shape, type_of, typed_pass


def convert_layout(func: Function, desired_layouts: Mapping[str, Sequence[str]]) -> Function:
    """Convert operators to the given layouts, and the operators between them too.

        ConvertLayout({"nn.conv2d": ["NHWC", "default"]})

        nn.relu(nn.conv2d(%x, %w))     ->     %0 = layout_transform(%x, "NCHW", "NHWC");
                                              %1 = layout_transform(%w, "OIHW", "HWIO");
                                              %2 = nn.relu(nn.conv2d(%0, %1, data_layout="NHWC", …));
                                              layout_transform(%2, "NHWC", "NCHW")

    The second name is the layout of the kernel; "default" is the one that matches the first. Layout transforms remain
    only where two operators disagree. An operator whose channels NCHW16c does not divide is unchanged. The attribute
    `FTVMConvertOpLayout` of an operator, a function of (attrs, inputs, types of the inputs, desired layouts), returns
    another call instead, or None.
    """
    for name, wanted in desired_layouts.items():
        if isinstance(wanted, str) or not wanted:
            raise TVMError(f"ConvertLayout: the layouts of {name!r} are a list such as ['NHWC', 'default']")
        get(name)
    walk = LayoutRewriter(lambda at, plain: convert_call(at, plain, desired_layouts), rule_of)
    return walk.visit(func)


def default_kernel_layout(op_name: str, data_layout: str) -> str:
    """The kernel layout that matches a data layout."""
    spatial = "".join(v for v in names.letters(data_layout) if v not in "NC")
    inner = names.blocks(data_layout).get("C")
    transposed = "transpose" in op_name
    if inner:
        return f"{'IO' if transposed else 'OI'}{spatial}{inner}i{inner}o"
    if data_layout.endswith(("C", "N")):  # NHWC, HWCN
        return f"{spatial}{'OI' if transposed else 'IO'}"
    return f"{'IO' if transposed else 'OI'}{spatial}"


def convert_call(at: Call, plain: Call, desired: Mapping[str, Sequence[str]]) -> Call | None:
    """A call in the desired layouts of its operator; None if it has them already, or cannot have them."""
    wanted = desired.get(name_of(at))
    if wanted is None:
        return None
    own: Any = at.op.get_attr("FTVMConvertOpLayout")
    if own is not None:
        made = own(at.attrs, list(plain.args), [type_of(a) for a in at.args], list(wanted))
        same = isinstance(made, Call) and made.op is at.op and made.attrs == at.attrs
        return None if made is None or same else made
    attrs = at.attrs
    if "layout" in attrs:
        if attrs.layout == wanted[0] or not fits_layout(at.args[0], attrs.layout, wanted[0]):
            return None
        return Call(at.op, plain.args, attrs.replace(layout=wanted[0]))
    if "data_layout" not in attrs:
        raise TVMError(f"ConvertLayout: {name_of(at)} has no layout to choose")
    data = attrs.data_layout if wanted[0] == "default" else wanted[0]
    kernel = wanted[1] if len(wanted) > 1 else "default"
    if kernel == "default":
        kernel = default_kernel_layout(name_of(at), data)
    if attrs.groups != 1:
        kernel = _grouped(kernel)
    changes: dict[str, Any] = {"data_layout": data, "kernel_layout": kernel, "out_layout": ""}
    if attrs.data_layout == data and attrs.kernel_layout == kernel:
        return None
    if not fits_layout(at.args[0], attrs.data_layout, data) or not fits_layout(
        at.args[place_of_weight(at)], attrs.kernel_layout, kernel
    ):
        return None
    out = attrs.out_layout or attrs.data_layout
    if not fits_layout(at, out, data):
        return None
    return Call(at.op, plain.args, attrs.replace(**changes))


def _grouped(kernel: str) -> str:
    """Grouped convolutions cannot have blocked input channels: only the output channels stay blocked."""
    return "".join(f"{size or ''}{v}" for v, size in names.axes(kernel) if v != "i")


def fits_layout(expr: Any, old: str, new: str) -> bool:
    """Whether a tensor fits a layout without padding."""
    inner = names.blocks(new)
    shape: Any = static_shape(expr)
    if not inner:
        return set(names.letters(old)) == set(names.letters(new))
    if shape is None:
        return False
    sizes = names.sizes(old, shape)
    return all(v in sizes and sizes[v] % size == 0 for v, size in inner.items())


ConvertLayout = typed_pass(convert_layout, name="ConvertLayout", opt_level=3)
