"""Limits on the cost of reading a text: steps, seconds, and the size of every value.

    10 ** 10 ** 9, "a" * 10**10, [[0] * 10**6 for i in range(10**6)], x = x * x in forty lines

are refused before they use up memory or time. Limits grow with the length of the text, so that long legitimate texts
are read.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from ...ir.expr import const_value
from ...ir.node import Node
from .specs import LoopSpec

_STEPS: Final = 200_000  # evaluated expressions, plus 20 for each character
_SECONDS: Final = 5.0  # plus one for each 2,000 characters
_SIZE: Final = (
    200_000  # elements, characters or nodes of a value, shared ones counted each time; and the same
)
_BITS: Final = 1 << 12  # of an integer
_SHARED: Final = 32  # elements of a reused value that count as one step

BUILTINS: Final = frozenset(
    "abs all any bool dict divmod enumerate float int len list map max min pow range reversed round set "
    "slice sorted str sum tuple zip".split()
)
METHODS: Final = (
    "count endswith find isalpha isdigit isidentifier join lower lstrip removeprefix removesuffix replace rstrip "
    "split splitlines startswith strip title upper"
).split()


class OverBudget(Exception):
    """Reading the text exceeds the budget."""


class Budget:
    """The remaining budget while one text is read."""

    def __init__(self, length: int) -> None:
        self.left, self._looks = _STEPS + 20 * length, 0
        self.until = time.monotonic() + _SECONDS + length / 2000
        self.most = _SIZE + length
        self._sizes: dict[
            int, tuple[int, Any]
        ] = {}  # sizes of containers and nodes, which are kept alive here

    # -- steps ---------------------------------------------------------------------------------
    def step(self, cost: int = 1) -> None:
        """One more expression."""
        self.left -= cost
        self._looks += 1
        if self.left < 0 or (not self._looks & 63 and time.monotonic() > self.until):
            raise OverBudget("reading this takes more steps than a program of its length could need")

    def reuse(self, value: Any) -> Any:
        """A use of a named value: its size counts, since every walk over the program visits it."""
        self.step(self.size(value) // _SHARED)
        return value

    # -- sizes ---------------------------------------------------------------------------------
    def made(self, value: Any) -> Any:
        """A value that has just been computed, if it is not too large."""
        self.size(value)
        return value

    def size(self, value: Any) -> int:
        """The number of elements of a value, shared parts counted at each occurrence."""
        kind = value.__class__
        if kind is int:
            self.check_bits(value.bit_length())
            return 1
        if kind in (str, bytes):
            self.check(len(value))
            return 1 + len(value)
        if not isinstance(value, _COMPOSED):
            return 1
        found = self._sizes.get(id(value))
        return self._walk(value) if found is None else found[0]

    def _walk(self, root: Any) -> int:
        sizes, stack = self._sizes, [(root, False)]
        while stack:
            value, done = stack.pop()
            if id(value) in sizes:
                continue
            parts = value.children() if isinstance(value, Node) else _elements(value)
            new = [p for p in parts if isinstance(p, _COMPOSED) and id(p) not in sizes]
            if new and not done:
                stack.append((value, True))
                stack += [(p, False) for p in new]
                continue
            total = 1 + sum(sizes[id(p)][0] if isinstance(p, _COMPOSED) else _alone(p) for p in parts)
            self.check(total)
            sizes[id(value)] = (total, value)
        return sizes[id(root)][0]

    def check(self, size: int) -> None:
        if size > self.most:
            raise OverBudget(f"this makes a value of more than {self.most:,} elements")

    def check_bits(self, bits: int) -> None:
        if bits > _BITS:
            raise OverBudget(f"this makes an integer of more than {_BITS:,} bits")

    # -- operations with large results ---------------------------------------------------------
    def operate(self, kind: type, left: Any, right: Any) -> Any:
        """`left op right` of a script, if the result is not too large; `kind` is the class of the syntax node."""
        if isinstance(left, int) and isinstance(right, int):
            if kind is ast.Pow and right > 0:
                self.check_bits(left.bit_length() * right if abs(left) > 1 else 1)
            elif kind is ast.LShift and right > 0:
                self.check_bits(left.bit_length() + right)
            elif kind is ast.Mult:
                self.check_bits(left.bit_length() + right.bit_length())
        elif kind is ast.Mult:
            for many, count in ((left, right), (right, left)):
                if isinstance(many, (str, bytes, list, tuple)) and isinstance(count, int):
                    self.check(self.size(many) * max(count, 0))
        elif (
            kind is ast.Add and isinstance(left, (str, bytes, list, tuple)) and isinstance(right, type(left))
        ):
            self.check(len(left) + len(right))
        elif kind is ast.Mod and isinstance(left, (str, bytes)):
            raise OverBudget("text is formatted by f-strings only")
        return OPERATORS[kind](left, right)

    def format(self, value: Any, form: str) -> str:
        """`f"{value:form}"`."""
        if re.search(r"\d{4}", form):
            raise OverBudget(f"{form!r} asks for a very long text")
        return format(value, form)

    def method(self, owner: str, name: str) -> Callable[..., Any]:
        """A method of a text."""
        if name == "join":
            return lambda parts: self._joined(owner, list(parts))
        if name == "replace":
            return lambda old, new, count=-1: self._replaced(owner, old, new, count)
        return getattr(owner, name)  # type: ignore[no-any-return]

    def _joined(self, owner: str, parts: list[str]) -> str:
        self.check(sum(map(len, parts)) + len(owner) * len(parts))
        return owner.join(parts)

    def _replaced(self, owner: str, old: str, new: str, count: int) -> str:
        self.check((len(owner) + 1) * max(len(new), 1))
        return owner.replace(old, new, count)

    def builtin(self, name: str) -> Any:
        """One of Python's built-in functions; those with large results are checked before the call."""
        own = {"pow": self._pow, "round": self._round, "sum": self._sum}
        return own[name] if name in own else getattr(builtins, name)

    def _pow(self, base: Any, exponent: Any, modulus: Any = None) -> Any:
        return self.operate(ast.Pow, base, exponent) if modulus is None else pow(base, exponent, modulus)

    def _round(self, value: Any, digits: Any = None) -> Any:
        if isinstance(digits, int) and abs(digits) > _BITS:
            raise OverBudget(f"round to {digits} digits")
        return round(value) if digits is None else round(value, digits)

    def _sum(self, values: Iterable[Any], start: Any = 0) -> Any:
        total = start
        for v in values:
            self.step()
            total = self.operate(ast.Add, total, v)
            if isinstance(total, (list, tuple)):
                self.step(len(total) // _SHARED)
        return total


_COMPOSED: Final = (list, tuple, set, frozenset, dict, Node)


def _alone(value: Any) -> int:
    """The size of an element that is not a container; a loop object counts its iterations."""
    if isinstance(value, LoopSpec):
        low, high = (const_value(b) for b in value.bounds[0])
        return int(high - low) if low is not None and high is not None and high > low else 1
    return len(value) if isinstance(value, (str, bytes)) else 1


def _elements(value: Any) -> list[Any]:
    return [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)


OPERATORS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
