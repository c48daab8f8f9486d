"""Decision trees."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DataType
from ..expr import Call
from ..ty import TensorType, Type
from .registry import Place, Tensor, operator
from .shapes import need_dtype, need_rank

__all__ = ["tree_leaves"]


def _leaves_rel(types: list[Any], attrs: Any) -> Type:
    data, roots, features, thresholds, children = types
    need_rank(data, 2, "data")
    need_rank(children, 2, "children")
    need_dtype(thresholds, data.dtype, "thresholds")
    for kind, name in ((roots, "roots"), (features, "features"), (thresholds, "thresholds")):
        need_rank(kind, 1, name)
    for kind, name in ((roots, "roots"), (features, "features"), (children, "children")):
        need_dtype(kind, DataType("int32"), name)
    return TensorType((data.shape[0], roots.shape[0]), "int32")


@operator(
    "tree_leaves",
    rel=_leaves_rel,
    compute="tree_leaves",
    places=lambda types, attrs: [
        Place(1, "position", 2, (0,)),
        Place(2, "position", 0, (1,), ignored=-1),
        Place(4, "position", 2, (0,)),
    ],
)
def tree_leaves(data: Tensor, roots: Tensor, features: Tensor, thresholds: Tensor, children: Tensor) -> Call:
    """The leaf in which each row of features ends in each tree.

    Node i goes on with children[i, 0] if data[row, features[i]] <= thresholds[i], with children[i, 2] if that is NaN,
    else with children[i, 1]. A node whose feature is -1 is leaf number children[i, 0].
    """
