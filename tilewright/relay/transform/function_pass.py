"""The decorator that turns a function into a pass over graph functions."""

from __future__ import annotations

from typing import Final

from ...ir.transform import function_pass_for
from ..expr import Function

function_pass: Final = function_pass_for(Function)
function_pass.__doc__ = (
    "Make a pass of a function `(func, mod, ctx) -> func`, or of a class with `transform_function`."
)
