"""Values at the borders of functions for other code generators, which calibrate their number formats with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...homes import home_of
from ...ir.module import GlobalVar, IRModule

__all__ = ["get_calibration_data"]


def get_calibration_data(mod: IRModule, data: Mapping[str, Any]) -> dict[GlobalVar, dict[str, list[Any]]]:
    """The arrays that enter and leave each function with the attribute Compiler, for inputs of the model.

    {@mine_0: {"inputs": [array, …], "outputs": [array, …]}, …}

    This compiler computes the functions, so that no code generator is needed yet.
    """
    found: dict[GlobalVar, dict[str, list[Any]]] = home_of("calibration").calibration_data(mod, data)
    return found
