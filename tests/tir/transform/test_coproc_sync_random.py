"""Tokens of random command sequences on random chips, against a brute-force order of the commands."""

from __future__ import annotations

from typing import Any

import numpy as np
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_chip import outcome

from tilewright.ir.buffer import decl_buffer
from tilewright.ir.expr import BufferLoad, PrimExpr, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.ops import less
from tilewright.ir.stmt import AttrStmt, BufferStore, For, ForKind, IfThenElse, Stmt, seq
from tilewright.target.accelerator import Accelerator, Engine, Scope
from tilewright.tir.analysis.commands import engine_of_site, sites, token_of
from tilewright.tir.transform.coproc_sync import coproc_sync

SIZE = 16


@st.composite
def chips(draw: Any) -> Accelerator:
    """Chips with two to four engines; each can reach each other by tokens, maybe over others."""
    count = draw(st.integers(2, 4))
    order = draw(st.permutations(range(1, count + 1)))
    tokens = set(zip(order, (*order[1:], order[0]), strict=True))  # a ring connects all
    pairs = [(a, b) for a in order for b in order if a != b]
    tokens |= set(draw(st.lists(st.sampled_from(pairs), max_size=len(pairs))))
    return Accelerator(
        name="random",
        scopes=(Scope("local.memory", "memory", 4 * SIZE, "int32", 1),),
        engines=tuple(Engine(f"engine{n}", n) for n in range(1, count + 1)),
        tokens=frozenset(tokens),
        transfers=(),
    )


class _Programs:
    """Draws loops and conditions around commands that write one range and read another."""

    def __init__(self, draw: Any, engines: int) -> None:
        self.draw, self.engines = draw, engines
        self.memory = decl_buffer((SIZE,), "int32", "M")
        self.left = 3  # loops that may still be drawn

    def command(self, loops: list[tuple[Var, int]]) -> Stmt:
        width = self.draw(st.integers(1, 3))
        lane = Var("lane")

        def place() -> PrimExpr:
            at: Any = const(self.draw(st.integers(0, 3)))
            for v, _ in loops:
                at = at + v * self.draw(st.integers(0, 2))
            return at + lane * self.draw(st.sampled_from([1, 1, 2]))

        value: Any = const(1)
        if self.draw(st.booleans()):
            value = BufferLoad(self.memory, (place(),)) + 1
        body = For(lane, 0, width, ForKind.SERIAL, BufferStore(self.memory, value, (place(),)))
        return AttrStmt(const(0), "coproc_scope", const(self.draw(st.integers(1, self.engines))), body)

    def statement(self, loops: list[tuple[Var, int]]) -> Stmt:
        made = []
        for _ in range(self.draw(st.integers(1, 3))):
            kind = self.draw(st.sampled_from(["command", "command", "loop", "if"]))
            if kind == "loop" and self.left and len(loops) < 2:
                self.left -= 1
                v, extent = Var(f"i{self.left}"), self.draw(st.integers(1, 3))
                # the extent may depend on a loop outside
                size: Any = extent
                if loops and self.draw(st.booleans()):
                    size = loops[-1][0] + 1
                    extent = loops[-1][1]
                made.append(For(v, 0, size, ForKind.SERIAL, self.statement([*loops, (v, extent)])))
            elif kind == "if" and loops:
                v, extent = loops[-1]
                test = less(v, self.draw(st.integers(1, extent)))
                other = self.command(loops) if self.draw(st.booleans()) else None
                made.append(IfThenElse(test, self.command(loops), other))
            else:
                made.append(self.command(loops))
        return seq(*made)


@st.composite
def programs(draw: Any) -> tuple[Accelerator, PrimFunc]:
    chip = draw(chips())
    made = _Programs(draw, len(chip.engines))
    body = made.statement([])
    handle = Var("m", "handle")
    return chip, PrimFunc([handle], body, buffer_map={handle: made.memory})


def ordered(events: list[tuple[int, Any]], skip: int = -1) -> Any:
    """Which event is done before another one starts: (queue order and tokens), as a matrix.

    `skip` is the number of a push that is left out together with its pop.
    """
    n = len(events)
    edges = np.zeros((n, n), bool)
    last: dict[int, int] = {}
    queues: dict[Any, list[int]] = {}
    for i, (engine, token) in enumerate(events):
        if engine in last:
            edges[last[engine], i] = True
        last[engine] = i
        if token is not None and token.pushes:
            queues.setdefault((token.source, token.target), []).append(i)
        elif token is not None:
            source = queues[token.source, token.target].pop(0)
            edges[source, i] = source != skip
    for k in range(n):  # events are in an order that the program allows
        edges |= np.outer(edges[:, k], edges[k])
    assert not any(queues.values())
    return edges


def touched(s: Any, time: int) -> tuple[set[int], set[int]]:
    """The elements that a command reads and writes, one by one."""
    (loop,) = [s.statement.body]
    reads: set[int] = set()
    writes: set[int] = set()
    at = {v: int(x[time]) for v, x in s.values.items()}
    for lane in range(int(loop.extent)):
        values = {v: np.asarray([x]) for v, x in {**at, loop.loop_var: lane}.items()}
        store = loop.body
        writes.add(int(_at(store.indices[0], values)))
        for n in [store.value, *store.value.children()]:
            if isinstance(n, BufferLoad):
                reads.add(int(_at(n.indices[0], values)))
    return reads, writes


def _at(e: Any, values: Any) -> int:
    from tilewright.tir.analysis.elements import evaluated

    return int(np.asarray(evaluated(e, values)).ravel()[0])


@settings(max_examples=examples(150), deadline=None)
@given(programs())
def test_tokens_order_all_conflicts_and_none_is_redundant(case):
    chip, func = case
    made = coproc_sync(func, chip)
    found = [(int(n), s, t) for s in sites(made.body) for t, n in enumerate(s.order)]
    found.sort(key=lambda x: x[0])
    events = [(engine_of_site(s), token_of(s.statement)) for _, s, _ in found]
    for _, token in events:
        assert token is None or (token.source, token.target) in chip.tokens
    commands = {i: touched(s, t) for i, (_, s, t) in enumerate(found) if token_of(s.statement) is None}
    conflicts = [
        (i, j)
        for i, (reads, writes) in commands.items()
        for j, (others, over) in commands.items()
        if i < j and (writes & (others | over) or reads & over)
    ]
    order = ordered(events)
    assert all(order[i, j] for i, j in conflicts)
    for i, (_, token) in enumerate(events):
        if token is not None and token.pushes:
            left = ordered(events, skip=i)
            assert not all(left[a, b] for a, b in conflicts), f"push {i} is redundant"
    assert not isinstance(outcome(made, [np.zeros(SIZE, "int32")]), str)
