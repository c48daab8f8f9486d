"""Quantised graphs: integers that stand for real numbers, real = (integer - zero_point) · scale."""

from importlib import import_module
from types import ModuleType

from . import op
from .op import *  # noqa: F403
from .op import __all__ as __all__


def __getattr__(name: str) -> ModuleType:
    if name == "transform":  # passes are in relay.transform, under their classic name here
        return import_module(f"{__name__}.transform")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
