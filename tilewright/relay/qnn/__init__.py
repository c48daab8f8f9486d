"""Quantised graphs: integers that stand for real numbers, real = (integer - zero_point) · scale."""

from . import op, transform
from .op import *  # noqa: F403
from .op import __all__ as __all__
