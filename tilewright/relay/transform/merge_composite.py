"""MergeComposite: subgraphs that match a pattern become functions with its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...homes import home_of
from ...ir.errors import TVMError
from ..expr import Function
from ..visitor import in_order
from .infer_type import infer_type
from .rewriting import is_kept_whole, typed_pass


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
        made = partition(row[1], func, {"Composite": row[0]}, _outside(func, check))
        func = func if made is func else infer_type(made)  # checks of later rows look at types
    return func


def _outside(func: Function, check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The check, for expressions that no composite function has yet."""
    whole = [e for e in in_order(func) if isinstance(e, Function) and e is not func and is_kept_whole(e)]
    taken = {x for f in whole for x in in_order(f.body)}
    return lambda e: e not in taken and bool(check(e))


MergeComposite = typed_pass(merge_composite, name="MergeComposite", opt_level=0)
