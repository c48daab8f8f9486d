"""Passes of the classic that are left out on purpose, with what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ...ir.errors import UnsupportedError

__all__ = ["FirstOrderGradient", "PartialEvaluate", "gradient"]


def _left_out(name: str, reason: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(f"relay.transform.{name}: {reason}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Not there: {reason}"
    return refuse


_TRAINING = (
    "models are compiled to be run, not trained; take gradients in the framework that the model is from"
)
gradient = _left_out("gradient", _TRAINING)
FirstOrderGradient = _left_out("FirstOrderGradient", _TRAINING)
PartialEvaluate = _left_out(
    "PartialEvaluate", "use FoldConstant, Inline and DeadCodeElimination, which do that for models"
)
