"""EliminateCommonSubexpr: common subexpression elimination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..adt import Match
from ..expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem
from .rewriting import Mutator, is_pure_op, typed_pass

SMALL: Final = 64  # elements: constants up to this many are compared by value


def eliminate_common_subexpr(func: Function, fskip: Callable[[Any], bool] | None = None) -> Function:
    """Compute equal calls once.

        %0 = nn.relu(%x);
        %1 = nn.relu(%x);              %0 = nn.relu(%x);
        add(%0, %1)            ->      add(%0, %0)

    `fskip(expr)` excludes calls. A value of a branch or an inner function is not shared with code outside of it, unless
    it was computed outside before.
    """
    return _Merge(fskip).visit(func)


class _Merge(Mutator):
    def __init__(self, fskip: Callable[[Any], bool] | None) -> None:
        super().__init__()
        self.fskip = fskip
        self.known: dict[Any, Any] = {}
        self.added: list[Any] = []  # the keys of `known`, in order of insertion

    def once(self, key: Any, made: Any) -> Any:
        if self.fskip is not None and self.fskip(made):
            return made
        if key not in self.known:
            self.known[key] = made
            self.added.append(key)
        return self.known[key]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A scope: entries added inside are removed at its end."""
        before = len(self.added)
        try:
            yield
        finally:
            for key in self.added[before:]:
                del self.known[key]
            del self.added[before:]

    def inside(self, expr: Any) -> Any:
        with self.scope():
            return self.visit(expr)

    def visit_call(self, call: Call) -> Any:
        made = super().visit_call(call)
        return self.once((made.op, made.args, made.attrs), made) if is_pure_op(made.op) else made

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        made = super().visit_tuple_getitem(op)
        if isinstance(made, TupleGetItem):
            return self.once((made.tuple_value, made.index), made)
        return made

    def visit_tuple(self, tup: Tuple) -> Any:
        made = super().visit_tuple(tup)
        return self.once((Tuple, made.fields), made)

    def visit_constant(self, const: Constant) -> Any:
        values = const.numpy()
        if values.size > SMALL:
            return const
        return self.once((const.data.dtype, values.shape, values.tobytes()), const)

    def visit_if(self, if_: If) -> Any:
        return if_.map_children(lambda e: self.visit(e) if e is if_.cond else self.inside(e))

    def visit_match(self, m: Match) -> Any:
        data = self.visit(m.data)
        return m.over(data, [(c.lhs, self.inside(c.rhs)) for c in m.clauses])

    def visit_function(self, fn: Function) -> Any:
        with self.scope():
            return super().visit_function(fn)

    def visit_let(self, let: Let) -> Any:
        # Lets are a scope of their own: expressions of their variables must not be shared with earlier code.
        with self.scope():
            return self.visit_lets(let)


EliminateCommonSubexpr = typed_pass(eliminate_common_subexpr, name="EliminateCommonSubexpr", opt_level=3)
