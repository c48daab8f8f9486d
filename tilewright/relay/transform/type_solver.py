"""Types that are not known yet, and what is learned of them.

    fn (%x: Tensor[(2, 3), float32], %w) { nn.dense(%x, %w, units=4) }       %w: ?0, the call: ?1
        the operator says what its weight is:  ?0 = Tensor[(4, 3), float32]
        so its relation gives the result:      ?1 = Tensor[(2, 4), float32]

An unknown type is an `IncompleteType`, compared by identity. What cannot be decided when an expression is visited
waits, and is tried again until nothing more is learned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..op.shapes import same_size
from ..ty import (
    FuncType,
    IncompleteType,
    TensorType,
    Type,
    TypeVar,
    map_type,
    substituted,
    type_parts,
)


class Solver:
    """The unknown types of one inference."""

    def __init__(self) -> None:
        self.found: dict[IncompleteType, Type] = {}
        self.waiting: list[Callable[[], bool]] = []
        self.active = False  # whether there is an unknown type at all

    def unknown(self) -> IncompleteType:
        self.active = True
        return IncompleteType()

    def resolved(self, kind: Any) -> Any:
        """A type with all that is known of it."""
        return map_type(kind, self._leaf) if self.found and kind is not None else kind

    def _leaf(self, leaf: Any) -> Any:
        if leaf.__class__ is IncompleteType and leaf in self.found:
            return self.resolved(self.found[leaf])
        return leaf

    def generic(self, kind: FuncType, given: tuple[Type, ...] = ()) -> tuple[FuncType, tuple[Type, ...]]:
        """A function type with its type parameters replaced by unknown types, or by those given; and these."""
        if not kind.type_params:
            return kind, ()
        own = tuple(given) + tuple(self.unknown() for _ in kind.type_params[len(given) :])
        plain = FuncType(kind.arg_types, kind.ret_type)
        return substituted(plain, dict(zip(kind.type_params, own, strict=False))), own

    # -- equality ----------------------------------------------------------------------------
    def unify(self, a: Any, b: Any) -> bool:
        """Learn from two types that must be the same; False if they cannot be."""
        a, b = self._leaf(a), self._leaf(b)
        if a is b:
            return True
        if a.__class__ is IncompleteType:
            return self._learn(a, b)
        if b.__class__ is IncompleteType:
            return self._learn(b, a)
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            return fits_tensor(a, b)
        if isinstance(a, FuncType) and isinstance(b, FuncType):
            a, b = self.generic(a)[0], self.generic(b)[0]
        left, right = type_parts(a), type_parts(b)
        if a.__class__ is not b.__class__ or len(left) != len(right):
            return False
        if not left:
            return bool(a == b)
        return all(self.unify(x, y) for x, y in zip(left, right, strict=True))

    def _learn(self, hole: IncompleteType, kind: Any) -> bool:
        kind = self.resolved(kind)
        if has_part(kind, hole):
            return False
        self.active = True
        self.found[hole] = kind
        return True

    # -- what waits --------------------------------------------------------------------------
    def later(self, attempt: Callable[[], bool]) -> None:
        """Try again when more is known; `attempt` says whether it is done."""
        self.waiting.append(attempt)

    def solve(self) -> None:
        """Try what waits until nothing more is learned."""
        while self.waiting:
            before, self.waiting = self.waiting, []
            known = len(self.found)
            left = [w for w in before if not w()]
            self.waiting = left + self.waiting
            if len(left) == len(before) and known == len(self.found):
                return


def has_part(kind: Any, part: Any) -> bool:
    """Whether a type occurs in another."""
    return kind is part or any(has_part(p, part) for p in type_parts(kind))


def is_open(kind: Any) -> bool:
    """Whether some part of a type is unknown."""
    return kind.__class__ is IncompleteType or any(map(is_open, type_parts(kind)))


def fits_tensor(wanted: TensorType, given: TensorType) -> bool:
    """Whether two tensor types may be the same: sizes that are not known may be any."""
    if wanted.dtype != given.dtype or len(wanted.shape) != len(given.shape):
        return False
    return all(same_size(a, b) is not False for a, b in zip(wanted.shape, given.shape, strict=True))


def fits(wanted: Any, given: Any) -> bool:
    """Whether a value of type `given` may be where `wanted` is asked for."""
    if isinstance(wanted, TypeVar) or isinstance(given, TypeVar):
        return wanted is given
    return Solver().unify(wanted, given)
