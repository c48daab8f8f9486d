"""Graphs and packed operators for the chip, under their classic names."""

from __future__ import annotations

from ...absent import attributes
from .graphpack import graph_pack
from .packed import (
    conv2d_packed,
    conv2d_transpose_packed,
    dense_packed,
    group_conv2d_packed,
    is_packed_layout,
    schedule_conv2d_packed,
    schedule_conv2d_transpose_packed,
    schedule_dense_packed,
    schedule_group_conv2d_packed,
)

__all__ = [
    "conv2d_packed",
    "conv2d_transpose_packed",
    "dense_packed",
    "graph_pack",
    "group_conv2d_packed",
    "is_packed_layout",
    "schedule_conv2d_packed",
    "schedule_conv2d_transpose_packed",
    "schedule_dense_packed",
    "schedule_group_conv2d_packed",
]

__getattr__ = attributes(__name__)
