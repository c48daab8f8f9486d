"""Workloads: a network with random parameters, the same for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.module import IRModule
from ...runtime.ndarray import NDArray, array
from ..expr import Function, Var
from ..transform.infer_type import infer_module

INTEGERS, BIASES = 8, 1000  # weights and biases that are integers are below


def create_workload(
    net: Function, initializer: Any = None, seed: int = 0
) -> tuple[IRModule, dict[str, NDArray]]:
    """A module around a network, and values for all its parameters but `data`.

    Weights are normal with a variance that keeps activations in range; variances of batch_norm are near 1.
    """
    mod = infer_module(IRModule.from_expr(net))
    rng = np.random.default_rng(seed)
    params: dict[str, NDArray] = {}
    for v in mod["main"].params:
        if v.name_hint == "data":
            continue
        if initializer is None:
            values = _values(rng, v)
        else:
            values = np.zeros(v.checked_type.concrete_shape, str(v.checked_type.dtype))
            initializer(v.name_hint, values)
        params[v.name_hint] = array(values)
    return mod, params


def _values(rng: np.random.Generator, v: Var) -> np.ndarray[Any, Any]:
    shape, dtype = v.checked_type.concrete_shape, str(v.checked_type.dtype)
    name = v.name_hint
    if name.endswith("_var"):
        made = rng.uniform(0.5, 1.5, shape)
    elif name.endswith("_gamma"):
        made = rng.uniform(0.8, 1.2, shape)
    elif not dtype.startswith("float") and name.endswith("_bias"):
        made = rng.integers(-BIASES, BIASES, shape)
    elif name.endswith(("_beta", "_mean", "_bias")):
        made = rng.normal(0, 0.05, shape)
    elif dtype.startswith("float"):
        fan_in = max(
            1, int(np.prod(shape[1:], dtype=np.int64)) if len(shape) > 1 else shape[0] if shape else 1
        )
        made = rng.normal(0, (2.0 / fan_in) ** 0.5, shape)
    else:
        made = rng.integers(-INTEGERS, INTEGERS, shape)
    return made.astype(dtype)
