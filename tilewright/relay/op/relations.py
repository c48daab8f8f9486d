"""Type relations by their classic names, for operators that are registered step by step."""

from __future__ import annotations

from typing import Any, Final

from ...ir.dtype import DataType
from ...ir.errors import near_matches
from ..ty import TensorType
from .registry import Relation
from .shapes import broadcast, need_dtype

_BOOL: Final = DataType("bool")


def _broadcast(types: list[Any], attrs: Any) -> TensorType:
    need_dtype(types[1], types[0].dtype, "the second argument")
    return TensorType(broadcast(types[0].shape, types[1].shape), types[0].dtype)


_RELATIONS: Final[dict[str, Relation]] = {
    "Broadcast": _broadcast,
    "BroadcastComp": lambda types, attrs: TensorType(_broadcast(types, attrs).shape, _BOOL),
    "Identity": lambda types, attrs: types[0],
    "IdentityComp": lambda types, attrs: TensorType(types[0].shape, _BOOL),
}


def by_name(name: str) -> Relation:
    """The relation of that name."""
    found = _RELATIONS.get(name)
    if found is None:
        raise ValueError(
            f"add_type_rel({name!r}): no relation has this name{near_matches(name, _RELATIONS)}; "
            "a relation of your own is its second argument, a function (types, attrs) -> type"
        )
    return found
