"""Weights of dense layers that are transposed, stored transposed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...homes import home_of
from ..analysis import search_fc_transpose
from ..transform import SimplifyFCTranspose
from .utils import _run_opt_pass


def convert(func: Any, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The function and its parameters, with `w.T` for a weight `w` that was transposed."""
    names = [name for name in search_fc_transpose(func) if name in params]
    for name in names:
        turned = np.ascontiguousarray(params.pop(name).numpy().T)
        params[f"{name}.T"] = home_of("arrays").array(turned)
    return _run_opt_pass(func, SimplifyFCTranspose(names)), params
