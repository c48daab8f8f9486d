"""Shape functions of programs: tensor expressions that compute the sizes of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.errors import TVMError
from ...runtime.ndarray import array, empty
from ...runtime.shape_functions import SHAPE_FUNCTIONS, Shape
from ..ty import TensorType, tensor_fields
from .computes import te
from .registry import RelayOp


def set_shape_function(op: RelayOp, data_dependent: Sequence[bool], work: Callable[..., Any]) -> None:
    """Let `work(attrs, inputs, out_ndims)` compute the sizes of the results when a program runs.

    `inputs` are tensors: the argument itself where the result depends on its values, else its shape. The results are
    tensors too, one for each result, with its sizes.
    """

    def shapes(attrs: Any, values: list[Any]) -> list[Shape]:
        flags = list(data_dependent) * (len(values) if len(data_dependent) == 1 else 1)
        if len(flags) != len(values):
            raise TVMError(
                f"register_shape_func({op.name!r}): {len(flags)} flags of data_dependent for {len(values)} arguments"
            )
        kinds = [TensorType(v.shape, str(v.dtype)) for v in values]
        ndims = [len(t.shape) for t in tensor_fields(op.infer(kinds, attrs))]
        given = [v if flag else np.asarray(v.shape, "int64") for v, flag in zip(values, flags, strict=True)]
        return _evaluated(work, attrs, [np.asarray(g) for g in given], ndims)

    SHAPE_FUNCTIONS[op.name] = shapes


def _evaluated(work: Callable[..., Any], attrs: Any, given: list[Any], ndims: list[int]) -> list[Shape]:
    from ...compiler.build import build

    places = [te.placeholder(g.shape, str(g.dtype), name=f"in{i}") for i, g in enumerate(given)]
    made = list(work(attrs, places, ndims))
    results = [empty(tuple(int(d) for d in t.shape), str(t.dtype)) for t in made]
    build(te.create_prim_func([*places, *made]), target="llvm")(*map(array, given), *results)
    return [tuple(int(d) for d in r.numpy().reshape(-1)) for r in results]
