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

_PURE = frozenset(("size", "let", "view", "tuple", "get", "move", "closure", "data", "field", "ref", "read"))
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


# The fields of each instruction: registers R and sizes S that it sets, operands x and dimensions d that it reads,
# captured values c; a second letter s is for a list of them.
_FIELDS = {
    "size": "S x -",
    "let": "S d",
    "same": "d d -",
    "least": "d d -",
    "shapes": "Ss - - xs",
    "view": "R x ds",
    "update": "R x x",
    "put": "R x x x",
    "tuple": "R xs",
    "get": "R x -",
    "move": "R x",
    "data": "R - xs",
    "field": "R x -",
    "ref": "R x",
    "read": "R x",
    "write": "x x",
    "fail": "-",
    "closure": "R - c",
    "call": "R - c xs",
    "apply": "R x xs",
    "recur": "R xs",
    "tail": "- c xs",
    "jump": "x xs",
    "again": "xs",
    "ret": "x",
    "open": "- xs Rs",
    "missing": "- Rs",
}
FIELDS = {op: tuple(words.split()) for op, words in _FIELDS.items()}


def _effect(i: Any) -> tuple[set[str], set[str]]:
    """The definitions and uses of an instruction without blocks."""
    if i[0] == "run":
        _, _, args, outs, symbols = i
        read = _registers(*(a for a in args if isinstance(a, int)))
        dims = [a[1] for a in args if isinstance(a, list) and a[0] == "n"]
        for d in (*dims, *symbols, *(d for *_, shape in outs for d in shape)):
            read |= _names(d)
        return {f"r{r}" for r, _, _ in outs}, read
    sets: set[str] = set()
    reads: set[str] = set()
    for kind, value in zip(FIELDS[i[0]], i[1:], strict=True):
        each = value if kind.endswith("s") else [value]
        if kind[0] in "RS":
            sets |= {f"{kind[0].lower()}{n}" for n in each}
        elif kind[0] == "x":
            reads |= _registers(*each)
        elif kind[0] == "d":
            reads |= {name for d in each for name in _names(d)}
        elif kind == "c":
            reads |= _captured(value)
    return sets, reads


_LAST = frozenset(("ret", "again", "tail", "jump", "fail"))


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
    cond_used = _registers(cond[1] if isinstance(cond, list) else cond)
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
