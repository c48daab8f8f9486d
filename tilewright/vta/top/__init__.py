"""Graphs for the chip, under their classic names."""

from __future__ import annotations

from ...absent import attributes
from .graphpack import graph_pack

__all__ = ["graph_pack"]

__getattr__ = attributes(__name__)
