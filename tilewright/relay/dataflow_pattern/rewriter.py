"""Rewriting of matched expressions by callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...ir.equal import structural_equal
from ...ir.module import IRModule
from ..expr import Expr
from ..transform.infer_type import infer_type
from ..visitor import ExprMutator
from .matcher import Matcher
from .pattern import DFPattern

ROUNDS: Final = 100


class DFPatternCallback:
    """A pattern and its replacement.

    class Mine(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.x = wildcard()
            self.pattern = is_op("nn.relu")(is_op("nn.relu")(self.x))

        def callback(self, pre, post, node_map):
            return relay.nn.relu(node_map[self.x][0])
    """

    pattern: DFPattern | None = None

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern = None
        self.require_type, self.rewrite_once = require_type, rewrite_once

    def callback(self, pre: Expr, post: Expr, node_map: dict[DFPattern, list[Expr]]) -> Expr:
        """The replacement of a match: `pre` is the original expression, `post` the one with new operands."""
        raise NotImplementedError(f"{type(self).__name__} has no callback")

    def rewrite(self, expr: Expr) -> Expr:
        """The expression with every match replaced."""
        return rewrite(self, expr)


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback], expr: Any, mod: IRModule | None = None
) -> Any:
    """The expression with the matches of each callback replaced, repeated to a fixed point."""
    listed = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    for one in listed:
        if one.pattern is None:
            raise ValueError(f"{type(one).__name__} has no pattern: set self.pattern in its constructor")
    for _ in range(ROUNDS):
        before = expr
        for one in listed:
            if one.require_type:
                expr = infer_type(expr, mod)
            expr = _Rewrite(one).visit(expr)
        listed = [one for one in listed if not one.rewrite_once]
        if not listed or expr is before or structural_equal(expr, before):
            break
    return expr


class _Rewrite(ExprMutator):
    def __init__(self, callback: DFPatternCallback) -> None:
        super().__init__()
        self.callback = callback
        assert callback.pattern is not None
        self.pattern = callback.pattern

    def dispatch(self, expr: Any) -> Any:
        made = super().dispatch(expr)
        if not isinstance(made, Expr):
            return made
        attempt = Matcher()
        if not attempt.match(self.pattern, made):
            return made
        return self.callback.callback(expr, made, attempt.found)
