"""Patterns of graphs: matching, rewriting, partitioning.

x = wildcard()
pattern = is_op("nn.relu")(is_op("nn.bias_add")(is_op("nn.conv2d")(x, is_constant()), is_constant()))
pattern.match(expr);  pattern.partition(expr);  rewrite(callback, expr)
"""

from __future__ import annotations

from typing import Any

from .partitioner import partition
from .pattern import *  # noqa: F403
from .pattern import DFPattern
from .pattern import __all__ as _patterns
from .rewriter import DFPatternCallback, rewrite

__all__ = ["DFPatternCallback", "match", "partition", "rewrite"]
__all__ += _patterns


def match(pattern: DFPattern, expr: Any) -> bool:
    """Whether an expression matches the pattern."""
    return pattern.match(expr)
