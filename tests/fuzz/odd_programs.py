"""Random loop programs of the kinds that tensor expressions cannot say, as scripts.

Blocks that update in place, overwrite what was read, run over triangles and parts of their domains, scatter, start
reductions from anything, write under conditions, share a buffer with other writers, or declare an axis as something
that it is not. They are small, and their elements are small whole numbers, so that sums are exact in any order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Draft:
    """What a program has so far: sizes, buffers (their names say what they are) and lines."""

    rng: random.Random
    size: int
    dtype: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    def pick(self, *of: Any) -> Any:
        return self.rng.choice(of)

    def buffer(self, kind: str) -> str:
        """A buffer of a kind: `P` is a parameter, `X` one of indices, `W` memory of the program."""
        size = self.size
        shape = (size,) if kind == "X" else self.pick((size,), (size, size), (size, size), (2 * size,))
        name = f"{kind}{sum(known[0] == kind for known in self.shapes)}"
        self.shapes[name] = shape
        return name

    def some(self, kinds: str) -> str:
        return str(self.rng.choice([name for name in self.shapes if name[0] in kinds]))


def source_of(rng: random.Random) -> str:
    """The text of a program."""
    d = Draft(rng, rng.choice((2, 3, 4, 4, 5, 6)), rng.choice(("int32", "int32", "int32", "float32")))
    d.buffer("X")
    for _ in range(rng.randint(2, 4)):
        d.buffer("P")
    for _ in range(rng.randint(0, 2)):
        d.buffer("W")
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4))):
        _nest(d)
    params = ", ".join(
        f'{name}: T.Buffer({shape}, "{"int32" if name[0] == "X" else d.dtype}")'
        for name, shape in d.shapes.items()
        if name[0] != "W"
    )
    held = [f'    {n} = T.alloc_buffer({s}, "{d.dtype}")' for n, s in d.shapes.items() if n[0] == "W"]
    return "\n".join(["@T.prim_func", f"def main({params}):", *held, *d.lines, ""])


def arrays_of(func: Any, seed: int) -> list[np.ndarray]:
    """Arguments: indices below the smallest dimension, and small numbers, many of them equal."""
    rng = np.random.default_rng(seed)
    size = int(func.buffer_params()[0].shape[0])
    out = []
    for b in func.buffer_params():
        low, high = (0, size) if b.name[0] == "X" else (-2, 3)
        out.append(rng.integers(low, high, [int(n) for n in b.shape]).astype(str(b.dtype)))
    return out


# ---------------------------------------------------------------------------- loops
@dataclass
class Axis:
    """An iterator of a block: its name, its domain, and the loop variables that make its value."""

    name: str
    first: int
    last: int
    value: str
    loops: tuple[str, ...]


def _nest(d: Draft) -> None:
    """One block under its loops, or two that share one."""
    if d.chance(0.25):
        shared = f"s{d.count}"
        d.lines.append(f"    for {shared} in range({d.size}):")
        for _ in range(2):
            _block(d, "        ", shared)
    else:
        _block(d, "    ", "")


def _block(d: Draft, indent: str, shared: str) -> None:
    d.count += 1
    axes: list[Axis] = []
    where: list[str] = []
    if shared:
        axes.append(Axis("v0", 0, d.size - 1, shared, (shared,)))
    if not shared and d.chance(0.08):  # the block is computed several times
        d.lines.append(f"{indent}for r{d.count} in range(2):")
        indent += "    "
    for i in range(len(axes), d.pick(1, 2, 2, 2, 3) + (1 if shared and d.chance(0.3) else 0)):
        indent = _axis(d, axes, i, indent, where)
    _body(d, axes, where, indent)


def _axis(d: Draft, axes: list[Axis], i: int, indent: str, where: list[str]) -> str:
    """One more loop or two, and the iterator that they drive."""
    n, loop = d.size, f"i{d.count}_{i}"
    how = d.rng.random()
    plain = [a.value for a in axes if a.value in a.loops and a.first == 0]
    first, last, value, loops = 0, n - 1, loop, (loop,)
    span = f"{n}"
    if how < 0.5:
        pass
    elif how < 0.6:  # a part of the domain
        span, value = f"{n - 1}", d.pick(loop, f"{loop} + 1")
    elif how < 0.75 and plain:  # a triangle
        outer = d.rng.choice(plain)
        span = d.pick(f"{outer} + 1", f"{outer}, {n}", f"{n} - {outer}")
    elif how < 0.8:
        span, first = f"1, {n}", d.pick(0, 1)
    elif how < 0.85:
        span = f"{n - 1}"
        first, last = 0, n - 2
    elif how < 0.9:  # two loops that come to a point more than once
        d.lines.append(f"{indent}for {loop}x in range(2):")
        indent += "    "
        loops, span = (f"{loop}x", loop), f"{n - 1}"
        value = f"{loop}x + {loop}"
    elif how < 0.95:
        d.lines.append(f"{indent}for {loop}x in range({(n + 1) // 2}):")
        indent += "    "
        loops, span = (f"{loop}x", loop), "2"
        value = f"{loop}x * 2 + {loop}"
        if n % 2:
            where.append(f"{value} < {n}")
    else:
        where.append(d.pick(f"{loop} < {n - 1}", f"1 <= {loop}", f"{loop} % 2 == 0"))
    d.lines.append(f"{indent}for {loop} in range({span}):")
    axes.append(Axis(f"v{i}", first, last, value, loops))
    return indent + "    "


# ---------------------------------------------------------------------------- indices
def _index(d: Draft, axes: list[Axis], extent: int, plain: float) -> str:
    """An index below an extent."""
    a = d.rng.choice(axes)
    v, n = a.name, d.size
    if extent == 2 * n and not d.chance(plain):
        w = d.rng.choice(axes).name
        return str(d.pick(f"{v} + {w}", f"{v} * 2", f"{v} * 2 + 1", f"{v} + {n}", f"{2 * n - 1} - {v}"))
    if d.chance(plain):
        return v
    w = d.rng.choice(axes).name
    forms = [f"{n - 1} - {v}", f"({v} + 1) % {n}", f"{v} // 2", f"X0[{v}]", f"T.min({v} + 1, {n - 1})"]
    forms += [f"T.max({v} - 1, 0)", f"({v} + {w}) % {n}", f"{d.rng.randrange(n)}", f"X0[{v}]"]
    if a.first > 0:
        forms += [f"{v} - 1"] * 2
    return d.rng.choice(forms)


def _access(d: Draft, name: str, axes: list[Axis], plain: float) -> str:
    shape = d.shapes[name]
    if len(shape) == 2 and len(axes) > 1 and d.chance(plain):
        a, b = d.rng.sample(axes, 2)
        return f"{name}[{a.name}, {b.name}]"
    return f"{name}[{', '.join(_index(d, axes, extent, plain) for extent in shape)}]"


def _value(d: Draft, axes: list[Axis]) -> str:
    """An expression of what buffers hold."""
    e = _access(d, d.some("PW"), axes, 0.75)
    for _ in range(d.pick(0, 0, 1, 1, 2)):
        other = d.pick(_access(d, d.some("PW"), axes, 0.75), _number(d, axes))
        form = d.pick("{} + {}", "{} - {}", "T.max({}, {})", "{1} - {0}", "T.Select({1} > {0}, {0}, {1})")
        e = "(" + form.format(e, other) + ")"
    return str(e)


def _number(d: Draft, axes: list[Axis]) -> str:
    if d.chance(0.5):
        return f'T.Cast("{d.dtype}", {d.rng.choice(axes).name})'
    return _constant(d, d.rng.randint(-2, 3))


def _constant(d: Draft, value: int) -> str:
    return f"T.{d.dtype}({value})"


def _condition(d: Draft, axes: list[Axis]) -> str:
    v = d.rng.choice(axes).name
    of_iterators = d.pick(f"{v} % 2 == 0", f"{v} < {d.size - 1}", f"{v} >= 1", f"X0[{v}] != {v}")
    return str(d.pick(of_iterators, f"{_access(d, d.some('PW'), axes, 0.8)} > {_constant(d, 0)}"))


# ---------------------------------------------------------------------------- bodies
def _body(d: Draft, axes: list[Axis], where: list[str], indent: str) -> None:
    target = d.some("PPW")
    kind = d.rng.random()
    if kind < 0.45:
        types, lines = _map(d, axes, target)
    elif kind < 0.6:
        types, lines = _in_place(d, axes, target)
    else:
        types, lines = _reduction(d, axes, target)
    types = {name: d.pick("spatial", "reduce") if d.chance(0.04) else t for name, t in types.items()}
    out = [f'{indent}with T.block("b{d.count}"):']
    inner = indent + "    "
    for a in axes:
        dom = f"{a.last + 1}" if a.first == 0 else f"({a.first}, {a.last + 1})"
        out.append(f"{inner}{a.name} = T.axis.{types[a.name]}({dom}, {a.value})")
    out += [f"{inner}T.where({' and '.join(where)})"] if where else []
    d.lines += [*out, *(inner + line for line in lines)]


def _map(d: Draft, axes: list[Axis], target: str) -> tuple[dict[str, str], list[str]]:
    if d.chance(0.12):  # a loop of the block's own
        inner = [*axes, Axis("q", 0, d.size - 1, "q", ("q",))]
        store = f"    {_access(d, target, inner, 0.6)} = {_value(d, inner)}"
        return {a.name: "spatial" for a in axes}, [f"for q in range({d.size}):", store]
    lines = [f"{_access(d, target, axes, 0.8)} = {_value(d, axes)}"]
    if d.chance(0.1):
        lines.append(f"{_access(d, d.some('PW'), axes, 0.9)} = {_value(d, axes)}")
    if d.chance(0.15):
        lines = [f"if {_condition(d, axes)}:", *("    " + line for line in lines)]
        if d.chance(0.3):
            lines += ["else:", f"    {lines[1].strip().partition(' = ')[0]} = {_value(d, axes)}"]
    return {a.name: "spatial" for a in axes}, lines


def _in_place(d: Draft, axes: list[Axis], target: str) -> tuple[dict[str, str], list[str]]:
    place = _access(d, target, axes, 0.9)
    held = d.pick(place, place, _access(d, target, axes, 0.4))
    form = d.pick("{} + {}", "{} - {}", "T.max({}, {})", "{} * 2 + {}", "{1} - {0}")
    line = f"{place} = {form.format(held, _value(d, axes))}"
    used = {a.name for a in axes if a.name in place}
    free = d.pick("spatial", "reduce", "reduce")  # an axis that does not say which element it is
    return {a.name: "spatial" if a.name in used else free for a in axes}, [line]


def _reduction(d: Draft, axes: list[Axis], target: str) -> tuple[dict[str, str], list[str]]:
    """An axis or more reduced; the start may be any number, or read."""
    kept = d.rng.sample(axes, d.rng.randrange(len(axes))) or axes[:1]
    place = _access(d, target, kept, 0.9)
    types = {a.name: "spatial" if a in kept else "reduce" for a in axes}
    if d.chance(0.12):
        other = d.some("PW")
        if d.shapes[other] == d.shapes[target] and other != target:
            return types, _search(d, axes, place, other + place[len(target) :])
    form = d.pick(
        *("{o} + {e}",) * 4,
        *("T.max({o}, {e})", "T.min({o}, {e})", "{e} + {o}", "{o} - {e}", "T.max({e}, {o})"),
        *("{o} * 2 + {e}", "{e} - {o}", "T.Select({o} >= {e}, {o}, {e})", "{o} + {e} * {o}"),
        "T.if_then_else({c}, {o} + {e}, {o})",
    )
    step = form.format(o=place, e=_value(d, axes), c=_condition(d, axes))
    start = d.pick(_constant(d, 0), _constant(d, 0), _constant(d, d.rng.randint(-3, 3)))
    if d.chance(0.15):
        start = _access(d, d.some("PW"), kept, 0.9)
    lines = [f"{place} = {step}"]
    if d.chance(0.1):
        lines = [f"if {_condition(d, axes)}:", f"    {lines[0]}"]
    return types, ["with T.init():", f"    {place} = {start}", *lines]


def _search(d: Draft, axes: list[Axis], where: str, best: str) -> list[str]:
    """The largest and where it is, by hand: of equal ones the first, the last, or the one of the least index."""
    e, at = _value(d, axes), f'T.Cast("{d.dtype}", {axes[-1].name})'
    better = d.pick(f"{best} >= {e}", f"{best} > {e}", f"{best} > {e} or ({best} == {e} and {where} <= {at})")
    return [
        "with T.init():",
        f"    {where} = {_constant(d, -1)}",
        f"    {best} = {_constant(d, -100)}",
        f"{where} = T.Select({better}, {where}, {at})",
        f"{best} = T.max({best}, {e})",
    ]
