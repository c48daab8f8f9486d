"""Decision trees: the leaf of each tree that a row of features ends in."""

from __future__ import annotations

from typing import Any

from .. import te
from ..ir import ops
from ..ir.dtype import INT32
from ..tir import ir_builder
from .utils import equal_const_int, extern, fail, injective, shape_text, tensor_arg

__all__ = ["tree_leaves"]


def tree_leaves(
    data: te.Tensor, roots: te.Tensor, features: te.Tensor, thresholds: te.Tensor, children: te.Tensor
) -> te.Tensor:
    """The leaf in which each row of `data` ends in each tree: (rows, trees) of int32.

    Node i goes on with children[i, 0] if data[row, features[i]] <= thresholds[i], with children[i, 2] if that is NaN,
    else with children[i, 1]. A node whose feature is negative is leaf number children[i, 0].
    """
    what = "tree_leaves"
    x, first, column, bound, after = (
        tensor_arg(what, name, t)
        for name, t in zip(
            ("data", "roots", "features", "thresholds", "children"),
            (data, roots, features, thresholds, children),
            strict=True,
        )
    )
    if x.ndim != 2 or first.ndim != 1 or after.ndim != 2:
        raise fail(
            what,
            f"data is {shape_text(x.shape)}, roots {shape_text(first.shape)}, children {shape_text(after.shape)}: "
            "they have 2, 1 and 2 dimensions",
        )
    rows, trees = x.shape[0], first.shape[0]

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        values, start, feature, limit, then = (ib.buffer_ptr(b, b.shape) for b in ins)
        leaf = ib.buffer_ptr(outs[0], outs[0].shape)
        with ib.for_range(0, rows, "row", kind="parallel") as row, ib.for_range(0, trees, "tree") as tree:
            at = ib.allocate("int32", (1,), "at", scope="local")
            at[0] = start[tree]
            with ib.while_loop(feature[at[0]] >= 0):
                node = ib.let("node", at[0])
                value = ib.let("value", values[row, feature[node]])
                known = ops.select(value <= limit[node], then[node, 0], then[node, 1])
                at[0] = ops.select(ops.isnan(value), then[node, 2], known)
            leaf[row, tree] = then[at[0], 0]
        return ib.get()

    if equal_const_int(rows, 0) or equal_const_int(trees, 0):
        return injective(what, (rows, trees), lambda *i: te.const(0, "int32"))
    return extern(what, [(rows, trees)], [x, first, column, bound, after], build, [str(INT32)])[0]
