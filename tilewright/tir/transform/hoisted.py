"""The options of `HoistExpression` as sums of flags, as in the classic API."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag
from typing import Any


class HoistedConditionals(IntFlag):
    """The conditions that move out of loops. Those inside expressions never do, whatever the flags say."""

    Never = 0
    IfElseStmt = 1
    IfElseExpr = 2
    BooleanExpression = 4
    UsingBlockVar = 8
    All = 15


class HoistedLetBindings(IntFlag):
    """The bindings that move out of loops. Those inside expressions never do, whatever the flags say."""

    Never = 0
    RequiredByConditional = 1
    LetStmt = 2
    LetExpr = 4
    All = 7


def hoisted(group: Mapping[str, Any] | None) -> dict[str, bool]:
    """The option `tir.HoistExpression`, if it is set, as arguments of the pass."""
    if group is None:
        return {}
    conditionals, lets = group["hoisted_conditionals"], group["hoisted_let_bindings"]
    return {
        "conditionals": bool(conditionals & HoistedConditionals.IfElseStmt),
        "block_scope": bool(conditionals & HoistedConditionals.UsingBlockVar),
        "lets": bool(lets & HoistedLetBindings.LetStmt),
    }
