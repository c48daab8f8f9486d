"""MergeComposite: subgraphs that match a pattern become functions with its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...homes import home_of
from ...ir.errors import TVMError
from ..expr import Function
from .rewriting import typed_pass


def merge_composite(func: Function, pattern_table: Sequence[Sequence[Any]]) -> Function:
    """Put each subgraph that matches a pattern of the table into a function marked with the pattern's name.

        MergeComposite([("conv_relu", is_op("nn.relu")(is_op("nn.conv2d")(wildcard(), wildcard())))])

        nn.relu(nn.conv2d(%x, %w))   ->   fn (%a, %b, Composite="conv_relu") { nn.relu(nn.conv2d(%a, %b)) }(%x, %w)

    A row is (name, pattern) or (name, pattern, check), where `check(expr)` may refuse. Earlier rows have priority.
    """
    partition = home_of("patterns").partition
    for row in pattern_table:
        if len(row) not in (2, 3) or not isinstance(row[0], str):
            raise TVMError(f"MergeComposite: a row is (name, pattern) or (name, pattern, check), not {row!r}")
        check = row[2] if len(row) == 3 else lambda e: True
        func = partition(row[1], func, {"Composite": row[0]}, check)
    return func


MergeComposite = typed_pass(merge_composite, name="MergeComposite", opt_level=0)
