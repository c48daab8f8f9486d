"""Operators that check data and return it: `transform/check_data.py` inserts them before its uses."""

from __future__ import annotations

from typing import Any

from ..ty import TensorType
from .attributes import flag, integer, ints, text
from .computes import topi
from .registry import ELEMWISE, register


def _indices_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    sizes = [ins[1].shape[d] for d in attrs.dims] if len(ins) > 1 else attrs.sizes
    return [
        topi.checks.check_indices(
            ins[0], attrs.kind, sizes, attrs.node, attrs.ignored, attrs.columns, ins[1:], attrs.each
        )
    ]


# The indices, if all lie within the sizes, or those of some dimensions of the data where these are not known yet.
check_indices = register(
    "check_indices",
    inputs=("indices", "data?"),
    attrs={
        "kind": text("index"),
        "sizes": ints(()),
        "dims": ints(()),
        "ignored": integer(None),
        "columns": ints(()),
        "node": text(""),
        "each": flag(False),
    },
    rel=lambda types, attrs: types[0],
    compute=_indices_compute,
)


def _each_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    sizes = [ins[1].shape[d] for d in attrs.dims] if len(ins) > 1 else attrs.sizes
    return [topi.checks.check_each(ins[0], attrs.kind, sizes, attrs.node)]


# The same within the kernel that reads the indices: counted from the front, in a type that has room for the sizes.
check_each = register(
    "check_each",
    inputs=("indices", "data?"),
    attrs={"kind": text("index"), "sizes": ints(()), "dims": ints(()), "node": text("")},
    rel=lambda types, attrs: TensorType(types[0].shape, topi.checks.place_type(types[0].dtype, attrs.sizes)),
    compute=_each_compute,
    pattern=ELEMWISE,
)

# The divisor, if no element of it is 0.
check_divisor = register(
    "check_divisor",
    inputs=("divisor",),
    attrs={"node": text("")},
    rel=lambda types, attrs: types[0],
    compute="checks.check_divisor",
    pattern=ELEMWISE,
)
