"""Accesses to buffers as Python source: the position in memory and the checks before the access."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...ir.buffer import Buffer
from .source import Code, plus, times

if TYPE_CHECKING:
    from .expressions import ExprTranslator


@dataclass
class View:
    """The layout of a buffer: element i is at `offset` + Σ i·strides from `pointer`.

    Index d runs from `lows[d]` on, `extents[d]` values of it.
    """

    pointer: str
    offset: int | str
    strides: list[int | str]
    lows: list[Code]
    extents: list[Code]
    owner: bool  # whether every index within the shape is within the memory


@dataclass
class Regions:
    """The regions that a block declared, as Python variables, for the accesses inside it."""

    block: str
    reads: dict[Buffer, list[str]] = field(default_factory=dict)
    writes: dict[Buffer, list[str]] = field(default_factory=dict)
    own: set[Buffer] = field(default_factory=set)  # allocated inside: the block does not declare them


@dataclass
class Place:
    """One access: names to bind, tests of the indices, then the position and the tests of it."""

    memory: str
    binds: list[tuple[str, str]]
    tests: list[str]
    position: str
    flat: str  # the source of the position; the same text where it needs no name
    position_tests: list[str]  # with @ for the position
    mark: str | None  # the statement that records a write in the mask
    failure: str

    @property
    def cell_tests(self) -> list[str]:
        """The tests of the position once it has its name."""
        return [test.replace("@", self.position) for test in self.position_tests]

    def loaded(self) -> str:
        """The expression that reads the element."""
        conditions = list(self.tests)
        if len(self.binds) == 1 and self.tests and f"<= {self.binds[0][0]} <" in self.tests[0]:
            name, text = self.binds[0]
            conditions[0] = self.tests[0].replace(f"<= {name} <", f"<= ({name} := {text}) <", 1)
        elif self.binds:
            conditions.insert(0, "(" + "".join(f"({n} := {x}), " for n, x in self.binds) + ")")
        named = f"({self.position} := {self.flat})"
        for n, test in enumerate(self.position_tests):
            first = n == 0 and self.position != self.flat
            conditions.append(test.replace("@", named if first else self.position))
        where = self.flat if not self.position_tests else self.position
        text = f"{self.memory}[{where}]"
        return f"({text} if {' and '.join(conditions)} else {self.failure})" if conditions else text


def locate(t: ExprTranslator, b: Buffer, indices: list[Code], sub: str | None, *, write: bool) -> Place:
    """The position of an access and its checks."""
    view = t.view_of(b)
    kind, root = b.dtype.element, t.facts.root(b.data)
    bounds, tracked, logged = t.options.check_bounds, t.tracked(b.data), root in t.logged
    memory = f"{view.pointer}_{kind}"
    unsure = [bounds and not _inside(i, lo, n) for i, lo, n in zip(indices, view.lows, view.extents)]
    far = bounds and not view.owner
    regions = [r for r in t.regions if b not in r.own] if t.options.check_regions else []
    busy = any(unsure) or far or tracked or logged or bool(regions)

    binds = [(t.fresh("t"), i.text) for i in indices if busy and not i.atom]
    fresh = iter(binds)
    names = [next(fresh)[0] if busy and not i.atom else i.text for i in indices]
    tests = [
        f"{lo.text} <= {n} < {plus(int(lo.text) if lo.text.isdigit() else lo.text, e.text)}"
        for n, lo, e, u in zip(names, view.lows, view.extents, unsure)
        if u
    ]
    # a test of the one name that must be bound comes first, so that it can bind it
    tests.sort(key=lambda test: not (len(binds) == 1 and f"<= {binds[0][0]} <" in test))
    tests += [_declared(r, b, names, write) for r in regions]

    flat = _flat(view, names, b.dtype.lanes, sub)
    position = t.fresh("p") if (far or tracked or logged) and not flat.isidentifier() else flat
    grain = kind.nbytes // t.facts.unit(b.data)
    position_tests, mark = [], None
    if far:
        position_tests.append(f"0 <= @ < len({memory})")
    if tracked and not write:
        mask = f"{view.pointer}_w"
        written = f"{mask}[@]" if grain == 1 else f"all_set({mask}, @, {grain})"
        if logged:
            # another thread may still write it: then it is a race, and found when that happens
            position_tests.append(f"{_noted(t, view, grain, 'read')}")
            written = f"({written} or {_noted(t, view, grain, 'unwritten')})"
        position_tests.append(written)
    elif logged:
        position_tests.append(_noted(t, view, grain, "write" if write else "read"))
    if tracked and write:
        mask = f"{view.pointer}_w"
        mark = f"{mask}[{position}] = 1" if grain == 1 else f"set_all({mask}, {position}, {grain})"
    shape = "".join(f"({lo.text}, {n.text}), " for lo, n in zip(view.lows, view.extents))
    does = "write to" if write else "read of"
    where = "".join(f"{n}, " for n in names)
    failure = f"bad_access({does!r}, {b.name!r}, ({where}), ({shape}), {view.pointer}, {bounds})"
    return Place(memory, binds, tests, position, flat, position_tests, mark, failure)


def _inside(i: Code, low: Code, extent: Code) -> bool:
    """Whether an index is provably in bounds."""
    if i.lo is None or i.hi is None or low.hi is None or low.lo is None or extent.lo is None:
        return False
    return low.hi <= i.lo and i.hi < low.lo + extent.lo


def _flat(view: View, names: list[str], lanes: int, sub: str | None) -> str:
    flat: int | str = view.offset
    for n, s in zip(names, view.strides):
        flat = plus(flat, times(_closed(n), _closed(s)))
    if lanes > 1:
        flat = plus(times(_closed(flat), lanes), sub or 0)
    return str(flat)


def _closed(text: int | str) -> int | str:
    """The source in parentheses where it may need them."""
    if isinstance(text, int) or text.isidentifier() or text.isdigit():
        return text
    return f"({text})"


def _noted(t: ExprTranslator, view: View, grain: int, how: str) -> str:
    cell = times("@", grain)
    if view.pointer in t.window_names:
        cell = plus(cell, f"{view.pointer}_o")
    if grain == 1:
        return f"{view.pointer}_l.{how}({cell}, {t.site()})"
    return f"{view.pointer}_l.{how}_span({cell}, {grain}, {t.site()})"


def _declared(r: Regions, b: Buffer, names: list[str], write: bool) -> str:
    boxes = r.writes.get(b, []) + ([] if write else r.reads.get(b, []))
    does = "writes" if write else "reads"
    return (
        f"in_regions({r.block!r}, {does!r}, {b.name!r}, ({''.join(n + ', ' for n in names)}), "
        f"({''.join(x + ', ' for x in boxes)}))"
    )
