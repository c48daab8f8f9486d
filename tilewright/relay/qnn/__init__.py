"""Quantised graphs: integers that stand for real numbers, real = (integer - zero_point) · scale."""

from ...homes import lazily
from . import op
from .op import *  # noqa: F403
from .op import __all__ as __all__

__getattr__ = lazily(
    __name__, {}, "transform"
)  # passes are in relay.transform, under their classic name here
