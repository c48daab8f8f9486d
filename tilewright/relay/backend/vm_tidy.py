"""Liveness of registers: unused instructions are removed, and a register is freed after its last use.

r1 = get r0 1                     (dropped: r1 is not used)
run k0 r0 -> r2          ->       run k0 r0 -> r2
run k1 r2 -> r3                   run k1 r2 -> r3
ret r3                            kill r2
                                  ret r3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.metadata import Dim, names_in

_PURE = frozenset(("size", "let", "view", "tuple", "get", "move", "closure"))
Used = set[str]


def tidy(body: list[Any], captures: Sequence[tuple[str, int]] = ()) -> list[Any]:
    """The instructions of a function. Captured values stay live where it calls itself."""
    return _block(body, set(), {f"{k}{r}" for k, r in captures})


def _names(dim: Any) -> set[str]:
    return names_in(_tuples(dim))


def _tuples(dim: Any) -> Dim:
    return (dim[0], _tuples(dim[1]), _tuples(dim[2])) if isinstance(dim, list) else dim


def _registers(*operands: Any) -> set[str]:
    return {f"r{x}" for x in operands if isinstance(x, int) and x >= 0}


def _captured(captured: Any) -> set[str]:
    out: set[str] = set()
    for c in captured:
        out |= _registers(c[1]) if c[0] == "r" else _names(c[1]) if c[0] == "s" else set()
    return out


def _effect(i: Any) -> tuple[set[str], set[str]]:
    """The definitions and uses of an instruction without blocks."""
    op = i[0]
    if op == "size":
        return {f"s{i[1]}"}, _registers(i[2])
    if op == "let":
        return {f"s{i[1]}"}, _names(i[2])
    if op in ("same", "least"):
        return set(), _names(i[1]) | _names(i[2])
    if op == "run":
        _, _, args, outs, symbols = i
        read = _registers(*(a for a in args if isinstance(a, int)))
        for d in [a[1] for a in args if isinstance(a, list) and a[0] == "n"] + list(symbols):
            read |= _names(d)
        for _, _, dims in outs:
            for d in dims:
                read |= _names(d)
        return {f"r{r}" for r, _, _ in outs}, read
    if op == "shapes":
        return {f"s{s}" for s in i[1]}, _registers(*i[4])
    if op == "view":
        read = _registers(i[2])
        for d in i[3]:
            read |= _names(d)
        return {f"r{i[1]}"}, read
    if op == "tuple":
        return {f"r{i[1]}"}, _registers(*i[2])
    if op in ("get", "move"):
        return {f"r{i[1]}"}, _registers(i[2])
    if op == "closure":
        return {f"r{i[1]}"}, _captured(i[3])
    if op == "call":
        return {f"r{i[1]}"}, _captured(i[3]) | _registers(*i[4])
    if op == "apply":
        return {f"r{i[1]}"}, _registers(i[2], *i[3])
    if op == "recur":
        return {f"r{i[1]}"}, _registers(*i[2])
    if op == "tail":
        return set(), _captured(i[2]) | _registers(*i[3])
    if op == "jump":
        return set(), _registers(i[1], *i[2])
    if op == "again":
        return set(), _registers(*i[1])
    if op == "ret":
        return set(), _registers(i[1])
    if op == "missing":  # a kernel that is not compiled yet
        return {f"r{r}" for r in i[2]}, set()
    assert op == "open", op
    return {f"r{r}" for r in i[3]}, _registers(*i[2])


_LAST = frozenset(("ret", "again", "tail", "jump"))


def _block(body: list[Any], live: Used, own: Used) -> list[Any]:
    """A block; `live` holds the registers that are live after it, and on return those live before it."""
    out: list[Any] = []
    for i in reversed(body):
        if i[0] == "if":
            _branches(i, live, out, own)
            continue
        if i[0] == "switch":
            _switch(i, live, out, own)
            continue
        sets, reads = _effect(i)
        if i[0] in ("again", "recur"):
            reads = reads | own
        if i[0] in _PURE and not sets & live:
            continue
        done = [] if i[0] in _LAST else sorted(int(n[1:]) for n in (sets | reads) - live if n[0] == "r")
        if done:
            out.append(["kill", done])
        out.append(i)
        live -= sets
        live |= reads
    out.reverse()
    return out


def _branches(i: Any, live: Used, out: list[Any], own: Used) -> None:
    _, cond, yes, no = i
    before = [set(live), set(live)]
    sides = [_block(side, before[n], own) for n, side in enumerate((yes, no))]
    needed = before[0] | before[1]
    cond_used = _registers(cond)
    for n in (0, 1):
        # registers that only the other branch needs, and the condition, are freed at the start of this one
        gone = (needed | cond_used) - before[n]
        dead = sorted(int(x[1:]) for x in gone if x[0] == "r")
        if dead:
            sides[n].insert(0, ["kill", dead])
    out.append(["if", cond, sides[0], sides[1]])
    live.clear()
    live |= needed | cond_used


def _switch(i: Any, live: Used, out: list[Any], own: Used) -> None:
    _, rows, text = i
    needed: Used = set()
    made = []
    for pairs, side in rows:
        before = set(live)
        made.append([pairs, _block(side, before, own)])
        needed |= before
        for a, b in pairs:
            needed |= _names(a) | _names(b)
    out.append(["switch", made, text])
    live.clear()
    live |= needed
