"""Strategies of operators, and what the strategies of programs are made of."""

from ....absent import attributes as _attributes
from . import generic
from .generic import *  # noqa: F403

__all__ = ["generic"]
__getattr__ = _attributes(__name__)
