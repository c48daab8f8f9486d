"""Commands of an accelerator's engines: the statements under `coproc_scope`, and the instructions in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...ir.expr import Call, PrimExpr, StringImm, Var, const_value
from ...ir.op import Op
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)
from .elements import evaluated

ENGINE, INSTRUCTION = "coproc_scope", "instruction"


def engine_of(s: Any) -> int | None:
    """The number of the engine that executes a statement, if it is a command."""
    if isinstance(s, AttrStmt) and s.attr_key == ENGINE:
        value = const_value(s.value)
        return None if value is None else int(value)
    return None


class Instruction(NamedTuple):
    """How a command is encoded: the name of its instruction and the operands."""

    name: str
    operands: tuple[Any, ...]
    meaning: Stmt


def instruction_of(s: Any) -> Instruction | None:
    """The instruction that a statement is marked with."""
    if not (isinstance(s, AttrStmt) and s.attr_key == INSTRUCTION and isinstance(s.value, Call)):
        return None
    name = s.value.args[0]
    assert isinstance(name, StringImm)
    return Instruction(name.value, s.value.args[1:], s.body)


def commands(s: Stmt) -> Iterator[AttrStmt]:
    """The commands of a statement, in the order of the program."""
    stack: list[Any] = [s]
    while stack:
        n = stack.pop()
        if engine_of(n) is not None:
            yield n
            continue
        stack.extend(reversed([c for c in n.children() if isinstance(c, Stmt)]))


# ---------------------------------------------------------------------------- the commands of a run, one by one
@dataclass(frozen=True)
class Rows:
    """The iterations of loops, one row each, in the order of the program.

    `values` has a column for each variable, `keys` are columns that sort the rows among those of other statements.
    """

    count: int
    values: dict[Var, Any]
    keys: tuple[Any, ...]

    def evaluate(self, e: PrimExpr) -> Any:
        """The value of an expression in each row."""
        return np.broadcast_to(np.asarray(evaluated(e, self.values)), (self.count,))

    def of_loop(self, s: For) -> Rows:
        """Each row once for each iteration of a loop."""
        low, size = self.evaluate(s.min), np.maximum(self.evaluate(s.extent), 0)
        made = self.chosen(np.repeat(np.arange(self.count), size))
        within = np.arange(made.count) - np.repeat(np.cumsum(size) - size, size)
        made.values[s.loop_var] = np.repeat(low, size) + within
        return replace(made, keys=(*made.keys, within))

    def chosen(self, rows: Any) -> Rows:
        """Some of the rows, by their numbers."""
        return Rows(
            len(rows), {v: x[rows] for v, x in self.values.items()}, tuple(k[rows] for k in self.keys)
        )

    def where(self, condition: PrimExpr) -> Rows:
        """The rows in which a condition holds."""
        return self.chosen(np.flatnonzero(self.evaluate(condition)))

    def part(self, number: int) -> Rows:
        """The rows as those of a statement of a sequence."""
        return replace(self, keys=(*self.keys, np.full(self.count, number)))


@dataclass
class Site:
    """A place in the program that issues something: a command, a push or a pop of a token.

    `loops` are the loops of the host around it, `rows` the times that it is reached, `order` the position of each time
    in the whole run.
    """

    statement: Stmt
    loops: tuple[For, ...]
    rows: Rows
    order: Any = None

    @property
    def times(self) -> int:
        return self.rows.count

    @property
    def values(self) -> dict[Var, Any]:
        return self.rows.values

    def evaluate(self, e: PrimExpr) -> Any:
        """The value of an expression each time."""
        return self.rows.evaluate(e)


class Unknown(Exception):
    """The commands of a program are not known before it runs: `args` are the reason and the statement."""


def sites(body: Stmt) -> list[Site]:
    """The places that issue commands and tokens, with each time that they are reached, in program order."""
    found: list[Site] = []
    _find(body, (), Rows(1, {}, ()), found)
    depth = max((len(s.rows.keys) for s in found), default=0)
    if depth == 0:
        for s in found:
            s.order = np.zeros(1, np.int64)
        return found
    columns = [
        np.concatenate([s.rows.keys[d] if d < len(s.rows.keys) else np.full(s.times, -1) for s in found])
        for d in range(depth)
    ]
    rank = np.empty(sum(s.times for s in found), np.int64)
    rank[np.lexsort(columns[::-1])] = np.arange(len(rank))
    start = 0
    for s in found:
        s.order = rank[start : start + s.times]
        start += s.times
    return found


def _find(s: Any, loops: tuple[For, ...], rows: Rows, found: list[Site]) -> None:
    """Walk a statement that is reached once for each row."""
    if engine_of(s) is not None or token_of(s) is not None:
        found.append(Site(s, loops, rows))
    elif isinstance(s, SeqStmt):
        for i, one in enumerate(s.seq):
            _find(one, loops, rows.part(i), found)
    elif isinstance(s, For):
        try:
            inner = rows.of_loop(s)
        except ValueError:
            name = s.loop_var.name
            raise Unknown(f"the bounds of loop `{name}` are not known before the program runs", s) from None
        _find(s.body, (*loops, s), inner, found)
    elif isinstance(s, IfThenElse):
        holds = _known(rows, s.condition, s).astype(bool)
        _find(s.then_case, loops, rows.chosen(np.flatnonzero(holds)).part(0), found)
        if s.else_case is not None:
            _find(s.else_case, loops, rows.chosen(np.flatnonzero(~holds)).part(1), found)
    elif isinstance(s, LetStmt):
        bound = {**rows.values, s.var: _known(rows, s.value, s)}
        _find(s.body, loops, replace(rows, values=bound), found)
    elif isinstance(s, (Allocate, AllocateConst, AttrStmt, DeclBuffer, AssertStmt)):
        _find(s.body, loops, rows, found)
    elif not (isinstance(s, Evaluate) and const_value(s.value) is not None):
        raise Unknown("a statement is not a command of an engine", s)


def _known(rows: Rows, e: PrimExpr, s: Stmt) -> Any:
    try:
        return rows.evaluate(e)
    except ValueError:
        raise Unknown(f"`{e}` is not known before the program runs", s) from None


_PUSH, _POP = Op.get("tir.coproc_dep_push"), Op.get("tir.coproc_dep_pop")


class Token(NamedTuple):
    """A push or pop of a token from engine `source` to engine `target`."""

    pushes: bool
    source: int
    target: int


def token_of(s: Any) -> Token | None:
    """The token that a statement pushes or pops."""
    if isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op in (_PUSH, _POP):
        a, b = (const_value(x) for x in s.value.args)
        assert a is not None and b is not None
        return Token(s.value.op is _PUSH, int(a), int(b))
    return None


def engine_of_site(s: Site) -> int:
    """The engine whose queue a site's instruction enters: a push is its source's, a pop its target's."""
    token = token_of(s.statement)
    if token is not None:
        return token.source if token.pushes else token.target
    found = engine_of(s.statement)
    assert found is not None
    return found
